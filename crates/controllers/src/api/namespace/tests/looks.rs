//! What is deleted, in which order, and when the namespace goes.

use std::time::Duration;

use super::fixtures::{Ended, World};
use super::resource;
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::wire::{Str, Time};

fn held(meta: &mut ObjectMeta) {
    meta.finalizers = vec!["ex.io/a".into()];
}

fn graceful(meta: &mut ObjectMeta) {
    meta.deletion_grace_period_seconds = Some(30);
}

fn deleting(meta: &mut ObjectMeta) {
    meta.deletion_timestamp = Time::from_seconds(1);
    held(meta);
}

#[test]
fn an_empty_one_goes_with_one_write() {
    let mut world = World::new();
    assert_eq!(world.reconcile(), Ended::Done(None));
    assert!(world.namespace().is_none());
    assert_eq!(world.writes, ["update namespaces/finalize team"]);
    assert_eq!(world.reconcile(), Ended::Nothing);
}

#[test]
fn only_what_has_something_is_deleted_and_it_goes_in_one_reconcile() {
    let mut world = World::new();
    (0..3).for_each(|at| world.add(2, &format!("thing-{at}"), |_| {}));
    assert_eq!(world.reconcile(), Ended::Done(None));
    assert!(world.namespace().is_none());
    assert_eq!(
        world.writes,
        ["deletecollection controllerrevisions.apps team/", "update namespaces/finalize team"]
    );
}

#[test]
fn pods_go_first_and_are_waited_for() {
    let mut world = World::new();
    world.add(0, "web", graceful);
    world.add(1, "settings", |_| {});
    assert_eq!(world.reconcile(), Ended::Done(Some(Duration::from_secs(16))));
    assert_eq!(world.writes, ["deletecollection pods team/", "update namespaces/status team"]);
    // It still ends: nothing is written.
    assert_eq!(world.reconcile(), Ended::Done(Some(Duration::from_secs(16))));
    assert_eq!(world.writes.len(), 2);
    world.release();
    assert_eq!(world.reconcile(), Ended::Done(None));
    assert_eq!(world.writes[2..], ["deletecollection configmaps team/", "update namespaces/finalize team"]);
}

#[test]
fn pods_that_end_at_once_hold_nothing_up() {
    let mut world = World::new();
    world.add(0, "done", |_| {});
    world.add(1, "settings", |_| {});
    assert_eq!(world.reconcile(), Ended::Done(None));
    assert!(world.namespace().is_none());
    assert_eq!(
        world.writes,
        [
            "deletecollection pods team/",
            "deletecollection configmaps team/",
            "update namespaces/finalize team"
        ]
    );
}

/// Otherwise a user who may create a pod could keep a namespace from ending.
#[test]
fn pods_of_any_bytes_are_deleted_like_others() {
    let mut world = World::new();
    let byte = Str::of_bytes(b"\xff");
    world.add(0, "web", |meta| {
        meta.annotations = [(Str::from("a"), byte.clone())].into_iter().collect();
        meta.owner_references =
            vec![OwnerReference { name: byte.clone(), uid: byte.into(), ..Default::default() }];
    });
    assert_eq!(world.reconcile(), Ended::Done(None));
    assert!(world.namespace().is_none());
    assert_eq!(world.writes, ["deletecollection pods team/", "update namespaces/finalize team"]);
}

#[test]
fn what_a_delete_does_nothing_about_is_an_error() {
    let mut world = World::new();
    world.add(1, "settings", |_| {});
    world.wrong().deaf = true;
    let error = "unexpected items still remain in namespace: team for gvr: /v1, Resource=configmaps";
    for _ in 0..2 {
        assert_eq!(world.reconcile(), Ended::Failed(error.to_owned()));
    }
    let deletes = world.writes.iter().filter(|write| write.starts_with("delete")).count();
    assert_eq!((deletes, world.writes.len()), (2, 3));
}

#[test]
fn without_the_gate_all_go_together() {
    let mut world = World::new();
    world.pods_first = false;
    world.add(0, "web", graceful);
    world.add(1, "settings", |_| {});
    assert_eq!(world.reconcile(), Ended::Done(Some(Duration::from_secs(16))));
    assert_eq!(
        world.writes,
        ["deletecollection pods team/", "deletecollection configmaps team/", "update namespaces/status team"]
    );
}

#[test]
fn a_pod_that_outlasts_its_grace_is_an_error() {
    let mut world = World::new();
    world.add(0, "web", graceful);
    world.reconcile();
    world.age = 30;
    let error = "unexpected items still remain in namespace: team for gvr: /v1, Resource=pods";
    assert_eq!(world.reconcile(), Ended::Failed(error.to_owned()));
    assert_eq!(world.writes.len(), 3, "no second delete");
}

#[test]
fn finalizers_of_others_are_given_time() {
    let mut world = World::new();
    world.add(1, "held", held);
    assert_eq!(world.reconcile(), Ended::Done(Some(Duration::from_secs(8))));
    assert_eq!(world.reconcile(), Ended::Done(Some(Duration::from_secs(8))));
    assert_eq!(world.writes, ["deletecollection configmaps team/", "update namespaces/status team"]);
    world.release();
    assert_eq!(world.reconcile(), Ended::Done(None));
    assert!(world.namespace().is_none());
}

#[test]
fn what_waits_for_dependents_is_deleted_once_more() {
    for (finalizer, deletes) in [("foregroundDeletion", 1), ("orphan", 1), ("ex.io/a", 0)] {
        let mut world = World::new();
        world.add(1, "waits", |meta| {
            deleting(meta);
            meta.finalizers = vec![finalizer.into()];
        });
        world.reconcile();
        let count = world.writes.iter().filter(|write| write.starts_with("deletecollection")).count();
        assert_eq!(count, deletes, "{finalizer}");
    }
}

#[test]
fn what_can_not_be_deleted_at_once_is_deleted_one_by_one() {
    let mut world = World::new();
    world.resources[2].verbs.retain(|verb| verb != "deletecollection");
    world.add(2, "one", |_| {});
    world.add(2, "two", deleting);
    world.add(2, "three", |_| {});
    world.reconcile();
    assert_eq!(
        world.writes[..2],
        [
            "delete controllerrevisions.apps team/one".to_owned(),
            "delete controllerrevisions.apps team/three".to_owned()
        ]
    );
}

/// As in the original, recorded behind a proxy that answered so.
#[test]
fn what_only_claims_that_it_can_be_deleted_at_once_is_deleted_one_by_one() {
    for code in [404, 405] {
        let mut world = World::new();
        world.wrong().not_at_once.push((2, code));
        world.add(1, "settings", |_| {});
        world.add(2, "one", |_| {});
        world.add(2, "two", deleting);
        world.add(2, "three", |_| {});
        assert_eq!(world.reconcile(), Ended::Done(Some(Duration::from_secs(8))));
        assert_eq!(
            world.writes,
            [
                "deletecollection configmaps team/",
                "deletecollection controllerrevisions.apps team/",
                "delete controllerrevisions.apps team/one",
                "delete controllerrevisions.apps team/three",
                "update namespaces/status team"
            ]
        );
        world.release();
        assert_eq!(world.reconcile(), Ended::Done(None));
        assert!(world.namespace().is_none());
    }
}

/// What deletes that were never finished leave behind; the original deletes all collections every time.
#[test]
fn what_an_interrupted_delete_left_is_deleted_once_more() {
    for (grace, finalizer, deletes) in
        [(None, None, 1), (Some(0), None, 1), (Some(30), None, 0), (Some(0), Some("ex.io/a"), 0)]
    {
        for resource in [0, 2] {
            let mut world = World::new();
            world.add(resource, "left", |meta| {
                deleting(meta);
                meta.deletion_grace_period_seconds = grace;
                meta.finalizers = finalizer.map(Into::into).into_iter().collect();
            });
            world.reconcile();
            let count = world.writes.iter().filter(|write| write.starts_with("deletecollection")).count();
            assert_eq!(
                (count, world.namespace().is_none()),
                (deletes, deletes == 1),
                "{grace:?} {finalizer:?}"
            );
        }
    }
}

/// As in the original: with a verb to delete all there are, they are deleted unseen, and nothing is waited for.
#[test]
fn what_can_not_be_listed_is_deleted_unseen() {
    for (refused, code) in [(false, 404), (true, 404), (false, 405)] {
        let mut world = World::new();
        let mut other = resource("", "secrets");
        other.verbs.retain(|held| held != "list");
        world.resources.push(other);
        world.wrong().unlistable = vec![(1, code), (2, 405), (3, 500)];
        if refused {
            world.wrong().refused.insert(3);
        }
        let ended = world.reconcile();
        assert_eq!(
            world.writes[..3],
            [
                "deletecollection configmaps team/",
                "deletecollection controllerrevisions.apps team/",
                "deletecollection secrets team/"
            ]
        );
        let failed = Ended::Failed("secrets \"Unknown\" is forbidden: no".to_owned());
        assert_eq!(ended, if refused { failed } else { Ended::Done(None) });
        assert_eq!(world.namespace().is_some(), refused);
    }
}

/// Such an answer may be that of a gateway in front of the API server, and is no word about the objects.
#[test]
fn kind_whose_answer_is_not_acceptable_holds_the_namespace_and_nothing_else() {
    for code in [400, 403, 406, 409, 415, 501] {
        for resource in [0, 2] {
            let mut world = World::new();
            world.wrong().unlistable = vec![(resource, code)];
            world.wrong().not_at_once = vec![(resource, code)];
            world.add(resource, "one", |_| {});
            world.add(1, "settings", |_| {});
            for _ in 0..2 {
                assert!(matches!(world.reconcile(), Ended::Failed(_)), "{code}");
                assert!(world.namespace().is_some(), "{code}");
                assert_eq!(world.objects().len(), 1, "{code}: all else is deleted");
            }
            assert_eq!(world.condition("NamespaceDeletionContentFailure")[0], "True", "{code}");
            world.wrong().unlistable.clear();
            world.wrong().not_at_once.clear();
            assert_eq!(world.reconcile(), Ended::Done(None), "{code}");
            assert!(world.namespace().is_none() && world.objects().is_empty(), "{code}");
        }
    }
}

/// As in the original: pods that can't be listed are not deleted, and all else is.
#[test]
fn pods_that_can_not_be_listed_hold_the_namespace_and_nothing_else() {
    let mut world = World::new();
    world.wrong().unlistable = vec![(0, 500)];
    world.add(0, "web", |_| {});
    world.add(1, "settings", |_| {});
    for _ in 0..2 {
        assert_eq!(world.reconcile(), Ended::Failed("no pods".to_owned()));
    }
    assert_eq!(world.writes, ["deletecollection configmaps team/", "update namespaces/status team"]);
    world.wrong().unlistable.clear();
    assert_eq!(world.reconcile(), Ended::Done(None));
    assert!(world.namespace().is_none());
}

/// As in the original: all else goes with the reconcile that meets the refusal.
#[test]
fn pods_whose_deletion_is_refused_hold_the_namespace_and_nothing_else() {
    let mut world = World::new();
    world.wrong().refused.insert(0);
    world.add(0, "web", graceful);
    world.add(1, "settings", |_| {});
    let error = "pods \"Unknown\" is forbidden: no";
    assert_eq!(world.reconcile(), Ended::Failed(error.to_owned()));
    let deletes = ["deletecollection pods team/", "deletecollection configmaps team/"];
    assert_eq!(world.writes[..2], deletes);
    assert_eq!(world.writes[2..], ["update namespaces/status team"]);
    assert_eq!(world.reconcile(), Ended::Failed(error.to_owned()));
    assert_eq!(world.writes[3..], deletes[..1], "it is tried again, and said once");
    world.wrong().refused.clear();
    assert_eq!(world.reconcile(), Ended::Done(Some(Duration::from_secs(16))));
    world.release();
    assert_eq!(world.reconcile(), Ended::Done(None));
    assert!(world.namespace().is_none());
}

/// Nobody has refused anything: pods still go first.
#[test]
fn pods_whose_deletion_was_not_answered_are_waited_for() {
    let mut world = World::new();
    world.wrong().refused.insert(0);
    world.wrong().silent = true;
    world.add(0, "web", graceful);
    world.add(1, "settings", |_| {});
    for _ in 0..2 {
        assert!(matches!(world.reconcile(), Ended::Failed(_)));
    }
    assert!(!world.writes.iter().any(|write| write.contains("configmaps")), "{:?}", world.writes);
}

#[test]
fn kinds_that_are_not_in_it_or_can_not_be_deleted_do_not_matter() {
    let mut world = World::new();
    for verbs in [["delete", ""], ["list", "deletecollection"]] {
        let mut other = resource("ex.io", &format!("no{}", verbs[0]));
        other.verbs.retain(|held| !verbs.contains(&held.as_str()));
        world.resources.push(other);
    }
    let mut global = resource("ex.io", "globals");
    global.namespaced = false;
    world.resources.push(global);
    (3..6).for_each(|at| world.wrong().unlistable.push((at, 500)));
    assert_eq!(world.reconcile(), Ended::Done(None));
    assert!(world.namespace().is_none());
}

/// As in the original: it is deleted unseen, and why it is not known is said; or why it can't be deleted, and nothing else.
#[test]
fn a_kind_whose_list_fails_holds_the_namespace_and_nothing_else() {
    for refused in [false, true] {
        let mut world = World::new();
        world.add(1, "settings", |_| {});
        world.wrong().unlistable = vec![(2, 503)];
        if refused {
            world.wrong().refused.insert(2);
        }
        let error = if refused {
            "controllerrevisions \"Unknown\" is forbidden: no"
        } else {
            "no controllerrevisions"
        };
        assert_eq!(world.reconcile(), Ended::Failed(error.to_owned()));
        assert_eq!(
            world.writes,
            [
                "deletecollection configmaps team/",
                "deletecollection controllerrevisions.apps team/",
                "update namespaces/status team"
            ]
        );
        let said = world.condition("NamespaceDeletionContentFailure")[2].clone();
        assert_eq!(said, format!("Failed to delete all resource types, 1 remaining: {error}"));
    }
}

#[test]
fn a_refusal_is_said_and_everything_else_goes() {
    let mut world = World::new();
    world.add(1, "settings", |_| {});
    world.add(2, "thing", |_| {});
    world.wrong().refused.insert(1);
    let error = "configmaps \"Unknown\" is forbidden: no";
    for _ in 0..3 {
        assert_eq!(world.reconcile(), Ended::Failed(error.to_owned()));
    }
    assert_eq!(world.objects().len(), 1);
    let statuses = world.writes.iter().filter(|write| write.starts_with("update")).count();
    assert_eq!(statuses, 1, "it is said once: {:?}", world.writes);
    world.wrong().refused.clear();
    assert_eq!(world.reconcile(), Ended::Done(None));
    assert!(world.namespace().is_none());
}

#[test]
fn a_group_that_is_down_holds_the_namespace_and_nothing_else() {
    let mut world = World::new();
    world.stale.push("down.ex.io/v1");
    world.add(1, "settings", |_| {});
    assert!(matches!(world.reconcile(), Ended::Failed(error) if error.contains("down.ex.io/v1")));
    assert!(world.objects().is_empty());
    assert!(matches!(world.reconcile(), Ended::Failed(_)));
    assert_eq!(world.writes, ["deletecollection configmaps team/", "update namespaces/status team"]);
    world.stale.clear();
    assert_eq!(world.reconcile(), Ended::Done(None));
    assert!(world.namespace().is_none());
}

#[test]
fn one_of_the_same_name_loses_nothing() {
    let mut world = World::new();
    world.add(1, "settings", |_| {});
    world.swapped = true;
    assert_eq!(
        world.reconcile(),
        Ended::Failed("namespaces team: expected uid team-uid, found uid another, being deleted".to_owned())
    );
    assert_eq!(world.writes, Vec::<String>::new());
    // Read live, it is not being deleted; the cache still says it is.
    world.edit(|namespace| namespace.metadata.deletion_timestamp = None);
    assert_eq!(world.reconcile(), Ended::Nothing);
    assert_eq!(world.objects().len(), 1);
}

#[test]
fn what_others_hold_stays_as_it_is() {
    for in_spec in [true, false] {
        let mut world = World::new();
        world.add(1, "settings", |_| {});
        world.edit(|namespace| {
            let finalizers =
                if in_spec { &mut namespace.spec.finalizers } else { &mut namespace.metadata.finalizers };
            finalizers.insert(0, "ex.io/other".into());
        });
        assert_eq!(world.reconcile(), Ended::Done(None));
        let left = world.namespace().unwrap();
        let others = if in_spec { &left.spec.finalizers } else { &left.metadata.finalizers };
        assert_eq!((others.len(), others[0].as_str()), (1, "ex.io/other"));
        assert_eq!(left.status.conditions.len(), 5);
        assert_eq!(world.reconcile(), Ended::Nothing);
        assert_eq!(
            world.writes,
            [
                "deletecollection configmaps team/",
                "update namespaces/status team",
                "update namespaces/finalize team"
            ]
        );
    }
}

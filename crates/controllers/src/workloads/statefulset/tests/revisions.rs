//! Which revision is the present one, how one is made, and which are kept.

use std::sync::Arc;
use std::time::Duration;

use super::super::memory::{Search, Stopped};
use super::super::revisions::Present;
use super::fixtures::*;
use super::*;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::executor::{Effect, WriteEffect};
use coxswain_machinery::framework::{Memory as _, Outcome, Read, ReconcileEnd};
use coxswain_machinery::model::plan::{Cooldown, Verb};
use coxswain_machinery::wire::splice::{Edit, edit};

const OK: fn(&mut Pod) = |_| {};

fn bench(image: &str) -> Bench {
    let set = set(|set| {
        set.spec.template = template(image);
        says(set, "web:1", "web:1");
    });
    Bench::of(&set, &[pod(0, "web:1", OK), pod(1, "web:1", OK), pod(2, "web:1", OK)])
}

#[test]
fn a_new_template_gets_a_revision_of_the_next_number() {
    let bench = bench("web:2");
    let plan = bench.plan();
    assert_eq!(lines(&plan), [format!("create {}", revision_name("web:2"))]);
    assert!(plan.look_again, "the next look has it");
    let Verb::Create(body) = &plan.writes().next().unwrap().verb else { panic!("a create") };
    let made: Arc<ControllerRevision> = typed((CONTROLLER_REVISIONS.decode)(body).unwrap());
    assert_eq!((made.revision, made.metadata.owner_references.clone()), (2, vec![owner()]));
    let hash = document("web:2").hash(0);
    assert_eq!(made.metadata.labels, labels(&[("app", "web"), ("controller.kubernetes.io/hash", &hash)]));
    assert!(document("web:2").is_in(&made));

    let answer = Effect {
        kind: &CONTROLLER_REVISIONS,
        key: Key::new("default", revision_name("web:2")),
        subresource: "",
        change: WriteEffect::Stored("9".into()),
        answer: Some(revision("web:2", 2) as AnyObject),
    };
    let view = bench.view_after(&[], Reads::default().after(answer));
    let plan = plan::plan(&view, now()).0;
    assert_eq!(lines(&plan), ["delete web-2 web-2-uid", "status 3/3/3 2 0 web:1 web:2"]);
}

#[test]
fn statefulset_in_deletion_gets_a_revision_and_no_pod() {
    let going = set(|set| {
        set.spec.template = template("web:2");
        says(set, "web:1", "web:1");
        set.metadata.deletion_timestamp = ago(1);
    });
    let bench = Bench::of(&going, &[pod(0, "web:1", OK)]);
    assert_eq!(bench.lines(), [format!("create {}", revision_name("web:2"))]);
    let bench = bench.with_revision("web:2", 2);
    assert_eq!(bench.lines(), ["status 1/1/1 1 0 web:1 web:2"]);

    let new = set(|set| set.metadata.deletion_timestamp = ago(1));
    let empty = Bench::empty();
    empty.sets.upsert(&(Arc::clone(&new) as AnyObject));
    assert_eq!(empty.lines(), [format!("create {}", revision_name("web:1"))], "deleted as it was created");
    assert_eq!(empty.with_revision("web:1", 1).lines(), ["status 0/0/0 0 0 web:1 web:1"]);
}

#[test]
fn going_back_gives_the_old_revision_a_new_number() {
    let bench = bench("web:1").with_revision("web:2", 2);
    let patch = format!(
        r#"patch {} {{"metadata":{{"uid":"web:1-uid","resourceVersion":"100"}},"revision":3}}"#,
        revision_name("web:1")
    );
    assert_eq!(bench.acts(), [patch]);
}

#[test]
fn a_name_that_is_taken_is_as_good_as_made_if_the_bytes_are_the_same() {
    let bench = bench("web:2");
    let key = Key::new("default", revision_name("web:2"));
    let met = || {
        Reads::default().after(Effect {
            kind: &CONTROLLER_REVISIONS,
            key: key.clone(),
            subresource: "",
            change: WriteEffect::Nothing,
            answer: None,
        })
    };
    let room = bench.room();
    let needs = view::observe(&room, &Key::new("default", "web"), &[], &met()).unwrap();
    assert!(
        matches!(needs, Observation::Needs(reads) if reads == [Read::Object(&CONTROLLER_REVISIONS, key.clone())])
    );

    let equal: AnyObject = revision("web:2", 7);
    let view = bench.view_after(&[], met().with_object(&CONTROLLER_REVISIONS, key.clone(), Ok(Some(equal))));
    assert!(matches!(view.present, Present::Held(_)));

    let other: AnyObject = revision("web:3", 7);
    let view = bench.view_after(&[], met().with_object(&CONTROLLER_REVISIONS, key.clone(), Ok(Some(other))));
    let plan = plan::plan(&view, now()).0;
    let write = plan.writes().next().unwrap();
    assert_eq!(write.key.name, format!("web-{}", document("web:2").hash(1)));
    let Verb::Create(body) = &write.verb else { panic!("a create") };
    let made: Arc<ControllerRevision> = typed((CONTROLLER_REVISIONS.decode)(body).unwrap());
    let label = made.metadata.labels.get("controller.kubernetes.io/hash").cloned().unwrap();
    assert_eq!(label, document("web:2").hash(0).as_str(), "the label stays that of the first name");
}

/// Ends a reconcile of the StatefulSet.
fn end(bench: &Bench) {
    let outcome = Outcome::Done { writes: 0, requeue_after: None, cooldown: Cooldown::NONE };
    let end = ReconcileEnd { outcome: &outcome, actions: &[], took: Duration::ZERO };
    bench.room().memory.ended(&Key::new("default", "web"), end);
}

/// The effect of a create of a revision, with the revision unless the name was taken.
fn creation(key: &Key, made: Option<Arc<ControllerRevision>>) -> Effect {
    let change = if made.is_some() { WriteEffect::Stored("9".into()) } else { WriteEffect::Nothing };
    let answer = made.map(|made| made as AnyObject);
    Effect { kind: &CONTROLLER_REVISIONS, key: key.clone(), subresource: "", change, answer }
}

#[test]
fn statefulset_goes_on_with_the_next_name_of_a_revision_where_a_reconcile_ended() {
    const TAKEN: i32 = 25;
    let bench = bench("web:2");
    let web = Key::new("default", "web");
    let name = |collisions: i32| Key::new("default", format!("web-{}", document("web:2").hash(collisions)));
    let free = name(TAKEN);
    let plan_after = |read: Reads| {
        let view = bench.view_after(&[], read);
        let (plan, note) = Controller::plan(&view, now()).into_parts();
        bench.room().memory.commit(&web, note);
        (plan, view.collisions)
    };
    let (mut all, mut reconciles) = (Vec::new(), 0);
    while all.last() != Some(&free) {
        reconciles += 1;
        assert!(reconciles < 20, "{all:?}");
        let mut tried: Vec<Key> = Vec::new();
        loop {
            let other: AnyObject = revision("web:3", 7);
            let read = tried.iter().fold(Reads::default(), |reads, key| {
                let reads = reads.after(creation(key, None));
                reads.with_object(&CONTROLLER_REVISIONS, key.clone(), Ok(Some(Arc::clone(&other))))
            });
            let (plan, _) = plan_after(read);
            if !plan.look_again {
                end(&bench);
                assert!(plan.is_empty() && plan.has_more, "{plan:?}");
                assert_eq!(plan.requeue_after, Some(Duration::ZERO));
                break;
            }
            let write = plan.writes().next().unwrap();
            all.push(write.key.clone());
            if write.key == free {
                let Verb::Create(body) = &write.verb else { panic!("a create") };
                let made: Arc<ControllerRevision> = typed((CONTROLLER_REVISIONS.decode)(body).unwrap());
                let label = made.metadata.labels.get("controller.kubernetes.io/hash").cloned().unwrap();
                assert_eq!(
                    label,
                    document("web:2").hash(0).as_str(),
                    "the label stays that of the first name"
                );
                let read = tried.iter().fold(Reads::default(), |reads, key| reads.after(creation(key, None)));
                let (_, collisions) = plan_after(read.after(creation(&free, Some(made))));
                assert_eq!(collisions, TAKEN, "the status shows the collisions of all reconciles");
                end(&bench);
                break;
            }
            tried.push(write.key.clone());
            assert!(tried.len() <= 3, "with adoptions, these are four of five passes");
        }
    }
    assert_eq!(all, (0..=TAKEN).map(name).collect::<Vec<_>>(), "each name is tried once");
    assert_eq!(reconciles, 9);
    assert_eq!(bench.view(&[]).collisions, 0, "a search that has ended is forgotten");
}

/// A webhook can refuse a create as existing. kube-controller-manager retries the same name with a backoff, too.
#[test]
fn statefulset_name_of_a_revision_that_exists_and_cannot_be_found_is_tried_again() {
    let bench = bench("web:2");
    let key = Key::new("default", format!("web-{}", document("web:2").hash(0)));
    let read = Reads::default().after(creation(&key, None)).with_object(&CONTROLLER_REVISIONS, key, Ok(None));
    let error = view::observe(&bench.room(), &Key::new("default", "web"), &[], &read).unwrap_err();
    let says = "a read of this name responded NotFound";
    assert!(matches!(&error, ObserveError::Retry(why) if why.contains(says)), "{error:?}");
}

#[test]
fn statefulset_search_for_a_name_of_a_revision_is_forgotten_with_its_template_or_set() {
    let bench = bench("web:2");
    let web = Key::new("default", "web");
    let metadata = bench.view(&[]).set.metadata.clone();
    let stop = |template: &str| {
        let template = document(template).hash(0).as_str().to_owned();
        let stopped = Stopped { set: metadata.uid.clone(), template, collisions: 3 };
        bench.room().memory.commit(&web, Note { search: Search::Stopped(stopped), ..Note::default() });
        end(&bench);
        bench.view(&[]).collisions
    };
    assert_eq!([stop("web:3"), stop("web:2")], [0, 3]);
    let absent = ReconcileEnd { outcome: &Outcome::Absent, actions: &[], took: Duration::ZERO };
    bench.room().memory.ended(&web, absent);
    assert_eq!(bench.view(&[]).collisions, 0);
}

/// Adoptions between the names use up the passes of a reconcile.
#[test]
fn statefulset_goes_on_after_one_taken_name_too() {
    let bench = bench("web:2");
    let (web, hashes) = (Key::new("default", "web"), document("web:2"));
    let taken = |collisions: i32| {
        let key = Key::new("default", format!("web-{}", hashes.hash(collisions)));
        let other: AnyObject = revision("web:3", 7);
        Reads::default().after(creation(&key, None)).with_object(&CONTROLLER_REVISIONS, key, Ok(Some(other)))
    };
    for passed in 0..3 {
        let view = bench.view_after(&[], taken(passed));
        let (plan, note) = Controller::plan(&view, now()).into_parts();
        let expected = format!("web-{}", hashes.hash(passed + 1));
        assert_eq!(plan.writes().next().unwrap().key.name, expected);
        bench.room().memory.commit(&web, note);
        assert_eq!(bench.view(&[]).collisions, passed, "the reconcile counts from its start");
        end(&bench);
        assert_eq!(bench.view(&[]).collisions, passed + 1);
    }
}

#[test]
fn statefulset_collision_count_wraps_around() {
    for (count, next) in [(i32::MAX, i32::MIN), (-5, -4)] {
        let set = set(|set| {
            set.spec.template = template("web:2");
            says(set, "web:1", "web:1");
            set.status.collision_count = Some(count);
        });
        let bench = Bench::of(&set, &[pod(0, "web:1", OK)]);
        let name = |collisions| format!("web-{}", document("web:2").hash(collisions));
        assert_eq!(bench.plan().writes().next().unwrap().key.name, name(count));
        let other: AnyObject = revision("web:3", 7);
        let key = Key::new("default", name(count));
        let read = Reads::default().after(creation(&key, None));
        let view = bench.view_after(&[], read.with_object(&CONTROLLER_REVISIONS, key, Ok(Some(other))));
        assert_eq!(plan::plan(&view, now()).0.writes().next().unwrap().key.name, name(next));
    }
}

#[test]
fn statefulset_history_is_cut_although_the_new_revision_is_refused() {
    let set = set(|set| {
        set.spec.template = template("web:3");
        set.spec.replicas = Some(1);
        set.spec.revision_history_limit = Some(0);
        says(set, "web:2", "web:2");
    });
    let bench = Bench::of(&set, &[pod(0, "web:2", OK)]).with_revision("web:2", 2);
    let created = bench.plan().writes().next().unwrap().key.name.clone();
    let failure = refused(&CONTROLLER_REVISIONS, "create", &created, "exceeded quota");
    let after = lines(&plan::plan(&bench.view(&[failure]), now()).0);
    assert_eq!(after, [format!("delete {} web:1-uid", revision_name("web:1"))]);
}

#[test]
fn statefulset_releases_pods_although_the_check_before_adoptions_fails() {
    let bench = bench("web:1");
    bench.pods.upsert(&(pod(0, "web:1", orphaned) as AnyObject));
    let relabeled: fn(&mut Pod) = |pod| pod.metadata.labels = labels(&[("app", "api")]);
    bench.pods.upsert(&(pod(1, "web:1", relabeled) as AnyObject));
    let failure = refused(&STATEFUL_SETS, "", "web", "gone");
    let plan = plan::plan(&bench.view(&[failure]), now()).0;
    let names: Vec<&str> = plan.writes().map(|write| write.key.name.as_str()).collect();
    assert_eq!(names, ["web-1"]);
}

#[test]
fn a_revision_that_means_the_same_rolls_nothing_and_is_read_once() {
    let mut bench = bench("web:1");
    let older = br#"{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"web"}},
        "spec":{"containers":[{"image":"web:1","name":"web","imagePullPolicy":"IfNotPresent","resources":{}}],
        "volumes":[{"name":"data"},{"name":"own"}]}}}}"#;
    let bytes = edit(&revision_bytes("web:1", 1), &[Edit::SetBytes(&[2, 1], older.to_vec())]).unwrap();
    bench.revisions.upsert(&(CONTROLLER_REVISIONS.decode)(&bytes.clone().into()).unwrap());
    bench.documents = vec![(revision_name("web:1"), bytes)];
    let view = bench.view(&[]);
    assert!(matches!(view.present, Present::Held(_)) && view.same.is_some());
    assert_eq!(bench.acts(), [""; 0]);

    let note = Note { same: view.same.clone(), ..Note::default() };
    bench.room().memory.commit(&Key::new("default", "web"), note);
    bench.documents.clear();
    assert!(matches!(bench.view(&[]).present, Present::Held(_)), "it is not read again");
    bench.gates.semantic_revisions = false;
    assert_eq!(bench.acts(), [format!("create {}", revision_name("web:1"))]);
}

#[test]
fn orphans_are_adopted_before_anything_else() {
    let bench = bench("web:1");
    let orphan = edit(&revision_bytes("web:1", 1), &[Edit::Clear(&[1, 13])]).unwrap();
    bench.revisions.upsert(&(CONTROLLER_REVISIONS.decode)(&orphan.into()).unwrap());
    let expected =
        [r#"verify default/web Alive("web-uid")"#.to_owned(), format!("patch {}", revision_name("web:1"))];
    assert_eq!(bench.lines(), expected);
}

#[test]
fn history_keeps_what_pods_carry_and_as_many_others_as_are_asked_for() {
    let limited = |limit: i32| {
        let set = set(|set| {
            set.spec.template = template("web:3");
            set.spec.replicas = Some(1);
            set.spec.revision_history_limit = Some(limit);
            says(set, "web:3", "web:3");
        });
        Bench::of(&set, &[pod(0, "web:3", OK)]).with_revision("web:2", 2).with_revision("web:3", 3)
    };
    let deleted = |image: &str| format!("delete {} {image}-uid", revision_name(image));
    assert_eq!(limited(2).acts(), [""; 0]);
    assert_eq!(limited(1).acts(), [deleted("web:1")]);
    assert_eq!(limited(0).acts(), [deleted("web:1"), deleted("web:2")]);
    assert_eq!(limited(-1).acts(), [""; 0]);
    let carried = limited(0);
    carried.pods.upsert(&(pod(7, "web:1", unready) as AnyObject));
    assert!(!carried.acts().contains(&deleted("web:1")));
}

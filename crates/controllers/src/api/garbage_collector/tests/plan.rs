//! Decisions, as tables.

use serde_json::json;

use super::super::graph::Graph;
use super::super::plan::plan;
use super::super::view::{Attempt, View, observe};
use super::fixtures::*;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::model::plan::{Patch, Propagation, Step, Verb};
use coxswain_machinery::model::{Key, Plan};
use coxswain_machinery::wire::Str;
use coxswain_machinery::wire::text::raw_bytes;

/// What the API server has.
type Live<'a> = &'a [(&'static Kind, &'a ObjectMeta)];

/// Observes until everything is read, as the worker does.
fn look(graph: &Graph, attempt: &Attempt, live: Live<'_>) -> Option<View> {
    look_at(graph, attempt, false, live)
}

fn look_at(graph: &Graph, attempt: &Attempt, changed: bool, live: Live<'_>) -> Option<View> {
    let mut reads = Reads::default();
    for _ in 0..4 {
        match observe(graph, &Discovered(resolve), attempt, changed, &reads).expect("nothing fails") {
            Observation::Nothing => return None,
            Observation::View(view) => return Some(view),
            Observation::Needs(needs) => {
                for read in needs.into_iter().map(Read::from) {
                    let Read::Object(kind, key) = read else { panic!("{read:?}") };
                    let there =
                        |(held, meta): &&(&'static Kind, &ObjectMeta)| *held == kind && Key::of(meta) == key;
                    let found = live.iter().find(there).map(|(_, meta)| partial(meta));
                    assert!(reads.object(kind, &key).is_none(), "nothing is read twice");
                    reads = reads.with_object(kind, key, Ok(found));
                }
            }
        }
    }
    panic!("it never has enough");
}

/// Whether there is nothing to decide about, and nothing to be read for that.
fn is_nothing(graph: &Graph, object: &ObjectMeta) -> bool {
    matches!(
        observe(graph, &Discovered(resolve), &delete(object), false, &Reads::default()),
        Ok(Observation::Nothing)
    )
}

fn delete(object: &ObjectMeta) -> Attempt {
    Attempt::Delete(uid(object))
}

/// What is done with `object`, which the graph has observed as it is live.
fn decide(graph: &Graph, object: &ObjectMeta, live: Live<'_>) -> Plan {
    look(graph, &delete(object), live).map_or_else(Plan::default, |view| plan(&view))
}

/// The same after the API server has refused what was decided.
fn decide_again(graph: &Graph, object: &ObjectMeta, live: Live<'_>) -> Plan {
    look_at(graph, &delete(object), true, live).map_or_else(Plan::default, |view| plan(&view))
}

fn deletion(plan: &Plan) -> Option<Propagation> {
    match plan.steps.as_slice() {
        [Step::Write(write)] => match &write.verb {
            Verb::Delete { uid, resource_version, propagation, .. } => {
                assert!(!uid.is_empty() && resource_version.is_some());
                *propagation
            }
            _ => None,
        },
        _ => None,
    }
}

fn patch(step: &Step) -> &serde_json::Value {
    match step {
        Step::Write(write) => match &write.verb {
            Verb::Patch(Patch::Json(value)) => value,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn graph_of(objects: &[&ObjectMeta]) -> Graph {
    let mut graph = Graph::new();
    let _ = see(&mut graph, objects);
    graph
}

#[test]
fn an_object_whose_owners_are_in_sight_costs_no_request() {
    let owner = object("owner");
    let dependent = object("dependent").owned_by(&THING, &owner);
    let graph = graph_of(&[&owner, &dependent]);
    for object in [&owner, &dependent] {
        assert!(is_nothing(&graph, object));
    }
    assert!(look(&graph, &delete(&object("stranger")), &[]).is_none());
}

#[test]
fn an_object_without_an_owner_left_goes_as_its_finalizers_ask() {
    let owner = object("owner");
    for (finalizers, expected) in [
        (&[][..], Propagation::Background),
        (&["x.io/y"], Propagation::Background),
        (&["orphan"], Propagation::Orphan),
        (&["foregroundDeletion"], Propagation::Foreground),
    ] {
        let mut dependent = object("dependent").owned_by(&THING, &owner);
        dependent.finalizers = finalizers.iter().map(|held| (*held).into()).collect();
        let graph = graph_of(&[&dependent]);
        let view = look(&graph, &delete(&dependent), &[(&THING, &dependent)]).expect("a view");
        assert_eq!(view.absent.len(), 1);
        assert_eq!(deletion(&plan(&view)), Some(expected), "{finalizers:?}");
    }
}

#[test]
fn objects_of_any_bytes_are_collected_and_kept_like_others() {
    let owner = ObjectMeta { name: Str::of_bytes(b"\xfd"), ..object("owner") };
    let other = ObjectMeta { name: Str::of_bytes(b"\xfe"), ..owner.clone() };
    let dependent = ObjectMeta { name: Str::of_bytes(b"\xff"), ..object("dependent") };
    let dependent = dependent.owned_by(&THING, &owner);
    let graph = graph_of(&[&dependent]);
    let gone = decide(&graph, &dependent, &[(&THING, &dependent), (&THING, &other)]);
    assert_eq!(deletion(&gone), Some(Propagation::Background), "another name is another object");
    let write = gone.writes().next().expect("a delete");
    assert_eq!(*raw_bytes(&write.key.name), *b"\xff");
    assert!(decide(&graph, &dependent, &[(&THING, &dependent), (&THING, &owner)]).is_empty());
}

#[test]
fn another_object_of_the_owners_name_is_not_the_owner() {
    let owner = object("owner");
    let dependent = object("dependent").owned_by(&THING, &owner);
    let graph = graph_of(&[&dependent]);
    let namesake = ObjectMeta { uid: "another".into(), ..owner.clone() };
    let plan = decide(&graph, &dependent, &[(&THING, &dependent), (&THING, &namesake)]);
    assert_eq!(deletion(&plan), Some(Propagation::Background));
    assert!(decide(&graph, &dependent, &[(&THING, &dependent), (&THING, &owner)]).is_empty());
}

#[test]
fn the_live_object_decides_not_the_observed_one() {
    let (owner, keeper) = (object("owner"), object("keeper"));
    let dependent = object("dependent").owned_by(&THING, &owner);
    let graph = graph_of(&[&dependent]);
    let adopted = dependent.clone().at(2).owned_by(&THING, &keeper);
    let observed = decide(&graph, &dependent, &[(&THING, &adopted), (&THING, &keeper)]);
    assert_eq!(deletion(&observed), Some(Propagation::Background));
    let [Step::Write(write)] = observed.steps.as_slice() else { panic!("{observed:?}") };
    let Verb::Delete { resource_version: Some(version), .. } = &write.verb else { panic!("{write:?}") };
    assert_eq!(*version, dependent.resource_version, "the API server refuses: it is another version now");
    let kept = decide_again(&graph, &dependent, &[(&THING, &adopted), (&THING, &keeper)]);
    assert_eq!(patch(&kept.steps[0])[1]["path"], "/metadata/ownerReferences/0/name");
    for live in [object("dependent"), dependent.clone().deleting(&["x.io/y"])] {
        assert!(decide_again(&graph, &dependent, &[(&THING, &live)]).is_empty());
    }
    let reborn = ObjectMeta { uid: "another".into(), ..dependent.clone() };
    assert!(decide_again(&graph, &dependent, &[(&THING, &reborn)]).is_empty());
    assert!(decide_again(&graph, &dependent, &[]).is_empty());
}

#[test]
fn what_changes_faster_than_it_is_looked_at_goes_by_its_uid() {
    let owner = object("owner");
    let dependent = object("dependent").owned_by(&THING, &owner);
    let graph = graph_of(&[&dependent]);
    let version = |plan: &Plan| match &plan.writes().next().unwrap().verb {
        Verb::Delete { resource_version, .. } => resource_version.clone(),
        other => panic!("{other:?}"),
    };
    let busy = dependent.clone().at(7);
    let live = [(&THING, &busy)];
    assert_eq!(version(&decide(&graph, &dependent, &live)), Some(dependent.resource_version.clone()));
    assert_eq!(version(&decide_again(&graph, &dependent, &live)), None);
    // Its references are others: they were judged in this version.
    let moved = busy.owned_by(&THING, &object("another"));
    let again = decide_again(&graph, &dependent, &[(&THING, &moved)]);
    assert_eq!(version(&again), Some(moved.resource_version.clone()));
}

#[test]
fn what_goes_as_it_was_observed_is_not_read() {
    let [lost, waiting] = ["lost", "waiting"].map(object);
    let waiting = waiting.foreground();
    let dependent = object("dependent").owned_by(&THING, &lost).blocking(&THING, &waiting);
    let graph = graph_of(&[&dependent, &waiting]);
    let reads = Reads::default().with_object(&THING, Key::of(&lost), Ok(None)).with_object(
        &THING,
        Key::of(&waiting),
        Ok(Some(partial(&waiting))),
    );
    let Ok(Observation::View(view)) =
        observe(&graph, &Discovered(resolve), &delete(&dependent), false, &reads)
    else {
        panic!("it has enough")
    };
    assert_eq!(view.absent.len(), 1, "others are spared the read");
    assert_eq!(deletion(&plan(&view)), Some(Propagation::Background));
    // What is not known for certain is read.
    let mut unnumbered = dependent.clone();
    unnumbered.resource_version = "one".into();
    let elsewhere = object("elsewhere").in_namespace("b");
    for (object, others) in [
        (dependent.clone().owned_by(&THING, &object("solid")), vec![&waiting]),
        (dependent.clone().owned_by(&THING, &elsewhere), vec![&waiting, &elsewhere]),
        (unnumbered, vec![&waiting]),
        (ObjectMeta { finalizers: vec!["orphan".into()], ..dependent.clone() }, vec![&waiting]),
    ] {
        let graph = graph_of(&[&others[..], &[&object]].concat());
        let solid = super::fixtures::object("solid");
        let reads = Reads::default()
            .with_object(&THING, Key::of(&lost), Ok(None))
            .with_object(&THING, Key::of(&waiting), Ok(Some(partial(&waiting))))
            .with_object(&THING, Key::of(&solid), Ok(Some(partial(&solid))))
            .with_object(&THING, Key::new("a", "elsewhere"), Ok(None));
        let Ok(Observation::Needs(needs)) =
            observe(&graph, &Discovered(resolve), &delete(&object), false, &reads)
        else {
            panic!("{object:?} is to be read")
        };
        assert_eq!(needs, [Read::Object(&THING, Key::of(&object))]);
    }
}

#[test]
fn lost_and_waiting_owners_are_cut_off_while_another_is_there() {
    let [solid, lost, waiting] = ["solid", "lost", "waiting"].map(object);
    let waiting = waiting.foreground();
    let dependent =
        object("dependent").owned_by(&THING, &lost).owned_by(&THING, &solid).blocking(&THING, &waiting);
    let graph = graph_of(&[&dependent, &solid, &waiting]);
    let plan = decide(&graph, &dependent, &[(&THING, &dependent), (&THING, &solid), (&THING, &waiting)]);
    let test =
        |path: &str, value: &str| json!({"op": "test", "path": format!("/metadata/{path}"), "value": value});
    let remove = |at: usize| json!({"op": "remove", "path": format!("/metadata/ownerReferences/{at}")});
    assert_eq!(
        *patch(&plan.steps[0]),
        json!([
            test("uid", "uid-dependent"),
            test("ownerReferences/0/name", "lost"),
            test("ownerReferences/2/name", "waiting"),
            test("ownerReferences/2/uid", "uid-waiting"),
            test("ownerReferences/0/uid", "uid-lost"),
            remove(2),
            remove(0),
        ])
    );
    assert_eq!(plan.steps.len(), 1);
}

#[test]
fn a_dependent_of_a_waiting_owner_waits_for_its_own() {
    let owner = object("owner").foreground();
    let middle = object("middle").blocking(&THING, &owner);
    let leaf = object("leaf").blocking(&THING, &middle);
    let graph = graph_of(&[&owner, &middle, &leaf]);
    let live = [(&THING, &owner), (&THING, &middle), (&THING, &leaf)];
    assert_eq!(deletion(&decide(&graph, &middle, &live)), Some(Propagation::Foreground));
    assert!(decide(&graph, &leaf, &live).is_empty(), "its owner is there yet");
    let graph = graph_of(&[&owner, &middle]);
    assert_eq!(deletion(&decide(&graph, &middle, &live)), Some(Propagation::Background));
}

#[test]
fn an_owner_is_let_go_when_nobody_blocks_it() {
    let owner = object("owner").deleting(&["x.io/y", "foregroundDeletion"]);
    let dependent = object("dependent").blocking(&THING, &owner);
    let mut graph = graph_of(&[&owner, &dependent]);
    assert!(is_nothing(&graph, &owner));
    let _ = lose(&mut graph, &dependent);
    // Nothing of it need be read: the patch says where its finalizer was.
    let plan = decide(&graph, &owner, &[]);
    assert_eq!(
        *patch(&plan.steps[0]),
        json!([
            {"op": "test", "path": "/metadata/uid", "value": "uid-owner"},
            {"op": "test", "path": "/metadata/finalizers/1", "value": "foregroundDeletion"},
            {"op": "remove", "path": "/metadata/finalizers/1"},
        ])
    );
    let moved = owner.clone().deleting(&["foregroundDeletion"]);
    assert_eq!(
        patch(&decide_again(&graph, &owner, &[(&THING, &moved)]).steps[0])[2]["path"],
        "/metadata/finalizers/0"
    );
    let done = owner.clone().deleting(&["x.io/y"]);
    assert!(decide_again(&graph, &owner, &[(&THING, &done)]).is_empty());
}

#[test]
fn a_circle_is_broken_where_it_is_looked_at() {
    let (one, other) = (object("one"), object("other"));
    let one = one.blocking(&THING, &other).foreground();
    let other = other.blocking(&THING, &one).foreground();
    let graph = graph_of(&[&one, &other]);
    let plan = decide(&graph, &one, &[(&THING, &one)]);
    let path = "/metadata/ownerReferences/0";
    assert_eq!(
        *patch(&plan.steps[0]),
        json!([
            {"op": "test", "path": "/metadata/uid", "value": "uid-one"},
            {"op": "test", "path": format!("{path}/uid"), "value": "uid-other"},
            {"op": "replace", "path": format!("{path}/blockOwnerDeletion"), "value": false},
        ])
    );
}

#[test]
fn dependents_are_cut_loose_before_the_orphan_finalizer_goes() {
    let owner = object("owner").orphaning();
    let one = object("one").owned_by(&THING, &owner);
    let two = object("two").owned_by(&THING, &object("other")).owned_by(&THING, &owner);
    let graph = graph_of(&[&owner, &one, &two]);
    let attempt = Attempt::Orphan(uid(&owner));
    let steps = plan(&look(&graph, &attempt, &[(&THING, &owner)]).expect("a view")).steps;
    let [Step::Each(batch), last] = steps.as_slice() else { panic!("{steps:?}") };
    let paths: Vec<String> =
        batch.iter().map(|write| patch(&Step::Write(write.clone()))[2]["path"].to_string()).collect();
    assert_eq!(paths, ["\"/metadata/ownerReferences/0\"", "\"/metadata/ownerReferences/1\""]);
    assert!(batch.iter().all(|write| write.tolerate.absent && !write.tolerate.invalid));
    assert_eq!(patch(last)[2], json!({"op": "remove", "path": "/metadata/finalizers/0"}));
    assert!(look(&graph, &attempt, &[]).is_none());
    assert!(look(&graph, &delete(&owner), &[]).is_none());
}

#[test]
fn owners_in_other_namespaces_are_reported() {
    let owner = object("owner").in_namespace("b");
    let dependent = object("dependent").owned_by(&THING, &owner);
    let graph = graph_of(&[&owner, &dependent]);
    let steps = decide(&graph, &dependent, &[(&THING, &owner), (&THING, &dependent)]).steps;
    let [Step::Emit(event), Step::Write(write)] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(
        event.message,
        "ownerRef [x.io/v1/Thing, namespace: a, name: owner, uid: uid-owner] does not exist in namespace \"a\""
    );
    assert_eq!((event.reason, event.warning), ("OwnerRefInvalidNamespace", true));
    assert!(matches!(write.verb, Verb::Delete { .. }));
}

#[test]
fn a_cluster_scoped_object_is_never_deleted_for_an_owner_with_a_namespace() {
    let (owner, lost) = (object("owner"), object("lost").in_namespace(""));
    let dependent = object("dependent").in_namespace("").owned_by(&THING, &owner).owned_by(&REALM, &lost);
    let mut graph = graph_of(&[&dependent]);
    let steps = decide(&graph, &dependent, &[(&THING, &dependent)]).steps;
    let [Step::Emit(event), Step::Write(write)] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(
        event.message,
        "ownerRef [x.io/v1/Thing, namespace: , name: owner, uid: uid-owner] does not exist in namespace \"\""
    );
    assert!(matches!(write.verb, Verb::Patch(_)), "the other reference is cut off");
    let _ = see(&mut graph, &[&owner]);
    let _ = lose(&mut graph, &owner);
    assert_eq!(deletion(&decide(&graph, &dependent, &[(&THING, &dependent)])), None);
}

#[test]
fn an_owner_of_a_kind_that_is_not_served_is_neither_there_nor_absent() {
    let (owner, lost) = (object("owner"), object("lost"));
    let mut dependent = object("dependent").owned_by(&THING, &owner).owned_by(&THING, &lost);
    dependent.owner_references[0].api_version = "nowhere.io/v9".into();
    let graph = graph_of(&[&dependent]);
    let plan = decide(&graph, &dependent, &[(&THING, &dependent)]);
    assert!(plan.is_empty());
    assert!(plan.retry.is_some_and(|reason| reason.contains("nowhere.io/v9 Thing is not served")));
    let unseen = decide(&graph, &owner, &[]);
    assert!(unseen.is_empty() && unseen.retry.is_some());
}

#[test]
fn an_unseen_owner_is_read_once_and_cluster_scoped_ones_without_a_namespace() {
    let (owner, realm) = (object("owner"), object("realm").in_namespace(""));
    let one = object("one").owned_by(&THING, &owner).owned_by(&REALM, &realm);
    let far = object("far").in_namespace("b").owned_by(&REALM, &realm);
    let graph = graph_of(&[&one, &far]);
    let Ok(Observation::Needs(needs)) =
        observe(&graph, &Discovered(resolve), &delete(&realm), false, &Reads::default())
    else {
        panic!("it is to be read")
    };
    assert_eq!(needs, [Read::Object(&REALM, Key::new("", "realm"))]);
    let gone = look(&graph, &delete(&realm), &[]).expect("a view");
    assert!(gone.absent.iter().all(|place| place.namespace.is_empty()) && !gone.absent.is_empty());
    assert!(plan(&gone).is_empty());
    let there = look(&graph, &delete(&owner), &[(&THING, &owner)]).expect("a view");
    assert!(there.absent.is_empty());
    // Its watch may never tell of it: it may be gone again before its kind is listed.
    assert!(plan(&there).requeue_after.is_some() && plan(&gone).requeue_after.is_none());
}

#[test]
fn an_owner_that_was_seen_to_wait_for_its_dependents_may_have_been_told_to_leave_them() {
    let owner = object("owner").foreground();
    let dependent = object("dependent").owned_by(&THING, &owner);
    let graph = graph_of(&[&owner, &dependent]);
    let live = |owner: &ObjectMeta| {
        let live = [(&THING, &dependent), (&THING, owner)];
        decide(&graph, &dependent, &live)
    };
    assert_eq!(deletion(&live(&owner)), Some(Propagation::Background));
    assert!(live(&object("owner").deleting(&["orphan"])).is_empty());
}

#[test]
fn what_cannot_be_read_is_neither_there_nor_absent() {
    let failed = || {
        Err(coxswain_machinery::framework::ApiError::Malformed {
            request: "GET x".to_owned(),
            what: "torn".to_owned(),
        })
    };
    let owner = object("owner");
    let dependent = object("dependent").owned_by(&THING, &owner);
    let graph = graph_of(&[&dependent]);
    let itself = Reads::default().with_object(&THING, Key::of(&dependent), failed());
    let error = observe(&graph, &Discovered(resolve), &delete(&dependent), true, &itself).unwrap_err();
    assert!(matches!(error, ObserveError::Retry(_)), "{error:?}");
    let reads = Reads::default()
        .with_object(&THING, Key::of(&dependent), Ok(Some(partial(&dependent))))
        .with_object(&THING, Key::of(&owner), failed());
    let Ok(Observation::View(view)) =
        observe(&graph, &Discovered(resolve), &delete(&dependent), true, &reads)
    else {
        panic!("a view")
    };
    assert!(view.absent.is_empty());
    let plan = plan(&view);
    assert!(plan.is_empty() && plan.retry.is_some_and(|why| why.contains("torn")));
}

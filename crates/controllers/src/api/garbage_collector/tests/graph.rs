//! What changes make worth looking at, and that no node or edge is left behind.

use std::sync::Arc;

use super::super::graph::{Coordinates, Graph, GraphStats, NodeFacts, Place, Removal};
use super::fixtures::*;
use coxswain_machinery::api::meta::ObjectMeta;

fn facts(graph: &Graph, object: &ObjectMeta) -> super::super::graph::ObjectFacts {
    match graph.subject(&uid(object)) {
        NodeFacts::Object(facts) => facts,
        other => panic!("{}: {other:?}", object.name),
    }
}

fn nothing() -> Vec<String> {
    Vec::new()
}

fn place(owner: &ObjectMeta, namespace: &str) -> Place {
    Place {
        uid: uid(owner),
        coordinates: Arc::new(Coordinates::of(&reference(&THING, owner))),
        namespace: namespace.into(),
    }
}

#[test]
fn an_owner_that_arrives_first_makes_nothing_worth_a_look() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let dependent = object("dependent").owned_by(&THING, &owner);
    assert_eq!(see(&mut graph, &[&owner, &dependent]), nothing());
    assert!(facts(&graph, &dependent).settled && facts(&graph, &owner).has_dependents);
    assert_eq!(lose(&mut graph, &owner), ["uid-dependent"]);
}

#[test]
fn an_owner_that_was_not_seen_is_looked_for_once_for_all_dependents() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let one = object("one").owned_by(&THING, &owner);
    let two = object("two").owned_by(&THING, &owner);
    let far = object("far").in_namespace("b").owned_by(&THING, &owner);
    assert_eq!(see(&mut graph, &[&one, &two, &far]), ["uid-owner"]);
    let NodeFacts::Virtual(mut places) = graph.subject(&uid(&owner)) else { panic!("it was not seen") };
    places.sort_by(|one, other| one.namespace.cmp(&other.namespace));
    assert_eq!(places, [place(&owner, "a"), place(&owner, "b")]);

    let found = told(|affected| graph.absent(place(&owner, "a"), affected)).0;
    assert_eq!(found, ["uid-one", "uid-two"]);
    assert!(graph.is_absent(&place(&owner, "a")) && !graph.is_absent(&place(&owner, "b")));
    let late = object("late").owned_by(&THING, &owner);
    assert_eq!(see(&mut graph, &[&late]), ["uid-late"], "nobody is looked for twice");
}

#[test]
fn a_reference_that_names_another_kind_name_or_namespace_is_worth_a_look_in_any_order() {
    let owner = object("owner");
    let kind = object("kind").owned_by(&GADGET, &owner);
    let name = object("name").owned_by(&THING, &ObjectMeta { name: "other".into(), ..owner.clone() });
    let namespace = object("namespace").in_namespace("b").owned_by(&THING, &owner);
    let unscoped = object("unscoped").in_namespace("").owned_by(&THING, &owner);
    let right = object("right").owned_by(&THING, &owner);
    let wrong = ["uid-kind", "uid-name", "uid-namespace", "uid-unscoped"];

    let mut graph = Graph::new();
    let _ = see(&mut graph, &[&owner]);
    assert_eq!(see(&mut graph, &[&kind, &name, &namespace, &unscoped, &right]), wrong);

    let mut graph = Graph::new();
    let _ = see(&mut graph, &[&kind, &name, &namespace, &unscoped, &right]);
    assert_eq!(see(&mut graph, &[&owner]), wrong);
    assert!(facts(&graph, &right).settled && !facts(&graph, &kind).settled);
    assert!(graph.is_elsewhere(&place(&owner, "b")) && !graph.is_elsewhere(&place(&owner, "a")));
}

#[test]
fn a_reference_that_points_elsewhere_blocks_nobody() {
    let owner = object("owner").foreground();
    let unscoped = object("unscoped").in_namespace("").blocking(&THING, &owner);
    let right = object("right").blocking(&THING, &owner);
    for order in [[&owner, &unscoped, &right], [&unscoped, &right, &owner]] {
        let mut graph = Graph::new();
        let _ = see(&mut graph, &order);
        assert_eq!(facts(&graph, &owner).blocking, 1);
        assert_eq!(lose(&mut graph, &unscoped), nothing());
        assert_eq!(lose(&mut graph, &right), ["uid-owner"]);
    }
}

#[test]
fn another_version_of_the_owners_group_is_the_same_owner() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let mut dependent = object("dependent").owned_by(&GADGET, &owner);
    dependent.owner_references[0].api_version = "ex.io/v1beta1".into();
    let told = told(|affected| {
        graph.observe(&GADGET, &owner, affected);
        graph.observe(&THING, &dependent, affected);
    });
    assert_eq!(told.0, nothing());
}

#[test]
fn a_cluster_scoped_owner_may_own_in_any_namespace() {
    let (mut graph, owner) = (Graph::new(), object("owner").in_namespace(""));
    let dependent = object("dependent").in_namespace("b").owned_by(&REALM, &owner);
    let told = told(|affected| {
        graph.observe(&REALM, &owner, affected);
        graph.observe(&THING, &dependent, affected);
    });
    assert_eq!(told.0, nothing());
}

#[test]
fn what_is_older_than_what_is_known_changes_nothing() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let dependent = object("dependent").owned_by(&THING, &owner);
    let _ = see(&mut graph, &[&owner, &dependent, &object("dependent").at(3)]);
    assert_eq!(see(&mut graph, &[&dependent.clone().at(2).foreground(), &dependent]), nothing());
    assert!(!facts(&graph, &dependent).state.deleting);
    assert!(!facts(&graph, &owner).has_dependents);
}

#[test]
fn older_versions_count_when_versions_have_gone_back() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let dependent = object("dependent").owned_by(&THING, &owner);
    let _ = see(&mut graph, &[&owner.clone().foreground().at(9), &dependent.clone().at(8)]);
    assert!(facts(&graph, &owner).state.deleting);
    let _ = see(&mut graph, &[&owner.clone().at(3)]);
    assert!(facts(&graph, &owner).state.deleting, "a late watch");
    graph.forget_version(&uid(&owner));
    let _ = see(&mut graph, &[&owner.clone().at(3)]);
    assert!(!facts(&graph, &owner).state.deleting, "a restore of etcd");
    let _ = see(&mut graph, &[&owner.clone().foreground().at(2)]);
    assert!(!facts(&graph, &owner).state.deleting, "from there on versions grow");
}

#[test]
fn a_foreground_deletion_looks_at_dependents_and_again_when_the_last_that_blocks_is_gone() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let one = object("one").blocking(&THING, &owner);
    let two = object("two").blocking(&THING, &owner);
    let free = object("free").owned_by(&THING, &owner);
    let _ = see(&mut graph, &[&owner, &one, &two, &free]);
    assert_eq!(
        see(&mut graph, &[&owner.clone().foreground()]),
        ["uid-free", "uid-one", "uid-owner", "uid-two"]
    );
    assert_eq!(facts(&graph, &owner).blocking, 2);
    assert_eq!(see(&mut graph, &[&owner.clone().foreground().at(5)]), nothing(), "it had begun before");
    assert_eq!(lose(&mut graph, &free), nothing());
    assert_eq!(lose(&mut graph, &one), nothing(), "the other still blocks");
    let late = object("late").owned_by(&THING, &owner);
    assert_eq!(see(&mut graph, &[&late]), ["uid-late"]);
    let mut unblocked = two.clone().at(2);
    unblocked.owner_references[0].block_owner_deletion = Some(false);
    assert_eq!(
        see(&mut graph, &[&unblocked]),
        ["uid-owner", "uid-two"],
        "and what refers otherwise than before"
    );
    assert_eq!(facts(&graph, &owner).blocking, 0);
}

#[test]
fn dependents_that_are_to_be_kept_are_never_looked_at_for_deletion() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let dependent = object("dependent").owned_by(&THING, &owner);
    let _ = see(&mut graph, &[&owner, &dependent]);
    let both = owner.clone().deleting(&["foregroundDeletion", "orphan"]);
    let (delete, orphan) = told(|affected| graph.observe(&THING, &both, affected));
    assert_eq!((delete, orphan), (nothing(), vec!["uid-owner".to_owned()]));
    let held = graph.dependents(&uid(&owner));
    assert_eq!(held.len(), 1);
    assert_eq!((held[0].identity.key.to_string(), &held[0].positions), ("a/dependent".to_owned(), &vec![0]));
    let (delete, _) = told(|affected| graph.observe(&THING, &owner.clone().at(7).foreground(), affected));
    assert_eq!(delete, ["uid-dependent", "uid-owner"], "the orphan finalizer is gone");
}

#[test]
fn circles_are_seen_from_each_of_their_members() {
    let [a, b, c] = ["a", "b", "c"].map(object);
    let mut graph = Graph::new();
    let a = a.blocking(&THING, &c).foreground();
    let b = b.blocking(&THING, &a).foreground();
    let c = c.blocking(&THING, &b);
    let outside = object("outside").blocking(&THING, &c).foreground();
    let _ = see(&mut graph, &[&a, &b, &c, &outside]);
    assert!(!facts(&graph, &a).deadlocked, "one of them does not wait yet");
    assert!(see(&mut graph, &[&c.clone().foreground()]).contains(&"uid-c".to_owned()));
    assert!([&a, &b, &c].iter().all(|object| facts(&graph, object).deadlocked));
    assert!(!facts(&graph, &outside).deadlocked);
    let narcissus = object("narcissus");
    let narcissus = narcissus.clone().blocking(&THING, &narcissus).foreground();
    let _ = see(&mut graph, &[&narcissus]);
    let alone = facts(&graph, &narcissus);
    assert!(!alone.deadlocked && !alone.has_dependents && alone.blocking == 0);
}

#[test]
fn what_a_list_lacks_is_looked_for_before_its_dependents_are_touched() {
    let (mut graph, owner, other) = (Graph::new(), object("owner"), object("other"));
    let dependent = object("dependent").owned_by(&GADGET, &owner);
    let told = told(|affected| {
        graph.observe(&GADGET, &owner, affected);
        graph.observe(&GADGET, &other, affected);
        graph.observe(&THING, &dependent, affected);
        graph.replace(&GADGET, [&other], affected);
    });
    assert_eq!(told.0, ["uid-owner"]);
    assert!(!graph.is_absent(&place(&owner, "a")));
    assert!(matches!(graph.subject(&uid(&owner)), NodeFacts::Virtual(_)));
}

#[test]
fn an_owner_found_absent_while_in_sight_is_told_of_again_when_it_goes_out_of_sight() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let dependent = object("dependent").owned_by(&GADGET, &owner);
    let _ = told(|affected| {
        graph.observe(&GADGET, &owner, affected);
        graph.observe(&THING, &dependent, affected);
        let coordinates = Arc::new(Coordinates::of(&dependent.owner_references[0]));
        graph.absent(Place { coordinates, ..place(&owner, "a") }, affected);
    });
    assert!(facts(&graph, &dependent).settled);
    assert_eq!(told(|affected| graph.replace(&GADGET, [], affected)).0, ["uid-dependent"]);
}

#[test]
fn an_absent_owner_that_reappears_before_its_dependents_is_absent_no_longer() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let dependent = object("dependent").owned_by(&THING, &owner);
    let other = object("other");
    let _ = told(|affected| {
        graph.absent(place(&owner, "a"), affected);
        graph.absent(place(&other, "a"), affected);
    });
    assert_eq!(see(&mut graph, &[&owner]), nothing());
    assert!(!graph.is_absent(&place(&owner, "a")) && graph.is_absent(&place(&other, "a")));
    assert_eq!(see(&mut graph, &[&dependent]), nothing());
    assert!(facts(&graph, &dependent).settled);
}

#[test]
fn a_removal_seen_through_another_kind_is_none() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let _ = see(&mut graph, &[&owner]);
    let _ = told(|affected| graph.remove(&GADGET, &uid(&owner), Removal::Deleted, affected));
    let _ = told(|affected| graph.forget_kind(&GADGET, affected));
    assert_eq!(graph.len(), 1);
}

#[test]
fn two_references_with_one_uid_are_two_edges_to_one_owner() {
    let (mut graph, owner) = (Graph::new(), object("owner"));
    let other = ObjectMeta { name: "other".into(), ..owner.clone() };
    let dependent = object("dependent").owned_by(&THING, &other).blocking(&THING, &owner);
    assert_eq!(see(&mut graph, &[&owner, &dependent]), ["uid-dependent"]);
    assert_eq!(graph.dependents(&uid(&owner))[0].positions, [0, 1]);
    assert_eq!(lose(&mut graph, &dependent), nothing());
    assert_eq!(graph.stats(), GraphStats { nodes: 1, virtual_nodes: 0, edges: 0 });
}

#[test]
fn nothing_is_left_when_all_is_gone() {
    let mut graph = Graph::new();
    let owners: Vec<ObjectMeta> = (0..40).map(|at| object(&format!("owner-{at}"))).collect();
    let dependents: Vec<ObjectMeta> = (0..400)
        .map(|at| {
            let [one, other, third] = [at % 40, (at * 7) % 40, (at * 3 + 1) % 40].map(|at| &owners[at]);
            object(&format!("{at}")).blocking(&THING, one).owned_by(&THING, other).blocking(&GADGET, third)
        })
        .collect();
    let _ = see(&mut graph, &dependents.iter().collect::<Vec<_>>());
    let _ = see(&mut graph, &owners.iter().collect::<Vec<_>>());
    assert_eq!(graph.stats(), GraphStats { nodes: 440, virtual_nodes: 0, edges: 1200 });
    for owner in owners.iter().step_by(2) {
        let _ = lose(&mut graph, owner);
    }
    assert_eq!(graph.stats(), GraphStats { nodes: 440, virtual_nodes: 20, edges: 1200 });
    for dependent in dependents.iter().rev() {
        let _ = lose(&mut graph, dependent);
    }
    assert_eq!(graph.stats(), GraphStats { nodes: 20, virtual_nodes: 0, edges: 0 });
    assert!(owners.iter().skip(1).step_by(2).all(|owner| facts(&graph, owner).blocking == 0));
    let _ = told(|affected| graph.forget_kind(&THING, affected));
    assert!(graph.is_empty());
}

#[test]
fn the_debug_page_shows_an_objects_relations() {
    let (mut graph, owner, stranger) = (Graph::new(), object("ow\"ner"), object("stranger"));
    let dependent = object("dependent").owned_by(&THING, &owner);
    let _ = see(&mut graph, &[&dependent, &stranger]);
    let mut all = String::new();
    graph.write_dot(None, &mut all).expect("a string takes everything");
    assert!(all.starts_with("strict digraph full {\n") && all.ends_with("}\n"), "{all}");
    assert!(all.contains(r#"  "uid-dependent" -> "uid-ow\"ner";"#) && all.contains("stranger"), "{all}");
    assert!(all.contains(r#"virtual="true""#), "{all}");
    let mut one = String::new();
    graph.write_dot(Some(&[uid(&owner)]), &mut one).expect("a string takes everything");
    assert!(one.contains("uid-dependent") && !one.contains("stranger"), "{one}");
}

#[test]
fn a_watched_deletion_is_told_from_one_that_a_list_lacks() {
    let owner = object("owner").at(3);
    let dependent = object("dependent").owned_by(&THING, &owner);
    for (last, to_look_at) in [(owner.clone().at(4), "uid-dependent"), (owner.clone(), "uid-owner")] {
        let mut graph = Graph::new();
        let _ = see(&mut graph, &[&owner, &dependent]);
        let (affected, _) = told(|affected| graph.gone(&THING, &last, affected));
        assert_eq!(affected, [to_look_at], "the dependents of one that is gone, or else itself, live");
    }
}

#[test]
fn a_second_reference_to_an_owner_that_waits_is_worth_a_look() {
    let owner = object("owner").foreground();
    let dependent = object("dependent").owned_by(&THING, &owner);
    let mut graph = Graph::new();
    let _ = see(&mut graph, &[&owner, &dependent]);
    assert_eq!(see(&mut graph, &[&dependent.clone().blocking(&THING, &owner).at(2)]), ["uid-dependent"]);
}

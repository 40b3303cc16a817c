//! Signs of life, zones and rates.

use proptest::prelude::*;

use super::super::taints::{NO_EXECUTE, NOT_READY, UNREACHABLE, has, is_driven};
use super::super::zones::{Zone, ZoneRules, ZoneSize, ZoneState};
use super::fixtures::{RULES, World, node, seconds, set, taint};
use coxswain_machinery::wire::Time;

const NOBODY: fn(&str) -> bool = |_| false;
const ALL: fn(&str) -> bool = |_| true;

#[test]
fn who_comes_and_goes_is_told_of_once() {
    let mut world = World::zones(&["a"], 2);
    assert_eq!(world.round(), ["register a0", "register a1"]);
    assert_eq!(world.round(), [""; 0]);
    world.nodes.remove("a0");
    assert_eq!(world.round(), ["remove a0"]);
    // Another one of the name is another node, of which nothing is told.
    world.now = seconds(49);
    world.change("a1", |node| node.metadata.uid = "another".into());
    assert_eq!(world.round(), [""; 0]);
    world.now = seconds(90);
    assert_eq!(world.round(), [""; 0], "its time began anew");
}

#[test]
fn a_node_that_is_silent_for_longer_than_its_grace_is_marked() {
    let mut world = World::zones(&["a"], 2);
    let renewed = |name: &str| name == "a0";
    world.round();
    assert_eq!(world.pass(50, renewed), [""; 0]);
    assert_eq!(world.pass(1, renewed), ["mark a1"]);
    // It was ready before, and another one still is.
    assert_eq!(world.pass(1, renewed), ["taint a1"]);
    assert!(has(&world.nodes["a1"], UNREACHABLE, NO_EXECUTE));
    assert_eq!(world.pass(100, renewed), [""; 0], "what is said stays said");
    world.change("a1", |node| {
        set(node, "Ready", "True");
        node.status.conditions[0].last_heartbeat_time = Time::from_seconds(2000);
    });
    assert_eq!(world.pass(1, renewed), ["untaint a1"]);
}

#[test]
fn a_lease_and_a_status_are_signs_of_life_by_being_others_whatever_time_they_tell() {
    let mut world = World::zones(&["a"], 2);
    world.round();
    for round in 0..5 {
        assert_eq!(world.pass(40, |name| name == "a0"), [""; 0], "round {round}");
        // It tells a time of long ago.
        world.change("a1", |node| {
            node.status.conditions[0].last_heartbeat_time = Time::from_seconds(10 - round);
        });
    }
    // A status that says the same as before is no sign, nor is a Lease that goes back.
    world.pass(1, |name| name == "a0");
    world.renewals.insert("a1".to_owned(), (-5, 0));
    world.pass(1, |name| name == "a0");
    world.renewals.insert("a1".to_owned(), (-9, 0));
    let done = world.pass(60, |name| name == "a0");
    assert!(done.contains(&"mark a1".to_owned()), "{done:?}");
}

#[test]
fn one_that_never_said_anything_has_longer_and_is_marked_once() {
    let mut bare = node("bare", "a");
    bare.status.conditions.clear();
    let mut world = World::of([bare, node("well", "a")]);
    let renewed = |name: &str| name == "well";
    world.round();
    assert_eq!(world.pass(60, renewed), [""; 0]);
    assert_eq!(world.pass(2, renewed), ["mark bare", "taint bare"]);
    assert_eq!(world.pass(200, renewed), [""; 0], "that we said so is no sign of life");
}

#[test]
fn what_a_kubelet_says_itself_counts_at_once_and_is_swapped_without_limit() {
    let mut world = World::zones(&["a"], 6);
    world.round();
    for name in ["a0", "a1"] {
        world.change(name, |node| set(node, "Ready", "False"));
    }
    assert_eq!(world.pass(1, ALL), ["taint a0"], "one token");
    assert_eq!(world.next_token, Some(seconds(10)));
    assert_eq!(world.pass(10, ALL), ["taint a1"]);
    for name in ["a0", "a1"] {
        world.change(name, |node| set(node, "Ready", "Unknown"));
    }
    assert_eq!(world.pass(1, ALL), ["swap a0", "swap a1"]);
    assert!(
        has(&world.nodes["a1"], UNREACHABLE, NO_EXECUTE) && !has(&world.nodes["a1"], NOT_READY, NO_EXECUTE)
    );
    // One that somebody takes away comes back when there is a token; one that somebody sets is set anew once.
    world.change("a0", |node| node.spec.taints.clear());
    assert_eq!(world.pass(9, ALL), ["taint a0"]);
    world.change("a2", |node| {
        set(node, "Ready", "Unknown");
        node.spec.taints.push(taint(UNREACHABLE, NO_EXECUTE));
    });
    assert_eq!(world.pass(30, ALL), ["taint a2"]);
}

#[test]
fn a_new_process_takes_taints_off_and_sets_them_at_the_rate() {
    let mut world = World::zones(&["a"], 6);
    for name in ["a0", "a1"] {
        world.change(name, |node| {
            set(node, "Ready", "Unknown");
            node.spec.taints.push(taint(UNREACHABLE, NO_EXECUTE));
        });
    }
    let done: Vec<String> = world.round().into_iter().filter(|what| !what.starts_with("register")).collect();
    assert_eq!(done, ["untaint a0", "untaint a1"]);
    assert_eq!(world.pass(1, ALL), ["taint a0"]);
    assert_eq!(world.pass(10, ALL), ["taint a1"]);
}

/// A write may be refused, for somebody else was faster.
#[test]
fn taints_from_before_are_taken_off_until_that_has_succeeded() {
    let mut bare = node("bare", "a");
    bare.status.conditions.clear();
    bare.spec.taints.push(taint(NOT_READY, NO_EXECUTE));
    let mut world = World::of([bare, node("well", "a")]);
    assert_eq!(world.refused_round(), ["register bare", "register well", "untaint bare"]);
    assert_eq!(world.refused_round(), ["untaint bare"]);
    assert_eq!(world.round(), ["untaint bare"]);
    assert_eq!(world.round(), [""; 0]);
    // The same when all are lost.
    world.change("bare", |node| set(node, "Ready", "False"));
    assert_eq!(world.round(), ["taint bare"]);
    world.change("well", |node| set(node, "Ready", "False"));
    assert_eq!(world.refused_round(), ["untaint bare"]);
    assert_eq!(world.round(), ["untaint bare"]);
    assert_eq!(world.round(), [""; 0]);
}

#[test]
fn while_no_node_of_any_zone_is_ready_nobody_is_driven_away() {
    let mut world = World::zones(&["a", "b"], 3);
    world.round();
    let only_b = |name: &str| name.starts_with('b');
    world.pass(55, only_b);
    assert!(world.tainted > 0, "a zone that is lost while another lives is evicted");
    let done = world.pass(60, NOBODY);
    assert!(world.fleet.is_stopped, "{done:?}");
    assert!(world.nodes.values().all(|node| !is_driven(node)), "{done:?}");
    let before = world.tainted;
    world.pass(500, NOBODY);
    assert_eq!(world.tainted, before);
    // One comes back: all get their grace anew, and the first token comes after its time.
    world.change("b0", |node| {
        set(node, "Ready", "True");
        node.status.conditions[0].last_heartbeat_time = Time::from_seconds(3000);
    });
    world.pass(9, |name| name == "b0");
    assert_eq!(world.tainted, before);
    world.pass(3, |name| name == "b0");
    assert!(world.tainted > before);
}

#[test]
fn a_small_zone_that_is_half_lost_loses_nobody_and_two_nodes_are_not_half() {
    for (lost, is_tainted) in [(2, true), (3, false)] {
        let mut world = World::zones(&["a"], 4);
        world.round();
        world.pass(100, |name| name[1..].parse::<usize>().unwrap() >= lost);
        assert_eq!(world.tainted > 0, is_tainted, "{lost} of 4");
    }
}

#[test]
fn a_zone_is_judged_by_how_many_of_how_many_are_ready() {
    const NONE: Option<u64> = None;
    for (ready, unready, state, every) in [
        (1, 0, ZoneState::Normal, Some(10)),
        (0, 1, ZoneState::Full, Some(10)),
        // Two are no outage, however few there are.
        (1, 2, ZoneState::Normal, Some(10)),
        (1, 3, ZoneState::Partial, NONE),
        // The threshold belongs to the outage.
        (9, 11, ZoneState::Partial, NONE),
        (10, 11, ZoneState::Normal, Some(10)),
        // Fifty are not many yet.
        (20, 30, ZoneState::Partial, NONE),
        (20, 31, ZoneState::Partial, Some(100)),
    ] {
        let mut zone = Zone { size: ZoneSize { ready, unready }, ..Zone::default() };
        assert_eq!(zone.size.state(&RULES.zones), state, "{ready} {unready}");
        zone.enter(state, &RULES.zones, false, seconds(5));
        // A rate of 0.1 is a little more than that.
        let interval = zone.interval(&RULES.zones).map(|every| every.as_secs_f64().round() as u64);
        assert_eq!(interval, every, "{ready} {unready}");
    }
}

#[test]
fn a_zone_that_was_stopped_goes_on_whatever_its_rate() {
    for primary in [0.1, 1.0, 5.0] {
        let rules = ZoneRules { primary, ..RULES.zones };
        let mut zone = Zone { size: ZoneSize { ready: 2, unready: 1 }, ..Zone::default() };
        zone.enter(ZoneState::Normal, &rules, false, seconds(1));
        zone.stop();
        assert!(!zone.take(&rules, seconds(500)), "{primary}");
        zone.enter(ZoneState::Normal, &rules, true, seconds(500));
        assert!(!zone.take(&rules, seconds(500)), "{primary}: its bucket is empty");
        assert!(zone.take(&rules, seconds(511)), "{primary}");
    }
}

/// Counted over virtual time.
#[test]
fn a_lost_zone_of_a_large_cluster_is_tainted_at_the_rate_of_the_flags() {
    let mut world = World::zones(&["a", "b", "c", "d", "e"], 200);
    let others = |name: &str| !name.starts_with('a');
    world.round();
    let marked = world.pass(51, others);
    let marks = |done: &[String]| done.iter().filter(|what| what.starts_with("mark a")).count();
    assert_eq!(marks(&marked), 100, "as many as one round marks");
    assert_eq!(marks(&world.pass(1, others)), 100);
    assert_eq!(world.tainted, 1, "the bucket was full");
    world.pass(100, others);
    assert_eq!(world.tainted, 11);
    assert!(
        world.nodes.values().filter(|node| is_driven(node)).all(|node| node.metadata.name.starts_with('a'))
    );
}

#[test]
fn those_that_do_not_count_are_marked_and_tainted_as_others() {
    let mut world = World::zones(&["a"], 4);
    for name in ["a0", "a1", "a2"] {
        world.change(name, |node| {
            node.metadata.labels =
                [("topology.kubernetes.io/zone", "a"), ("node.kubernetes.io/exclude-disruption", "")]
                    .into_iter()
                    .collect();
        });
    }
    world.round();
    world.pass(100, |name| name == "a3");
    assert!(world.tainted >= 3, "three of four would have been too many");
    let size = world.fleet.zones.values().next().unwrap().size;
    assert_eq!((size.ready, size.unready), (1, 0));
}

#[test]
fn a_zone_is_named_by_region_and_zone_and_old_labels_count_first() {
    let name = |labels: &[(&str, &str)]| {
        let mut node = node("x", "");
        node.metadata.labels = labels.iter().copied().collect();
        super::super::zones::zone_of(&node).to_string()
    };
    assert_eq!(name(&[]), "");
    assert_eq!(name(&[("topology.kubernetes.io/zone", "z")]), ":\0:z");
    assert_eq!(
        name(&[("topology.kubernetes.io/zone", "z"), ("topology.kubernetes.io/region", "r")]),
        "r:\0:z"
    );
    assert_eq!(
        name(&[("topology.kubernetes.io/zone", "z"), ("failure-domain.beta.kubernetes.io/zone", "old")]),
        ":\0:old"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whoever is lost and comes back: of each zone no more nodes are tainted than the rate allows.
    #[test]
    fn the_rate_is_never_exceeded(lost in prop::collection::vec((0_usize..12, 1_u64..90), 1..8)) {
        let mut world = World::zones(&["a", "b"], 6);
        world.round();
        let mut elapsed = 0;
        for (count, time) in lost {
            world.pass(time, |name| {
                let at = name[1..].parse::<usize>().unwrap() + if name.starts_with('b') { 6 } else { 0 };
                at >= count
            });
            elapsed += time;
            prop_assert!(world.tainted as u64 <= 2 * (1 + elapsed / 10), "{} in {elapsed} s", world.tainted);
        }
    }

    /// Nodes that renew are never touched, however often we look and whatever others do.
    #[test]
    fn who_gives_signs_of_life_is_left_alone(renewing in prop::collection::vec(any::<bool>(), 8), time in 60_u64..200) {
        let mut world = World::zones(&["a", "b"], 4);
        world.round();
        let names: Vec<String> = world.nodes.keys().cloned().collect();
        let is_renewed = |name: &str| renewing[names.iter().position(|held| held == name).unwrap()];
        let done = world.pass(time, is_renewed);
        for what in done {
            let (_, name) = what.split_once(' ').unwrap();
            prop_assert!(!is_renewed(name), "{what}");
        }
    }
}

//! Blocks by tables and against a plain model, the pool as nodes come and go, and what is planned for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::blocks::{Blocks, Free};
use super::metrics::Metrics;
use super::plan::{plan, reasons};
use super::pool::{Note, Pool, Standing};
use super::view::View;
use super::{Controller, build, ranges, services};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::framework::{BuildError, Memory as _, Observation, Reads, Room as _, RoomMetrics};
use coxswain_machinery::informer::{Lister, Store};
use coxswain_machinery::model::addresses::parse_range;
use coxswain_machinery::model::plan::{Patch, Verb};
use coxswain_machinery::model::{Failure, Key, Plan, Step};
use coxswain_machinery::options::{Config, Flags};
use coxswain_machinery::telemetry::Registry;

fn net(text: &str) -> IpNet {
    parse_range(text).unwrap()
}

#[test]
fn a_range_touches_the_blocks_in_it_or_the_one_that_it_lies_in() {
    for (cluster, prefix, range, expected) in [
        ("10.244.0.0/16", 24, "10.244.0.0/24", Some((0, 0))),
        ("10.244.0.0/16", 24, "10.244.255.0/24", Some((255, 255))),
        ("10.244.0.0/16", 24, "10.244.4.0/22", Some((4, 7))),
        ("10.244.0.0/16", 24, "10.244.3.128/25", Some((3, 3))),
        ("10.244.0.0/16", 24, "10.244.0.0/16", Some((0, 255))),
        ("10.244.0.0/16", 24, "10.0.0.0/8", Some((0, 255))),
        ("10.244.0.0/16", 24, "10.245.0.0/24", None),
        ("10.244.0.0/16", 24, "11.0.0.0/8", None),
        ("10.244.0.0/16", 24, "fd00::/64", None),
        ("10.244.0.0/24", 24, "10.244.0.0/24", Some((0, 0))),
        ("fd00::/56", 72, "fd00:0:0:00ff:ff00::/72", Some((65535, 65535))),
        ("fd00::/56", 72, "fd00:0:0:0001::/64", Some((256, 511))),
        ("::/0", 16, "ffff::/16", Some((65535, 65535))),
        ("0.0.0.0/0", 32, "255.255.255.255/32", Some((4_294_967_295, 4_294_967_295))),
    ] {
        let blocks = Blocks::new(net(cluster), prefix);
        assert_eq!(blocks.span(&net(range)), expected, "{range} of {cluster}");
        if let Some((first, _)) = expected.filter(|(first, last)| first == last) {
            assert!(blocks.block(first).contains(&net(range)) && blocks.block(first).prefix_len() == prefix);
        }
    }
}

#[test]
fn the_search_goes_on_behind_what_was_given_and_begins_anew_at_the_end() {
    let mut blocks = Blocks::new(net("10.0.0.0/28"), 30);
    assert_eq!(blocks.count(), 4);
    assert_eq!(blocks.free(0), Some(Free { block: 0, tries: 0 }));
    blocks.occupy((0, 0));
    blocks.occupy((2, 3));
    assert_eq!(blocks.free(2), Some(Free { block: 1, tries: 3 }));
    assert_eq!(
        blocks.free(4),
        Some(Free { block: 1, tries: 1 }),
        "a cursor behind the end is at the beginning"
    );
    blocks.occupy((1, 1));
    assert_eq!((blocks.free(0), blocks.used()), (None, 4));
    // A block that two have is free when neither has it.
    blocks.occupy((1, 1));
    blocks.release((1, 1));
    assert_eq!(blocks.free(0), None);
    blocks.release((1, 1));
    assert_eq!(blocks.free(0), Some(Free { block: 1, tries: 1 }));
}

proptest! {
    /// Whoever takes and gives back what: what is free is what nobody has, and the first of it from the cursor on is found.
    #[test]
    fn blocks_are_as_a_plain_list_of_who_has_what(
        steps in prop::collection::vec((any::<bool>(), 0_u64..16, 0_u64..4), 1..40),
        cursor in 0_u64..16,
    ) {
        let mut blocks = Blocks::new(net("10.0.0.0/24"), 28);
        let mut held: Vec<(u64, u64)> = Vec::new();
        for (takes, first, more) in steps {
            let span = (first, (first + more).min(15));
            if takes {
                blocks.occupy(span);
                held.push(span);
            } else if let Some(at) = held.iter().position(|held| *held == span) {
                blocks.release(span);
                held.remove(at);
            }
            let taken: BTreeSet<u64> = held.iter().flat_map(|(first, last)| *first..=*last).collect();
            prop_assert_eq!(blocks.used(), taken.len() as u64);
            let expected = (cursor..16).chain(0..cursor).enumerate().find(|(_, block)| !taken.contains(block));
            let expected = expected.map(|(tries, block)| Free { block, tries: tries as u64 });
            prop_assert_eq!(blocks.free(cursor), expected);
        }
    }
}

fn flags(cluster: &str) -> Flags {
    Flags { allocate_node_cidrs: true, cluster_cidr: cluster.to_owned(), ..Flags::default() }
}

#[test]
fn flags_say_how_large_blocks_are() {
    let cut = |change: fn(&mut Flags), cluster: &str| {
        let mut flags = flags(cluster);
        change(&mut flags);
        let ranges = ranges(&flags).unwrap();
        ranges
            .iter()
            .map(|blocks| format!("{} {}", blocks.range(), blocks.block(0).prefix_len()))
            .collect::<Vec<_>>()
    };
    let both = "10.244.0.0/16,fd00::/48";
    assert_eq!(cut(|_| {}, both), ["10.244.0.0/16 24", "fd00::/48 64"]);
    assert_eq!(cut(|_| {}, "fd00::/48,10.244.0.0/16"), ["fd00::/48 64", "10.244.0.0/16 24"]);
    let of_each = |flags: &mut Flags| {
        (flags.node_cidr_mask_size_ipv4, flags.node_cidr_mask_size_ipv6) = (26, 60);
    };
    assert_eq!(cut(of_each, both), ["10.244.0.0/16 26", "fd00::/48 60"]);
    assert_eq!(cut(|flags| flags.node_cidr_mask_size = 28, "10.244.0.0/16"), ["10.244.0.0/16 28"]);
    assert_eq!(cut(|flags| flags.node_cidr_mask_size = 56, "fd00::/48"), ["fd00::/48 56"]);
}

#[test]
fn what_cannot_be_read_ends_the_start_but_of_ranges_of_services_it_is_left_out() {
    let invalid = |flags: &Flags| match ranges(flags) {
        Err(BuildError::Invalid(message)) => message,
        other => panic!("{other:?}"),
    };
    assert!(invalid(&flags("10.244.0.0")).contains("is not a CIDR"));
    let other = Flags { cidr_allocator_type: "CloudAllocator".to_owned(), ..flags("10.244.0.0/16") };
    assert_eq!(invalid(&other), "invalid CIDR allocator type: CloudAllocator");
    let of_services = Flags { service_cluster_ip_range: "10.96.0.0/12,bad".to_owned(), ..flags("") };
    assert_eq!(services(&of_services), [net("10.96.0.0/12")]);
}

/// A serial loop takes no key before its cache shows what a live list of its kind finds.
#[test]
fn loop_compares_its_cache_with_a_live_list_of_nodes_first() {
    let config = Config { flags: flags("10.244.0.0/16"), ..Config::default() };
    let built = Rig::new(config).build(build).unwrap();
    let [work] = built.loops.as_slice() else { panic!("one loop") };
    assert!(work.settings.serial && work.kind == Some(&NODES));
}

/// A pool, and the registry of its metrics.
fn pool(cluster: &str, services: &[&str]) -> (Pool, Registry) {
    let registry = Registry::new();
    let metrics = Metrics::register(&RoomMetrics::new(registry.clone())).unwrap();
    let size = |range: &IpNet| if matches!(range, IpNet::V4(_)) { 24 } else { 64 };
    let ranges = cluster.split(',').map(net).map(|range| Blocks::new(range, size(&range))).collect();
    let services: Vec<IpNet> = services.iter().map(|text| net(text)).collect();
    (Pool::new(ranges, &services, metrics), registry)
}

fn node(name: &str, ranges: &[&str]) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = name.into();
    node.metadata.uid = format!("{name}-uid").into();
    node.spec.pod_cidrs = ranges.iter().map(|range| (*range).into()).collect();
    Arc::new(node)
}

fn follow(pool: &Pool, old: Option<&Node>, new: Option<&Node>, is_initial: bool) -> Vec<String> {
    let mut keys = Vec::new();
    pool.follow(old, new, is_initial, &mut |key| keys.push(key.name.to_string()));
    keys
}

fn looked_at(pool: &Pool, node: &Arc<Node>) -> (Plan<Note>, String) {
    let (node, standing) = (Arc::clone(node), pool.standing(node));
    let view = View { node, standing, failures: 0, others: Vec::new(), failed: Vec::new() };
    (plan(&view, Timestamp::UNIX_EPOCH), reasons(&view).join(" "))
}

/// Gives a node what it is to get, as the API server and the cache would; what that was.
fn give(pool: &Pool, name: &str) -> Vec<String> {
    let bare = node(name, &[]);
    let (plan, _) = looked_at(pool, &bare);
    let ranges: Vec<String> = plan.writes().flat_map(|write| ranges_in(&write.verb)).collect();
    let key = Key::new("", name);
    (0..plan.writes().count()).for_each(|item| pool.commit_item(&key, &plan.note, item));
    pool.commit(&key, plan.note);
    let ranges_read: Vec<&str> = ranges.iter().map(String::as_str).collect();
    follow(pool, Some(&bare), Some(&node(name, &ranges_read)), false);
    ranges
}

fn ranges_in(verb: &Verb) -> Vec<String> {
    let Verb::Patch(Patch::Strategic(patch)) = verb else { panic!("{verb:?}") };
    let ranges = patch["spec"]["podCIDRs"].as_array().unwrap().iter();
    ranges.map(|range| range.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_node_gets_one_block_of_each_range_in_one_patch_of_its_own() {
    let (pool, _) = pool("10.244.0.0/16,fd00::/48", &[]);
    let bare = node("a", &[]);
    let (plan, told) = looked_at(&pool, &bare);
    assert_eq!(told, "The node has no Pod CIDR yet; a free block is allocated.");
    let writes: Vec<_> = plan.writes().collect();
    let [write] = writes.as_slice() else { panic!("{writes:?}") };
    let Verb::Patch(Patch::Strategic(patch)) = &write.verb else { panic!("{write}") };
    let both = ["10.244.0.0/24", "fd00::/64"];
    assert_eq!(
        *patch,
        json!({ "metadata": { "uid": "a-uid" }, "spec": { "podCIDR": both[0], "podCIDRs": both } })
    );
    assert!(write.tolerate.absent, "one that went needs none");
    // What was not seen is planned again, the same: nothing is reserved, and nothing can leak.
    assert_eq!(
        looked_at(&pool, &bare).0.writes().flat_map(|write| ranges_in(&write.verb)).collect::<Vec<_>>(),
        both
    );
    assert_eq!(give(&pool, "a"), both);
    assert_eq!(give(&pool, "b"), ["10.244.1.0/24", "fd00:0:0:1::/64"]);
}

#[test]
fn what_is_there_is_taken_and_what_was_given_back_is_not_given_at_once() {
    let (pool, _) = pool("10.244.0.0/22", &[]);
    let first = node("first", &["10.244.0.0/24"]);
    follow(&pool, None, Some(&first), true);
    assert_eq!(give(&pool, "a"), ["10.244.1.0/24"]);
    assert_eq!(give(&pool, "b"), ["10.244.2.0/24"]);
    follow(&pool, Some(&node("a", &["10.244.1.0/24"])), None, false);
    assert_eq!(give(&pool, "c"), ["10.244.3.0/24"]);
    assert_eq!(give(&pool, "d"), ["10.244.1.0/24"], "from the beginning on");
    // A node that was made anew unseen: what the old one had is given back, and the new one has its own.
    follow(&pool, Some(&first), Some(&node("first", &[])), false);
    assert_eq!(give(&pool, "first"), ["10.244.0.0/24"]);
}

#[test]
fn a_node_that_has_any_range_is_never_touched() {
    let (pool, _) = pool("10.244.0.0/16,fd00::/48", &[]);
    for ranges in
        [&["10.244.9.0/24"][..], &["10.244.9.0/24", "fd00::/64"], &["10.244.0.0/20"], &["10.244.9.128/25"]]
    {
        let (plan, told) = looked_at(&pool, &node("a", ranges));
        assert!(plan.steps.is_empty() && plan.retry.is_none(), "{ranges:?}");
        assert!(told.starts_with("The node has the Pod CIDRs"), "{told}");
    }
}

#[test]
fn half_an_allocation_is_none() {
    let (pool, registry) = pool("10.244.0.0/16,fd00::/63", &[]);
    for name in ["a", "b"] {
        assert_eq!(give(&pool, name).len(), 2);
    }
    let waiting = node("c", &[]);
    let (plan, told) = looked_at(&pool, &waiting);
    assert_eq!(plan.writes().count(), 0);
    assert_eq!(told, "The range fd00::/63 has no free block; the node waits until another node is deleted.");
    assert_eq!(plan.retry.as_deref(), Some("no free block in fd00::/63"));
    let [Step::Emit(event)] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    assert_eq!(event.message, "Node c status is now: CIDRNotAvailable");
    pool.commit(&Key::new("", "c"), plan.note);
    let families = registry.gather();
    let used = families
        .iter()
        .find(|family| family.name() == "node_ipam_controller_cidrset_cidrs_allocations_total");
    let used: Vec<f64> =
        used.unwrap().get_metric().iter().map(|metric| metric.get_counter().get_value()).collect();
    assert_eq!(used.iter().map(|used| used.round() as u64).collect::<Vec<_>>(), [2, 2], "of either family");
    // Whoever waits is looked at as soon as a block is free.
    let gone = node("a", &["10.244.0.0/24", "fd00::/64"]);
    assert_eq!(follow(&pool, Some(&gone), None, false), ["c"]);
    assert_eq!(follow(&pool, Some(&node("x", &[])), None, false), [""; 0]);
    assert_eq!(give(&pool, "c"), ["10.244.2.0/24", "fd00::/64"]);
}

#[test]
fn who_was_there_before_and_does_not_fit_keeps_all_from_getting_a_range() {
    for (ranges, why) in [
        (
            &["10.9.0.0/24"][..],
            "has the Pod CIDR 10.9.0.0/24, which is not a block of 10.244.0.0/16 (--cluster-cidr)",
        ),
        (&["nonsense"], "has an invalid Pod CIDR: \"nonsense\""),
        (
            &["10.244.0.0/24", "fd00::/64"],
            "has the Pod CIDR fd00::/64; the node has more Pod CIDRs than --cluster-cidr has ranges",
        ),
    ] {
        let (pool, _) = pool("10.244.0.0/16", &[]);
        let stranger = node("stranger", ranges);
        follow(&pool, None, Some(&stranger), true);
        let (plan, told) = looked_at(&pool, &stranger);
        assert_eq!(plan.retry, Some(format!("node stranger {why}")));
        assert!(told.contains(why) && plan.steps.is_empty(), "{told}");
        let (plan, told) = looked_at(&pool, &node("new", &[]));
        assert_eq!(plan.writes().count(), 0);
        let [Step::Emit(event)] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
        assert_eq!(event.message, "Node new status is now: CIDRNotAvailable");
        assert_eq!(
            plan.retry,
            Some(format!("allocation of Pod CIDRs is suspended: the existing node stranger {why}"))
        );
        assert!(told.contains(why), "{told}");
        pool.commit(&Key::new("", "new"), plan.note);
        assert_eq!(follow(&pool, Some(&stranger), None, false), ["new"], "it is gone");
        assert_eq!(give(&pool, "new"), ["10.244.0.0/24"]);
        // One that comes later is said, and holds nobody up.
        follow(&pool, None, Some(&stranger), false);
        assert!(looked_at(&pool, &stranger).0.retry.is_some());
        assert_eq!(give(&pool, "newer"), ["10.244.1.0/24"]);
    }
}

#[test]
fn ranges_of_services_are_left_out_also_when_they_are_wider() {
    let (partly, _) = pool("10.244.0.0/16", &["10.244.0.0/23", "10.96.0.0/16", "fd00::/108"]);
    assert_eq!(give(&partly, "a"), ["10.244.2.0/24"]);
    let (wholly, _) = pool("10.244.0.0/16", &["10.0.0.0/8"]);
    assert_eq!(wholly.standing(&node("a", &[])), Standing::Full(net("10.244.0.0/16")));
}

#[test]
fn a_patch_that_failed_three_times_in_a_row_is_told_of_and_tried_again() {
    let (pool, _) = pool("10.244.0.0/16", &[]);
    let (bare, key) = (node("a", &[]), Key::new("", "a"));
    for failures in 1..=6 {
        assert_eq!(pool.failures(&key), failures - 1);
        let (node, standing) = (Arc::clone(&bare), pool.standing(&bare));
        let view = View { node, standing, failures, others: Vec::new(), failed: Vec::new() };
        let plan = plan(&view, Timestamp::UNIX_EPOCH);
        assert!(!plan.end);
        match plan.steps.as_slice() {
            [] => assert!(!failures.is_multiple_of(3), "{failures}"),
            [Step::Emit(event)] if failures.is_multiple_of(3) => {
                assert_eq!((event.reason, event.warning), ("CIDRAssignmentFailed", false));
            }
            other => panic!("{other:?}"),
        }
        pool.commit(&key, plan.note);
    }
    assert_eq!(give(&pool, "a"), ["10.244.0.0/24"]);
    assert_eq!(pool.failures(&key), 0, "a success ends the row");
}

#[test]
fn taken_blocks_that_are_neighbors_are_kept_as_one_run() {
    let mut blocks = Blocks::new(net("10.0.0.0/8"), 24);
    for block in (0..20_000).chain(30_000..40_000) {
        blocks.occupy((block, block));
    }
    assert_eq!((blocks.used(), blocks.runs()), (30_000, 2));
    assert_eq!(blocks.free(0), Some(Free { block: 20_000, tries: 20_000 }));
    // The ranges of nodes with another mask size, and a service range around some of them.
    blocks.occupy((10_000, 35_000));
    assert_eq!((blocks.used(), blocks.runs()), (40_000, 5));
    blocks.release((10_000, 35_000));
    for block in (0..20_000).rev().chain(30_000..40_000) {
        blocks.release((block, block));
    }
    assert_eq!((blocks.used(), blocks.runs()), (0, 0));
}

#[test]
fn blocks_and_usage_are_counted_under_the_originals_names() {
    let (pool, registry) = pool("10.244.0.0/22", &["10.244.0.0/24"]);
    give(&pool, "a");
    give(&pool, "b");
    follow(&pool, Some(&node("a", &["10.244.1.0/24"])), None, false);
    let families = registry.gather();
    let value = |name: &str| {
        let family = families.iter().find(|family| family.name() == name).unwrap_or_else(|| panic!("{name}"));
        let metric = &family.get_metric()[0];
        assert_eq!(
            (metric.get_label()[0].name(), metric.get_label()[0].value()),
            ("clusterCIDR", "10.244.0.0/22")
        );
        metric.get_counter().get_value()
            + metric.get_gauge().get_value()
            + metric.get_histogram().get_sample_count() as f64
    };
    for (name, expected) in [
        ("node_ipam_controller_cidrset_cidrs_allocations_total", 3.0),
        ("node_ipam_controller_cidrset_cidrs_releases_total", 1.0),
        ("node_ipam_controller_cirdset_max_cidrs", 4.0),
        ("node_ipam_controller_cidrset_usage_cidrs", 0.5),
        ("node_ipam_controller_cidrset_allocation_tries_per_request", 2.0),
    ] {
        assert!((value(name) - expected).abs() < 0.01, "{name}: {}", value(name));
    }
}

/// A room over these nodes, which the pool follows.
fn room(cluster: &str, nodes: &[Arc<Node>]) -> (Controller, Arc<Store>) {
    let store = Arc::new(Store::new(&NODES));
    let pool = Arc::new(pool(cluster, &[]).0);
    for node in nodes {
        store.upsert(&(Arc::clone(node) as AnyObject));
        follow(&pool, None, Some(node), true);
    }
    (Controller { nodes: Lister::new(Arc::clone(&store)), pool }, store)
}

fn observed(room: &Controller, name: &str, failures: &[Failure]) -> View {
    let Observation::View(view) = room.observe(&Key::new("", name), failures, &Reads::default()).unwrap()
    else {
        panic!("{name} is there")
    };
    view
}

fn failure(name: &str) -> Failure {
    Failure {
        what: format!("patch nodes {name}"),
        verb: "patch",
        subresource: "",
        kind: &NODES,
        key: Key::new("", name),
        code: 403,
        reason: "Forbidden".into(),
        message: String::new(),
        existing: None,
    }
}

/// The loop is serial: each batch waits until a late watch has shown the one before.
#[test]
fn burst_of_five_hundred_nodes_takes_eight_round_trips_of_the_watch() {
    let nodes: Vec<Arc<Node>> = (0..500).map(|at| node(&format!("n{at:03}"), &[])).collect();
    let (room, store) = room("10.0.0.0/8", &nodes);
    let mut given = BTreeSet::new();
    let mut rounds = 0;
    for held in &nodes {
        let key = Key::of(&held.metadata);
        let (plan, note) = plan(&observed(&room, &key.name, &[]), Timestamp::UNIX_EPOCH).into_parts();
        let writes: Vec<_> = plan.writes().collect();
        rounds += usize::from(!writes.is_empty());
        for (item, write) in writes.iter().enumerate() {
            assert_eq!(write.item, Some(item));
            room.pool.commit_item(&key, &note, item);
            let ranges = ranges_in(&write.verb);
            let told: Vec<&str> = ranges.iter().map(String::as_str).collect();
            let (old, new) = (node(&write.key.name, &[]), node(&write.key.name, &told));
            store.upsert(&(Arc::clone(&new) as AnyObject));
            follow(&room.pool, Some(&old), Some(&new), false);
            assert!(ranges.into_iter().all(|range| given.insert(range)), "{write}");
        }
        room.pool.commit(&key, note);
    }
    assert_eq!((given.len(), rounds), (500, 8));
}

#[test]
fn last_blocks_go_to_as_many_nodes_and_to_no_two_the_same() {
    let nodes: Vec<Arc<Node>> = ["a", "b", "c", "d", "e", "f"].map(|name| node(name, &[])).into();
    let (room, _) = room("10.244.0.0/22", &nodes);
    let given = |name: &str| {
        let plan = plan(&observed(&room, name, &[]), Timestamp::UNIX_EPOCH);
        let writes =
            plan.writes().map(|write| format!("{} {}", write.key.name, ranges_in(&write.verb).join(" ")));
        writes.collect::<Vec<_>>()
    };
    let expected = ["c 10.244.0.0/24", "a 10.244.1.0/24", "b 10.244.2.0/24", "d 10.244.3.0/24"];
    assert_eq!(given("c"), expected);
    // The search begins in the middle.
    room.pool.commit_item(
        &Key::new("", "c"),
        &Note { given: vec![(Key::new("", "c"), vec![Free { block: 1, tries: 0 }])], ..Note::default() },
        0,
    );
    assert_eq!(given("c"), ["c 10.244.2.0/24", "a 10.244.3.0/24", "b 10.244.0.0/24", "d 10.244.1.0/24"]);
}

#[test]
fn failed_patch_of_another_node_is_left_to_its_own_key() {
    let nodes: Vec<Arc<Node>> = ["a", "b"].map(|name| node(name, &[])).into();
    let (room, _) = room("10.244.0.0/16", &nodes);
    let key = |name| Key::new("", name);
    let view = observed(&room, "a", &[failure("b")]);
    let recorded = plan(&view, Timestamp::UNIX_EPOCH);
    assert!(recorded.end && recorded.steps.is_empty(), "{recorded:?}");
    room.pool.commit(&key("a"), recorded.note);
    assert_eq!((room.pool.failures(&key("a")), room.pool.failures(&key("b"))), (0, 1));
    // It is in no further batch until its own key succeeds.
    assert_eq!(observed(&room, "a", &[]).others.len(), 0);
    assert_eq!(observed(&room, "b", &[]).others.len(), 1);
    let both = observed(&room, "b", &[failure("b"), failure("a")]);
    assert_eq!((both.failures, both.failed.as_slice()), (2, &[key("a")][..]));
}

proptest! {
    /// Under any order of nodes that come, are given ranges and go, and of instances that end and begin anew: no block has two
    /// owners, and none is lost.
    #[test]
    fn ranges_never_overlap_and_none_is_lost(steps in prop::collection::vec((0_u8..8, 0_usize..6), 1..60)) {
        let cluster = "10.244.0.0/22";
        let (mut pool, _) = pool(cluster, &[]);
        let mut nodes: Vec<(String, Vec<String>)> = Vec::new();
        for (serial, (what, at)) in steps.into_iter().enumerate() {
            match what {
                0..=4 => {
                    let name = format!("n{serial}");
                    let ranges = give(&pool, &name);
                    prop_assert_eq!(ranges.is_empty(), nodes.len() == 4, "a block is free exactly if nobody has it");
                    if !ranges.is_empty() {
                        nodes.push((name, ranges));
                    }
                }
                5 | 6 if !nodes.is_empty() => {
                    let (name, ranges) = nodes.remove(at % nodes.len());
                    let ranges: Vec<&str> = ranges.iter().map(String::as_str).collect();
                    follow(&pool, Some(&node(&name, &ranges)), None, false);
                }
                7 => {
                    pool = self::pool(cluster, &[]).0;
                    for (name, ranges) in &nodes {
                        let ranges: Vec<&str> = ranges.iter().map(String::as_str).collect();
                        follow(&pool, None, Some(&node(name, &ranges)), true);
                    }
                }
                _ => {}
            }
            let all: BTreeSet<&String> = nodes.iter().flat_map(|(_, ranges)| ranges).collect();
            prop_assert_eq!(all.len(), nodes.len(), "{:?}", nodes);
        }
    }
}

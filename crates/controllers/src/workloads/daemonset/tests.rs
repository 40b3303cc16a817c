//! The DaemonSet room's tables and properties.

use super::*;
use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::options::{Config, FeatureGates};

mod bytes;
mod cluster;
mod failures;
mod fixtures;
mod keys;
mod placing;
mod properties;
mod reasons;
mod revisions;
mod rolling;
mod statuses;

#[test]
fn it_builds_and_watches_what_it_reads() {
    let built = Rig::new(Config::default()).build(build).unwrap();
    let [work] = built.loops.as_slice() else { panic!("one loop") };
    assert_eq!((work.queue, work.settings.workers), ("daemonset", 2));
    let watched: Vec<String> = work.wake_ups.iter().map(|watch| watch.kind.to_string()).collect();
    assert_eq!(watched, ["daemonsets.apps", "pods", "controllerrevisions.apps", "nodes"]);
}

#[test]
fn it_waits_for_its_pods_to_be_seen_without_end_unless_the_gate_says_otherwise() {
    let five = Some(Duration::from_mins(5));
    for (gates, minor, longest_wait) in [
        ("", 36, None),
        ("StaleControllerConsistencyDaemonSet=false", 36, five),
        ("StaleControllerConsistencyReplicaSet=false", 36, None),
        // It was not there yet.
        ("", 35, five),
    ] {
        let config = Config { gates: FeatureGates::set(gates, minor), ..Config::default() };
        let built = Rig::new(config).build(build).unwrap();
        assert_eq!(built.loops[0].settings.longest_wait, longest_wait, "{gates}");
    }
}

#[test]
fn it_asks_only_for_what_its_role_grants() {
    let revisions = ["create", "delete", "get", "list", "patch", "update", "watch"];
    let role = [
        ("apps", "daemonsets", ["get", "list", "watch"].as_slice()),
        ("apps", "daemonsets/status", &["update"]),
        ("apps", "daemonsets/finalizers", &["update"]),
        ("apps", "controllerrevisions", &revisions),
        ("", "nodes", &["list", "watch"]),
        ("", "pods", &["create", "delete", "list", "patch", "watch"]),
        ("", "events", &["create", "patch", "update"]),
    ];
    for grant in DESCRIPTOR.writes {
        let (.., granted) = role
            .iter()
            .find(|(group, resource, _)| (*group, *resource) == (grant.group, grant.resource))
            .unwrap_or_else(|| panic!("{} is not in the role", grant.resource));
        assert!(grant.verbs.iter().all(|verb| granted.contains(verb)), "{grant:?}");
    }
}

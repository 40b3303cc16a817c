//! The StatefulSet room's tables and properties.

use super::*;

mod claims;
mod fixtures;
mod keys;
mod metrics;
mod properties;
mod reasons;
mod replicas;
mod revisions;
mod statuses;
mod updates;

use coxswain_machinery::framework::rig::Rig;
use coxswain_machinery::options::{Config, FeatureGates};

#[test]
fn it_builds_and_watches_what_it_reads() {
    for gates in ["", "MaxUnavailableStatefulSet=true"] {
        let config = Config { gates: FeatureGates::set(gates, 36), ..Config::default() };
        let built = Rig::new(config).build(build).unwrap();
        let [work] = built.loops.as_slice() else { panic!("one loop") };
        assert_eq!((work.queue, work.settings.workers), ("statefulset", 5));
        let watched: Vec<String> = work.wake_ups.iter().map(|watch| watch.kind.to_string()).collect();
        assert_eq!(watched, ["statefulsets.apps", "pods", "persistentvolumeclaims"]);
    }
}

#[test]
fn it_asks_only_for_what_its_role_grants() {
    let role = [
        ("apps", "statefulsets", ["get", "list", "watch"].as_slice()),
        ("apps", "statefulsets/status", &["update"]),
        ("apps", "statefulsets/finalizers", &["update"]),
        ("", "pods", &["create", "delete", "get", "list", "patch", "update", "watch"]),
        ("", "pods/finalizers", &["update"]),
        ("", "persistentvolumeclaims", &["create", "delete", "get", "list", "update", "watch"]),
        ("apps", "controllerrevisions", &["create", "delete", "get", "list", "patch", "update", "watch"]),
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

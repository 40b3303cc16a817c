//! The ReplicaSet room's tables and properties.

use super::*;
use coxswain_machinery::executor::Finishers;
use coxswain_machinery::framework::{CacheSource, Pass, Reads};
use coxswain_machinery::options::{Config, FeatureGates};

mod bytes;
mod cluster;
mod fixtures;
mod keys;
mod properties;
mod reasons;
mod scaling;
mod statuses;

use fixtures::Bench;

#[test]
fn it_builds_and_watches_what_it_reads() {
    let bench = Bench::new();
    let asked = std::sync::Mutex::new(Vec::new());
    let built = build(&Build {
        config: &Config::default(),
        gate: &|gate| {
            asked.lock().unwrap().push(gate.to_owned());
            true
        },
        root_ca: None,
        finishers: &Finishers::default(),
        zones: &coxswain_machinery::zones::Zones::bundled(),
        caches: CacheSource::new(&|kind, selector| {
            assert_eq!(selector, None);
            bench.store(kind)
        }),
        dynamic: &|_| panic!("what it watches is known"),
        debug: &|_| panic!("it has no page"),
        metrics: &coxswain_machinery::framework::RoomMetrics::new(
            coxswain_machinery::telemetry::Registry::new(),
        ),
        discovered: None,
    })
    .unwrap();
    let [work] = built.loops.as_slice() else { panic!("one loop") };
    assert_eq!((work.queue, work.settings.workers), ("replicaset", 5));
    let watched: Vec<String> = work.wake_ups.iter().map(|watch| watch.kind.to_string()).collect();
    assert_eq!(watched, ["replicasets.apps", "pods"]);
    assert_eq!(
        *asked.lock().unwrap(),
        [
            "PodDeletionCost",
            "DeploymentReplicaSetTerminatingReplicas",
            "StaleControllerConsistencyReplicaSet"
        ]
    );
    let key = Key::new("default", "web");
    let pass = || work.reconcile.plan(&key, &[], &Reads::default(), fixtures::now()).unwrap();
    assert!(matches!(pass(), Pass::Nothing));
    bench.add(&fixtures::replica_set(|_| {}));
    assert!(matches!(pass(), Pass::Plan(plan, _) if !plan.is_empty()));
}

#[test]
fn it_waits_for_its_pods_to_be_seen_without_end_unless_the_gate_says_otherwise() {
    let five = Some(Duration::from_mins(5));
    for (gates, minor, longest_wait) in [
        ("", 36, None),
        ("StaleControllerConsistencyReplicaSet=true", 36, None),
        ("StaleControllerConsistencyReplicaSet=false", 36, five),
        ("StaleControllerConsistencyDaemonSet=false", 36, None),
        // It was not there yet.
        ("", 35, five),
    ] {
        let config = Config { gates: FeatureGates::set(gates, minor), ..Config::default() };
        let built = coxswain_machinery::framework::rig::Rig::new(config).build(build).unwrap();
        assert_eq!(built.loops[0].settings.longest_wait, longest_wait, "{gates}");
    }
}

#[test]
fn it_asks_only_for_what_its_role_grants() {
    let role = [
        ("apps", "replicasets", ["get", "list", "update", "watch"].as_slice()),
        ("apps", "replicasets/status", &["update"]),
        ("apps", "replicasets/finalizers", &["update"]),
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

#[test]
fn a_selector_that_is_unusable_waits_for_a_change() {
    let empty = fixtures::replica_set(|set| {
        set.spec.selector = coxswain_machinery::api::meta::LabelSelector::default();
    });
    let invalid = fixtures::replica_set(|set| {
        set.spec.selector.match_expressions = vec![coxswain_machinery::api::meta::LabelSelectorRequirement {
            key: "app".into(),
            operator: "Like".into(),
            values: Vec::new(),
        }]
        .into();
    });
    for (set, what) in [(empty, "empty"), (invalid, "Like")] {
        let bench = Bench::new();
        bench.add(&set);
        let error = view::observe(&bench.room(), &Key::new("default", "web"), &[]).unwrap_err();
        assert!(
            matches!(&error, ObserveError::Terminal(text)
                if text.contains("default/web") && text.contains(what)),
            "{error:?}"
        );
    }
}

//! What is counted of reconciles.

use prometheus::TextEncoder;

use super::super::*;
use super::fixtures::{Bench, labels, pod, service};
use coxswain_machinery::executor::{ActionResult, ActionState, ActionVerb};
use coxswain_machinery::framework::{Outcome, Pass, Reads, Reconcile, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::plan::{Cooldown, Verb};
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::Uid;

fn ended<'a>(outcome: &'a Outcome, actions: &'a [ActionState]) -> ReconcileEnd<'a> {
    ReconcileEnd { outcome, actions, took: std::time::Duration::ZERO }
}

/// Reconciles `default/web` as a worker does; every write is done.
fn reconcile(room: &dyn Reconcile, bench: &Bench) {
    let key = Key::new("default", "web");
    let pass = room.plan(&key, &[], &Reads::default(), Timestamp::UNIX_EPOCH).unwrap();
    let Pass::Plan(plan, note) = pass else {
        room.ended(&key, ended(&Outcome::Absent, &[]));
        return;
    };
    note.count(&key);
    let action = |write: &coxswain_machinery::model::Write| ActionState {
        verb: match write.verb {
            Verb::Create(_) => ActionVerb::Create,
            Verb::Update(_) => ActionVerb::Update,
            _ => ActionVerb::Delete,
        },
        kind: write.kind,
        key: write.key.clone(),
        uid: Uid::default(),
        subresource: "",
        summary: write.to_string(),
        result: ActionResult::Done,
        code: None,
    };
    let actions: Vec<ActionState> = plan.writes().map(action).collect();
    bench.reconcile();
    let done = Outcome::Done { writes: actions.len(), requeue_after: None, cooldown: Cooldown::NONE };
    room.ended(&key, ended(&done, &actions));
}

/// All samples but those of buckets, without what they have in common.
fn samples(registry: &Registry) -> Vec<String> {
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket"));
    lines.map(|line| line.trim_start_matches("endpoint_slice_controller_").to_owned()).collect()
}

fn room(bench: &Bench, metrics: &RoomMetrics) -> impl Reconcile {
    RoomAdapter::new(bench.room()).counted_by(Metrics::register(metrics).unwrap())
}

#[test]
fn services_are_counted_as_long_as_they_are_there() {
    let registry = Registry::new();
    let metrics = RoomMetrics::new(registry.clone());
    let bench = Bench::of(
        &service(|service| service.spec.traffic_distribution = Some("PreferClose".into())),
        (1..5).map(|number| pod(number, |_| {})),
    );
    let first = room(&bench, &metrics);
    reconcile(&first, &bench);
    bench.remove(&PODS, &Key::new("default", "p001"));
    reconcile(&first, &bench);
    first.ended(&Key::new("default", "web"), ended(&Outcome::Waiting(&PODS), &[]));
    first.ended(
        &Key::new("default", "web"),
        ended(
            &Outcome::Failed {
                error: "no".into(),
                retry: true,
                quiet: false,
                refused: true,
                requeue_after: None,
                not_before: None,
            },
            &[],
        ),
    );
    let preferring = "{topology=\"Disabled\",traffic_distribution=\"PreferClose\"}";
    let counted = [
        "changes{operation=\"create\"} 2",
        "changes{operation=\"update\"} 1",
        "desired_endpoint_slices 1",
        "endpoints_added_per_sync_sum 4",
        "endpoints_added_per_sync_count 2",
        "endpoints_desired 3",
        "endpoints_removed_per_sync_sum 1",
        "endpoints_removed_per_sync_count 2",
        &format!("endpointslices_changed_per_sync_sum{preferring} 3"),
        &format!("endpointslices_changed_per_sync_count{preferring} 2"),
        "num_endpoint_slices 2",
        "services_count_by_traffic_distribution{traffic_distribution=\"PreferClose\"} 1",
        "syncs{result=\"error\"} 1",
        "syncs{result=\"stale\"} 1",
        "syncs{result=\"success\"} 2",
    ];
    assert_eq!(samples(&registry), counted);

    // Started anew, the controller goes on counting and looks at every Service again.
    let second = room(&bench, &metrics);
    assert!(samples(&registry).contains(&"num_endpoint_slices 0".to_owned()));
    reconcile(&second, &bench);
    assert!(samples(&registry).contains(&"num_endpoint_slices 2".to_owned()));
    bench.remove(&SERVICES, &Key::new("default", "web"));
    reconcile(&second, &bench);
    let left = samples(&registry);
    for gone in ["num_endpoint_slices 0", "endpoints_desired 0", "desired_endpoint_slices 0"] {
        assert!(left.contains(&gone.to_owned()), "{left:?}");
    }
    assert!(left.contains(&"syncs{result=\"success\"} 4".to_owned()), "{left:?}");
}

#[test]
fn endpointslice_counts_services_by_the_distribution_in_force() {
    for (distribution, mode, is_counted) in [
        ("PreferClose", "", true),
        ("PreferClose", "Disabled", true),
        ("PreferClose", "Auto", false),
        ("Unheard", "", false),
    ] {
        let registry = Registry::new();
        let service = service(|service| {
            service.spec.traffic_distribution = Some(distribution.into());
            if !mode.is_empty() {
                service.metadata.annotations = labels(&[("service.kubernetes.io/topology-mode", mode)]);
            }
        });
        let bench = Bench::of(&service, []);
        reconcile(&room(&bench, &RoomMetrics::new(registry.clone())), &bench);
        let series =
            format!("services_count_by_traffic_distribution{{traffic_distribution=\"{distribution}\"}} 1");
        assert_eq!(samples(&registry).contains(&series), is_counted, "{distribution} {mode}");
    }
}

#[test]
fn a_service_without_endpoints_has_a_slice() {
    let registry = Registry::new();
    let bench = Bench::of(&service(|_| {}), []);
    reconcile(&room(&bench, &RoomMetrics::new(registry.clone())), &bench);
    let left = samples(&registry);
    for there in ["num_endpoint_slices 1", "endpoints_desired 0", "desired_endpoint_slices 1"] {
        assert!(left.contains(&there.to_owned()), "{left:?}");
    }
}

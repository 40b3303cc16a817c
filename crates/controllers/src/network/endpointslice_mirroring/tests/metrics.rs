//! What is counted of reconciles.

use std::time::Duration;

use prometheus::TextEncoder;

use super::super::metrics::Metrics;
use super::fixtures::{Bench, endpoints, subset};
use coxswain_machinery::api::kinds::ENDPOINTS;
use coxswain_machinery::executor::{ActionResult, ActionState, ActionVerb};
use coxswain_machinery::framework::{Meter as _, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::telemetry::Registry;

#[test]
fn work_is_counted() {
    let registry = Registry::new();
    let metrics = Metrics::register(&RoomMetrics::new(registry.clone())).unwrap();
    let key = Key::new("default", "web");
    let bench = Bench::of(&[
        subset(&["10.0.0.1", "10.0.0.2", "10.0.0.3"], &["10.0.0.4", "10.0.0.5", "10.0.0.6"], &[80]),
        subset(&["10.0.0.1"], &[], &[81]),
    ]);
    let step = |told: &[&str]| {
        metrics.planned(&key, &bench.count());
        bench.reconcile();
        let action = |verb| ActionState {
            verb,
            kind: &coxswain_machinery::api::kinds::ENDPOINT_SLICES,
            key: key.clone(),
            uid: coxswain_machinery::wire::Uid::default(),
            subresource: "",
            summary: String::new(),
            result: ActionResult::Done,
            code: None,
        };
        let took = Duration::from_millis(3);
        let actions = [action(ActionVerb::Create)];
        let done = Outcome::Done {
            writes: 1,
            requeue_after: None,
            cooldown: coxswain_machinery::model::plan::Cooldown::NONE,
        };
        metrics.ended(&key, ReconcileEnd { outcome: &done, actions: &actions, took });
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let line = |name: &str| {
            let name = format!("endpoint_slice_mirroring_controller_{name}");
            let line = text.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '));
            format!("{} {}", &name["endpoint_slice_mirroring_controller_".len()..], line.unwrap_or("none"))
        };
        let names = [
            "num_endpoint_slices",
            "desired_endpoint_slices",
            "endpoints_desired",
            "endpoints_added_per_sync_sum",
            "endpoints_updated_per_sync_sum",
            "endpoints_removed_per_sync_sum",
            "addresses_skipped_per_sync_sum",
            "changes{operation=\"create\"}",
        ];
        assert_eq!(names.map(line).join(", ").replace("_per_sync_sum", ""), told.join(", "));
    };
    step(&[
        "num_endpoint_slices 2",
        "desired_endpoint_slices 2",
        "endpoints_desired 6",
        "endpoints_added 6",
        "endpoints_updated 0",
        "endpoints_removed 0",
        "addresses_skipped 1",
        "changes{operation=\"create\"} 1",
    ]);
    // One is new, one is another, one slice is gone.
    bench.put(endpoints(
        &[subset(&["10.0.0.1", "10.0.0.2", "10.0.0.4"], &["10.0.0.3", "10.0.0.7"], &[80])],
        |_| {},
    ));
    step(&[
        "num_endpoint_slices 1",
        "desired_endpoint_slices 1",
        "endpoints_desired 5",
        "endpoints_added 7",
        "endpoints_updated 2",
        "endpoints_removed 2",
        "addresses_skipped 1",
        "changes{operation=\"create\"} 2",
    ]);
    bench.remove(&ENDPOINTS);
    step(&[
        "num_endpoint_slices 0",
        "desired_endpoint_slices 0",
        "endpoints_desired 0",
        "endpoints_added 7",
        "endpoints_updated 2",
        "endpoints_removed 7",
        "addresses_skipped 1",
        "changes{operation=\"create\"} 3",
    ]);
    metrics.ended(&key, ReconcileEnd { outcome: &Outcome::Absent, actions: &[], took: Duration::ZERO });
}

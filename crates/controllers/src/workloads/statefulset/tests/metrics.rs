//! The gauges of StatefulSets come and go with them.

use std::time::Duration;

use super::super::Note;
use super::super::metrics::{Gauges, Metrics};
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::framework::{Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::telemetry::Registry;

#[test]
fn gauges_of_a_deleted_statefulset_are_removed() {
    let registry = Registry::new();
    let metrics = Metrics::register(&RoomMetrics::new(registry.clone())).unwrap();
    let series = || registry.gather().iter().map(|family| family.get_metric().len()).sum::<usize>();
    for policy in ["OrderedReady", "Parallel"] {
        let key = Key::new("ns", policy);
        let gauges = Gauges { policy: policy.into(), max_unavailable: 1, unavailable: Some(0) };
        metrics.planned(&key, &Note { gauges: Some(gauges), ..Note::default() });
        assert_eq!(series(), 2);
        for (outcome, left) in [(Outcome::Waiting(&PODS), 2), (Outcome::Absent, 0)] {
            metrics.ended(&key, ReconcileEnd { outcome: &outcome, actions: &[], took: Duration::ZERO });
            assert_eq!(series(), left, "{outcome:?}");
        }
    }
}

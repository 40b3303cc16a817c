//! What the controller counts of its work, under the original's names. Decides nothing.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntCounterVec;

use super::plan::Note;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::executor::ActionResult;
use coxswain_machinery::framework::{Meter, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::telemetry::BoundedSeries;

/// The metrics, and the plans that are under way.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    handled: BoundedSeries<IntCounterVec>,
    failed: BoundedSeries<IntCounterVec>,
    under_way: Arc<Mutex<HashMap<Key, Note>>>,
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let labels = ["namespace", "reason"];
        Ok(Self {
            handled: metrics.bounded_counters(
                "pod_gc_collector_force_delete_pods_total",
                "Force-deletion attempts, by namespace and reason.",
                &labels,
                &["namespace"],
            )?,
            failed: metrics.bounded_counters(
                "pod_gc_collector_force_delete_pod_errors_total",
                "Failed force-deletion attempts, including pods that no longer existed, by namespace and reason.",
                &labels,
                &["namespace"],
            )?,
            under_way: Arc::default(),
        })
    }
}

impl Meter<Note> for Metrics {
    fn planned(&self, key: &Key, note: &Note) {
        if !note.pods.is_empty() {
            self.under_way.lock().insert(key.clone(), note.clone());
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let Some(note) = self.under_way.lock().remove(key) else { return };
        // Pods that were tried, and whether all went well.
        let mut tried: HashMap<&Key, bool> = HashMap::default();
        for action in ended.actions.iter().filter(|action| action.kind == &PODS) {
            *tried.entry(&action.key).or_insert(true) &= action.result == ActionResult::Done;
        }
        for (pod, went_well) in tried {
            let Some(reason) = note.pods.get(pod) else { continue };
            let labels = [pod.namespace.as_str(), reason.label()];
            self.handled.with_label_values(&labels).inc();
            if !went_well {
                self.failed.with_label_values(&labels).inc();
            }
        }
    }
}

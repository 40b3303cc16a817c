//! What the controller counts of its work, under the original's names. Decides nothing.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{GaugeVec, HistogramVec, IntCounterVec, IntGauge, Opts, exponential_buckets};

use super::draft::{Looked, Note};
use super::memory::Remembering;
use coxswain_machinery::executor::{ActionResult, ActionState};
use coxswain_machinery::framework::{Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;

/// The metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    reconciliations: IntCounterVec,
    reconciliation_durations: HistogramVec,
    computations: IntCounterVec,
    computation_durations: HistogramVec,
    number: IntGauge,
    desired: GaugeVec,
    /// What looks under way have come to; counted when they end.
    begun: Arc<Mutex<HashMap<Key, Looked>>>,
    remembering: Arc<Remembering>,
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(
        metrics: &RoomMetrics,
        remembering: Arc<Remembering>,
    ) -> Result<Self, prometheus::Error> {
        let bounds = || exponential_buckets(0.001, 2.0, 15);
        let held = Self {
            reconciliations: metrics.counters(
                "horizontal_pod_autoscaler_controller_reconciliations_total",
                "Reconciles of HorizontalPodAutoscalers, by action and error.",
                &["action", "error"],
            )?,
            reconciliation_durations: metrics.histograms(
                "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
                "Duration of reconciles of HorizontalPodAutoscalers in seconds, by action and error.",
                &["action", "error"],
                bounds()?,
            )?,
            computations: metrics.counters(
                "horizontal_pod_autoscaler_controller_metric_computation_total",
                "Metric computations of HorizontalPodAutoscalers, by action, error and metric type.",
                &["action", "error", "metric_type"],
            )?,
            computation_durations: metrics.histograms(
                "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
                "Duration of metric computations of HorizontalPodAutoscalers in seconds; each metric of an \
                 autoscaler counts the duration of the whole reconcile.",
                &["action", "error", "metric_type"],
                bounds()?,
            )?,
            number: metrics.own(
                "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
                || {
                    IntGauge::new(
                        "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
                        "Number of HorizontalPodAutoscalers.",
                    )
                },
            )?,
            desired: metrics.own("horizontal_pod_autoscaler_controller_desired_replicas", || {
                let help = "Desired replicas of the scale target of a HorizontalPodAutoscaler.";
                GaugeVec::new(
                    Opts::new("horizontal_pod_autoscaler_controller_desired_replicas", help),
                    &["namespace", "hpa_name"],
                )
            })?,
            begun: Arc::default(),
            remembering,
        };
        held.number.set(0);
        Ok(held)
    }

    /// An autoscaler has appeared.
    pub(super) fn appeared(&self) {
        self.number.inc();
    }

    /// An autoscaler is gone.
    pub(super) fn went(&self) {
        self.number.dec();
    }
}

impl Meter<Note> for Metrics {
    fn planned(&self, key: &Key, note: &Note) {
        self.remembering.begin(key, note);
        if let Some(looked) = &note.look {
            self.begun.lock().insert(key.clone(), looked.clone());
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        if matches!(ended.outcome, Outcome::Absent) {
            // The original goes on telling of those that are gone.
            // Differs: gauges-of-deleted-objects.
            let _ = self.desired.remove_label_values(&[&key.namespace, &key.name]);
        }
        let Some(looked) = self.begun.lock().remove(key) else { return };
        let took = ended.took.as_secs_f64();
        let could_tell = looked.error != "none" || !ended.actions.iter().any(is_lost_status);
        let whole = [looked.action, if could_tell { looked.error } else { "internal" }];
        self.reconciliations.with_label_values(&whole).inc();
        self.reconciliation_durations.with_label_values(&whole).observe(took);
        for (action, error, kind) in &looked.metrics {
            let metric = [*action, *error, kind.as_str()];
            self.computations.with_label_values(&metric).inc();
            self.computation_durations.with_label_values(&metric).observe(took);
        }
        if let Some(desired) = looked.desired {
            self.desired.with_label_values(&[&key.namespace, &key.name]).set(desired.into());
        }
    }
}

/// Returns whether an action is an update of the status that failed or may have failed.
fn is_lost_status(action: &ActionState) -> bool {
    action.subresource == "status" && matches!(action.result, ActionResult::Failed(_) | ActionResult::Unknown)
}

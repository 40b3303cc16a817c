//! What the controller counts of its work, under the original's names. Decides nothing.

use parking_lot::Mutex;
use prometheus::{HistogramVec, IntCounterVec, exponential_buckets};

use super::plan::Note;
use coxswain_machinery::executor::ActionResult;
use coxswain_machinery::framework::{Meter, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::telemetry::BoundedSeries;
use coxswain_machinery::wire::Str;

/// The metrics, and the answers that are under way.
#[derive(Debug)]
pub(super) struct Metrics {
    processed: BoundedSeries<IntCounterVec>,
    failed: BoundedSeries<IntCounterVec>,
    took: BoundedSeries<HistogramVec>,
    under_way: Mutex<HashMap<Key, Str>>,
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let labels = ["driver_name"];
        Ok(Self {
            processed: metrics.bounded_counters(
                "resourcepoolstatusrequest_controller_requests_processed_total",
                "Attempts to write the status of a ResourcePoolStatusRequest, by driver.",
                &labels,
                &labels,
            )?,
            failed: metrics.bounded_counters(
                "resourcepoolstatusrequest_controller_request_processing_errors_total",
                "Failed attempts to write the status of a ResourcePoolStatusRequest, by driver.",
                &labels,
                &labels,
            )?,
            took: metrics.bounded_histograms(
                "resourcepoolstatusrequest_controller_request_processing_duration_seconds",
                "Time to process a ResourcePoolStatusRequest, by driver.",
                &labels,
                exponential_buckets(0.001, 2.0, 15)?,
            )?,
            under_way: Mutex::default(),
        })
    }
}

impl Meter<Note> for Metrics {
    fn planned(&self, key: &Key, note: &Note) {
        if let Some(driver) = &note.driver {
            self.under_way.lock().insert(key.clone(), driver.clone());
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let Some(driver) = self.under_way.lock().remove(key) else { return };
        let Some(action) = ended.actions.first() else { return };
        let labels = [driver.as_str()];
        match action.result {
            ActionResult::Planned => return,
            ActionResult::Done | ActionResult::Unneeded => {}
            ActionResult::Failed(_) | ActionResult::Unknown => self.failed.with_label_values(&labels).inc(),
        }
        self.processed.with_label_values(&labels).inc();
        self.took.with_label_values(&labels).observe(ended.took.as_secs_f64());
    }
}

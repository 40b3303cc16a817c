//! What the controller counts of its work, under the original's name. Decides nothing.

use parking_lot::Mutex;
use prometheus::{Histogram, exponential_buckets};
use std::time::Duration;

use super::plan::Note;
use coxswain_machinery::executor::ActionResult;
use coxswain_machinery::framework::{Meter, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;

/// The metric, and the deletes that are under way.
#[derive(Debug)]
pub(super) struct Metrics {
    duration: Histogram,
    under_way: Mutex<HashMap<Key, Duration>>,
}

impl Metrics {
    /// The metric, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let duration = metrics.histogram(
            "ttl_after_finished_controller_job_deletion_duration_seconds",
            "Time from the expiry of a Job's TTL to its deletion in seconds.",
            exponential_buckets(0.1, 2.0, 14)?,
        )?;
        Ok(Self { duration, under_way: Mutex::default() })
    }
}

impl Meter<Note> for Metrics {
    fn planned(&self, key: &Key, note: &Note) {
        if let Some(overdue) = note.overdue {
            self.under_way.lock().insert(key.clone(), overdue);
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let Some(overdue) = self.under_way.lock().remove(key) else { return };
        if ended.actions.iter().any(|action| action.result == ActionResult::Done) {
            self.duration.observe((overdue + ended.took).as_secs_f64());
        }
    }
}

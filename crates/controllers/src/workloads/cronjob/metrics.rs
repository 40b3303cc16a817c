//! What the controller counts of its work, under the original's name. Decides nothing.

use prometheus::{Histogram, exponential_buckets};

use super::memory::Note;
use coxswain_machinery::framework::{Meter, RoomMetrics};
use coxswain_machinery::model::Key;

/// The metric.
#[derive(Debug)]
pub(super) struct Metrics {
    skew: Histogram,
}

impl Metrics {
    /// The metric, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        Ok(Self {
            skew: metrics.histogram(
                "cronjob_controller_job_creation_skew_duration_seconds",
                "Time from the scheduled time of a run to the creation of its Job, in seconds.",
                exponential_buckets(1.0, 2.0, 10)?,
            )?,
        })
    }
}

impl Meter<Note> for Metrics {
    fn planned(&self, _: &Key, note: &Note) {
        if let Some(skew) = note.skew {
            self.skew.observe(skew);
        }
    }
}

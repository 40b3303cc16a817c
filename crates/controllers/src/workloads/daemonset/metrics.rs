//! What the controller counts of its work, under the original's names. Decides nothing.

use prometheus::IntCounterVec;

use super::memory::Note;
use coxswain_machinery::framework::{Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;

/// The metrics.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    stale: IntCounterVec,
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        Ok(Self {
            stale: metrics.counters(
                "daemonset_controller_stale_sync_skips_total",
                "Reconciles skipped because the cache of the resource was older than the controller's last write.",
                &["group", "resource"],
            )?,
        })
    }
}

impl Meter<Note> for Metrics {
    fn ended(&self, _: &Key, ended: ReconcileEnd<'_>) {
        if let Outcome::Waiting(kind) = ended.outcome {
            self.stale.with_label_values(&[kind.group, kind.resource]).inc();
        }
    }
}

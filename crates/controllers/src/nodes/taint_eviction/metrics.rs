//! What the controller counts of its work, under the original's names. Decides nothing.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Histogram, IntCounter};

use super::memory::Note;
use coxswain_machinery::executor::{ActionResult, ActionVerb};
use coxswain_machinery::framework::{Meter, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;

/// The bounds that the original has, in seconds.
const BOUNDS: [f64; 12] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];

/// The metrics, and the deletes that are under way.
#[derive(Debug)]
pub(super) struct Metrics {
    deletions: IntCounter,
    duration: Histogram,
    under_way: Mutex<HashMap<Key, Duration>>,
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        Ok(Self {
            deletions: metrics.counter(
                "taint_eviction_controller_pod_deletions_total",
                "Pods deleted by taint eviction since the controller started.",
            )?,
            duration: metrics.histogram(
                "taint_eviction_controller_pod_deletion_duration_seconds",
                "Time from when a pod was due for eviction to the response to its delete request, in seconds.",
                BOUNDS.to_vec(),
            )?,
            under_way: Mutex::default(),
        })
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
        let is_delete = |verb| verb == ActionVerb::Delete;
        if ended.actions.iter().any(|action| is_delete(action.verb) && action.result == ActionResult::Done) {
            self.deletions.inc();
            self.duration.observe((overdue + ended.took).as_secs_f64());
        }
    }
}

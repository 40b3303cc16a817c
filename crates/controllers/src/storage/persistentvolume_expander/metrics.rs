//! What the controller counts of its work, under the original's names. Decides nothing.

use parking_lot::Mutex;

use super::plan::Note;
use crate::storage::metrics::Operations;
use coxswain_machinery::framework::{Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

/// The metric, and the growing that is under way.
#[derive(Debug)]
pub(super) struct Metrics {
    operations: Operations,
    under_way: Mutex<HashMap<Key, Str>>,
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        Ok(Self { operations: Operations::register(metrics)?, under_way: Mutex::default() })
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
        let has_failed = matches!(ended.outcome, Outcome::Failed { .. });
        self.operations.ended(&driver, "expand_volume", has_failed, ended.took);
    }
}

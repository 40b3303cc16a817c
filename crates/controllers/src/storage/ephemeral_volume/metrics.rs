//! What the controller counts of its work, under the original's names. Decides nothing.

use prometheus::IntCounter;

use coxswain_machinery::api::kinds::PERSISTENT_VOLUME_CLAIMS;
use coxswain_machinery::executor::ActionResult;
use coxswain_machinery::framework::{Meter, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;

/// The metrics.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    created: IntCounter,
    failed: IntCounter,
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        Ok(Self {
            created: metrics.counter(
                "ephemeral_volume_controller_create_total",
                "Requests to create PersistentVolumeClaims of ephemeral volumes.",
            )?,
            failed: metrics.counter(
                "ephemeral_volume_controller_create_failures_total",
                "Failed requests to create PersistentVolumeClaims of ephemeral volumes.",
            )?,
        })
    }
}

impl Meter<()> for Metrics {
    fn ended(&self, _: &Key, ended: ReconcileEnd<'_>) {
        for action in ended.actions.iter().filter(|action| action.kind == &PERSISTENT_VOLUME_CLAIMS) {
            match action.result {
                ActionResult::Done | ActionResult::Unneeded => self.created.inc(),
                ActionResult::Failed(_) | ActionResult::Unknown => {
                    self.created.inc();
                    self.failed.inc();
                }
                ActionResult::Planned => {}
            }
        }
    }
}

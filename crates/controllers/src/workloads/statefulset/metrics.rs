//! What the controller shows of each StatefulSet, under the original's names. Decides nothing.

use prometheus::{IntGaugeVec, Opts};

use super::Note;
use coxswain_machinery::framework::{Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

const LABELS: &[&str] = &["statefulset_namespace", "statefulset_name", "pod_management_policy"];

/// The values of `pod_management_policy`, which the API server validates.
const POLICIES: [&str; 2] = ["OrderedReady", "Parallel"];

/// The metrics. They are there with the gate `MaxUnavailableStatefulSet`.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    max_unavailable: IntGaugeVec,
    unavailable: IntGaugeVec,
}

/// What they show of one StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gauges {
    /// `OrderedReady` or `Parallel`.
    pub(super) policy: Str,
    /// Replicas that may be unavailable.
    pub(super) max_unavailable: i64,
    /// Replicas that are, where it came to an update.
    pub(super) unavailable: Option<i64>,
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let gauges = |name: &'static str, help: &str| {
            metrics.own(name, || IntGaugeVec::new(Opts::new(name, help), LABELS))
        };
        Ok(Self {
            max_unavailable: gauges(
                "statefulset_controller_statefulset_max_unavailable",
                "Maximum number of unavailable replicas of a StatefulSet during a rolling update.",
            )?,
            unavailable: gauges(
                "statefulset_controller_statefulset_unavailable_replicas",
                "Number of unavailable replicas of a StatefulSet at the last reconcile of a rolling update.",
            )?,
        })
    }
}

impl Meter<Note> for Metrics {
    fn planned(&self, key: &Key, note: &Note) {
        let Some(gauges) = &note.gauges else { return };
        let labels = [key.namespace.as_str(), key.name.as_str(), gauges.policy.as_str()];
        self.max_unavailable.with_label_values(&labels).set(gauges.max_unavailable);
        if let Some(unavailable) = gauges.unavailable {
            self.unavailable.with_label_values(&labels).set(unavailable);
        }
    }

    /// The gauges of a deleted StatefulSet are removed. kube-controller-manager keeps them until it ends.
    /// Differs: gauges-of-deleted-objects.
    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        if *ended.outcome != Outcome::Absent {
            return;
        }
        for policy in POLICIES {
            for gauges in [&self.max_unavailable, &self.unavailable] {
                // An error means that there is no such series.
                let _ = gauges.remove_label_values(&[key.namespace.as_str(), key.name.as_str(), policy]);
            }
        }
    }
}

//! What the controller counts of its work, under the original's names. Decides nothing.

use coxswain_machinery::random::HashSet;
use jiff::Timestamp;
use prometheus::{Histogram, IntCounterVec};

use super::plan;
use super::view::View;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{BuildError, Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::plan::{Step, Verb};
use coxswain_machinery::model::{Key, Plan};

/// The metrics.
#[derive(Clone, Debug)]
pub(in crate::workloads) struct Metrics {
    age_ratio: Histogram,
    stale: Option<IntCounterVec>,
}

impl Metrics {
    /// The metrics that all kinds of set share, registered.
    pub(in crate::workloads) fn register(metrics: &RoomMetrics) -> Result<Self, BuildError> {
        let age_ratio = metrics.histogram(
            "replicaset_controller_sorting_deletion_age_ratio",
            "Ratio of the age of a ready pod chosen for deletion to the age of the youngest ready pod, as an \
             integer.",
            vec![0.25, 0.5, 1.0, 2.0, 4.0, 8.0],
        );
        Ok(Self { age_ratio: age_ratio.map_err(invalid)?, stale: None })
    }

    /// With those that ReplicaSets have alone.
    pub(super) fn with_stale(self, metrics: &RoomMetrics) -> Result<Self, BuildError> {
        let stale = metrics.counters(
            "replicaset_controller_stale_sync_skips_total",
            "Reconciles skipped because the cache of the resource was older than the controller's last write.",
            &["group", "resource"],
        );
        Ok(Self { stale: Some(stale.map_err(invalid)?), ..self })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given by value")]
fn invalid(error: prometheus::Error) -> BuildError {
    BuildError::Invalid(error.to_string())
}

/// As how many times as old as the youngest ready pod each ready pod is that a plan deletes.
#[derive(Debug)]
pub(super) struct AgeRatios(pub(super) Vec<i64>);

impl Meter<AgeRatios> for Metrics {
    fn planned(&self, _: &Key, AgeRatios(ratios): &AgeRatios) {
        for ratio in ratios {
            self.age_ratio.observe(*ratio as f64);
        }
    }

    fn ended(&self, _: &Key, ended: ReconcileEnd<'_>) {
        if let (Some(stale), Outcome::Waiting(kind)) = (&self.stale, ended.outcome) {
            stale.with_label_values(&[kind.group, kind.resource]).inc();
        }
    }
}

/// For each ready pod that is deleted, as how many times as old as the youngest ready one it is. Where all pods go, none
/// was chosen.
pub(super) fn age_ratios(view: &View, plan: &Plan, now: Timestamp) -> Vec<i64> {
    let deleted: HashSet<&str> = plan.steps.iter().flat_map(deletes).collect();
    if deleted.is_empty() {
        return Vec::new();
    }
    let kept = plan::kept(view);
    if deleted.len() >= kept.len() {
        return Vec::new();
    }
    let age = |pod: &Pod| {
        let created = pod.metadata.creation_timestamp?;
        Some(now.as_millisecond() - created.seconds().saturating_mul(1000))
    };
    let ready = || kept.iter().filter(|pod| pod.is_ready());
    let Some(youngest) = ready().filter_map(|pod| age(pod)).min().filter(|age| *age > 0) else {
        return Vec::new();
    };
    let chosen = ready().filter(|pod| deleted.contains(&*pod.metadata.name));
    chosen.filter_map(|pod| Some(age(pod)? / youngest)).collect()
}

/// Names of the pods that a step deletes.
fn deletes(step: &Step) -> impl Iterator<Item = &str> {
    let writes = match step {
        Step::Each(writes) => writes.as_slice(),
        _ => &[],
    };
    let deletes =
        writes.iter().filter(|write| write.kind == &PODS && matches!(write.verb, Verb::Delete { .. }));
    deletes.map(|write| &*write.key.name)
}

//! What the controller counts of its work, under the original's names. Decides nothing.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{HistogramVec, IntCounterVec};

use super::member;
use super::note::{Note, Progress};
use super::view::is_external;
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::executor::{ActionResult, ActionState, ActionVerb};
use coxswain_machinery::framework::{KeyMap, Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::telemetry::BoundedSeries;

/// The metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    durations: HistogramVec,
    syncs: IntCounterVec,
    finished: IntCounterVec,
    finished_pods: IntCounterVec,
    finished_indexes: IntCounterVec,
    creations: IntCounterVec,
    finalizers: IntCounterVec,
    by_policy: IntCounterVec,
    stale: IntCounterVec,
    external: BoundedSeries<IntCounterVec>,
    /// What is told of a reconcile when its first plan is made, and counted at its end.
    begun: Mutex<HashMap<Key, Sync>>,
}

/// What a reconcile does.
#[derive(Debug)]
struct Sync {
    mode: &'static str,
    action: &'static str,
    reason: &'static str,
    /// Number of its results that belong to adoptions and releases.
    claims: usize,
}

fn mode(is_indexed: bool) -> &'static str {
    if is_indexed { "Indexed" } else { "NonIndexed" }
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let bounds = prometheus::exponential_buckets(0.004, 2.0, 15)?;
        Ok(Self {
            durations: metrics.histograms(
                "job_controller_job_sync_duration_seconds",
                "Duration of Job reconciles in seconds, by completion mode, result and action.",
                &["completion_mode", "result", "action"],
                bounds,
            )?,
            syncs: metrics.counters(
                "job_controller_job_syncs_total",
                "Job reconciles, by completion mode, result and action.",
                &["completion_mode", "result", "action"],
            )?,
            finished: metrics.counters(
                "job_controller_jobs_finished_total",
                "Finished Jobs, by completion mode, result and reason.",
                &["completion_mode", "result", "reason"],
            )?,
            finished_pods: metrics.counters(
                "job_controller_job_pods_finished_total",
                "Finished pods counted in the status of their Job, by completion mode and result.",
                &["completion_mode", "result"],
            )?,
            finished_indexes: metrics.counters(
                "job_controller_job_finished_indexes_total",
                "Finished indexes of Indexed Jobs, by status and scope of the backoff limit.",
                &["status", "backoffLimit"],
            )?,
            creations: metrics.counters(
                "job_controller_job_pods_creation_total",
                "Attempts to create pods of Jobs, by reason and status.",
                &["reason", "status"],
            )?,
            finalizers: metrics.counters(
                "job_controller_terminated_pods_tracking_finalizer_total",
                "Additions and removals of the tracking finalizer on terminated pods, by event.",
                &["event"],
            )?,
            by_policy: metrics.counters(
                "job_controller_pod_failures_handled_by_failure_policy_total",
                "Failed pods that matched a rule of the podFailurePolicy, by action.",
                &["action"],
            )?,
            stale: metrics.counters(
                "job_controller_stale_sync_skips_total",
                "Reconciles skipped because the cache of the resource was older than the controller's last write.",
                &["group", "resource"],
            )?,
            external: metrics.bounded_counters(
                "job_controller_jobs_by_external_controller_total",
                "Jobs managed by an external controller (managedBy), by controller name.",
                &["controller_name"],
                &["controller_name"],
            )?,
            begun: Mutex::default(),
        })
    }

    /// A status was written.
    pub(super) fn progress(&self, is_indexed: bool, progress: &Progress) {
        let mode = mode(is_indexed);
        let Progress { succeeded, failed, failed_indexes, actions, backoff: _, end } = progress;
        for (result, count) in [("succeeded", *succeeded), ("failed", *failed)] {
            // As in kube-controller-manager, these series begin with 0, and that of failed indexes with the first one.
            self.finished_pods.with_label_values(&[mode, result]).inc_by(count);
        }
        let limit = if failed_indexes.is_some() { "perIndex" } else { "global" };
        if is_indexed {
            self.finished_indexes.with_label_values(&["succeeded", limit]).inc_by(*succeeded);
        }
        if let Some(failed @ 1..) = failed_indexes {
            self.finished_indexes.with_label_values(&["failed", limit]).inc_by(*failed);
        }
        for action in actions {
            self.by_policy.with_label_values(&[action]).inc();
        }
        if let Some((is_success, reason)) = end {
            let result = if *is_success { "succeeded" } else { "failed" };
            self.finished.with_label_values(&[mode, result, reason.as_str()]).inc();
        }
    }

    /// Counts the pods that were made, or could not be.
    fn created(&self, reason: &str, ended: &ReconcileEnd<'_>) {
        let creates = ended.actions.iter().filter(|action| action.verb == ActionVerb::Create);
        // A terminating namespace refuses creates, which is no failure and no creation.
        let counts = |create: &&ActionState| create.kind == &PODS && create.result != ActionResult::Unneeded;
        for create in creates.filter(counts) {
            // The original counts a failure as a success, too.
            // Differs: no.
            self.creations.with_label_values(&[reason, "succeeded"]).inc();
            if !matches!(create.result, ActionResult::Done) {
                self.creations.with_label_values(&[reason, "failed"]).inc();
            }
        }
    }
}

impl Meter<Note> for Arc<Metrics> {
    fn planned(&self, key: &Key, note: &Note) {
        if let Some(action) = note.action {
            let (mode, claims) = (mode(note.is_indexed), note.claims);
            let sync = Sync { mode, action, reason: note.reason, claims };
            self.begun.lock().insert(key.clone(), sync);
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        if let Outcome::Waiting(kind) = ended.outcome {
            self.stale.with_label_values(&[kind.group, kind.resource]).inc();
        }
        let Some(Sync { mode, action, reason, claims }) = self.begun.lock().remove(key) else { return };
        let has_failed =
            |action: &ActionState| matches!(action.result, ActionResult::Failed(_) | ActionResult::Unknown);
        // The reconcile neither creates nor deletes pods if an adoption or a release fails.
        let action = if ended.actions.iter().take(claims).any(has_failed) { "reconciling" } else { action };
        let result = if matches!(ended.outcome, Outcome::Failed { .. }) { "error" } else { "success" };
        self.durations.with_label_values(&[mode, result, action]).observe(ended.took.as_secs_f64());
        self.syncs.with_label_values(&[mode, result, action]).inc();
        self.created(reason, &ended);
    }
}

/// Counts pods that get or lose the finalizer once they have ended. Wakes nobody.
pub(super) fn count_finalizers(metrics: Arc<Metrics>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, _: &mut dyn FnMut(Key)| {
        let is_held = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.is_finished() && member::is_tracked(pod));
        let (old, new) = delta.typed::<Pod>();
        let event = match (is_held(old), is_held(new)) {
            (false, true) => "add",
            (true, false) => "delete",
            _ => return,
        };
        metrics.finalizers.with_label_values(&[event]).inc();
    })
}

/// Counts Jobs that another controller runs. Wakes nobody.
pub(super) fn count_external(metrics: Arc<Metrics>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, _: &mut dyn FnMut(Key)| {
        if let (None, Some(job)) = delta.typed::<Job>()
            && is_external(job)
        {
            metrics.external.with_label_values(&[job.spec.managed_by.as_str()]).inc();
        }
    })
}

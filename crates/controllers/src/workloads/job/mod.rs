//! Jobs: the pods of a template run until enough of them have succeeded, or the Job has failed. Each pod that ends is counted
//! exactly once.
//!
//! The room observes a Job with the pods that it manages or could adopt ([`view`]), and decides on adoption and release, on the
//! pods to delete or to make, on how the Job ends, on the pods to count, and on the status ([`plan`]). Which keys a change
//! concerns ([`keys`]):
//!
//! | change of | keys | after |
//! |---|---|---|
//! | a Job: new, gone, another generation | its own | 0 |
//! | a Job: anything else | its own | 1 s |
//! | a pod with a managing Job, its deletion included | that Job's | 1 s |
//! | a pod whose managing Job changed | the old and the new one's | 1 s |
//! | a pod without a controller that appeared, was relabeled or released | every Job's that selects it | 1 s |
//!
//! A second loop takes the finalizer off pods that nobody is going to count ([`strays`]). Its keys are those pods: when they are
//! seen terminating or without a controller, and when their Job is gone or changes after its end.
//!
//! What it rests on: a key is planned again only when the caches hold everything that its last plan wrote; a pod that was on its
//! way out and has lost its last finalizer is seen gone. The only thing that it remembers is how often pods have failed lately
//! ([`backoff`]).
//!
//! Where the gate `WorkloadWithJob` is on, the pods of an Indexed Job that all run at once belong to a `PodGroup`, which the room
//! makes once, with its Workload. Neither wakes anybody.
//!
//! It never touches a Job that says that another controller runs it, writes nothing of a Job but its status, decodes of a
//! template no more than the restart policy, and reads nothing live but the Job itself before an adoption.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::kinds::{JOBS, POD_GROUPS, PODS, WORKLOADS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::scheduling::{PodGroup, Workload};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, QueueConfig, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::{Dependents, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod backoff;
mod keys;
mod member;
mod memory;
mod metrics;
mod note;
mod plan;
mod strays;
#[cfg(test)]
mod tests;
mod view;

use memory::Remembered;
use metrics::Metrics;
use note::Note;
use strays::Strays;
use view::{GROUPS_BY_WORKLOAD, Gates, Schedules, View, WORKLOADS_BY_JOB};

/// For how long pods that end together are collected.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// A key that failed waits so long, and twice as long after each further failure.
const BACKOFF: QueueConfig = QueueConfig {
    base_delay: Duration::from_secs(1),
    max_delay: Duration::from_mins(1),
    bucket: None,
    slack: Duration::ZERO,
};

/// For how long a Job waits for its pods to be seen where `StaleControllerConsistencyJob` is off, as in the original.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// The Job controller's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "job-controller",
    aliases: &["job"],
    description: "Runs the Pods of Jobs to completion.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("job-controller"),
    event_source: None,
    writes: &[
        Grant { group: "batch", resource: "jobs", verbs: &["get", "list", "watch"] },
        Grant { group: "batch", resource: "jobs/status", verbs: &["update"] },
        // Asked for by admission (OwnerReferencesPermissionEnforcement), because pods block their owner's deletion.
        Grant { group: "batch", resource: "jobs/finalizers", verbs: &["update"] },
        Grant { group: "", resource: "pods", verbs: &["create", "delete", "list", "patch", "watch"] },
        // Where `WorkloadWithJob` is on.
        Grant { group: "scheduling.k8s.io", resource: "workloads", verbs: &["create", "list", "watch"] },
        Grant { group: "scheduling.k8s.io", resource: "podgroups", verbs: &["create", "list", "watch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let jobs = build.watch::<Job>(&JOBS);
    let pods = build.watch::<Pod>(&PODS);
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let metrics = Arc::new(metrics);
    let memory = Arc::new(Remembered::new(Arc::clone(&metrics)));
    let waits_without_end = (build.gate)("StaleControllerConsistencyJob");
    let settings = LoopSettings {
        backoff: BACKOFF,
        longest_wait: (!waits_without_end).then_some(LONGEST_WAIT),
        withholds_refused_creates: true,
        ..LoopSettings::with_workers(build.config.flags.concurrent_job_syncs)
    };
    let by_controller = pods.dependents();
    let room = Controller {
        jobs: jobs.lister(),
        pods: by_controller.clone(),
        memory: Arc::clone(&memory),
        gates: Gates { drops_start_time: (build.gate)("MutableSchedulingDirectivesForSuspendedJobs") },
        schedules: (build.gate)("WorkloadWithJob").then(|| Schedules {
            workloads: build.watch::<Workload>(&WORKLOADS).index(&WORKLOADS_BY_JOB),
            groups: build.watch::<PodGroup>(&POD_GROUPS).index(&GROUPS_BY_WORKLOAD),
        }),
    };
    let strays = Strays { jobs: jobs.lister(), pods: pods.lister() };
    let of_jobs = Loop {
        queue: "job",
        kind: Some(&JOBS),
        settings: settings.clone(),
        wake_ups: vec![
            jobs.wakes(keys::of_jobs()),
            jobs.wakes(keys::of_statuses()).debounced(DEBOUNCE),
            jobs.wakes(metrics::count_external(Arc::clone(&metrics))),
            pods.wakes(keys::of_pods(jobs.lister(), jobs.selecting())).debounced(DEBOUNCE),
            pods.wakes(metrics::count_finalizers(Arc::clone(&metrics))),
        ],
        reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics).remembered_by(memory)),
    };
    let of_strays = Loop {
        queue: "job_orphan_pod",
        kind: Some(&PODS),
        settings,
        wake_ups: vec![
            pods.wakes(keys::of_strays(jobs.lister())),
            jobs.wakes(keys::of_leavers(by_controller, pods.index(&keys::TRACKED_ORPHANS))),
        ],
        reconcile: Arc::new(RoomAdapter::new(strays)),
    };
    Ok(Built { loops: vec![of_jobs, of_strays] })
}

/// The room: what it reads and remembers, and what is switched on.
struct Controller {
    jobs: Lister<Job>,
    /// Pods by their controller.
    pods: Dependents<Pod>,
    memory: Arc<Remembered>,
    gates: Gates,
    /// What says how pods are scheduled, where they may be scheduled together.
    schedules: Option<Schedules>,
}

impl Room<Note> for Controller {
    const HEEDS_FAILURES: bool = true;
    type View = View;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key, failures, read)?.into())
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        plan::reasons(view, now)
    }
}

//! Deletes Jobs that have finished, `spec.ttlSecondsAfterFinished` seconds later. See "Automatic Cleanup for Finished Jobs" in the
//! Kubernetes documentation.
//!
//! A change of a Job that has finished, has the field and is not being deleted concerns its own key; nothing else does. A Job
//! whose time is not over waits in the queue, as an entry and no more.
//!
//! What it rests on: a delete carries the UID and the resource version of the Job that was judged. So the API server itself
//! refuses to delete one whose field was raised or removed a moment ago, or that was made anew. Then the Job is read live, judged again and
//! deleted at the version that was read, so a Job that changes more often than the watch shows goes, too. The original reads
//! each Job live before it deletes it; ours needs the read after a conflict alone.
//! Differs: ttl-delete-by-version.
//!
//! It never writes a Job, and has nothing to do with pods: these go before the Job by foreground deletion.

use std::sync::Arc;

use jiff::Timestamp;

use crate::live_reads::FINISHED_JOB;
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::kinds::JOBS;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod metrics;
mod plan;
mod reasons;
#[cfg(test)]
mod tests;
mod view;

use metrics::Metrics;
use plan::Note;
use view::View;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "ttl-after-finished-controller",
    aliases: &["ttl-after-finished"],
    description: "Deletes finished Jobs whose TTL has expired.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("ttl-after-finished-controller"),
    event_source: None,
    writes: &[
        Grant { group: "batch", resource: "jobs", verbs: &["delete", "get", "list", "watch"] },
        // Granted, and never used: there is nothing to tell.
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let jobs = build.watch::<Job>(&JOBS);
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let room = Controller { jobs: jobs.lister() };
    Ok(Built {
        loops: vec![Loop {
            queue: "ttl_jobs_to_delete",
            kind: Some(&JOBS),
            settings: LoopSettings::with_workers(build.config.flags.concurrent_ttl_after_finished_syncs),
            wake_ups: vec![jobs.wakes(finished())],
            reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics)),
        }],
    })
}

/// A change of a Job concerns its own key, if there will be something to do.
fn finished() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if let Some(job) = delta.typed::<Job>().1.filter(|job| view::is_to_go(job)) {
            add(Key::of(&job.metadata));
        }
    })
}

/// The room: what it reads.
struct Controller {
    jobs: Lister<Job>,
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
        let cached = self.jobs.get(key).filter(|job| view::is_to_go(job));
        // Linear: a reconcile has one write.
        let Some(cached) = cached.filter(|_| failures.iter().all(Failure::is_conflict)) else {
            return Ok(Observation::Nothing);
        };
        let has_failed = !failures.is_empty();
        let job = if has_failed {
            read.live(&FINISHED_JOB, &JOBS, &cached)?
        } else {
            read.current(&FINISHED_JOB, &JOBS, cached)?
        };
        Ok(job.and_then(|job| view::of_job(job, has_failed)))
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        reasons::reasons(view, plan::plan(view, now).requeue_after)
    }
}

//! CronJobs: a Job from a template at each time of a schedule.
//!
//! The room observes a CronJob with its Jobs ([`view`]), reads its schedule ([`schedule`]), and decides which activation is due
//! ([`timing`]), which Job to make, what the status is to say, and which finished Jobs are too many ([`plan`]). See "CronJob" in
//! the Kubernetes documentation, and KEPs 19, 3140 (time zones) and 4026 (the annotation with the time).
//!
//! | change of | keys |
//! |---|---|
//! | a CronJob | its own |
//! | a Job with a managing CronJob, its deletion included | that CronJob's |
//! | a Job whose managing CronJob changed | the old and the new one's |
//! | none: an activation has come | the CronJob's, 100 ms later |
//!
//! One reconcile is: if an activation is due, make the Job, after those that it replaces are deleted; then look again, write the
//! status once, tell what it records, and delete Jobs of the history. So nothing is told twice when a write is refused, and the
//! history goes only when the status knows of it.
//!
//! What it rests on: a Job is named after its activation, in minutes since 1970, so there is one of them at most, whoever makes
//! it. What is not known of a Job that the status lists is read live.
//!
//! It never runs pods, and takes only Jobs that the CronJob controls by UID for its own; the original goes by the name.
//! Differs: jobs-by-uid.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::batch::{CronJob, Job};
use coxswain_machinery::api::kinds::{CRON_JOBS, JOBS};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::{Delta, Dependents, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::zones::Zones;

mod memory;
mod metrics;
mod plan;
mod schedule;
#[cfg(test)]
mod tests;
mod timing;
mod view;

use memory::{Note, Rescheduled};
use metrics::Metrics;
use view::View;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "cronjob-controller",
    aliases: &["cronjob"],
    description: "Creates Jobs on a schedule.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("cronjob-controller"),
    event_source: None,
    writes: &[
        Grant { group: "batch", resource: "cronjobs", verbs: &["get", "list", "watch"] },
        Grant { group: "batch", resource: "cronjobs/status", verbs: &["update"] },
        // Asked for by admission (OwnerReferencesPermissionEnforcement): Jobs block their owner's deletion.
        Grant { group: "batch", resource: "cronjobs/finalizers", verbs: &["update"] },
        Grant { group: "batch", resource: "jobs", verbs: &["create", "delete", "get", "list", "watch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let cron_jobs = build.watch::<CronJob>(&CRON_JOBS);
    let jobs = build.watch::<Job>(&JOBS);
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let rescheduled = Arc::new(Rescheduled::default());
    let room = Controller {
        cron_jobs: cron_jobs.lister(),
        jobs: jobs.dependents(),
        zones: build.zones.clone(),
        rescheduled: Arc::clone(&rescheduled),
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "cronjob",
            kind: Some(&CRON_JOBS),
            settings: LoopSettings::with_workers(build.config.flags.concurrent_cron_job_syncs),
            wake_ups: vec![
                cron_jobs.wakes(own(Arc::clone(&rescheduled))),
                jobs.wakes(of_jobs(cron_jobs.lister(), Arc::clone(&rescheduled))),
            ],
            reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics).remembered_by(rescheduled)),
        }],
    })
}

/// A change of a CronJob concerns its own key. That its schedule has changed is remembered.
fn own(rescheduled: Arc<Rescheduled>) -> KeyMap {
    let own = wake::own();
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<CronJob>();
        rescheduled.heed(old, new);
        own(delta, add);
    })
}

/// A change of a Job concerns the CronJob that manages it, or did.
fn of_jobs(cron_jobs: Lister<CronJob>, rescheduled: Arc<Rescheduled>) -> KeyMap {
    let managing = wake::controller(cron_jobs, view::alike);
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        managing(delta, &mut |key| {
            rescheduled.forget(&key);
            add(key);
        });
    })
}

/// The room: what it reads.
struct Controller {
    cron_jobs: Lister<CronJob>,
    /// Jobs by their controller.
    jobs: Dependents<Job>,
    zones: Zones,
    rescheduled: Arc<Rescheduled>,
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
        view::observe(self, key, failures, read)
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, now: Timestamp) -> Vec<String> {
        plan::reasons(view, now)
    }
}

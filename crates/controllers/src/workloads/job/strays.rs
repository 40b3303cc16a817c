//! Pods that nobody is going to count lose their finalizer, or they would never be gone: those whose Job is gone or has come to
//! its end, and those that nobody manages.

use std::sync::Arc;

use jiff::Timestamp;

use super::keys::job_of;
use super::member;
use super::plan::untrack;
use super::view::is_external;
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{Observation, ObserveError, Reads, Room};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::{Failure, Key, Plan, Step};

/// The room of stray pods.
pub(super) struct Strays {
    pub(super) jobs: Lister<Job>,
    pub(super) pods: Lister<Pod>,
}

/// A pod, and the Job that manages it if it is there.
pub(super) struct Stray {
    pub(super) pod: Arc<Pod>,
    pub(super) job: Option<Arc<Job>>,
}

impl Room for Strays {
    type View = Stray;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<Stray>, ObserveError> {
        let stray = self.pods.get(key).map(|pod| Stray { job: job_of(&self.jobs, &pod), pod });
        Ok(stray.into())
    }

    fn plan(stray: &Stray, _: Timestamp) -> Plan {
        let mut plan = Plan::default();
        if is_left(stray) {
            plan.steps.push(Step::Write(untrack(&stray.pod)));
        }
        plan
    }

    fn reasons(stray: &Stray, _: Timestamp) -> Vec<String> {
        let why = match (&stray.job, stray.pod.metadata.controller()) {
            _ if !member::is_tracked(&stray.pod) => {
                "It has no finalizer of a Job's pods: nothing is to be done."
            }
            (_, None) => "No controller manages it, so nobody is going to count it: its finalizer goes.",
            (_, Some(_)) if !is_left(stray) => "Somebody else manages it: its finalizer is left alone.",
            (Some(_), _) => "Its Job has come to its end and does not count it any more: its finalizer goes.",
            (None, _) => "Its Job is gone and does not count it any more: its finalizer goes.",
        };
        vec![why.to_owned()]
    }
}

/// Whether nobody is going to count a tracked pod.
fn is_left(stray: &Stray) -> bool {
    let manages = |job: &Arc<Job>| is_external(job) || job.end().is_none();
    let is_job = |owner: &coxswain_machinery::api::meta::OwnerReference| {
        owner.kind == "Job" && owner.api_version == "batch/v1"
    };
    member::is_tracked(&stray.pod)
        && stray.pod.metadata.controller().is_none_or(is_job)
        && !stray.job.as_ref().is_some_and(manages)
}

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
            _ if !member::is_tracked(&stray.pod) => "The pod has no tracking finalizer; no change is needed.",
            (_, None) => "The pod has no controller, so no Job counts it; its finalizer is removed.",
            (_, Some(_)) if !is_left(stray) => "Another controller manages the pod; its finalizer is kept.",
            (Some(_), _) => {
                "The Job of the pod has finished and no longer counts it; the pod's finalizer is removed."
            }
            (None, _) => "The Job of the pod no longer exists; the pod's finalizer is removed.",
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

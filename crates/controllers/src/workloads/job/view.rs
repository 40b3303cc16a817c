//! What a decision about one Job rests on, read from the stores and from the answers to what this reconcile has written. Decides
//! nothing.

use std::sync::Arc;

use super::Controller;
use super::backoff::Record;
use super::member;
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::core::PodTemplateSpec;
use coxswain_machinery::api::kinds::{JOBS, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::scheduling::{PodGroup, Workload};
use coxswain_machinery::api::{Index, IndexKeys, Object};
use coxswain_machinery::executor::WriteEffect;
use coxswain_machinery::framework::{ObserveError, Reads};
use coxswain_machinery::informer::{Indexed, downcast};
use coxswain_machinery::model::owners::ControllerKey;
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::model::{Failure, Key};
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::splice::get;
use coxswain_machinery::wire::{Str, Uid, Value, WireError, path};

/// Who runs Jobs that say it is this controller.
pub(super) const OURSELVES: &str = "kubernetes.io/job-controller";

/// Feature gates that matter here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gates {
    /// `MutableSchedulingDirectivesForSuspendedJobs`: a suspended Job has no start time.
    pub(super) drops_start_time: bool,
}

/// A Job and the pods that concern it.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The Job; once this reconcile has written its status, as that was answered.
    pub(super) job: Arc<Job>,
    /// Its selector.
    pub(super) selector: Selector,
    /// Whether its pods restart their containers themselves (`restartPolicy: OnFailure`).
    pub(super) restarts_in_place: bool,
    /// The pods that it manages, and those of its namespace that nobody manages, in no order. Of a Job with which there is nothing
    /// left to do, none.
    pub(super) pods: Vec<Arc<Pod>>,
    /// How often pods have failed lately.
    pub(super) backoff: Record,
    /// What this reconcile has written already; `None` on the first look.
    pub(super) written: Option<Written>,
    /// Whether creates of pods are withheld, because the terminating namespace has refused one before this reconcile.
    pub(super) withholds_creates: bool,
    pub(super) gates: Gates,
    /// What there is of a Job whose pods may be scheduled together; `None` of any other.
    pub(super) scheduling: Option<Scheduling>,
}

/// What says how the pods of a Job are scheduled.
#[derive(Clone, Debug, Default)]
pub(super) struct Scheduling {
    /// The Workloads that name it.
    pub(super) workloads: Vec<Arc<Workload>>,
    /// The `PodGroups` that were made from these.
    pub(super) groups: Vec<Arc<PodGroup>>,
}

/// The Workloads and `PodGroups` that there are; where `WorkloadWithJob` is on.
pub(super) struct Schedules {
    pub(super) workloads: Indexed<Workload>,
    pub(super) groups: Indexed<PodGroup>,
}

/// Workloads by the Job that they name.
pub(super) static WORKLOADS_BY_JOB: Index = Index { name: "job", keys: by_job };
/// `PodGroups` by the Workload that they were made from.
pub(super) static GROUPS_BY_WORKLOAD: Index = Index { name: "workload", keys: by_workload };

fn filed_under(namespace: &str, name: &str) -> Str {
    format!("{namespace}/{name}").as_str().into()
}

fn by_job(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let named = || {
        let workload = any.downcast_ref::<Workload>()?;
        let named = workload.spec.controller_ref.as_deref()?;
        let is_job = named.api_group == JOBS.group && named.kind == JOBS.kind;
        is_job.then(|| filed_under(&workload.metadata.namespace, &named.name))
    };
    named().into_iter().collect()
}

fn by_workload(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let made_from = || {
        let group = any.downcast_ref::<PodGroup>()?;
        let workload = group.spec.pod_group_template_ref.as_deref()?.workload.as_deref()?;
        Some(filed_under(&group.metadata.namespace, &workload.workload_name))
    };
    made_from().into_iter().collect()
}

impl Schedules {
    /// What there is of a Job. Only those are scheduled together all of whose pods run at once, and say nothing of it themselves.
    fn of(&self, job: &Job) -> Result<Option<Scheduling>, WireError> {
        let (parallelism, completions) = (job.spec.parallelism.unwrap_or(1), job.spec.completions);
        if job.spec.completion_mode != "Indexed"
            || parallelism <= 1
            || completions != Some(parallelism)
            || get(&job.spec.template.0, path!(PodTemplateSpec, spec.schedulingGroup))?.is_some()
        {
            return Ok(None);
        }
        let namespace = &job.metadata.namespace;
        let workloads = self.workloads.filed(&filed_under(namespace, &job.metadata.name));
        let of = |held: &Arc<Workload>| self.groups.filed(&filed_under(namespace, &held.metadata.name));
        Ok(Some(Scheduling { groups: workloads.iter().flat_map(of).collect(), workloads }))
    }
}

/// What was written to pods, or is to be, and the caches need not show yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    /// Pods that were made.
    pub(super) created: usize,
    /// Pods that were deleted.
    pub(super) deleted: HashSet<Uid>,
    /// Pods that have lost the finalizer.
    pub(super) released: HashSet<Uid>,
    /// What failed.
    pub(super) failures: Vec<Failure>,
}

impl View {
    /// Whether the Job is run by somebody else.
    pub(super) fn is_external(&self) -> bool {
        is_external(&self.job)
    }
}

/// Whether a Job is run by somebody else.
pub(super) fn is_external(job: &Job) -> bool {
    !job.spec.managed_by.is_empty() && job.spec.managed_by != OURSELVES
}

pub(super) fn observe(
    room: &Controller,
    key: &Key,
    failures: &[Failure],
    read: &Reads,
) -> Result<Option<View>, ObserveError> {
    let Some(cached) = room.jobs.get(key) else {
        return Ok(None);
    };
    let answered = read.answer(&JOBS, key).cloned().and_then(downcast::<Job>);
    let job = answered.unwrap_or(cached);
    let unusable = |what: String| ObserveError::Terminal(format!("Job {key}: {what}"));
    let selector = Selector::compile(&job.spec.selector).map_err(|error| unusable(error.to_string()))?;
    let policy = get(&job.spec.template.0, path!(PodTemplateSpec, spec.restartPolicy))
        .and_then(|policy| policy.map(Value::text).transpose())
        .map_err(|error| unusable(format!("template: {error}")))?;
    let restarts_in_place = policy.as_deref() == Some("OnFailure");
    let scheduling = room.schedules.as_ref().map(|schedules| schedules.of(&job)).transpose();
    let scheduling = scheduling.map_err(|error| unusable(format!("template: {error}")))?.flatten();
    let mut pods = Vec::new();
    if job.end().is_none() && !is_external(&job) {
        pods = room.pods.of(ControllerKey::of(&job.metadata, &JOBS));
        pods.extend(room.pods.orphans(&key.namespace));
    }
    let is_first = failures.is_empty() && read.written().is_empty();
    Ok(Some(View {
        selector,
        restarts_in_place,
        backoff: room.memory.backoff(key, &job.metadata.uid),
        written: (!is_first).then(|| written(&pods, failures, read)),
        withholds_creates: read.withholds_creates(),
        pods,
        job,
        gates: room.gates,
        scheduling,
    }))
}

fn written(pods: &[Arc<Pod>], failures: &[Failure], read: &Reads) -> Written {
    let uids: HashMap<&str, &Uid> =
        pods.iter().map(|pod| (pod.metadata.name.as_str(), &pod.metadata.uid)).collect();
    let mut written = Written { failures: failures.to_vec(), ..Written::default() };
    for effect in read.written().iter().filter(|effect| effect.kind == &PODS) {
        let cached = uids.get(effect.key.name.as_str()).copied();
        match (&effect.change, effect.answer.clone().and_then(downcast::<Pod>)) {
            (WriteEffect::Deleted(uid), _) => _ = written.deleted.insert(uid.clone()),
            (_, Some(pod)) if !member::is_tracked(&pod) => {
                written.released.insert(pod.metadata.uid.clone());
            }
            // Those that the cache shows already count as all others there.
            (_, Some(_)) => written.created += usize::from(cached.is_none()),
            // Nothing was made, for the namespace goes; that counts all the same.
            (WriteEffect::Nothing, None) if effect.key.name.is_empty() => {
                written.created += usize::from(!read.withholds_creates());
            }
            // It was gone.
            (WriteEffect::Nothing, None) => {
                written.deleted.extend(cached.cloned());
                written.released.extend(cached.cloned());
            }
            _ => {}
        }
    }
    written
}

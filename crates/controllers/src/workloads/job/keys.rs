//! Which Jobs, and which stray pods, a change concerns.

use std::any::Any;
use std::sync::Arc;

use super::member;
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::kinds::JOBS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{Index, IndexKeys, Object};
use coxswain_machinery::framework::{KeyMap, Selecting, wake};
use coxswain_machinery::informer::{Delta, Dependents, Indexed, Lister};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::owners::ControllerKey;
use coxswain_machinery::model::selects::Selects as _;

/// Tracked pods without a controller, by their namespace. They are few, so the end of a Job does not read all bare pods of the namespace.
pub(super) static TRACKED_ORPHANS: Index =
    Index { name: "tracked pod without controller", keys: tracked_orphan };

fn tracked_orphan(object: &dyn Object) -> IndexKeys {
    let any: &dyn Any = object;
    let pod = any.downcast_ref::<Pod>().filter(|pod| is_tracked_orphan(pod));
    pod.map(|pod| pod.metadata.namespace.clone()).into_iter().collect()
}

fn is_tracked_orphan(pod: &Pod) -> bool {
    member::is_tracked(pod) && pod.metadata.controller().is_none()
}

/// A Job that is new, gone, or asks for something else concerns itself, at once.
pub(super) fn of_jobs() -> KeyMap {
    of_jobs_that(|old, new| match (old, new) {
        (Some(old), Some(new)) => old.metadata.generation != new.metadata.generation,
        _ => true,
    })
}

/// Any other change of a Job concerns itself, too, and can wait for a moment.
pub(super) fn of_statuses() -> KeyMap {
    of_jobs_that(|old, new| {
        old.zip(new).is_some_and(|(old, new)| old.metadata.generation == new.metadata.generation)
    })
}

/// Of those that have come to their end nothing more is to be done.
fn of_jobs_that(is_meant: fn(Option<&Job>, Option<&Job>) -> bool) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Job>();
        if is_meant(old, new)
            && let Some(job) = new.or(old)
            && (new.is_none() || job.end().is_none())
        {
            add(Key::of(&job.metadata));
        }
    })
}

/// A pod concerns the Job that manages it; one that nobody manages those that select it.
pub(super) fn of_pods(jobs: Lister<Job>, selecting: Selecting<Job>) -> KeyMap {
    wake::claiming(jobs, selecting, is_alike)
}

/// Whether a Job sees no difference between two states of a pod.
fn is_alike(before: &Pod, now: &Pod) -> bool {
    let (old, new) = (&before.metadata, &now.metadata);
    before.status.phase == now.status.phase
        && before.status.conditions == now.status.conditions
        && before.status.container_statuses == now.status.container_statuses
        && before.status.init_container_statuses == now.status.init_container_statuses
        && (&old.uid, &old.labels, &old.annotations) == (&new.uid, &new.labels, &new.annotations)
        && (&old.finalizers, &old.owner_references) == (&new.finalizers, &new.owner_references)
        && old.is_deleting() == new.is_deleting()
}

/// A tracked pod concerns itself that nobody is going to count: its Job is gone or has come to its end, or nobody manages it.
pub(super) fn of_strays(jobs: Lister<Job>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (_, Some(pod)) = delta.typed::<Pod>() else { return };
        let is_on_its_own = pod.metadata.controller().is_none();
        if member::is_tracked(pod)
            && (is_on_its_own
                || pod.metadata.is_deleting() && job_of(&jobs, pod).is_none_or(|job| job.end().is_some()))
        {
            add(Key::of(&pod.metadata));
        }
    })
}

/// A Job that has come to its end, or is gone, concerns the tracked pods that it leaves behind.
pub(super) fn of_leavers(pods: Dependents<Pod>, orphans: Indexed<Pod>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Job>();
        let is_over = new.is_none_or(|new| old.is_some() && new.end().is_some());
        let Some(job) = new.or(old).filter(|_| is_over) else { return };
        // The controller judges pods that name the Job otherwise, too.
        let owned = pods.with_uid_of(ControllerKey::of(&job.metadata, &JOBS));
        let free = orphans.filed(&job.metadata.namespace);
        let selected = free.into_iter().filter(|pod| job.selects(&pod.metadata.labels));
        for pod in owned.into_iter().filter(|pod| member::is_tracked(pod)).chain(selected) {
            add(Key::of(&pod.metadata));
        }
    })
}

/// The Job that manages a pod, if it is there.
pub(super) fn job_of(jobs: &Lister<Job>, pod: &Pod) -> Option<Arc<Job>> {
    jobs.get(&wake::controller_key(jobs, &pod.metadata)?)
}

//! The writes of pods, and the Job's events.

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::member::TRACKING;
use super::super::view::View;
use super::members::{Member, Members};
use crate::live_reads::JOB_ADOPTION;
use coxswain_machinery::api::kinds::{JOBS, PODS};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::owners;
use coxswain_machinery::model::plan::{Chain, EventSpec, Expect, Patch, Regarding, Tolerate, Verb, Verify};
use coxswain_machinery::model::{Key, Step, Write};
use coxswain_machinery::wire::Str;

const DELETE_FINALIZERS: &str = "$deleteFromPrimitiveList/finalizers";

/// Release and adoption. Each of them is tried whatever becomes of the others; as long as one fails nothing else is done.
pub(super) fn claims(view: &View, members: &Members<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    let owner = &view.job.metadata;
    // The check comes first, because its failure ends the plan; the releases follow in the plan for that failure.
    if !members.adopted.is_empty() {
        let expect = Expect::Alive(owner.uid.clone());
        steps.push(Step::Verify(Verify { read: &JOB_ADOPTION, kind: &JOBS, key: Key::of(owner), expect }));
    }
    let released = members.released.iter().map(|pod| release(owner, pod));
    let adopted = members.adopted.iter().map(|pod| adopt(owner, pod));
    let claims: Vec<_> = released.chain(adopted).collect();
    if !claims.is_empty() {
        steps.push(Step::Each(claims));
    }
    steps
}

/// Returns the releases without the check and the adoptions.
pub(super) fn releases(view: &View, members: &Members<'_>) -> Option<Step> {
    let released: Vec<_> = members.released.iter().map(|pod| release(&view.job.metadata, pod)).collect();
    (!released.is_empty()).then_some(Step::Each(released))
}

/// The owner reference comes with the finalizer.
fn adopt(owner: &ObjectMeta, pod: &Pod) -> Write {
    let patch = with(&owners::adoption(owner, &JOBS, &pod.metadata), "finalizers");
    Write::new(&PODS, Key::of(&pod.metadata), Verb::Patch(patch))
}

/// The owner reference goes with the finalizer. A pod that is gone, or whose name another pod bears by now, needs no release.
fn release(owner: &ObjectMeta, pod: &Pod) -> Write {
    let patch = with(&owners::release(owner, &pod.metadata), DELETE_FINALIZERS);
    Write {
        tolerate: Tolerate { absent: true, invalid: true, ..Tolerate::default() },
        ..Write::new(&PODS, Key::of(&pod.metadata), Verb::Patch(patch))
    }
}

/// A strategic patch that says this of the finalizer, too.
fn with(patch: &Patch, directive: &str) -> Patch {
    let mut patch: Value = patch.value().clone();
    patch["metadata"][directive] = json!([TRACKING]);
    Patch::Strategic(patch)
}

/// Takes the finalizer off a pod; of one that is gone it is off.
pub(in super::super) fn untrack(pod: &Pod) -> Write {
    untracking(pod, json!({ "uid": pod.metadata.uid }))
}

/// The same while the pod is as it was seen: it may have succeeded since, which must be counted first. A conflict is a failure, so
/// that the status does not count the pod as deleted.
fn untrack_as_seen(pod: &Pod) -> Write {
    let metadata = &pod.metadata;
    untracking(pod, json!({ "uid": metadata.uid, "resourceVersion": metadata.resource_version }))
}

fn untracking(pod: &Pod, mut metadata: Value) -> Write {
    metadata[DELETE_FINALIZERS] = json!([TRACKING]);
    let patch = json!({ "metadata": metadata });
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&PODS, Key::of(&pod.metadata), Verb::Patch(Patch::Strategic(patch)))
    }
}

/// Deletes a pod that is not to count as failed. A cache that is late may not know that it has ended well.
pub(super) fn release_and_delete(view: &View, member: &Member<'_>) -> Chain {
    let mut chain = Vec::with_capacity(2);
    if member.is_tracked {
        chain.push(untrack_as_seen(member.pod));
    }
    chain.push(delete(view, member.pod));
    chain
}

/// Deletes a pod. A conflict is a failure: the pod may still run if an admission webhook rejected the request with 409.
pub(super) fn delete(view: &View, pod: &Pod) -> Write {
    let deleted = format!("Deleted pod: {}", pod.metadata.name);
    Write {
        tolerate: Tolerate { gone: true, ..Tolerate::default() },
        on_success: Some(event(view, false, "SuccessfulDelete", deleted)),
        on_failure: Some(event(view, true, "FailedDelete", "Error deleting: {error}")),
        ..Write::new(&PODS, Key::of(&pod.metadata), Verb::delete(pod.metadata.uid.clone()))
    }
}

/// Makes a pod.
pub(super) fn create(view: &View, body: Bytes) -> Write {
    Write {
        // Whatever is made there goes with the namespace.
        tolerate: Tolerate { namespace_terminating: true, ..Tolerate::default() },
        on_success: Some(event(view, false, "SuccessfulCreate", "Created pod: {name}")),
        on_failure: Some(event(view, true, "FailedCreate", "Error creating: {error}")),
        ..Write::new(&PODS, Key::new(view.job.metadata.namespace.clone(), Str::EMPTY), Verb::Create(body))
    }
}

/// An event about the Job.
pub(super) fn event(
    view: &View,
    warning: bool,
    reason: &'static str,
    message: impl Into<String>,
) -> EventSpec {
    let regarding = Regarding::of(&JOBS, &view.job.metadata);
    EventSpec { regarding, warning, reason, message: message.into() }
}

//! The writes of pods, and by which labels pods are told apart.

use super::super::tolerations;
use super::super::view::{View, node_of};
use crate::live_reads::DAEMON_SET_ADOPTION;
use coxswain_machinery::api::core::PodTemplateSpec;
use coxswain_machinery::api::kinds::{DAEMON_SETS, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::owners::{self, controller_reference};
use coxswain_machinery::model::plan::{EventSpec, Expect, Patch, Regarding, Tolerate, Verb, Verify};
use coxswain_machinery::model::revisions::REVISION_LABEL;
use coxswain_machinery::model::{Key, Step, Write, fitting, pods};
use coxswain_machinery::wire::splice::{Edit, edit, get};
use coxswain_machinery::wire::{Raw, Str, Value, WireError, path};
use serde_json::json;

/// Label of pods: the generation of the template, where [`GENERATION`] gives one.
const GENERATION_LABEL: &str = "pod-template-generation";
/// Annotation of DaemonSets that are older than `apps/v1`.
const GENERATION: &str = "deprecated.daemonset.template.generation";

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It should not be there.
    Unwanted,
    /// It is of an old template and was not available when it was seen last: nothing is lost with it, unless it has become so since.
    Unavailable,
    /// It has failed, and another is to take its place.
    Failed,
    /// It has run to its end, and another is to take its place.
    Succeeded,
}

/// Whether a pod carries the hash of the present revision.
pub(super) fn has_hash(pod: &Pod, hash: &str) -> bool {
    pod.metadata.labels.get(REVISION_LABEL).is_some_and(|held| held == hash)
}

/// Whether a pod is of the present template: by the hash of its revision, or by the template's generation.
pub(super) fn is_new(view: &View, pod: &Pod, hash: &str) -> bool {
    let is_of_generation = |generation: i64| {
        let label = pod.metadata.labels.get(GENERATION_LABEL);
        label.is_some_and(|label| label == generation.to_string().as_str())
    };
    has_hash(pod, hash) || template_generation(view).is_some_and(is_of_generation)
}

fn template_generation(view: &View) -> Option<i64> {
    view.daemon_set.metadata.annotations.get(GENERATION)?.parse().ok()
}

/// A pod of the present template for each of these nodes.
pub(super) fn create_pods(view: &View, hash: &str, nodes: &[&Str]) -> Result<Option<Step>, WireError> {
    if nodes.is_empty() {
        return Ok(None);
    }
    let owner = &view.daemon_set.metadata;
    let pod = pods::from_template(
        &placed_template(view, hash)?,
        &owner.namespace,
        &pods::generate_name(&owner.name),
        &controller_reference(owner, &DAEMON_SETS),
    )?;
    let create = |node: &&Str| {
        let body = fitting::meant_for(&pod, node)?;
        Ok(Write {
            // Whatever is made there goes with the namespace.
            tolerate: Tolerate { namespace_terminating: true, ..Tolerate::default() },
            on_success: Some(event(view, false, "SuccessfulCreate", "Created pod: {name}".to_owned())),
            on_failure: Some(event(view, true, "FailedCreate", "Error creating: {error}".to_owned())),
            ..Write::new(&PODS, Key::new(owner.namespace.clone(), Str::EMPTY), Verb::Create(body.into()))
        })
    };
    let writes: Result<Vec<Write>, WireError> = nodes.iter().map(create).collect();
    Ok(Some(Step::Batch(writes?)))
}

/// The template with the labels of its revision, tolerating what DaemonSets' pods do.
fn placed_template(view: &View, hash: &str) -> Result<Raw, WireError> {
    let template: &[u8] = &view.daemon_set.spec.template;
    let spec = get(template, path!(PodTemplateSpec, spec))?.map(Value::bytes).transpose()?;
    let added = tolerations::added(view.daemon_set.constraints.host_network);
    let spec = fitting::tolerating(spec.unwrap_or_default(), added)?;
    let labels = path!(PodTemplateSpec, metadata.labels);
    let label = |name: &str, value: String| Edit::MapSet(labels, name.to_owned(), value);
    let mut edits =
        vec![Edit::SetBytes(path!(PodTemplateSpec, spec), spec), label(REVISION_LABEL, hash.to_owned())];
    edits.extend(template_generation(view).map(|number| label(GENERATION_LABEL, number.to_string())));
    Ok(Raw(edit(template, &edits)?.into()))
}

/// A pod that goes because it is not available goes only as it was seen: the cache may be late, and the pod may count by now. The
/// news of that plans anew.
pub(super) fn delete_pod(view: &View, pod: &Pod, cause: Cause) -> Write {
    let deleted = format!("Deleted pod: {}", pod.metadata.name);
    let rests_on_content = cause == Cause::Unavailable;
    let verb = if rests_on_content {
        Verb::delete_as_seen(&pod.metadata)
    } else {
        Verb::delete(pod.metadata.uid.clone())
    };
    Write {
        tolerate: Tolerate { absent: true, conflict: rests_on_content, ..Tolerate::default() },
        on_success: Some(event(view, false, "SuccessfulDelete", deleted)),
        on_failure: Some(event(view, true, "FailedDelete", "Error deleting: {error}".to_owned())),
        ..Write::new(&PODS, Key::of(&pod.metadata), verb)
    }
}

/// What is told of a pod that is deleted because it has run to its end.
pub(super) fn end_notice(view: &View, pod: &Pod, cause: Cause) -> Option<EventSpec> {
    let (key, node) = (Key::of(&pod.metadata), node_of(pod).map_or("", Str::as_str));
    match cause {
        Cause::Unwanted | Cause::Unavailable => None,
        Cause::Failed => {
            let message = format!("Found failed daemon pod {key} on node {node}, will try to kill it");
            Some(event(view, true, "FailedDaemonPod", message))
        }
        Cause::Succeeded => {
            let message = format!("Found succeeded daemon pod {key} on node {node}, will try to delete it");
            Some(event(view, false, "SucceededDaemonPod", message))
        }
    }
}

/// Nothing is tolerated here: a pod that is gone or taken would be counted, so the plan has to be made again.
pub(super) fn adopt_pod(view: &View, pod: &Pod) -> Write {
    let patch = owners::adoption(&view.daemon_set.metadata, &DAEMON_SETS, &pod.metadata);
    Write::new(&PODS, Key::of(&pod.metadata), Verb::Patch(patch))
}

/// A pod that is gone, or whose name another pod bears by now, needs no release.
pub(super) fn release_pod(view: &View, pod: &Pod) -> Write {
    let patch = owners::release(&view.daemon_set.metadata, &pod.metadata);
    Write {
        tolerate: Tolerate { absent: true, invalid: true, ..Tolerate::default() },
        ..Write::new(&PODS, Key::of(&pod.metadata), Verb::Patch(patch))
    }
}

/// The pod counts as one of the revision with this hash.
pub(super) fn relabel_pod(pod: &Pod, hash: &str) -> Write {
    let patch = json!({ "metadata": { "uid": pod.metadata.uid, "labels": { REVISION_LABEL: hash } } });
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&PODS, Key::of(&pod.metadata), Verb::Patch(Patch::Merge(patch)))
    }
}

/// Before an adoption: a DaemonSet that is gone, or goes, adopts nothing.
pub(super) fn owner_is_alive(view: &View) -> Step {
    let owner = &view.daemon_set.metadata;
    Step::Verify(Verify {
        read: &DAEMON_SET_ADOPTION,
        kind: &DAEMON_SETS,
        key: Key::of(owner),
        expect: Expect::Alive(owner.uid.clone()),
    })
}

fn event(view: &View, warning: bool, reason: &'static str, message: String) -> EventSpec {
    let regarding = Regarding::of(&DAEMON_SETS, &view.daemon_set.metadata);
    EventSpec { regarding, warning, reason, message }
}

//! The bodies of writes. What exists is edited in its own bytes: every field that is not ours, known or not, stays.

use super::annotations::REVISION;
use super::error::Unplannable;
use super::member::Member;
use crate::api::apps::{Deployment, DeploymentCondition, DeploymentStatus};
use crate::api::kinds::DEPLOYMENTS;
use crate::api::meta::ObjectMeta;
use crate::model::owners::controller_reference;
use crate::model::plan::Verb;
use crate::model::template::{HASH_LABEL, Template};
use crate::model::{Key, Write, pods};
use crate::wire::splice::{Edit, edit, get, put_bytes, put_varint_field};
use crate::wire::{Field, Message, Reader, WireError};

/// Fields of a Deployment and of a ReplicaSet: these numbers are the same in both.
const METADATA: u32 = 1;
const SPEC: u32 = 2;
const STATUS: u32 = 3;
const ANNOTATIONS: u32 = 12;
const SELECTOR: u32 = 2;
const REPLICAS: u32 = 1;
/// Fields of a ReplicaSet's spec.
const TEMPLATE: u32 = 3;
const MIN_READY_SECONDS: u32 = 4;
/// `LabelSelector.matchLabels`
const MATCH_LABELS: u32 = 1;
/// `DeploymentStatus.conditions`
const CONDITIONS: u32 = 6;

/// The ReplicaSet of the Deployment's template.
pub(super) fn new_replica_set(
    deployment: &Deployment,
    member: &Member,
    template: &Template,
    status: &DeploymentStatus,
) -> Result<Vec<u8>, Unplannable> {
    let hash = template.hash(status.collision_count);
    let metadata = ObjectMeta {
        name: member.object.metadata.name.clone(),
        namespace: deployment.metadata.namespace.clone(),
        labels: pods::template_metadata(&deployment.spec.template)?.labels.with(HASH_LABEL, &hash),
        annotations: member.changed_annotations().collect(),
        owner_references: vec![controller_reference(&deployment.metadata, &DEPLOYMENTS)],
        ..ObjectMeta::default()
    };
    let selector = match get(&deployment.raw, &[SPEC, SELECTOR])? {
        Some(selector) => selector.bytes()?,
        None => &[],
    };
    let selector = edit(selector, &[Edit::MapSet(vec![MATCH_LABELS], HASH_LABEL.to_owned(), hash.clone())])?;
    let mut spec = Vec::with_capacity(deployment.spec.template.len() + selector.len() + 64);
    put_varint_field(&mut spec, REPLICAS, member.replicas as u64);
    put_bytes(&mut spec, SELECTOR, &selector);
    put_bytes(&mut spec, TEMPLATE, &Template::labelled(&deployment.spec.template, &hash)?);
    deployment.spec.min_ready_seconds.encode(MIN_READY_SECONDS, &mut spec);
    let mut set = Vec::with_capacity(spec.len() + 512);
    put_bytes(&mut set, METADATA, &metadata.to_bytes());
    put_bytes(&mut set, SPEC, &spec);
    Ok(set)
}

/// The ReplicaSet with another size, `minReadySeconds` or annotations.
pub(super) fn changed_replica_set(member: &Member) -> Result<Vec<u8>, Unplannable> {
    let mut edits = Vec::new();
    if member.object.spec.replicas != Some(member.replicas) {
        edits.push(number(&[SPEC, REPLICAS], member.replicas.into()));
    }
    if let Some(seconds) = member.min_ready_seconds {
        edits.push(number(&[SPEC, MIN_READY_SECONDS], seconds.into()));
    }
    for (key, value) in member.changed_annotations() {
        edits.push(Edit::MapSet(vec![METADATA, ANNOTATIONS], key.to_owned(), value.to_owned()));
    }
    Ok(edit(&member.object.raw, &edits)?)
}

/// The update by which the Deployment shows this status and this revision; `None` if it does already. The revision is an
/// annotation, which an update of the status may change too, and unlike one of the whole it is no new generation.
pub(super) fn status_update(
    deployment: &Deployment,
    status: &DeploymentStatus,
    revision: Option<&str>,
) -> Result<Option<Write>, Unplannable> {
    let mut edits = Vec::new();
    if let Some(revision) = revision
        && deployment.metadata.annotations.get(REVISION).is_none_or(|held| held != revision)
    {
        edits.push(Edit::MapSet(vec![METADATA, ANNOTATIONS], REVISION.to_owned(), revision.to_owned()));
    }
    edits.extend(status_edits(deployment, status)?);
    if edits.is_empty() {
        return Ok(None);
    }
    let body = edit(&deployment.raw, &edits)?;
    let verb = Verb::Update(body.into());
    Ok(Some(Write::new(&DEPLOYMENTS, Key::of(&deployment.metadata), verb).on("status")))
}

fn status_edits(deployment: &Deployment, new: &DeploymentStatus) -> Result<Vec<Edit>, WireError> {
    let old = &deployment.status;
    let counts = [
        (1, Some(old.observed_generation), Some(new.observed_generation)),
        (2, Some(old.replicas.into()), Some(new.replicas.into())),
        (3, Some(old.updated_replicas.into()), Some(new.updated_replicas.into())),
        (4, Some(old.available_replicas.into()), Some(new.available_replicas.into())),
        (5, Some(old.unavailable_replicas.into()), Some(new.unavailable_replicas.into())),
        (7, Some(old.ready_replicas.into()), Some(new.ready_replicas.into())),
        (8, old.collision_count.map(Into::into), new.collision_count.map(Into::into)),
        (9, old.terminating_replicas.map(Into::into), new.terminating_replicas.map(Into::into)),
    ];
    let changed = counts.into_iter().filter(|(_, old, new)| old != new);
    let mut edits: Vec<Edit> = changed
        .map(|(field, _, new)| match new {
            Some(value) => number(&[STATUS, field], value),
            None => Edit::Clear(vec![STATUS, field]),
        })
        .collect();
    if old.conditions != new.conditions {
        let path = || vec![STATUS, CONDITIONS];
        let held = held_conditions(deployment)?;
        edits.push(Edit::Clear(path()));
        for condition in &new.conditions {
            let before = old.conditions.iter().zip(&held).find(|(old, _)| old.r#type == condition.r#type);
            let encoded = match before {
                Some((old, bytes)) if old == condition => bytes.to_vec(),
                Some((_, bytes)) => edit(bytes, &condition_edits(condition))?,
                None => condition.to_bytes(),
            };
            edits.push(Edit::Push(path(), encoded));
        }
    }
    Ok(edits)
}

/// The encoded conditions that the Deployment has, in the order of the decoded ones.
fn held_conditions(deployment: &Deployment) -> Result<Vec<&[u8]>, WireError> {
    let mut held = Vec::new();
    let status = match get(&deployment.raw, &[STATUS])? {
        Some(status) => status.bytes()?,
        None => &[],
    };
    let mut reader = Reader::new(status);
    while let Some((field, value)) = reader.next_field()? {
        if field == CONDITIONS {
            held.push(value.bytes()?);
        }
    }
    Ok(held)
}

/// Sets all that is known of a condition and leaves the rest.
fn condition_edits(condition: &DeploymentCondition) -> Vec<Edit> {
    let text = |field: u32, text: &str| Edit::SetBytes(vec![field], text.as_bytes().to_vec());
    let mut edits = vec![
        text(1, &condition.r#type),
        text(2, &condition.status),
        text(4, &condition.reason),
        text(5, &condition.message),
    ];
    for (field, time) in [(6, condition.last_update_time), (7, condition.last_transition_time)] {
        let mut encoded = Vec::new();
        if let Some(time) = time {
            put_varint_field(&mut encoded, 1, time.seconds() as u64);
        }
        edits.push(Edit::SetBytes(vec![field], encoded));
    }
    edits
}

fn number(path: &[u32], value: i64) -> Edit {
    Edit::SetVarint(path.to_vec(), value as u64)
}

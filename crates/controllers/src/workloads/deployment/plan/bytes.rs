//! The bodies of writes. What exists is edited in its own bytes: every field that is not ours, known or not, stays.

use std::collections::BTreeMap;

use super::annotations::REVISION;
use super::error::Unplannable;
use super::member::Member;
use coxswain_machinery::api::apps::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetSpec,
};
use coxswain_machinery::api::kinds::DEPLOYMENTS;
use coxswain_machinery::api::meta::{LabelSelector, ObjectMeta};
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::model::template::{HASH_LABEL, Template};
use coxswain_machinery::model::{Key, Write, pods};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes, put_varint_field};
use coxswain_machinery::wire::{Field, Message, Path, Reader, Str, Time, WireError, field, path};

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
    let selector = match get(&deployment.raw, path!(Deployment, spec.selector))? {
        Some(selector) => selector.bytes()?,
        None => &[],
    };
    let matched = path!(LabelSelector, matchLabels);
    let selector = edit(selector, &[Edit::MapSet(matched, HASH_LABEL.to_owned(), hash.clone())])?;
    let mut spec = Vec::with_capacity(deployment.spec.template.len() + selector.len() + 64);
    put_varint_field(&mut spec, field!(ReplicaSetSpec, replicas), member.replicas as u64);
    put_bytes(&mut spec, field!(ReplicaSetSpec, selector), &selector);
    let template = Template::labeled(&deployment.spec.template, &hash)?;
    put_bytes(&mut spec, field!(ReplicaSetSpec, template), &template);
    deployment.spec.min_ready_seconds.encode(field!(ReplicaSetSpec, minReadySeconds), &mut spec);
    let mut set = Vec::with_capacity(spec.len() + 512);
    put_bytes(&mut set, field!(ReplicaSet, metadata), &metadata.to_bytes());
    put_bytes(&mut set, field!(ReplicaSet, spec), &spec);
    Ok(set)
}

/// The ReplicaSet with another size, `minReadySeconds` or annotations.
pub(super) fn changed_replica_set(member: &Member) -> Result<Vec<u8>, Unplannable> {
    let mut edits = Vec::new();
    if member.object.spec.replicas != Some(member.replicas) {
        edits.push(number(path!(ReplicaSet, spec.replicas), member.replicas.into()));
    }
    if let Some(seconds) = member.min_ready_seconds {
        edits.push(number(path!(ReplicaSet, spec.minReadySeconds), seconds.into()));
    }
    for (key, value) in member.changed_annotations() {
        edits.push(Edit::MapSet(path!(ReplicaSet, metadata.annotations), key.to_owned(), value.to_owned()));
    }
    Ok(edit(&member.object.raw, &edits)?)
}

/// The Deployment with exactly these annotations, and with another template if there is one.
pub(super) fn rolled_back(
    deployment: &Deployment,
    template: Option<Vec<u8>>,
    annotations: &BTreeMap<&str, &str>,
) -> Result<Vec<u8>, Unplannable> {
    let path = path!(Deployment, metadata.annotations);
    let held = &deployment.metadata.annotations;
    let gone = held.iter().filter(|(key, _)| !annotations.contains_key(key.as_str()));
    let mut edits: Vec<Edit> = gone.map(|(key, _)| Edit::MapRemove(path, key.to_string())).collect();
    let new = annotations.iter().filter(|(key, value)| held.get(key).is_none_or(|held| held != **value));
    edits.extend(new.map(|(key, value)| Edit::MapSet(path, (*key).to_owned(), (*value).to_owned())));
    edits.extend(template.map(|template| Edit::SetBytes(path!(Deployment, spec.template), template)));
    Ok(edit(&deployment.raw, &edits)?)
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
        let annotations = path!(Deployment, metadata.annotations);
        edits.push(Edit::MapSet(annotations, REVISION.to_owned(), revision.to_owned()));
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
    let count = |path, old: Option<i32>, new: Option<i32>| (path, old.map(i64::from), new.map(i64::from));
    let counts = [
        (
            path!(Deployment, status.observedGeneration),
            Some(old.observed_generation),
            Some(new.observed_generation),
        ),
        count(path!(Deployment, status.replicas), Some(old.replicas), Some(new.replicas)),
        count(
            path!(Deployment, status.updatedReplicas),
            Some(old.updated_replicas),
            Some(new.updated_replicas),
        ),
        count(
            path!(Deployment, status.availableReplicas),
            Some(old.available_replicas),
            Some(new.available_replicas),
        ),
        count(
            path!(Deployment, status.unavailableReplicas),
            Some(old.unavailable_replicas),
            Some(new.unavailable_replicas),
        ),
        count(path!(Deployment, status.readyReplicas), Some(old.ready_replicas), Some(new.ready_replicas)),
        count(path!(Deployment, status.collisionCount), old.collision_count, new.collision_count),
        count(
            path!(Deployment, status.terminatingReplicas),
            old.terminating_replicas,
            new.terminating_replicas,
        ),
    ];
    let changed = counts.into_iter().filter(|(_, old, new)| old != new);
    let mut edits: Vec<Edit> = changed
        .map(|(path, _, new)| match new {
            Some(value) => number(path, value),
            None => Edit::Clear(path),
        })
        .collect();
    if old.conditions != new.conditions {
        let path = path!(Deployment, status.conditions);
        let held = held_conditions(deployment)?;
        edits.push(Edit::Clear(path));
        let mut by_type: HashMap<&Str, _> = HashMap::default();
        for before in old.conditions.iter().zip(&held) {
            by_type.entry(&before.0.r#type).or_insert(before);
        }
        for condition in &new.conditions {
            let before = by_type.get(&condition.r#type).copied();
            let encoded = match before {
                Some((old, bytes)) if old == condition => bytes.to_vec(),
                Some((_, bytes)) => edit(bytes, &condition_edits(condition))?,
                None => condition.to_bytes(),
            };
            edits.push(Edit::Push(path, encoded));
        }
    }
    Ok(edits)
}

/// The encoded conditions that the Deployment has, in the order of the decoded ones.
fn held_conditions(deployment: &Deployment) -> Result<Vec<&[u8]>, WireError> {
    let mut held = Vec::new();
    let status = match get(&deployment.raw, path!(Deployment, status))? {
        Some(status) => status.bytes()?,
        None => &[],
    };
    let mut reader = Reader::new(status);
    while let Some((field, value)) = reader.next_field()? {
        if field == field!(DeploymentStatus, conditions) {
            held.push(value.bytes()?);
        }
    }
    Ok(held)
}

/// Sets all that is known of a condition and leaves the rest.
fn condition_edits(condition: &DeploymentCondition) -> Vec<Edit> {
    let text = |path, text: &str| Edit::set_text(path, text);
    let time = |path, time: Option<Time>| {
        let mut encoded = Vec::new();
        if let Some(time) = time {
            time.encode_fields(&mut encoded);
        }
        Edit::SetBytes(path, encoded)
    };
    vec![
        text(path!(DeploymentCondition, type), &condition.r#type),
        text(path!(DeploymentCondition, status), &condition.status),
        text(path!(DeploymentCondition, reason), &condition.reason),
        text(path!(DeploymentCondition, message), &condition.message),
        time(path!(DeploymentCondition, lastUpdateTime), condition.last_update_time),
        time(path!(DeploymentCondition, lastTransitionTime), condition.last_transition_time),
    ]
}

fn number(path: Path, value: i64) -> Edit {
    Edit::SetVarint(path, value as u64)
}

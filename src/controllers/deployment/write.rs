//! The one update of the Deployment itself: its status, and the revision that it is at, in its own bytes. Pure.

use bytes::Bytes;

use super::KIND;
use crate::api::apps::{Deployment, DeploymentCondition, DeploymentStatus};
use crate::model::plan::Verb;
use crate::model::revisions::REVISION;
use crate::model::{Key, Write};
use crate::wire::splice::{Edit, edit, put_varint_field, retain_items};
use crate::wire::{Message, Reader, Str, Time, WireError};

/// Field numbers: of the status in a Deployment, and within the status.
const STATUS: u32 = 3;
const OBSERVED_GENERATION: u32 = 1;
const REPLICAS: u32 = 2;
const UPDATED: u32 = 3;
const AVAILABLE: u32 = 4;
const UNAVAILABLE: u32 = 5;
const CONDITIONS: u32 = 6;
const READY: u32 = 7;
const COLLISIONS: u32 = 8;
const TERMINATING: u32 = 9;

/// The update that makes the Deployment say so; `None` when it does already. The server takes a new annotation along
/// with a status, so the revision needs no update of its own.
pub(super) fn update(
    deployment: &Deployment,
    status: &DeploymentStatus,
    revision: Option<&Str>,
) -> Result<Option<Write>, WireError> {
    let revision =
        revision.filter(|revision| deployment.metadata.annotations.get(REVISION) != Some(*revision));
    if revision.is_none() && *status == deployment.status {
        return Ok(None);
    }
    let mut edits = vec![Edit::SetBytes(vec![STATUS], spliced(deployment, status)?)];
    if let Some(revision) = revision {
        edits.push(Edit::MapSet(vec![1, 12], REVISION.to_owned(), revision.to_string()));
    }
    let object = Bytes::from(edit(&deployment.raw, &edits)?);
    let verb = Verb::UpdateSubresource("status", object);
    Ok(Some(Write::new(KIND, Key::of(&deployment.metadata), verb)))
}

/// The Deployment's own status bytes with the new values in them.
fn spliced(deployment: &Deployment, status: &DeploymentStatus) -> Result<Vec<u8>, WireError> {
    let held = held_status(&deployment.raw)?;
    let number = |field: u32, value: i64| Edit::SetVarint(vec![field], value as u64);
    let optional = |field: u32, value: Option<i32>| match value {
        Some(value) => number(field, value.into()),
        None => Edit::Clear(vec![field]),
    };
    let mut edits = vec![
        number(OBSERVED_GENERATION, status.observed_generation),
        number(REPLICAS, status.replicas.into()),
        number(UPDATED, status.updated_replicas.into()),
        number(AVAILABLE, status.available_replicas.into()),
        number(UNAVAILABLE, status.unavailable_replicas.into()),
        number(READY, status.ready_replicas.into()),
        optional(COLLISIONS, status.collision_count),
        optional(TERMINATING, status.terminating_replicas),
    ];
    if status.conditions != deployment.status.conditions {
        let conditions = conditions(&held, &status.conditions)?;
        edits.extend(conditions.into_iter().map(|condition| Edit::Push(vec![CONDITIONS], condition)));
        return edit(&retain_items(&held, CONDITIONS, |_| false)?, &edits);
    }
    edit(&held, &edits)
}

/// The status as it is; one that occurs several times is, by protobuf's rules, the concatenation.
fn held_status(object: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut held = Vec::new();
    let mut fields = Reader::new(object);
    while let Some((number, value)) = fields.next_field()? {
        if number == STATUS {
            held.extend_from_slice(value.bytes()?);
        }
    }
    Ok(held)
}

/// The encodings of `wanted`, each spliced from that of the condition that it replaces.
fn conditions(status: &[u8], wanted: &[DeploymentCondition]) -> Result<Vec<Vec<u8>>, WireError> {
    let mut held: Vec<(DeploymentCondition, &[u8])> = Vec::new();
    let mut fields = Reader::new(status);
    while let Some((number, value)) = fields.next_field()? {
        if number == CONDITIONS {
            let bytes = value.bytes()?;
            held.push((DeploymentCondition::decode(&Bytes::copy_from_slice(bytes))?, bytes));
        }
    }
    let encode = |wanted: &DeploymentCondition| match held
        .iter()
        .find(|(condition, _)| condition.r#type == wanted.r#type)
    {
        Some((condition, bytes)) if condition == wanted => Ok(bytes.to_vec()),
        Some((_, bytes)) => edit(
            bytes,
            &[
                Edit::SetBytes(vec![2], wanted.status.as_bytes().to_vec()),
                Edit::SetBytes(vec![4], wanted.reason.as_bytes().to_vec()),
                Edit::SetBytes(vec![5], wanted.message.as_bytes().to_vec()),
                Edit::SetBytes(vec![6], time(wanted.last_update_time)),
                Edit::SetBytes(vec![7], time(wanted.last_transition_time)),
            ],
        ),
        None => Ok(wanted.to_bytes()),
    };
    wanted.iter().map(encode).collect()
}

/// A `metav1.Time`: its seconds are field 1.
fn time(time: Option<Time>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(time) = time {
        put_varint_field(&mut bytes, 1, time.seconds() as u64);
    }
    bytes
}

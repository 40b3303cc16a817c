//! Pods as the controllers that manage them see them: which count, which are available, which go first, how one is
//! made from a template.
//!
//! Shared by every controller that runs pods. Decisions and bytes only: nothing here reads a store or writes.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::api::core::PodTemplateSpec;
use crate::api::meta::{ObjectMeta, OwnerReference};
use crate::api::pod::Pod;
use crate::wire::splice::{put_bytes, put_text};
use crate::wire::{Message, Raw, Reader, Time, WireError, field};

mod eviction;
mod ranking;
#[cfg(test)]
mod tests;

pub use eviction::{DISRUPTION_TARGET, Evictor};
pub use ranking::{DELETION_COST, DeletionRank, Ranking, deletion_cost, most_restarts};

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Whether the pod counts towards a controller's replicas: it has not run to its end and is not on its way out.
pub fn is_active(pod: &Pod) -> bool {
    !pod.is_finished() && !pod.metadata.is_deleting()
}

/// Whether the pod is on its way out and still runs (KEP-3973).
pub fn is_terminating(pod: &Pod) -> bool {
    !pod.is_finished() && pod.metadata.is_deleting()
}

/// Whether a pod counts for its controller as it did before: what has changed of it (a node, addresses, restarts) makes no
/// difference to how many replicas there are, how many are ready since when, and whose it is.
pub fn counts_alike(before: &Pod, now: &Pod) -> bool {
    before.status.phase == now.status.phase
        && before.status.conditions == now.status.conditions
        && before.metadata.is_deleting() == now.metadata.is_deleting()
        && before.metadata.labels == now.metadata.labels
        && before.metadata.uid == now.metadata.uid
        && before.metadata.owner_references == now.metadata.owner_references
}

/// When the pod became ready; `None` if it is not, or does not say since when.
pub fn ready_since(pod: &Pod) -> Option<Time> {
    pod.condition("Ready").filter(|ready| ready.status == "True")?.last_transition_time
}

/// Whether the pod has been ready for `min_ready_seconds`.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_in(pod, min_ready_seconds, now) == Some(Duration::ZERO)
}

/// How long until the pod is available if it stays ready: nothing left for one that is available already, `None` for
/// one that is not ready, or that must be ready for a while and does not say since when it is.
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if !pod.is_ready() {
        return None;
    }
    if min_ready_seconds <= 0 {
        return Some(Duration::ZERO);
    }
    let available_at = ready_since(pod)?.plus_seconds(i64::from(min_ready_seconds));
    let left = i128::from(available_at.seconds()) * NANOS_PER_SECOND - now.as_nanosecond();
    Some(Duration::from_nanos(u64::try_from(left.max(0)).unwrap_or(u64::MAX)))
}

/// How long until the next of the ready `pods` becomes available; `None` when none of them is still waiting for it.
pub fn next_availability<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    let waits = pods.into_iter().filter_map(|pod| available_in(pod, min_ready_seconds, now));
    waits.filter(|wait| !wait.is_zero()).min()
}

/// The `generateName` of what is made for the object named `owner`: `owner-`. The name of an object that runs pods or has
/// slices is a DNS subdomain (RFC 1123), and with a dash and further letters it stays one but for its length; what is too
/// long the API server cuts before it appends its own.
pub fn generate_name(owner: &str) -> String {
    format!("{owner}-")
}

/// In a pod as in its template.
const METADATA: u32 = field!(PodTemplateSpec, metadata);
const SPEC: u32 = field!(PodTemplateSpec, spec);

/// Fields of a template's metadata that say something about one object and that its pods do not inherit. Labels,
/// annotations and finalizers are inherited, and whatever is newer than us.
const NOT_INHERITED: [u32; 12] = [
    field!(ObjectMeta, name),
    field!(ObjectMeta, generateName),
    field!(ObjectMeta, namespace),
    field!(ObjectMeta, selfLink),
    field!(ObjectMeta, uid),
    field!(ObjectMeta, resourceVersion),
    field!(ObjectMeta, generation),
    field!(ObjectMeta, creationTimestamp),
    field!(ObjectMeta, deletionTimestamp),
    field!(ObjectMeta, deletionGracePeriodSeconds),
    field!(ObjectMeta, ownerReferences),
    field!(ObjectMeta, managedFields),
];

/// The metadata of a pod template.
pub fn template_metadata(template: &Raw) -> Result<ObjectMeta, WireError> {
    ObjectMeta::decode(&Bytes::from(payload(&template.0, METADATA)?))
}

/// A pod (protobuf, without envelope) made from `template` for `owner`: the template's inherited metadata and its
/// spec, unparsed, so that nothing in them is lost.
pub fn from_template(
    template: &Raw,
    namespace: &str,
    generate_name: &str,
    owner: &OwnerReference,
) -> Result<Bytes, WireError> {
    let inherited = payload(&template.0, METADATA)?;
    let mut metadata = Vec::with_capacity(inherited.len() + 256);
    put_text(&mut metadata, field!(ObjectMeta, generateName), generate_name);
    put_text(&mut metadata, field!(ObjectMeta, namespace), namespace);
    let mut fields = Reader::new(&inherited);
    while let Some((number, _, raw)) = fields.next_raw()? {
        if !NOT_INHERITED.contains(&number) {
            metadata.extend_from_slice(raw);
        }
    }
    put_bytes(&mut metadata, field!(ObjectMeta, ownerReferences), &owner.to_bytes());

    let spec = payload(&template.0, SPEC)?;
    let mut pod = Vec::with_capacity(metadata.len() + spec.len() + 16);
    put_bytes(&mut pod, METADATA, &metadata);
    put_bytes(&mut pod, SPEC, &spec);
    Ok(pod.into())
}

/// The content of the message `number` in `message`; empty when it is absent. One that occurs several times is, by
/// protobuf's rules, the concatenation.
fn payload(message: &[u8], number: u32) -> Result<Vec<u8>, WireError> {
    let mut content = Vec::new();
    let mut fields = Reader::new(message);
    while let Some((found, value)) = fields.next_field()? {
        if found == number {
            content.extend_from_slice(value.bytes()?);
        }
    }
    Ok(content)
}

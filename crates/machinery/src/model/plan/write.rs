//! One write of a plan: the object, the verb and its body, and which refusals are as good as success.
//!
//! A write is data. What it still needs when it is sent (a signature, the answer of an earlier write) is named here and put
//! in by the executor.

use std::fmt;

use bytes::Bytes;
use serde_json::Value;

use super::EventSpec;
use crate::api::Kind;
use crate::api::meta::{ObjectMeta, PartialObjectMetadata};
use crate::model::Key;
use crate::wire::splice::{Edit, without};
use crate::wire::{Str, Uid, field};

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    /// Kind of the object written.
    pub kind: &'static Kind,
    /// Its namespace and name; the name is empty when the server makes it from `generateName`.
    pub key: Key,
    /// The subresource that is written instead of the object itself: `status`, `approval`, `scale` …; empty for none. See
    /// [`crate::api::subresource`] for what each takes.
    pub subresource: &'static str,
    /// What is written.
    pub verb: Verb,
    /// What is done on this machine before it is sent, by a finisher that is given no object. Where that fails nothing is sent.
    pub prepare: Option<FinishOrder>,
    /// Errors that count as success, because they mean that there is nothing left to do.
    pub tolerate: Tolerate,
    /// Whether the plan, and the chain if it is in one, goes on when it has failed. The key is retried all the same, once the
    /// plan has come to its end; that plan's `requeue_after` holds, too.
    pub keep_going: bool,
    /// Whether, in a chain, the next write is tried although this one has failed. The chain then ends after the first write without
    /// this flag.
    pub with_next: bool,
    /// The item of the plan's note that is remembered as soon as this write has succeeded, whatever becomes of the others; see
    /// [`Memory::commit_item`](crate::framework::Memory::commit_item).
    pub item: Option<usize>,
    /// Event to emit when it succeeded. `{name}` in the message is the name in the server's answer.
    pub on_success: Option<EventSpec>,
    /// Whether `on_success` is emitted as well where the object is gone, which is tolerated.
    pub tells_absence: bool,
    /// Event to emit when it failed. `{error}` in the message is the server's message.
    pub on_failure: Option<EventSpec>,
}

/// How an object is written. All bodies are complete: an object is spliced from its own bytes, never re-encoded.
/// `Debug` shows lengths only: a body may hold secrets.
#[derive(Clone, PartialEq)]
pub enum Verb {
    /// Create this object (protobuf, without envelope). With a subresource: post this body to the subresource of the object.
    Create(Bytes),
    /// Replace the object by this one, which carries the UID and resource version it was made from.
    Update(Bytes),
    /// Replace the object by the answer to the last write of this plan that wrote it, with these edits. So its resource
    /// version is the one which that write made. The object's kind must keep its bytes.
    UpdateLast(Vec<Edit>),
    /// Replace the object by this one once the executor has had it finished. It is for what is no part of a plan: what
    /// needs a key, randomness or I/O.
    UpdateFinished {
        /// The object, which carries the UID and resource version it was made from.
        object: Bytes,
        /// What is still to be put into it.
        order: FinishOrder,
    },
    /// Apply a patch, which carries the UID that it is meant for.
    Patch(Patch),
    /// Delete the object, if it is the one that is meant.
    Delete {
        /// UID that the object must have; empty only where `resource_version` says what is meant.
        uid: Uid,
        /// Resource version that it must have, when the decision rests on its content.
        resource_version: Option<Str>,
        /// What becomes of dependents; the kind's default when absent.
        propagation: Option<Propagation>,
        /// Seconds that it gets to end; the object's own when absent.
        grace_period: Option<u32>,
    },
    /// Delete every object of the kind in the namespace of the write's key, which has no name. There is no precondition
    /// that the server could check: it is for a namespace that was read live and is being deleted.
    DeleteCollection {
        /// What becomes of dependents; the kind's default when absent.
        propagation: Option<Propagation>,
    },
}

impl Verb {
    /// Delete the object with this UID, whatever its content.
    pub fn delete(uid: Uid) -> Self {
        Self::Delete { uid, resource_version: None, propagation: None, grace_period: None }
    }

    /// Delete the object as it was seen: if it has changed since, the decision may not hold any more, and the delete is a
    /// conflict.
    pub fn delete_as_seen(seen: &ObjectMeta) -> Self {
        Self::Delete {
            uid: seen.uid.clone(),
            resource_version: Some(seen.resource_version.clone()),
            propagation: None,
            grace_period: None,
        }
    }

    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Update(_) | Self::UpdateLast(_) | Self::UpdateFinished { .. } => "update",
            Self::Patch(_) => "patch",
            Self::Delete { .. } => "delete",
            Self::DeleteCollection { .. } => "deletecollection",
        }
    }
}

impl fmt::Debug for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(object) => write!(f, "Create({} bytes)", object.len()),
            Self::Update(object) => write!(f, "Update({} bytes)", object.len()),
            Self::UpdateLast(edits) => write!(f, "UpdateLast({} edits)", edits.len()),
            Self::UpdateFinished { object, order } => {
                write!(f, "UpdateFinished({} bytes, {order:?})", object.len())
            }
            Self::Patch(patch) => write!(f, "Patch({} bytes)", patch.value().to_string().len()),
            Self::Delete { uid, resource_version, propagation, grace_period } => f
                .debug_struct("Delete")
                .field("uid", uid)
                .field("resource_version", resource_version)
                .field("propagation", propagation)
                .field("grace_period", grace_period)
                .finish(),
            Self::DeleteCollection { propagation } => {
                f.debug_struct("DeleteCollection").field("propagation", propagation).finish()
            }
        }
    }
}

/// What a finisher is to put into an object. `Debug` shows no more than whose order it is.
#[derive(Clone, PartialEq)]
pub struct FinishOrder {
    /// The finisher's name, under which the executor knows it.
    pub finisher: &'static str,
    /// What it is to do, in its own terms.
    pub details: Value,
}

impl fmt::Debug for FinishOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FinishOrder({})", self.finisher)
    }
}

/// What becomes of a deleted object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
    /// They stay, without an owner.
    Orphan,
}

/// A patch, in the form that the API server takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// `application/merge-patch+json`
    Merge(Value),
    /// `application/strategic-merge-patch+json`
    Strategic(Value),
    /// `application/json-patch+json`
    Json(Value),
    /// Server-side apply, `application/apply-patch+yaml`: the object as far as the manager has an opinion of it. Creates
    /// the object if it is not there, unless `metadata.uid` says which one is meant.
    Apply {
        /// The field manager.
        manager: &'static str,
        /// Whether fields are taken over from managers that hold them with other values; otherwise that is a conflict.
        force: bool,
        /// The object.
        object: Value,
    },
}

impl Patch {
    /// The patch's document.
    pub fn value(&self) -> &Value {
        match self {
            Self::Merge(value) | Self::Strategic(value) | Self::Json(value) => value,
            Self::Apply { object, .. } => object,
        }
    }

    /// Returns the patch without its resourceVersion precondition.
    fn without_version(&self) -> Self {
        let mut patch = self.clone();
        let (Self::Merge(value)
        | Self::Strategic(value)
        | Self::Json(value)
        | Self::Apply { object: value, .. }) = &mut patch;
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        patch
    }
}

/// Returns whether two encoded objects are equal apart from resourceVersion, generation and managedFields.
fn is_same_object(one: &Bytes, other: &Bytes) -> bool {
    const METADATA: u32 = field!(PartialObjectMetadata, metadata);
    const IGNORED: [u32; 3] = [
        field!(ObjectMeta, resourceVersion),
        field!(ObjectMeta, generation),
        field!(ObjectMeta, managedFields),
    ];
    let content = |object: &Bytes| {
        IGNORED.iter().try_fold(object.to_vec(), |object, inner| without(&object, METADATA, *inner))
    };
    one == other || matches!((content(one), content(other)), (Ok(one), Ok(other)) if one == other)
}

/// Refusals that are as good as success.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a refusal of its own; any set of them makes sense"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerate {
    /// The object is not there (404 that names it), or a uid precondition does not hold (409) on a delete.
    pub absent: bool,
    /// The object is not there (404 that names it). A uid precondition that does not hold is a failure: another object has the name.
    pub gone: bool,
    /// It exists already (409 `AlreadyExists`).
    pub exists: bool,
    /// It has changed since it was read, or another field manager holds the field (409 `Conflict`).
    pub conflict: bool,
    /// Its namespace is being deleted (403 with the cause `NamespaceTerminating`).
    pub namespace_terminating: bool,
    /// 422: the server refuses the change as invalid, as it does when an object changed hands meanwhile.
    pub invalid: bool,
    /// The server does not do this to such objects (405, or any 404). The next look finds that the write did nothing, and can try another
    /// verb.
    pub unsupported: bool,
}

impl Write {
    /// A write of the object itself that tolerates nothing and emits nothing.
    pub fn new(kind: &'static Kind, key: Key, verb: Verb) -> Self {
        Self {
            kind,
            key,
            subresource: "",
            verb,
            prepare: None,
            tolerate: Tolerate::default(),
            keep_going: false,
            with_next: false,
            item: None,
            on_success: None,
            tells_absence: false,
            on_failure: None,
        }
    }

    /// Returns whether this write asks for the same as `earlier`, apart from the resourceVersion of each. A delete repeats none: no
    /// webhook undoes a delete, and the object may have been created again.
    pub fn repeats(&self, earlier: &Self) -> bool {
        let is_same = || match (&self.verb, &earlier.verb) {
            (Verb::Create(this), Verb::Create(other)) => this == other,
            (Verb::Update(this), Verb::Update(other)) => is_same_object(this, other),
            (Verb::UpdateLast(this), Verb::UpdateLast(other)) => this == other,
            (
                Verb::UpdateFinished { object: this, order },
                Verb::UpdateFinished { object: other, order: other_order },
            ) => order == other_order && is_same_object(this, other),
            (Verb::Patch(this), Verb::Patch(other)) => this.without_version() == other.without_version(),
            _ => false,
        };
        self.kind == earlier.kind
            && self.key == earlier.key
            && self.subresource == earlier.subresource
            && is_same()
    }

    /// The same write to a subresource of the object.
    #[must_use]
    pub fn on(self, subresource: &'static str) -> Self {
        Self { subresource, ..self }
    }
}

impl fmt::Display for Write {
    /// `create pods default/`, `update replicasets.apps/status default/web`: for logs, events and `explain`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, key, subresource, .. } = self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        write!(f, "{} {kind}{slash}{subresource} {key}", self.verb.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kinds::{CONFIG_MAPS, PODS};
    use crate::api::pod::Pod;
    use crate::wire::Message as _;

    /// A pod at this version with this phase.
    fn pod(resource_version: &str, phase: &str) -> Bytes {
        let metadata = ObjectMeta {
            name: "a".into(),
            resource_version: resource_version.into(),
            ..ObjectMeta::default()
        };
        let mut pod = Pod { metadata, ..Pod::default() };
        pod.status.phase = phase.into();
        pod.to_bytes().into()
    }

    fn write(verb: Verb) -> Write {
        Write::new(&PODS, Key::new("ns", "a"), verb)
    }

    #[test]
    fn write_repeats_another_of_the_same_content_at_whatever_version() {
        let patch = |version: &str, phase: &str| {
            let metadata = serde_json::json!({ "uid": "u", "resourceVersion": version });
            let object = serde_json::json!({ "metadata": metadata, "status": { "phase": phase } });
            [
                write(Verb::Patch(Patch::Merge(object.clone()))),
                write(Verb::Patch(Patch::Apply { manager: "m", force: true, object })),
            ]
        };
        let order = || FinishOrder { finisher: "f", details: Value::Null };
        let edits = || vec![Edit::set_text(&[1, 1], "a")];
        let table: Vec<(Write, Write, bool)> = vec![
            (write(Verb::Create(pod("", "x"))), write(Verb::Create(pod("", "x"))), true),
            (write(Verb::Create(pod("", "x"))), write(Verb::Create(pod("", "y"))), false),
            (write(Verb::Update(pod("1", "x"))), write(Verb::Update(pod("1", "x"))), true),
            (write(Verb::Update(pod("2", "x"))), write(Verb::Update(pod("1", "x"))), true),
            (write(Verb::Update(pod("1", "x"))), write(Verb::Update(pod("1", "y"))), false),
            (write(Verb::Update(pod("1", "x"))).on("status"), write(Verb::Update(pod("1", "x"))), false),
            (write(Verb::UpdateLast(edits())), write(Verb::UpdateLast(edits())), true),
            (write(Verb::UpdateLast(edits())), write(Verb::UpdateLast(Vec::new())), false),
            (
                write(Verb::UpdateFinished { object: pod("2", "x"), order: order() }),
                write(Verb::UpdateFinished { object: pod("1", "x"), order: order() }),
                true,
            ),
            (write(Verb::Update(pod("1", "x"))), write(Verb::Create(pod("1", "x"))), false),
            (write(Verb::delete("u".into())), write(Verb::delete("u".into())), false),
        ];
        for (this, earlier, repeats) in table {
            assert_eq!(this.repeats(&earlier), repeats, "{:?} after {:?}", this.verb, earlier.verb);
        }
        for at in 0..2 {
            assert!(patch("2", "x")[at].repeats(&patch("1", "x")[at]), "{at}");
            assert!(!patch("1", "y")[at].repeats(&patch("1", "x")[at]), "{at}");
        }
        let create = || Verb::Create(pod("", "x"));
        let elsewhere = Write::new(&PODS, Key::new("other", "a"), create());
        let another = Write::new(&CONFIG_MAPS, Key::new("ns", "a"), create());
        assert!(!elsewhere.repeats(&write(create())) && !another.repeats(&write(create())));
    }
}

//! One write of a plan: the object, the verb and its body, and which refusals are as good as success.

use std::fmt;

use bytes::Bytes;

use super::EventSpec;
use crate::api::Kind;
use crate::model::Key;
use crate::wire::{Str, Uid};

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    /// Kind of the object written.
    pub kind: &'static Kind,
    /// Its namespace and name; the name is empty when the server makes it from `generateName`.
    pub key: Key,
    /// What is written.
    pub verb: Verb,
    /// Errors that count as success, because they mean that there is nothing left to do.
    pub tolerate: Tolerate,
    /// Event to emit when it succeeded. `{name}` in the message is the name in the server's answer.
    pub on_success: Option<EventSpec>,
    /// Event to emit when it failed. `{error}` in the message is the server's message.
    pub on_failure: Option<EventSpec>,
}

/// How an object is written. All bodies are complete: an object is spliced from its own bytes, never re-encoded.
/// `Debug` shows lengths only: a body may hold secrets.
#[derive(Clone, PartialEq)]
pub enum Verb {
    /// Create this object (protobuf, without envelope).
    Create(Bytes),
    /// Replace the object by this one, which carries the UID and resource version it was made from.
    Update(Bytes),
    /// Replace the secret by this one once the executor has signed a service-account token with these claims and put
    /// it into the data under `token`. (Signing is no part of a plan: it needs the key, and may need randomness.)
    UpdateWithToken {
        /// The secret, which carries the UID and resource version it was made from.
        object: Bytes,
        /// The claims to sign.
        claims: serde_json::Value,
    },
    /// Replace a subresource (`status`) by that of this object, which carries UID and resource version.
    UpdateSubresource(&'static str, Bytes),
    /// Apply a patch, which carries the UID that it is meant for.
    Patch(Patch),
    /// Delete the object with this UID, and with this resource version if given.
    Delete {
        /// UID that the object must have.
        uid: Uid,
        /// Resource version that it must have, when the decision rests on its content.
        resource_version: Option<Str>,
        /// What becomes of dependents; the kind's default when absent.
        propagation: Option<Propagation>,
    },
    /// Delete every object of the kind in the namespace of the write's key, which has no name. There is no precondition
    /// that the server could check: it is for a namespace that was read live and is being deleted.
    DeleteCollection {
        /// What becomes of dependents; the kind's default when absent.
        propagation: Option<Propagation>,
    },
}

impl Verb {
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Update(_) | Self::UpdateWithToken { .. } | Self::UpdateSubresource(..) => "update",
            Self::Patch(_) => "patch",
            Self::Delete { .. } => "delete",
            Self::DeleteCollection { .. } => "deletecollection",
        }
    }

    /// The subresource that it writes; empty for the object itself.
    pub fn subresource(&self) -> &'static str {
        if let Self::UpdateSubresource(subresource, _) = self { subresource } else { "" }
    }
}

impl fmt::Debug for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(object) => write!(f, "Create({} bytes)", object.len()),
            Self::Update(object) => write!(f, "Update({} bytes)", object.len()),
            Self::UpdateWithToken { object, .. } => write!(f, "UpdateWithToken({} bytes)", object.len()),
            Self::UpdateSubresource(name, object) => {
                write!(f, "UpdateSubresource({name}, {} bytes)", object.len())
            }
            Self::Patch(patch) => write!(f, "Patch({} bytes)", patch.value().to_string().len()),
            Self::Delete { uid, resource_version, propagation } => f
                .debug_struct("Delete")
                .field("uid", uid)
                .field("resource_version", resource_version)
                .field("propagation", propagation)
                .finish(),
            Self::DeleteCollection { propagation } => {
                f.debug_struct("DeleteCollection").field("propagation", propagation).finish()
            }
        }
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
    Merge(serde_json::Value),
    /// `application/strategic-merge-patch+json`
    Strategic(serde_json::Value),
    /// `application/json-patch+json`
    Json(serde_json::Value),
}

impl Patch {
    /// The patch's document.
    pub fn value(&self) -> &serde_json::Value {
        match self {
            Self::Merge(value) | Self::Strategic(value) | Self::Json(value) => value,
        }
    }
}

/// Refusals that are as good as success.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a refusal of its own; any set of them makes sense"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerate {
    /// The object is not there (404), or a uid precondition does not hold (409) on a delete.
    pub absent: bool,
    /// It exists already (409 `AlreadyExists`).
    pub exists: bool,
    /// Its namespace is being deleted (403 with the cause `NamespaceTerminating`).
    pub namespace_terminating: bool,
    /// 422: the server refuses the change as invalid, as it does when an object changed hands meanwhile.
    pub invalid: bool,
}

impl Write {
    /// A write that tolerates nothing and emits nothing.
    pub fn new(kind: &'static Kind, key: Key, verb: Verb) -> Self {
        Self { kind, key, verb, tolerate: Tolerate::default(), on_success: None, on_failure: None }
    }
}

impl fmt::Display for Write {
    /// `create pods default/`, `update replicasets.apps/status default/web`: for logs, events and `explain`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subresource = self.verb.subresource();
        let slash = if subresource.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{subresource} {}", self.verb.name(), self.kind, self.key)
    }
}

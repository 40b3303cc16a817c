//! The API server's audit log: who asked for what, and what was answered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;

/// One request that was answered, or a watch that has begun to be.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditEvent {
    stage: String,
    pub(crate) verb: String,
    #[serde(rename = "requestURI")]
    pub(crate) uri: String,
    pub(crate) user: User,
    #[serde(default)]
    pub(crate) user_agent: String,
    #[serde(default)]
    pub(crate) object_ref: ObjectRef,
    #[serde(default)]
    pub(crate) response_status: ResponseStatus,
    pub(crate) request_received_timestamp: Timestamp,
    pub(crate) stage_timestamp: Timestamp,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Who asked.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct User {
    #[serde(default)]
    pub(crate) username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

/// What was asked about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectRef {
    #[serde(default)]
    pub(crate) api_group: String,
    #[serde(default)]
    pub(crate) resource: String,
    #[serde(default)]
    pub(crate) subresource: String,
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) name: String,
}

/// What was answered.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ResponseStatus {
    #[serde(default)]
    pub(crate) code: u16,
}

impl AuditEvent {
    /// Whether it asked for a change.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// The name at the end of Coxswain's user agents: a controller's, or what the manager does as itself. `None` for
    /// requests of others.
    pub(crate) fn coxswain(&self) -> Option<&str> {
        self.user_agent.strip_prefix("coxswain/")?.rsplit_once(" /").map(|(_, name)| name)
    }

    /// What tells the caller's credential from all others: a token's id, or the hash of a certificate.
    pub(crate) fn credential(&self) -> &str {
        let ids = self.user.extra.get("authentication.kubernetes.io/credential-id");
        ids.and_then(|ids| ids.first()).map_or("", String::as_str)
    }

    /// `RESOURCE` or `RESOURCE/SUBRESOURCE`.
    pub(crate) fn resource(&self) -> String {
        let ObjectRef { resource, subresource, .. } = &self.object_ref;
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") }
    }

    /// Whether Coxswain asked for this, and got it.
    pub(crate) fn is_done_by_us(&self, verb: &str, resource: &str, namespace: &str) -> bool {
        self.user_agent.starts_with("coxswain/")
            && self.verb == verb
            && (200..300).contains(&self.response_status.code)
            && (self.resource().as_str(), self.object_ref.namespace.as_str()) == (resource, namespace)
    }

    /// Whether the authorizer refused it. (Admission refuses with the same code: a quota, a namespace that ends.)
    pub(crate) fn is_forbidden(&self) -> bool {
        self.annotations.get("authorization.k8s.io/decision").is_some_and(|decision| decision == "forbid")
    }
}

/// Reads the log from this many bytes on, a line's beginning, as far as it is written.
pub(super) fn read(path: &Path, from: u64) -> Vec<AuditEvent> {
    let mut file = File::open(path).expect("the audit log");
    file.seek(SeekFrom::Start(from)).expect("its length is known");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("the audit log");
    // The server may be in the middle of a line.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let events = whole.lines().map(|line| -> AuditEvent {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("audit log: {error}: {line}"))
    });
    // The end of a watch has a line of its own.
    events.filter(|event| event.verb != "watch" || event.stage == "ResponseStarted").collect()
}

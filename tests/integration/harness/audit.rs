//! The API server's audit log: who asked for what, and what was answered.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;

/// The part of Coxswain's user agents that takes the place of the commit in those of kube-controller-manager.
const COXSWAIN: &str = ") kubernetes/coxswain-";

/// A controller manager, by its user agents. Both begin with the same name, which is that of the field manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Go,
    Coxswain,
}

impl Program {
    /// Whether its requests have this user agent.
    pub(crate) fn sent(self, user_agent: &str) -> bool {
        let is_manager = user_agent.starts_with("kube-controller-manager/");
        is_manager && (self == Self::Coxswain) == user_agent.contains(COXSWAIN)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Go => "Go",
            Self::Coxswain => "Coxswain",
        })
    }
}

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
        let (_, build) = self.user_agent.split_once(COXSWAIN).filter(|_| self.is_from(Program::Coxswain))?;
        build.split_once('/').map(|(_, name)| name)
    }

    /// Whether this manager sent it.
    pub(crate) fn is_from(&self, program: Program) -> bool {
        program.sent(&self.user_agent)
    }

    /// What tells the caller's credential from all others: a token's id, or the hash of a certificate.
    pub(crate) fn credential(&self) -> &str {
        let ids = self.user.extra.get("authentication.kubernetes.io/credential-id");
        ids.and_then(|ids| ids.first()).map_or("", String::as_str)
    }

    /// Whether it was answered with success.
    pub(crate) fn succeeded(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }

    /// Where its object is: a namespace, or for an object in none its own name.
    pub(crate) fn place(&self) -> &str {
        let ObjectRef { namespace, name, .. } = &self.object_ref;
        if namespace.is_empty() { name } else { namespace }
    }

    /// The same, with the object's name in the namespaces of the system, which all share: `kube-system/NAME`.
    pub(crate) fn exact_place(&self) -> String {
        let ObjectRef { namespace, name, .. } = &self.object_ref;
        if namespace.starts_with("kube-") { format!("{namespace}/{name}") } else { self.place().to_owned() }
    }

    /// `RESOURCE` or `RESOURCE/SUBRESOURCE`.
    pub(crate) fn resource(&self) -> String {
        let ObjectRef { resource, subresource, .. } = &self.object_ref;
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") }
    }

    /// Whether Coxswain asked for this, and got it.
    pub(crate) fn is_done_by_us(&self, verb: &str, resource: &str, namespace: &str) -> bool {
        self.succeeded() && self.is_tried_by_us(verb, resource, namespace)
    }

    /// The same whatever came of it: a request that was cut off may have been carried out.
    pub(crate) fn is_tried_by_us(&self, verb: &str, resource: &str, namespace: &str) -> bool {
        self.is_from(Program::Coxswain)
            && self.verb == verb
            && (self.resource().as_str(), self.object_ref.namespace.as_str()) == (resource, namespace)
    }

    /// Whether the authorizer refused it. (Admission refuses with the same code: a quota, a namespace that ends.)
    pub(crate) fn is_forbidden(&self) -> bool {
        self.annotations.get("authorization.k8s.io/decision").is_some_and(|decision| decision == "forbid")
    }
}

/// The log as it grows: each event once.
pub(crate) struct AuditTail {
    path: PathBuf,
    /// How much has been read.
    bytes: u64,
}

impl AuditTail {
    /// From the beginning of the log on.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, bytes: 0 }
    }

    /// What was logged since the last time.
    pub(crate) fn more(&mut self) -> Vec<AuditEvent> {
        let (events, length) = parse(&self.path, self.bytes);
        self.bytes += length;
        events
    }
}

/// Reads the log from this many bytes on, a line's beginning, as far as it is written.
pub(super) fn read(path: &Path, from: u64) -> Vec<AuditEvent> {
    parse(path, from).0
}

/// The same, and the length of what was read.
fn parse(path: &Path, from: u64) -> (Vec<AuditEvent>, u64) {
    let mut file = File::open(path).expect("the audit log");
    file.seek(SeekFrom::Start(from)).expect("its length is known");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("the audit log");
    // The server may be in the middle of a line.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let text = std::str::from_utf8(&bytes[..whole]).expect("whole lines are text");
    let events = text.lines().map(|line| -> AuditEvent {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("audit log: {error}: {line}"))
    });
    // The end of a watch has a line of its own.
    let events = events.filter(|event| event.verb != "watch" || event.stage == "ResponseStarted");
    (events.collect(), whole as u64)
}

//! The API server's audit log: who asked for what, and with what outcome.

use std::fs;

use serde::Deserialize;

use super::ControlPlane;

/// A request that was answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Audited {
    stage: String,
    /// `create`, `update` …
    pub(crate) verb: String,
    #[serde(default)]
    pub(crate) user_agent: String,
    #[serde(default)]
    pub(crate) object_ref: Target,
    #[serde(default)]
    response_status: Outcome,
}

/// What was asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Target {
    #[serde(default)]
    pub(crate) resource: String,
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) subresource: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Outcome {
    #[serde(default)]
    code: u16,
}

impl Audited {
    /// HTTP status of the answer.
    pub(crate) fn code(&self) -> u16 {
        self.response_status.code
    }

    /// Whether Coxswain asked, and got what it wanted.
    pub(crate) fn is_done_by_us(&self, verb: &str, resource: &str, namespace: &str) -> bool {
        let target = &self.object_ref;
        self.user_agent.starts_with("coxswain/")
            && self.verb == verb
            && (200..300).contains(&self.code())
            && (target.resource.as_str(), target.namespace.as_str()) == (resource, namespace)
            && target.subresource.is_empty()
    }
}

/// The requests answered so far. A line that is being written is left out.
pub(crate) fn audit(plane: &ControlPlane) -> Vec<Audited> {
    let text = fs::read_to_string(&plane.report.audit_log).expect("the audit log: start with --audit");
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Audited>(line).ok());
    entries.filter(|entry| entry.stage == "ResponseComplete").collect()
}

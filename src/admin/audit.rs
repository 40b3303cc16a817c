//! The audit log: a line for every mutation that was allowed, with its outcome, even when its caller hung up.

use std::sync::Arc;

use tonic::Status;

use super::authorize::Method;
use coxswain_machinery::serve::UserInfo;

/// A mutation under way. Dropped without an outcome, it is logged as abandoned.
pub(super) struct Audit {
    user: Arc<UserInfo>,
    method: Method,
    target: String,
    reason: String,
    ended: bool,
}

impl Audit {
    /// A mutation begins.
    pub(super) fn begin(user: &Arc<UserInfo>, method: Method, target: &str, reason: &str) -> Self {
        let target = if target.is_empty() { "*" } else { target };
        Self {
            user: Arc::clone(user),
            method,
            target: target.to_owned(),
            reason: reason.to_owned(),
            ended: false,
        }
    }

    /// It ended; `Ok` says whether anything changed.
    pub(super) fn end(mut self, outcome: Result<bool, &Status>) {
        self.ended = true;
        match outcome {
            Ok(true) => self.log("changed", ""),
            Ok(false) => self.log("unchanged", ""),
            Err(status) => self.log(status.code().description(), status.message()),
        }
    }

    fn log(&self, outcome: &str, error: &str) {
        tracing::info!(
            target: "audit",
            user = self.user.name,
            uid = self.user.uid,
            groups = ?self.user.groups,
            rpc = self.method.rpc,
            verb = self.method.verb,
            resource = self.method.resource,
            name = self.target,
            reason = self.reason,
            outcome,
            error,
            "admin call"
        );
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if !self.ended {
            self.log("abandoned", "the caller hung up, or its deadline passed");
        }
    }
}

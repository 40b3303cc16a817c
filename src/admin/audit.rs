//! The audit log: a line for every mutation that was allowed, with its outcome. Mutations are tasks of the manager, so there is
//! a line even if the caller is gone.

use std::sync::Arc;

use tonic::{Extensions, Status};

use super::authorize::Method;
use coxswain_machinery::serve::{PeerAddress, UserInfo};

#[cfg(test)]
std::thread_local! {
    /// The lines that this thread has logged, for tests: which subscribers see an event depends on other threads' tests.
    pub(super) static LINES: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// A mutation under way. Dropped without an outcome, because the process ends or the mutation panicked, it is logged as
/// abandoned.
pub(super) struct Audit {
    user: Arc<UserInfo>,
    peer: String,
    method: Method,
    target: String,
    reason: String,
    force: bool,
    duration: String,
    ended: bool,
}

/// The outcome of a mutation that did not fail.
pub(super) struct Changes<'a> {
    pub(super) changed: bool,
    /// The controllers whose overrides changed.
    pub(super) controllers: Vec<&'a str>,
}

impl Changes<'_> {
    /// An outcome without controllers.
    pub(super) fn plain(changed: bool) -> Self {
        Self { changed, controllers: Vec::new() }
    }
}

impl Audit {
    /// A mutation begins.
    pub(super) fn begin(
        user: &Arc<UserInfo>,
        extensions: &Extensions,
        method: Method,
        target: &str,
        reason: &str,
    ) -> Self {
        let target = if target.is_empty() { "*" } else { target };
        let peer = extensions.get::<PeerAddress>().map(|peer| peer.0.to_string()).unwrap_or_default();
        Self {
            user: Arc::clone(user),
            peer,
            method,
            target: target.to_owned(),
            reason: reason.to_owned(),
            force: false,
            duration: String::new(),
            ended: false,
        }
    }

    /// The terms of an order.
    pub(super) fn with_terms(mut self, force: bool, duration: Option<std::time::Duration>) -> Self {
        self.force = force;
        self.duration = duration.map(|duration| format!("{duration:?}")).unwrap_or_default();
        self
    }

    /// The mutation ended; `caller_gone` says that its caller will not get the answer.
    pub(super) fn end(mut self, outcome: Result<Changes<'_>, &Status>, caller_gone: bool) {
        self.ended = true;
        let caller = if caller_gone { "gone" } else { "waiting" };
        match outcome {
            Ok(changes) => {
                let outcome = if changes.changed { "changed" } else { "unchanged" };
                self.log(outcome, &changes.controllers.join(","), "", caller);
            }
            Err(status) => self.log(status.code().description(), "", status.message(), caller),
        }
    }

    fn log(&self, outcome: &str, controllers: &str, error: &str, caller: &str) {
        #[cfg(test)]
        LINES.with_borrow_mut(|lines| {
            lines.push(format!("{outcome} [{controllers}] force={} caller={caller}", self.force));
        });
        tracing::info!(
            target: "audit",
            user = self.user.name,
            uid = self.user.uid,
            groups = ?self.user.groups,
            extra = ?self.user.extra,
            peer = self.peer,
            rpc = self.method.rpc,
            verb = self.method.verb,
            resource = self.method.resource,
            name = self.target,
            reason = self.reason,
            force = self.force,
            duration = self.duration,
            controllers,
            outcome,
            error,
            caller,
            "Admin call"
        );
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if !self.ended {
            self.log("abandoned", "", "the process stopped, or the call failed unexpectedly", "gone");
        }
    }
}

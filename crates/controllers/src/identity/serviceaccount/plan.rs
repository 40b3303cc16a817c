//! Decides whether an account must be created.

use super::DEFAULT_ACCOUNT;
use super::view::View;
use coxswain_machinery::api::core::ServiceAccount;
use coxswain_machinery::api::kinds::SERVICE_ACCOUNTS;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{Plan, Step, Tolerate, Verb, Write};
use coxswain_machinery::wire::Message;

/// Creates the account if the namespace is active and has none.
pub(super) fn plan(view: &View) -> Plan {
    let mut plan = Plan::default();
    if !view.active || view.has_account {
        return plan;
    }
    let metadata = ObjectMeta {
        name: DEFAULT_ACCOUNT.into(),
        namespace: view.namespace.clone(),
        ..ObjectMeta::default()
    };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() }.to_bytes();
    let mut write = Write::new(
        &SERVICE_ACCOUNTS,
        Key::new(view.namespace.clone(), DEFAULT_ACCOUNT),
        Verb::Create(account.into()),
    );
    // The namespace may be going or gone by now, and somebody else may have been quicker.
    write.tolerate =
        Tolerate { absent: true, exists: true, namespace_terminating: true, ..Tolerate::default() };
    plan.steps.push(Step::Write(write));
    plan
}

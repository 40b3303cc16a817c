//! serviceaccount-controller: every active namespace has a service account `default`.
//!
//! Keys are namespaces. See "Managing Service Accounts" in the Kubernetes documentation. It never deletes and never
//! changes an account that is there.

mod plan;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use coxswain_machinery::api::core::{Namespace, ServiceAccount};
use coxswain_machinery::api::kinds::{NAMESPACES, SERVICE_ACCOUNTS};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    RoomAdapter, wake,
};
use coxswain_machinery::model::Key;
use view::Accounts;

/// The account that every namespace has.
const DEFAULT_ACCOUNT: &str = "default";

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "serviceaccount-controller",
    aliases: &["serviceaccount"],
    description: "Creates the service account `default` in every active namespace.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("service-account-controller"),
    event_source: None,
    writes: &[Grant { group: "", resource: "serviceaccounts", verbs: &["create"] }, EVENTS_GRANT],
    build: Some(build),
};

#[expect(clippy::unnecessary_wraps, reason = "the shape of every room's build")]
fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let namespaces = build.watch::<Namespace>(&NAMESPACES);
    let accounts = build.watch::<ServiceAccount>(&SERVICE_ACCOUNTS);
    let room = Accounts { namespaces: namespaces.lister(), accounts: accounts.lister() };
    let of_accounts: KeyMap = Arc::new(|delta, add| {
        // Only an account that is gone can be missing.
        if let (Some(gone), None) = delta.typed::<ServiceAccount>() {
            add(Key::new("", gone.metadata.namespace.clone()));
        }
    });
    Ok(Built {
        loops: vec![Loop {
            queue: "serviceaccount",
            kind: Some(&NAMESPACES),
            settings: LoopSettings::default(),
            wake_ups: vec![namespaces.wakes(wake::existing()), accounts.wakes(of_accounts)],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

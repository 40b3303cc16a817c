//! serviceaccount-controller: every active namespace has a service account `default`.
//!
//! Keys are namespaces. See "Managing Service Accounts" in the Kubernetes documentation. It never deletes and never
//! changes an account that is there.

mod plan;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use crate::api::core::ServiceAccount;
use crate::api::kinds::{NAMESPACES, SERVICE_ACCOUNTS};
use crate::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, RoomAdapter, Watch,
};
use crate::informer::Lister;
use crate::model::Key;
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
    let room = Accounts {
        namespaces: Lister::new((build.store)(&NAMESPACES, None)),
        accounts: Lister::new((build.store)(&SERVICE_ACCOUNTS, None)),
    };
    let namespaces = Watch {
        kind: &NAMESPACES,
        field_selector: None,
        keys: Arc::new(|delta, add| {
            if let Some(namespace) = delta.new {
                add(Key::new("", namespace.meta().name.clone()));
            }
        }),
    };
    let accounts = Watch {
        kind: &SERVICE_ACCOUNTS,
        field_selector: None,
        keys: Arc::new(|delta, add| {
            // Only an account that is gone can be missing.
            if let (Some(gone), None) = delta.typed::<ServiceAccount>() {
                add(Key::new("", gone.metadata.namespace.clone()));
            }
        }),
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "serviceaccount",
            kind: Some(&NAMESPACES),
            workers: 1,
            watches: vec![namespaces, accounts],
            reconcile: Arc::new(RoomAdapter(room)),
        }],
    })
}

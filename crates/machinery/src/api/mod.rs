//! The Kubernetes objects that controllers read: trimmed messages and the table of kinds.
//!
//! A message holds what some controller reads, under upstream's field numbers; `tests/integration` compares names
//! and numbers with the `generated.proto` files of the pinned Kubernetes version. Never used to write an object that
//! was read: see [`crate::wire::splice`].

pub mod apps;
pub mod autoscaling;
pub mod batch;
pub mod certificates;
pub mod charge;
pub mod cloud;
pub mod coordination;
pub mod core;
#[cfg(test)]
pub(crate) mod differential;
pub mod discovery;
pub mod document;
pub mod dynamic;
pub mod endpoints;
pub mod events;
mod expressions;
pub mod indexes;
mod kind;
pub mod kinds;
pub mod meta;
pub mod networking;
pub mod placement;
pub mod pod;
pub mod policy;
pub mod quota;
pub mod rbac;
pub mod resource;
pub mod scheduling;
pub mod shape;
pub mod storage;
pub mod subresource;
pub mod system;
pub mod volumes;

pub use kind::{Among, AnyObject, GroupVersionResource, Index, IndexKeys, Kind, Object, distinct, missing};

use crate::wire::MessageRow;

/// Every message that is declared here and in [`crate::wire`], to be compared with upstream's definitions.
pub fn schema() -> Vec<&'static MessageRow> {
    [
        apps::SCHEMA,
        autoscaling::SCHEMA,
        charge::SCHEMA,
        cloud::SCHEMA,
        coordination::SCHEMA,
        core::SCHEMA,
        discovery::SCHEMA,
        endpoints::SCHEMA,
        events::SCHEMA,
        meta::SCHEMA,
        networking::SCHEMA,
        quota::SCHEMA,
        volumes::SCHEMA,
        system::SCHEMA,
        storage::SCHEMA,
        scheduling::SCHEMA,
        resource::SCHEMA,
        rbac::SCHEMA,
        policy::SCHEMA,
        placement::SCHEMA,
        pod::SCHEMA,
        pod::environment::SCHEMA,
        pod::selinux::SCHEMA,
        shape::SCHEMA,
        certificates::SCHEMA,
        batch::SCHEMA,
        crate::wire::SCHEMA,
        crate::wire::ENVELOPE_SCHEMA,
    ]
    .concat()
}

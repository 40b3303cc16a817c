//! The Kubernetes objects that controllers read: trimmed messages and the table of kinds.
//!
//! A message holds what some controller reads, under upstream's field numbers; `tests/integration` compares names
//! and numbers with the `generated.proto` files of the pinned Kubernetes version. Never used to write an object that
//! was read: see [`crate::wire::splice`].

pub mod apps;
pub mod autoscaling;
pub mod charge;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod document;
pub mod dynamic;
pub mod endpoints;
pub mod events;
pub mod indexes;
mod kind;
pub mod kinds;
pub mod meta;
pub mod networking;
pub mod quota;
pub mod subresource;

pub use kind::{AnyObject, GroupVersionResource, Index, IndexKeys, Kind, Object};

/// Full upstream name of a message, and the fields declared here: number and name in snake case.
pub type MessageSchema = (&'static str, &'static [(u32, &'static str)]);

/// Every message that is declared in this module's files, to be compared with upstream's definitions.
pub fn schema() -> Vec<MessageSchema> {
    [
        apps::SCHEMA,
        autoscaling::SCHEMA,
        charge::SCHEMA,
        coordination::SCHEMA,
        core::SCHEMA,
        discovery::SCHEMA,
        endpoints::SCHEMA,
        events::SCHEMA,
        meta::SCHEMA,
        networking::SCHEMA,
        quota::SCHEMA,
        crate::wire::SCHEMA,
    ]
    .concat()
}

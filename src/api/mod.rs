//! The Kubernetes objects that controllers read: trimmed messages and the table of kinds.
//!
//! A message holds what some controller reads, under upstream's field numbers; `tests/integration` compares names
//! and numbers with the `generated.proto` files of the pinned Kubernetes version. Never used to write an object that
//! was read: see [`crate::wire::splice`].

pub mod apps;
pub mod coordination;
pub mod core;
pub mod events;
mod kind;
pub mod kinds;
pub mod meta;

pub use kind::{AnyObject, GroupVersionResource, Index, IndexKeys, Kind, Object};

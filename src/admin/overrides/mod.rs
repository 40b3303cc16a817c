//! Overrides: orders to run or stop a controller that outrank the flags.
//!
//! They live in annotations of one Lease, `kube-system/coxswain-overrides`, one annotation per controller:
//!
//! ```text
//! overrides.coxswain.dev/deployment-controller: {"desired":"disabled","user":"jane","time":"2026-11-21T12:00:00Z",
//!                                                "reason":"rollout storm","until":"2026-11-21T12:30:00Z","version":7}
//! ```
//!
//! An entry whose order was withdrawn stays as `"desired":"default"`, so that versions never go back. An entry that
//! can't be read, or names no controller, is reported and has no effect. Everything but [`OverrideStore`] is pure: time
//! is handed in, and an entry past its time simply no longer counts, on whichever replica looks.

mod entry;
mod hands;
mod set;
mod store;

#[cfg(test)]
mod tests;

pub use entry::{Entry, EntryError, MAX_REASON_BYTES, MAX_USER_BYTES, Order};
pub use hands::{HandEdit, by_hand};
pub use set::{DecidedBy, DesiredState, FlagSelection, OverrideProblem, OverrideSet};
pub use store::{HeldOverrides, OverrideStore, StoreError};

/// Namespace of the Lease.
pub const LEASE_NAMESPACE: &str = "kube-system";
/// Name of the Lease.
pub const LEASE_NAME: &str = "coxswain-overrides";
/// What the keys of its annotations begin with; a controller's name follows.
pub const ANNOTATION_PREFIX: &str = "overrides.coxswain.dev/";

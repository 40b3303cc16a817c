//! Overrides: orders to run or stop a controller that outrank the flags.
//!
//! They live in annotations of one Lease, `kube-system/coxswain-overrides`, one annotation per controller. A group of
//! replicas that leads by another Lease than `kube-system/kube-controller-manager` has a Lease of its own
//! ([`Group::overrides_lease`](crate::admin::Group::overrides_lease)).
//!
//! ```text
//! overrides.coxswain.dev/deployment-controller: {"desired":"disabled","user":"jane","time":"2026-11-21T12:00:00Z",
//!                                                "reason":"rollout storm","until":"2026-11-21T12:30:00Z","version":7}
//! ```
//!
//! An entry whose order was withdrawn stays as `"desired":"default"`, so that versions never go back. An entry that
//! can't be read, or names no controller, is reported and has no effect. Everything but [`OverrideStore`] is pure: time
//! is handed in, and an entry past its time simply no longer counts, on whichever replica looks.
//!
//! # Orders
//!
//! 1. An entry holds the order that was given, `enabled` or `disabled`. No replica converts an order by its own flags.
//! 2. Only `ClearOverrides` withdraws orders, and `enable '*'` those that disable. `enable '*'` does nothing else, so it undoes
//!    `disable '*'`: the flags hold again. `disable '*'` is for every controller, whatever the flags are.
//! 3. An entry holds whether its caller set `force`. Without `force` an order never outranks flags that leave a controller
//!    out, neither when it is given (`FORCE_REQUIRED`) nor when the flags change later. Such an order has `"ordered":"enabled"`
//!    and `"desired":"default"`, so it does not outrank the flags of an older version either.
//! 4. An entry without the field `force` was written by hand or by an older version. It outranks the flags, as it did then.
//! 5. With `--admin-overrides=disable-only` no order outranks flags that leave a controller out, with or without `force`.
//! 6. Disabling a critical controller for more than an hour needs `force`. `admin::critical` lists these controllers.
//! 7. Each replica's Lease has a digest of its selection flags. A replica whose digest differs from the leader's refuses
//!    orders that depend on the flags (`FLAGS_DIFFER`, with the leader's address): to enable or to clear, unless they have
//!    `force`. An unknown digest is no difference. To disable is possible at any replica.
//! 8. A mutation is a task of the manager: write, audit line and Event happen whether or not the caller waits. Each order is
//!    one Event that no rate limit drops and that is never combined. No `NOT_LEADER` follows a write.

mod entry;
mod hands;
mod inherited;
mod set;
mod store;

#[cfg(test)]
mod tests;

pub use entry::{Entry, EntryError, MAX_REASON_BYTES, MAX_USER_BYTES, Order};
pub use hands::{HandEdit, by_hand};
pub use inherited::inherited;
pub use set::{DecidedBy, DesiredState, FlagSelection, OverrideProblem, OverrideSet};
pub use store::{HeldOverrides, OverrideStore, StoreError};

/// Namespace of the Lease.
pub const LEASE_NAMESPACE: &str = "kube-system";
/// Name of the Lease of the default group. The names of the other groups' Leases begin with it.
pub const LEASE_NAME: &str = "coxswain-overrides";
/// What the keys of its annotations begin with; a controller's name follows.
pub const ANNOTATION_PREFIX: &str = "overrides.coxswain.dev/";

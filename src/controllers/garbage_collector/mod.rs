//! Garbage collection: an object goes when none of its owners is left, and an owner goes as its deletion asks for.
//!
//! Three parts, all of them pure: the [`graph`] of owners says what each change makes worth looking at; a [`view`] is what
//! live reads find there; the [`plan`] says what to do. What each never does is written at its head. They follow the
//! Kubernetes documentation ("Garbage Collection", "Owners and Dependents", "Use Cascading Deletion") and what was
//! observed on the Go manager.
//!
//! # What holds
//! - Nothing is deleted but by UID *and* resource version of a live read whose owner references were all looked up: at
//!   the places where they point, not by UID alone.
//! - What the graph says is never a proof. A graph that lags behind delays, it does not destroy.
//! - What can't be looked up (a kind that is not served, a failed read) is neither absent nor there: the attempt is retried.
//!
//! # Where it differs from the original, on purpose
//! - A dependent that appears while its owner is being deleted in the foreground goes at once, not when another change
//!   draws attention to it.
//! - Objects in the foreground deletion of which each blocks the next, in a circle, are unblocked whichever way they got
//!   there; in the original two that a user deletes so wait for each other for ever.
//! - Of two references with one UID, of which one names another object, only the wrong one is taken out.
//! - What is taken out of an object is taken out by position, tested, so that a dependent's other changes meet no conflict.
//! - An object whose owners are all in sight is not read again, and an owner's foreground deletion is looked at again when
//!   its last blocking dependent is gone, not at each.
//!
//! # How it is to be attached
//! What is missing is the wiring; it needs four things of the rest, in this order.
//!
//! 1. **Kinds known only at run time**: [`crate::api::dynamic::kind`], which is there. Informers, stores, client and plans
//!    work with its rows as with any other.
//! 2. **Watches that come and go.** A supervisor task compares `Discovery::resources().preferred()` (deletable, listable,
//!    watchable; without events and what the configuration ignores) with the running watches every 30 seconds, starts and
//!    drops handles of `Informers`, and calls [`graph::Graph::forget_kind`] for what is gone. While a group's discovery
//!    fails, its watches stay. Their handlers call [`graph::Graph::observe`] and `remove` and put [`graph::Worth`] into the
//!    two queues. A store-less sink for the reflector (the graph is store enough: `replace` finds what a list lacks) would
//!    save the second copy of all metadata; `Delta` must then say whether a removal was watched or missed.
//! 3. **Observing with live reads.** `framework::Reconcile` gets a second form whose pass answers `Needs(reads)`; the
//!    worker performs the reads with the controller's client and calls again with all found so far, at most four times
//!    ([`view::observe`] has this shape already). Keys are [`view::Attempt`]s: a `Key` with an empty namespace and the UID as
//!    its name, in the queues `garbage_collector_attempt_to_delete` and `garbage_collector_attempt_to_orphan`.
//! 4. **Feedback.** After a view [`view::View::absent`] goes back into the graph, and what that makes worth looking at
//!    into the queues, before the plan is carried out.
//!
//! Processing starts when all watches that were there at the start have synced, or after 30 seconds; an unsynced
//! owner is a virtual node and costs a live read, never an object. [`graph::Graph::write_dot`] is the debug page.

pub mod graph;
pub mod plan;
#[cfg(test)]
mod tests;
mod uid;
pub mod view;

pub use uid::Uid;

use crate::framework::{DefaultState, Descriptor, Grant};

/// Keeps an object until its blocking dependents are gone.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// Keeps an object until its dependents have been cut loose.
pub const ORPHAN_FINALIZER: &str = "orphan";

/// The garbage collector's row of the registry; not built yet.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "garbage-collector-controller",
    aliases: &["garbagecollector"],
    description: "Deletes objects whose owners are gone.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("generic-garbage-collector"),
    writes: &[
        Grant { group: "*", resource: "*", verbs: &["delete", "get", "list", "patch", "update", "watch"] },
        crate::framework::EVENTS_GRANT,
    ],
    build: None,
};

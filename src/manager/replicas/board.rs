//! What the watch has shown of the replicas' Leases, and what follows from it. Pure: times are handed in.
//!
//! A replica lives as long as its Lease changes within the Lease's own duration, measured with this machine's clock from
//! when it saw the change. Clocks of two machines are compared in one place only, where an error does no harm: see
//! [`Board::vacant`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::format::{LEASE_DURATION, REPLICA_NAME_PREFIX, lifetime, state};
use crate::admin::manager::ReplicaState;
use coxswain_machinery::api::coordination::Lease;
use coxswain_machinery::election::Record;
use coxswain_machinery::wire::Str;

/// A Lease whose last renewal says that it is this old may be taken over by a replica that begins.
const LONG_STALE: SignedDuration = SignedDuration::from_mins(10);

/// All Leases of replicas, as they were seen.
#[derive(Debug, Default)]
pub(super) struct Board {
    seen: BTreeMap<Str, Seen>,
}

#[derive(Debug)]
struct Seen {
    lease: Arc<Lease>,
    /// When the last sign of life was seen.
    at: Instant,
}

impl Seen {
    fn holder(&self) -> &Str {
        &self.lease.spec.holder_identity
    }

    fn lives_until(&self) -> Instant {
        self.at + lifetime(&self.lease)
    }

    /// When its remains may be removed: those of a replica that has been dead for as long as it was trusted to live,
    /// and those that no replica wanted to have for as long.
    fn rots_at(&self) -> Instant {
        let patience = if self.holder().is_empty() { LEASE_DURATION } else { lifetime(&self.lease) };
        self.at + patience * 2
    }
}

impl Board {
    /// Takes note of a Lease as it is now.
    pub(super) fn put(&mut self, lease: &Arc<Lease>, now: Instant) {
        let held = self.seen.get(&lease.metadata.name);
        let sign = |lease: &Lease| {
            let Record { holder, renewed, .. } = Record::from(lease);
            (holder, renewed)
        };
        let at = match held {
            Some(held) if sign(&held.lease) == sign(lease) => held.at,
            _ => now,
        };
        self.seen.insert(lease.metadata.name.clone(), Seen { lease: Arc::clone(lease), at });
    }

    /// Takes note of a Lease that is gone.
    pub(super) fn remove(&mut self, name: &str) {
        self.seen.remove(name);
    }

    /// All replicas but the one that looks, by identity.
    pub(super) fn others(&self, own: &str, now: Instant) -> Vec<ReplicaState> {
        let mut latest: BTreeMap<&str, &Seen> = BTreeMap::new();
        for seen in self.seen.values().filter(|seen| !seen.holder().is_empty() && *seen.holder() != *own) {
            let known = latest.entry(seen.holder()).or_insert(seen);
            if known.at < seen.at {
                *known = seen;
            }
        }
        latest.into_values().map(|seen| state(&seen.lease, now < seen.lives_until())).collect()
    }

    /// When the next of the others will be dead, or its remains may be removed, if nothing happens.
    pub(super) fn next_change(&self, now: Instant) -> Option<Instant> {
        let times = self.seen.values().flat_map(|seen| [seen.lives_until(), seen.rots_at()]);
        times.filter(|at| *at > now).min()
    }

    /// Leases that this replica holds already, perhaps without knowing it.
    pub(super) fn held_by(&self, own: &str) -> Vec<Arc<Lease>> {
        self.select(|seen| *seen.holder() == *own)
    }

    /// Leases that a replica may have that begins: released ones, and those that were renewed long ago by `now`, the
    /// wall clock. Were it wrong by minutes, a living replica would lose its Lease by this, notice it when it next renews,
    /// and take another: its record would be gone for seconds.
    pub(super) fn vacant(&self, now: Timestamp) -> Vec<Arc<Lease>> {
        self.select(|seen| {
            seen.holder().is_empty() || now.duration_since(Record::from(&*seen.lease).renewed) > LONG_STALE
        })
    }

    /// The remains of the dead. Released Leases only if they can be deleted: otherwise they are of use.
    pub(super) fn remains(&self, own: &str, may_delete: bool, now: Instant) -> Vec<Arc<Lease>> {
        self.select(|seen| {
            let wanted = if seen.holder().is_empty() { may_delete } else { *seen.holder() != *own };
            wanted && seen.rots_at() <= now
        })
    }

    /// Names that no Lease seen has, lowest number first.
    pub(super) fn free_names(&self, count: usize) -> Vec<String> {
        let names = (0_u32..).map(|number| format!("{REPLICA_NAME_PREFIX}{number}"));
        names.filter(|name| !self.seen.contains_key(name.as_str())).take(count).collect()
    }

    fn select(&self, wanted: impl Fn(&Seen) -> bool) -> Vec<Arc<Lease>> {
        self.seen.values().filter(|seen| wanted(seen)).map(|seen| Arc::clone(&seen.lease)).collect()
    }
}

/// How long remains are left alone at most when they can't be removed at once.
pub(super) const TRY_AGAIN: Duration = Duration::from_secs(10);

//! Owners whose creates were refused because their namespace is terminating.
//!
//! Each Pod that ends queues its owner, which creates another Pod, and a terminating namespace refuses each create. For ReplicaSets,
//! ReplicationControllers, DaemonSets and Jobs, kube-controller-manager counts a refused create as one that its cache does not show yet, so it
//! sends no other for five minutes. Writes other than creates are sent. One of several API servers may still have the old namespace in its
//! cache after the namespace was created again, so the owner is reconciled at the end of the five minutes.
//! Differs: terminating-namespace.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::Key;
use crate::random::HashMap;
use crate::wire::Uid;

/// How long creates are withheld after one was refused: as long as an expectation of kube-controller-manager lasts.
const WITHHELD_FOR: Duration = Duration::from_mins(5);

/// The owners of one loop.
#[derive(Debug, Default)]
pub(super) struct TerminatingOwners(Mutex<Refusals>);

#[derive(Debug, Default)]
struct Refusals {
    of: HashMap<Key, Refusal>,
    /// The expiry of each refusal, in order, also of refusals that were removed or replaced.
    expiries: VecDeque<(Instant, Key)>,
}

/// A create that was refused.
#[derive(Debug)]
struct Refusal {
    owner: Uid,
    until: Instant,
}

impl TerminatingOwners {
    /// Returns how long creates for this owner are still withheld, if they are.
    pub(super) fn withheld_for(&self, key: &Key, owner: &Uid) -> Option<Duration> {
        let refusals = self.0.lock();
        let refusal = refusals.of.get(key).filter(|refusal| refusal.owner == *owner)?;
        refusal.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// Notes that a create for this owner was refused.
    pub(super) fn add(&self, key: &Key, owner: Uid) {
        let now = Instant::now();
        let until = now + WITHHELD_FOR;
        let mut refusals = self.0.lock();
        refusals.expire(now);
        refusals.expiries.push_back((until, key.clone()));
        refusals.of.insert(key.clone(), Refusal { owner, until });
    }

    /// Forgets a key whose object is gone.
    pub(super) fn remove(&self, key: &Key) {
        self.0.lock().of.remove(key);
    }

    /// Returns the number of refusals that are remembered, and of their expiries.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        let refusals = self.0.lock();
        (refusals.of.len(), refusals.expiries.len())
    }
}

impl Refusals {
    fn expire(&mut self, now: Instant) {
        while let Some((until, key)) = self.expiries.pop_front_if(|(until, _)| *until <= now) {
            if self.of.get(&key).is_some_and(|refusal| refusal.until == until) {
                self.of.remove(&key);
            }
        }
    }
}

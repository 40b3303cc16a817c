//! Consumers whose deletion a watch has shown. They need no live read: no object gets the UID of another one.

use std::collections::VecDeque;

use parking_lot::Mutex;

use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::Uid;

/// Consumers that are remembered at most. A consumer that was forgotten is read from the API server.
const MOST: usize = 10_000;

/// UIDs of deleted consumers, the newest [`MOST`] of them.
#[derive(Debug, Default)]
pub(super) struct Departed(Mutex<Uids>);

#[derive(Debug, Default)]
struct Uids {
    known: HashSet<Uid>,
    /// In the order of their deletion.
    order: VecDeque<Uid>,
}

impl Departed {
    /// Notes the deletion of a consumer.
    pub(super) fn add(&self, uid: &Uid) {
        let mut uids = self.0.lock();
        if !uids.known.insert(uid.clone()) {
            return;
        }
        uids.order.push_back(uid.clone());
        if uids.order.len() > MOST
            && let Some(oldest) = uids.order.pop_front()
        {
            uids.known.remove(&oldest);
        }
    }

    /// Forgets the deletion of a consumer that a watch shows again: etcd was restored from a backup.
    pub(super) fn remove(&self, uid: &Uid) {
        let mut uids = self.0.lock();
        if uids.known.remove(uid) {
            uids.order.retain(|held| held != uid);
        }
    }

    /// Returns whether the deletion of a consumer is remembered.
    pub(super) fn has(&self, uid: &Uid) -> bool {
        self.0.lock().known.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_deletions_are_forgotten() {
        let departed = Departed::default();
        let uid = |at: usize| Uid::from(at.to_string().as_str());
        for at in (0..MOST).chain([0, MOST]) {
            departed.add(&uid(at));
        }
        assert_eq!([0, 1, MOST].map(|at| departed.has(&uid(at))), [false, true, true]);
        departed.remove(&uid(1));
        assert!(!departed.has(&uid(1)));
        let uids = departed.0.lock();
        assert_eq!((uids.known.len(), uids.order.len()), (MOST - 1, MOST - 1));
    }
}

//! [`Deliveries`]: the time in which watches are known to have delivered.
//!
//! A cache that hears nothing cannot tell a quiet cluster from a broken view: the API server may be away, a connection may be
//! dead, the process may have stood still. Who judges others by their silence asks for the time that was *covered*: all of it but
//! the stretches, longer than a bound, in which none of the watches delivered anything, bookmarks included. What such a stretch
//! was is known only when it ends; until then it does not count either.
//!
//! A watch may also be late: it delivers, and what it delivers is old. Whoever writes objects of the kind tells of it, and what
//! does not show what was written a bound ago counts for nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Writes that are remembered until a watch shows them. They are told of every few seconds; what comes when there are as many is
/// left out, for it is the oldest by which a watch is late.
const WRITES: usize = 64;

/// When some watches delivered. Stores tell it (`Store::tell`).
#[derive(Debug)]
pub struct Deliveries {
    /// A longer stretch without a delivery does not count.
    bound: Duration,
    began: Instant,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// When something was delivered last, after the beginning.
    last: Duration,
    /// How much before that does not count.
    uncovered: Duration,
    /// Resource versions that we wrote and that no watch has shown, and when, oldest first.
    unseen: VecDeque<(u64, Duration)>,
}

/// What is known at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// The time that counts, since the beginning.
    pub time: Duration,
    /// For how long nothing new has been delivered, if that is too long to count.
    pub silent_for: Option<Duration>,
}

impl Deliveries {
    /// Of watches that deliver something at least this often while all is well.
    pub fn new(bound: Duration) -> Arc<Self> {
        Arc::new(Self { bound, began: Instant::now(), known: Mutex::default() })
    }

    /// Something was delivered, at this resource version. KEP-5504: they are comparable integers; where they are not, no watch is
    /// known to be late.
    pub(super) fn delivered(&self, resource_version: &str) {
        let now = self.began.elapsed();
        let mut known = self.known.lock();
        if let Ok(version) = resource_version.parse::<u64>() {
            while known.unseen.front().is_some_and(|(written, _)| *written <= version) {
                known.unseen.pop_front();
            }
        }
        if known.unseen.front().is_some_and(|(_, at)| now.saturating_sub(*at) > self.bound) {
            return;
        }
        let gap = now.saturating_sub(known.last);
        if gap > self.bound {
            known.uncovered += gap;
        }
        known.last = now;
    }

    /// Something was written at this resource version, which the watches are to deliver.
    pub(super) fn wrote(&self, version: u64) {
        let now = self.began.elapsed();
        let mut known = self.known.lock();
        // An API server that is restored from a backup counts from there again: what was written before is never shown.
        if known.unseen.back().is_some_and(|(last, _)| *last > version) {
            known.unseen.clear();
        }
        if known.unseen.len() < WRITES {
            known.unseen.push_back((version, now));
        }
    }

    /// What is known now.
    pub fn covered(&self) -> Covered {
        let now = self.began.elapsed();
        let known = self.known.lock();
        let gap = now.saturating_sub(known.last);
        let silent_for = (gap > self.bound).then_some(gap);
        let uncovered = known.uncovered + silent_for.unwrap_or_default();
        Covered { time: now.saturating_sub(uncovered), silent_for }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kinds::NODES;
    use crate::informer::Store;

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_covered_by_deliveries_does_not_count() {
        let deliveries = Deliveries::new(Duration::from_secs(10));
        let covered = |seconds, silent_for: Option<u64>| Covered {
            time: Duration::from_secs(seconds),
            silent_for: silent_for.map(Duration::from_secs),
        };
        pass(9).await;
        assert_eq!(deliveries.covered(), covered(9, None), "it may still come");
        pass(2).await;
        assert_eq!(deliveries.covered(), covered(0, Some(11)));
        pass(600).await;
        assert_eq!(deliveries.covered(), covered(0, Some(611)));
        deliveries.delivered("");
        assert_eq!(deliveries.covered(), covered(0, None), "it is over, and does not count");
        for _ in 0..5 {
            pass(10).await;
            deliveries.delivered("");
        }
        assert_eq!(deliveries.covered(), covered(50, None), "all of it was covered");
        pass(11).await;
        deliveries.delivered("");
        pass(3).await;
        assert_eq!(deliveries.covered(), covered(53, None));
    }

    /// Something is written every other second, and the watch shows it a minute later.
    #[tokio::test(start_paused = true)]
    async fn what_is_delivered_late_does_not_count() {
        let store = Store::new(&NODES);
        let deliveries = Deliveries::new(Duration::from_secs(10));
        store.tell(&deliveries);
        let shows = |version: u64| store.bookmark(&version.to_string());
        for version in 1..100 {
            store.wrote(version);
            shows(version.saturating_sub(30));
            pass(2).await;
        }
        let Covered { time, silent_for } = deliveries.covered();
        assert!(time <= Duration::from_secs(12), "{time:?}");
        assert!(silent_for.is_some_and(|silent| silent > Duration::from_mins(3)), "{silent_for:?}");
        // It catches up, and from then on shows everything after four seconds.
        shows(99);
        let before = deliveries.covered();
        assert_eq!(before.silent_for, None);
        for version in 100..130 {
            store.wrote(version);
            pass(2).await;
            shows(version - 2);
        }
        assert_eq!(deliveries.covered().time, before.time + Duration::from_mins(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_restored_is_not_late_for_ever() {
        let deliveries = Deliveries::new(Duration::from_secs(10));
        deliveries.wrote(1000);
        for version in 7..17 {
            deliveries.wrote(version);
            deliveries.delivered(&version.to_string());
            pass(9).await;
        }
        assert_eq!(deliveries.covered().time, Duration::from_secs(90));
    }

    #[tokio::test(start_paused = true)]
    async fn where_versions_are_no_numbers_nobody_is_late() {
        let deliveries = Deliveries::new(Duration::from_secs(10));
        for _ in 0..10 {
            deliveries.delivered("abc");
            pass(9).await;
        }
        assert_eq!(deliveries.covered().time, Duration::from_secs(90));
    }

    #[tokio::test(start_paused = true)]
    async fn any_of_its_stores_tells_it_also_of_bookmarks() {
        let deliveries = Deliveries::new(Duration::from_secs(10));
        let stores = [Store::new(&NODES), Store::new(&NODES)];
        for store in &stores {
            store.tell(&deliveries);
        }
        for at in 0..6 {
            pass(8).await;
            stores[at % 2].bookmark("7");
        }
        assert_eq!(deliveries.covered().time, Duration::from_secs(48));
        drop(deliveries);
        stores[0].bookmark("8");
    }
}

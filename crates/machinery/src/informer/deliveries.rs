//! [`Deliveries`]: the time in which watches are known to have delivered.
//!
//! A cache that hears nothing cannot tell a quiet cluster from a broken view: the API server may be away, a connection may be
//! dead, the process may have stood still. Who judges others by their silence asks for the time that was *covered*: all of it but
//! the stretches, longer than a bound, in which none of the watches delivered anything, bookmarks included. What such a stretch
//! was is known only when it ends; until then it does not count either.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// When some watches delivered. Stores tell it (`Store::tell`).
#[derive(Debug)]
pub struct Deliveries {
    /// A longer stretch without a delivery does not count.
    bound: Duration,
    began: Instant,
    known: Mutex<Known>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// When something was delivered last, after the beginning.
    last: Duration,
    /// How much before that does not count.
    uncovered: Duration,
}

/// What is known at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// The time that counts, since the beginning.
    pub time: Duration,
    /// For how long nothing has been delivered, if that is too long to count.
    pub silent_for: Option<Duration>,
}

impl Deliveries {
    /// Of watches that deliver something at least this often while all is well.
    pub fn new(bound: Duration) -> Arc<Self> {
        Arc::new(Self { bound, began: Instant::now(), known: Mutex::default() })
    }

    /// Something was delivered.
    pub(super) fn delivered(&self) {
        let now = self.began.elapsed();
        let mut known = self.known.lock();
        let gap = now.saturating_sub(known.last);
        if gap > self.bound {
            known.uncovered += gap;
        }
        known.last = now;
    }

    /// What is known now.
    pub fn covered(&self) -> Covered {
        let (now, known) = (self.began.elapsed(), *self.known.lock());
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
        deliveries.delivered();
        assert_eq!(deliveries.covered(), covered(0, None), "it is over, and does not count");
        for _ in 0..5 {
            pass(10).await;
            deliveries.delivered();
        }
        assert_eq!(deliveries.covered(), covered(50, None), "all of it was covered");
        pass(11).await;
        deliveries.delivered();
        pass(3).await;
        assert_eq!(deliveries.covered(), covered(53, None));
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

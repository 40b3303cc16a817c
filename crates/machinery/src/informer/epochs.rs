//! [`Epochs`]: the times between two restores of etcd from a backup.
//!
//! A restore takes the API server back to an older state: resource versions are lower than before, objects that were created since
//! the backup are gone, and objects that were deleted since then exist again. Everything that the process has learned from the API
//! server is of the epoch before. Whoever keeps such knowledge holds the [`Epoch`] in which it was learned.
//!
//! # What ends an epoch
//! The answer to a consistent read has a lower resource version than an answer that came before the read was sent (KEP-5504: resource
//! versions are comparable integers). Consistent reads are those without a resource version: the API server answers them from etcd, or
//! from a cache that is as new as etcd. Therefore an API server that lags behind the others ends no epoch.
//!
//! A second read, [`CONFIRM_AFTER`] later, must confirm the lower version: a backend that lags has caught up by then, and a restored one has
//! not. Members of etcd that have diverged confirm it again and again, so an epoch lasts [`SHORTEST_EPOCH`] at least.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus::IntCounter;
use tokio::time::Instant;

use crate::latest;
use crate::telemetry::Registry;

/// Time between a read with a lower version and the read that confirms it.
pub const CONFIRM_AFTER: Duration = Duration::from_secs(1);

/// Time from one restore to the next that is acted on. The first epoch may end at any time.
const SHORTEST_EPOCH: Duration = Duration::from_mins(5);

/// Counts epochs. A process has one counter.
#[derive(Debug)]
pub struct Epochs {
    present: latest::Sender<Present>,
    restores: IntCounter,
}

#[derive(Clone, Debug, Default)]
struct Present {
    number: u64,
    /// When it began; `None` for the first.
    since: Option<Instant>,
}

/// One epoch. The default is an epoch that never ends.
#[derive(Clone, Debug, Default)]
pub struct Epoch {
    number: u64,
    epochs: Option<Arc<Epochs>>,
}

impl Epochs {
    /// Begins the first epoch and registers its metric.
    ///
    /// # Errors
    /// The metric is registered already.
    pub fn register(registry: &Registry) -> Result<Arc<Self>, prometheus::Error> {
        let restores = IntCounter::new(
            "coxswain_etcd_restores_total",
            "Restores of etcd, detected by resource versions that decreased.",
        )?;
        registry.register(Box::new(restores.clone()))?;
        Ok(Arc::new(Self { present: latest::Sender::default(), restores }))
    }

    /// Returns the present epoch.
    pub fn present(self: &Arc<Self>) -> Epoch {
        Epoch { number: self.present.borrow().number, epochs: Some(Arc::clone(self)) }
    }
}

impl Epoch {
    /// Returns the number of epochs before this one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether a later epoch has begun.
    pub fn is_over(&self) -> bool {
        self.epochs.as_ref().is_some_and(|epochs| epochs.present.borrow().number != self.number)
    }

    /// Returns when a later epoch has begun.
    pub async fn over(self) {
        let Some(epochs) = &self.epochs else { return std::future::pending().await };
        // The sender lives as long as `epochs`.
        let _present = epochs.present.subscribe().wait_for(|present| present.number != self.number).await;
    }

    /// Returns the present epoch.
    #[must_use]
    pub fn present(&self) -> Self {
        self.epochs.as_ref().map_or_else(|| self.clone(), Epochs::present)
    }

    /// Returns whether `after`, the version of a consistent read, is lower than `before`, a version that was known in this epoch when the
    /// read was sent. The caller reads again after [`CONFIRM_AFTER`], and calls [`Epoch::compare`] with the version of that read. An
    /// answer without a version counts for nothing, and neither does one after the end of the epoch: one restore is noticed by many.
    pub fn suspects(&self, before: u64, after: u64) -> bool {
        self.epochs.is_some() && 0 < after && after < before && !self.is_over()
    }

    /// Ends this epoch if `after`, the version of the confirming read of `what`, is lower than `before` as well, and returns the new epoch.
    /// Does not end an epoch that has just begun: building everything again and again would cost more than it mends.
    pub fn compare(&self, what: &dyn fmt::Display, before: u64, after: u64) -> Option<Self> {
        let epochs = self.epochs.as_ref().filter(|_| self.suspects(before, after))?;
        let mut is_too_early = false;
        let has_ended = epochs.present.send_if_modified(|present| {
            if present.number != self.number {
                return false;
            }
            is_too_early = present.since.is_some_and(|since| since.elapsed() < SHORTEST_EPOCH);
            if !is_too_early {
                *present = Present { number: self.number + 1, since: Some(Instant::now()) };
            }
            !is_too_early
        });
        if is_too_early {
            epochs.restores.inc();
            tracing::error!(
                object = %what, before, after, within = ?SHORTEST_EPOCH,
                "Ignored another restore of etcd shortly after the previous one; restart the API servers one after another, then all replicas of \
                 Coxswain, and check that all members of etcd have the same data"
            );
        }
        if !has_ended {
            return None;
        }
        epochs.restores.inc();
        tracing::warn!(
            object = %what, before, after,
            "Resource versions decreased, so etcd was restored; dropping the caches and the in-memory state of the controllers"
        );
        Some(Self { number: self.number + 1, epochs: Some(Arc::clone(epochs)) })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn epoch_ends_once_and_only_when_versions_go_back() {
        let epochs = Epochs::register(&Registry::new()).unwrap();
        let first = epochs.present();
        for after in [0, 7, 8] {
            assert!(!first.suspects(7, after));
            assert!(first.compare(&"pods", 7, after).is_none());
        }
        assert_eq!((first.is_over(), first.clone().over().now_or_never()), (false, None));
        let second = first.compare(&"pods", 7, 6).unwrap();
        assert_eq!((first.is_over(), first.clone().over().now_or_never()), (true, Some(())));
        assert_eq!((second.number(), epochs.present().number(), first.present().number()), (1, 1, 1));
        assert!(first.compare(&"nodes", 7, 5).is_none(), "the same restore");
        assert!(!second.is_over());
        assert_eq!((epochs.present().number(), epochs.restores.get()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn further_restore_ends_an_epoch_only_after_five_minutes() {
        let epochs = Epochs::register(&Registry::new()).unwrap();
        let second = epochs.present().compare(&"pods", 7, 6).unwrap();
        for _ in 0..2 {
            advance((SHORTEST_EPOCH / 2).saturating_sub(Duration::from_secs(1))).await;
            assert!(second.suspects(9, 3));
            assert!(second.compare(&"pods", 9, 3).is_none(), "too early");
        }
        assert_eq!((second.is_over(), epochs.present().number(), epochs.restores.get()), (false, 1, 3));
        advance(Duration::from_secs(2)).await;
        assert!(second.compare(&"pods", 9, 3).is_some(), "another restore");
        assert_eq!((epochs.present().number(), epochs.restores.get()), (2, 4));
    }

    #[test]
    fn default_epoch_never_ends() {
        let epoch = Epoch::default();
        assert!(epoch.compare(&"pods", 7, 6).is_none());
        assert_eq!((epoch.is_over(), epoch.over().now_or_never()), (false, None));
    }
}

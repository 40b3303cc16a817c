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

use std::fmt;
use std::sync::Arc;

use prometheus::IntCounter;

use crate::latest;
use crate::telemetry::Registry;

/// Counts epochs. A process has one counter.
#[derive(Debug)]
pub struct Epochs {
    number: latest::Sender<u64>,
    restores: IntCounter,
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
            "Restores of etcd that were noticed because resource versions went back.",
        )?;
        registry.register(Box::new(restores.clone()))?;
        Ok(Arc::new(Self { number: latest::Sender::default(), restores }))
    }

    /// Returns the present epoch.
    pub fn present(self: &Arc<Self>) -> Epoch {
        Epoch { number: *self.number.borrow(), epochs: Some(Arc::clone(self)) }
    }
}

impl Epoch {
    /// Returns the number of epochs before this one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether a later epoch has begun.
    pub fn is_over(&self) -> bool {
        self.epochs.as_ref().is_some_and(|epochs| *epochs.number.borrow() != self.number)
    }

    /// Returns when a later epoch has begun.
    pub async fn over(self) {
        let Some(epochs) = &self.epochs else { return std::future::pending().await };
        // The sender lives as long as `epochs`.
        let _number = epochs.number.subscribe().wait_for(|number| *number != self.number).await;
    }

    /// Returns the present epoch.
    #[must_use]
    pub fn present(&self) -> Self {
        self.epochs.as_ref().map_or_else(|| self.clone(), Epochs::present)
    }

    /// Ends this epoch if `after`, the version of a consistent read of `what`, is lower than `before`, a version of it that was known in
    /// this epoch when the read was sent. Returns the new epoch. Returns `None` if the versions did not go back or the epoch is over already:
    /// one restore is noticed by many.
    pub fn compare(&self, what: &dyn fmt::Display, before: u64, after: u64) -> Option<Self> {
        let epochs = self.epochs.as_ref().filter(|_| after < before)?;
        let has_ended = epochs.number.send_if_modified(|number| {
            let is_present = *number == self.number;
            *number += u64::from(is_present);
            is_present
        });
        if !has_ended {
            return None;
        }
        epochs.restores.inc();
        tracing::warn!(
            object = %what, before, after,
            "Resource versions went back: etcd was restored; caches and memories are dropped"
        );
        Some(Self { number: self.number + 1, epochs: Some(Arc::clone(epochs)) })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn epoch_ends_once_and_only_when_versions_go_back() {
        let epochs = Epochs::register(&Registry::new()).unwrap();
        let first = epochs.present();
        for after in [7, 8] {
            assert!(first.compare(&"pods", 7, after).is_none());
        }
        assert_eq!((first.is_over(), first.clone().over().now_or_never()), (false, None));
        let second = first.compare(&"pods", 7, 6).unwrap();
        assert_eq!((first.is_over(), first.clone().over().now_or_never()), (true, Some(())));
        assert_eq!((second.number(), epochs.present().number(), first.present().number()), (1, 1, 1));
        assert!(first.compare(&"nodes", 7, 5).is_none(), "the same restore");
        assert!(!second.is_over());
        assert!(second.compare(&"pods", 9, 3).is_some(), "another restore");
        assert_eq!((epochs.present().number(), epochs.restores.get()), (2, 2));
    }

    #[test]
    fn default_epoch_never_ends() {
        let epoch = Epoch::default();
        assert!(epoch.compare(&"pods", 7, 6).is_none());
        assert_eq!((epoch.is_over(), epoch.over().now_or_never()), (false, None));
    }
}

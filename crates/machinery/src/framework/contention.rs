//! Objects that change faster than their watch shows.
//!
//! A write that names the version that was judged is refused if the object has changed since. With a late watch the cached version of an
//! object that some client updates all the time is never the present one, so each write would be refused. After some conflicts in a row
//! the controller judges the live object instead.

use std::sync::Arc;

use super::reads::{LiveRead, Observation, Read, Reads};
use super::room::ObserveError;
use super::worker::Outcome;
use crate::api::{Kind, Object};
use crate::informer::downcast;
use crate::model::Key;
use crate::model::plan::Failure;

/// Conflicts in a row after which the cache is taken for too late to write by.
pub(super) const CONTENDED: u32 = 3;

/// Returns whether a reconcile counts as one more conflict in a row: a write met a conflict, tolerated (`is_outdated`) or not, and the key
/// is reconciled again.
pub(super) fn is_met(is_outdated: bool, failures: &[Failure], outcome: &Outcome) -> bool {
    let is_over = matches!(outcome, Outcome::Absent | Outcome::Done { requeue_after: None, .. });
    !is_over && (is_outdated || failures.iter().any(Failure::is_conflict))
}

impl Reads {
    /// Returns the object to judge and to write by: the cached one, or the live one if each of the key's last reconciles met a
    /// conflict. It is [`Observation::Nothing`] if the live object has another UID or does not exist: the watch reports that.
    ///
    /// # Errors
    /// The live read failed.
    pub fn current<T: Object>(
        &self,
        row: &'static LiveRead,
        kind: &'static Kind,
        cached: Arc<T>,
    ) -> Result<Observation<Arc<T>>, ObserveError> {
        if self.is_contended { self.live(row, kind, &cached) } else { Ok(Observation::View(cached)) }
    }

    /// Returns the live object in place of the cached one, after a write by the cached one met a conflict. It is
    /// [`Observation::Nothing`] if the live object has another UID or does not exist: the watch reports that.
    ///
    /// # Errors
    /// The live read failed.
    pub fn live<T: Object>(
        &self,
        row: &'static LiveRead,
        kind: &'static Kind,
        cached: &Arc<T>,
    ) -> Result<Observation<Arc<T>>, ObserveError> {
        let key = Key::of(cached.meta());
        match self.object(kind, &key) {
            None => Ok(Observation::Needs(vec![row.of(Read::Object(kind, key))])),
            Some(Ok(live)) => {
                let live = live.cloned().and_then(downcast::<T>);
                Ok(live.filter(|live| live.meta().uid == cached.meta().uid).into())
            }
            Some(Err(error)) => Err(ObserveError::Retry(format!("read {kind} {key}: {error}"))),
        }
    }

    /// Whether each of the key's last reconciles met a conflict.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.is_contended
    }

    pub(super) fn contended_if(mut self, is_contended: bool) -> Self {
        self.is_contended = is_contended;
        self
    }

    /// As they are after several conflicts in a row: for tests of rooms.
    #[must_use]
    pub fn contended(self) -> Self {
        self.contended_if(true)
    }
}

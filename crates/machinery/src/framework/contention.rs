//! Objects that change faster than their watch shows.
//!
//! A write that names the version that was judged is refused if the object has changed since. With a late watch the cached version of an
//! object that some client updates all the time is never the present one, so each write would be refused. After some conflicts in a row
//! the controller judges the live object instead.

use std::sync::Arc;

use parking_lot::Mutex;

use super::reads::{LiveRead, Observation, Read, Reads};
use super::room::ObserveError;
use super::worker::Outcome;
use crate::api::{Kind, Object};
use crate::informer::downcast;
use crate::model::Key;
use crate::model::plan::Failure;
use crate::random::HashMap;

/// Conflicts in a row after which the cache is taken for too late to write by.
const CONTENDED: u32 = 3;

/// Numbers of reconciles in a row that met a conflict, by key. A key without a conflict in its last reconcile has none.
#[derive(Debug, Default)]
pub(super) struct Contentions(Mutex<HashMap<Key, u32>>);

impl Contentions {
    /// Notes how a reconcile of the key has ended: whether a write met a conflict that is tolerated, and what failed. A key that is not
    /// reconciled again is forgotten, because no later reconcile would remove it.
    pub(super) fn note(&self, key: &Key, is_outdated: bool, failures: &[Failure], outcome: &Outcome) {
        let is_over = matches!(outcome, Outcome::Absent | Outcome::Done { requeue_after: None, .. });
        let mut keys = self.0.lock();
        if !is_over && (is_outdated || failures.iter().any(|failure| failure.reason == "Conflict")) {
            let conflicts = keys.entry(key.clone()).or_default();
            *conflicts = conflicts.saturating_add(1);
        } else {
            keys.remove(key);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Returns whether each of the last reconciles of the key has met a conflict.
    pub(super) fn is_contended(&self, key: &Key) -> bool {
        self.0.lock().get(key).is_some_and(|conflicts| *conflicts >= CONTENDED)
    }
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
        if !self.is_contended {
            return Ok(Observation::View(cached));
        }
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

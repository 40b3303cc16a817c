//! Whether the writes of a plan changed anything, and how a reconcile of which nothing came is kept from repeating at once.
//!
//! A plan that asks for another pass without delay relies on its writes: the next pass finds what they changed. A write that
//! changes nothing (a tolerated refusal, a patch that a webhook undoes) leads to the same plan again, without end. Therefore
//! such a request is delayed by a backoff that only progress resets ([`WorkQueue::hold_off`](crate::queue::WorkQueue::hold_off)).
//!
//! The same holds within a reconcile that observes and plans several times: a plan that repeats a write of the plans before it ends the
//! reconcile, and the key is retried with backoff ([`SentWrites`]).

use std::time::Duration;

use super::caches::Caches;
use crate::api::Kind;
use crate::executor::{Effect, WriteEffect};
use crate::model::Key;
use crate::model::plan::{Plan, Verb, Write};
use crate::random::HashMap;
use crate::wire::Str;

/// The writes that succeeded in the earlier plans of one reconcile, by object.
#[derive(Default)]
pub(super) struct SentWrites(HashMap<(&'static Kind, Key), Vec<Write>>);

impl SentWrites {
    /// Returns the writes of a plan that a later plan must not repeat: all but deletes.
    pub(super) fn repeatable(plan: &Plan) -> Vec<Write> {
        let is_delete =
            |write: &&Write| matches!(write.verb, Verb::Delete { .. } | Verb::DeleteCollection { .. });
        plan.writes().filter(|write| !is_delete(write)).cloned().collect()
    }

    /// Adds the writes of a plan, all of which succeeded.
    pub(super) fn add(&mut self, writes: Vec<Write>) {
        for write in writes {
            self.0.entry((write.kind, write.key.clone())).or_default().push(write);
        }
    }

    /// Returns a write of `plan` that has succeeded before. The plan repeats the write because its answer does not show its effect: an
    /// admission webhook has changed the object, and would change it each time.
    pub(super) fn repeated<'a>(&self, plan: &'a Plan) -> Option<&'a Write> {
        // The inner list has the earlier writes of one object, or the creates of a kind with generated names, such as one pod's claims.
        plan.writes().find(|write| {
            let earlier = self.0.get(&(write.kind, write.key.clone()));
            earlier.is_some_and(|earlier| earlier.iter().any(|earlier| write.repeats(earlier)))
        })
    }
}

/// A key may be requeued after this long as often as its plans ask for it. Shorter delays need progress.
pub(super) const SHORTEST_POLL: Duration = Duration::from_millis(100);

/// The cached state of the objects that a plan is about to update, patch or delete; `None` of those that are not cached.
pub(super) struct Before(HashMap<(&'static Kind, Key), Option<Cached>>);

struct Cached {
    resource_version: Str,
    /// The object is being deleted, and the plan deletes it in the same way again.
    is_deleted_again: bool,
}

impl Before {
    /// Reads the caches for the objects that `plan` updates, patches or deletes. Must precede the writes: afterwards the caches
    /// may hold their results.
    pub(super) fn of(plan: &Plan, caches: &Caches) -> Self {
        let is_create =
            |write: &&Write| matches!(write.verb, Verb::Create(_)) && write.subresource.is_empty();
        let cached = |write: &Write| {
            let cached = caches.get(write.kind, &write.key).map(|object| {
                let meta = object.meta();
                let is_meant = match &write.verb {
                    Verb::Delete { uid, .. } => uid.is_empty() || meta.uid == *uid,
                    _ => false,
                };
                let is_deleted_again = meta.is_deleting() && is_meant;
                Cached { resource_version: meta.resource_version.clone(), is_deleted_again }
            });
            ((write.kind, write.key.clone()), cached)
        };
        Self(plan.writes().filter(|write| !is_create(write)).map(cached).collect())
    }

    /// Whether one of these effects has certainly changed an object. Without an object in the cache to compare with, only a creation
    /// is certain.
    pub(super) fn is_changed_by(&self, effects: &[Effect]) -> bool {
        effects.iter().any(|effect| {
            match (&effect.change, self.0.get(&(effect.kind, effect.key.clone()))) {
                (WriteEffect::Stored(version), Some(Some(cached))) => cached.resource_version != *version,
                // It is none of those that were updated or patched.
                (WriteEffect::Stored(_), None) | (WriteEffect::Released(..), _) => true,
                (WriteEffect::Deleted(_), Some(Some(cached))) => !cached.is_deleted_again,
                _ => false,
            }
        })
    }
}

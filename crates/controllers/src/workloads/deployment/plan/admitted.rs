//! A ReplicaSet whose template was changed by admission when it was created.
//!
//! Its template is not the Deployment's, so kube-controller-manager creates another one, and another one after that, without end.
//! Here it counts as the ReplicaSet of the template from which it was created. Three facts show that:
//!
//! - Its hash label is the hash of the Deployment's template, so it was created from that template.
//! - The label is not the hash of its own template. (If it is, two templates have the same hash, which is a collision.)
//! - Its template is as it was when it was created: its generation is 1, or an annotation holds the hash of the admitted template. The
//!   annotation is set before anything else of it changes. A template that a user edits later therefore does not count, and
//!   the Deployment rolls out its own again.
//!
//! Admission may change a template again with each update. Then none of these ReplicaSets counts, and after three of them the next
//! one is created ten minutes later, and each further one after twice the time.

use std::iter;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::annotations::ADMITTED_TEMPLATE;
use super::error::Unplannable;
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::model::template::{HASH_LABEL, Template};

/// Collisions back to which names are tried.
const MOST_COLLISIONS: usize = 8;
/// ReplicaSets of one template that admission may change before no further one is created.
const MOST_CHANGED: usize = 3;
/// Pause before a fourth such ReplicaSet is created. The pause doubles with each further one.
const NEXT_NAME: SignedDuration = SignedDuration::from_mins(10);
/// Maximum number of doublings. It follows from the number of names that are checked.
const MOST_DOUBLED: usize = 1 + MOST_COLLISIONS - MOST_CHANGED;

/// The hashes by which the Deployment's template was named, the last one first.
pub(super) struct Names(Vec<(Option<i32>, String)>);

impl Names {
    pub(super) fn of(template: &Template, collisions: Option<i32>) -> Self {
        let counts =
            (1..=collisions.unwrap_or(0)).rev().map(Some).take(MOST_COLLISIONS).chain(iter::once(None));
        Self(counts.map(|count| (count, template.hash(count))).collect())
    }

    /// The template of `set`, if `set` was named after the Deployment's and has another one.
    fn changed(&self, set: &ReplicaSet) -> Result<Option<Template>, Unplannable> {
        let Some(label) = set.metadata.labels.get(HASH_LABEL) else { return Ok(None) };
        let Some((count, _)) = self.0.iter().find(|(_, hash)| *hash == **label) else { return Ok(None) };
        let own = Template::new(&set.spec.template)?;
        Ok((own.hash(*count) != **label).then_some(own))
    }

    /// Whether no further name is to be tried now: [`MOST_CHANGED`] ReplicaSets of `owner` were named after the template and have
    /// another one, and the last of them was created not long enough ago. Later one more is tried, because admission
    /// may have changed.
    pub(super) fn are_exhausted(
        &self,
        owner: &ObjectMeta,
        sets: &[Arc<ReplicaSet>],
        now: Timestamp,
    ) -> Result<bool, Unplannable> {
        let mut changed: usize = 0;
        let mut last = Timestamp::MIN;
        for set in sets.iter().filter(|set| set.metadata.is_controlled_by(owner)) {
            if self.changed(set)?.is_some() {
                changed += 1;
                last = last.max(set.metadata.creation_timestamp.map_or(now, Timestamp::from));
            }
        }
        Ok(changed.checked_sub(MOST_CHANGED).is_some_and(|more| now.duration_since(last) < pause(more)))
    }
}

/// Returns whether `existing`, which has the Deployment's template and no owner, seems to have been created for it a short time ago: an
/// admission webhook removes owner and labels. The next name would be taken in the same way. After ten minutes it is tried, because
/// admission may have changed.
pub(super) fn is_disowned(
    template: &Template,
    collisions: Option<i32>,
    existing: &ReplicaSet,
    now: Timestamp,
) -> Result<bool, Unplannable> {
    let created = existing.metadata.creation_timestamp.map_or(now, Timestamp::from);
    let tried = usize::try_from(collisions.unwrap_or(0)).unwrap_or(0);
    Ok(tried >= MOST_CHANGED
        && existing.metadata.controller().is_none()
        && now.duration_since(created) < NEXT_NAME
        && template.is_same_as(&existing.spec.template)?)
}

/// Returns the pause after the last ReplicaSet when `more` exist beyond [`MOST_CHANGED`].
fn pause(more: usize) -> SignedDuration {
    NEXT_NAME * (1_i32 << more.min(MOST_DOUBLED))
}

/// The hash of the admitted template, if `set` was created from the template of these names and changed by admission then.
pub(super) fn admitted_from(names: &Names, set: &ReplicaSet) -> Result<Option<String>, Unplannable> {
    let Some(own) = names.changed(set)? else { return Ok(None) };
    let hash = own.hash(None);
    let is_as_admitted = set.metadata.generation == 1
        || set.metadata.annotations.get(ADMITTED_TEMPLATE).is_some_and(|held| *held == hash);
    Ok(is_as_admitted.then_some(hash))
}

//! Pauses before the next name of a ReplicaSet is tried, if the last ReplicaSets did not stay as they were created.
//!
//! An admission webhook may change the template of each ReplicaSet again with each update, or remove its owner and labels. After three such
//! ReplicaSets the next one is created ten minutes later. If templates are changed, the pause doubles with each further ReplicaSet.

use jiff::{SignedDuration, Timestamp};

use super::admitted::{MOST_COLLISIONS, Names};
use super::bounds::deadline;
use super::conditions;
use super::draft::Draft;
use super::error::Unplannable;
use super::revisions::name;
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::random::HashSet;

/// ReplicaSets of one template that admission may change before no further one is created.
const MOST_CHANGED: usize = 3;
/// Pause before a fourth such ReplicaSet is created. The pause doubles with each further one.
const NEXT_NAME: SignedDuration = SignedDuration::from_mins(10);
/// Maximum number of doublings. It follows from the number of names that are checked.
const MOST_DOUBLED: usize = 1 + MOST_COLLISIONS - MOST_CHANGED;

/// Returns the pause after the last name was found taken by `existing`; `None` if the next name is tried at once. After the pause the next
/// name is tried, because admission may have changed.
pub(super) fn before_next_name(
    names: &Names,
    draft: &Draft<'_>,
    existing: &ReplicaSet,
) -> Result<Option<SignedDuration>, Unplannable> {
    let changed = after_changed(names, draft)?;
    Ok(changed.max(after_disowned(names, draft, existing)?).filter(SignedDuration::is_positive))
}

/// Returns the rest of the pause after [`MOST_CHANGED`] ReplicaSets that were named after the template and have another one.
fn after_changed(names: &Names, draft: &Draft<'_>) -> Result<Option<SignedDuration>, Unplannable> {
    let owner = &draft.view.deployment.metadata;
    let mut ages = Vec::new();
    for set in draft.view.replica_sets.iter().filter(|set| set.metadata.is_controlled_by(owner)) {
        if names.changed(set)?.is_some() {
            ages.push(age(&set.metadata, draft));
        }
    }
    let more = ages.len().checked_sub(MOST_CHANGED);
    Ok(more.zip(ages.into_iter().min()).map(|(more, youngest)| pause(more).saturating_sub(youngest)))
}

/// Returns the rest of the pause after `existing` if it and the last [`MOST_CHANGED`] ReplicaSets of the template have the template
/// and no owner: an admission webhook removes owner and labels, and would take the next name in the same way. A single such ReplicaSet may
/// be one that a user keeps for debugging.
fn after_disowned(
    names: &Names,
    draft: &Draft<'_>,
    existing: &ReplicaSet,
) -> Result<Option<SignedDuration>, Unplannable> {
    if existing.metadata.controller().is_some() || !draft.template.is_same_as(&existing.spec.template)? {
        return Ok(None);
    }
    let owner = &draft.view.deployment.metadata;
    let names: HashSet<String> = names.hashes().map(|hash| name(&owner.name, hash)).collect();
    let mut disowned = 0;
    for set in &draft.view.replica_sets {
        let is_named = names.contains(set.metadata.name.as_str());
        let is_another = set.metadata.name != existing.metadata.name;
        if is_named && is_another && set.metadata.controller().is_none() {
            disowned += usize::from(draft.template.is_same_as(&set.spec.template)?);
        }
    }
    Ok((disowned >= MOST_CHANGED).then(|| NEXT_NAME.saturating_sub(age(&existing.metadata, draft))))
}

/// Returns the time since a ReplicaSet was created. If its creation is in the future, the clock of this machine or of the API server is wrong.
/// Then the time counts from the update of the Deployment's condition about the taken name, which this machine has written. A Deployment
/// without a deadline has no such condition, and does not wait.
fn age(set: &ObjectMeta, draft: &Draft<'_>) -> SignedDuration {
    let created = set.creation_timestamp.map_or(draft.now, Timestamp::from);
    if created <= draft.now {
        return draft.now.duration_since(created);
    }
    if deadline(draft.spec()).is_none() {
        return SignedDuration::MAX;
    }
    let refused = conditions::get(&draft.view.deployment.status, conditions::PROGRESSING)
        .filter(|condition| condition.reason == conditions::CREATE_ERROR)
        .and_then(|condition| condition.last_update_time);
    draft.now.duration_since(refused.map_or(draft.now, Timestamp::from)).max(SignedDuration::ZERO)
}

/// Returns the pause after the last ReplicaSet when `more` exist beyond [`MOST_CHANGED`].
fn pause(more: usize) -> SignedDuration {
    NEXT_NAME * (1_i32 << more.min(MOST_DOUBLED))
}

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

use std::iter;

use super::annotations::ADMITTED_TEMPLATE;
use super::error::Unplannable;
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::model::template::{HASH_LABEL, Template};

/// Collisions back to which names are tried.
const MOST_COLLISIONS: usize = 8;

/// The hash of the admitted template, if `set` was created from `template` and changed by admission then.
pub(super) fn admitted_from(
    template: &Template,
    collisions: Option<i32>,
    set: &ReplicaSet,
) -> Result<Option<String>, Unplannable> {
    let Some(label) = set.metadata.labels.get(HASH_LABEL) else { return Ok(None) };
    let counts = (1..=collisions.unwrap_or(0)).rev().map(Some).take(MOST_COLLISIONS).chain(iter::once(None));
    let Some(count) = counts.into_iter().find(|count| template.hash(*count) == **label) else {
        return Ok(None);
    };
    let own = Template::new(&set.spec.template)?;
    let hash = own.hash(None);
    let is_as_admitted = set.metadata.generation == 1
        || set.metadata.annotations.get(ADMITTED_TEMPLATE).is_some_and(|held| *held == hash);
    Ok((own.hash(count) != **label && is_as_admitted).then_some(hash))
}

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
//! Admission may change a template again with each update. Then none of these ReplicaSets counts.
//! Differs: template-changed-by-admission.

use std::iter;

use super::annotations::ADMITTED_TEMPLATE;
use super::error::Unplannable;
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::model::template::{HASH_LABEL, Template};

/// Collisions back to which names are tried.
pub(super) const MOST_COLLISIONS: usize = 8;

/// The hashes by which the Deployment's template was named, the last one first.
pub(super) struct Names(Vec<(Option<i32>, String)>);

impl Names {
    pub(super) fn of(template: &Template, collisions: Option<i32>) -> Self {
        let counts =
            (1..=collisions.unwrap_or(0)).rev().map(Some).take(MOST_COLLISIONS).chain(iter::once(None));
        Self(counts.map(|count| (count, template.hash(count))).collect())
    }

    /// The template of `set`, if `set` was named after the Deployment's and has another one.
    pub(super) fn changed(&self, set: &ReplicaSet) -> Result<Option<Template>, Unplannable> {
        let Some(label) = set.metadata.labels.get(HASH_LABEL) else { return Ok(None) };
        let Some((count, _)) = self.0.iter().find(|(_, hash)| *hash == **label) else { return Ok(None) };
        let own = Template::new(&set.spec.template)?;
        Ok((own.hash(*count) != **label).then_some(own))
    }

    /// The hashes, the last one first.
    pub(super) fn hashes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, hash)| hash.as_str())
    }
}

/// The hash of the admitted template, if `set` was created from the template of these names and changed by admission then.
pub(super) fn admitted_from(names: &Names, set: &ReplicaSet) -> Result<Option<String>, Unplannable> {
    let Some(own) = names.changed(set)? else { return Ok(None) };
    let hash = own.hash(None);
    let is_as_admitted = set.metadata.generation == 1
        || set.metadata.annotations.get(ADMITTED_TEMPLATE).is_some_and(|held| *held == hash);
    Ok(is_as_admitted.then_some(hash))
}

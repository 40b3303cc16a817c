//! One ReplicaSet of a plan in the making: as it is, and as it is to be. Decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::annotations::REVISION;
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::wire::Str;

/// A ReplicaSet of the Deployment, as it is and as it is to be.
pub(super) struct Member {
    /// As it is. One that is to be created has a name and nothing else.
    pub(super) object: Arc<ReplicaSet>,
    /// Pods that it is to have.
    pub(super) replicas: i32,
    /// Annotations that are to change.
    annotations: BTreeMap<&'static str, String>,
    /// Annotations that come from the Deployment.
    inherited: BTreeMap<String, String>,
    /// `minReadySeconds` that it is to have, if another one.
    pub(super) min_ready_seconds: Option<i32>,
    /// Whether it is to be created.
    pub(super) is_new: bool,
    /// Whether it is to be deleted.
    pub(super) is_deleted: bool,
}

impl Member {
    /// One that is there.
    pub(super) fn existing(object: &Arc<ReplicaSet>) -> Self {
        Self {
            replicas: size(object),
            object: Arc::clone(object),
            annotations: BTreeMap::new(),
            inherited: BTreeMap::new(),
            min_ready_seconds: None,
            is_new: false,
            is_deleted: false,
        }
    }

    /// One that is to be created.
    pub(super) fn new(object: &Arc<ReplicaSet>) -> Self {
        Self { is_new: true, ..Self::existing(object) }
    }

    /// Whether it is to have pods.
    pub(super) fn is_active(&self) -> bool {
        self.replicas > 0
    }

    pub(super) fn name(&self) -> &str {
        &self.object.metadata.name
    }

    /// Available pods that stay when it shrinks to the size it is to have: the ReplicaSet takes those away first that are
    /// not available. Its status may still count pods that an earlier shrinking took.
    pub(super) fn available(&self) -> i32 {
        self.object.status.available_replicas.clamp(0, self.replicas)
    }

    /// Whether its status speaks of its present size.
    pub(super) fn is_observed(&self) -> bool {
        self.object.status.observed_generation >= self.object.metadata.generation
    }

    /// The annotation as it is to be.
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        let changed = self.annotations.get(key).or_else(|| self.inherited.get(key)).map(String::as_str);
        changed.or_else(|| self.object.metadata.annotations.get(key).map(Str::as_str))
    }

    /// Its revision: 0 if it has none, `None` if what it has is not a number.
    pub(super) fn revision(&self) -> Option<i64> {
        match self.annotation(REVISION) {
            None | Some("") => Some(0),
            Some(text) => text.parse().ok(),
        }
    }

    /// Sets an annotation of the controller's own.
    pub(super) fn annotate(&mut self, key: &'static str, value: String) {
        if self.annotation(key) != Some(&value) {
            self.annotations.insert(key, value);
        }
    }

    /// Sets an annotation that the Deployment has.
    pub(super) fn inherit(&mut self, key: &str, value: &str) {
        if self.annotation(key) != Some(value) {
            self.inherited.insert(key.to_owned(), value.to_owned());
        }
    }

    /// All annotations that are to change.
    pub(super) fn changed_annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.annotations.iter().map(|(key, value)| (*key, value.as_str()));
        own.chain(self.inherited.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    /// Whether it is to differ from what it is.
    pub(super) fn is_changed(&self) -> bool {
        self.replicas != size(&self.object)
            || self.min_ready_seconds.is_some()
            || self.changed_annotations().next().is_some()
    }
}

/// Pods asked for. (The server fills in 1 where it is left out.)
pub(super) fn size(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1).max(0)
}

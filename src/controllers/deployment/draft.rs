//! The state that a plan works towards: sizes and annotations of ReplicaSets, the Deployment's revision and conditions.
//!
//! The decisions change a [`Draft`] one after the other, each seeing what the ones before it decided; in the end
//! [`Draft::steps`] makes of it one write per object that differs. Decides nothing itself. Pure.

use std::cmp::Ordering;
use std::sync::Arc;

use super::KIND;
use super::fenceposts::Fenceposts;
use super::view::View;
use crate::api::apps::{DeploymentCondition, ReplicaSet};
use crate::api::kinds::REPLICA_SETS;
use crate::model::plan::{EventSpec, Regarding, Tolerate, Verb};
use crate::model::revisions::{self, DESIRED_REPLICAS, MAX_REPLICAS};
use crate::model::{Key, Step, Write};
use crate::wire::splice::{Edit, edit};
use crate::wire::{Labels, Str, WireError};

/// A ReplicaSet as it is to be. All counts are 64 bits wide: sums of what the API allows must not overflow.
#[derive(Clone, Debug)]
pub(super) struct Set {
    /// As it was observed; one that is yet to be made has no UID.
    pub(super) object: Arc<ReplicaSet>,
    /// Whether it has the present template.
    pub(super) is_current: bool,
    pub(super) replicas: i64,
    pub(super) min_ready_seconds: i32,
    pub(super) annotations: Labels,
    /// The sizes that it went through, each different from the one before; the first is the observed one.
    sizes: Vec<i64>,
}

impl Set {
    pub(super) fn of(object: &Arc<ReplicaSet>, is_current: bool) -> Self {
        let replicas = i64::from(object.spec.replicas.unwrap_or(1));
        Self {
            is_current,
            replicas,
            min_ready_seconds: object.spec.min_ready_seconds,
            annotations: object.metadata.annotations.clone(),
            sizes: vec![replicas],
            object: Arc::clone(object),
        }
    }

    /// Whether it is yet to be made.
    pub(super) fn is_fresh(&self) -> bool {
        self.object.metadata.uid.is_empty()
    }

    pub(super) fn available(&self) -> i64 {
        self.object.status.available_replicas.into()
    }

    pub(super) fn is_active(&self) -> bool {
        self.replicas > 0
    }

    /// The older one first.
    pub(super) fn by_age(&self, other: &Self) -> Ordering {
        let age = |set: &Self| set.object.metadata.creation_timestamp;
        // One that is yet to be made is the newest.
        let order = self.is_fresh().cmp(&other.is_fresh()).then_with(|| age(self).cmp(&age(other)));
        order.then_with(|| self.object.metadata.name.cmp(&other.object.metadata.name))
    }

    /// Sets an annotation.
    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        if self.annotations.get(key).is_none_or(|held| held != value) {
            self.annotations = self.annotations.with(key, value);
        }
    }

    fn changed(&self) -> bool {
        let held = &self.object;
        self.is_fresh()
            || self.replicas != i64::from(held.spec.replicas.unwrap_or(1))
            || self.min_ready_seconds != held.spec.min_ready_seconds
            || self.annotations != held.metadata.annotations
    }

    /// The observed object's own bytes with the changes in them.
    fn spliced(&self) -> Result<Vec<u8>, WireError> {
        let held = &self.object.metadata.annotations;
        let mut edits = vec![Edit::SetVarint(vec![2, 1], self.replicas as u64)];
        if self.min_ready_seconds != self.object.spec.min_ready_seconds {
            edits.push(Edit::SetVarint(vec![2, 4], i64::from(self.min_ready_seconds) as u64));
        }
        let annotated = self.annotations.iter().filter(|(key, value)| held.get(key) != Some(*value));
        edits.extend(
            annotated.map(|(key, value)| Edit::MapSet(vec![1, 12], key.to_string(), value.to_string())),
        );
        edit(&self.object.raw, &edits)
    }
}

/// What a plan works towards.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) view: &'a View,
    /// The ReplicaSets that belong to the Deployment, the oldest first.
    pub(super) sets: Vec<Set>,
    /// Which of them has the present template; the oldest if several do.
    pub(super) current: Option<usize>,
    /// The revision that the Deployment's annotation is to tell.
    pub(super) revision: Option<Str>,
    pub(super) conditions: Vec<DeploymentCondition>,
    pub(super) fenceposts: Fenceposts,
    /// The ReplicaSets that were changed, in that order.
    touched: Vec<usize>,
    /// ReplicaSets to delete, in that order.
    pub(super) forgotten: Vec<usize>,
}

impl<'a> Draft<'a> {
    /// Starts from what was observed.
    pub(super) fn of(view: &'a View, mut sets: Vec<Set>) -> Self {
        sets.sort_by(Set::by_age);
        let deployment = &view.deployment;
        Self {
            view,
            current: sets.iter().position(|set| set.is_current),
            sets,
            revision: deployment.metadata.annotations.get(revisions::REVISION).cloned(),
            conditions: deployment.status.conditions.clone(),
            fenceposts: Fenceposts::of(&deployment.spec),
            touched: Vec::new(),
            forgotten: Vec::new(),
        }
    }

    /// The number of pods that the Deployment asks for. (The server fills in 1 where it is left out.)
    pub(super) fn desired(&self) -> i64 {
        self.fenceposts.replicas
    }

    /// The ReplicaSet with the present template.
    pub(super) fn new_set(&self) -> Option<&Set> {
        self.current.and_then(|at| self.sets.get(at))
    }

    /// The others, the oldest first.
    pub(super) fn old_sets(&self) -> impl Iterator<Item = &Set> {
        self.old().filter_map(|at| self.sets.get(at))
    }

    /// Where the others are, the oldest first.
    pub(super) fn old(&self) -> impl Iterator<Item = usize> + use<> {
        let current = self.current;
        (0..self.sets.len()).filter(move |at| Some(*at) != current)
    }

    /// Where those that have pods are, the oldest first.
    pub(super) fn active(&self) -> Vec<usize> {
        (0..self.sets.len()).filter(|at| self.sets[*at].is_active()).collect()
    }

    /// The pods that all of them are asked for.
    pub(super) fn total(&self) -> i64 {
        self.sets.iter().map(|set| set.replicas).sum()
    }

    /// Remembers that a ReplicaSet is changed, and gives it out for that.
    pub(super) fn change(&mut self, at: usize) -> &mut Set {
        if !self.touched.contains(&at) {
            self.touched.push(at);
        }
        &mut self.sets[at]
    }

    /// Adds the ReplicaSet for the present template, which is yet to be made.
    pub(super) fn add(&mut self, fresh: Set) {
        self.sets.push(fresh);
        let at = self.sets.len() - 1;
        self.current = Some(at);
        self.touched.push(at);
    }

    /// Gives a ReplicaSet another size, and tells it the Deployment's. Returns whether the size is another one.
    pub(super) fn scale(&mut self, at: usize, to: i64) -> bool {
        let to = to.clamp(0, i32::MAX.into());
        let (desired, most) = (self.fenceposts.replicas, self.fenceposts.most());
        let set = self.change(at);
        set.annotate(DESIRED_REPLICAS, &desired.to_string());
        set.annotate(MAX_REPLICAS, &most.to_string());
        let scaled = set.replicas != to;
        if scaled {
            set.replicas = to;
            set.sizes.push(to);
        }
        scaled
    }

    /// Like [`Draft::scale`], but leaves alone what has the size already.
    pub(super) fn resize(&mut self, at: usize, to: i64) -> bool {
        self.sets[at].replicas != to && self.scale(at, to)
    }

    /// The writes that make all ReplicaSets what they are to be, in the order in which that was decided.
    pub(super) fn steps(&self) -> Result<Vec<Step>, WireError> {
        let mut steps = Vec::new();
        for set in self.touched.iter().map(|at| &self.sets[*at]).filter(|set| set.changed()) {
            let key = Key::of(&set.object.metadata);
            let mut told = self.scalings(set).into_iter();
            let write = if set.is_fresh() {
                super::sync_new_rs::create(self, set)?
            } else {
                Write::new(&REPLICA_SETS, key, Verb::Update(set.spliced()?.into()))
            };
            steps.push(Step::Write(Write { on_success: told.next(), ..write }));
            steps.extend(told.map(Step::Emit));
        }
        steps.extend(self.forgotten.iter().map(|at| Step::Write(delete(&self.sets[*at].object))));
        Ok(steps)
    }

    fn scalings(&self, set: &Set) -> Vec<EventSpec> {
        let name = &set.object.metadata.name;
        let told = set.sizes.windows(2).filter_map(|sizes| {
            let [from, to] = sizes else { return None };
            let direction = if to > from { "up" } else { "down" };
            let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
            Some(self.event(false, "ScalingReplicaSet", message))
        });
        told.collect()
    }

    /// An event about the Deployment.
    pub(super) fn event(&self, warning: bool, reason: &'static str, message: String) -> EventSpec {
        event(self.view, warning, reason, message)
    }
}

/// An event about the Deployment.
pub(super) fn event(view: &View, warning: bool, reason: &'static str, message: String) -> EventSpec {
    EventSpec { regarding: Regarding::of(KIND, &view.deployment.metadata), warning, reason, message }
}

/// The decision rests on its being empty, so it must not have changed.
fn delete(set: &ReplicaSet) -> Write {
    let verb = Verb::Delete {
        uid: set.metadata.uid.clone(),
        resource_version: Some(set.metadata.resource_version.clone()),
        propagation: None,
    };
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&REPLICA_SETS, Key::of(&set.metadata), verb)
    }
}

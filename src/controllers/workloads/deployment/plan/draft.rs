//! The plan in the making: the ReplicaSets as they are to be, and the status as it is to be.
//!
//! The deciding modules change it in the order in which the original writes; [`Draft::into_plan`] turns it into steps,
//! with one write for each object that changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::super::KIND;
use super::super::view::View;
use super::bounds::Bounds;
use super::claims::Claims;
use super::{Unplannable, bytes, revisions};
use crate::api::apps::{DeploymentSpec, DeploymentStatus, ReplicaSet};
use crate::api::kinds::REPLICA_SETS;
use crate::model::plan::{EventSpec, Regarding, Tolerate, Verb};
use crate::model::template::Template;
use crate::model::{Key, Plan, Step, Write};
use crate::wire::Str;

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
    is_new: bool,
    is_deleted: bool,
}

impl Member {
    fn existing(object: &Arc<ReplicaSet>) -> Self {
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

/// See the module.
pub(super) struct Draft<'a> {
    pub(super) view: &'a View,
    pub(super) now: Timestamp,
    pub(super) bounds: Bounds,
    /// The Deployment's template.
    pub(super) template: Template,
    /// The Deployment's ReplicaSets, oldest first.
    pub(super) members: Vec<Member>,
    /// Which of them has the Deployment's template.
    pub(super) new: Option<usize>,
    /// The status. Conditions are set as things are decided; the counts at the end.
    pub(super) status: DeploymentStatus,
    /// The revision that the Deployment is to show, if that is known.
    pub(super) revision: Option<String>,
    /// When to look again.
    pub(super) look_again_after: Option<Duration>,
    /// Members in the order in which they are written.
    order: Vec<usize>,
    releases: Vec<Write>,
}

impl<'a> Draft<'a> {
    /// Everything as it is.
    pub(super) fn new(view: &'a View, claims: &Claims<'a>, now: Timestamp) -> Result<Self, Unplannable> {
        let spec = &view.deployment.spec;
        let template = Template::new(&spec.template)?;
        let mut new = None;
        for (at, set) in claims.kept.iter().enumerate() {
            // Should several have the template, the oldest is taken, for good.
            if template.is_same_as(&set.spec.template)? {
                new = Some(at);
                break;
            }
        }
        Ok(Self {
            view,
            now,
            bounds: Bounds::of(spec)?,
            template,
            members: claims.kept.iter().map(|set| Member::existing(set)).collect(),
            new,
            status: view.deployment.status.clone(),
            revision: None,
            look_again_after: None,
            order: Vec::new(),
            // The first pass has released already.
            releases: if view.failures.is_empty() { claims.releases(view) } else { Vec::new() },
        })
    }

    /// What is asked for.
    pub(super) fn spec(&self) -> &'a DeploymentSpec {
        &self.view.deployment.spec
    }

    /// The member with the Deployment's template.
    pub(super) fn newest(&self) -> Option<&Member> {
        self.new.map(|at| &self.members[at])
    }

    /// The positions of all others, oldest first.
    pub(super) fn old(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|at| Some(*at) != self.new).collect()
    }

    /// The positions of all others that are to have pods, oldest first.
    pub(super) fn active_old(&self) -> Vec<usize> {
        self.old().into_iter().filter(|at| self.members[*at].is_active()).collect()
    }

    /// Pods that all members together are to have.
    pub(super) fn total(&self) -> i32 {
        self.members.iter().fold(0_i32, |sum, member| sum.saturating_add(member.replicas))
    }

    /// A member that has to be created, with no pods yet. Its position.
    pub(super) fn add(&mut self, object: ReplicaSet) -> usize {
        self.members.push(Member { is_new: true, ..Member::existing(&Arc::new(object)) });
        let at = self.members.len() - 1;
        self.new = Some(at);
        self.touch(at);
        at
    }

    /// Notes that a member is written now, if it is changed in the end.
    pub(super) fn touch(&mut self, at: usize) {
        if !self.order.contains(&at) {
            self.order.push(at);
        }
    }

    /// Gives a member another size; whether it is one.
    pub(super) fn resize(&mut self, at: usize, replicas: i32) -> bool {
        if self.members[at].replicas == replicas {
            return false;
        }
        self.members[at].replicas = replicas;
        self.annotate_size(at);
        true
    }

    /// Notes the Deployment's size and its upper bound at the member, from which proportional scaling starts next time.
    pub(super) fn annotate_size(&mut self, at: usize) {
        let (desired, most) = (self.bounds.replicas.to_string(), self.bounds.most().to_string());
        self.members[at].annotate(revisions::DESIRED_REPLICAS, desired);
        self.members[at].annotate(revisions::MAX_REPLICAS, most);
        self.touch(at);
    }

    /// Deletes a member that is no longer kept.
    pub(super) fn delete(&mut self, at: usize) {
        self.members[at].is_deleted = true;
    }

    /// The steps.
    pub(super) fn into_plan(self) -> Result<Plan, Unplannable> {
        let mut writes = self.releases.clone();
        for member in self.order.iter().map(|at| &self.members[*at]) {
            if member.is_new {
                writes.push(self.create(member)?);
            } else if member.is_changed() {
                writes.push(self.update(member)?);
            }
        }
        writes.extend(self.members.iter().filter(|member| member.is_deleted).map(delete));
        let mut plan = Plan {
            steps: writes.into_iter().map(Step::Write).collect(),
            requeue_after: self.look_again_after,
            ..Plan::default()
        };
        plan.write_status(bytes::status_update(
            &self.view.deployment,
            &self.status,
            self.revision.as_deref(),
        )?);
        Ok(plan)
    }

    fn create(&self, member: &Member) -> Result<Write, Unplannable> {
        let body = bytes::new_replica_set(&self.view.deployment, member, &self.template, &self.status)?;
        let key =
            Key::new(self.view.deployment.metadata.namespace.clone(), member.object.metadata.name.clone());
        // Its failure is told by the second pass, which knows whether it is one.
        let on_success = member.is_active().then(|| self.scaled(member));
        Ok(Write { on_success, ..Write::new(&REPLICA_SETS, key, Verb::Create(body.into())) })
    }

    fn update(&self, member: &Member) -> Result<Write, Unplannable> {
        let body = bytes::changed_replica_set(member)?;
        let on_success = (member.replicas != size(&member.object)).then(|| self.scaled(member));
        let key = Key::of(&member.object.metadata);
        Ok(Write { on_success, ..Write::new(&REPLICA_SETS, key, Verb::Update(body.into())) })
    }

    fn scaled(&self, member: &Member) -> EventSpec {
        let (from, to) = (size(&member.object), member.replicas);
        let direction = if from < to { "up" } else { "down" };
        EventSpec {
            regarding: Regarding::of(KIND, &self.view.deployment.metadata),
            warning: false,
            reason: "ScalingReplicaSet",
            message: format!("Scaled {direction} replica set {} from {from} to {to}", member.name()),
        }
    }
}

/// It must be as it was seen: without pods.
fn delete(member: &Member) -> Write {
    let meta = &member.object.metadata;
    let verb = Verb::Delete {
        uid: meta.uid.clone(),
        resource_version: Some(meta.resource_version.clone()),
        propagation: None,
    };
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&REPLICA_SETS, Key::of(meta), verb)
    }
}

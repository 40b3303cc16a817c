//! The plan in the making: the ReplicaSets as they are to be, and the status as it is to be.
//!
//! The deciding modules change it in the order in which the original writes; [`Draft::into_plan`] turns it into steps,
//! with one write for each object that changed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::super::view::View;
use super::admitted::{Names, admitted_from};
use super::annotations::{ADMITTED_TEMPLATE, DESIRED_REPLICAS, MAX_REPLICAS};
use super::bounds::Bounds;
use super::bytes;
use super::claims::Claims;
use super::error::Unplannable;
use super::member::{Member, size};
use coxswain_machinery::api::apps::{DeploymentSpec, DeploymentStatus, ReplicaSet};
use coxswain_machinery::api::kinds::{DEPLOYMENTS, REPLICA_SETS};
use coxswain_machinery::model::plan::{EventSpec, Regarding, Tolerate, Verb};
use coxswain_machinery::model::template::{Likeness, Template};
use coxswain_machinery::model::{Key, Plan, Step, Write};

/// See the module.
pub(super) struct Draft<'a> {
    pub(super) view: &'a View,
    pub(super) now: Timestamp,
    pub(super) bounds: Bounds,
    /// The Deployment's template.
    pub(super) template: Template,
    /// The Deployment's ReplicaSets, oldest first.
    pub(super) members: Vec<Member>,
    /// Which of them has the Deployment's template, or was created from it.
    pub(super) new: Option<usize>,
    /// The hash of that one's template, if admission changed it.
    pub(super) admitted: Option<String>,
    /// The status. Conditions are set as things are decided; the counts at the end.
    pub(super) status: DeploymentStatus,
    /// The revision that the Deployment is to show, if that is known.
    pub(super) revision: Option<String>,
    /// When to look again.
    pub(super) look_again_after: Option<Duration>,
    /// Whether the status is written although an old member could not be resized.
    pub(super) tolerates_old: bool,
    /// Members in the order in which they are written.
    order: Vec<usize>,
    releases: Vec<Write>,
}

/// The member with the Deployment's template. Should several have it, the oldest is taken, for good. Members of several spellings
/// are the exception: earlier versions created a ReplicaSet for each spelling of a quantity, while kube-controller-manager uses the
/// oldest. The one that was rolled out last, by either, has the pods and the highest revision, so no pod moves at a takeover.
/// Differs: several-spellings.
fn same_template(template: &Template, claims: &Claims<'_>) -> Result<Option<usize>, Unplannable> {
    let mut members = Vec::new();
    let mut is_respelled = false;
    for (at, set) in claims.kept.iter().enumerate() {
        let likeness = template.likeness(&set.spec.template)?;
        is_respelled |= likeness == Likeness::Same;
        if likeness != Likeness::Different {
            members.push((at, Member::existing(set).revision().unwrap_or(0)));
        }
    }
    let oldest = members.first().copied();
    let last = members.into_iter().reduce(|held, next| if next.1 > held.1 { next } else { held });
    Ok(if is_respelled { last } else { oldest }.map(|(at, _)| at))
}

impl<'a> Draft<'a> {
    /// Everything as it is.
    pub(super) fn new(view: &'a View, claims: &Claims<'a>, now: Timestamp) -> Result<Self, Unplannable> {
        let spec = &view.deployment.spec;
        let template = Template::new(&spec.template)?;
        let mut new = same_template(&template, claims)?;
        let mut admitted = None;
        if new.is_none() {
            let names = Names::of(&template, view.deployment.status.collision_count);
            for (at, set) in claims.kept.iter().enumerate() {
                admitted = admitted_from(&names, set)?;
                if admitted.is_some() {
                    new = Some(at);
                    break;
                }
            }
        }
        Ok(Self {
            admitted,
            view,
            now,
            bounds: Bounds::of(spec)?,
            template,
            members: claims.kept.iter().map(|set| Member::existing(set)).collect(),
            new,
            status: view.deployment.status.clone(),
            revision: None,
            look_again_after: None,
            tolerates_old: false,
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

    /// The same, with the present sizes of those whose resizing may be refused.
    pub(super) fn certain_total(&self) -> i32 {
        let certain = |(at, member): (usize, &Member)| {
            let is_tolerated = self.tolerates_old && self.new != Some(at);
            if is_tolerated { size(&member.object) } else { member.replicas }
        };
        self.members.iter().enumerate().map(certain).fold(0_i32, i32::saturating_add)
    }

    /// A member that has to be created, with no pods yet. Its position.
    pub(super) fn add(&mut self, object: ReplicaSet) -> usize {
        self.members.push(Member::new(&Arc::new(object)));
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
        self.members[at].annotate(DESIRED_REPLICAS, desired);
        self.members[at].annotate(MAX_REPLICAS, most);
        self.touch(at);
    }

    /// The releases, which the plan then leaves out.
    pub(super) fn take_releases(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.releases)
    }

    /// Deletes a member that is no longer kept.
    pub(super) fn delete(&mut self, at: usize) {
        self.members[at].is_deleted = true;
    }

    /// The steps.
    pub(super) fn into_plan(self) -> Result<Plan, Unplannable> {
        let mut writes = self.releases.clone();
        for at in self.order.iter().copied() {
            let member = &self.members[at];
            if member.is_new {
                writes.push(self.create(member)?);
            } else if member.is_changed() {
                let keep_going = self.tolerates_old && self.new != Some(at);
                writes.push(Write { keep_going, ..self.update(member)? });
            }
        }
        writes.extend(self.members.iter().filter(|member| member.is_deleted).map(delete));
        let mut plan = Plan {
            steps: writes.into_iter().map(Step::Write).collect(),
            requeue_after: self.look_again_after,
            ..Plan::default()
        };
        plan.steps.extend(self.changed_by_admission().map(Step::Emit));
        plan.write_status(self.status_update()?);
        Ok(plan)
    }

    /// A warning that admission changed the template of the new ReplicaSet, until its annotation is set.
    fn changed_by_admission(&self) -> Option<EventSpec> {
        let new = self.newest().filter(|_| self.admitted.is_some())?;
        let is_known = new.object.metadata.annotations.get(ADMITTED_TEMPLATE).is_some();
        (!is_known).then(|| EventSpec {
            regarding: Regarding::of(&DEPLOYMENTS, &self.view.deployment.metadata),
            warning: true,
            reason: "TemplateChangedByAdmission",
            message: format!("created ReplicaSet {:?}: admission changed its pod template", new.name()),
        })
    }

    /// A plan that only writes the status.
    pub(super) fn into_status(mut self) -> Result<Plan, Unplannable> {
        // A revision that its ReplicaSet does not have yet is none.
        if self.newest().is_none_or(Member::is_changed) {
            self.revision = None;
        }
        let mut plan = Plan::default();
        plan.write_status(self.status_update()?);
        Ok(plan)
    }

    fn status_update(&self) -> Result<Option<Write>, Unplannable> {
        bytes::status_update(&self.view.deployment, &self.status, self.revision.as_deref())
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
            regarding: Regarding::of(&DEPLOYMENTS, &self.view.deployment.metadata),
            warning: false,
            reason: "ScalingReplicaSet",
            message: format!("Scaled {direction} replica set {} from {from} to {to}", member.name()),
        }
    }
}

/// It must be as it was seen: without pods.
fn delete(member: &Member) -> Write {
    let meta = &member.object.metadata;
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&REPLICA_SETS, Key::of(meta), Verb::delete_as_seen(meta))
    }
}

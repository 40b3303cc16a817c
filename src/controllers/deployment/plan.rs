//! What is to be done about one Deployment: who is claimed, which strategy acts, what is written down. Pure.
//!
//! The order is the original's: release and adopt, then the ReplicaSets, then the Deployment, whose status counts the
//! pods as they were observed. When making a ReplicaSet failed, the second pass records that; when something else
//! failed, it does nothing, and the retry starts over.

use jiff::Timestamp;
use serde_json::json;

use super::conditions::{self, PAUSED, PROGRESSING, TIMED_OUT};
use super::draft::{Draft, Set, event};
use super::view::{Candidate, View};
use super::{KIND, RECREATE, ROLLING_UPDATE, cleanup, recreate, rolling, scale, status, sync_new_rs, write};
use crate::api::apps::{DeploymentStatus, ReplicaSet};
use crate::api::kinds::REPLICA_SETS;
use crate::api::meta::ObjectMeta;
use crate::model::owners::{Claim, claim, controller_reference};
use crate::model::plan::{Expect, Tolerate, Verb, Verify};
use crate::model::{Failure, Key, Patch, Plan, Step, Write};
use crate::wire::{Str, Time, WireError};

pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if let Err(error) = fill(&mut plan, view, now) {
        plan.retry = Some(error.to_string());
    }
    plan
}

fn fill(plan: &mut Plan, view: &View, now: Timestamp) -> Result<(), WireError> {
    if view.selector.is_empty() {
        return refuse(plan, view);
    }
    let claims = Claims::of(view);
    if !view.failures.is_empty() {
        if let Some(failure) = failed_create(view) {
            return record(plan, view, failure, &claims, now);
        }
        return Ok(());
    }
    claims.write(view, plan);
    if claims.adopted.is_empty() {
        reconcile(plan, view, &claims, now)
    } else {
        // The adopted can be written only once they are seen again.
        Ok(())
    }
}

/// A selector that selects everything would take over all ReplicaSets of the namespace.
fn refuse(plan: &mut Plan, view: &View) -> Result<(), WireError> {
    let message = "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
    plan.steps.push(Step::Emit(event(view, true, "SelectingAll", message)));
    let deployment = &view.deployment;
    let status = DeploymentStatus {
        observed_generation: deployment.status.observed_generation.max(deployment.metadata.generation),
        ..deployment.status.clone()
    };
    plan.steps.extend(write::update(deployment, &status, None)?.map(Step::Write));
    Ok(())
}

/// The decisions about a Deployment whose claims are settled.
fn reconcile(plan: &mut Plan, view: &View, claims: &Claims<'_>, now: Timestamp) -> Result<(), WireError> {
    let deployment = &view.deployment;
    let mut draft = Draft::of(view, claims.sets());
    let at = Time::from(now);
    let strategy = deployment.spec.strategy.r#type.as_str();

    let status = if deployment.metadata.is_deleting() {
        sync_new_rs::sync(&mut draft, false, at)?;
        status::counted(&draft, now)
    } else {
        tell_of_pause(&mut draft, at);
        if deployment.spec.paused || scale::is_due(&draft) {
            sync_new_rs::sync(&mut draft, false, at)?;
            scale::scale(&mut draft);
            if deployment.spec.paused {
                cleanup::forget(&mut draft);
            }
            status::counted(&draft, now)
        } else {
            match strategy {
                RECREATE => recreate::roll_out(&mut draft, at)?,
                ROLLING_UPDATE => rolling::roll_out(&mut draft, at)?,
                other => {
                    plan.retry = Some(format!("unexpected deployment strategy type: {other}"));
                    return Ok(());
                }
            }
            let status = status::of_rollout(&draft, now);
            if let Some(wait) = status::next_look(deployment, &status, now) {
                plan.look_again_after(wait);
            }
            status
        }
    };
    plan.steps.extend(draft.steps()?);
    let update = write::update(deployment, &status, draft.revision.as_ref())?;
    plan.steps.extend(update.map(Step::Write));
    Ok(())
}

/// While it is paused a Deployment makes no progress and can't be late. A deadline that was missed stays missed.
fn tell_of_pause(draft: &mut Draft<'_>, now: Time) {
    let spec = &draft.view.deployment.spec;
    let current = conditions::find(&draft.conditions, PROGRESSING).map(|current| current.reason.as_str());
    if status::deadline(spec).is_none() || current == Some(TIMED_OUT) {
        return;
    }
    let (reason, message) = match (spec.paused, current == Some(PAUSED)) {
        (true, false) => (PAUSED, "Deployment is paused"),
        (false, true) => ("DeploymentResumed", "Deployment is resumed"),
        _ => return,
    };
    let condition = conditions::progressing("Unknown", reason, message.to_owned(), now);
    conditions::set(&mut draft.conditions, condition);
}

/// What became of the attempt to make a ReplicaSet.
fn failed_create(view: &View) -> Option<&Failure> {
    view.failures.iter().find(|failure| failure.kind == &REPLICA_SETS && failure.verb() == "create")
}

/// Records that the new ReplicaSet could not be made.
fn record(
    plan: &mut Plan,
    view: &View,
    failure: &Failure,
    claims: &Claims<'_>,
    now: Timestamp,
) -> Result<(), WireError> {
    let deployment = &view.deployment;
    if failure.is_already_exists() {
        // In the way is our own ReplicaSet, which the cache had not seen: go on with it.
        let is_it = |kept: &Candidate| kept.is_current && kept.set.metadata.name == failure.key.name;
        if claims.kept.iter().any(|kept| is_it(kept)) {
            return reconcile(plan, view, claims, now);
        }
        if failure.existing.is_some() {
            let collisions = deployment.status.collision_count.unwrap_or(0).saturating_add(1);
            let status = DeploymentStatus { collision_count: Some(collisions), ..deployment.status.clone() };
            plan.steps.extend(write::update(deployment, &status, None)?.map(Step::Write));
        }
        return Ok(());
    }
    // Nothing can be made in a namespace that is going away, and nobody is left to be told.
    if failure.code == 403 && failure.message.contains("because it is being terminated") {
        return Ok(());
    }
    let message = format!("Failed to create new replica set {:?}: {}", failure.key.name, failure.message);
    if status::deadline(&deployment.spec).is_some() {
        let mut draft = Draft::of(view, claims.sets());
        tell_of_pause(&mut draft, Time::from(now));
        let condition = conditions::progressing("False", CREATE_FAILED, message.clone(), Time::from(now));
        conditions::set(&mut draft.conditions, condition);
        let status = DeploymentStatus { conditions: draft.conditions, ..deployment.status.clone() };
        plan.steps.extend(write::update(deployment, &status, None)?.map(Step::Write));
    }
    plan.steps.push(Step::Emit(event(view, true, CREATE_FAILED, message)));
    Ok(())
}

const CREATE_FAILED: &str = "ReplicaSetCreateError";

/// Who belongs to the Deployment once its claims are made.
struct Claims<'a> {
    /// Already ours, or about to be.
    kept: Vec<&'a Candidate>,
    /// Those of `kept` that are about to be.
    adopted: Vec<&'a ReplicaSet>,
    /// Ours and not selected any more.
    released: Vec<&'a ReplicaSet>,
}

impl<'a> Claims<'a> {
    fn of(view: &'a View) -> Self {
        let mut claims = Self { kept: Vec::new(), adopted: Vec::new(), released: Vec::new() };
        for candidate in &view.candidates {
            let meta = &candidate.set.metadata;
            match claim(&view.deployment.metadata, meta, view.selector.matches(&meta.labels)) {
                Claim::Keep => claims.kept.push(candidate),
                Claim::Adopt => {
                    claims.kept.push(candidate);
                    claims.adopted.push(&candidate.set);
                }
                Claim::Release => claims.released.push(&candidate.set),
                Claim::Ignore => {}
            }
        }
        claims.adopted.sort_by_key(|set| &set.metadata.name);
        claims.released.sort_by_key(|set| &set.metadata.name);
        claims
    }

    fn sets(&self) -> Vec<Set> {
        self.kept.iter().map(|kept| Set::of(&kept.set, kept.is_current)).collect()
    }

    fn write(&self, view: &View, plan: &mut Plan) {
        let owner = &view.deployment.metadata;
        if !self.released.is_empty() {
            let released = self.released.iter().map(|set| release(&owner.uid, set));
            plan.steps.push(Step::Batch(released.collect()));
        }
        if !self.adopted.is_empty() {
            plan.steps.push(Step::Verify(Verify {
                kind: KIND,
                key: Key::of(owner),
                expect: Expect::Alive(owner.uid.clone()),
            }));
            let adopted = self.adopted.iter().map(|set| adopt(owner, set));
            plan.steps.push(Step::Batch(adopted.collect()));
        }
    }
}

/// Nothing is tolerated here: a ReplicaSet that is gone or taken would be counted, so the plan has to be made again.
fn adopt(owner: &ObjectMeta, set: &ReplicaSet) -> Write {
    let reference = controller_reference(owner, KIND);
    let patch = json!({"metadata": {
        "uid": set.metadata.uid,
        "ownerReferences": [{
            "apiVersion": reference.api_version,
            "kind": reference.kind,
            "name": reference.name,
            "uid": reference.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    }});
    Write::new(&REPLICA_SETS, Key::of(&set.metadata), Verb::Patch(Patch::Strategic(patch)))
}

/// A ReplicaSet that is gone, or whose name another one bears by now (the server calls a change of the UID invalid),
/// needs no release.
fn release(owner: &Str, set: &ReplicaSet) -> Write {
    let patch = json!({"metadata": {
        "uid": set.metadata.uid,
        "ownerReferences": [{"$patch": "delete", "uid": owner}],
    }});
    Write {
        tolerate: Tolerate { absent: true, invalid: true, ..Tolerate::default() },
        ..Write::new(&REPLICA_SETS, Key::of(&set.metadata), Verb::Patch(Patch::Strategic(patch)))
    }
}

//! Pods: which are made, seen to, taken away and replaced, and in which order.
//!
//! Replicas are looked at upwards, surplus pods and updates downwards. With `OrderedReady` one pod is waited for before the next
//! is touched; with `Parallel` all are done at once, but updates one by one.

use std::collections::BTreeMap;
use std::ops::ControlFlow::{self, Break, Continue};

use jiff::Timestamp;

use super::super::metrics::Gauges;
use super::super::view::{BURST, View, revision_of};
use super::bodies::{self, POD_NAME_LABEL};
use super::ordinals::{Ordinals, ordinal_of, pod_name};
use super::owners::{self, Holder, Ownership, Policy};
use super::pods::{has_never_run, is_pending, is_unavailable};
use super::{event, joined, not_created};
use coxswain_machinery::api::apps::StatefulSet;
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PODS};
use coxswain_machinery::api::pod::{Pod, PodClaimSource};
use coxswain_machinery::model::plan::{Chain, EventSpec, Tolerate, Verb};
use coxswain_machinery::model::scaled::{Rounding, scaled};
use coxswain_machinery::model::{Key, Step, Write};
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::{Str, WireError};

/// One look at all pods of a StatefulSet, and the steps that come of it.
pub(super) struct Sync<'a> {
    view: &'a View,
    now: Timestamp,
    ordinals: Ordinals,
    /// Its pods by ordinal.
    pods: BTreeMap<i32, &'a Pod>,
    pub(super) steps: Vec<Step>,
    /// Events that follow the chains that are being planned.
    afterwards: Vec<Step>,
    /// Pods that go because they have another revision.
    pub(super) replaced: usize,
    /// What could not be planned.
    pub(super) retry: Option<String>,
    pub(super) gauges: Option<Gauges>,
}

/// Whether a pod of this ordinal is made of the current revision's template, or else of the present one's.
fn is_of_current(set: &StatefulSet, ordinals: Ordinals, ordinal: i32) -> bool {
    let strategy = &set.spec.update_strategy;
    match &strategy.rolling_update {
        Some(rolling) => ordinals.is_below(ordinal, rolling.partition.unwrap_or(0)),
        None => strategy.r#type == "RollingUpdate" && ordinals.is_below(ordinal, set.status.current_replicas),
    }
}

/// Whether a pod is to be made of the current revision's template.
pub(in super::super) fn makes_old_pods(view: &View) -> bool {
    let set = &view.set;
    let ordinals = Ordinals::of(set);
    let names: HashSet<&str> = view.pods.iter().map(|pod| pod.metadata.name.as_str()).collect();
    let is_there = |ordinal: i32| names.contains(&*pod_name(&set.metadata.name, ordinal));
    let mut old = ordinals.all().take_while(|ordinal| is_of_current(set, ordinals, *ordinal));
    !set.metadata.is_deleting() && old.any(|ordinal| !is_there(ordinal))
}

impl<'a> Sync<'a> {
    pub(super) fn new(view: &'a View, kept: &[&'a Pod], now: Timestamp) -> Self {
        let name = &view.set.metadata.name;
        let by_ordinal = |pod: &&'a Pod| Some((ordinal_of(name, &pod.metadata.name)??, *pod));
        Self {
            view,
            now,
            ordinals: Ordinals::of(&view.set),
            pods: kept.iter().filter_map(by_ordinal).collect(),
            steps: Vec::new(),
            afterwards: Vec::new(),
            replaced: 0,
            retry: None,
            gauges: None,
        }
    }

    /// Decides on all pods.
    pub(super) fn run(&mut self) {
        self.gauges = self.view.gates.max_unavailable.then(|| Gauges {
            policy: self.view.set.spec.pod_management_policy.clone(),
            max_unavailable: self.max_unavailable(),
            unavailable: None,
        });
        let done = if self.view.set.spec.pod_management_policy == "Parallel" {
            self.all_at_once()
        } else {
            self.one_by_one()
        };
        let ended = done.unwrap_or_else(|error| {
            self.retry = Some(format!("template: {error}"));
            Break(())
        });
        if ended.is_continue() && self.view.set.spec.update_strategy.r#type != "OnDelete" {
            self.update();
        }
    }

    /// Replicas, then surplus pods, until one is to be waited for.
    fn one_by_one(&mut self) -> Result<ControlFlow<()>, WireError> {
        for ordinal in self.ordinals.all() {
            let Some(pod) = self.pods.get(&ordinal).copied() else {
                let steps = self.create(ordinal)?;
                self.steps.extend(steps);
                return Ok(Break(()));
            };
            if pod.is_finished() {
                if !pod.metadata.is_deleting() {
                    self.steps.push(Step::Write(delete(self.view, pod)));
                }
                return Ok(Break(()));
            }
            if self.is_abandoned(pod, ordinal) {
                // One that has changed may have begun to run.
                self.steps.push(Step::Write(Write {
                    verb: Verb::delete_as_seen(&pod.metadata),
                    tolerate: Tolerate { absent: true, conflict: true, ..Tolerate::default() },
                    ..delete(self.view, pod)
                }));
                return Ok(Break(()));
            }
            if is_pending(pod) {
                let steps = self.tend(pod, ordinal)?;
                self.steps.extend(steps);
            }
            if self.is_unavailable(pod) {
                return Ok(Break(()));
            }
            let chain = self.repair(pod, ordinal)?;
            self.extend(chain);
        }
        let surplus = self.surplus();
        for (ordinal, pod) in surplus.iter().rev() {
            let chain = self.repair_owners(pod, *ordinal, true)?;
            self.extend(chain);
        }
        let Some((_, last)) = surplus.last() else { return Ok(Continue(())) };
        // All replicas are available here.
        let lowest = surplus.iter().find(|(_, pod)| self.is_unavailable(pod));
        let may_go = !self.is_unavailable(last)
            || lowest.is_some_and(|(_, pod)| pod.metadata.name == last.metadata.name);
        if !last.metadata.is_deleting() && may_go {
            self.steps.push(Step::Write(delete(self.view, last)));
        }
        Ok(Break(()))
    }

    /// All replicas, then all surplus pods, in groups.
    fn all_at_once(&mut self) -> Result<ControlFlow<()>, WireError> {
        let mut chains: Vec<Chain> = Vec::new();
        let (mut made, mut is_cut) = (0, false);
        for ordinal in self.ordinals.all() {
            let Some(pod) = self.pods.get(&ordinal).copied() else {
                if made == BURST {
                    is_cut = true;
                    break;
                }
                made += 1;
                let steps = self.create(ordinal)?;
                chains.push(self.chain(steps));
                continue;
            };
            if pod.is_finished() {
                let is_due = !pod.metadata.is_deleting();
                chains.push(is_due.then(|| delete(self.view, pod)).into_iter().collect());
                continue;
            }
            // No pod is waited for, so that each is repaired whatever its state.
            if is_pending(pod) {
                let is_held = self.retry.is_some();
                let steps = self.tend(pod, ordinal)?;
                let mut chain = self.chain(steps);
                if is_held || self.retry.is_none() {
                    chain.extend(self.repair_identity(pod, ordinal));
                }
                chains.push(chain);
            } else {
                chains.push(self.repair(pod, ordinal)?);
            }
        }
        self.push_chains(chains, true);
        if is_cut {
            return Ok(Break(()));
        }
        if self.retry.is_some() {
            self.delete_surplus_without_replicas();
            return Ok(Break(()));
        }
        let surplus = self.surplus();
        self.delete_surplus(surplus, true)?;
        Ok(Continue(()))
    }

    /// Deletes surplus pods, from the highest ordinal down.
    fn delete_surplus(&mut self, surplus: Vec<(i32, &'a Pod)>, slow_start: bool) -> Result<(), WireError> {
        let mut chains: Vec<Chain> = Vec::new();
        for (ordinal, pod) in surplus.into_iter().rev() {
            let mut chain = self.repair_owners(pod, ordinal, true)?;
            if !pod.metadata.is_deleting() {
                chain.push(delete(self.view, pod));
            }
            chains.push(chain);
        }
        self.push_chains(chains, slow_start);
        Ok(())
    }

    /// Deletes surplus pods although replicas were refused, where pods do not wait for each other: what keeps the replicas out may be
    /// the room that the surplus pods take. As many unfinished pods stay as there are to be replicas, so a changed `ordinals.start`
    /// deletes none before its successor exists. No pod is deleted whose claims would be deleted with it.
    pub(super) fn delete_surplus_without_replicas(&mut self) {
        let spec = &self.view.set.spec;
        let is_one_by_one = spec.pod_management_policy != "Parallel";
        if self.view.set.metadata.is_deleting() || is_one_by_one || Policy::of(self.view).deletes_when_scaled
        {
            return;
        }
        let stays = |pod: &&&Pod| !pod.metadata.is_deleting() && !pod.is_finished();
        let staying = self.pods.values().filter(stays).count();
        let spare = staying.saturating_sub(self.ordinals.all().count());
        let mut surplus = self.surplus();
        surplus.retain(|(_, pod)| !pod.metadata.is_deleting());
        surplus.drain(..surplus.len().saturating_sub(spare));
        if let Err(error) = self.delete_surplus(surplus, false) {
            let set = &self.view.set.metadata.name;
            self.steps.push(Step::Emit(not_updated(self.view, set, &error.to_string())));
        }
    }

    fn extend(&mut self, chain: Chain) {
        if chain.iter().any(|write| write.with_next) {
            self.steps.push(Step::Chains { chains: vec![chain], slow_start: false });
        } else {
            self.steps.extend(chain.into_iter().map(Step::Write));
        }
    }

    /// Appends the chains of all pods, in groups. Empty chains count in a group, as with kube-controller-manager: what is refused for
    /// one pod does not stop the others of its group.
    fn push_chains(&mut self, chains: Vec<Chain>, slow_start: bool) {
        if chains.iter().any(|chain| !chain.is_empty()) {
            self.steps.push(Step::Chains { chains, slow_start });
        }
        self.steps.append(&mut self.afterwards);
    }

    /// The writes of some steps, in a row. Events come before all chains, those behind the creation of a pod after them.
    fn chain(&mut self, steps: Vec<Step>) -> Chain {
        let mut chain = Chain::new();
        for step in steps {
            // Linear: a chain is of one pod; of what it holds the claims are the author's, and an Event is behind them.
            let creates =
                chain.iter().any(|write| write.kind == &PODS && matches!(write.verb, Verb::Create(_)));
            match step {
                Step::Emit(_) if creates => self.afterwards.push(step),
                Step::Emit(_) => self.steps.push(step),
                // Each is tried, and nothing after them if one fails.
                Step::Each(mut writes) => {
                    let all_but_last = writes.len().saturating_sub(1);
                    writes.iter_mut().take(all_but_last).for_each(|write| write.with_next = true);
                    chain.extend(writes);
                }
                step => chain.extend(step.writes().cloned()),
            }
        }
        chain
    }

    /// Replicas that have another revision, from the highest ordinal down to the partition.
    fn update(&mut self) {
        let Some(present) = self.view.present.revision().map(|held| held.metadata.name.clone()) else {
            return;
        };
        let rolling = self.view.set.spec.update_strategy.rolling_update.as_deref();
        let candidates = self.ordinals.from(rolling.and_then(|rolling| rolling.partition).unwrap_or(0));
        let is_old = |pod: &Pod| !pod.metadata.is_deleting() && revision_of(pod) != Some(&present);
        let mut most = usize::MAX;
        if let Some(mut gauges) = self.gauges.take() {
            let unavailable = self.ordinals.all().filter(|ordinal| self.lacks(*ordinal)).count() as i64;
            most = usize::try_from(gauges.max_unavailable - unavailable).unwrap_or(0);
            gauges.unavailable = Some(unavailable);
            self.gauges = Some(gauges);
        }
        let mut doomed: Vec<&Pod> = Vec::new();
        for ordinal in candidates.rev() {
            if doomed.len() == most {
                break;
            }
            let old = self.pods.get(&ordinal).copied().filter(|pod| is_old(pod));
            doomed.extend(old);
            let waits = old.is_some() || self.lacks(ordinal);
            if waits && !self.view.gates.max_unavailable {
                break;
            }
        }
        self.replaced = doomed.len();
        let deletes = doomed.into_iter().map(|pod| Step::Write(delete(self.view, pod)));
        self.steps.extend(deletes);
    }

    /// Replicas that may be unavailable during an update.
    fn max_unavailable(&self) -> i64 {
        let rolling = self.view.set.spec.update_strategy.rolling_update.as_deref();
        let replicas = i64::from(self.view.set.spec.replicas.unwrap_or(1));
        let given = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        given.and_then(|value| scaled(value, replicas, Rounding::Down)).unwrap_or(1).max(1)
    }

    /// Whether the replica of an ordinal is unavailable, or not there.
    fn lacks(&self, ordinal: i32) -> bool {
        self.pods.get(&ordinal).is_none_or(|pod| self.is_unavailable(pod))
    }

    /// Whether a pod is of a template that is rolled out no longer, and no container of it has run: the StatefulSet would wait for it for
    /// ever. A pod that has run, if only its init containers, may hold data or do work, and pods below the partition are not
    /// rolled out: these stay, as with kube-controller-manager.
    fn is_abandoned(&self, pod: &Pod, ordinal: i32) -> bool {
        let (Some(revision), Some(present)) = (revision_of(pod), self.view.present.revision()) else {
            return false;
        };
        let is_current = self.view.current().is_some_and(|current| current.metadata.name == *revision);
        let strategy = &self.view.set.spec.update_strategy;
        let partition = strategy.rolling_update.as_deref().and_then(|rolling| rolling.partition).unwrap_or(0);
        has_never_run(pod)
            && !pod.metadata.is_deleting()
            && strategy.r#type == "RollingUpdate"
            && !self.ordinals.is_below(ordinal, partition)
            && present.metadata.name != *revision
            && !is_current
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        is_unavailable(&self.view.set, pod, self.now)
    }

    /// Pods whose ordinals are not those of replicas, upwards.
    fn surplus(&self) -> Vec<(i32, &'a Pod)> {
        let surplus = self.pods.iter().filter(|(ordinal, _)| !self.ordinals.contains(**ordinal));
        surplus.map(|(ordinal, pod)| (*ordinal, *pod)).collect()
    }

    /// Makes the claims of an ordinal that are missing, then its pod.
    fn create(&mut self, ordinal: i32) -> Result<Vec<Step>, WireError> {
        let view = self.view;
        let set = &view.set.metadata;
        let name = pod_name(&set.name, ordinal);
        let policy = Policy::of(view);
        let held = |at: usize| view.claims.get(&view.templates[at].claim_name(&set.name, ordinal));
        let held: Vec<_> = (0..view.templates.len()).filter_map(held).collect();
        if held.iter().any(|claim| owners::is_stale(policy, &name, claim)) {
            return Ok(Vec::new());
        }
        let mut steps = self.missing_claims(&name, ordinal)?;
        let going = held.iter().filter(|claim| claim.metadata.is_deleting());
        let going: Vec<_> =
            going.map(|claim| format!("pvc {} is being deleted", claim.metadata.name)).collect();
        if !going.is_empty() {
            let error = joined(going);
            steps.push(Step::Emit(not_created(view, &name, &error)));
            self.retry = Some(format!("pod {name}: {error}"));
            return Ok(steps);
        }
        let current = view.current_template.as_ref().zip(view.current());
        let current = current.filter(|_| is_of_current(&view.set, self.ordinals, ordinal));
        let (template, revision) = match (current, view.present.revision()) {
            (Some((template, revision)), _) => (template, revision),
            (None, Some(present)) => (&view.set.spec.template, present),
            (None, None) => return Ok(Vec::new()),
        };
        let body = bodies::pod(view, ordinal, template, &revision.metadata.name)?;
        let key = Key::new(set.namespace.clone(), name.clone());
        let created = format!("Create Pod {name} in StatefulSet {} successful", set.name);
        steps.push(Step::Write(Write {
            on_success: Some(event(view, false, "SuccessfulCreate", created)),
            ..Write::new(&PODS, key, Verb::Create(body))
        }));
        steps.extend(self.see_to_owners(Holder { name: &name, pod: None, ordinal, is_surplus: false })?);
        Ok(steps)
    }

    /// Makes the claims of a pod that waits for them, and sees to the owners of the others.
    fn tend(&mut self, pod: &Pod, ordinal: i32) -> Result<Vec<Step>, WireError> {
        let name = &pod.metadata.name;
        let mut steps = self.missing_claims(name, ordinal)?;
        let claims = self.view.templates.iter().filter_map(|template| {
            self.view.claims.get(&template.claim_name(&self.view.set.metadata.name, ordinal))
        });
        if let Some(going) = claims.into_iter().find(|claim| claim.metadata.is_deleting()) {
            self.retry = Some(format!("pvc {} is being deleted", going.metadata.name));
            return Ok(steps);
        }
        steps.extend(self.see_to_owners(Holder { name, pod: Some(pod), ordinal, is_surplus: false })?);
        Ok(steps)
    }

    /// Creates of the claims that a pod lacks; each is tried.
    fn missing_claims(&self, pod: &Str, ordinal: i32) -> Result<Vec<Step>, WireError> {
        let set = &self.view.set.metadata;
        let mut creates = Vec::new();
        for template in &self.view.templates {
            let claim = template.claim_name(&set.name, ordinal);
            if self.view.claims.contains_key(&claim) {
                continue;
            }
            let body = bodies::claim(self.view, template, ordinal)?;
            let created = format!("Create Claim {claim} Pod {pod} in StatefulSet {} success", set.name);
            let key = Key::new(set.namespace.clone(), claim);
            creates.push(Write {
                on_success: Some(event(self.view, false, "SuccessfulCreate", created)),
                ..Write::new(&PERSISTENT_VOLUME_CLAIMS, key, Verb::Create(body))
            });
        }
        Ok(if creates.is_empty() { Vec::new() } else { vec![Step::Each(creates)] })
    }

    /// Updates the owners of the claims of a pod whose creation was refused. They do not wait until it can be created.
    pub(super) fn see_to_owners_without(&mut self, pod: &str) {
        let Some(Some(ordinal)) = ordinal_of(&self.view.set.metadata.name, pod) else { return };
        let optional = |step| match step {
            Step::Write(write) => Step::Write(Write { keep_going: true, ..write }),
            other => other,
        };
        match self.see_to_owners(Holder { name: pod, pod: None, ordinal, is_surplus: false }) {
            Ok(steps) => self.steps.extend(steps.into_iter().map(optional)),
            Err(error) => self.steps.push(Step::Emit(not_updated(self.view, pod, &error.to_string()))),
        }
    }

    /// Warnings of the claims that another object controls, and updates of those whose owners are to be others.
    fn see_to_owners(&self, holder: Holder<'_>) -> Result<Vec<Step>, WireError> {
        let Ownership { updates, conflicting } = owners::ownership(self.view, holder)?;
        let mut steps: Vec<Step> =
            conflicting.iter().map(|claim| Step::Emit(conflict(self.view, claim))).collect();
        for write in updates {
            let claim = &write.key.name;
            let error = format!("could not update claim {claim} for delete policy ownerRefs: {{error}}");
            // A claim of a surplus pod has no such event, as with kube-controller-manager.
            let on_failure = (!holder.is_surplus).then(|| not_updated(self.view, holder.name, &error));
            steps.push(Step::Write(Write { on_failure, ..write }));
        }
        Ok(steps)
    }

    /// Updates the owners of the claims of a pod that is there, if any are to be others.
    fn repair_owners(&mut self, pod: &Pod, ordinal: i32, is_surplus: bool) -> Result<Chain, WireError> {
        let name = &pod.metadata.name;
        let steps = self.see_to_owners(Holder { name, pod: Some(pod), ordinal, is_surplus })?;
        let is_due = steps.iter().any(|step| step.writes().next().is_some());
        Ok(if is_due { self.chain(steps) } else { Chain::new() })
    }

    /// Brings name, claims and their owners to what they should be, if they are not.
    fn repair(&mut self, pod: &Pod, ordinal: i32) -> Result<Chain, WireError> {
        let mut chain = Chain::new();
        if !self.has_claims(pod, ordinal) {
            let claims = self.missing_claims(&pod.metadata.name, ordinal)?;
            chain.extend(self.chain(claims));
        }
        chain.extend(self.repair_owners(pod, ordinal, false)?);
        chain.extend(self.repair_identity(pod, ordinal));
        if let Some(last) = chain.last_mut() {
            last.on_success = Some(self.updated(&pod.metadata.name));
        }
        Ok(chain)
    }

    /// The patch of a pod that lacks its name's label or the volumes of its claims.
    fn repair_identity(&self, pod: &Pod, ordinal: i32) -> Option<Write> {
        let (view, name) = (self.view, &pod.metadata.name);
        let has_claims = self.has_claims(pod, ordinal);
        if has_claims && pod.metadata.labels.get(POD_NAME_LABEL) == Some(name) {
            return None;
        }
        let patch = bodies::repair(view, pod, ordinal, has_claims);
        Some(Write {
            on_success: Some(self.updated(name)),
            on_failure: Some(not_updated(view, name, "{error}")),
            ..Write::new(&PODS, Key::of(&pod.metadata), Verb::Patch(patch))
        })
    }

    fn has_claims(&self, pod: &Pod, ordinal: i32) -> bool {
        let named = pod.claims.iter().filter_map(|claim| match &claim.source {
            PodClaimSource::Named(named) => Some((&claim.volume, named.as_str())),
            PodClaimSource::Ephemeral(_) => None,
        });
        let named: HashMap<&Str, &str> = named.collect();
        self.view.templates.iter().all(|template| {
            let wanted = template.claim_name(&self.view.set.metadata.name, ordinal);
            named.get(&template.name).is_some_and(|held| wanted == *held)
        })
    }

    fn updated(&self, pod: &str) -> EventSpec {
        let set = &self.view.set.metadata.name;
        event(
            self.view,
            false,
            "SuccessfulUpdate",
            format!("Update Pod {pod} in StatefulSet {set} successful"),
        )
    }
}

fn delete(view: &View, pod: &Pod) -> Write {
    let (set, name) = (&view.set.metadata.name, &pod.metadata.name);
    let deleted = format!("Delete Pod {name} in StatefulSet {set} successful");
    let failed = format!("Delete Pod {name} in StatefulSet {set} failed error: {{error}}");
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        on_success: Some(event(view, false, "SuccessfulDelete", deleted)),
        // As in kube-controller-manager, the event is emitted for a pod that is gone as well.
        tells_absence: true,
        on_failure: Some(event(view, true, "FailedDelete", failed)),
        ..Write::new(&PODS, Key::of(&pod.metadata), Verb::delete(pod.metadata.uid.clone()))
    }
}

pub(super) fn not_updated(view: &View, pod: &str, error: &str) -> EventSpec {
    let set = &view.set.metadata.name;
    event(view, true, "FailedUpdate", format!("Update Pod {pod} in StatefulSet {set} failed error: {error}"))
}

/// Spelt as the original spells it.
fn conflict(view: &View, claim: &str) -> EventSpec {
    let message = format!(
        "PersistentVolumeClaim {claim} has a conflicting OwnerReference that acts as a manging controller, the \
         retention policy is ignored for this claim"
    );
    event(view, true, "ConflictingController", message)
}

//! Why the plan for one StatefulSet is what it is, in words. Decides nothing.

use jiff::Timestamp;

use super::super::view::{View, is_made_of};
use super::members::Members;
use super::ordinals::{Ordinals, ordinal_of, pod_name};
use super::owners::{self, Policy};
use super::pods::{is_available, is_healthy, is_unavailable};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::pods;
use coxswain_machinery::model::words::{count, names, time, verb};

pub(in super::super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    let members = Members::of(view);
    let told = Told { view, kept: &members.kept, ordinals: Ordinals::of(&view.set), now };
    let mut reasons = vec![told.counts()];
    if view.set.metadata.is_deleting() {
        reasons.push("The StatefulSet is being deleted; no pod is created, replaced or deleted.".to_owned());
        if view.present.revision().is_none() {
            reasons.push(
                "The template has no ControllerRevision yet; the controller creates one, because the status must name \
                 the ControllerRevision."
                    .to_owned(),
            );
        }
        return reasons;
    }
    if members.change() {
        reasons.extend(members.told());
        return reasons;
    }
    if view.present.revision().is_none() {
        reasons.push(
            "The template has no ControllerRevision yet; the controller creates one before any pod."
                .to_owned(),
        );
        return reasons;
    }
    let is_parallel = view.set.spec.pod_management_policy == "Parallel";
    match told.first_to_wait_for() {
        Some((ordinal, state)) if !is_parallel => {
            reasons.push(state);
            let others = ordinal < *told.ordinals.all().end() || told.surplus().next().is_some();
            if others {
                reasons.push(format!(
                    "No other pod is changed until {} is available (podManagementPolicy is OrderedReady).",
                    told.name(ordinal)
                ));
            }
        }
        Some(_) => {
            let states = told.ordinals.all().filter_map(|ordinal| told.state(ordinal));
            reasons.extend(states.take(MOST_STATES));
        }
        None => {}
    }
    let mut surplus: Vec<_> = told.surplus().collect();
    surplus.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
    if !surplus.is_empty() {
        reasons.push(format!(
            "{} {} beyond the desired replicas; the highest ordinal is deleted first.",
            names(surplus.iter().map(|(_, pod)| &pod.metadata.name)),
            verb(surplus.len(), "is", "are")
        ));
    }
    reasons.extend(told.update());
    reasons
}

/// Pods whose state is told, where all are made at once.
const MOST_STATES: usize = 5;

struct Told<'a> {
    view: &'a View,
    kept: &'a [&'a Pod],
    ordinals: Ordinals,
    now: Timestamp,
}

impl<'a> Told<'a> {
    fn name(&self, ordinal: i32) -> String {
        pod_name(&self.view.set.metadata.name, ordinal).to_string()
    }

    fn pod(&self, ordinal: i32) -> Option<&'a Pod> {
        let name = self.name(ordinal);
        self.kept.iter().copied().find(|pod| *pod.metadata.name == *name)
    }

    fn counts(&self) -> String {
        let set = &self.view.set;
        let number = |test: &dyn Fn(&Pod) -> bool| self.kept.iter().filter(|pod| test(pod)).count();
        format!(
            "{} desired, {} existing: {} ready, {} available.",
            count(self.ordinals.all().count(), "replica"),
            self.kept.len(),
            number(&is_healthy),
            number(&|pod| is_available(set, pod, self.now))
        )
    }

    fn first_to_wait_for(&self) -> Option<(i32, String)> {
        self.ordinals.all().find_map(|ordinal| Some((ordinal, self.state(ordinal)?)))
    }

    /// What keeps a replica from being available; `None` of one that is.
    fn state(&self, ordinal: i32) -> Option<String> {
        let name = self.name(ordinal);
        let Some(pod) = self.pod(ordinal) else {
            return Some(self.missing(&name, ordinal));
        };
        if !is_unavailable(&self.view.set, pod, self.now) {
            return None;
        }
        let min_ready = self.view.set.spec.min_ready_seconds;
        let wait = pods::available_in(pod, min_ready, self.now).filter(|wait| !wait.is_zero());
        Some(match (pod.status.phase.as_str(), wait) {
            _ if pod.metadata.is_deleting() => {
                format!("{name} is terminating; a pod of the same name is created after the deletion.")
            }
            ("Failed" | "Succeeded", _) => {
                format!("{name} has finished ({}); it is deleted and created again.", pod.status.phase)
            }
            (_, Some(wait)) => format!(
                "{name} is ready and becomes available in {} (minReadySeconds is {min_ready}).",
                time(wait)
            ),
            ("", _) => format!("{name} was created and has no phase yet."),
            (phase, _) => format!("{name} is {phase} and not ready."),
        })
    }

    /// Of a pod that is not there: that it is made, or what keeps it from being made.
    fn missing(&self, name: &str, ordinal: i32) -> String {
        let view = self.view;
        let held = view
            .templates
            .iter()
            .filter_map(|template| view.claims.get(&template.claim_name(&view.set.metadata.name, ordinal)));
        let policy = Policy::of(view);
        for claim in held {
            let claim_name = &claim.metadata.name;
            if claim.metadata.is_deleting() {
                return format!(
                    "{name} is created after its claim {claim_name}, which is terminating, is deleted."
                );
            }
            if owners::is_stale(policy, name, claim) {
                return format!(
                    "{name} is created after its claim {claim_name} is deleted; the claim belongs to an earlier \
                     pod, and persistentVolumeClaimRetentionPolicy.whenScaled is Delete."
                );
            }
        }
        format!("{name} does not exist; it is created, with its missing claims.")
    }

    /// Pods whose ordinals are not those of replicas, with these.
    fn surplus(&self) -> impl Iterator<Item = (i32, &'a Pod)> {
        let set = &self.view.set.metadata.name;
        let ordinals: Ordinals = self.ordinals;
        let numbered =
            self.kept.iter().filter_map(|pod| Some((ordinal_of(set, &pod.metadata.name).flatten()?, *pod)));
        numbered.filter(move |(ordinal, _)| !ordinals.contains(*ordinal))
    }

    /// How far the template is rolled out.
    fn update(&self) -> Option<String> {
        let set = &self.view.set;
        let present = &self.view.present.revision()?.metadata.name;
        let is_old = |ordinal: &i32| self.pod(*ordinal).is_some_and(|pod| !is_made_of(pod, present.as_str()));
        let all: Vec<i32> = self.ordinals.all().filter(is_old).collect();
        if all.is_empty() {
            return None;
        }
        let number = all.len();
        let old = format!(
            "{} {} not of the update revision {present}",
            names(all.iter().map(|ordinal| self.name(*ordinal))),
            verb(number, "is", "are")
        );
        if set.spec.update_strategy.r#type == "OnDelete" {
            let them = verb(number, "it", "them");
            return Some(format!("{old}; the updateStrategy is OnDelete, so you must delete {them}."));
        }
        let rolling = set.spec.update_strategy.rolling_update.as_deref();
        let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0);
        let candidates = self.ordinals.from(partition);
        // Linear: no, `candidates` is a range.
        let Some(next) = all.iter().rev().find(|ordinal| candidates.contains(*ordinal)) else {
            return Some(format!("{old}, but below the partition of {partition}; no pod is replaced."));
        };
        let waited_for = candidates.clone().rev().take_while(|ordinal| ordinal > next);
        let waited_for = waited_for.filter(|ordinal| self.state(*ordinal).is_some()).last();
        Some(match waited_for.filter(|_| !self.view.gates.max_unavailable) {
            Some(ordinal) => {
                format!("{old}; {} is replaced when {} is available.", self.name(*next), self.name(ordinal))
            }
            None => format!("{old}; {} is replaced next, in descending order of ordinals.", self.name(*next)),
        })
    }
}

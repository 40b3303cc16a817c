//! Which pods go, why, and what is said of them before.

use hashbrown::hash_map::Entry;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::view::{NodeView, RoundView, is_over};
use super::{QUARANTINE, ROUND};
use crate::live_reads::GONE_NODE;
use coxswain_machinery::api::kinds::{NODES, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::{Chain, Expect, Patch, Tolerate, Verb, Verify};
use coxswain_machinery::model::pods::DISRUPTION_TARGET;
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Time;

/// Why a pod goes, as the original's metrics call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    Terminated,
    OutOfService,
    Orphaned,
    Unscheduled,
}

impl Reason {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::OutOfService => "out-of-service",
            Self::Orphaned => "orphaned",
            Self::Unscheduled => "unscheduled",
        }
    }
}

/// What a plan tells beside its steps: the pods that go, and why.
#[derive(Clone, Debug, Default)]
pub(super) struct Note {
    pub(super) pods: HashMap<Key, Reason>,
}

/// Finished pods beyond the threshold, and those that are being deleted and whom no kubelet ends. A pod for which there are two
/// reasons goes once, for the first.
pub(super) fn round(view: &RoundView, now: Timestamp) -> Plan<Note> {
    let mut finished: Vec<&Pod> = view.finished.iter().map(AsRef::as_ref).collect();
    let surplus = finished.len().saturating_sub(view.keep);
    if surplus > 0 {
        finished.sort_by(|one, other| order(one).cmp(&order(other)));
    }
    let terminated = finished.into_iter().take(surplus).map(|pod| (pod, Reason::Terminated));
    let out_of_service = view.out_of_service.iter().map(|pod| (&**pod, Reason::OutOfService));
    let unscheduled = view.unscheduled.iter().map(|pod| (&**pod, Reason::Unscheduled));
    let mut plan = Plan { requeue_after: Some(ROUND), end: true, ..Plan::default() };
    if !view.unread.is_empty() {
        // The round collects all other pods, and the backoff does not delay the next round.
        plan.retry = Some(view.unread.join("; "));
        plan.deadline = Some(ROUND);
    }
    let (chains, note) = chains(terminated.chain(out_of_service).chain(unscheduled), now);
    if !chains.is_empty() {
        plan.steps.push(Step::Chains { chains, slow_start: false });
    }
    plan.with_note(note)
}

/// All pods of the node, if it is not there. Where all of them are over there is no timer: a change of one of them calls the node.
pub(super) fn gone_node(view: &NodeView, now: Timestamp) -> Plan<Note> {
    let (chains, note) = chains(view.pods.iter().map(|pod| (&**pod, Reason::Orphaned)), now);
    if chains.is_empty() {
        return Plan::default().with_note(note);
    }
    let is_gone = Verify {
        read: &GONE_NODE,
        kind: &NODES,
        key: Key::new("", view.node.clone()),
        expect: Expect::Absent,
    };
    let steps = vec![Step::Verify(is_gone), Step::Chains { chains, slow_start: false }];
    Plan { steps, requeue_after: Some(QUARANTINE), end: true, ..Plan::default() }.with_note(note)
}

/// Evicted ones go first, then the oldest.
fn order(pod: &Pod) -> impl Ord + '_ {
    let is_evicted = pod.status.phase == "Failed" && pod.status.reason == "Evicted";
    (!is_evicted, pod.metadata.creation_timestamp, &pod.metadata.name, &pod.metadata.namespace)
}

fn chains<'a>(pods: impl Iterator<Item = (&'a Pod, Reason)>, now: Timestamp) -> (Vec<Chain>, Note) {
    let mut note = Note::default();
    let mut chains = Vec::new();
    for (pod, reason) in pods.filter(|(pod, _)| !is_over(pod)) {
        if let Entry::Vacant(entry) = note.pods.entry(Key::of(&pod.metadata)) {
            entry.insert(reason);
            chains.push(ending(pod, reason, now));
        }
    }
    (chains, note)
}

/// What ends a pod. One that has not finished fails only as it was seen: the cache may be late, and the pod may have succeeded by
/// now. Then it stays until it is looked at again.
fn ending(pod: &Pod, reason: Reason, now: Timestamp) -> Chain {
    let key = Key::of(&pod.metadata);
    let delete = Verb::Delete {
        uid: pod.metadata.uid.clone(),
        resource_version: None,
        propagation: None,
        grace_period: Some(0),
    };
    // One that is gone, or whose name another pod bears by now, is what was wanted.
    let delete = Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&PODS, key.clone(), delete)
    };
    if pod.is_finished() {
        return vec![delete];
    }
    let patch = Verb::Patch(Patch::Strategic(failed(pod, reason, now)));
    vec![Write::new(&PODS, key, patch).on("status"), delete]
}

/// What its status is to say.
fn failed(pod: &Pod, reason: Reason, now: Timestamp) -> Value {
    let generation = pod.metadata.generation;
    let mut status = json!({ "phase": "Failed" });
    if generation != 0 {
        status["observedGeneration"] = generation.into();
    }
    if reason == Reason::Orphaned {
        let mut condition = json!({
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        });
        if generation != 0 {
            condition["observedGeneration"] = generation.into();
        }
        let is_so_already = pod.condition(DISRUPTION_TARGET).is_some_and(|held| held.status == "True");
        if !is_so_already {
            condition["lastTransitionTime"] = Time::from(now).to_string().into();
        }
        status["conditions"] = json!([condition]);
    }
    let metadata = json!({ "uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version });
    json!({ "metadata": metadata, "status": status })
}

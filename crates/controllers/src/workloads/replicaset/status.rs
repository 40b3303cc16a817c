//! What a ReplicaSet's status should say, and the bytes of one that says so. Pure.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::view::View;
use coxswain_machinery::api::apps::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::{Key, Write, pods};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message, Reader, Time, WireError, field, path};

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// How creating or deleting pods went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scaling {
    /// It went well, or is going to: the status is written only after it did.
    Succeeded,
    /// A create was refused, with this message.
    CreateFailed(String),
    /// A delete was refused, with this message.
    DeleteFailed(String),
}

/// What the status should say.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Desired {
    replicas: i32,
    fully_labeled: i32,
    ready: i32,
    available: i32,
    terminating: Option<i32>,
    failure: FailureCondition,
}

/// What becomes of the condition `ReplicaFailure`. While a failure lasts, the first message stays.
#[derive(Clone, Debug, PartialEq)]
enum FailureCondition {
    AsItIs,
    Removed,
    Added(ReplicaSetCondition),
}

/// The status for the active pods `kept`.
pub(super) fn of(view: &View, kept: &[&Pod], scaling: &Scaling, now: Timestamp) -> Desired {
    let min_ready = view.replica_set.spec.min_ready_seconds;
    let count = |test: &dyn Fn(&Pod) -> bool| kept.iter().filter(|pod| test(pod)).count() as i32;
    let fully_labeled = |pod: &Pod| {
        let labels = &pod.metadata.labels;
        // Linear: every pod is compared with the labels of the template.
        view.template_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    Desired {
        replicas: kept.len() as i32,
        fully_labeled: count(&fully_labeled),
        ready: count(&Pod::is_ready),
        available: count(&|pod| pods::is_available(pod, min_ready, now)),
        terminating: view.gates.terminating_replicas.then(|| terminating(view)),
        failure: failure_condition(&view.replica_set, scaling, now),
    }
}

/// Terminating pods that are the ReplicaSet's own and still selected.
fn terminating(view: &View) -> i32 {
    let counts = |pod: &Pod| {
        pods::is_terminating(pod)
            && pod.metadata.is_controlled_by(&view.replica_set.metadata)
            && view.selector.matches(&pod.metadata.labels)
    };
    view.pods.iter().filter(|pod| counts(pod)).count() as i32
}

fn failure_condition(replica_set: &ReplicaSet, scaling: &Scaling, now: Timestamp) -> FailureCondition {
    let reported = replica_set.status.conditions.iter().any(|held| held.r#type == REPLICA_FAILURE);
    let (reason, message) = match scaling {
        Scaling::Succeeded if reported => return FailureCondition::Removed,
        _ if reported => return FailureCondition::AsItIs,
        Scaling::Succeeded => return FailureCondition::AsItIs,
        Scaling::CreateFailed(message) => ("FailedCreate", message.clone()),
        Scaling::DeleteFailed(message) => ("FailedDelete", format!("unable to delete pods: {message}")),
    };
    FailureCondition::Added(ReplicaSetCondition {
        r#type: REPLICA_FAILURE.into(),
        status: "True".into(),
        last_transition_time: Some(Time::from(now)),
        reason: reason.into(),
        message: message.into(),
    })
}

/// When to look again although nothing happens: when the next ready pod becomes available. A ready pod that does not
/// say since when it is is looked at once per `minReadySeconds`.
pub(super) fn next_look(view: &View, kept: &[&Pod], status: &Desired, now: Timestamp) -> Option<Duration> {
    let min_ready = view.replica_set.spec.min_ready_seconds;
    if min_ready <= 0 || status.ready == status.available {
        return None;
    }
    let next = pods::next_availability(kept.iter().copied(), min_ready, now);
    next.or(Some(Duration::from_secs(u64::from(min_ready.unsigned_abs()))))
}

impl Desired {
    /// Whether the ReplicaSet's status says so already.
    fn is_said_by(&self, replica_set: &ReplicaSet) -> bool {
        let said = &replica_set.status;
        self.is_counted_by(replica_set)
            && said.observed_generation == replica_set.metadata.generation
            // With the gate off the count is cleared at once.
            && said.terminating_replicas == self.terminating
    }

    /// Whether the ReplicaSet's status counts the same pods, if of an earlier generation.
    pub(super) fn is_counted_by(&self, replica_set: &ReplicaSet) -> bool {
        let said = &replica_set.status;
        self.failure == FailureCondition::AsItIs
            && said.replicas == self.replicas
            && said.fully_labeled_replicas == self.fully_labeled
            && said.ready_replicas == self.ready
            && said.available_replicas == self.available
            && self.terminating.is_none_or(|count| said.terminating_replicas.unwrap_or(0) == count)
    }
}

/// The update that makes the status say so; `None` when it does already. A ReplicaSet that is gone needs none.
pub(super) fn write(view: &View, status: &Desired) -> Result<Option<Write>, WireError> {
    let replica_set = &view.replica_set;
    if status.is_said_by(replica_set) {
        return Ok(None);
    }
    let verb = Verb::Update(spliced(replica_set, status)?);
    Ok(Some(Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(view.kind, Key::of(&replica_set.metadata), verb).on("status")
    }))
}

/// The ReplicaSet's own bytes with the new status in them.
fn spliced(replica_set: &ReplicaSet, status: &Desired) -> Result<Bytes, WireError> {
    let number = |path, value: i64| Edit::SetVarint(path, value as u64);
    let terminating = path!(ReplicaSetStatus, terminatingReplicas);
    let mut edits = vec![
        number(path!(ReplicaSetStatus, replicas), status.replicas.into()),
        number(path!(ReplicaSetStatus, fullyLabeledReplicas), status.fully_labeled.into()),
        number(path!(ReplicaSetStatus, observedGeneration), replica_set.metadata.generation),
        number(path!(ReplicaSetStatus, readyReplicas), status.ready.into()),
        number(path!(ReplicaSetStatus, availableReplicas), status.available.into()),
    ];
    match status.terminating {
        Some(count) => edits.push(number(terminating, count.into())),
        // A kind that has no such field may have another one of its number one day.
        None if replica_set.status.terminating_replicas.is_none() => {}
        None => edits.push(Edit::Clear(terminating)),
    }
    if let FailureCondition::Added(condition) = &status.failure {
        edits.push(Edit::Push(path!(ReplicaSetStatus, conditions), condition.to_bytes()));
    }
    let held = held_status(&replica_set.raw, status.failure == FailureCondition::Removed)?;
    let status = edit(&held, &edits)?;
    edit(&replica_set.raw, &[Edit::SetBytes(path!(ReplicaSet, status), status)]).map(Bytes::from)
}

/// The fields of the status as they are, without the condition `ReplicaFailure` when it is to go.
fn held_status(object: &[u8], without_failure: bool) -> Result<Vec<u8>, WireError> {
    let mut kept = Vec::new();
    let mut fields = Reader::new(object);
    while let Some((number, value)) = fields.next_field()? {
        if number != field!(ReplicaSet, status) {
            continue;
        }
        let mut status = Reader::new(value.bytes()?);
        while let Some((number, value, raw)) = status.next_raw()? {
            if !(without_failure
                && number == field!(ReplicaSetStatus, conditions)
                && is_failure(value.bytes()?)?)
            {
                kept.extend_from_slice(raw);
            }
        }
    }
    Ok(kept)
}

fn is_failure(condition: &[u8]) -> Result<bool, WireError> {
    let condition = ReplicaSetCondition::decode(&Bytes::copy_from_slice(condition))?;
    Ok(condition.r#type == REPLICA_FAILURE)
}

//! What the tests of rooms are made of in common: a time, labels, and what becomes of pods. Each room has objects of its own.

use jiff::Timestamp;

use coxswain_machinery::api::pod::{Pod, PodCondition};
use coxswain_machinery::wire::{Labels, Time};

/// When it is, in seconds of Unix time.
pub(crate) const NOW: i64 = 1_700_000_000;

pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

pub(crate) fn ago(seconds: i64) -> Option<Time> {
    Time::from_seconds(NOW - seconds)
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

/// That a pod is ready since then.
pub(crate) fn ready(since: Option<Time>) -> PodCondition {
    PodCondition {
        r#type: "Ready".into(),
        status: "True".into(),
        last_transition_time: since,
        ..PodCondition::default()
    }
}

pub(crate) fn unready(pod: &mut Pod) {
    pod.status.conditions.clear();
}

pub(crate) fn failed(pod: &mut Pod) {
    unready(pod);
    pod.status.phase = "Failed".into();
}

pub(crate) fn deleting(pod: &mut Pod) {
    pod.metadata.deletion_timestamp = ago(1);
}

pub(crate) fn orphaned(pod: &mut Pod) {
    pod.metadata.owner_references.clear();
}

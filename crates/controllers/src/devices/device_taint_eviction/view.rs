//! A pod, when it has to go and why, and what is remembered of it. Who is due is looked at live.

use std::sync::Arc;

use super::Controller;
use super::memory::Entry;
use super::verdict::{Source, Verdict};
use super::world::World;
use crate::live_reads::EVICTION_EVIDENCE;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::kinds::{DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashSet;

/// Everything that a decision rests on.
#[derive(Debug)]
pub(super) struct View {
    /// Absent if it is gone, or not bound.
    pub(super) pod: Option<Arc<Pod>>,
    /// When it has to go; `None` if it may stay.
    pub(super) verdict: Option<Verdict>,
    /// What is remembered of this very pod.
    pub(super) entry: Option<Entry>,
    /// It was deleted already.
    pub(super) is_evicted: bool,
    /// The pod and what it goes for were read live, because it is due.
    pub(super) live: Option<Live>,
}

/// A pod, read live.
#[derive(Debug)]
pub(super) enum Live {
    /// It is gone, or another one has its name.
    Gone,
    /// It is there.
    There(Arc<Pod>),
}

pub(super) fn observe(room: &Controller, key: &Key, read: &Reads) -> Result<Observation<View>, ObserveError> {
    let pod = room.pods.get(key).filter(|pod| !pod.spec.node_name.is_empty());
    let entry = room.timers.entry(key);
    if pod.is_none() && entry.is_none() {
        return Ok(Observation::Nothing);
    }
    let world = World { caches: &room.caches, read, supposing: None };
    let verdict = pod.as_ref().and_then(|pod| world.verdict(pod));
    let uid = pod.as_ref().map(|pod| &pod.metadata.uid);
    let mut view = View {
        entry: entry.filter(|entry| Some(&entry.uid) == uid),
        is_evicted: uid.is_some_and(|uid| room.timers.is_evicted(uid)),
        pod,
        verdict,
        live: None,
    };
    let is_due = view.entry.as_ref().is_some_and(|entry| entry.is_due) && !view.is_evicted;
    let (Some(pod), Some(verdict)) = (&view.pod, view.verdict.as_ref().filter(|_| is_due)) else {
        return Ok(Observation::View(view));
    };
    let mut needs = Vec::new();
    for (kind, key) in evidence(key, verdict) {
        match read.object(kind, &key) {
            None => needs.push(EVICTION_EVIDENCE.of(Read::Object(kind, key))),
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                return Err(ObserveError::Retry(format!("read {kind} {key}: {error}")));
            }
        }
    }
    if !needs.is_empty() {
        return Ok(Observation::Needs(needs));
    }
    let found = read.object(&PODS, key).and_then(Result::ok).flatten().cloned().and_then(downcast::<Pod>);
    let found = found.filter(|found| found.metadata.uid == pod.metadata.uid);
    view.live = Some(found.map_or(Live::Gone, Live::There));
    Ok(Observation::View(view))
}

/// What a pod's end rests on.
fn evidence(pod: &Key, verdict: &Verdict) -> Vec<(&'static Kind, Key)> {
    let mut evidence = vec![(&PODS as &'static Kind, pod.clone())];
    evidence.extend(verdict.claims.iter().map(|claim| (&RESOURCE_CLAIMS as &'static Kind, claim.clone())));
    let mut named = HashSet::default();
    for source in &verdict.sources {
        let (kind, name): (&'static Kind, _) = match source {
            Source::Rule { name, .. } => (&DEVICE_TAINT_RULES, name),
            Source::Slice { slice, .. } => (&RESOURCE_SLICES, slice),
        };
        let object = (kind, Key::new("", name.clone()));
        if named.insert((kind.kind, name.clone())) {
            evidence.push(object);
        }
    }
    evidence
}

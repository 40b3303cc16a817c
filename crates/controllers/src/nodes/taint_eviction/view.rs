//! A pod, its node's taints, and what is remembered of it.

use std::sync::Arc;
use std::time::Duration;

use super::Controller;
use super::memory::Entry;
use crate::live_reads::{TAINTED_NODE, TAINTED_POD};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::{NODES, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::{Failure, Key};

/// Everything that a decision rests on.
#[derive(Debug)]
pub(super) struct View {
    pub(super) key: Key,
    /// Absent if it is gone, or not bound.
    pub(super) pod: Option<Arc<Pod>>,
    /// Its node, read live if the pod is to go; absent if that is gone.
    pub(super) node: Option<Arc<Node>>,
    /// What is remembered of this name, be it of this pod or of another one.
    pub(super) entry: Option<Entry>,
    /// The present time, as entries have it.
    pub(super) now: Duration,
    /// Whether tolerations may compare numbers.
    pub(super) comparing: bool,
    /// Whether this reconcile has failed.
    pub(super) has_failed: bool,
    /// Whether the pod was read live, because several writes in a row met a conflict.
    pub(super) is_contended: bool,
}

pub(super) fn observe(
    room: &Controller,
    key: &Key,
    failures: &[Failure],
    read: &Reads,
) -> Result<Observation<View>, ObserveError> {
    let pod = room.pods.get(key).filter(|pod| !pod.spec.node_name.is_empty());
    let entry = room.timers.entry(key);
    if pod.is_none() && entry.is_none() {
        return Ok(Observation::Nothing);
    }
    let place = pod.as_ref().map(|pod| Key::new("", pod.spec.node_name.clone()));
    let mut view = View {
        key: key.clone(),
        node: place.as_ref().and_then(|place| room.nodes.get(place)),
        pod,
        entry,
        now: room.timers.now(),
        comparing: room.comparing,
        has_failed: !failures.is_empty(),
        is_contended: false,
    };
    let Some(place) = place.filter(|_| view.goes() && !view.has_failed) else {
        return Ok(Observation::View(view));
    };
    if let Some(cached) = view.pod.clone() {
        match read.current(&TAINTED_POD, &PODS, cached)? {
            Observation::View(pod) => {
                view.pod = Some(pod);
                view.is_contended = read.is_contended();
            }
            Observation::Needs(needs) => return Ok(Observation::Needs(needs)),
            // The write of the cached pod is refused, and the watch calls the key.
            Observation::Nothing => {}
        }
    }
    view.node = match read.object(&NODES, &place) {
        None => return Ok(Observation::Needs(vec![TAINTED_NODE.of(Read::Object(&NODES, place))])),
        Some(Ok(found)) => found.cloned().and_then(downcast),
        Some(Err(error)) => return Err(ObserveError::Retry(format!("read node of the pod: {error}"))),
    };
    Ok(Observation::View(view))
}

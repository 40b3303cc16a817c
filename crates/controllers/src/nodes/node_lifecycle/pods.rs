//! The loop that says of pods on a node that is lost that they are not ready: Services must not send anybody there.
//!
//! Pods are looked at when they are bound, when this process is new, and when their node was marked: at a rate that the client's
//! limits bound. One that is not ready already, or says nothing of that, is left alone. Nothing is said while the view of nodes is
//! not known to be current.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::memory::FleetMemory;
use super::taints::{condition, is_marked};
use crate::live_reads::STRANDED_POD;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{KeyMap, Observation, ObserveError, Reads, Room};
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::plan::{EventSpec, Patch, Regarding, Tolerate, Verb};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::wire::Time;

/// When a pod is looked at again whose node was not looked at yet.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A pod that is new or newly bound concerns itself.
pub(super) fn of_pods() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Pod>();
        let Some(pod) = new.filter(|pod| !pod.spec.node_name.is_empty() && !delta.resync) else { return };
        if old.is_none_or(|old| old.spec.node_name != pod.spec.node_name) {
            add(Key::of(&pod.metadata));
        }
    })
}

/// A node that was ready, and that this controller has marked, concerns the pods that are bound to it.
pub(super) fn of_nodes(pods: Indexed<Pod>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (Some(old), Some(new)) = delta.typed::<Node>() else { return };
        if old.is_ready() && is_marked(new) {
            for pod in pods.filed(&new.metadata.name) {
                add(Key::of(&pod.metadata));
            }
        }
    })
}

/// The room.
pub(super) struct Pods {
    pub(super) lister: Lister<Pod>,
    pub(super) nodes: Lister<Node>,
    pub(super) memory: Arc<FleetMemory>,
}

/// A pod that says that it is ready, or does not know, on a node that is not.
#[derive(Debug)]
pub(super) struct Stranded {
    pod: Arc<Pod>,
    /// Whether its node was looked at, and the view of nodes is current.
    is_judged: bool,
}

impl Room for Pods {
    type View = Stranded;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<Stranded>, ObserveError> {
        let is_told_ready =
            |pod: &Arc<Pod>| pod.condition("Ready").is_some_and(|held| held.status != "False");
        let is_lost = |pod: &Arc<Pod>| {
            let node = self.nodes.get(&Key::new("", pod.spec.node_name.clone()));
            let ready = node.as_ref().and_then(|node| condition(node, "Ready"));
            ready.is_some_and(|status| status != "True")
        };
        let Some(pod) = self.lister.get(key).filter(is_told_ready).filter(is_lost) else {
            return Ok(Observation::Nothing);
        };
        let current = read.current(&STRANDED_POD, &PODS, pod)?;
        let is_judged = |pod: &Pod| {
            self.memory.knows(&pod.spec.node_name) && self.memory.deliveries.covered().silent_for.is_none()
        };
        Ok(current.and_then(|pod| is_told_ready(&pod).then(|| Stranded { is_judged: is_judged(&pod), pod })))
    }

    fn plan(view: &Stranded, now: Timestamp) -> Plan {
        if !view.is_judged {
            return Plan { requeue_after: Some(LOOK_AGAIN), ..Plan::default() };
        }
        let metadata = &view.pod.metadata;
        let patch = json!({
            "metadata": { "uid": metadata.uid, "resourceVersion": metadata.resource_version },
            "status": { "conditions": [
                { "type": "Ready", "status": "False", "lastTransitionTime": Time::from(now).to_string() },
            ] },
        });
        let told = EventSpec {
            regarding: Regarding::of(&PODS, metadata),
            warning: true,
            reason: "NodeNotReady",
            message: "Node is not ready".to_owned(),
        };
        let patch = Verb::Patch(Patch::Strategic(patch));
        let write = Write {
            tolerate: Tolerate { absent: true, ..Tolerate::default() },
            on_success: Some(told),
            ..Write::new(&PODS, Key::of(metadata), patch).on("status")
        };
        Plan { steps: vec![Step::Write(write)], ..Plan::default() }
    }

    fn reasons(view: &Stranded, _: Timestamp) -> Vec<String> {
        let node = &view.pod.spec.node_name;
        let follows = if view.is_judged {
            "the pod is marked as not ready"
        } else {
            "the pod is not changed before the node's health is evaluated"
        };
        vec![format!("The node {node} is not ready, and the pod is ready; {follows}.")]
    }
}

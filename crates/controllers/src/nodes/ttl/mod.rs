//! Writes on every node for how long its kubelet may cache Secrets and ConfigMaps, by the size of the cluster, as an annotation.
//! Kubelets that watch, as they do by default, do not read it.
//!
//! The size is counted as nodes come and go, and moves the time by one step at most each ([`steps`]). A change of a node, a
//! heartbeat too, concerns its own key; a step concerns nobody: nodes follow it with their next updates, so that a large
//! cluster is not written to all at once.
//!
//! It never reads a node live: its role does not grant that. A new instance counts from none, as the original does.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter, wake,
};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod plan;
mod steps;
#[cfg(test)]
mod tests;
mod view;

use steps::Size;
use view::View;

/// Nodes that are dealt with at the same time, as in the original.
const WORKERS: usize = 5;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "ttl-controller",
    aliases: &["ttl"],
    description: "Sets the time for which kubelets may cache Secrets and ConfigMaps, by cluster size.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("ttl-controller"),
    event_source: None,
    writes: &[
        Grant { group: "", resource: "nodes", verbs: &["list", "patch", "watch"] },
        // Granted, and never used: there is nothing to tell.
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let nodes = build.watch::<Node>(&NODES);
    let size = Arc::new(Size::default());
    let room = Controller { nodes: nodes.lister(), size: Arc::clone(&size) };
    Ok(Built {
        loops: vec![Loop {
            queue: "ttlcontroller",
            kind: Some(&NODES),
            settings: LoopSettings { workers: WORKERS, ..LoopSettings::default() },
            wake_ups: vec![nodes.wakes(counted(size))],
            reconcile: Arc::new(RoomAdapter::new(room)),
        }],
    })
}

/// A node that is there concerns its own key. Those that come and go are counted.
fn counted(size: Arc<Size>) -> KeyMap {
    let existing = wake::existing();
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        match (delta.old, delta.new) {
            (None, Some(_)) => size.grow(),
            (Some(_), None) => size.shrink(),
            _ => {}
        }
        existing(delta, add);
    })
}

/// The room: what it reads, and how large the cluster is.
struct Controller {
    nodes: Lister<Node>,
    size: Arc<Size>,
}

impl Room for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key).into())
    }

    fn plan(view: &View, _: Timestamp) -> Plan {
        plan::plan(view)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        plan::reasons(view)
    }
}

//! Blocks of Pod addresses for nodes, out of the ranges of `--cluster-cidr`: one of each range, written once, never changed. See
//! KEP-563 for two families. It runs with `--allocate-node-cidrs` only.
//!
//! Nodes are the record of who has what ([`pool`]), and nothing is reserved: the loop is serial, so that no node is given a block
//! before the cache has seen what was given to any other, also where an answer was lost, or where another process gave it before this
//! instance started. One plan gives blocks to up to 64 nodes that have
//! none, so that a burst of nodes does not wait for as many round trips of the watch. A node that was there before with ranges
//! that do not fit keeps everybody from getting one: which blocks are free is not known then. The original does not start.
//! Differs: no-reservations. Differs: nodes-outside-the-ranges.
//!
//! It never touches a node that has any range, however few.

use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;

use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::options::Flags;

mod blocks;
mod metrics;
mod plan;
mod pool;
#[cfg(test)]
mod tests;
mod view;

use blocks::Blocks;
use coxswain_machinery::model::addresses::parse_range;
use metrics::Metrics;
use pool::{Note, Pool};
use view::View;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "node-ipam-controller",
    aliases: &["nodeipam"],
    description: "Allocates the Pod CIDRs of each Node.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("node-controller"),
    event_source: Some("cidrAllocator"),
    writes: &[
        Grant { group: "", resource: "nodes", verbs: &["get", "list", "patch", "watch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let flags = &build.config.flags;
    if !flags.allocate_node_cidrs {
        return Err(BuildError::Skipped("--allocate-node-cidrs is off".to_owned()));
    }
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let nodes = build.watch::<Node>(&NODES);
    let pool = Arc::new(Pool::new(ranges(flags)?, &services(flags), metrics));
    let room = Controller { nodes: nodes.lister(), pool: Arc::clone(&pool) };
    Ok(Built {
        loops: vec![Loop {
            queue: "cidrallocator_node",
            kind: Some(&NODES),
            settings: LoopSettings { serial: true, ..LoopSettings::default() },
            wake_ups: vec![nodes.wakes(followed_by(Arc::clone(&pool)))],
            reconcile: Arc::new(RoomAdapter::new(room).remembered_by(pool)),
        }],
    })
}

/// The ranges of the cluster in blocks, in the order of the flag.
fn ranges(flags: &Flags) -> Result<Vec<Blocks>, BuildError> {
    if flags.cidr_allocator_type != "RangeAllocator" {
        let message = format!("invalid CIDR allocator type: {}", flags.cidr_allocator_type);
        return Err(BuildError::Invalid(message));
    }
    let size = |range: &IpNet| {
        let (family, default) = match range {
            IpNet::V4(_) => (flags.node_cidr_mask_size_ipv4, 24),
            IpNet::V6(_) => (flags.node_cidr_mask_size_ipv6, 64),
        };
        let given = [family, flags.node_cidr_mask_size].into_iter().find(|size| *size > 0);
        given.and_then(|size| u8::try_from(size).ok()).unwrap_or(default)
    };
    let blocks = |text: &str| {
        let range = parse_range(text.trim())
            .ok_or_else(|| BuildError::Invalid(format!("--cluster-cidr: {text:?} is not a CIDR")))?;
        Ok(Blocks::new(range, size(&range)))
    };
    flags.cluster_cidr.split(',').map(blocks).collect()
}

/// What is for Services, and for nobody else.
fn services(flags: &Flags) -> Vec<IpNet> {
    flags.service_cluster_ip_range.split(',').filter_map(|text| parse_range(text.trim())).collect()
}

/// Keeps the pool up to date. A node that is there concerns its own key; one that goes, those that wait.
fn followed_by(pool: Arc<Pool>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Node>();
        pool.follow(old, new, delta.initial, add);
        if let Some(node) = new {
            // One that has its ranges is looked at once, should they not fit.
            let is_told = |node: &Node| !node.spec.pod_cidrs.is_empty();
            if !is_told(node) || !old.is_some_and(is_told) {
                add(Key::of(&node.metadata));
            }
        }
    })
}

/// The room: what it reads.
struct Controller {
    nodes: Lister<Node>,
    pool: Arc<Pool>,
}

impl Room<Note> for Controller {
    const HEEDS_FAILURES: bool = true;

    type View = View;

    fn observe(&self, key: &Key, failures: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(view::observe(self, key, failures).into())
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        plan::reasons(view)
    }
}

//! A node, and what is remembered of it.

use std::sync::Arc;

use super::Controller;
use super::fleet::{KnownNode, Rules};
use super::zones::{Zone, zone_of};
use crate::live_reads::CONDITIONED_NODE;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::framework::{Observation, ObserveError, Reads};
use coxswain_machinery::informer::Covered;
use coxswain_machinery::model::Key;

/// Everything that a decision rests on, and what explains it.
#[derive(Debug)]
pub(super) struct View {
    pub(super) node: Arc<Node>,
    pub(super) known: Option<KnownNode>,
    pub(super) zone: Option<Zone>,
    pub(super) is_stopped: bool,
    pub(super) covered: Covered,
    pub(super) rules: Rules,
}

pub(super) fn observe(room: &Controller, key: &Key, read: &Reads) -> Result<Observation<View>, ObserveError> {
    let Some(node) = room.nodes.get(key) else { return Ok(Observation::Nothing) };
    Ok(read.current(&CONDITIONED_NODE, &NODES, node)?.and_then(|node| Some(view(room, node))))
}

fn view(room: &Controller, node: Arc<Node>) -> View {
    let fleet = room.memory.fleet();
    View {
        known: fleet.nodes.get(&node.metadata.name).map(|(known, _)| known.clone()),
        zone: fleet.zones.get(&zone_of(&node)).cloned(),
        is_stopped: fleet.is_stopped,
        covered: room.memory.deliveries.covered(),
        rules: room.rules,
        node,
    }
}

//! A node, and what is remembered of it.

use std::sync::Arc;

use super::Controller;
use super::fleet::{KnownNode, Rules};
use super::zones::{Zone, zone_of};
use coxswain_machinery::api::core::Node;
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

pub(super) fn observe(room: &Controller, key: &Key) -> Option<View> {
    let node = room.nodes.get(key)?;
    let fleet = room.memory.fleet();
    Some(View {
        known: fleet.nodes.get(&node.metadata.name).map(|(known, _)| known.clone()),
        zone: fleet.zones.get(&zone_of(&node)).cloned(),
        is_stopped: fleet.is_stopped,
        covered: room.memory.deliveries.covered(),
        rules: room.rules,
        node,
    })
}

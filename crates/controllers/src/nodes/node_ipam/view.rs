//! A node, and what its own ranges are here.

use std::sync::Arc;

use super::Controller;
use super::pool::Standing;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::model::{Failure, Key};

/// Everything that a decision rests on.
#[derive(Debug)]
pub(super) struct View {
    pub(super) node: Arc<Node>,
    pub(super) standing: Standing,
    /// Number of patches in a row that have failed, if that of this reconcile has; otherwise 0.
    pub(super) failures: u32,
}

/// `None` also for a node that is going: its blocks stay taken until it is gone.
pub(super) fn observe(room: &Controller, key: &Key, failures: &[Failure]) -> Option<View> {
    let node = room.nodes.get(key).filter(|node| !node.metadata.is_deleting())?;
    let failures = if failures.is_empty() { 0 } else { room.pool.failures(key).saturating_add(1) };
    Some(View { standing: room.pool.standing(&node), failures, node })
}

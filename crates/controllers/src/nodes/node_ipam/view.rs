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
    /// The patch of this reconcile was refused.
    pub(super) has_failed: bool,
}

/// `None` also for a node that is going: its blocks stay taken until it is gone.
pub(super) fn observe(room: &Controller, key: &Key, failures: &[Failure]) -> Option<View> {
    let node = room.nodes.get(key).filter(|node| !node.metadata.is_deleting())?;
    Some(View { standing: room.pool.standing(&node), has_failed: !failures.is_empty(), node })
}

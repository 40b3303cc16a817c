//! A node, and what its annotation is to say.

use std::sync::Arc;

use super::Controller;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::model::Key;

/// Everything that a decision rests on.
#[derive(Debug)]
pub(super) struct View {
    pub(super) node: Arc<Node>,
    /// Nodes in the cluster.
    pub(super) count: usize,
    /// For how many seconds kubelets may cache.
    pub(super) seconds: u32,
}

pub(super) fn observe(room: &Controller, key: &Key) -> Option<View> {
    let node = room.nodes.get(key)?;
    let (count, seconds) = room.size.now();
    Some(View { node, count, seconds })
}

//! A node, and what its own ranges are here.

use std::sync::Arc;

use super::Controller;
use super::pool::{Allocation, BATCH, Standing};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::model::{Failure, Key};

/// Everything that a decision rests on.
#[derive(Debug)]
pub(super) struct View {
    pub(super) node: Arc<Node>,
    pub(super) standing: Standing,
    /// Number of patches in a row that have failed, if that of this reconcile has; otherwise 0.
    pub(super) failures: u32,
    /// Further nodes without ranges, and the blocks that they get in the same plan.
    pub(super) others: Vec<(Arc<Node>, Allocation)>,
    /// Further nodes whose patches have failed in this reconcile.
    pub(super) failed: Vec<Key>,
}

/// `None` also for a node that is going: its blocks stay taken until it is gone.
pub(super) fn observe(room: &Controller, key: &Key, failures: &[Failure]) -> Option<View> {
    let node = room.nodes.get(key).filter(|node| !node.metadata.is_deleting())?;
    let failed: Vec<Key> = failures.iter().map(|failure| failure.key.clone()).collect();
    let standing = room.pool.standing(&node);
    if !failed.is_empty() {
        let has_failed = failed.contains(key);
        let failures = if has_failed { room.pool.failures(key).saturating_add(1) } else { 0 };
        let failed = failed.into_iter().filter(|failed| failed != key).collect();
        return Some(View { node, standing, failures, others: Vec::new(), failed });
    }
    let mut others = Vec::new();
    if let Standing::Gets(blocks) = &standing {
        let bare = room.pool.bare(key).into_iter().filter_map(|other| room.nodes.get(&other));
        let nodes: Vec<Arc<Node>> =
            bare.filter(|node| !node.metadata.is_deleting()).take(BATCH - 1).collect();
        let allocations = room.pool.allocate(blocks, nodes.len());
        others = nodes.into_iter().zip(allocations).collect();
    }
    Some(View { node, standing, failures: 0, others, failed })
}

//! What the room reads, what it remembers and what it was told: its caches, books and flags. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use super::memory::Books;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::{
    CsiDriver, PersistentVolume, PersistentVolumeClaim, VolumeAttachment,
};
use coxswain_machinery::informer::{Indexed, Lister};

/// Everything that a look can see.
pub(super) struct World {
    /// Pods by node.
    pub(super) pods: Indexed<Pod>,
    /// All of them, for what is counted.
    pub(super) all_pods: Lister<Pod>,
    pub(super) nodes: Lister<Node>,
    /// Nodes by the volumes that they list.
    pub(super) listing: Indexed<Node>,
    pub(super) claims: Lister<PersistentVolumeClaim>,
    pub(super) volumes: Lister<PersistentVolume>,
    pub(super) attachments: Lister<VolumeAttachment>,
    /// VolumeAttachments by node.
    pub(super) attached_to: Indexed<VolumeAttachment>,
    pub(super) drivers: Lister<CsiDriver>,
    pub(super) books: Arc<Books>,
    pub(super) rules: Rules,
}

/// What flags say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// How often what is attached is compared with its VolumeAttachments; never if `None`.
    pub(super) period: Option<Duration>,
    /// Whether a volume is taken from a node that is not ready, once it had time enough.
    pub(super) is_forced: bool,
}

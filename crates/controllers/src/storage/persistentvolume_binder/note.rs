//! What a plan tells beside its steps: for the memory, and for metrics.

use jiff::Timestamp;

use coxswain_machinery::api::AnyObject;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::{Str, Uid};

use super::recycler::Release;

/// What a plan tells beside its steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Note {
    /// What this reconcile has written, as it was answered.
    pub(super) answers: Vec<AnyObject>,
    /// The volume that is about to be linked to the claim, and the version at which it was read.
    pub(super) reserves: Option<(Str, Str)>,
    /// What becomes of the volume's recycling.
    pub(super) recycling: Option<Recycling>,
    /// An operation on the object with this UID has failed.
    pub(super) failed: Option<Uid>,
    /// What metrics count of it.
    pub(super) counted: Vec<Counted>,
}

/// A step of the recycling of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recycling {
    /// A Pod is created at this key for this release.
    Begins(Release, Key),
    /// The API server has created the Pod with this UID.
    Created(Uid),
    /// The Pod has succeeded. This is remembered before the Pod is deleted, because the result of the delete may be unknown.
    Succeeded,
    /// The recycling has failed or lost its reason.
    Ended,
}

/// Something that is counted of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// Somebody was asked for a volume for the claim with this UID, or the volume with this UID is being reclaimed, by this plugin and
    /// since then.
    Began(Operation, Uid, Str, Timestamp),
    /// The claim with this UID is bound.
    Bound(Uid, Timestamp),
    /// The volume is gone.
    Gone(Timestamp),
    /// An attempt has failed.
    Failed(Operation, Str),
    /// A claim gets the default class.
    DefaultClass,
    /// The manager makes or deletes a directory in this plan.
    Directory(Operation),
    /// It refuses to.
    Refused(Operation),
}

/// What takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Provision,
    Delete,
}

impl Operation {
    /// As metrics of the binder call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Delete => "delete",
        }
    }

    /// As metrics of plugins call it.
    pub(super) fn of_plugin(self) -> &'static str {
        match self {
            Self::Provision => "volume_provision",
            Self::Delete => "volume_delete",
        }
    }
}

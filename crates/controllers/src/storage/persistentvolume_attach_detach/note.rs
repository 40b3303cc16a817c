//! What a plan tells beside its steps: the node's book from here on, and what the metrics count. Decides nothing.

use std::time::Duration;

use super::book::{Book, Task};
use super::source::Source;
use coxswain_machinery::wire::Str;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) book: Book,
    /// Whether the node is there.
    pub(super) is_there: bool,
    /// The VolumeAttachments from the start that are in the book by now, or need not be.
    pub(super) taken_up: Vec<Str>,
    /// Operations that have ended.
    pub(super) ended: Vec<Ended>,
    /// Volumes that are taken away whatever their node says: why.
    pub(super) forced: Vec<&'static str>,
}

/// An operation that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) task: Task,
    pub(super) plugin: String,
    pub(super) is_migrated: bool,
    pub(super) has_failed: bool,
    pub(super) took: Duration,
}

impl Ended {
    /// An operation on this volume, of which nothing may be known.
    pub(super) fn new(source: Option<&Source>, task: Task, has_failed: bool, took: Duration) -> Self {
        Self {
            task,
            plugin: source.map(Source::plugin).unwrap_or_default(),
            is_migrated: source.is_some_and(|source| source.is_migrated),
            has_failed,
            took,
        }
    }
}

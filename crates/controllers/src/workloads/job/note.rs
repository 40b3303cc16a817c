//! What a plan tells beside its steps: what its metrics count, and what the room remembers. Decides nothing.

use super::backoff::Record;
use coxswain_machinery::api::batch::{Job, JobStatus};
use coxswain_machinery::model::indexes::IndexSet;
use coxswain_machinery::wire::{Str, Uid};

/// What a plan tells beside its steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Note {
    /// The Job's UID.
    pub(super) job: Uid,
    /// Whether its pods have indexes.
    pub(super) is_indexed: bool,
    /// What the first plan of a reconcile does about the pods, as metrics name it.
    pub(super) action: Option<&'static str>,
    /// Why pods are made, as metrics name it.
    pub(super) reason: &'static str,
    /// Number of the first plan's results, from its beginning, that belong to adoptions and releases.
    pub(super) claims: usize,
    /// What holds once the status is written: the first time, and the second.
    pub(super) items: [Progress; 2],
}

/// What a write of the status tells that was not told before.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Progress {
    /// Pods that have succeeded; of an Indexed Job, indexes.
    pub(super) succeeded: u64,
    /// Pods that have failed.
    pub(super) failed: u64,
    /// Indexes that have failed, where each has a limit of its own.
    pub(super) failed_indexes: Option<u64>,
    /// What the policy says of failed pods.
    pub(super) actions: Vec<&'static str>,
    /// How often pods have failed lately.
    pub(super) backoff: Option<Record>,
    /// Whether the Job has succeeded, and why it has come to its end.
    pub(super) end: Option<(bool, Str)>,
}

impl Progress {
    /// What `now` tells that `before` does not.
    pub(super) fn between(job: &Job, before: &JobStatus, now: &JobStatus) -> Self {
        let grown = |before: i32, now: i32| u64::try_from(now.saturating_sub(before)).unwrap_or(0);
        let end = job.spec.completions.and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        let indexes = |list: &str| IndexSet::parse(list, end).len();
        let failed_indexes = now.failed_indexes.as_deref().map(|list| {
            let before = before.failed_indexes.as_deref().unwrap_or_default();
            indexes(list).saturating_sub(indexes(before))
        });
        Self {
            succeeded: if job.spec.completion_mode == "Indexed" {
                indexes(&now.completed_indexes).saturating_sub(indexes(&before.completed_indexes))
            } else {
                grown(before.succeeded, now.succeeded)
            },
            failed: grown(before.failed, now.failed),
            failed_indexes,
            ..Self::default()
        }
    }
}

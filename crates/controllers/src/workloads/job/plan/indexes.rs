//! The indexes of an Indexed Job: which have succeeded, which have failed, and which failed pods wait for their replacement.

use std::cmp::Reverse;

use super::super::member;
use super::members::{Member, Members};
use super::policy::Action;
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::model::indexes::IndexSet;
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::{Time, Uid};

/// Indexes by what became of them.
pub(super) struct Indexes {
    /// How many there are.
    pub(super) completions: u32,
    /// Those that the status says have succeeded.
    pub(super) told: IndexSet,
    /// Those and the ones whose pods have succeeded now.
    pub(super) succeeded: IndexSet,
    /// Those that have failed, of Jobs with a limit for each index.
    pub(super) failed: Option<IndexSet>,
    /// Failed pods that wait for their replacement, by index.
    pub(super) kept: HashMap<u32, Kept>,
}

/// A failed pod that waits for its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) uid: Uid,
    /// How often pods of the index have failed, with this one.
    pub(super) failures: i32,
    /// How often they have failed without being counted, with this one.
    pub(super) ignored: i32,
    /// When it failed.
    pub(super) finished: Option<Time>,
}

impl Indexes {
    /// Those of an Indexed Job; `None` for another.
    pub(super) fn of(job: &Job, members: &Members<'_>) -> Option<Self> {
        if !is_indexed(job) {
            return None;
        }
        let completions = job.spec.completions.and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        let told = IndexSet::parse(&job.status.completed_indexes, completions);
        let counts =
            |member: &&Member<'_>| member.is_tracked && member.index.is_some_and(|index| index < completions);
        let mut succeeded: IndexSet = told.clone();
        for member in members.kept.iter().filter(counts).filter(|member| member.has_succeeded) {
            member.index.map(|index| succeeded.insert(index));
        }
        let failing = || members.kept.iter().filter(counts).filter(|member| member.has_failed);
        let failed = job.spec.backoff_limit_per_index.map(|limit| {
            let held = job.status.failed_indexes.as_deref().unwrap_or_default();
            let mut failed = IndexSet::parse(held, completions);
            for member in failing().filter(|member| fails_its_index(member, limit)) {
                member.index.map(|index| failed.insert(index));
            }
            failed
        });
        let kept = failed.as_ref().map(|failed| {
            let active: HashSet<u32> = members.active().filter_map(|member| member.index).collect();
            let waits = |index: u32| {
                !active.contains(&index) && !succeeded.contains(index) && !failed.contains(index)
            };
            let waiting = failing().filter(|member| member.index.is_some_and(waits));
            best(waiting)
        });
        Some(Self { completions, told, succeeded, failed, kept: kept.unwrap_or_default() })
    }

    /// Whether a failed pod keeps its finalizer until its replacement is there.
    pub(super) fn keeps(&self, member: &Member<'_>) -> bool {
        let kept = member.index.and_then(|index| self.kept.get(&index));
        kept.is_some_and(|kept| kept.uid == *member.uid())
    }
}

/// Whether a Job's pods have indexes.
pub(super) fn is_indexed(job: &Job) -> bool {
    job.spec.completion_mode == "Indexed"
}

fn fails_its_index(member: &Member<'_>, limit: i32) -> bool {
    match member.action {
        Some(Action::FailIndex) => true,
        Some(Action::Ignore) => false,
        _ => member::earlier_failures(member.pod).0 >= limit,
    }
}

/// Of each index the pod that has seen most failures, and of those the one that ended last.
fn best<'a>(waiting: impl Iterator<Item = &'a Member<'a>>) -> HashMap<u32, Kept> {
    let mut kept: HashMap<u32, Kept> = HashMap::default();
    for member in waiting {
        let Some(index) = member.index else { continue };
        let (failures, ignored) = member::earlier_failures(member.pod);
        let is_ignored = member.is_ignored();
        let found = Kept {
            uid: member.uid().clone(),
            failures: failures.saturating_add(i32::from(!is_ignored)),
            ignored: ignored.saturating_add(i32::from(is_ignored)),
            finished: member::finish_time(member.pod),
        };
        let order = |kept: &Kept| {
            (kept.failures.saturating_add(kept.ignored), kept.finished, Reverse(kept.uid.clone()))
        };
        if kept.get(&index).is_none_or(|held| order(held) < order(&found)) {
            kept.insert(index, found);
        }
    }
    kept
}

//! How many pods have succeeded and failed, those included that the status does not count yet.

use super::indexes::Indexes;
use super::members::{List, Member, Members};
use coxswain_machinery::api::batch::{Job, UncountedTerminatedPods};
use coxswain_machinery::wire::Uid;

/// How many pods, or indexes, have come to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// Pods that have succeeded; of an Indexed Job, indexes.
    pub(super) succeeded: u64,
    /// Pods that have failed.
    pub(super) failed: u64,
}

impl Counts {
    pub(super) fn of(job: &Job, members: &Members<'_>, indexes: Option<&Indexes>) -> Self {
        let is_new = |member: &&Member<'_>| member.is_tracked && counts(member, indexes);
        let new = || members.kept.iter().filter(is_new);
        let said = |count: i32, listed: fn(&UncountedTerminatedPods) -> &Vec<Uid>| {
            let listed =
                job.status.uncounted_terminated_pods.as_deref().map_or(0, |lists| listed(lists).len());
            u64::try_from(count).unwrap_or(0) + listed as u64
        };
        let failures = new().filter(|member| member.has_failed && member.listed != Some(List::Failed));
        let failed = failures.filter(|member| !member.is_ignored()).count() as u64;
        let successes = new().filter(|member| member.has_succeeded && member.listed != Some(List::Succeeded));
        Self {
            succeeded: match indexes {
                Some(indexes) => indexes.succeeded.len(),
                None => said(job.status.succeeded, |lists| &lists.succeeded) + successes.count() as u64,
            },
            failed: said(job.status.failed, |lists| &lists.failed) + failed,
        }
    }
}

/// Whether a pod counts at all: of an Indexed Job those do that have one of its indexes.
pub(super) fn counts(member: &Member<'_>, indexes: Option<&Indexes>) -> bool {
    indexes.is_none_or(|indexes| member.index.is_some_and(|index| index < indexes.completions))
}

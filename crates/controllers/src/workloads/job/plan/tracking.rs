//! Counting: which ended pods the status tells of, which lose their finalizers, and what the status says then.
//!
//! A pod that has ended is counted in three steps, so that none is lost or counted twice whatever stops in between: its UID
//! goes into the status, then its finalizer goes, then the UID leaves the status and the counter grows. (What an Indexed Job
//! counts of its successes are indexes, which can be told twice.) UIDs in the status of pods without finalizer are of a plan
//! that did not come to its end.

use jiff::Timestamp;

use super::counts::counts;
use super::ends::End;
use super::indexes::Indexes;
use super::members::{List, Member, Members};
use super::policy::{self, Action};
use super::status;
use coxswain_machinery::api::batch::{Job, JobStatus};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::{Time, Uid};

/// UIDs and new indexes that one plan tells of at most.
pub(super) const MOST_UNCOUNTED: usize = 500;

/// What counting goes by.
pub(super) struct Tracking<'a, 'b> {
    pub(super) job: &'a Job,
    pub(super) members: &'b Members<'a>,
    pub(super) indexes: Option<&'b Indexes>,
    pub(super) end: Option<&'b End>,
    /// Whether finalizers may be taken off; not if that has just failed.
    pub(super) may_release: bool,
    pub(super) now: Timestamp,
}

/// What counting comes to.
pub(super) struct Tracked<'a> {
    /// The status before finalizers are taken off.
    pub(super) first: JobStatus,
    /// Pods whose finalizers are taken off.
    pub(super) releases: Vec<&'a Pod>,
    /// The status afterwards.
    pub(super) second: JobStatus,
    /// What the policy says of the failed pods among them.
    pub(super) actions: Vec<&'static str>,
}

impl<'a> Tracking<'a, '_> {
    /// Counts, beginning with a status that says all else.
    pub(super) fn count(&self, mut status: JobStatus) -> Tracked<'a> {
        self.settle(&mut status);
        let mut completed = self.indexes.map(|indexes| indexes.told.clone());
        let (mut releases, mut actions) = (Vec::new(), Vec::new());
        let mut is_complete = true;
        let mut new_indexes = 0;
        let leaving = self.leaving();
        let mut rest = leaving.iter();
        for &member in rest.by_ref() {
            releases.push(member.pod);
            if counts(member, self.indexes) {
                if member.has_succeeded && member.listed != Some(List::Failed) {
                    match (&mut completed, member.index) {
                        (Some(completed), Some(index)) => new_indexes += usize::from(completed.insert(index)),
                        _ if member.listed.is_none() => {
                            status::lists(&mut status).succeeded.push(member.uid().clone());
                        }
                        _ => {}
                    }
                } else if member.listed.is_none() && (member.has_failed || self.is_failure()) {
                    // A Job that fails judges the pods as well that have not failed: they go with it.
                    let action = member.action.clone().or_else(|| policy::action(self.job, member.pod));
                    actions.extend(action.as_ref().map(Action::name));
                    if action != Some(Action::Ignore) {
                        status::lists(&mut status).failed.push(member.uid().clone());
                    }
                }
            }
            let lists = status::lists(&mut status);
            if lists.succeeded.len() + lists.failed.len() + new_indexes >= MOST_UNCOUNTED {
                is_complete = false;
                break;
            }
        }
        // The status has all indexes at once; only finalizers are removed 500 at a time.
        if let Some(completed) = &mut completed {
            for member in rest.copied().filter(|member| counts(member, self.indexes)) {
                if member.has_succeeded
                    && member.listed != Some(List::Failed)
                    && let Some(index) = member.index
                {
                    completed.insert(index);
                }
            }
        }
        if let (Some(indexes), Some(completed)) = (self.indexes, completed) {
            status.succeeded = i32::try_from(completed.len()).unwrap_or(i32::MAX);
            status.completed_indexes = completed.to_string().into();
            status.failed_indexes = indexes.failed.as_ref().map(|failed| failed.to_string().into());
        }
        if let Some(end) = self.end {
            status::set(&mut status, end.decided(), true, &end.reason, &end.message, self.now);
        }
        if !self.may_release {
            is_complete &= releases.is_empty();
            releases.clear();
        }
        let second = self.afterwards(status.clone(), &releases, is_complete);
        Tracked { first: status, releases, second, actions }
    }

    /// UIDs of pods without finalizer leave the lists, and count.
    fn settle(&self, status: &mut JobStatus) {
        let tracked = self.members.kept.iter().filter(|member| member.is_tracked);
        let tracked: HashSet<&Uid> = tracked.map(Member::uid).collect();
        Self::move_to_counters(status, |uid| !tracked.contains(uid));
    }

    fn move_to_counters(status: &mut JobStatus, is_released: impl Fn(&Uid) -> bool) {
        let lists = status::lists(status);
        let mut moved =
            |list: fn(&mut coxswain_machinery::api::batch::UncountedTerminatedPods) -> &mut Vec<Uid>| {
                let list = list(lists);
                let before = list.len();
                list.retain(|uid| !is_released(uid));
                i32::try_from(before - list.len()).unwrap_or(i32::MAX)
            };
        let (succeeded, failed) = (moved(|lists| &mut lists.succeeded), moved(|lists| &mut lists.failed));
        status.succeeded = status.succeeded.saturating_add(succeeded);
        status.failed = status.failed.saturating_add(failed);
    }

    /// Tracked pods that may lose their finalizers, by index.
    fn leaving(&self) -> Vec<&Member<'a>> {
        let is_over = self.job.metadata.is_deleting() || self.end.is_some();
        let is_kept = |member: &Member<'_>| self.indexes.is_some_and(|indexes| indexes.keeps(member));
        let may_leave = |member: &&Member<'a>| {
            let has_ended = member.has_succeeded || member.has_failed && !is_kept(member);
            member.is_tracked && (is_over || has_ended)
        };
        let mut leaving: Vec<_> = self.members.kept.iter().filter(may_leave).collect();
        leaving.sort_by_key(|member| member.index);
        leaving
    }

    fn is_failure(&self) -> bool {
        self.end.is_some_and(|end| !end.is_success)
    }

    /// The status once these pods have lost their finalizers.
    fn afterwards(&self, mut status: JobStatus, released: &[&Pod], is_complete: bool) -> JobStatus {
        let released: HashSet<&Uid> = released.iter().map(|pod| &pod.metadata.uid).collect();
        Self::move_to_counters(&mut status, |uid| released.contains(uid));
        let lists = status::lists(&mut status);
        let is_counted = lists.succeeded.is_empty() && lists.failed.is_empty();
        let Some(end) = self.end else { return status };
        if is_complete && is_counted && self.members.terminating() == 0 {
            status::set(&mut status, end.reached(), true, &end.reason, &end.message, self.now);
            if end.is_success {
                status.completion_time = Some(Time::from(self.now));
            }
        }
        status
    }
}

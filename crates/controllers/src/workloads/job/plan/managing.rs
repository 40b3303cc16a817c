//! How many pods there should be: those that are too many go, those that are missing are made. Never both in one plan.

use std::time::Duration;

use jiff::Timestamp;

use super::super::backoff::{self, Record};
use super::super::member::rank;
use super::super::view::{View, Written};
use super::bodies::{self, Failures};
use super::counts::Counts;
use super::indexes::Indexes;
use super::members::{Member, Members, is_strict};
use super::writes;
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::model::Step;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::{Str, WireError};

/// Pods that are made or deleted in one go; the rest follows when these have been seen.
pub(super) const MOST_AT_ONCE: usize = 500;
/// The shortest wait for the sake of pods that have failed.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// What is done about the pods.
#[derive(Debug, Default)]
pub(super) struct Managed {
    pub(super) steps: Option<Step>,
    /// What holds when that is done.
    pub(super) written: Written,
    pub(super) look_again: Option<Duration>,
    /// As metrics name it.
    pub(super) action: &'static str,
}

/// What managing goes by.
pub(super) struct Managing<'a, 'b> {
    pub(super) view: &'a View,
    pub(super) members: &'b Members<'a>,
    pub(super) indexes: Option<&'b Indexes>,
    pub(super) counts: Counts,
    /// How often pods have failed, those included that have ended now.
    pub(super) backoff: Record,
    /// The `PodGroup` that new pods belong to.
    pub(super) group: Option<Str>,
    pub(super) now: Timestamp,
}

impl Managing<'_, '_> {
    pub(super) fn decide(&self) -> Result<Managed, WireError> {
        let job = &self.view.job;
        let active = self.members.active().count();
        if job.spec.suspend {
            return Ok(self.delete(&self.members.active().collect::<Vec<_>>()));
        }
        let wanted = wanted(job, self.counts.succeeded, active);
        let surplus = self.surplus(active.saturating_sub(wanted));
        if !surplus.is_empty() {
            return Ok(self.delete(&surplus));
        }
        let terminating = if is_strict(job) { self.members.terminating() } else { 0 };
        let missing = wanted.saturating_sub(active + terminating).min(MOST_AT_ONCE);
        if missing == 0 {
            return Ok(Managed { action: "tracking", ..Managed::default() });
        }
        self.create(missing)
    }

    /// Pods that are too many: those that have no use anyway, and so many in all of those that would be missed least.
    fn surplus(&self, too_many: usize) -> Vec<&Member<'_>> {
        let mut ranked: Vec<&Member<'_>> = self.members.active().collect();
        if self.indexes.is_none() && too_many == 0 {
            return Vec::new();
        }
        ranked.sort_by_cached_key(|member| rank(member.pod));
        let mut chosen = Vec::new();
        if let Some(indexes) = self.indexes {
            // From the best on, so that of several of one index the best stays.
            let mut seen: HashSet<u32> = HashSet::default();
            let mut useful = |member: &Member<'_>| {
                member.index.is_some_and(|index| index < indexes.completions && seen.insert(index))
            };
            let (mut kept, mut useless) = (Vec::new(), Vec::new());
            for member in ranked.into_iter().rev() {
                if useful(member) { kept.push(member) } else { useless.push(member) }
            }
            useless.reverse();
            kept.reverse();
            chosen = useless;
            ranked = kept;
        }
        let more = too_many.saturating_sub(chosen.len());
        chosen.extend(ranked.into_iter().take(more));
        chosen.truncate(MOST_AT_ONCE);
        chosen
    }

    /// Their finalizers go first, so that they do not count as failed.
    fn delete(&self, pods: &[&Member<'_>]) -> Managed {
        let uids: HashSet<_> = pods.iter().map(|member| member.uid().clone()).collect();
        let chains: Vec<_> =
            pods.iter().map(|member| writes::release_and_delete(self.view, member)).collect();
        Managed {
            steps: (!chains.is_empty()).then_some(Step::Chains { chains, slow_start: false }),
            written: Written { deleted: uids.clone(), released: uids, ..Written::default() },
            look_again: None,
            action: "pods_deleted",
        }
    }

    fn create(&self, missing: usize) -> Result<Managed, WireError> {
        let mut managed = Managed { action: "pods_created", ..Managed::default() };
        let bodies = match self.indexes {
            Some(indexes) => {
                let (due, wait) = self.due(indexes, missing);
                managed.look_again = if due.is_empty() { wait } else { None };
                bodies::indexed(self.view, &due, self.group.as_deref())?
            }
            None => match self.wait() {
                Some(wait) => {
                    managed.look_again = Some(wait);
                    Vec::new()
                }
                None => vec![bodies::plain(self.view)?; missing],
            },
        };
        managed.written.created = bodies.len();
        let creates: Vec<_> = bodies.into_iter().map(|body| writes::create(self.view, body)).collect();
        managed.steps = (!creates.is_empty()).then_some(Step::Batch(creates));
        Ok(managed)
    }

    /// For how long no pod is made because pods have failed.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.backoff.wait(self.now).map(|wait| wait.max(SHORTEST_WAIT))
    }

    /// The indexes whose pods are to be made now, and how long the first of the others waits. One that waits keeps its place.
    fn due(&self, indexes: &Indexes, missing: usize) -> (Vec<(u32, Option<Failures>)>, Option<Duration>) {
        let per_index = self.view.job.spec.backoff_limit_per_index.is_some();
        if !per_index && let Some(wait) = self.wait() {
            return (Vec::new(), Some(wait));
        }
        let is_strict = is_strict(&self.view.job);
        let stands = |member: &&Member<'_>| {
            member.is_active() || is_strict && member.state == super::members::State::Terminating
        };
        let taken: HashSet<u32> =
            self.members.kept.iter().filter(stands).filter_map(|member| member.index).collect();
        let has_failed = |index: u32| indexes.failed.as_ref().is_some_and(|failed| failed.contains(index));
        let free = indexes.succeeded.missing(indexes.completions);
        let chosen = free.filter(|index| !taken.contains(index) && !has_failed(*index)).take(missing);
        let (mut due, mut first) = (Vec::new(), None::<Duration>);
        for index in chosen {
            let kept = indexes.kept.get(&index);
            let failed =
                kept.and_then(|kept| Some((kept.failures.saturating_add(kept.ignored), kept.finished?)));
            let wait = failed.and_then(|(failures, last)| {
                backoff::wait(u32::try_from(failures).unwrap_or(0), last, self.now)
            });
            if let Some(wait) = wait {
                first = Some(first.map_or(wait, |held| held.min(wait)));
                continue;
            }
            let failures = kept.map_or(Failures::default(), |kept| Failures {
                counted: kept.failures,
                ignored: kept.ignored,
            });
            due.push((index, per_index.then_some(failures)));
        }
        (due, first.map(|wait| wait.max(SHORTEST_WAIT)))
    }
}

/// How many pods should run.
pub(super) fn wanted(job: &Job, succeeded: u64, active: usize) -> usize {
    let parallelism = usize::try_from(job.spec.parallelism.unwrap_or(1)).unwrap_or(0);
    match job.spec.completions {
        Some(completions) => {
            let left = u64::try_from(completions).unwrap_or(0).saturating_sub(succeeded);
            parallelism.min(usize::try_from(left).unwrap_or(usize::MAX))
        }
        None if succeeded > 0 => active,
        None => parallelism,
    }
}

//! What is to be done about one Job. Pure.
//!
//! A plan holds everything that the original does in one sync, in its order: release and adoption, deletes or creates, a first
//! update of the status, the finalizers of pods that have ended, a second update of the status. In detail:
//!
//! | module | decides on |
//! |---|---|
//! | [`members`] | which pods are the Job's |
//! | [`policy`] | what the failure of a pod means, and when enough indexes have succeeded |
//! | [`indexes`] | which indexes have succeeded or failed, and which failed pods wait for their replacement |
//! | [`counts`] | nothing: it counts |
//! | [`ends`] | whether the Job comes to its end |
//! | [`gang`] | whether the pods are scheduled together |
//! | [`managing`] | the pods to delete or to make |
//! | [`tracking`] | the ended pods to count, and whose finalizers go |
//! | [`reasons`] | nothing: it says why |
//! | [`status`], [`bodies`], [`writes`] | nothing: they put statuses, pods and writes together |
//!
//! The first plan of a reconcile supposes that all its writes succeed. If one fails, the second does what does not hang on it:
//! after a pod that could not be made or deleted everything that concerns the status and finalizers; after a finalizer that could
//! not be taken off, the second update of the status. After any other failure there is nothing to do but to try again.

use std::time::Duration;

use jiff::Timestamp;

use super::backoff::Record;
use super::member;
use super::note::{Note, Progress};
use super::view::View;
use coxswain_machinery::api::batch::{Job, JobStatus};
use coxswain_machinery::api::kinds::{JOBS, PODS};
use coxswain_machinery::model::{Failure, Plan, Step, Write};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::{Str, Time, WireError};

mod bodies;
mod counts;
mod ends;
mod gang;
mod indexes;
mod managing;
mod members;
mod policy;
mod reasons;
mod status;
mod tracking;
mod writes;

use counts::Counts;
use ends::End;
use gang::Gang;
use indexes::Indexes;
use managing::{Managed, Managing};
use members::{List, Member, Members};
pub(super) use reasons::reasons;
use tracking::{Tracked, Tracking};
pub(super) use writes::untrack;

/// Items of a plan's note: what holds once the status is written the first time, and the second.
const FIRST: usize = 0;
const SECOND: usize = 1;

pub(super) fn plan(view: &View, now: Timestamp) -> Plan<Note> {
    let mut note = Note {
        job: view.job.metadata.uid.clone(),
        is_indexed: indexes::is_indexed(&view.job),
        ..Note::default()
    };
    let plan = decide(view, now, &mut note)
        .unwrap_or_else(|error| Plan { retry: Some(format!("reconcile Job: {error}")), ..Plan::default() });
    plan.with_note(note)
}

fn decide(view: &View, now: Timestamp, note: &mut Note) -> Result<Plan, WireError> {
    let mut plan = Plan::default();
    let job = &*view.job;
    if view.is_external() || job.end().is_some() {
        return Ok(plan);
    }
    if !has_known_mode(job) {
        let message = "Skipped Job sync because completion mode is unknown";
        plan.steps.push(Step::Emit(writes::event(view, true, "UnknownCompletionMode", message)));
        return Ok(plan);
    }
    let mut members = Members::of(view);
    let indexes = Indexes::of(job, &members);
    let counts = Counts::of(job, &members, indexes.as_ref());
    let end = ends::before_managing(view, &members, indexes.as_ref(), counts, now);
    let remains = Remains::of(view, &members, end.is_some());
    if remains == Remains::Nothing {
        // Only adoptions need a live Job.
        if view.written.as_ref().is_some_and(|written| written.failures.iter().any(is_check)) {
            plan.steps.extend(writes::releases(view, &members));
        }
        return Ok(plan);
    }
    let backoff = after_these(view, &members, indexes.as_ref());
    if remains == Remains::All {
        plan.steps = writes::claims(view, &members);
        note.claims = plan.steps.iter().map(Step::len).sum();
        if let Some(left) = ends::until_deadline(job, now).filter(|_| end.is_none()) {
            plan.look_again_after(left);
            // The Job ends at this time, also while its creates are refused.
            plan.deadline = Some(left);
        }
    }
    let is_managed = end.is_none() && !job.metadata.is_deleting();
    let mut group = None;
    if remains == Remains::All && is_managed {
        match gang::decide(view, &members) {
            Gang::None => {}
            Gang::Group(name) => group = Some(name),
            Gang::Missing(write) => {
                plan.steps.push(Step::Write(*write));
                // As soon as the cache shows it.
                plan.look_again_after(Duration::ZERO);
                return Ok(plan);
            }
        }
    }
    let mut created = view.written.as_ref().map_or(0, |written| written.created);
    if remains == Remains::All {
        let managed = if is_managed {
            let indexes = indexes.as_ref();
            Managing { view, members: &members, indexes, counts, backoff: backoff.1, group, now }.decide()?
        } else {
            end_pods(view, &members, end.as_ref())
        };
        note.action = Some(managed.action);
        note.reason = creation_reason(job, counts, &members);
        plan.steps.extend(managed.steps);
        if let Some(wait) = managed.look_again {
            plan.look_again_after(wait);
        }
        members.apply(&managed.written);
        // As in kube-controller-manager, the status counts a pod whose create the namespace has refused. It does not count withheld creates,
        // which are not sent.
        created += if view.withholds_creates { 0 } else { managed.written.created };
    }
    let active = members.active().count() + created;
    let could_end_pods = !view.written.as_ref().is_some_and(|written| written.failures.iter().any(is_delete));
    let is_undecided = end.is_none();
    let end = end
        .filter(|_| could_end_pods)
        .or_else(|| is_undecided.then(|| ends::after_managing(job, active, counts)).flatten());
    // A Job that ends now is neither suspended nor resumed: its end needs its start time.
    let is_running = is_managed && end.is_none();
    let (said, events) = said(view, &members, active, is_running, now);
    plan.steps.extend(events);
    let may_release = remains != Remains::Counters;
    let indexes = indexes.as_ref();
    let tracking = Tracking { job, members: &members, indexes, end: end.as_ref(), may_release, now };
    let tracked = tracking.count(said);
    note.items = [
        Progress {
            actions: tracked.actions.clone(),
            backoff: backoff.0.then_some(backoff.1),
            ..Progress::between(job, &job.status, &tracked.first)
        },
        Progress::between(job, &tracked.first, &tracked.second),
    ];
    finish(view, end.as_ref(), &tracked, &mut plan, note)?;
    Ok(plan)
}

/// What is left to do, after what was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remains {
    /// Everything: nothing was tried.
    All,
    /// What concerns status and finalizers: a pod could not be made or deleted.
    Tracking,
    /// The counters: a finalizer could not be taken off.
    Counters,
    /// Nothing.
    Nothing,
}

impl Remains {
    fn of(view: &View, members: &Members<'_>, has_ended: bool) -> Self {
        let Some(written) = &view.written else { return Self::All };
        let is_over = has_ended || view.job.metadata.is_deleting();
        let kept = members.kept.iter().map(|member| (&member.pod.metadata.name, member));
        let kept: HashMap<&Str, &Member<'_>> = kept.collect();
        let of_failure = |failure: &Failure| {
            let named = kept.get(&failure.key.name).copied();
            match (failure.kind == &PODS, failure.verb, named) {
                (true, "create" | "delete", _) => Self::Tracking,
                // Before its delete.
                (true, "patch", Some(member)) if member.is_active() && member.is_tracked && !is_over => {
                    if member.pod.metadata.controller().is_some() {
                        Self::Tracking
                    } else {
                        Self::Nothing
                    }
                }
                (true, "patch", Some(member)) if member.pod.metadata.controller().is_some() => Self::Counters,
                _ => Self::Nothing,
            }
        };
        let mut remains: Vec<Self> = written.failures.iter().map(of_failure).collect();
        remains.sort_by_key(|remains| match remains {
            Self::Nothing => 0,
            Self::Counters => 1,
            Self::Tracking => 2,
            Self::All => 3,
        });
        remains.first().copied().unwrap_or(Self::Nothing)
    }
}

fn is_delete(failure: &Failure) -> bool {
    failure.kind == &PODS && failure.verb == "delete"
}

fn is_check(failure: &Failure) -> bool {
    failure.is_check_of(&JOBS)
}

fn has_known_mode(job: &Job) -> bool {
    matches!(job.spec.completion_mode.as_str(), "" | "NonIndexed" | "Indexed")
}

/// How often pods have failed, those included that have ended now; and whether there are such.
fn after_these(view: &View, members: &Members<'_>, indexes: Option<&Indexes>) -> (bool, Record) {
    let is_new = |member: &&Member<'_>| member.is_tracked && counts::counts(member, indexes);
    let times = |new: &dyn Fn(&Member<'_>) -> bool| -> Vec<Time> {
        let new = members.kept.iter().filter(is_new).filter(|member| new(member));
        new.filter_map(|member| member::finish_time(member.pod)).collect()
    };
    let failed = times(&|member| member.has_failed && member.listed != Some(List::Failed));
    let succeeded = times(&|member| {
        let is_told = |index| indexes.is_some_and(|indexes| indexes.told.contains(index));
        member.has_succeeded && member.listed != Some(List::Succeeded) && !member.index.is_some_and(is_told)
    });
    let is_new = !(failed.is_empty() && succeeded.is_empty());
    (is_new, view.backoff.after(&failed, &succeeded))
}

/// What is done about the pods of a Job that has come to its end, or is being deleted.
fn end_pods(view: &View, members: &Members<'_>, end: Option<&End>) -> Managed {
    let mut managed = Managed { action: "reconciling", ..Managed::default() };
    if end.is_some() {
        let active = || members.active();
        managed.written.deleted = active().map(|member| member.uid().clone()).collect::<HashSet<_>>();
        let deletes: Vec<Write> = active().map(|member| writes::delete(view, member.pod)).collect();
        managed.steps = (!deletes.is_empty()).then_some(Step::Each(deletes));
    }
    managed
}

/// Why pods are made, as metrics name it.
fn creation_reason(job: &Job, counts: Counts, members: &Members<'_>) -> &'static str {
    let has_failures = counts.failed > 0;
    if has_failures && job.spec.pod_replacement_policy == "Failed" {
        "recreate_failed"
    } else if has_failures || members.terminating() > 0 {
        "recreate_terminating_or_failed"
    } else {
        "new"
    }
}

/// What the status says of all but ended pods, and the events that tell of it.
fn said(
    view: &View,
    members: &Members<'_>,
    active: usize,
    is_running: bool,
    now: Timestamp,
) -> (JobStatus, Vec<Step>) {
    let job = &*view.job;
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let mut said = job.status.clone();
    if said.start_time.is_none() && !job.spec.suspend {
        said.start_time = Some(Time::from(now));
    }
    said.active = number(active);
    said.ready = Some(number(members.ready()));
    said.terminating = Some(number(members.terminating()));
    let mut events = Vec::new();
    let told = |reason, message: &str| Step::Emit(writes::event(view, false, reason, message));
    if is_running && job.spec.suspend {
        if status::set(&mut said, "Suspended", true, "JobSuspended", "Job suspended", now) {
            if view.gates.drops_start_time {
                said.start_time = None;
            }
            events.push(told("Suspended", "Job suspended"));
        }
    } else if is_running && ends::is_suspended(job) {
        status::set(&mut said, "Suspended", false, "JobResumed", "Job resumed", now);
        said.start_time = Some(Time::from(now));
        events.push(told("Resumed", "Job resumed"));
    }
    (said, events)
}

/// The updates of the status, and between them the finalizers.
fn finish(
    view: &View,
    end: Option<&End>,
    tracked: &Tracked<'_>,
    plan: &mut Plan,
    note: &mut Note,
) -> Result<(), WireError> {
    let job = &*view.job;
    let is_first = status::differs(&job.status, &tracked.first);
    if is_first {
        plan.write_status(Some(Write { item: Some(FIRST), ..status::write(job, &tracked.first)? }));
    }
    if !tracked.releases.is_empty() {
        plan.steps.push(Step::Each(tracked.releases.iter().map(|pod| untrack(pod)).collect()));
    }
    let before = if is_first { &tracked.first } else { &job.status };
    if !status::differs(before, &tracked.second) {
        return Ok(());
    }
    let write = if is_first {
        status::write_again(job, &tracked.second)?
    } else {
        status::write(job, &tracked.second)?
    };
    plan.write_status(Some(Write { item: Some(SECOND), ..write }));
    if let Some(end) = end.filter(|end| has_reached(&tracked.second, end)) {
        note.items[SECOND].end = Some((end.is_success, end.reason.clone()));
        plan.steps.extend(end_events(view, end, tracked.second.succeeded).into_iter().map(Step::Emit));
        (plan.requeue_after, plan.deadline) = (None, None);
    }
    Ok(())
}

fn has_reached(status: &JobStatus, end: &End) -> bool {
    status.conditions.iter().any(|held| held.r#type == end.reached() && held.status == "True")
}

fn end_events(view: &View, end: &End, succeeded: i32) -> Vec<coxswain_machinery::model::plan::EventSpec> {
    if !end.is_success {
        return vec![writes::event(view, true, static_reason(&end.reason), end.message.as_str())];
    }
    let mut events = Vec::new();
    if view.job.spec.completions.is_some_and(|completions| succeeded > completions) {
        let message = "Too many succeeded pods running after completion count reached";
        events.push(writes::event(view, true, "TooManySucceededPods", message));
    }
    events.push(writes::event(view, false, "Completed", "Job completed"));
    events
}

/// The reasons for which Jobs fail. One that somebody else wrote is told as `Failed`.
fn static_reason(reason: &Str) -> &'static str {
    const REASONS: [&str; 5] = [
        "PodFailurePolicy",
        "BackoffLimitExceeded",
        "DeadlineExceeded",
        "MaxFailedIndexesExceeded",
        "FailedIndexes",
    ];
    REASONS.into_iter().find(|known| reason == known).unwrap_or("Failed")
}

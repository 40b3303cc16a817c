//! The pods of a Job, and what each of them is to it.

use super::super::member;
use super::super::view::{View, Written};
use super::policy::{self, Action};
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::owners::{Claim, claim};
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::Uid;

/// What a pod does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It runs, or is going to.
    Active,
    /// It runs and is on its way out.
    Terminating,
    /// It has run to its end.
    Finished,
}

/// A pod, and what it is to its Job.
#[derive(Clone, Debug)]
pub(super) struct Member<'a> {
    pub(super) pod: &'a Pod,
    pub(super) index: Option<u32>,
    pub(super) state: State,
    /// Whether it has the finalizer, and nobody is removing it.
    pub(super) is_tracked: bool,
    pub(super) has_succeeded: bool,
    pub(super) has_failed: bool,
    /// What the policy says of its failure.
    pub(super) action: Option<Action>,
    /// Whether its UID is in the status.
    pub(super) listed: Option<List>,
}

/// A list of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Succeeded,
    Failed,
}

impl Member<'_> {
    pub(super) fn is_active(&self) -> bool {
        self.state == State::Active
    }

    pub(super) fn uid(&self) -> &Uid {
        &self.pod.metadata.uid
    }

    /// Whether its failure does not count.
    pub(super) fn is_ignored(&self) -> bool {
        self.action == Some(Action::Ignore)
    }
}

/// The pods at hand.
pub(super) struct Members<'a> {
    /// Those that are the Job's, or are about to be, by name.
    pub(super) kept: Vec<Member<'a>>,
    /// Those of `kept` that are about to be.
    pub(super) adopted: Vec<&'a Pod>,
    /// Those that are the Job's and not selected any more.
    pub(super) released: Vec<&'a Pod>,
}

impl<'a> Members<'a> {
    pub(super) fn of(view: &'a View) -> Self {
        let job = &view.job;
        let mut members = Self { kept: Vec::new(), adopted: Vec::new(), released: Vec::new() };
        let (succeeded, failed): (HashSet<&Uid>, HashSet<&Uid>) = lists(job);
        let is_strict = is_strict(job);
        let mut keep = |pod: &'a Pod, is_adopted: bool| {
            let uid = &pod.metadata.uid;
            let has_succeeded = pod.status.phase == "Succeeded";
            // A pod that somebody deletes counts as failed. The garbage collector deletes the pods of a Job that is deleted in the foreground,
            // and caches may show these deletions together with that of the Job. They are no failures: failures could fail the Job.
            let is_deleted = pod.metadata.is_deleting() && !member::is_deleted_in_foreground(&job.metadata);
            let has_failed = pod.status.phase == "Failed" || !is_strict && is_deleted && !has_succeeded;
            members.kept.push(Member {
                pod,
                index: member::index(pod),
                state: match (pod.is_finished(), pod.metadata.is_deleting()) {
                    (true, _) => State::Finished,
                    (false, true) => State::Terminating,
                    (false, false) => State::Active,
                },
                is_tracked: is_adopted || member::is_tracked(pod),
                has_succeeded,
                has_failed,
                action: if has_failed { policy::action(job, pod) } else { None },
                listed: if succeeded.contains(uid) {
                    Some(List::Succeeded)
                } else if failed.contains(uid) {
                    Some(List::Failed)
                } else {
                    None
                },
            });
        };
        for pod in view.pods.iter().map(AsRef::as_ref) {
            let matches = view.selector.matches(&pod.metadata.labels);
            match claim(&job.metadata, &pod.metadata, matches) {
                Claim::Keep => keep(pod, false),
                // An empty selector selects all pods of the namespace. kube-controller-manager adopts every one that has no
                // controller, and deletes those that are too many.
                // Differs: empty-selectors.
                Claim::Adopt if view.selector.is_empty() => {}
                Claim::Adopt => {
                    keep(pod, true);
                    members.adopted.push(pod);
                }
                Claim::Release => members.released.push(pod),
                Claim::Ignore => {}
            }
        }
        members.kept.sort_by(|a, b| a.pod.metadata.name.cmp(&b.pod.metadata.name));
        if let Some(written) = &view.written {
            members.apply(written);
        }
        members
    }

    /// What was written to pods, or is about to be, holds.
    pub(super) fn apply(&mut self, written: &Written) {
        for member in &mut self.kept {
            if member.is_active() && written.deleted.contains(&member.pod.metadata.uid) {
                member.state = State::Terminating;
            }
            // Linear: no, this field is a set.
            member.is_tracked &= !written.released.contains(&member.pod.metadata.uid);
        }
    }

    pub(super) fn active(&self) -> impl Iterator<Item = &Member<'a>> {
        self.kept.iter().filter(|member| member.is_active())
    }

    pub(super) fn terminating(&self) -> usize {
        self.kept.iter().filter(|member| member.state == State::Terminating).count()
    }

    pub(super) fn ready(&self) -> usize {
        self.active().filter(|member| member.pod.is_ready()).count()
    }
}

/// The UIDs in the status.
fn lists(job: &Job) -> (HashSet<&Uid>, HashSet<&Uid>) {
    let Some(lists) = job.status.uncounted_terminated_pods.as_deref() else {
        return (HashSet::default(), HashSet::default());
    };
    (lists.succeeded.iter().collect(), lists.failed.iter().collect())
}

/// Whether a pod is replaced once it has failed, and not as soon as it is on its way out.
pub(super) fn is_strict(job: &Job) -> bool {
    job.spec.pod_replacement_policy == "Failed" || job.spec.pod_failure_policy.is_some()
}

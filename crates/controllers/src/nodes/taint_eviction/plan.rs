//! Whether a pod stays, waits or goes, and what is written then.
//!
//! | taints and tolerations | pod that waits | pod that is going | any other |
//! |---|---|---|---|
//! | none, or all tolerated without end | is told that it stays | is told that it stays | |
//! | tolerated for some time | waits on, by the time that it began with | goes | waits from now on; goes if that is no time |
//! | one that is not tolerated | is told that it stays, and goes | goes | goes |
//! | the node is gone | waits on | goes | |
//!
//! Whose time is over goes, unless it may stay by now.

use std::time::Duration;

use jiff::Timestamp;

use super::memory::{Entry, Note, State};
use super::verdict::{Verdict, judge};
use super::view::View;
use coxswain_machinery::api::core::Taint;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::{EventSpec, Regarding};
use coxswain_machinery::model::pods::Evictor;
use coxswain_machinery::model::{Key, Plan, Step};
use coxswain_machinery::wire::{Str, Uid};

const EVICTOR: Evictor = Evictor {
    reason: "DeletionByTaintManager",
    message: "Taint manager: deleting due to NoExecute taint",
    names_generation: true,
};
/// A pod that waits is looked at after so long at the latest.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Decision {
    /// It stays.
    Stay,
    /// It waits until then.
    Wait(Duration),
    /// It goes, and was to go since then.
    Go(Duration),
}

impl View {
    /// What is remembered of this very pod.
    pub(super) fn state(&self) -> Option<State> {
        let pod = self.pod.as_ref()?;
        self.entry.as_ref().filter(|entry| entry.uid == pod.metadata.uid).map(|entry| entry.state)
    }

    /// What the node's taints mean to the pod; `None` if one of the two is gone.
    pub(super) fn verdict(&self) -> Option<Verdict<'_>> {
        let (pod, node) = (self.pod.as_ref()?, self.node.as_ref()?);
        Some(judge(&node.spec.taints, &pod.shape.tolerations, self.comparing))
    }

    /// What becomes of the pod.
    pub(super) fn decision(&self) -> Decision {
        use Decision::{Go, Stay, Wait};
        let until = |until: Duration| if until <= self.now { Go(until) } else { Wait(until) };
        match (self.verdict(), self.state()) {
            (Some(Verdict::Untainted | Verdict::Stays), _) | (None, None) => Stay,
            (_, Some(State::Goes { since })) => Go(since),
            (Some(Verdict::Goes(_)), Some(State::Waits { until })) => Go(until.min(self.now)),
            (Some(Verdict::Goes(_)), None) => Go(self.now),
            (_, Some(State::Waits { until: time })) => until(time),
            (Some(Verdict::StaysFor(time, _)), None) => until(self.now.saturating_add(time)),
        }
    }

    /// Whether the pod goes, by what is known so far.
    pub(super) fn goes(&self) -> bool {
        matches!(self.decision(), Decision::Go(_))
    }

    /// The taint that decides.
    pub(super) fn taint(&self) -> Option<&Taint> {
        match self.verdict()? {
            Verdict::Goes(taint) | Verdict::StaysFor(_, taint) => Some(taint),
            Verdict::Untainted | Verdict::Stays => None,
        }
    }
}

pub(super) fn plan(view: &View, now: Timestamp) -> Plan<Note> {
    let mut plan = Plan { is_gone: view.pod.is_none(), ..Plan::default() };
    let decision = view.decision();
    if view.has_failed {
        // That it goes was told. What is remembered of another pod was dealt with before.
        let next = match (decision, &view.pod) {
            (Decision::Go(since), Some(pod)) => Some((pod, State::Goes { since })),
            (Decision::Wait(until), Some(pod)) => Some((pod, State::Waits { until })),
            _ => None,
        };
        return plan.with_note(Note { next: next.map(|(pod, state)| entry(pod, state)), overdue: None });
    }
    if is_cancelled(view, decision) {
        plan.steps.push(Step::Emit(event(&view.key, "Cancelling deletion of Pod")));
    }
    let Some(pod) = &view.pod else { return plan.with_note(Note::default()) };
    let note = match decision {
        Decision::Stay => Note::default(),
        Decision::Wait(until) => {
            plan.requeue_after = Some(until.saturating_sub(view.now).min(LONGEST_WAIT));
            Note { next: Some(entry(pod, State::Waits { until })), overdue: None }
        }
        Decision::Go(since) => {
            if !matches!(view.state(), Some(State::Goes { .. })) {
                plan.steps.push(Step::Emit(event(&view.key, "Marking for deletion Pod")));
            }
            let writes = if view.is_contended {
                EVICTOR.writes_of_contended(pod, now)
            } else {
                EVICTOR.writes(pod, now)
            };
            plan.steps.extend(writes.into_iter().map(Step::Write));
            Note { next: None, overdue: Some(view.now.saturating_sub(since)) }
        }
    };
    plan.with_note(note)
}

fn entry(pod: &Pod, state: State) -> Entry {
    Entry { uid: pod.metadata.uid.clone(), state }
}

/// Whether a time ends that the pod, or one that had its name before, was waiting for; or it may stay that was to go.
fn is_cancelled(view: &View, decision: Decision) -> bool {
    let waited = matches!(view.entry, Some(Entry { state: State::Waits { .. }, .. }));
    match (view.state(), decision) {
        (None, _) => waited,
        (Some(_), Decision::Stay) => true,
        (Some(State::Waits { until }), Decision::Go(_)) => until > view.now,
        (Some(_), _) => false,
    }
}

/// The original's events name the pod without its UID.
fn event(pod: &Key, what: &str) -> EventSpec {
    let regarding =
        Regarding { kind: &PODS, key: pod.clone(), uid: Uid::default(), resource_version: Str::EMPTY };
    EventSpec {
        regarding,
        warning: false,
        reason: "TaintManagerEviction",
        message: format!("{what} {}/{}", pod.namespace, pod.name),
    }
}

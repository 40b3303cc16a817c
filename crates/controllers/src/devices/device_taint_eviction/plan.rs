//! Whether a pod stays, waits or goes, and what is written then. Pure.
//!
//! | its time | pod | what is done |
//! |---|---|---|
//! | none | waited | it is told that it stays |
//! | not over | | it waits |
//! | over | not read live yet | it is, with what it goes for |
//! | | gone, or another one | nothing |
//! | | being deleted | that is counted |
//! | | there | event, condition, delete |

use std::time::Duration;

use jiff::Timestamp;

use super::memory::{Entry, Eviction, Note};
use super::verdict::Verdict;
use super::view::{Live, View};
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::{EventSpec, Regarding};
use coxswain_machinery::model::pods::Evictor;
use coxswain_machinery::model::{Plan, Step};
use coxswain_machinery::wire::Str;

const EVICTOR: Evictor = Evictor {
    reason: "DeletionByDeviceTaintManager",
    message: "Device Taint manager: deleting due to NoExecute taint",
    names_generation: false,
};
/// A pod that waits is looked at after so long at the latest: clocks may be set.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

pub(super) fn plan(view: &View, now: Timestamp) -> Plan<Note> {
    let mut plan = Plan { is_gone: view.pod.is_none(), ..Plan::default() };
    let Some(pod) = &view.pod else { return plan.with_note(Note::default()) };
    let waits = |is_due| Note { next: Some(Entry { uid: pod.metadata.uid.clone(), is_due }), eviction: None };
    let note = match (&view.verdict, &view.live) {
        _ if view.is_evicted => Note::default(),
        (None, _) => {
            if view.entry.is_some() {
                plan.steps.push(Step::Emit(event(pod, "Cancelling deletion")));
            }
            Note::default()
        }
        (Some(Verdict { at, .. }), _) if *at > now => {
            plan.requeue_after = Some(between(now, *at).min(LONGEST_WAIT));
            waits(false)
        }
        (Some(_), None) => {
            plan.look_again = true;
            waits(true)
        }
        (Some(_), Some(Live::Gone)) => Note::default(),
        (Some(verdict), Some(Live::There(live))) => {
            let is_found = live.metadata.is_deleting();
            if !is_found {
                plan.steps.push(Step::Emit(event(live, "Marking for deletion")));
                plan.steps.extend(EVICTOR.writes(live, now).into_iter().map(Step::Write));
            }
            let eviction = Eviction {
                uid: live.metadata.uid.clone(),
                rules: verdict.rules().cloned().collect(),
                overdue: between(verdict.at, now),
                is_found,
            };
            Note { next: None, eviction: Some(eviction) }
        }
    };
    plan.with_note(note)
}

/// From one time to a later one; nothing if it is earlier.
pub(super) fn between(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or(Duration::ZERO)
}

fn event(pod: &Pod, message: &str) -> EventSpec {
    let regarding = Regarding::of(&PODS, &pod.metadata);
    EventSpec {
        regarding: Regarding { resource_version: Str::EMPTY, ..regarding },
        warning: false,
        reason: "DeviceTaintManagerEviction",
        message: message.to_owned(),
    }
}

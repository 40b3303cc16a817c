//! What is to be done about one budget. Pure.
//!
//! Either everything is known that the status rests on, or the budget is closed: nothing may be evicted, and the condition says
//! why. A write that conflicts closes nothing: somebody, mostly an eviction, was faster, and the next look has it.
//!
//! | module | decides on |
//! |---|---|
//! | [`count`] | the numbers, and which entries of `disruptedPods` stay |
//! | [`status`] | whether the status says so, and the bytes of one that does |
//! | [`events`] | what is told |
//! | [`reasons`] | nothing: it says in words why |

use jiff::Timestamp;

use super::view::View;
use coxswain_machinery::model::{Failure, Plan, Step};

mod count;
mod events;
pub(super) mod reasons;
mod status;

use count::Count;

pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    let counted = Count::of(view, now);
    if let Some(failure) = view.failures.first() {
        return record(view, failure, counted.is_ok(), now);
    }
    let mut plan = Plan::default();
    plan.steps.extend(events::of(view, &counted).into_iter().map(Step::Emit));
    let written = match &counted {
        Ok(count) => {
            if let Some(wait) = count.next_look() {
                plan.look_again_after(wait);
            }
            status::counted(view, count, now)
        }
        Err(unknown) => {
            // What hangs on objects is over when one of them changes; who had no answer asks again.
            plan.retry = unknown.may_pass().then(|| unknown.to_string());
            status::closed(view, &unknown.to_string(), now)
        }
    };
    match written {
        Ok(write) => plan.write_status(write),
        Err(error) => plan.retry = Some(format!("status: {error}")),
    }
    plan
}

/// The plan after a write that failed.
fn record(view: &View, failure: &Failure, was_counted: bool, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    // If nothing was counted, the write that failed was the one that was to close it.
    if was_counted && !failure.is_conflict() {
        match status::closed(view, &failure.message, now) {
            Ok(write) => plan.write_status(write),
            Err(error) => plan.retry = Some(format!("status: {error}")),
        }
        // What was refused is so until something changes. Who had no answer asks again.
        plan.end = (400..500).contains(&failure.code) && failure.code != 429;
    }
    plan
}

//! What a reconcile on demand did, or would do, for people.

use super::human::{duration_or_none, read_duration};
use super::sheet::Sheet;
use super::table::table;
use super::{clean, human, names};
use crate::admin::proto::{Action, ActionResult, SyncObjectRequest, SyncObjectResponse};

/// The steps as a table; a column says why where one failed.
fn steps(actions: &[Action]) -> String {
    let failed = actions.iter().any(|action| !action.error.is_empty());
    let headings = ["STEP", "RESULT", "ERROR"];
    let shown = if failed { 3 } else { 2 };
    let rows = actions.iter().map(|action| {
        let row = vec![clean(&action.summary), names::result(action.result), clean(&action.error)];
        row.into_iter().take(shown).collect()
    });
    table(&headings[..shown], rows)
}

/// Sentences, one on a line.
fn lines(reasons: &[String]) -> String {
    reasons.iter().map(|reason| clean(reason) + "\n").collect()
}

/// All of it.
pub(in crate::cli) fn sheet(request: &SyncObjectRequest, answer: &SyncObjectResponse) -> String {
    let mut sheet = Sheet::default();
    sheet
        .fact("Object", request.object.as_ref().map(super::queues::key).unwrap_or_default())
        .fact("Controller", &request.controller)
        .fact("Queue", &answer.queue)
        .fact("Outcome", names::outcome(answer.outcome))
        .fact_if("Message", &answer.message)
        .fact("Took", duration_or_none(answer.duration.as_ref()));
    if let Some(after) = read_duration(answer.requeue_after.as_ref()) {
        sheet.fact("Next reconcile", human::duration(after));
    }
    sheet.fact_if("Trace", &answer.trace_id);
    if !answer.reasons.is_empty() {
        sheet.block("Why", &lines(&answer.reasons));
    }
    let planned = answer.actions.iter().all(|action| action.result == ActionResult::Planned as i32);
    match (answer.actions.is_empty(), request.explain && planned) {
        (true, _) => sheet.fact("Steps", "none: nothing to do"),
        (false, true) => sheet.block("Planned steps", &steps(&answer.actions)),
        (false, false) => sheet.block("Steps", &steps(&answer.actions)),
    };
    sheet.text()
}

//! What is told, what the node's list says from here on, and what attachers are asked for: one after the other.

use jiff::Timestamp;

use super::draft::{Draft, Stage, draft, list};
use super::note::Note;
use super::refused::refused;
use super::view::View;
use super::writes;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::kinds::{NODES, VOLUME_ATTACHMENTS};
use coxswain_machinery::framework::DeclaredRead;
use coxswain_machinery::model::{Plan, Step};

fn has_failed(view: &View, kind: &Kind) -> bool {
    view.failures.iter().any(|failure| failure.kind == kind)
}

/// What must be read live before it can be decided.
pub(super) fn needs(view: &View) -> Vec<DeclaredRead> {
    if has_failed(view, &VOLUME_ATTACHMENTS) { Vec::new() } else { draft(view).needs }
}

pub(super) fn plan(view: &View, _: Timestamp) -> Plan<Note> {
    let is_refused = has_failed(view, &VOLUME_ATTACHMENTS);
    let draft = if is_refused { refused(view) } else { draft(view) };
    let mut plan = Plan::default();
    plan.steps.extend(draft.events.iter().cloned().map(Step::Emit));
    match (draft.stage, view.node.as_deref(), list(&draft.book, view)) {
        _ if is_refused => {
            // A refused VolumeAttachment has a backoff of its own; a list that could not be written is retried by the queue, after `LONGEST_BACKOFF` at the latest.
            plan.end = !has_failed(view, &NODES);
            plan.requeue_after = draft.look_in;
        }
        (Stage::Tell, ..) => plan.look_again = true,
        (Stage::List, Some(node), Some(wanted)) => {
            plan.write_status(Some(writes::list(node, &wanted)));
            plan.look_again = true;
        }
        _ => {
            let asks: Vec<_> = draft.asks.iter().filter_map(|ask| writes::ask(view, ask)).collect();
            if !asks.is_empty() {
                plan.steps.push(Step::Each(asks));
            }
            plan.requeue_after = draft.look_in;
            // Volumes that rest on a failed read have a backoff of their own, and the error is reported.
            plan.retry = (!view.unreadable.is_empty()).then(|| view.unreadable.join("; "));
        }
    }
    plan.with_note(note(view, draft))
}

fn note(view: &View, draft: Draft) -> Note {
    let Draft { book, ended, forced, .. } = draft;
    Note { book, is_there: view.node.is_some(), taken_up: view.taken_up.clone(), ended, forced }
}

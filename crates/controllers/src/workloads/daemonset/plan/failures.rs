//! What is left to do in the same reconcile when a write of its first plan failed. The key is retried in any case.

use super::super::view::{View, in_the_way};
use coxswain_machinery::api::apps::ControllerRevision;
use coxswain_machinery::api::kinds::{CONTROLLER_REVISIONS, PODS};
use coxswain_machinery::model::revisions::TemplateDocument;
use coxswain_machinery::model::{Failure, Key};

/// What is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remains {
    /// Everything: nothing has failed; or the revision that was to be created is there, as it should be.
    All,
    /// A pod could not be created: deletes, and the status.
    Deletes,
    /// A pod or a revision could not be deleted: the status.
    Status,
    /// The name of the present revision belongs to another one: that is counted, and the next name is another.
    Collision,
    /// Nothing: what failed comes before all that counts.
    Nothing,
}

pub(super) fn judge(view: &View, document: &TemplateDocument) -> Remains {
    let failures = &view.failures;
    if failures.is_empty() {
        return Remains::All;
    }
    let has = |kind, verb| move |failure: &&Failure| failure.kind == kind && failure.verb == verb;
    if let Some(failure) = failures.iter().find(has(&CONTROLLER_REVISIONS, "create")) {
        // If it can't be told what is there, the next try will tell.
        let existing = failure.is_already_exists().then(|| in_the_way(failure)).flatten();
        return match existing {
            None => Remains::Nothing,
            Some(existing) if document.is_in(&existing) => Remains::All,
            Some(_) => Remains::Collision,
        };
    }
    let failed = |kind, verb| failures.iter().any(|failure| has(kind, verb)(&failure));
    if failed(&PODS, "create") {
        Remains::Deletes
    } else if failures.iter().any(|failure| is_of_duplicate(view, document, failure)) {
        Remains::Nothing
    } else if failed(&PODS, "delete") || failed(&CONTROLLER_REVISIONS, "delete") {
        Remains::Status
    } else {
        Remains::Nothing
    }
}

/// Whether a revision of the present template could not be deleted, of which there are several.
fn is_of_duplicate(view: &View, document: &TemplateDocument, failure: &Failure) -> bool {
    let is_it = |revision: &ControllerRevision| Key::of(&revision.metadata) == failure.key;
    failure.kind == &CONTROLLER_REVISIONS
        && failure.verb == "delete"
        && view.revisions.iter().any(|revision| is_it(revision) && document.is_in(revision))
}

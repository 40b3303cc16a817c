//! Which revision is the present one: that of the StatefulSet's template as it is. Pure.

use std::sync::Arc;

use coxswain_machinery::api::apps::ControllerRevision;
use coxswain_machinery::model::revisions::{self, TemplateDocument};

/// The present revision.
#[derive(Clone, Debug)]
pub(super) enum Present {
    /// It is there.
    Held(Arc<ControllerRevision>),
    /// It is an earlier one, to which the template went back: it gets this number.
    Renumbered(Arc<ControllerRevision>, i64),
    /// It is to be made, with this number.
    Missing(i64),
}

impl Present {
    /// Among the revisions, sorted, that with the bytes of `document`; the last of several.
    pub(super) fn of(revisions: &[Arc<ControllerRevision>], document: &TemplateDocument) -> Self {
        let next = revisions::next_number(revisions);
        let at = revisions.iter().rposition(|revision| document.is_in(revision));
        match at {
            Some(at) if at + 1 == revisions.len() => Self::Held(Arc::clone(&revisions[at])),
            Some(at) => Self::Renumbered(Arc::clone(&revisions[at]), next),
            None => Self::Missing(next),
        }
    }

    /// The revision, if it is there.
    pub(super) fn revision(&self) -> Option<&Arc<ControllerRevision>> {
        match self {
            Self::Held(revision) | Self::Renumbered(revision, _) => Some(revision),
            Self::Missing(_) => None,
        }
    }
}

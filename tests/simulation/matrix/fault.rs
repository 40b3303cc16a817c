//! Answers that a write can get instead of its effect, and the requests that get them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::rows::Row;
use super::seeder::{DRIVER, attachment_name};
use super::{TAGS, VICTIM};
use crate::faults::Fate;
use apiserver_model::http::{Answer, Asked};
use apiserver_model::{Model, Refusal};

/// Seconds that a 429 asks to wait.
pub(super) const RETRY_AFTER: u32 = 5;

/// An answer in place of a write's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Forbidden,
    NotFound,
    Conflict,
    Invalid,
    TooManyRequests,
    InternalError,
    Unavailable,
    /// The write takes effect, and the request times out.
    TimeoutAfter,
    /// The request times out before the write takes effect.
    TimeoutBefore,
    /// The answer reports success, and a mutating webhook has undone the write.
    Undone,
}

pub(super) const FAULTS: [Fault; 10] = [
    Fault::Forbidden,
    Fault::NotFound,
    Fault::Conflict,
    Fault::Invalid,
    Fault::TooManyRequests,
    Fault::InternalError,
    Fault::Unavailable,
    Fault::TimeoutAfter,
    Fault::TimeoutBefore,
    Fault::Undone,
];

impl Fault {
    /// Whether a write can get this answer. A webhook cannot undo a delete.
    pub(super) fn can_befall(self, row: &Row) -> bool {
        let is_delete = row.write.starts_with("delete");
        !(row.without.contains(&self) || is_delete && self == Self::Undone)
    }

    /// Whether the answer says that a watch is about to show a change, so that nothing has to be sent again before: the object is gone,
    /// another one of the name exists, or the write was carried out.
    pub(super) fn announces_change(self, row: &Row) -> bool {
        let is_create = row.write.starts_with("create");
        match self {
            Self::NotFound => !is_create,
            Self::Conflict => is_create,
            _ => false,
        }
    }

    /// Whether the client waits for its deadline.
    pub(super) fn is_timeout(self) -> bool {
        matches!(self, Self::TimeoutAfter | Self::TimeoutBefore)
    }

    fn fate(self, asked: &Asked) -> Fate {
        let refused = |code, reason, message: &str| Fate::Refused(Refusal::new(code, reason, message));
        match self {
            Self::Forbidden => {
                refused(403, "Forbidden", "admission webhook \"matrix.test\" denied the request: no")
            }
            Self::NotFound => refused(404, "NotFound", "the object was not found"),
            Self::Conflict if asked.verb() == "create" => {
                refused(409, "AlreadyExists", "the object already exists")
            }
            Self::Conflict => refused(409, "Conflict", "the object has been modified"),
            Self::Invalid => refused(422, "Invalid", "the object is invalid"),
            Self::TooManyRequests => Fate::Refused(Refusal::later(RETRY_AFTER)),
            Self::InternalError => refused(500, "InternalError", "an error on the server"),
            Self::Unavailable => refused(503, "ServiceUnavailable", "the server cannot handle the request"),
            Self::TimeoutAfter => Fate::Unanswered,
            Self::TimeoutBefore => Fate::Silent,
            Self::Undone => Fate::Undone,
        }
    }
}

/// A planted bug: a manager as the API server sees it. Each must fail the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A refused write ends the pass over all objects.
    StopsTheRest,
    /// A refused write is sent again at once.
    Spins,
    /// A refused write is never sent again.
    GivesUp,
}

/// Which writes get the answer, and a log of all requests.
pub(crate) struct Aim {
    pub(super) controller: &'static str,
    /// Verb and resource, as [`write_of`] returns them.
    pub(super) write: &'static str,
    /// Whether the write is for one object of the cluster, which has no tag.
    pub(super) single: bool,
    /// A write that the server answers with 405.
    pub(super) unsupported: Option<&'static str>,
    pub(super) fault: Fault,
    pub(super) planted: Option<Planted>,
    pub(super) is_on: bool,
    began: Instant,
    pub(super) log: Log,
}

/// Requests of the controller under test.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// When the victim's write was sent while it got the answer.
    pub(super) attempts: Vec<Duration>,
    /// Reads that name the victim, in the same time.
    pub(super) reads: u64,
    /// When the write was first carried out, by tag.
    pub(super) first: BTreeMap<&'static str, Duration>,
    /// All writes.
    pub(super) writes: BTreeSet<String>,
}

/// Returns verb and resource of a write, as `create pods` or `update deployments.apps/status`; `None` for reads and for Events,
/// which no controller waits for.
pub(super) fn write_of(asked: &Asked) -> Option<String> {
    if asked.path.ends_with("/subjectaccessreviews") {
        return Some("create subjectaccessreviews.authorization.k8s.io".to_owned());
    }
    let kind = asked.kind.filter(|kind| asked.is_write() && kind.resource != "events")?;
    let slash = if asked.subresource.is_empty() { "" } else { "/" };
    Some(format!("{} {kind}{slash}{}", asked.verb(), asked.subresource))
}

fn names(asked: &Asked, tag: &str) -> bool {
    let is_attachment = || asked.path.ends_with(&attachment_name(DRIVER, tag));
    asked.path.contains(tag)
        || is_attachment()
        || asked.body.windows(tag.len()).any(|part| part == tag.as_bytes())
}

impl Aim {
    pub(super) fn new(row: &Row, fault: Fault, planted: Option<Planted>) -> Self {
        let Row { controller, write, single, unsupported, .. } = *row;
        let (began, log) = (Instant::now(), Log::default());
        Self { controller, write, single, unsupported, fault, planted, is_on: true, began, log }
    }

    /// Returns the fate of a request of this controller.
    pub(crate) fn fate(&mut self, agent: &str, asked: &Asked) -> Fate {
        if agent != self.controller || asked.is_watch {
            return Fate::Fine;
        }
        let Some(write) = write_of(asked) else {
            let is_event = asked.kind.is_some_and(|kind| kind.resource == "events");
            self.log.reads += u64::from(self.is_on && !is_event && names(asked, VICTIM));
            return Fate::Fine;
        };
        let is_it = write == self.write;
        let is_unsupported = self.unsupported.is_some_and(|unsupported| write == unsupported);
        self.log.writes.insert(write);
        if is_unsupported {
            let why = "the server does not allow this method on the requested resource";
            return Fate::Refused(Refusal::new(405, "MethodNotAllowed", why));
        }
        let tag = if self.single { Some(VICTIM) } else { TAGS.into_iter().find(|tag| names(asked, tag)) };
        let Some(tag) = tag.filter(|_| is_it) else { return Fate::Fine };
        let now = self.began.elapsed();
        let was_refused = !self.log.attempts.is_empty();
        if tag != VICTIM {
            if self.is_on && was_refused && self.planted == Some(Planted::StopsTheRest) {
                return Fault::Unavailable.fate(asked);
            }
            self.log.first.entry(tag).or_insert(now);
            return Fate::Fine;
        }
        if self.is_on {
            let times = if self.planted == Some(Planted::Spins) { 100 } else { 1 };
            self.log.attempts.extend(std::iter::repeat_n(now, times));
            return self.fault.fate(asked);
        }
        if was_refused && self.planted == Some(Planted::GivesUp) {
            return self.fault.fate(asked);
        }
        self.log.first.entry(tag).or_insert(now);
        Fate::Fine
    }
}

/// Answers a write that a mutating webhook undoes: what is created loses its labels and owners, and other writes change nothing.
pub(crate) fn undone(model: &mut Model, by: &str, asked: &Asked) -> Result<Answer, Refusal> {
    let mut mutated = asked.clone();
    if asked.verb() == "create" {
        mutated.edit(|object| {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.shift_remove("labels");
                metadata.shift_remove("ownerReferences");
            }
        });
    } else {
        mutated.method = http::Method::GET;
        mutated.body = bytes::Bytes::new();
        if !asked.is_of_scale() {
            mutated.subresource.clear();
        }
    }
    model.answer(by, &mutated)
}

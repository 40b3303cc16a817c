//! Whether the Job's time is over: then it is deleted, otherwise looked at again when it is.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::view::View;
use coxswain_machinery::api::kinds::JOBS;
use coxswain_machinery::model::plan::{Propagation, Tolerate, Verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};

/// What a plan tells beside its steps: for how long the Job that it deletes has been due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) overdue: Option<Duration>,
}

pub(super) fn plan(view: &View, now: Timestamp) -> Plan<Note> {
    let job = &view.job.metadata;
    let Some(finished_at) = view.finished_at else {
        let error = format!("unable to find the time when the Job {}/{} finished", job.namespace, job.name);
        return Plan { retry: Some(error), ..Plan::default() }.with_note(Note::default());
    };
    let due = finished_at.plus_seconds(i64::from(view.ttl_seconds)).seconds();
    let left = SignedDuration::from_secs(due).saturating_sub(now.as_duration());
    if left.is_positive() {
        let requeue_after = Some(left.unsigned_abs());
        return Plan { requeue_after, end: view.has_failed, ..Plan::default() }.with_note(Note::default());
    }
    let delete = Verb::Delete {
        uid: job.uid.clone(),
        resource_version: Some(job.resource_version.clone()),
        propagation: Some(Propagation::Foreground),
        grace_period: None,
    };
    let delete = Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&JOBS, Key::of(job), delete)
    };
    // In place of the delete that met a conflict.
    Plan { steps: vec![Step::Write(delete)], end: view.has_failed, ..Plan::default() }
        .with_note(Note { overdue: Some(left.unsigned_abs()) })
}

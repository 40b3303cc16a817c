//! What a DaemonSet's status should say, and the bytes of one that says so. Of each node its first pod speaks.

use std::time::Duration;

use jiff::Timestamp;

use super::super::view::View;
use super::daemons::Daemons;
use super::writes;
use coxswain_machinery::api::apps::{DaemonSet, DaemonSetStatus};
use coxswain_machinery::api::kinds::DAEMON_SETS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::{Key, Write, pods};
use coxswain_machinery::wire::splice::{Edit, edit, get};
use coxswain_machinery::wire::{Value, WireError, path};

/// What the status should say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    desired: i32,
    current: i32,
    misscheduled: i32,
    ready: i32,
    available: i32,
    updated: i32,
}

pub(super) fn of(view: &View, daemons: &Daemons<'_>, hash: &str, now: Timestamp) -> Counts {
    let min_ready = view.daemon_set.spec.min_ready_seconds;
    let mut counts = Counts { desired: daemons.desired as i32, ..Counts::default() };
    for (node, fit) in &daemons.nodes {
        let Some(pod) = daemons.on(node).first() else { continue };
        if !fit.runs() {
            counts.misscheduled += 1;
            continue;
        }
        counts.current += 1;
        counts.ready += i32::from(pod.is_ready());
        counts.available += i32::from(pods::is_available(pod, min_ready, now));
        counts.updated += i32::from(writes::is_new(view, pod, hash));
    }
    counts
}

impl Counts {
    /// Whether the DaemonSet's status counts the same, if of an earlier generation.
    pub(super) fn is_counted_by(&self, daemon_set: &DaemonSet) -> bool {
        let said = &daemon_set.status;
        let counted = Self {
            desired: said.desired_number_scheduled,
            current: said.current_number_scheduled,
            misscheduled: said.number_misscheduled,
            ready: said.number_ready,
            available: said.number_available,
            updated: said.updated_number_scheduled,
        };
        *self == counted && said.number_unavailable == self.unavailable()
    }

    fn unavailable(&self) -> i32 {
        self.desired - self.available
    }
}

/// When to look again although nothing happens: when the next ready pod becomes available. A ready pod that does not say since
/// when it is is looked at once per `minReadySeconds`.
pub(super) fn next_look(view: &View, kept: &[&Pod], counts: &Counts, now: Timestamp) -> Option<Duration> {
    let min_ready = view.daemon_set.spec.min_ready_seconds;
    if min_ready <= 0 {
        return None;
    }
    let next = pods::next_availability(kept.iter().copied(), min_ready, now);
    let is_waiting = counts.ready != counts.available;
    next.or_else(|| is_waiting.then(|| Duration::from_secs(u64::from(min_ready.unsigned_abs()))))
}

/// The update that makes the status say so; `None` when it does already.
pub(super) fn write(view: &View, counts: &Counts) -> Result<Option<Write>, WireError> {
    let daemon_set = &view.daemon_set;
    let generation = daemon_set.metadata.generation;
    if counts.is_counted_by(daemon_set) && daemon_set.status.observed_generation >= generation {
        return Ok(None);
    }
    let number = |path, value: i32| Edit::SetVarint(path, i64::from(value) as u64);
    let edits = [
        number(path!(DaemonSetStatus, desiredNumberScheduled), counts.desired),
        number(path!(DaemonSetStatus, currentNumberScheduled), counts.current),
        number(path!(DaemonSetStatus, numberMisscheduled), counts.misscheduled),
        number(path!(DaemonSetStatus, numberReady), counts.ready),
        number(path!(DaemonSetStatus, updatedNumberScheduled), counts.updated),
        number(path!(DaemonSetStatus, numberAvailable), counts.available),
        number(path!(DaemonSetStatus, numberUnavailable), counts.unavailable()),
        Edit::SetVarint(path!(DaemonSetStatus, observedGeneration), generation as u64),
    ];
    updated(daemon_set, &edits).map(Some)
}

/// The update that counts one more collision of revisions' names.
pub(super) fn collided(view: &View) -> Result<Option<Write>, WireError> {
    let count = view.daemon_set.status.collision_count.unwrap_or(0).saturating_add(1);
    let count = Edit::SetVarint(path!(DaemonSetStatus, collisionCount), i64::from(count) as u64);
    updated(&view.daemon_set, &[count]).map(Some)
}

/// A DaemonSet that is gone needs no status.
fn updated(daemon_set: &DaemonSet, edits: &[Edit]) -> Result<Write, WireError> {
    let held = get(&daemon_set.raw, path!(DaemonSet, status))?;
    let held = held.map(Value::bytes).transpose()?.unwrap_or_default();
    let status = edit(held, edits)?;
    let body = edit(&daemon_set.raw, &[Edit::SetBytes(path!(DaemonSet, status), status)])?;
    Ok(Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&DAEMON_SETS, Key::of(&daemon_set.metadata), Verb::Update(body.into())).on("status")
    })
}

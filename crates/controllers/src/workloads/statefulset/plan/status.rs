//! What a StatefulSet's status should say, and the bytes of one that says so.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::super::view::{View, is_made_of};
use super::pods::{is_available, is_healthy};
use coxswain_machinery::api::apps::{StatefulSet, StatefulSetStatus};
use coxswain_machinery::api::kinds::STATEFUL_SETS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::{Key, Write, pods};
use coxswain_machinery::wire::splice::{Edit, edit, get};
use coxswain_machinery::wire::{Str, Value, WireError, path};

/// What the status should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Desired {
    replicas: i32,
    ready: i32,
    available: i32,
    current: i32,
    updated: i32,
    current_revision: Str,
    update_revision: Str,
    collisions: i32,
}

/// The status for these pods, of which so many are just being replaced.
pub(super) fn of(view: &View, kept: &[&Pod], replaced: usize, now: Timestamp) -> Desired {
    let set = &view.set;
    let count = |test: &dyn Fn(&Pod) -> bool| kept.iter().filter(|pod| test(pod)).count() as i32;
    let update_revision = view
        .present
        .revision()
        .map_or_else(|| set.status.update_revision.clone(), |revision| revision.metadata.name.clone());
    let current_revision =
        view.current().map_or_else(|| update_revision.clone(), |revision| revision.metadata.name.clone());
    let made_of =
        |revision: &Str| count(&|pod| !pod.metadata.is_deleting() && is_made_of(pod, revision.as_str()));
    let mut desired = Desired {
        replicas: count(&|pod| !pod.status.phase.is_empty()),
        ready: count(&is_healthy),
        available: count(&|pod| is_available(set, pod, now)),
        current: made_of(&current_revision).saturating_sub(replaced as i32).max(0),
        updated: made_of(&update_revision),
        current_revision,
        update_revision,
        collisions: view.collisions,
    };
    let wanted = set.spec.replicas.unwrap_or(1);
    let is_complete = [desired.replicas, desired.ready, desired.updated].iter().all(|count| *count == wanted);
    // With OnDelete as well, as kube-controller-manager from 1.37 on. Differs: on-delete-revision.
    let follows = ["RollingUpdate", "OnDelete"].contains(&set.spec.update_strategy.r#type.as_str());
    if follows && is_complete {
        desired.current_revision = desired.update_revision.clone();
        desired.current = desired.updated;
    }
    desired
}

impl Desired {
    /// Whether the status says so already. Collisions alone are no reason to write.
    fn is_said_by(&self, set: &StatefulSet) -> bool {
        let said = &set.status;
        said.replicas == self.replicas
            && said.ready_replicas == self.ready
            && said.available_replicas == self.available
            && said.current_replicas == self.current
            && said.updated_replicas == self.updated
            && said.current_revision == self.current_revision
            && said.update_revision == self.update_revision
            && said.observed_generation >= set.metadata.generation
    }
}

/// The update that makes the status say so; `None` when it does already. A StatefulSet that is gone needs none.
pub(super) fn write(view: &View, desired: &Desired) -> Result<Option<Write>, WireError> {
    let set = &view.set;
    if desired.is_said_by(set) {
        return Ok(None);
    }
    let verb = Verb::Update(spliced(set, desired)?);
    Ok(Some(Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(&STATEFUL_SETS, Key::of(&set.metadata), verb).on("status")
    }))
}

/// The StatefulSet's own bytes with the new status in them.
fn spliced(set: &StatefulSet, desired: &Desired) -> Result<Bytes, WireError> {
    let number = |path, value: i64| Edit::SetVarint(path, value as u64);
    let text = |path, value: &Str| Edit::set_text(path, value);
    let edits = [
        number(path!(StatefulSetStatus, observedGeneration), set.metadata.generation),
        number(path!(StatefulSetStatus, replicas), desired.replicas.into()),
        number(path!(StatefulSetStatus, readyReplicas), desired.ready.into()),
        number(path!(StatefulSetStatus, currentReplicas), desired.current.into()),
        number(path!(StatefulSetStatus, updatedReplicas), desired.updated.into()),
        text(path!(StatefulSetStatus, currentRevision), &desired.current_revision),
        text(path!(StatefulSetStatus, updateRevision), &desired.update_revision),
        number(path!(StatefulSetStatus, collisionCount), desired.collisions.into()),
        number(path!(StatefulSetStatus, availableReplicas), desired.available.into()),
    ];
    let held = get(&set.raw, path!(StatefulSet, status))?.map(Value::bytes).transpose()?.unwrap_or_default();
    let status = edit(held, &edits)?;
    edit(&set.raw, &[Edit::SetBytes(path!(StatefulSet, status), status)]).map(Bytes::from)
}

/// When to look again although nothing happens: when the next ready pod becomes available. A ready pod that does not say since
/// when it is is looked at once per `minReadySeconds`.
pub(super) fn next_look(view: &View, kept: &[&Pod], desired: &Desired, now: Timestamp) -> Option<Duration> {
    let min_ready = view.set.spec.min_ready_seconds;
    if min_ready <= 0 || desired.ready == desired.available {
        return None;
    }
    let next = pods::next_availability(kept.iter().copied(), min_ready, now);
    next.or(Some(Duration::from_secs(u64::from(min_ready.unsigned_abs()))))
}

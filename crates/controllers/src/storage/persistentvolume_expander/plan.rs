//! Who grows a volume, and what is told or written for it.

use jiff::Timestamp;

use super::flex::{self, Course};
use super::view::{View, capacity, requested};
use super::writes::{self, PRE_RESIZE, RESIZER};
use crate::storage::migration::{self, InTree};
use coxswain_machinery::api::kinds::PERSISTENT_VOLUME_CLAIMS;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::model::plan::{EventSpec, Regarding};
use coxswain_machinery::model::{Plan, Step};
use coxswain_machinery::wire::Str;

/// What the controller's metrics count of a plan.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Note {
    /// The FlexVolume driver of the volume that is grown.
    pub(super) driver: Option<Str>,
}

/// What is to be done about a claim.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict<'a> {
    /// It has no volume.
    Unbound,
    /// It has what it asks for.
    Satisfied,
    /// Its volume was migrated to this CSI driver, whose resizer is waited for.
    Migrated(&'static InTree),
    /// It is a FlexVolume driver's.
    Flex(&'a Str, Course),
    /// Somebody else is waited for.
    External,
}

pub(super) fn verdict(view: &View) -> Verdict<'_> {
    let Some(volume) = &view.volume else { return Verdict::Unbound };
    let claim = &view.claim;
    let source = &volume.spec.persistent_volume_source;
    let flex = source.flex_volume.as_ref().map(|flex| &flex.driver);
    if let Some(driver) = flex.filter(|_| view.has_begun) {
        return Verdict::Flex(driver, Course::Go);
    }
    let is_satisfied = !requested(claim).exceeds(capacity(claim));
    if is_satisfied && !volume.metadata.annotations.contains_key(PRE_RESIZE) {
        return Verdict::Satisfied;
    }
    match (migration::of_volume(source), flex) {
        (Some(of), _) => Verdict::Migrated(of),
        (None, Some(driver)) => Verdict::Flex(driver, flex::course(claim, volume)),
        (None, None) => Verdict::External,
    }
}

pub(super) fn plan(view: &View, now: Timestamp) -> Plan<Note> {
    let claim = &view.claim;
    let mut note = Note::default();
    let plan = match (verdict(view), &view.volume) {
        (Verdict::Unbound | Verdict::Satisfied, _) | (_, None) => Plan::default(),
        (Verdict::External, _) => {
            steps([waits(claim, "waiting for an external controller to expand this PVC".to_owned())])
        }
        (Verdict::Migrated(of), _) => migrated(claim, of),
        (Verdict::Flex(driver, course), Some(volume)) => {
            if course != Course::Finish {
                note.driver = Some(driver.clone());
            }
            flex(view, volume, driver, &course, now)
        }
    };
    plan.with_note(note)
}

fn migrated(claim: &PersistentVolumeClaim, of: &InTree) -> Plan {
    let told =
        format!("CSI migration enabled for {}; waiting for external resizer to expand the pvc", of.plugin);
    let mut plan = steps([waits(claim, told)]);
    if claim.metadata.annotations.get(RESIZER).is_none_or(|resizer| resizer != of.driver) {
        plan.steps.push(Step::Write(writes::resizer(claim, of.driver)));
    }
    plan
}

fn flex(view: &View, volume: &PersistentVolume, driver: &str, course: &Course, now: Timestamp) -> Plan {
    let claim = &view.claim;
    match course {
        Course::Finish => steps([Step::Write(writes::without_annotation(volume))]),
        Course::Wait => Plan::default(),
        Course::MarkPending => steps(writes::pending_on_node(claim, volume, now, writes::Marking::Again)),
        Course::Grow(size) => Plan {
            // The steps for the node are made of what these are answered with.
            look_again: true,
            ..steps(writes::begun(claim, volume, driver, size, now))
        },
        Course::Go if flex::is_block(volume) => steps([Step::Write(writes::resized(claim, volume))]),
        Course::Go => steps(writes::pending_on_node(claim, volume, now, writes::Marking::First)),
    }
}

fn steps(steps: impl IntoIterator<Item = Step>) -> Plan {
    Plan { steps: steps.into_iter().collect(), ..Plan::default() }
}

fn waits(claim: &PersistentVolumeClaim, message: String) -> Step {
    Step::Emit(EventSpec {
        regarding: Regarding::of(&PERSISTENT_VOLUME_CLAIMS, &claim.metadata),
        warning: false,
        reason: "ExternalExpanding",
        message,
    })
}

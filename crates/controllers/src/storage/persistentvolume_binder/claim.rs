//! What becomes of a claim: it is bound, waits, is lost, or somebody is asked to make a volume for it.

use std::sync::Arc;

use jiff::Timestamp;

use super::facts::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, attributes_of, class_of_claim, has, has_class,
    is_meant_for, waits_for_consumer,
};
use super::matching::{self, Mismatch};
use super::migrating;
use super::note::{Counted, Note, Operation};
use super::plan::{again, steps};
use super::provisioning::{self, Provisioner, Refusal};
use super::view::ClaimView;
use super::writes::{self, Chain};
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use coxswain_machinery::api::storage::PersistentVolume;
use coxswain_machinery::model::metadata::annotation_edit;
use coxswain_machinery::model::plan::{EventSpec, FinishOrder, Regarding, Tolerate, UNPREPARED, Verb};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::wire::{Message as _, Str, WireError};

/// What is done about a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Its annotations are brought in order first.
    Migrate(bytes::Bytes),
    /// It is bound to this volume, or that is finished.
    Bind(Arc<PersistentVolume>),
    /// It gets the default class.
    SetClass(Str),
    /// It waits for the first pod that uses it.
    WaitForConsumer,
    /// Somebody is to make a volume.
    Provision(Provisioner),
    /// There is no volume, and nobody to make one.
    NoVolume,
    /// The volume that it names is not there.
    Missing,
    /// The volume that it names does not suit.
    Unsuitable(Arc<PersistentVolume>, Mismatch),
    /// The volume that it names is another claim's.
    Taken(Arc<PersistentVolume>),
    /// It was bound, and is not any more.
    Lost(Loss),
    /// Its selector makes no sense, or it is malformed.
    Broken(String),
}

/// How a claim was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Reference,
    Volume,
    Misbound,
}

impl Loss {
    fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::Reference => (
                "ClaimLost",
                "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
            ),
            Self::Volume => {
                ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
            }
            Self::Misbound => {
                ("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
            }
        }
    }
}

pub(super) fn verdict(view: &ClaimView) -> Verdict {
    match migrating::of_claim(&view.claim) {
        Ok(Some(changed)) => return Verdict::Migrate(changed),
        Ok(None) => {}
        Err(error) => return Verdict::Broken(error.to_string()),
    }
    let meta = &view.claim.metadata;
    if has(meta, BIND_COMPLETED) {
        return bound(view);
    }
    if view.claim.spec.volume_name.is_empty() {
        return unbound(view);
    }
    match &view.volume {
        None => Verdict::Missing,
        Some(volume) if volume.spec.claim_ref.is_none() => match mismatch(view, volume) {
            Some(why) => Verdict::Unsuitable(Arc::clone(volume), why),
            None => Verdict::Bind(Arc::clone(volume)),
        },
        Some(volume) if is_meant_for(volume, meta) => Verdict::Bind(Arc::clone(volume)),
        Some(volume) => Verdict::Taken(Arc::clone(volume)),
    }
}

/// Returns why the volume that a claim names does not suit it.
fn mismatch(view: &ClaimView, volume: &PersistentVolume) -> Option<Mismatch> {
    let found = matching::mismatch(volume, &view.claim);
    let has_none =
        attributes_of(volume).is_empty() && view.claim.spec.volume_attributes_class_name.is_empty();
    let is_disabled = !view.settings.knows_attributes && !has_none;
    // As in kube-controller-manager, these are checked first.
    let is_first = matches!(found, Some(Mismatch::Deleting | Mismatch::Size | Mismatch::Class));
    if is_disabled && !is_first { Some(Mismatch::AttributesDisabled) } else { found }
}

fn bound(view: &ClaimView) -> Verdict {
    if view.claim.spec.volume_name.is_empty() {
        return Verdict::Lost(Loss::Reference);
    }
    let Some(volume) = &view.volume else { return Verdict::Lost(Loss::Volume) };
    match &volume.spec.claim_ref {
        Some(held) if held.uid != view.claim.metadata.uid => Verdict::Lost(Loss::Misbound),
        _ => Verdict::Bind(Arc::clone(volume)),
    }
}

fn unbound(view: &ClaimView) -> Verdict {
    let claim = &view.claim;
    if !view.settings.knows_attributes && !claim.spec.volume_attributes_class_name.is_empty() {
        return Verdict::Broken(matching::NO_ATTRIBUTES.to_owned());
    }
    let waits = waits_for_consumer(view.class.as_deref());
    match matching::best(claim, waits, &view.candidates) {
        Err(error) => return Verdict::Broken(error.to_string()),
        Ok(Some(volume)) => return Verdict::Bind(volume),
        Ok(None) => {}
    }
    if let Some(class) = view.default_class.as_ref().filter(|_| !has_class(claim)) {
        return Verdict::SetClass(class.clone());
    }
    if waits && !has(&claim.metadata, SELECTED_NODE) {
        return Verdict::WaitForConsumer;
    }
    let class = class_of_claim(claim);
    if class.is_empty() {
        return Verdict::NoVolume;
    }
    Verdict::Provision(provisioning::provisioner(&class, view.class.as_deref()))
}

pub(super) fn plan(view: &ClaimView, now: Timestamp) -> Plan<Note> {
    let mut note = Note { answers: view.answers.clone(), ..Note::default() };
    let planned = match view.failures.first() {
        Some(failure) => record(view, failure, &mut note),
        None => decide(view, now, &mut note),
    };
    let planned = planned.unwrap_or_else(|error| Plan { retry: Some(error.to_string()), ..Plan::default() });
    planned.with_note(note)
}

fn decide(view: &ClaimView, now: Timestamp, note: &mut Note) -> Result<Plan, WireError> {
    match verdict(view) {
        Verdict::Migrate(changed) => Ok(again(vec![updated(view, Verb::Update(changed))])),
        Verdict::Bind(volume) => bind(view, &volume, now, note),
        Verdict::SetClass(class) => {
            note.counted.push(Counted::DefaultClass);
            Chain::of_claim(&view.claim)
                .then("", writes::claim_class(&class))
                .map(|chain| steps(chain.steps()))
        }
        Verdict::WaitForConsumer => pending(view, Some(waiting(view))),
        Verdict::Provision(by) => provision(view, by, now, note),
        Verdict::NoVolume => {
            let message = "no persistent volumes available for this claim and no storage class is set";
            pending(view, Some(told(view, false, "FailedBinding", message.to_owned())))
        }
        Verdict::Missing => pending(view, None),
        Verdict::Unsuitable(volume, why) => {
            let name = &volume.metadata.name;
            let message = format!("Cannot bind to requested volume {name:?}: {}", why.text(name));
            pending(view, Some(told(view, true, "VolumeMismatch", message)))
        }
        Verdict::Taken(volume) => taken(view, &volume),
        Verdict::Lost(loss) => lost(view, loss),
        Verdict::Broken(why) => Ok(Plan { retry: Some(why), ..Plan::default() }),
    }
}

/// Emits and counts a failure to provision, which is retried after a backoff. The queue retries all other failures.
fn record(view: &ClaimView, failure: &Failure, note: &mut Note) -> Result<Plan, WireError> {
    let claim = &view.claim;
    let failed = Some(claim.metadata.uid.clone());
    if failure.kind == &PERSISTENT_VOLUMES && failure.verb == "create" {
        note.failed = failed;
        if failure.reason != UNPREPARED {
            let (at, why) = (Key::of(&claim.metadata), &failure.message);
            let message =
                format!("Error creating provisioned PV object for claim {at}: {why}. Deleting the volume.");
            return Ok(steps(vec![told(view, true, "ProvisioningFailed", message)]));
        }
        let (class, why) = (class_of_claim(claim), &failure.message);
        let message = format!("Failed to provision volume with StorageClass {:?}: {why}", class.as_str());
        let mut all = vec![told(view, true, "ProvisioningFailed", message)];
        all.extend(rescheduled(view)?);
        return Ok(steps(all));
    }
    let is_of_claim = failure.kind == &PERSISTENT_VOLUME_CLAIMS
        && failure.verb == "update"
        && failure.subresource.is_empty();
    if is_of_claim
        && let Verdict::Provision(Provisioner::External(name)) = verdict(view)
        && !provisioning::asked(claim, &name).is_empty()
    {
        note.failed = failed;
        note.counted.push(Counted::Failed(Operation::Provision, name));
    }
    Ok(Plan::default())
}

/// Removes the selected node, so that the scheduler chooses again.
fn rescheduled(view: &ClaimView) -> Result<Vec<Step>, WireError> {
    let claim = &view.claim;
    let node = annotation_edit(SELECTED_NODE, None);
    let edits = if has(&claim.metadata, SELECTED_NODE) { vec![node] } else { Vec::new() };
    Ok(Chain::of_claim(claim).then("", edits)?.steps())
}

/// The four writes, as far as they are missing: volume, its status, claim, its status. The next one is sent when the one before has
/// succeeded, so what a crash leaves is a beginning of them, and the rest is written later.
fn bind(
    view: &ClaimView,
    volume: &PersistentVolume,
    now: Timestamp,
    note: &mut Note,
) -> Result<Plan, WireError> {
    let claim = &view.claim;
    let link = writes::volume_link(volume, &claim.metadata);
    let mut all = Chain::of_volume(volume)
        .then("", link)?
        .then("status", writes::volume_phase(volume, "Bound", ""))?
        .steps();
    let of_claim = Chain::of_claim(claim).then("", writes::claim_link(claim, volume))?;
    let Some(status) = writes::claim_bound(claim, volume, view.settings.knows_attributes) else {
        all.extend(of_claim.steps());
        let retry = Some(format!("volume {} has no storage capacity", volume.metadata.name));
        return Ok(Plan { retry, ..steps(all) });
    };
    all.extend(of_claim.then("status", status)?.steps());
    if all.is_empty() {
        return Ok(Plan::default());
    }
    note.reserves = Some((volume.metadata.name.clone(), volume.metadata.resource_version.clone()));
    note.counted.push(Counted::Bound(claim.metadata.uid.clone(), now));
    Ok(again(all))
}

/// What a claim is told that waits for its first consumer.
fn waiting(view: &ClaimView) -> Step {
    let (reason, message) = match view.unscheduled.as_slice() {
        [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
        [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
        pods => {
            let names: Vec<&str> = pods.iter().map(Str::as_str).collect();
            ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", names.join(",")))
        }
    };
    told(view, false, reason, message)
}

fn taken(view: &ClaimView, volume: &PersistentVolume) -> Result<Plan, WireError> {
    let name = &volume.metadata.name;
    let message = format!("volume {name:?} already bound to a different claim.");
    let event = told(view, true, "FailedBinding", message.clone());
    if has(&view.claim.metadata, BOUND_BY_CONTROLLER) {
        // The binder made the link: somebody else was faster, or a backup tool has restored the claim.
        return Ok(Plan { retry: Some(message), ..steps(vec![event]) });
    }
    pending(view, Some(event))
}

fn lost(view: &ClaimView, loss: Loss) -> Result<Plan, WireError> {
    let is_news = view.claim.status.phase != "Lost";
    let edits = if is_news { writes::claim_without_volume(&view.claim, "Lost") } else { Vec::new() };
    let mut all = Chain::of_claim(&view.claim).then("status", edits)?.steps();
    if is_news {
        let (reason, message) = loss.told();
        all.push(told(view, true, reason, message.to_owned()));
    }
    Ok(steps(all))
}

fn provision(view: &ClaimView, by: Provisioner, now: Timestamp, note: &mut Note) -> Result<Plan, WireError> {
    if !view.settings.provisions || view.backs_off {
        return Ok(Plan::default());
    }
    let begins = |note: &mut Note| {
        let label = provisioning::label(view.class.as_deref());
        let uid = view.claim.metadata.uid.clone();
        note.counted.push(Counted::Began(Operation::Provision, uid, label, now));
    };
    match by {
        // No operation begins, so none is counted.
        Provisioner::Nobody(why) => Ok(steps(vec![told(view, true, "ProvisioningFailed", why)])),
        Provisioner::External(name) => {
            begins(note);
            let mut all = ask(view, &name)?;
            let message = provisioning::external_message(&name);
            all.push(told(view, false, "ExternalProvisioning", message));
            Ok(steps(all))
        }
        Provisioner::HostPath => {
            begins(note);
            make_directory(view, note)
        }
    }
}

/// The claim says who is to make its volume.
fn ask(view: &ClaimView, provisioner: &str) -> Result<Vec<Step>, WireError> {
    let edits = provisioning::asked(&view.claim, provisioner);
    let mut asked = Chain::of_claim(&view.claim).then("", edits)?.steps();
    for step in &mut asked {
        if let Step::Write(write) = step {
            let message = "Error saving claim: {error}".to_owned();
            write.on_failure = Some(event(view, true, "ProvisioningFailed", message));
        }
    }
    Ok(asked)
}

/// A directory of the manager's machine, and the volume in it. The directory is named after the claim, so a second try finds it.
fn make_directory(view: &ClaimView, note: &mut Note) -> Result<Plan, WireError> {
    let (claim, Some(class)) = (&view.claim, &view.class) else { return Ok(Plan::default()) };
    if let Some(why) = provisioning::refused_at_once(claim) {
        return Ok(refused(view, why, note));
    }
    let asked = ask(view, provisioning::HOST_PATH)?;
    if !asked.is_empty() {
        return Ok(again(asked));
    }
    if view.is_made {
        return Ok(Plan::default());
    }
    match provisioning::refusal(claim, class, view.settings.makes_directories, view.node_is_there) {
        Some(Refusal::Told(why)) => return Ok(refused(view, why, note)),
        Some(Refusal::Reschedule(why)) => {
            let mut plan = refused(view, why, note);
            plan.steps.extend(rescheduled(view)?);
            return Ok(plan);
        }
        None => {}
    }
    let volume = provisioning::host_path_volume(claim, class);
    let name = &volume.metadata.name;
    let made = format!("Successfully provisioned volume {name} using {}", provisioning::HOST_PATH);
    let key = Key::new("", name.clone());
    let create = Write {
        prepare: Some(FinishOrder {
            finisher: super::DIRECTORIES,
            details: serde_json::json!({ "make": provisioning::directory(claim) }),
        }),
        tolerate: Tolerate { exists: true, ..Tolerate::default() },
        on_success: Some(event(view, false, "ProvisioningSucceeded", made)),
        ..Write::new(&PERSISTENT_VOLUMES, key, Verb::Create(volume.to_bytes().into()))
    };
    note.counted.push(Counted::Directory(Operation::Provision));
    Ok(steps(vec![Step::Write(create)]))
}

/// A claim for which no directory is made. It is left alone for a while.
fn refused(view: &ClaimView, why: String, note: &mut Note) -> Plan {
    note.failed = Some(view.claim.metadata.uid.clone());
    note.counted.push(Counted::Failed(Operation::Provision, provisioning::HOST_PATH.into()));
    steps(vec![told(view, true, "ProvisioningFailed", why)])
}

/// The claim has no volume yet: its status says so, and it may be told why.
fn pending(view: &ClaimView, event: Option<Step>) -> Result<Plan, WireError> {
    let mut all: Vec<Step> = event.into_iter().collect();
    let edits = writes::claim_without_volume(&view.claim, "Pending");
    all.extend(Chain::of_claim(&view.claim).then("status", edits)?.steps());
    Ok(steps(all))
}

fn updated(view: &ClaimView, verb: Verb) -> Step {
    Step::Write(Write::new(&PERSISTENT_VOLUME_CLAIMS, Key::of(&view.claim.metadata), verb))
}

fn told(view: &ClaimView, warning: bool, reason: &'static str, message: String) -> Step {
    Step::Emit(event(view, warning, reason, message))
}

fn event(view: &ClaimView, warning: bool, reason: &'static str, message: String) -> EventSpec {
    let regarding = Regarding::of(&PERSISTENT_VOLUME_CLAIMS, &view.claim.metadata);
    EventSpec { regarding, warning, reason, message }
}

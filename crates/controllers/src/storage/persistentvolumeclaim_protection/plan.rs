//! Whether a claim may go, and what it says of its use. Pure.

use jiff::Timestamp;

use super::view::View;
use super::{FINALIZER, UNUSED, condition};
use coxswain_machinery::api::kinds::PERSISTENT_VOLUME_CLAIMS;
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::framework::UnheardNote;
use coxswain_machinery::model::conditions::{self, ConditionFields, Said};
use coxswain_machinery::model::finalizers::{self, Due, due};
use coxswain_machinery::model::plan::{Tolerate, Verb};
use coxswain_machinery::model::words::{names, verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::Edit;
use coxswain_machinery::wire::{WireError, path};

const CONDITIONS: ConditionFields = ConditionFields::of::<PersistentVolumeClaim>();

pub(super) fn plan(view: &View, now: Timestamp) -> Plan<UnheardNote> {
    let claim = &view.claim;
    let is_held = !view.holders.is_empty();
    let mut plan = match says(view, now) {
        Ok(None) => finalizers::plan(&PERSISTENT_VOLUME_CLAIMS, &**claim, FINALIZER, is_held),
        Ok(Some(told)) => {
            let mut steps = vec![Step::Write(told)];
            if due(&claim.metadata, FINALIZER) == Some(Due::Put) {
                let put = Edit::push_text(path!(PersistentVolumeClaim, metadata.finalizers), FINALIZER);
                steps.push(Step::Write(write(claim, Verb::UpdateLast(vec![put]))));
            }
            Plan { steps, ..Plan::default() }
        }
        Err(error) => {
            let retry = Some(format!("claim {}: {error}", Key::of(&claim.metadata)));
            Plan { retry, ..Plan::default() }
        }
    };
    let is_unheard = view.is_live && is_held && due(&claim.metadata, FINALIZER) == Some(Due::Take);
    if is_unheard {
        plan.look_again_after(finalizers::unheard_after(view.unheard_for));
    }
    plan.with_note(UnheardNote::of(&claim.metadata, is_unheard))
}

/// The write by which the claim says whether it is used; `None` if it does so already or does not have to.
fn says(view: &View, now: Timestamp) -> Result<Option<Write>, WireError> {
    let (status, reason, message) = match view.is_used {
        None => return Ok(None),
        Some(true) => ("False", "PodUsingPVC", "A pod is currently referencing this PVC"),
        Some(false) => ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC"),
    };
    let is_said = match condition(&view.claim) {
        // That a claim is in use is told once it was said not to be, or nothing was.
        Some(held) if view.is_used == Some(true) => held != "True",
        held => held == Some(status),
    };
    if is_said {
        return Ok(None);
    }
    let said = Said {
        kind: UNUSED,
        status,
        reason,
        message: message.to_owned(),
        since: now.into(),
        checked: None,
        generation: None,
    };
    let object = conditions::set(&view.claim.raw, &CONDITIONS, &[said])?;
    Ok(Some(write(&view.claim, Verb::Update(object.into())).on("status")))
}

/// A write of the claim; that it is gone is as good.
fn write(claim: &PersistentVolumeClaim, verb: Verb) -> Write {
    let tolerate = Tolerate { absent: true, ..Tolerate::default() };
    Write { tolerate, ..Write::new(&PERSISTENT_VOLUME_CLAIMS, Key::of(&claim.metadata), verb) }
}

pub(super) fn reasons(view: &View) -> Vec<String> {
    let holders = (!view.holders.is_empty()).then(|| {
        let number = view.holders.len();
        format!(
            "{} {} bound to {} and {} it",
            names(&view.holders),
            verb(number, "is", "are"),
            verb(number, "a node", "nodes"),
            verb(number, "uses", "use")
        )
    });
    let mut reasons = finalizers::reasons(&view.claim.metadata, FINALIZER, "claim", holders);
    if view.is_live {
        reasons.push(
            "The cache has no pod that uses the claim; the pods of the namespace were listed live to confirm it."
                .to_owned(),
        );
    }
    match view.is_used {
        Some(true) => {
            reasons.push("An unfinished pod references the claim; the claim is marked as used.".to_owned());
        }
        Some(false) => {
            reasons.push("No unfinished pod references the claim; the claim is marked as unused.".to_owned());
        }
        None => {}
    }
    reasons
}

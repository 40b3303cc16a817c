//! Decides whether a request is signed, for how long, or how it has failed.

use jiff::Timestamp;

use super::view::{Standing, View};
use super::{finisher, usages, validity};
use coxswain_machinery::api::certificates::{CertificateSigningRequest, CertificateSigningRequestCondition};
use coxswain_machinery::api::kinds::CERTIFICATE_SIGNING_REQUESTS;
use coxswain_machinery::model::plan::{FinishOrder, Tolerate, Verb};
use coxswain_machinery::model::words::time;
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message as _, Time, path};

/// Orders the certificate, or records that the signer's rules are broken.
pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let name = &view.request.metadata.name;
    let verb = match &view.standing {
        Standing::Idle(_) => return plan,
        Standing::Unreadable(why) => Err(format!("unable to parse csr {name:?}: {why}")),
        // As in kube-controller-manager, the rules come before the signature.
        Standing::Unsigned(signer, asked, why) => match signer.refusal(asked, &view.request.spec.usages) {
            Some(broken) => failed(&view.request, broken, now),
            None => Err(format!("error auto signing csr: {why}")),
        },
        Standing::Waits(signer, asked) => match signer.refusal(asked, &view.request.spec.usages) {
            Some(why) => failed(&view.request, why, now),
            None => usages::read(&view.request.spec.usages)
                .map(|_| Verb::UpdateFinished {
                    object: view.request.raw.0.clone(),
                    order: FinishOrder { finisher: finisher(*signer), details: order(view, now).to_json() },
                })
                .map_err(|error| format!("error auto signing csr: {error}")),
        },
    };
    match verb {
        Ok(verb) => {
            let write = Write::new(&CERTIFICATE_SIGNING_REQUESTS, Key::of(&view.request.metadata), verb);
            // It has changed or is gone: the cache will tell.
            let tolerate = Tolerate { absent: true, conflict: true, ..Tolerate::default() };
            plan.steps.push(Step::Write(Write { tolerate, ..write.on("status") }));
        }
        Err(why) => plan.retry = Some(why),
    }
    plan
}

fn order(view: &View, now: Timestamp) -> validity::Order {
    validity::Order::new(now, view.longest, view.request.spec.expiration_seconds)
}

/// The request with the condition that it has failed. The API server fills in when that changed.
fn failed(request: &CertificateSigningRequest, why: String, now: Timestamp) -> Result<Verb, String> {
    let condition = CertificateSigningRequestCondition {
        r#type: "Failed".into(),
        status: "True".into(),
        reason: "SignerValidationFailure".into(),
        message: why.into(),
        last_update_time: Time::from_seconds(now.as_second()),
        ..CertificateSigningRequestCondition::default()
    };
    let push = Edit::Push(path!(CertificateSigningRequest, status.conditions), condition.to_bytes());
    let object = edit(&request.raw, &[push]).map_err(|error| error.to_string())?;
    Ok(Verb::Update(object.into()))
}

/// Why the plan is what it is.
pub(super) fn reasons(view: &View) -> Vec<String> {
    vec![match &view.standing {
        Standing::Idle(why) => format!("{why}; it is not signed."),
        Standing::Unreadable(why) => format!("The request cannot be parsed: {why}."),
        Standing::Unsigned(signer, asked, why) => match signer.refusal(asked, &view.request.spec.usages) {
            Some(broken) => {
                format!("{} rejects the request, which is marked as failed: {broken}.", signer.name())
            }
            None => format!("The request is not signed: {why}."),
        },
        Standing::Waits(signer, asked) => {
            let name = signer.name();
            if let Some(why) = signer.refusal(asked, &view.request.spec.usages) {
                format!("{name} rejects the request, which is marked as failed: {why}.")
            } else {
                let lasts = time(order(view, Timestamp::UNIX_EPOCH).lasts());
                format!(
                    "{name} signs a certificate that is valid for {lasts}, or until its CA certificate expires."
                )
            }
        }
    }]
}

//! Which claims are made, and what is in the way. Pure.

use bytes::Bytes;

use super::view::{EphemeralVolume, Found, View};
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PODS};
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::{EventSpec, Regarding, Verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get};
use coxswain_machinery::wire::{Message as _, Value, WireError, path};

/// The claims that are missing, volume by volume; what is in the way of one ends it.
pub(super) fn plan(view: &View) -> Plan {
    let mut plan = Plan::default();
    for volume in &view.volumes {
        match volume.found {
            Found::Ours => {}
            Found::Nothing => match creation(&view.pod, volume) {
                Ok(create) => plan.steps.push(Step::Write(create)),
                Err(error) => {
                    plan.retry = Some(format!("ephemeral volume {}: {error}", volume.name));
                    return plan;
                }
            },
            Found::Stranger => {
                let pod = &view.pod.metadata;
                let (namespace, name) = (&pod.namespace, &pod.name);
                let error = format!(
                    "PVC {namespace}/{} was not created for pod {namespace}/{name} (pod is not owner)",
                    volume.claim
                );
                plan.steps.push(Step::Emit(failed(pod, volume, &error)));
                plan.retry = Some(format!("ephemeral volume {}: {error}", volume.name));
                return plan;
            }
        }
    }
    plan
}

fn creation(pod: &Pod, volume: &EphemeralVolume) -> Result<Write, WireError> {
    let key = Key::new(pod.metadata.namespace.clone(), volume.claim.clone());
    let error = format!("create PVC {}: {{error}}", volume.claim);
    Ok(Write {
        on_failure: Some(failed(&pod.metadata, volume, &error)),
        ..Write::new(&PERSISTENT_VOLUME_CLAIMS, key, Verb::Create(claim(pod, volume)?))
    })
}

/// The template as a claim: of its metadata labels and annotations, of its spec everything.
fn claim(pod: &Pod, volume: &EphemeralVolume) -> Result<Bytes, WireError> {
    let template = &volume.template;
    let metadata = get(template, path!(PersistentVolumeClaim, metadata))?.map(Value::bytes).transpose()?;
    let given = ObjectMeta::decode(&Bytes::copy_from_slice(metadata.unwrap_or_default()))?;
    let metadata = ObjectMeta {
        name: volume.claim.clone(),
        namespace: pod.metadata.namespace.clone(),
        labels: given.labels,
        annotations: given.annotations,
        owner_references: vec![controller_reference(&pod.metadata, &PODS)],
        ..ObjectMeta::default()
    };
    let set = Edit::SetBytes(path!(PersistentVolumeClaim, metadata), metadata.to_bytes());
    edit(template, &[set]).map(Bytes::from)
}

fn failed(pod: &ObjectMeta, volume: &EphemeralVolume, error: &str) -> EventSpec {
    EventSpec {
        regarding: Regarding::of(&PODS, pod),
        warning: true,
        reason: "FailedBinding",
        message: format!("ephemeral volume {}: {error}", volume.name),
    }
}

pub(super) fn reasons(view: &View) -> Vec<String> {
    let mut reasons = Vec::new();
    for EphemeralVolume { name, claim, found, .. } in &view.volumes {
        match found {
            Found::Ours => reasons.push(format!("The claim {claim} of the volume {name} exists.")),
            Found::Nothing => {
                reasons
                    .push(format!("The volume {name} has no claim; {claim} is created from its template."));
            }
            Found::Stranger => {
                reasons.push(format!(
                    "The claim {claim} exists and is not controlled by this pod; the volume {name} and all later \
                     volumes wait until the claim is deleted."
                ));
                break;
            }
        }
    }
    reasons
}

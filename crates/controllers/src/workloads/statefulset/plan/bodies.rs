//! The bodies of what is made: a pod with its name, its labels and its claims; a claim.

use bytes::Bytes;
use coxswain_machinery::random::HashSet;
use serde_json::json;

use super::super::view::{ClaimTemplate, View};
use super::ordinals::pod_name;
use super::owners::Policy;
use coxswain_machinery::api::kinds::STATEFUL_SETS;
use coxswain_machinery::api::pod::{Pod, claim_volume};
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::revisions::{self, REVISION_LABEL};
use coxswain_machinery::model::{Patch, pods};
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes, retain_items};
use coxswain_machinery::wire::{Message as _, Path, Raw, Value, WireError, field, path};

/// Label of a pod: its name.
pub(super) const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
/// Label of a pod: its ordinal.
pub(super) const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

const LABELS: Path = path!(Pod, metadata.labels);
const VOLUME_NAME: Path = coxswain_machinery::api::pod::VOLUME_NAME;

/// The pod of an ordinal, made of a template that is that of the revision.
pub(super) fn pod(view: &View, ordinal: i32, template: &Raw, revision: &str) -> Result<Bytes, WireError> {
    let set = &view.set.metadata;
    let name = pod_name(&set.name, ordinal);
    let owner = controller_reference(set, &STATEFUL_SETS);
    let pod = pods::from_template(template, &set.namespace, &pods::generate_name(&set.name), &owner)?;
    let label = |name: &str, value: &str| Edit::MapSet(LABELS, name.to_owned(), value.to_owned());
    let spec = with_claims(view, ordinal, &pod)?;
    let edits = [
        Edit::set_text(path!(Pod, metadata.name), &name),
        label(POD_NAME_LABEL, &name),
        label(POD_INDEX_LABEL, &ordinal.to_string()),
        label(REVISION_LABEL, &revisions::label_value(revision)),
        Edit::SetBytes(path!(Pod, spec), spec),
        Edit::set_text(path!(Pod, spec.hostname), &name),
        Edit::set_text(path!(Pod, spec.subdomain), &view.set.spec.service_name),
    ];
    Ok(edit(&pod, &edits)?.into())
}

/// The spec of a pod with a volume for each claim, in place of those of its template that have the same name.
fn with_claims(view: &View, ordinal: i32, pod: &[u8]) -> Result<Vec<u8>, WireError> {
    const VOLUMES: u32 = field!(Pod, spec.volumes);
    let spec = get(pod, path!(Pod, spec))?.map(Value::bytes).transpose()?.unwrap_or_default();
    let mut out = Vec::with_capacity(spec.len() + 64 * view.templates.len());
    for template in &view.templates {
        let claim = template.claim_name(&view.set.metadata.name, ordinal);
        put_bytes(&mut out, VOLUMES, &claim_volume(&template.name, &claim));
    }
    let names: HashSet<&str> = view.templates.iter().map(|template| template.name.as_str()).collect();
    let is_claim = |volume: &[u8]| {
        let name = get(volume, VOLUME_NAME).ok().flatten().and_then(|name| name.text().ok());
        name.is_some_and(|name| names.contains(&*name))
    };
    out.extend(retain_items(spec, VOLUMES, |volume| !is_claim(volume))?);
    Ok(out)
}

/// The claim of a replica, made of a template. It has its owner from the beginning.
pub(super) fn claim(view: &View, template: &ClaimTemplate, ordinal: i32) -> Result<Bytes, WireError> {
    const LABELS: Path = path!(PersistentVolumeClaim, metadata.labels);
    let set = &view.set;
    let name = template.claim_name(&set.metadata.name, ordinal);
    let mut edits = vec![
        Edit::set_text(path!(PersistentVolumeClaim, metadata.name), &name),
        Edit::set_text(path!(PersistentVolumeClaim, metadata.namespace), &set.metadata.namespace),
    ];
    let labels = set.spec.selector.match_labels.iter();
    edits.extend(labels.map(|(key, value)| Edit::MapSet(LABELS, key.to_string(), value.to_string())));
    if Policy::of(view).deletes_when_deleted {
        let owner = controller_reference(&set.metadata, &STATEFUL_SETS).to_bytes();
        edits.push(Edit::Push(path!(PersistentVolumeClaim, metadata.ownerReferences), owner));
    }
    Ok(edit(&template.raw, &edits)?.into())
}

/// Gives a pod the labels that say who it is, and the volumes of its claims. (Servers refuse the latter.) Its status may change
/// meanwhile, so it carries no resource version.
pub(super) fn repair(view: &View, pod: &Pod, ordinal: i32, has_claims: bool) -> Patch {
    let meta = &pod.metadata;
    let mut patch = json!({"metadata": {
        "uid": meta.uid,
        "labels": { POD_NAME_LABEL: meta.name, POD_INDEX_LABEL: ordinal.to_string() },
    }});
    if !has_claims {
        let volume = |template: &ClaimTemplate| {
            let claim = template.claim_name(&view.set.metadata.name, ordinal);
            json!({"name": template.name, "persistentVolumeClaim": {"claimName": claim}})
        };
        patch["spec"] = json!({"volumes": view.templates.iter().map(volume).collect::<Vec<_>>()});
    }
    Patch::Strategic(patch)
}

//! What is to be done about the claims of one pod or PodGroup, and why. Pure.
//!
//! Claims are made one after the other, up to the first that can't be. Then comes another look, which finds them; their names go
//! into the status, all at once with those that are there already, for an apply takes back what it does not name. In the end
//! claims are reserved.

use bytes::Bytes;
use serde_json::{Value as Json, json};

use super::metrics::Note;
use super::view::{Consumer, Entry, Found, Owner, Reservation, View};
use super::{ENTRY, names};
use coxswain_machinery::api::kinds::{PODS, RESOURCE_CLAIMS};
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::resource::{
    ResourceClaim, ResourceClaimConsumer, ResourceClaimSpec, ResourceClaimTemplate, ResourceClaimTemplateSpec,
};
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::{EventSpec, Patch, Regarding, Tolerate, Verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes, put_text};
use coxswain_machinery::wire::{Message as _, Reader, Value, WireError, field, path};

/// The field manager, as the original's.
const MANAGER: &str = "ResourceClaimController";
/// What a claim inherits of its template's metadata.
const INHERITED: [u32; 2] = [field!(ObjectMeta, labels), field!(ObjectMeta, annotations)];

pub(super) fn plan(view: &View) -> Plan<Note> {
    let mut note = Note::default();
    let mut plan = Plan::default();
    for (entry, found) in view.owner.entries.iter().zip(&view.found) {
        let made = match found {
            Found::Missing(template) => {
                create(&view.owner, entry, template).map_err(|error| error.to_string())
            }
            Found::Fault(fault) => Err(fault.clone()),
            _ => continue,
        };
        match made {
            Ok((write, is_admin)) => {
                plan.steps.push(Step::Write(write));
                note.is_admin.push(is_admin);
            }
            Err(fault) => {
                plan.steps.push(Step::Emit(failed(&view.owner, entry, &fault)));
                plan.retry = Some(fault);
                return plan.with_note(note);
            }
        }
    }
    if !plan.steps.is_empty() {
        plan.look_again = true;
        return plan.with_note(note);
    }
    if view.found.iter().any(|found| matches!(found, Found::Unrecorded(_))) {
        plan.steps.push(Step::Write(record(view)));
    }
    let reservations: Result<Vec<Write>, WireError> = view.unreserved.iter().map(reserve).collect();
    match reservations {
        Ok(writes) if writes.is_empty() => {}
        Ok(writes) => plan.steps.push(Step::Each(writes)),
        Err(error) => plan.retry = Some(format!("reservation: {error}")),
    }
    plan.with_note(note)
}

/// Makes the claim of an entry; and whether it asks for access to devices as an administrator.
fn create(
    owner: &Owner,
    entry: &Entry,
    template: &ResourceClaimTemplate,
) -> Result<(Write, bool), WireError> {
    let spec = ResourceClaimSpec::decode(&template.spec.spec.0)?;
    let exact = spec.devices.requests.iter().filter_map(|request| request.exactly.as_deref());
    let is_admin = exact.into_iter().any(|request| request.admin_access == Some(true));
    let key = Key::new(owner.metadata.namespace.clone(), "");
    // The name is not known yet, hence the blank before the colon.
    let failed = failed(owner, entry, "create ResourceClaim : {error}");
    let create = Write::new(&RESOURCE_CLAIMS, key, Verb::Create(body(owner, entry, template)?));
    Ok((Write { on_failure: Some(failed), ..create }, is_admin))
}

/// Labels and annotations of the template, its spec as it is, whose it is, and for which entry.
fn body(owner: &Owner, entry: &Entry, template: &ResourceClaimTemplate) -> Result<Bytes, WireError> {
    let mut metadata = Vec::with_capacity(256);
    let prefix = names::prefix(&owner.metadata.name, &entry.name);
    put_text(&mut metadata, field!(ObjectMeta, generateName), &prefix);
    put_text(&mut metadata, field!(ObjectMeta, namespace), &owner.metadata.namespace);
    let held = get(&template.raw, path!(ResourceClaimTemplate, spec))?.map(Value::bytes).transpose()?;
    let held = held.unwrap_or_default();
    let inherited = get(held, path!(ResourceClaimTemplateSpec, metadata))?.map(Value::bytes).transpose()?;
    let mut fields = Reader::new(inherited.unwrap_or_default());
    while let Some((number, _, raw)) = fields.next_raw()? {
        if INHERITED.contains(&number) {
            metadata.extend_from_slice(raw);
        }
    }
    let reference =
        OwnerReference { block_owner_deletion: None, ..controller_reference(&owner.metadata, owner.kind) };
    let metadata = edit(
        &metadata,
        &[
            Edit::MapSet(path!(ObjectMeta, annotations), ENTRY.to_owned(), entry.name.to_string()),
            Edit::Push(path!(ObjectMeta, ownerReferences), reference.to_bytes()),
        ],
    )?;
    let mut claim = Vec::with_capacity(metadata.len() + template.spec.spec.0.len() + 16);
    put_bytes(&mut claim, field!(ResourceClaim, metadata), &metadata);
    put_bytes(&mut claim, field!(ResourceClaim, spec), &template.spec.spec.0);
    Ok(claim.into())
}

/// The status gets the names of all claims that were made, in the order of the entries.
fn record(view: &View) -> Write {
    let owner = &view.owner;
    let made = view.owner.entries.iter().zip(&view.found).filter_map(|(entry, found)| match found {
        Found::Recorded(claim) | Found::Unrecorded(claim) => {
            Some(json!({ "name": entry.name.as_str(), "resourceClaimName": claim.as_str() }))
        }
        _ => None,
    });
    let object = json!({
        "apiVersion": owner.kind.api_version(),
        "kind": owner.kind.kind,
        "metadata": {
            "name": owner.metadata.name.as_str(),
            "namespace": owner.metadata.namespace.as_str(),
            "uid": owner.metadata.uid.to_string(),
        },
        "status": { "resourceClaimStatuses": made.collect::<Vec<Json>>() },
    });
    let apply = Verb::Patch(Patch::Apply { manager: MANAGER, force: true, object });
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        ..Write::new(owner.kind, Key::of(&owner.metadata), apply).on("status")
    }
}

/// A claim says that somebody uses it.
fn reserve(reservation: &Reservation) -> Result<Write, WireError> {
    let Reservation { claim, consumer: Consumer { kind, name, uid } } = reservation;
    let consumer = ResourceClaimConsumer {
        api_group: kind.group.into(),
        resource: kind.resource.into(),
        name: name.clone(),
        uid: uid.clone(),
    };
    let push = Edit::Push(path!(ResourceClaim, status.reservedFor), consumer.to_bytes());
    let object = Bytes::from(edit(&claim.raw, &[push])?);
    Ok(Write::new(&RESOURCE_CLAIMS, Key::of(&claim.metadata), Verb::Update(object)).on("status"))
}

fn failed(owner: &Owner, entry: &Entry, error: &str) -> EventSpec {
    let what = if owner.kind == &PODS { "PodResourceClaim" } else { "PodGroupResourceClaim" };
    EventSpec {
        regarding: Regarding::of(owner.kind, &owner.metadata),
        warning: true,
        reason: "FailedResourceClaimCreation",
        message: format!("{what} {}: {error}", entry.name),
    }
}

/// Why the plan is what it is.
pub(super) fn reasons(view: &View) -> Vec<String> {
    let mut reasons: Vec<String> =
        view.owner.entries.iter().zip(&view.found).map(|(entry, found)| reason(entry, found)).collect();
    for Reservation { claim, consumer } in &view.unreserved {
        reasons.push(format!(
            "The claim {} is allocated but not reserved for {}, which is already bound to a node; the claim is \
             reserved now.",
            claim.metadata.name, consumer.name
        ));
    }
    if reasons.is_empty() {
        reasons.push("The object references no ResourceClaims.".to_owned());
    }
    reasons
}

fn reason(entry: &Entry, found: &Found) -> String {
    let name = &entry.name;
    match found {
        Found::Given(claim) => format!("Entry {name} uses the existing claim {claim}."),
        Found::NotNeeded => format!("Entry {name} needs no claim, according to the status."),
        Found::Recorded(claim) => format!("Entry {name} has the claim {claim}."),
        Found::Unrecorded(claim) => {
            format!("Entry {name} has the claim {claim}; the status is updated with it now.")
        }
        Found::LeftToGroup => format!("Entry {name} waits for the claim of its PodGroup."),
        Found::Missing(template) => {
            format!("Entry {name} has no claim; one is created from the template {}.", template.metadata.name)
        }
        Found::Fault(fault) => format!("Entry {name} has no claim, and none can be created: {fault}."),
    }
}

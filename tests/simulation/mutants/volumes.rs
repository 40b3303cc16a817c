//! Planted bugs of volumes and claims.

use http::Method;
use serde_json::{Value as Json, json};

use super::{Mutant, NONE, change, is};
use crate::actors::claims_of;
use apiserver_model::http::Asked;
use apiserver_model::{Model, Place, text};

/// The bugs.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "a volume is given to another claim",
        breaks: "no volume is taken from its claim",
        after: give_away,
        ..NONE
    },
    Mutant {
        name: "a claim gets somebody else's volume",
        breaks: "a claim is bound to the volume that is bound to it",
        after: bind_twice,
        ..NONE
    },
    Mutant {
        name: "a claim goes while it is mounted",
        breaks: "no claim goes that is in use",
        after: let_claim_go,
        ..NONE
    },
    Mutant {
        name: "a volume goes while it is bound",
        breaks: "no volume goes that is bound",
        after: let_volume_go,
        ..NONE
    },
    Mutant {
        name: "claims go against their policy",
        breaks: "claims go by their policy",
        send: own_claim,
        ..NONE
    },
];

/// The manager whose binder has written a resource.
fn binder<'a>(by: &'a str, asked: &Asked, resource: &str) -> Option<&'a str> {
    let manager = by.strip_suffix("/persistentvolume-binder-controller")?;
    is(asked, &Method::PUT, resource).then_some(manager)
}

fn claim_of(model: &Model, volume: &Json) -> Place {
    let reference = &volume["spec"]["claimRef"];
    let claim = Place::new("persistentvolumeclaims", text(reference, "/namespace"), text(reference, "/name"));
    model.get(&claim).map_or(claim, |held| held.place.clone())
}

/// A volume whose claim has it loses the claim.
fn give_away(model: &mut Model, by: &str, asked: &Asked) {
    if binder(by, asked, "persistentvolumeclaims").is_none() {
        return;
    }
    let claim = model.look("persistentvolumeclaims", &asked.namespace, &asked.name);
    let volume = Place::new("persistentvolumes", "", text(claim, "/spec/volumeName"));
    change(model, by, &volume, |volume| volume["spec"]["claimRef"]["uid"] = json!("another"));
}

/// Another claim, which waits, gets the volume of this one.
fn bind_twice(model: &mut Model, by: &str, asked: &Asked) {
    if binder(by, asked, "persistentvolumes").is_none() {
        return;
    }
    let owner = claim_of(model, model.look("persistentvolumes", "", &asked.name));
    let waits = |claim: &&std::sync::Arc<apiserver_model::Stored>| {
        text(&claim.json, "/spec/volumeName").is_empty() && claim.place != owner
    };
    let other = model.all("persistentvolumeclaims", "").find(waits).map(|claim| claim.place.clone());
    if let Some(other) = other {
        change(model, by, &other, |claim| claim["spec"]["volumeName"] = json!(asked.name));
    }
}

fn let_go(model: &mut Model, by: &str, place: &Place) {
    change(model, by, place, |object| object["metadata"]["finalizers"] = json!([]));
}

/// A claim that a pod mounts loses its protection.
fn let_claim_go(model: &mut Model, by: &str, asked: &Asked) {
    let Some(manager) = binder(by, asked, "persistentvolumeclaims") else { return };
    let runs = |pod: &&std::sync::Arc<apiserver_model::Stored>| {
        !text(&pod.json, "/spec/nodeName").is_empty()
            && !matches!(text(&pod.json, "/status/phase"), "Succeeded" | "Failed")
    };
    let mounted = model.all("pods", "").filter(runs).find_map(|pod| {
        let claim = claims_of(&pod.json).next()?;
        Some(Place::new("persistentvolumeclaims", &pod.place.namespace, claim))
    });
    if let Some(claim) = mounted {
        let_go(model, &format!("{manager}/persistentvolumeclaim-protection-controller"), &claim);
    }
}

/// A volume that is bound loses its protection.
fn let_volume_go(model: &mut Model, by: &str, asked: &Asked) {
    let Some(manager) = binder(by, asked, "persistentvolumes") else { return };
    let bound = model.all("persistentvolumes", "").find(|held| held.json["status"]["phase"] == "Bound");
    if let Some(place) = bound.map(|held| held.place.clone()) {
        let_go(model, &format!("{manager}/persistentvolume-protection-controller"), &place);
    }
}

/// A claim of a StatefulSet is to go with it, and with its pod, whatever its policy says.
fn own_claim(controller: &str, asked: &mut Asked) {
    if controller == "statefulset-controller" && is(asked, &Method::POST, "persistentvolumeclaims") {
        asked.edit(|claim| {
            let name = text(claim, "/metadata/name").trim_start_matches("data-").to_owned();
            let set = name.rsplit_once('-').map_or("", |(set, _)| set);
            claim["metadata"]["ownerReferences"] = json!([
                { "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": "none" },
                { "apiVersion": "v1", "kind": "Pod", "name": name, "uid": "none" },
            ]);
        });
    }
}

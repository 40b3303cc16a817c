//! Planted bugs of certificates and tokens.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Method;
use serde_json::{Value as Json, json};

use super::{Mutant, NONE, is};
use crate::actors::{KUBELET, has, names};
use crate::invariants::expiration_of;
use apiserver_model::http::Asked;
use apiserver_model::{Deletion, Model, Place, text};

/// The bugs.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "certificates are signed by another authority",
        breaks: "the published authority vouches for every certificate",
        send: sign_with_another,
        ..NONE
    },
    Mutant {
        name: "a request is signed that nobody has approved",
        breaks: "nothing is signed that is not allowed",
        after: sign_undecided,
        ..NONE
    },
    Mutant {
        name: "a request is approved that is no kubelet's",
        breaks: "nothing is approved that nobody has a right to",
        after: approve_another,
        ..NONE
    },
    Mutant {
        name: "a bootstrap token goes that is still good",
        breaks: "no token goes before its end",
        after: end_early,
        ..NONE
    },
    Mutant {
        name: "a bootstrap token goes in a version that was not judged",
        breaks: "no token goes before its end",
        send: forget_version,
        held_up: Duration::from_secs(12),
        holds: "/secrets/",
        ..NONE
    },
    Mutant {
        name: "an old token goes in a version that was not judged",
        breaks: "no token goes that was used",
        send: forget_version_of_old,
        held_up: Duration::from_secs(45),
        holds: "/secrets/",
        ..NONE
    },
    Mutant {
        name: "an old token goes that a pod mounts",
        breaks: "no token goes that is mounted",
        after: take_from_pod,
        ..NONE
    },
];

/// An authority that is never in the files.
const ANOTHER: &str = include_str!("../../data/authorities/ed25519.crt");

/// Who asks for a certificate gets one that another authority has signed.
fn sign_with_another(controller: &str, asked: &mut Asked) {
    if controller == "certificatesigningrequest-signing-controller" {
        asked.edit(|request| {
            if !text(request, "/status/certificate").is_empty() {
                request["status"]["certificate"] = json!(BASE64_STANDARD.encode(ANOTHER));
            }
        });
    }
}

/// A request that nobody has approved gets the certificate of another.
fn sign_undecided(model: &mut Model, by: &str, asked: &Asked) {
    const RESOURCE: &str = "certificatesigningrequests";
    if !by.ends_with("/certificatesigningrequest-signing-controller") || !is(asked, &Method::PUT, RESOURCE) {
        return;
    }
    let issued = model.look(RESOURCE, "", &asked.name)["status"]["certificate"].clone();
    let undecided = model.all(RESOURCE, "").find(|held| !has(&held.json, "Approved"));
    let place = undecided.map(|held| held.place.clone());
    if let Some(place) = place.filter(|_| issued.is_string()) {
        let signed = |request: &mut Json| {
            request["status"]["certificate"] = issued;
        };
        drop(model.change(by, &place, "status", signed));
    }
}

/// Beside a request that is approved, one is that no kubelet has made.
fn approve_another(model: &mut Model, by: &str, asked: &Asked) {
    const RESOURCE: &str = "certificatesigningrequests";
    if !by.ends_with("/certificatesigningrequest-approving-controller") || !is(asked, &Method::PUT, RESOURCE)
    {
        return;
    }
    let is_other = |request: &Json| {
        text(request, "/spec/signerName") != KUBELET && !has(request, "Approved") && !has(request, "Denied")
    };
    let other = model.all(RESOURCE, "").find(|held| is_other(&held.json)).map(|held| held.place.clone());
    let Some(place) = other else { return };
    let approved = |request: &mut Json| {
        request["status"]["conditions"] = json!([{ "type": "Approved", "status": "True" }]);
    };
    drop(model.change(by, &place, "approval", approved));
}

/// Bootstrap tokens go whatever version of them was judged.
fn forget_version(controller: &str, asked: &mut Asked) {
    if controller == "token-cleaner-controller" && is(asked, &Method::DELETE, "secrets") {
        asked.body = Bytes::new();
    }
}

/// Old tokens go, and are marked as invalid, whatever version of them was judged.
fn forget_version_of_old(controller: &str, asked: &mut Asked) {
    if controller != "legacy-serviceaccount-token-cleaner-controller" {
        return;
    }
    if is(asked, &Method::DELETE, "secrets") {
        asked.body = Bytes::new();
    } else if is(asked, &Method::PATCH, "secrets")
        && let Ok(mut patch) = serde_json::from_slice::<Json>(&asked.body)
        && let Some(metadata) = patch["metadata"].as_object_mut()
    {
        metadata.shift_remove("resourceVersion");
        asked.body = patch.to_string().into();
    }
}

/// With a token that has ended another goes that is still good.
fn end_early(model: &mut Model, by: &str, asked: &Asked) {
    if by.ends_with("/token-cleaner-controller") && is(asked, &Method::DELETE, "secrets") {
        let good =
            model.all("secrets", "kube-system").filter(|held| expiration_of(&held.json).is_some()).last();
        delete(model, by, good.map(|held| held.place.clone()));
    }
}

/// With any token one goes that a pod mounts.
fn take_from_pod(model: &mut Model, by: &str, asked: &Asked) {
    let is_change = [Method::PATCH, Method::DELETE].iter().any(|method| is(asked, method, "secrets"));
    if by.ends_with("/legacy-serviceaccount-token-cleaner-controller") && is_change {
        let is_named = |name: &str| model.all("pods", "").any(|pod| names(&pod.json["spec"], name));
        let mounted = model.all("secrets", "default").find(|held| is_named(&held.place.name));
        delete(model, by, mounted.map(|held| held.place.clone()));
    }
}

fn delete(model: &mut Model, by: &str, place: Option<Place>) {
    if let Some(place) = place {
        drop(model.delete(by, &place, &Deletion::default()));
    }
}

//! Planted bugs of what is published for everybody.

use http::Method;
use serde_json::json;

use super::{Mutant, NONE, is};
use crate::actors::signature;
use apiserver_model::http::Asked;

/// The bugs.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "what was published before is signed",
        breaks: "a signature is of what is published",
        send: sign_another,
        ..NONE
    },
    Mutant {
        name: "the bundle of another authority is published",
        breaks: "the published bundle is the authority's",
        send: publish_another,
        ..NONE
    },
];

fn sign_another(controller: &str, asked: &mut Asked) {
    if controller == "bootstrap-signer-controller" && is(asked, &Method::PUT, "configmaps") {
        asked.edit(|info| {
            for (key, held) in info["data"].as_object_mut().into_iter().flatten() {
                if let Some(id) = key.strip_prefix("jws-kubeconfig-") {
                    *held = json!(signature("the one before", id));
                }
            }
        });
    }
}

fn publish_another(controller: &str, asked: &mut Asked) {
    if controller == "root-ca-certificate-publisher-controller" && is(asked, &Method::POST, "configmaps") {
        asked.edit(|bundle| bundle["data"]["ca.crt"] = json!("another"));
    }
}

//! Rules about what is published for everybody: who trusts it trusts the cluster by it.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value as Json;

use super::Look;
use crate::actors::{BUNDLE, BUNDLE_NAME, CLUSTER_INFO, is_bootstrap, signature};
use apiserver_model::{Model, text};

const SIGNATURE: &str = "jws-kubeconfig-";

/// The signatures in what says where the cluster is: ids of tokens, and what is said to be theirs.
fn signatures(info: &Json) -> impl Iterator<Item = (&str, &str)> {
    let all = info["data"].as_object().into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.strip_prefix(SIGNATURE)?, value.as_str()?)))
}

/// It is signed where the cluster is: each signature is of what stands there.
pub(super) fn signed(look: &Look<'_>) -> Result<(), String> {
    if look.resource() != "configmaps" {
        return Ok(());
    }
    let content = text(look.after(), "/data/kubeconfig");
    match signatures(look.after()).find(|(id, held)| *held != signature(content, id)) {
        Some((id, held)) => Err(format!("{} is signed with {id}: {held}", look.named())),
        None => Ok(()),
    }
}

/// A bundle is published: it is that of the authority.
pub(super) fn bundle(look: &Look<'_>) -> Result<(), String> {
    let held = &look.after()["data"];
    if look.resource() != "configmaps" || look.after().is_null() || held["ca.crt"] == *BUNDLE {
        return Ok(());
    }
    Err(format!("{} holds {held}", look.named()))
}

/// In the end every namespace has the bundle, and it is signed with the tokens that there are where the cluster is.
pub(super) fn end(model: &Model, resource: &str, object: &Json) -> Option<String> {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    match resource {
        "namespaces" if object["metadata"]["deletionTimestamp"].is_null() => {
            let held = model.look("configmaps", name, BUNDLE_NAME);
            (held["data"]["ca.crt"] != *BUNDLE).then(|| "it has no bundle, or another".to_owned())
        }
        "configmaps" if (namespace, name) == CLUSTER_INFO => {
            let decoded = |secret: &Json, field: &str| {
                let bytes = BASE64_STANDARD.decode(text(secret, field)).unwrap_or_default();
                String::from_utf8(bytes).unwrap_or_default()
            };
            // In the end there are only tokens that do not end, and those of which nobody can tell.
            let signs = |secret: &&Json| {
                is_bootstrap(secret)
                    && decoded(secret, "/data/usage-bootstrap-signing") == "true"
                    && secret["data"].get("expiration").is_none()
            };
            let tokens = model.all("secrets", "kube-system").map(|held| &held.json).filter(signs);
            let wanted: BTreeSet<String> = tokens.map(|secret| decoded(secret, "/data/token-id")).collect();
            let held: BTreeSet<String> = signatures(object).map(|(id, _)| id.to_owned()).collect();
            (held != wanted).then(|| format!("it is signed with {held:?}, not {wanted:?}"))
        }
        _ => None,
    }
}

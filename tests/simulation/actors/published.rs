//! What is published for everybody: where the cluster is, signed with tokens, and the authority's bundle in every namespace. Somebody
//! changes the one, and spoils the other.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::json;

use super::tokens::SECRET;
use super::users::edit;
use crate::invariants::KEEPSAKE;
use apiserver_model::dice::Dice;
use apiserver_model::{Deletion, Model, Place, Refusal};

/// Where it is, in each namespace.
pub(crate) const BUNDLE_NAME: &str = "kube-root-ca.crt";
/// Where it is said where the cluster is.
pub(crate) const CLUSTER_INFO: (&str, &str) = ("kube-public", "cluster-info");

/// What kubeadm leaves.
pub(super) fn start(model: &mut Model) {
    let (namespace, name) = CLUSTER_INFO;
    let info = json!({
        "metadata": { "name": name, "annotations": { KEEPSAKE: name } },
        "data": { "kubeconfig": "the first", "else": "stays" },
    });
    drop(model.create("user", "configmaps", namespace, info));
}

/// The cluster is somewhere else.
pub(super) fn moves(model: &mut Model, _: &mut Dice) -> Result<(), Refusal> {
    let content = format!("as of {}", model.version());
    let (namespace, name) = CLUSTER_INFO;
    let place = Place::new("configmaps", namespace, name);
    edit(model, &place, |info| info["data"]["kubeconfig"] = json!(content))
}

/// A bundle is overwritten, or goes.
pub(super) fn spoil(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let all = model.all("configmaps", "").filter(|held| held.place.name == BUNDLE_NAME);
    let places: Vec<Place> = all.map(|held| held.place.clone()).collect();
    let Some(place) = dice.pick(&places) else { return Ok(()) };
    if dice.permille(500) {
        return model.delete("user", place, &Deletion::default()).map(drop);
    }
    edit(model, place, |held| held["data"] = json!({ "ca.crt": "another", "more": "of it" }))
}

/// The signature over a text by the token of this id: a JWS with its content left out (RFC 7515).
pub(crate) fn signature(content: &str, id: &str) -> String {
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let header = encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{id}\"}}").as_bytes());
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signed = hmac::sign(&key, format!("{header}.{}", encode(content.as_bytes())).as_bytes());
    format!("{header}..{}", encode(signed.as_ref()))
}

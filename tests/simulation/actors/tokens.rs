//! Tokens in Secrets: bootstrap tokens that end, and are prolonged at the last moment; and those that old clusters made for
//! ServiceAccounts, which somebody may still use, or mount, at any moment.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value as Json, json};

use super::users::edit;
use super::{volumes, wishes};
use crate::invariants::{KEEPSAKE, LAST_USED, expiration_of};
use apiserver_model::dice::Dice;
use apiserver_model::{Model, Place, Refusal, Stored, text};

/// More tokens of either sort are not there at a time.
const MANY: usize = 8;
/// What all bootstrap tokens sign with.
pub(super) const SECRET: &str = "0123456789abcdef";
/// For how many seconds a bootstrap token is good at most.
const LONGEST: i64 = 200;
/// Where old tokens are, and whose they are.
const HOME: &str = "default";
const ACCOUNT: &str = "old";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// When old things were made, before now.
const LONG: SignedDuration = SignedDuration::from_hours(30 * 24);

fn ends(model: &Model, seconds: i64) -> Json {
    let end = model.seconds() + SignedDuration::from_secs(seconds);
    json!(BASE64_STANDARD.encode(end.to_string()))
}

/// A bootstrap token; few say nothing of an end, or what is no time.
pub(super) fn make(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let id = format!("simul{}", dice.below(MANY));
    let mut data = json!({
        "token-id": BASE64_STANDARD.encode(&id),
        "token-secret": BASE64_STANDARD.encode(SECRET),
    });
    if dice.permille(800) {
        data["usage-bootstrap-signing"] = json!(BASE64_STANDARD.encode("true"));
    }
    match dice.below(10) {
        0 => {}
        1 => data["expiration"] = json!(BASE64_STANDARD.encode("soon")),
        _ => data["expiration"] = ends(model, dice.within(5, LONGEST)),
    }
    let secret = json!({
        "metadata": { "name": format!("bootstrap-token-{id}"), "annotations": { KEEPSAKE: id } },
        "type": "bootstrap.kubernetes.io/token",
        "data": data,
    });
    model.create("user", "secrets", "kube-system", secret).map(drop)
}

/// The bootstrap token that ends next, or has ended and is still there, is good for longer.
pub(super) fn prolong(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let end = |held: &Stored| expiration_of(&held.json)?.parse::<Timestamp>().ok();
    let ending =
        model.all("secrets", "kube-system").filter_map(|held| Some((end(held)?, held.place.clone())));
    let Some((_, place)) = ending.min() else { return Ok(()) };
    let end = ends(model, dice.within(30, LONGEST));
    edit(model, &place, |secret| secret["data"]["expiration"] = end)
}

/// The day that was so many days ago.
fn day(model: &Model, ago: i64) -> String {
    let at = model.seconds() - SignedDuration::from_hours(24 * ago);
    at.to_zoned(TimeZone::UTC).date().to_string()
}

/// Does something as if long ago. Who checks hears of it as of now: until now it was not there.
fn long_ago<T>(model: &mut Model, act: impl FnOnce(&mut Model) -> T) -> T {
    let (now, before) = (model.now(), model.changes.len());
    model.set_time(now - LONG);
    let result = act(model);
    model.set_time(now);
    for change in &mut model.changes[before..] {
        change.at = now;
    }
    result
}

/// What an old cluster has left: an account with its tokens, some of which pods mount, and since when uses are noted.
pub(super) fn start(model: &mut Model, dice: &mut Dice) {
    let tracking = json!({ "metadata": { "name": TRACKING }, "data": { "since": day(model, 20) } });
    let listed: Vec<Json> = (0..MANY).map(|number| json!({ "name": format!("old-{number}") })).collect();
    let account = json!({ "metadata": { "name": ACCOUNT }, "secrets": listed });
    long_ago(model, |model| {
        drop(model.create("user", "configmaps", "kube-system", tracking));
        drop(model.create("user", "serviceaccounts", HOME, account));
    });
    for _ in 0..2 * MANY {
        drop(find(model, dice));
    }
    for _ in 0..2 {
        let pod = mounting(model, dice);
        long_ago(model, |model| drop(pod.map(|pod| model.create("user", "pods", HOME, pod))));
    }
}

/// A token that an old cluster made; some were made by hand, some used lately, some marked as invalid long ago.
pub(super) fn find(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let uid = model.look("serviceaccounts", HOME, ACCOUNT)["metadata"]["uid"].clone();
    let begin = if dice.permille(900) { "old" } else { "hand" };
    let name = format!("{begin}-{}", dice.below(MANY));
    let mut labels = json!({});
    if let Some(ago) = dice.pick(&[None, None, Some(0), Some(1), Some(2), Some(9)]).copied().flatten() {
        labels[LAST_USED] = json!(day(model, ago));
    }
    if let Some(ago) = dice.pick(&[None, Some(1), Some(2), Some(9)]).copied().flatten() {
        labels[INVALID_SINCE] = json!(day(model, ago));
    }
    let secret = json!({
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {
                KEEPSAKE: name,
                "kubernetes.io/service-account.name": ACCOUNT,
                "kubernetes.io/service-account.uid": uid,
            },
        },
        "type": "kubernetes.io/service-account-token",
        "data": { "token": BASE64_STANDARD.encode("token") },
    });
    long_ago(model, |model| model.create("user", "secrets", HOME, secret)).map(drop)
}

fn old_token(model: &Model, dice: &mut Dice) -> Option<Place> {
    let is_old = |held: &&std::sync::Arc<Stored>| held.json["type"] == "kubernetes.io/service-account-token";
    let all: Vec<Place> = model.all("secrets", HOME).filter(is_old).map(|held| held.place.clone()).collect();
    dice.pick(&all).cloned()
}

/// Somebody logs in with an old token: the API server notes it, even if it refuses.
pub(super) fn log_in(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(place) = old_token(model, dice) else { return Ok(()) };
    let today = day(model, 0);
    edit(model, &place, |secret| {
        if secret["metadata"]["labels"].is_null() {
            secret["metadata"]["labels"] = json!({});
        }
        secret["metadata"]["labels"][LAST_USED] = json!(today);
    })
}

/// A pod that names an old token, in one of the places where a pod can.
fn mounting(model: &Model, dice: &mut Dice) -> Option<Json> {
    let name = old_token(model, dice)?.name;
    let mut pod = wishes::template(volumes::MOUNTS, 0, "Always");
    pod["metadata"]["generateName"] = json!("holds-");
    let spec = &mut pod["spec"];
    match dice.below(4) {
        0 => spec["volumes"] = json!([{ "name": "token", "secret": { "secretName": name } }]),
        1 => spec["imagePullSecrets"] = json!([{ "name": name }]),
        2 => spec["containers"][0]["envFrom"] = json!([{ "secretRef": { "name": name } }]),
        _ => {
            let sources = json!([{ "secret": { "name": name } }]);
            spec["volumes"] = json!([{ "name": "token", "projected": { "sources": sources } }]);
        }
    }
    Some(pod)
}

pub(super) fn mount(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let holding = model.all("pods", HOME).filter(|pod| pod.place.name.starts_with("holds-")).count();
    match mounting(model, dice).filter(|_| holding < 3) {
        Some(pod) => model.create("user", "pods", HOME, pod).map(drop),
        None => Ok(()),
    }
}

/// Whether a pod names a Secret anywhere: names of tokens are nothing else's.
pub(crate) fn names(pod: &Json, secret: &str) -> bool {
    match pod {
        Json::String(text) => text == secret,
        Json::Array(items) => items.iter().any(|item| names(item, secret)),
        Json::Object(members) => members.values().any(|member| names(member, secret)),
        _ => false,
    }
}

/// Whether it is a bootstrap token.
pub(crate) fn is_bootstrap(secret: &Json) -> bool {
    text(secret, "/type") == "bootstrap.kubernetes.io/token"
}

//! Certificates that are asked for: good requests and bad ones, who approves or denies them, and who takes them back.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value as Json, json};

use super::authority;
use crate::invariants::KEEPSAKE;
use apiserver_model::dice::Dice;
use apiserver_model::{Deletion, Model, Place, Refusal, items, text};

const RESOURCE: &str = "certificatesigningrequests";
/// How the names of requests begin that nobody may sign.
pub(crate) const BAD: &str = "bad-";
/// More requests of either sort are not there at a time.
const MANY: usize = 5;

/// What can be asked for.
struct Wish {
    is_good: bool,
    signer: &'static str,
    usages: &'static [&'static str],
    /// Who asks, and a group of theirs.
    by: (&'static str, &'static str),
    /// The PKCS#10 request in PEM.
    pem: String,
}

const CLIENT: &[&str] = &["digital signature", "client auth"];
const SERVER: &[&str] = &["digital signature", "key encipherment", "server auth"];

/// A request of a key for an organization, a name and DNS names.
fn pem(organization: &str, name: &str, dns: &[&str]) -> String {
    let names: Vec<String> = dns.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).expect("names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let request = params.serialize_request(&authority::key(1_000_000)).expect("a request");
    request.pem().expect("PEM")
}

/// Who asks for certificates, and a group of theirs: a person, a machine that joins, and a node.
const PERSON: (&str, &str) = ("somebody", "people");
const JOINING: (&str, &str) = ("system:bootstrap:abcdef", "system:bootstrappers");
const NODE: (&str, &str) = ("system:node:node-1", "system:nodes");
/// The signer of what kubelets log in with.
pub(crate) const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Rights by which requests for those are approved: of those who have them, and what they are called.
pub(crate) const RIGHTS: &[(&str, &str)] =
    &[(JOINING.1, "nodeclient"), (NODE.1, "selfnodeclient"), (NODE.1, "nodeclient")];

/// All of it.
static WISHES: LazyLock<Vec<Wish>> = LazyLock::new(|| {
    let (client, serving) = ("kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving");
    let (user, node) =
        (pem("people", "somebody", &[]), pem("system:nodes", "system:node:node-1", &["node-1"]));
    let nameless = pem("system:nodes", "system:node:node-1", &[]);
    let log_in = pem("system:nodes", "system:node:node-1", &[]);
    let by =
        |by, is_good, signer, usages, pem: &str| Wish { is_good, signer, usages, by, pem: pem.to_owned() };
    let wish = |is_good, signer, usages, pem: &str| by(PERSON, is_good, signer, usages, pem);
    vec![
        by(JOINING, true, KUBELET, CLIENT, &log_in),
        by(NODE, true, KUBELET, CLIENT, &log_in),
        by(NODE, true, KUBELET, CLIENT, &pem("system:nodes", "system:node:node-2", &[])),
        by(PERSON, true, KUBELET, CLIENT, &log_in),
        by(NODE, false, KUBELET, SERVER, &log_in),
        by(JOINING, false, KUBELET, CLIENT, &node),
        by(JOINING, false, KUBELET, CLIENT, &pem("people", "system:node:node-1", &[])),
        wish(true, client, CLIENT, &user),
        wish(true, serving, SERVER, &node),
        wish(false, client, SERVER, &user),
        wish(false, serving, SERVER, &nameless),
        wish(false, serving, SERVER, &pem("people", "system:node:node-1", &["node-1"])),
        wish(false, client, CLIENT, "-----BEGIN NOTHING-----\nAAAA\n-----END NOTHING-----\n"),
        wish(false, "example.com/another", CLIENT, &user),
    ]
});

pub(super) fn ask(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let is_good = dice.permille(700);
    let wishes: Vec<&Wish> = WISHES.iter().filter(|wish| wish.is_good == is_good).collect();
    let Some(wish) = dice.pick(&wishes) else { return Ok(()) };
    // Names come back: what bears one again is another request.
    let name = format!("{}{}", if is_good { "ask-" } else { BAD }, dice.below(MANY));
    let mut spec = json!({
        "request": BASE64_STANDARD.encode(&wish.pem),
        "signerName": wish.signer,
        "usages": wish.usages,
        "username": wish.by.0,
        "groups": [wish.by.1],
    });
    if dice.permille(300) {
        spec["expirationSeconds"] = json!(600);
    }
    let request = json!({ "metadata": { "name": name, "annotations": { KEEPSAKE: name } }, "spec": spec });
    model.create("user", RESOURCE, "", request).map(drop)
}

/// Whether a request has a condition of this type.
pub(crate) fn has(request: &Json, condition: &str) -> bool {
    items(request, "/status/conditions").iter().any(|held| held["type"] == condition)
}

fn places(model: &Model, which: impl Fn(&Json) -> bool) -> Vec<Place> {
    model.all(RESOURCE, "").filter(|held| which(&held.json)).map(|held| held.place.clone()).collect()
}

fn is_undecided(request: &Json) -> bool {
    !has(request, "Approved") && !has(request, "Denied")
}

fn say(model: &mut Model, place: &Place, condition: &str) -> Result<(), Refusal> {
    let now = model.seconds().to_string();
    let said = |held: &Json| {
        let mut request = held.clone();
        let mut conditions = items(held, "/status/conditions").to_vec();
        conditions.push(json!({
            "type": condition, "status": "True", "reason": "BySomebody",
            "lastUpdateTime": now, "lastTransitionTime": now,
        }));
        request["status"]["conditions"] = Json::Array(conditions);
        Ok(request)
    };
    model.update("user", place, "approval", said).map(drop)
}

/// Somebody is given a right to certificates, or it is taken away.
#[expect(clippy::unnecessary_wraps, reason = "the shape of every act")]
pub(super) fn permit(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(&(who, subresource)) = dice.pick(RIGHTS) else { return Ok(()) };
    let now = model.now();
    model.access.set(who, subresource, dice.permille(600), now);
    Ok(())
}

/// Somebody approves or denies a request.
pub(super) fn decide(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let undecided = places(model, is_undecided);
    let Some(place) = dice.pick(&undecided) else { return Ok(()) };
    say(model, place, if dice.permille(750) { "Approved" } else { "Denied" })
}

pub(super) fn withdraw(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let all = places(model, |_| true);
    let Some(place) = dice.pick(&all) else { return Ok(()) };
    model.delete("user", place, &Deletion::default()).map(drop)
}

/// What nobody has decided is denied, and what nothing more becomes of goes.
pub(super) fn conclude(model: &mut Model) {
    for place in places(model, is_undecided) {
        drop(say(model, &place, "Denied"));
    }
    let is_done = |request: &Json| {
        !text(request, "/status/certificate").is_empty()
            || has(request, "Denied")
            || text(request, "/metadata/name").starts_with(BAD)
    };
    for place in places(model, is_done) {
        drop(model.delete("user", &place, &Deletion::default()));
    }
}

/// The spec of a good request for a kubelet's certificate, as this user makes it.
pub(crate) fn kubelet_request(user: &str) -> Json {
    json!({
        "request": BASE64_STANDARD.encode(pem("system:nodes", "system:node:node-1", &[])),
        "signerName": KUBELET,
        "usages": CLIENT,
        "username": user,
        "groups": [JOINING.1],
    })
}

/// From now on the users of those requests may have them approved.
pub(crate) fn permit_kubelets(model: &mut Model) {
    let now = model.now();
    model.access.set(JOINING.1, "nodeclient", true, now);
}

//! What the API server asks before it stores an object: quotas, and whether who names an owner may hold that back.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value as Json, json};

use coxswain_machinery::api::{Kind, kinds};
use coxswain_machinery::framework::Grant;

use super::{Model, Place, Refusal, items, text};

/// Kinds that quotas also know by their name alone.
const BY_NAME: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];

/// What quotas call the objects of each resource that is stored.
static NAMES: LazyLock<BTreeMap<&str, Vec<String>>> = LazyLock::new(|| {
    let stored = kinds::ALL.iter().filter(|row| super::message(row).is_some());
    let names = stored.map(|row| {
        let dot = if row.group.is_empty() { "" } else { "." };
        let mut names = vec![format!("count/{}{dot}{}", row.resource, row.group)];
        names.extend(BY_NAME.contains(&row.resource).then(|| row.resource.to_owned()));
        // In the order in which refusals name them.
        names.sort_unstable();
        (row.resource, names)
    });
    names.collect()
});

/// What pods ask for, which quotas limit.
pub const CPU: &str = "requests.cpu";

/// What an object takes of quotas, by name: one, or thousandths of CPUs. Pods that have ended are objects still, and no pods.
pub fn charges(resource: &str, object: &Json) -> Vec<(&'static str, i64)> {
    let has_ended = resource == "pods" && matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
    let names = NAMES.get(resource).into_iter().flatten().map(String::as_str);
    let counts = names.filter(|name| !has_ended || *name != resource).map(|name| (name, 1));
    let asks = |container: &Json| amount(&json!({ CPU: container["resources"]["requests"]["cpu"] }), CPU);
    let cpu = (resource == "pods" && !has_ended).then(|| {
        let all = items(object, "/spec/containers").iter().filter_map(asks);
        (CPU, all.sum())
    });
    counts.chain(cpu).collect()
}

/// An amount: a whole number, or thousandths of CPUs.
pub fn amount(amounts: &Json, name: &str) -> Option<i64> {
    let spelt = amounts[name].as_str()?;
    match spelt.strip_suffix('m') {
        Some(milli) => milli.parse().ok(),
        None => spelt.parse::<i64>().ok().map(|whole| if name == CPU { whole * 1000 } else { whole }),
    }
}

/// An amount as quotas spell it.
pub fn spelt(name: &str, amount: i64) -> String {
    match name {
        CPU if amount % 1000 == 0 => (amount / 1000).to_string(),
        CPU => format!("{amount}m"),
        _ => amount.to_string(),
    }
}

impl Model {
    /// Charges the quotas of a namespace for an object, or refuses it. What is charged stays so although the object is not
    /// stored in the end: the controller of quotas counts anew.
    pub(super) fn charge(&mut self, place: &Place, object: &Json) -> Result<(), Refusal> {
        if place.namespace.is_empty() {
            return Ok(());
        }
        let charges = charges(place.resource, object);
        let mut charged: Vec<(Place, Vec<(&str, i64)>)> = Vec::new();
        for quota in self.all("resourcequotas", &place.namespace) {
            let name = &quota.place.name;
            let (hard, used) = (&quota.json["status"]["hard"], &quota.json["status"]["used"]);
            // A quota that nobody has looked at yet limits nothing.
            let is_limited = |(name, _): &(&str, i64)| hard[*name].is_string();
            let (mut unknown, mut exceeded, mut grown) = (Vec::new(), Vec::new(), Vec::new());
            for (charge, by) in charges.iter().copied().filter(is_limited) {
                match (amount(hard, charge), amount(used, charge)) {
                    (Some(hard), Some(used)) if used + by <= hard => grown.push((charge, used + by)),
                    (Some(hard), Some(used)) => exceeded.push((charge, by, used, hard)),
                    _ => unknown.push(charge),
                }
            }
            if !unknown.is_empty() {
                let why = format!("status unknown for quota: {name}, resources: {}", unknown.join(","));
                return Err(Refusal::forbidden(place, &why));
            }
            if !exceeded.is_empty() {
                let list = |one: fn(&(&str, i64, i64, i64)) -> i64| {
                    let all: Vec<String> =
                        exceeded.iter().map(|row| format!("{}={}", row.0, spelt(row.0, one(row)))).collect();
                    all.join(",")
                };
                let (by, used, hard) = (list(|row| row.1), list(|row| row.2), list(|row| row.3));
                let why = format!("exceeded quota: {name}, requested: {by}, used: {used}, limited: {hard}");
                return Err(Refusal::forbidden(place, &why));
            }
            if !grown.is_empty() {
                charged.push((quota.place.clone(), grown));
            }
        }
        for (quota, grown) in charged {
            self.update("server", &quota, "status", |held| {
                let mut quota = held.clone();
                for (name, amount) in grown {
                    quota["status"]["used"][name] = Json::from(spelt(name, amount));
                }
                Ok(quota)
            })?;
        }
        Ok(())
    }
}

/// What the role of each writer lets it write; `None` for those who may write everything.
pub type Roles = fn(by: &str) -> Option<&'static [Grant]>;

/// Whether a role allows a verb on a resource.
fn allows(role: Option<&[Grant]>, verb: &str, group: &str, resource: &str) -> bool {
    let is = |pattern: &str, word: &str| pattern == "*" || pattern == word;
    role.is_none_or(|grants| {
        grants.iter().any(|grant| {
            is(grant.group, group)
                && is(grant.resource, resource)
                && grant.verbs.iter().any(|granted| is(granted, verb))
        })
    })
}

fn row_of(owner: &Json) -> Option<&'static Kind> {
    let (version, kind) = (text(owner, "/apiVersion"), text(owner, "/kind"));
    kinds::ALL.iter().find(|row| row.kind == kind && row.api_version() == version).copied()
}

/// Who names an owner that is to wait for its dependents when it is deleted must be allowed to put finalizers on it; who changes
/// the owners of an object, to delete it.
pub(super) fn check_owners(
    role: Option<&[Grant]>,
    by: &str,
    place: &Place,
    old: Option<&Json>,
    new: &Json,
) -> Result<(), Refusal> {
    let by_uid = |object: &'_ Json| -> BTreeMap<String, Json> {
        let owners = items(object, "/metadata/ownerReferences").iter();
        owners.map(|owner| (text(owner, "/uid").to_owned(), owner.clone())).collect()
    };
    let (held, wanted) = (by_uid(old.unwrap_or(&Json::Null)), by_uid(new));
    if held == wanted {
        return Ok(());
    }
    let group = super::group_of(place.resource);
    if old.is_some() && !allows(role, "delete", group, place.resource) {
        let why = format!("cannot set an ownerRef on a resource you can't delete: {by}, <nil>");
        return Err(Refusal::forbidden(place, &why));
    }
    for (uid, owner) in wanted {
        let blocked = held.get(&uid).is_some_and(|held| held["blockOwnerDeletion"] == true);
        if owner["blockOwnerDeletion"] != true || blocked {
            continue;
        }
        let Some(row) = row_of(&owner) else { continue };
        if !allows(role, "update", row.group, &format!("{}/finalizers", row.resource)) {
            let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: ";
            return Err(Refusal::forbidden(place, &format!("{why}{by}, <nil>")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn model() -> Model {
        Model::new(Timestamp::from_second(1_800_000_000).expect("a time"), 1)
    }

    fn make(model: &mut Model, resource: &'static str, name: &str) -> Result<(), String> {
        let object = json!({ "metadata": { "name": name } });
        let made = model.create("user", resource, "default", object);
        made.map(drop).map_err(|refusal| format!("{} {}", refusal.code, refusal.message))
    }

    fn used(model: &Model, name: &str) -> Option<i64> {
        amount(&model.look("resourcequotas", "default", "few")["status"]["used"], name)
    }

    #[test]
    fn what_is_made_is_charged_and_refused_beyond_the_limit() {
        let mut model = model();
        let hard = json!({ "configmaps": "2", "count/configmaps": "9", "count/deployments.apps": "0" });
        let quota = json!({ "metadata": { "name": "few" }, "spec": { "hard": hard } });
        drop(model.create("user", "resourcequotas", "default", quota));
        assert_eq!(make(&mut model, "configmaps", "early"), Ok(()), "nobody has looked at it yet");
        let place = Place::new("resourcequotas", "default", "few");
        let seen = |quota: &mut Json| {
            quota["status"] = json!({ "hard": hard });
        };
        drop(model.change("m1/resourcequota-controller", &place, "status", seen));
        let unknown = "403 configmaps \"a\" is forbidden: status unknown for quota: few, resources: configmaps,count/configmaps";
        assert_eq!(make(&mut model, "configmaps", "a"), Err(unknown.to_owned()));
        assert_eq!(make(&mut model, "secrets", "a"), Ok(()), "nobody limits them");
        let counted = |quota: &mut Json| {
            let none = json!({ "configmaps": "0", "count/configmaps": "0", "count/deployments.apps": "0" });
            quota["status"] = json!({ "hard": hard, "used": none });
        };
        drop(model.change("m1/resourcequota-controller", &place, "status", counted));
        assert_eq!(make(&mut model, "configmaps", "a"), Ok(()));
        let exists = make(&mut model, "configmaps", "a").expect_err("it is there");
        assert!(exists.starts_with("409 "), "{exists}");
        // What was charged for the one that was there already is charged until somebody counts.
        assert_eq!((used(&model, "configmaps"), used(&model, "count/configmaps")), (Some(2), Some(2)));
        let exceeded = "403 configmaps \"b\" is forbidden: exceeded quota: few, requested: configmaps=1, used: configmaps=2, limited: configmaps=2";
        assert_eq!(make(&mut model, "configmaps", "b"), Err(exceeded.to_owned()));
        let refused = make(&mut model, "deployments", "web").expect_err("there may be none");
        assert!(
            refused.starts_with("403 deployments.apps \"web\" is forbidden: exceeded quota: few"),
            "{refused}"
        );
    }

    #[test]
    fn what_pods_ask_for_is_charged() {
        let mut model = model();
        let quota = json!({ "metadata": { "name": "few" }, "spec": { "hard": { CPU: "1" } } });
        drop(model.create("user", "resourcequotas", "default", quota));
        let counted = |quota: &mut Json| {
            quota["status"] = json!({ "hard": { CPU: "1" }, "used": { CPU: "0" } });
        };
        let place = Place::new("resourcequotas", "default", "few");
        drop(model.change("m1/resourcequota-controller", &place, "status", counted));
        let mut make = |name: &str| {
            let container = json!({ "name": "main", "resources": { "requests": { "cpu": "400m" } } });
            let pod = json!({ "metadata": { "name": name }, "spec": { "containers": [container] } });
            model.create("user", "pods", "default", pod).map(drop).map_err(|refusal| refusal.message)
        };
        assert_eq!((make("a"), make("b")), (Ok(()), Ok(())));
        let refused = "pods \"c\" is forbidden: exceeded quota: few, requested: requests.cpu=400m, used: requests.cpu=800m, limited: requests.cpu=1";
        assert_eq!(make("c"), Err(refused.to_owned()));
        assert_eq!((used(&model, CPU), spelt(CPU, 3000)), (Some(800), "3".to_owned()));
    }

    #[test]
    fn only_who_may_put_finalizers_on_an_owner_has_it_wait() {
        let owned = |kind: &str, name: &str, waits: bool| {
            let owner = json!({
                "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true,
                "blockOwnerDeletion": waits,
            });
            json!({ "metadata": { "name": name, "ownerReferences": [owner] } })
        };
        let mut model = model();
        model.roles = |by| {
            let resource = match by {
                "m1/replicaset-controller" => "replicasets/finalizers",
                "m1/deployment-controller" => "deployments/finalizers",
                _ => return None,
            };
            Some(Vec::leak(vec![Grant { group: "apps", resource, verbs: &["update"] }]))
        };
        for (by, kind, waits, expected) in [
            ("m1/replicaset-controller", "ReplicaSet", true, None),
            ("m1/replicaset-controller", "Deployment", true, Some(403)),
            ("m1/replicaset-controller", "Deployment", false, None),
            ("m1/deployment-controller", "Deployment", true, None),
            ("user", "Deployment", true, None),
        ] {
            let name = format!("{}-{}-{waits}", by.replace('/', "-"), kind.to_lowercase());
            let made = model.create(by, "pods", "default", owned(kind, &name, waits));
            assert_eq!(made.map_err(|refusal| refusal.code).err(), expected, "{by} {kind} {waits}");
        }
    }
}

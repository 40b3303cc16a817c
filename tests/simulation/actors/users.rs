//! Users: they create, scale, roll, relabel and delete, at random.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use tokio::time::sleep;

use super::{Calm, autoscalers, budgets, quotas, volumes, wishes};
use crate::faults::Muted;
use crate::invariants::{KEEPSAKE, controller_of, is_active, ordinal};
use crate::server::Server;
use apiserver_model::dice::Dice;
use apiserver_model::{Deletion, Model, Place, Refusal, items, text};

pub(super) const NAMESPACES: &[&str] = &["default", "red", "blue"];
const WORKLOADS: &[&str] = &[
    "deployments",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "jobs",
    "replicationcontrollers",
    "cronjobs",
];
/// More workloads than these are not there at a time.
const MANY: usize = 12;

/// What a user does.
pub(super) type Act = fn(&mut Model, &mut Dice) -> Result<(), Refusal>;

/// Everything that users do, and how often.
const ACTS: &[(u32, &str, Act)] = &[
    (30, "a workload is created", create),
    (25, "a workload is scaled", scale),
    (12, "a template changes", roll),
    (10, "a pod is deleted", delete_pod),
    (6, "a pod is relabeled", release_pod),
    (8, "a workload is deleted", delete_workload),
    (4, "a stray pod is created", stray_pod),
    (2, "a namespace is deleted", delete_namespace),
    (3, "a ConfigMap is created", configure),
    (4, "a budget is set", budgets::set),
    (1, "a budget is deleted", budgets::delete),
    (15, "a pod is evicted", budgets::evict),
    (5, "a volume is made", volumes::make),
    (3, "a volume is deleted", volumes::delete),
    (5, "a claim is made", volumes::claim),
    (3, "a claim is deleted", volumes::delete_claim),
    (4, "a pod with a claim is created", volumes::mount),
    (3, "a quota is set", quotas::set),
    (2, "a quota is deleted", quotas::delete),
];

/// The names of all that users do.
pub(super) fn acts() -> impl Iterator<Item = &'static str> {
    ACTS.iter().map(|(_, name, _)| *name)
}

/// One of these acts, each as often as it says.
fn draw(acts: &[(u32, &'static str, Act)], dice: &mut Dice) -> Option<(&'static str, Act)> {
    let total: u32 = acts.iter().map(|(weight, ..)| weight).sum();
    let mut drawn = dice.below(total as usize) as u32;
    let act = acts.iter().find(|(weight, ..)| {
        let is_it = drawn < *weight;
        drawn = drawn.saturating_sub(*weight);
        is_it
    });
    act.map(|(_, name, act)| (*name, *act))
}

/// Does one of these things after the other, with pauses of so many milliseconds at most, until it is calm.
pub(super) async fn act(
    server: &Server,
    dice: &mut Dice,
    acts: &[(u32, &'static str, Act)],
    longest: u64,
    calm: &Calm,
    muted: &Muted,
) {
    loop {
        sleep(dice.millis(200, longest)).await;
        if calm.has_begun() {
            return;
        }
        act_once(server, dice, acts, muted);
    }
}

fn act_once(server: &Server, dice: &mut Dice, acts: &[(u32, &'static str, Act)], muted: &Muted) {
    if let Some((_, act)) = draw(acts, dice).filter(|(name, _)| !muted.contains(name)) {
        // What cannot be done is not done.
        server.with(|model| drop(act(model, dice)));
    }
}

/// A user does one thing.
pub(super) fn user(server: &Server, dice: &mut Dice, muted: &Muted) {
    act_once(server, dice, ACTS, muted);
}

/// Acts until it is calm, and then no more.
pub(crate) async fn users(server: Arc<Server>, seed: u64, calm: Calm, muted: Muted) {
    let mut dice = Dice::new(seed, "users");
    // Some are in a hurry.
    let longest = *dice.pick(&[3_000, 10_000, 40_000]).unwrap_or(&10_000);
    act(&server, &mut dice, ACTS, longest, &calm, &muted).await;
    // Nobody else takes care of pods that were let go of, and a StatefulSet may want their names. Pods that have ended still hold
    // what they mount.
    server.with(|model| {
        let released = |pod: &&Arc<apiserver_model::Stored>| {
            matches!(text(&pod.json, "/metadata/labels/app"), "released" | volumes::MOUNTS)
        };
        // Two that have failed above what a StatefulSet wants wait for each other, in the original, too.
        let held_up = |pod: &&Arc<apiserver_model::Stored>| {
            let has_ended = controller_of(&pod.json)["kind"] == "StatefulSet" && !is_active(&pod.json);
            let Some((set, number)) = ordinal(&pod.json).filter(|_| has_ended) else {
                return false;
            };
            let spec = &model.look("statefulsets", &pod.place.namespace, set)["spec"];
            let start = spec["ordinals"]["start"].as_i64().unwrap_or(0);
            number >= start + spec["replicas"].as_i64().unwrap_or(1)
        };
        let gone = |pod: &&Arc<apiserver_model::Stored>| released(pod) || held_up(pod);
        let places: Vec<Place> = model.all("pods", "").filter(gone).map(|pod| pod.place.clone()).collect();
        for place in places {
            drop(model.delete("user", &place, &Deletion::default()));
        }
        quotas::relent(model, &mut dice);
        // What is due again and again never comes to an end.
        let due: Vec<Place> = model.all("cronjobs", "").map(|held| held.place.clone()).collect();
        for place in due {
            drop(edit(model, &place, |held| held["spec"]["suspend"] = json!(true)));
        }
    });
    std::future::pending::<()>().await;
}

pub(super) fn workloads(model: &Model) -> Vec<Place> {
    let all = WORKLOADS[1..].iter().flat_map(|resource| model.all(resource, ""));
    let is_free = |stored: &&Arc<apiserver_model::Stored>| {
        controller_of(&stored.json).is_null() && !autoscalers::is_scaled(&stored.place)
    };
    all.filter(is_free).map(|stored| stored.place.clone()).collect()
}

pub(super) fn edit(model: &mut Model, place: &Place, edit: impl FnOnce(&mut Json)) -> Result<(), Refusal> {
    model.change("user", place, "", edit).map(drop)
}

fn create(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(&namespace) = dice.pick(NAMESPACES) else { return Ok(()) };
    let Some(&resource) = dice.pick(WORKLOADS) else { return Ok(()) };
    if model.get(&Place::new("namespaces", "", namespace)).is_none() {
        model.create("user", "namespaces", "", json!({ "metadata": { "name": namespace } }))?;
    }
    if workloads(model).len() >= MANY {
        return Ok(());
    }
    // Names come back: what bears one again is another object.
    let begin = if resource == "replicationcontrollers" { "con" } else { &resource[..3] };
    let name = format!("{begin}-{}", dice.below(6));
    let mut object = wishes::workload(resource, &name, dice);
    if resource == "statefulsets" && mounts_nothing(model, namespace, &name) {
        wishes::without_claims(&mut object);
    }
    model.create("user", resource, namespace, object).map(drop)
}

/// Whether an earlier StatefulSet of this name has left a pod that mounts no claim. What a pod mounts cannot be changed, so one that asked
/// for claims would wait for ever for somebody to delete it, with the original too.
fn mounts_nothing(model: &Model, namespace: &str, name: &str) -> bool {
    let mut pods =
        model.all("pods", namespace).filter(|pod| ordinal(&pod.json).is_some_and(|(set, _)| set == name));
    pods.any(|pod| items(&pod.json, "/spec/volumes").is_empty())
}

fn scale(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(place) = dice.pick(&workloads(model)).cloned() else { return Ok(()) };
    let size = dice.within(0, 7);
    edit(model, &place, |object| match place.resource {
        "jobs" => object["spec"]["parallelism"] = json!(size.clamp(1, 3)),
        "daemonsets" => {}
        "cronjobs" => object["spec"]["suspend"] = json!(size > 4),
        _ => object["spec"]["replicas"] = json!(size),
    })
}

fn roll(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(place) = dice.pick(&workloads(model)).cloned() else { return Ok(()) };
    // Sometimes back to one that was there before.
    let version = dice.below(5);
    edit(model, &place, |object| {
        if !matches!(place.resource, "jobs" | "cronjobs") {
            object["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] =
                json!(version.to_string());
        }
    })
}

fn a_pod(model: &Model, dice: &mut Dice) -> Option<Arc<apiserver_model::Stored>> {
    let pods: Vec<_> = model.all("pods", "").filter(|pod| is_active(&pod.json)).cloned().collect();
    dice.pick(&pods).cloned()
}

fn delete_pod(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(pod) = a_pod(model, dice) else { return Ok(()) };
    let grace = dice.permille(300).then_some(0);
    model.delete("user", &pod.place, &Deletion { grace, ..Deletion::default() }).map(drop)
}

/// A pod gets another label, so that its owner lets go of it; nobody takes care of it from then on.
fn release_pod(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(pod) = a_pod(model, dice) else { return Ok(()) };
    if !matches!(
        text(controller_of(&pod.json), "/kind"),
        "ReplicaSet" | "ReplicationController" | "StatefulSet" | "DaemonSet"
    ) {
        return Ok(());
    }
    edit(model, &pod.place, |pod| pod["metadata"]["labels"]["app"] = json!("released"))
}

fn delete_workload(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(place) = dice.pick(&workloads(model)).cloned() else { return Ok(()) };
    let propagation =
        *dice.pick(&["Background", "Background", "Foreground", "Orphan"]).unwrap_or(&"Background");
    let how = Deletion { propagation: propagation.to_owned(), ..Deletion::default() };
    model.delete("user", &place, &how).map(drop)
}

/// A pod that is nobody's, but that somebody selects.
fn stray_pod(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(place) = dice.pick(&workloads(model)).cloned() else { return Ok(()) };
    if !matches!(place.resource, "replicasets" | "replicationcontrollers") {
        return Ok(());
    }
    let mut pod = wishes::template(&place.name, 0, "Always");
    pod["metadata"]["generateName"] = json!("stray-");
    model.create("user", "pods", &place.namespace, pod).map(drop)
}

fn delete_namespace(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(&name) = dice.pick(&NAMESPACES[1..]) else { return Ok(()) };
    model.delete("user", &Place::new("namespaces", "", name), &Deletion::default()).map(drop)
}

/// A ConfigMap that a workload owns without controlling it.
fn configure(model: &mut Model, dice: &mut Dice) -> Result<(), Refusal> {
    let Some(place) = dice.pick(&workloads(model)).cloned() else { return Ok(()) };
    let Some(owner) = model.get(&place).cloned() else { return Ok(()) };
    if place.resource != "deployments" {
        return Ok(());
    }
    let reference = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "name": place.name, "uid": owner.json["metadata"]["uid"],
        "blockOwnerDeletion": dice.permille(500),
    });
    let map = json!({
        "metadata": {
            "generateName": "map-", "annotations": { KEEPSAKE: "map" }, "ownerReferences": [reference],
        },
        "data": { "key": "value" },
    });
    model.create("user", "configmaps", &place.namespace, map).map(drop)
}

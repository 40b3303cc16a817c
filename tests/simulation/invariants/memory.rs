//! What rules remember: what was wished for lately, which pods ended lately, which objects are alive.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value as Json;

use super::WINDOW;
use super::budgets::Health;
use super::nodes::Fleet;
use crate::model::{Change, Place, items, text};

/// See the module.
#[derive(Default)]
pub(crate) struct Memory {
    /// By UID of the owner: how many pods it was to have, and since when.
    wishes: BTreeMap<String, Vec<(Timestamp, i64)>>,
    /// By UID of the owner: pods that it had, their names and when they ceased to be active.
    left: BTreeMap<String, Vec<(Timestamp, String)>>,
    /// By UID of a Job: its pods that have succeeded, and when.
    pub(super) succeeded: BTreeMap<String, BTreeMap<String, Timestamp>>,
    pub(super) failed: BTreeMap<String, BTreeSet<String>>,
    /// All objects that there are, by UID.
    pub(super) alive: BTreeMap<String, Place>,
    /// When objects went, by UID.
    gone: BTreeMap<String, Timestamp>,
    /// Which manager has taken the Lease last.
    pub(super) leader: Option<String>,
    pub(super) fleet: Fleet,
    /// How many Jobs a CronJob has made for an activation, by its UID and the time.
    activations: BTreeMap<(String, String), u32>,
    pub(super) budgets: Health,
}

/// The reference to the controller of an object; `Null` if it has none.
pub(crate) fn controller_of(object: &Json) -> &Json {
    items(object, "/metadata/ownerReferences")
        .iter()
        .find(|owner| owner["controller"] == true)
        .unwrap_or(&Json::Null)
}

/// Whether an object is being deleted, and waits for this finalizer.
pub(crate) fn is_held_by(object: &Json, finalizer: &str) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
        && items(object, "/metadata/finalizers").iter().any(|held| held == finalizer)
}

/// Whether a pod counts for its owner: it has neither ended nor begins to.
pub(crate) fn is_active(pod: &Json) -> bool {
    pod.is_object()
        && pod["metadata"]["deletionTimestamp"].is_null()
        && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// The CronJob that a Job is of, by its UID, and the time for which it was made.
fn activation_of(job: &Json) -> Option<(String, String)> {
    let owner = controller_of(job);
    let time = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].as_str()?;
    (owner["kind"] == "CronJob").then(|| (text(owner, "/uid").to_owned(), time.to_owned()))
}

/// How many pods a Deployment may have beyond its replicas.
pub(crate) fn surge_of(deployment: &Json) -> i64 {
    let replicas = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    match &deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"] {
        Json::String(percent) => {
            let percent: i64 = percent.trim_end_matches('%').parse().unwrap_or(0);
            (replicas * percent + 99) / 100
        }
        other => other.as_i64().unwrap_or(0),
    }
}

impl Memory {
    /// Takes a change in.
    pub(super) fn note(&mut self, change: &Change) {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        let Some(stored) = after.or(before) else { return };
        let uid = text(&stored.json, "/metadata/uid").to_owned();
        if after.is_some() {
            self.alive.insert(uid.clone(), stored.place.clone());
        } else {
            self.alive.remove(&uid);
            self.gone.insert(uid.clone(), change.at);
        }
        self.fleet.note(change);
        self.budgets.note(change);
        if change.verb == "create"
            && let Some(activation) = activation_of(&stored.json)
        {
            *self.activations.entry(activation).or_default() += 1;
        }
        match stored.place.resource {
            "pods" => self.note_pod(change, &uid),
            "leases" if stored.place.name == "kube-controller-manager" => {
                let holds = !text(&stored.json, "/spec/holderIdentity").is_empty();
                let manager = change.by.split('/').next().unwrap_or_default().to_owned();
                self.leader = holds.then_some(manager);
            }
            _ => {
                let wish = &stored.json["spec"][match stored.place.resource {
                    "jobs" => "parallelism",
                    "poddisruptionbudgets" => "minAvailable",
                    _ => "replicas",
                }];
                if let Some(wish) = wish.as_i64() {
                    let wish = if stored.place.resource == "deployments" {
                        wish + surge_of(&stored.json)
                    } else {
                        wish
                    };
                    let held = self.wishes.entry(uid).or_default();
                    if held.last().is_none_or(|(_, last)| *last != wish) {
                        held.push((change.at, wish));
                    }
                }
            }
        }
    }

    fn note_pod(&mut self, change: &Change, uid: &str) {
        let none = Json::Null;
        let before = change.before.as_ref().map_or(&none, |stored| &stored.json);
        let after = change.after.as_ref().map_or(&none, |stored| &stored.json);
        let owner = text(controller_of(before), "/uid");
        let still = is_active(after) && text(controller_of(after), "/uid") == owner;
        if is_active(before) && !still && !owner.is_empty() {
            let name = text(before, "/metadata/name").to_owned();
            self.left.entry(owner.to_owned()).or_default().push((change.at, name));
        }
        let owner = text(controller_of(after), "/uid");
        match text(after, "/status/phase") {
            "Succeeded" => {
                let held = self.succeeded.entry(owner.to_owned()).or_default();
                held.entry(uid.to_owned()).or_insert(change.at);
            }
            "Failed" => drop(self.failed.entry(owner.to_owned()).or_default().insert(uid.to_owned())),
            _ => {}
        }
    }

    /// How many Jobs were made for the activation that a Job is of.
    pub(super) fn activated(&self, job: &Json) -> u32 {
        activation_of(job).and_then(|activation| self.activations.get(&activation).copied()).unwrap_or(0)
    }

    /// The smallest and the largest number of pods that an owner was to have lately; `None` if nothing is known of it.
    pub(super) fn wished(&self, owner: &str, now: Timestamp) -> Option<(i64, i64)> {
        let held = self.wishes.get(owner)?;
        let from = now - WINDOW;
        // What held at the beginning of the window counts too.
        let first = held.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
        let lately = held[first..].iter().map(|(_, wish)| *wish);
        Some((lately.clone().min()?, lately.max()?))
    }

    /// Whether an object has been gone for so long that everybody knows.
    pub(super) fn is_long_gone(&self, uid: &str, now: Timestamp) -> bool {
        self.gone.get(uid).is_some_and(|at| *at < now - WINDOW)
    }

    /// How many of an owner's pods have ceased to be active lately.
    pub(super) fn left(&self, owner: &str, now: Timestamp) -> i64 {
        let held = self.left.get(owner).map_or(&[][..], Vec::as_slice);
        held.iter().filter(|(at, _)| *at > now - WINDOW).count() as i64
    }

    /// Whether a pod of this name of an owner has ceased to be active lately.
    pub(super) fn has_left(&self, owner: &str, name: &str, now: Timestamp) -> bool {
        let held = self.left.get(owner).map_or(&[][..], Vec::as_slice);
        held.iter().any(|(at, held)| *at > now - WINDOW && held == name)
    }
}

//! What rules remember: what was wished for lately, which pods ended lately, which objects are alive.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

use super::WINDOW;
use super::attaching::Mounts;
use super::autoscalers::Heads;
use super::budgets::Health;
use super::certificates::Published;
use super::nodes::Fleet;
use super::quotas::Census;
use super::sets::node_of;
use apiserver_model::{Change, Place, items, text};

/// A pod that ceased to be active.
struct Left {
    at: Timestamp,
    name: String,
    /// Where it was, or was to be.
    node: String,
    /// Who has seen to that.
    by: String,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Memory {
    /// By UID of the owner: how many pods it was to have, and since when.
    wishes: BTreeMap<String, Vec<(Timestamp, i64)>>,
    /// By UID of the owner: pods that it had.
    left: BTreeMap<String, Vec<Left>>,
    /// UIDs of pods that have been ready.
    was_ready: BTreeSet<String>,
    /// When a pod became ready last, by its owner's UID and its node.
    ready_on: BTreeMap<(String, String), Timestamp>,
    /// By UID of a Job: its pods that have succeeded, and when.
    pub(super) succeeded: BTreeMap<String, BTreeMap<String, Timestamp>>,
    /// By UID of a Job: its pods that have failed, or were deleted before they ended. Each may yet succeed.
    pub(super) failed: BTreeMap<String, BTreeSet<String>>,
    /// Pods that have succeeded when no Job counted them any more, by UID.
    let_go: BTreeSet<String>,
    /// UIDs of Jobs, each with an index that a pod has succeeded with.
    pub(super) indexes: BTreeSet<(String, String)>,
    /// Pods that were let go by their owners, by UID.
    released: BTreeMap<String, Timestamp>,
    /// All objects that there are, by UID.
    pub(super) alive: BTreeMap<String, Place>,
    /// When objects went, by UID.
    gone: BTreeMap<String, Timestamp>,
    /// Which manager has taken the Lease last.
    pub(super) leader: Option<String>,
    /// Whether StatefulSets roll as many pods at once as they allow.
    pub(super) rolls_several: bool,
    /// By how much a clock of a manager was ahead at most, because somebody had set it.
    pub(super) ahead: SignedDuration,
    pub(super) fleet: Fleet,
    /// How many Jobs a CronJob has made for an activation, by its UID and the time.
    activations: BTreeMap<(String, String), u32>,
    pub(super) budgets: Health,
    pub(super) census: Census,
    pub(super) published: Published,
    pub(super) heads: Heads,
    pub(super) mounts: Mounts,
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

/// The index that a pod of an Indexed Job is for.
pub(crate) fn index_of(pod: &Json) -> Option<&str> {
    pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].as_str()
}

/// Whether a Job counts a pod before it lets it go.
pub(super) fn is_tracked(pod: &Json) -> bool {
    items(pod, "/metadata/finalizers").iter().any(|held| held == "batch.kubernetes.io/job-tracking")
}

/// Whether a pod, or a node, says that it is ready.
pub(crate) fn is_ready(object: &Json) -> bool {
    items(object, "/status/conditions").iter().any(|held| held["type"] == "Ready" && held["status"] == "True")
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
        self.census.note(change);
        self.heads.note(change);
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
        if !owner.is_empty() && after.is_object() && controller_of(after).is_null() {
            self.released.insert(uid.to_owned(), change.at);
        }
        let still = is_active(after) && text(controller_of(after), "/uid") == owner;
        if is_active(before) && !still && !owner.is_empty() {
            let name = text(before, "/metadata/name").to_owned();
            let node = node_of(before).to_owned();
            if !matches!(text(after, "/status/phase"), "Succeeded") {
                self.failed.entry(owner.to_owned()).or_default().insert(uid.to_owned());
            }
            let left = Left { at: change.at, name, node, by: change.by.clone() };
            self.left.entry(owner.to_owned()).or_default().push(left);
        }
        if is_ready(after) && self.was_ready.insert(uid.to_owned()) {
            let owner = text(controller_of(after), "/uid").to_owned();
            self.ready_on.insert((owner, node_of(after).to_owned()), change.at);
        }
        let owner = text(controller_of(after), "/uid");
        match text(after, "/status/phase") {
            // One that its Job had let go of by then, to delete it, counts no more.
            "Succeeded" if is_active(before) && !is_tracked(before) => {
                self.let_go.insert(uid.to_owned());
            }
            "Succeeded" if !self.let_go.contains(uid) => {
                if let Some(index) = index_of(after) {
                    self.indexes.insert((owner.to_owned(), index.to_owned()));
                }
                let held = self.succeeded.entry(owner.to_owned()).or_default();
                held.entry(uid.to_owned()).or_insert(change.at);
            }
            "Failed" => drop(self.failed.entry(owner.to_owned()).or_default().insert(uid.to_owned())),
            _ => {}
        }
    }

    /// How many pods of a Job have succeeded so long ago that everybody knows.
    pub(super) fn succeeded_long_ago(&self, job: &str, now: Timestamp) -> i64 {
        let held = self.succeeded.get(job).into_iter().flat_map(BTreeMap::values);
        held.filter(|at| **at < now - WINDOW).count() as i64
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

    /// An owner's pods that have ceased to be active lately.
    fn left_lately(&self, owner: &str, now: Timestamp) -> impl Iterator<Item = &Left> {
        let held = self.left.get(owner).into_iter().flatten();
        held.filter(move |left| left.at > now - WINDOW)
    }

    /// How many of an owner's pods have ceased to be active lately.
    pub(super) fn left(&self, owner: &str, now: Timestamp) -> i64 {
        self.left_lately(owner, now).count() as i64
    }

    /// Whether a pod of this name of an owner has ceased to be active lately.
    pub(super) fn has_left(&self, owner: &str, name: &str, now: Timestamp) -> bool {
        self.left_lately(owner, now).any(|left| left.name == name)
    }

    /// Whether a pod of this name of an owner has ceased to be active lately, by somebody else than this one.
    pub(super) fn has_left_by_others(&self, owner: &str, name: &str, by: &str, now: Timestamp) -> bool {
        self.left_lately(owner, now).any(|left| left.name == name && left.by != by)
    }

    /// Nodes whose pod of an owner has been ended by this one, and that have had no ready one since.
    pub(super) fn emptied(&self, owner: &str, by: &str) -> BTreeSet<&str> {
        let held = self.left.get(owner).into_iter().flatten();
        let is_back = |left: &Left| {
            let ready = self.ready_on.get(&(owner.to_owned(), left.node.clone()));
            ready.is_some_and(|at| *at > left.at)
        };
        held.filter(|left| left.by == by && !is_back(left)).map(|left| left.node.as_str()).collect()
    }

    /// Whether a pod of an owner has ceased to be active on a node lately, by somebody else than this one.
    pub(super) fn has_left_node(&self, owner: &str, node: &str, by: &str, now: Timestamp) -> bool {
        self.left_lately(owner, now).any(|left| left.node == node && left.by != by)
    }

    /// Whether a pod was let go by its owner since then.
    pub(super) fn was_released(&self, uid: &str, since: Timestamp) -> bool {
        self.released.get(uid).is_some_and(|at| *at >= since)
    }

    /// Whether a pod has ever been ready.
    pub(super) fn was_ready(&self, uid: &str) -> bool {
        self.was_ready.contains(uid)
    }
}

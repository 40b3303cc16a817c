//! Nodes, their kubelets, and the scheduler: pods are bound, become ready, fail, finish and go. Nodes fall silent and vanish.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::time::sleep;

use super::{Calm, attaching, stamp, volumes};
use crate::invariants::{is_ready, node_of};
use crate::server::Server;
use apiserver_model::dice::Dice;
use apiserver_model::{Deletion, Model, Place, items, text};

/// How often a kubelet looks at its pods.
const LOOK: Duration = Duration::from_secs(1);
/// How often it renews its Lease, in looks.
const RENEW: u64 = 10;
/// How often it says how it is although nothing has changed, in looks.
const REPORT: u64 = 300;

/// The first nodes, with their Leases.
pub(crate) fn start_nodes(server: &Server, count: usize) {
    for number in 0..count {
        add(server, &format!("node-{number}"));
    }
}

fn add(server: &Server, name: &str) {
    add_to(server, name, "");
}

/// Adds a node to a zone.
pub(crate) fn add_to(server: &Server, name: &str, zone: &str) {
    let now = stamp(server);
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is ready",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let mut labels = json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" });
    if !zone.is_empty() {
        labels["topology.kubernetes.io/zone"] = json!(zone);
    }
    let node = json!({
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
        },
        "status": { "conditions": [condition], "allocatable": { "cpu": "8", "memory": "16Gi", "pods": "110" } },
    });
    server.with(|model| drop(model.create("kubelet", "nodes", "", node)));
    renew(server, name);
}

/// Renews the Lease of a node, or makes it; and says that the node is ready, if somebody doubts it.
pub(crate) fn renew(server: &Server, name: &str) {
    let now = server.now();
    let (micro, seconds) = (format!("{now:.6}"), stamp(server));
    server.with(|model| {
        let place = Place::new("leases", "kube-node-lease", name);
        let spec = json!({ "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro });
        if model.get(&place).is_none() {
            let lease = json!({ "metadata": { "name": name }, "spec": spec });
            drop(model.create("kubelet", "leases", "kube-node-lease", lease));
        } else {
            drop(change(model, &place, "", |lease| lease["spec"] = spec));
        }
        let node = Place::new("nodes", "", name);
        if model.get(&node).is_some_and(|node| !is_ready(&node.json)) {
            drop(change(model, &node, "status", |node| {
                for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
                    if condition["type"] == "Ready" {
                        condition["status"] = json!("True");
                        condition["lastHeartbeatTime"] = json!(seconds);
                        condition["lastTransitionTime"] = json!(seconds);
                    }
                }
            }));
        }
    });
}

/// Says of a node how it is, as of now.
fn report(server: &Server, name: &str) {
    let now = stamp(server);
    server.with(|model| {
        drop(change(model, &Place::new("nodes", "", name), "status", |node| {
            for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
                condition["lastHeartbeatTime"] = json!(now);
            }
        }));
    });
}

/// Writes another version of an object, as a kubelet does.
pub(crate) fn change(
    model: &mut Model,
    place: &Place,
    subresource: &str,
    edit: impl FnOnce(&mut Json),
) -> Result<(), apiserver_model::Refusal> {
    model.change("kubelet", place, subresource, edit).map(drop)
}

/// All nodes, and the scheduler.
pub(crate) struct Nodes(Mutex<State>);

struct State {
    dice: Dice,
    calm: Calm,
    turmoil: bool,
    looks: u64,
    /// Nodes that are silent, and for how many looks more.
    silent: BTreeMap<String, u64>,
    added: usize,
}

impl Nodes {
    /// Those of a seed.
    pub(crate) fn new(seed: u64, calm: Calm, turmoil: bool) -> Self {
        let dice = Dice::new(seed, "nodes");
        Self(Mutex::new(State { dice, calm, turmoil, looks: 0, silent: BTreeMap::new(), added: 100 }))
    }

    /// They look for ever.
    pub(crate) async fn run(&self, server: &Server) {
        loop {
            sleep(LOOK).await;
            self.look(server);
        }
    }

    /// What happens within [`LOOK`].
    pub(super) fn look(&self, server: &Server) {
        self.0.lock().look(server);
    }
}

impl State {
    fn look(&mut self, server: &Server) {
        let Self { dice, silent, added, .. } = self;
        let is_calm = self.calm.has_begun() || !self.turmoil;
        let names: Vec<String> =
            server.with(|model| model.all("nodes", "").map(|node| node.place.name.clone()).collect());
        if is_calm {
            silent.clear();
        }
        for name in &names {
            if !is_calm && dice.below(4000) == 0 {
                *added += 1;
                replace(server, name, *added);
                continue;
            }
            if !is_calm && dice.below(900) == 0 {
                silent.insert(name.clone(), dice.within(10, 200) as u64);
                server.tell(&format!("  {name} falls silent"));
            }
            if let Some(left) = silent.get_mut(name) {
                *left -= 1;
                if *left == 0 {
                    silent.remove(name);
                    if dice.permille(400) {
                        *added += 1;
                        replace(server, name, *added);
                    }
                }
                continue;
            }
            if self.looks.is_multiple_of(RENEW) {
                renew(server, name);
            }
            if self.looks % REPORT == REPORT - 1 {
                report(server, name);
            }
            kubelet(server, dice, name, is_calm);
        }
        server.with(|model| {
            volumes::provide(model, dice);
            attaching::attach(model, dice, is_calm);
        });
        schedule(server, dice, &names, silent);
        self.looks += 1;
    }
}

/// Another node comes in the place of one.
fn replace(server: &Server, name: &str, number: usize) {
    server.tell(&format!("  node-{number} replaces {name}"));
    let gone = Place::new("nodes", "", name);
    server.with(|model| drop(model.delete("user", &gone, &Deletion::default())));
    add(server, &format!("node-{number}"));
}

/// One look of a kubelet at its pods.
fn kubelet(server: &Server, dice: &mut Dice, node: &str, is_calm: bool) {
    let now = stamp(server);
    server.with(|model| {
        let own = model.all("pods", "").filter(|pod| text(&pod.json, "/spec/nodeName") == node);
        let pods: Vec<_> = own.cloned().collect();
        attaching::report(model, dice, node, &pods);
        for pod in pods {
            // A look does not reach everything.
            if !dice.permille(400) {
                continue;
            }
            let place = &pod.place;
            let phase = text(&pod.json, "/status/phase");
            let has_ended = matches!(phase, "Succeeded" | "Failed");
            let is_job = pod.json["spec"]["restartPolicy"] != "Always";
            if pod.json["metadata"]["deletionTimestamp"].is_string() {
                if !has_ended {
                    drop(change(model, place, "status", |pod| become_phase(pod, "Failed", &now)));
                } else if pod.json["metadata"]["deletionGracePeriodSeconds"] != 0 {
                    let uid = text(&pod.json, "/metadata/uid").to_owned();
                    let now = Deletion { uid, grace: Some(0), ..Deletion::default() };
                    drop(model.delete("kubelet", place, &now));
                }
                continue;
            }
            let next = match phase {
                _ if has_ended => continue,
                "Pending" if !attaching::are_attached(model, &pod.json) => continue,
                "Pending" => "Running",
                _ if is_job && dice.permille(if is_calm { 300 } else { 60 }) => {
                    if !is_calm && dice.permille(150) { "Failed" } else { "Succeeded" }
                }
                _ if !is_job && !is_calm && dice.below(3000) == 0 => "Failed",
                "Running" if !is_job => {
                    let was_ready = is_ready(&pod.json);
                    // Some fall back, and most of those come up again.
                    let wanted = is_calm || if was_ready { dice.below(400) != 0 } else { dice.permille(300) };
                    if was_ready != wanted {
                        drop(change(model, place, "status", |pod| make_ready(pod, wanted, &now)));
                    }
                    continue;
                }
                _ => continue,
            };
            drop(change(model, place, "status", |pod| become_phase(pod, next, &now)));
        }
    });
}

fn become_phase(pod: &mut Json, phase: &str, now: &str) {
    pod["status"]["phase"] = json!(phase);
    let state = if phase == "Running" {
        json!({ "running": { "startedAt": now } })
    } else {
        let code = i64::from(phase == "Failed");
        json!({ "terminated": { "exitCode": code, "reason": "Completed", "startedAt": now, "finishedAt": now } })
    };
    pod["status"]["containerStatuses"] =
        json!([{ "name": "main", "image": "main", "ready": phase == "Running", "state": state }]);
    if pod["status"]["startTime"].is_null() {
        pod["status"]["startTime"] = json!(now);
        let last = text(pod, "/metadata/uid").as_bytes().last().copied().unwrap_or_default();
        let address = format!("10.0.0.{last}");
        pod["status"]["podIPs"] = json!([{ "ip": address }]);
        pod["status"]["podIP"] = json!(address);
    }
    make_ready(pod, phase == "Running", now);
}

pub(crate) fn make_ready(pod: &mut Json, ready: bool, now: &str) {
    let status = if ready { "True" } else { "False" };
    let mut conditions = items(pod, "/status/conditions").to_vec();
    conditions.retain(|held| !matches!(text(held, "/type"), "Ready" | "ContainersReady"));
    for name in ["ContainersReady", "Ready"] {
        conditions.push(json!({ "type": name, "status": status, "lastTransitionTime": now }));
    }
    pod["status"]["conditions"] = Json::Array(conditions);
}

/// Binds pods to nodes: those of DaemonSets to theirs, others to any that runs.
fn schedule(server: &Server, dice: &mut Dice, names: &[String], silent: &BTreeMap<String, u64>) {
    server.with(|model| {
        let is_free = |name: &&String| {
            !silent.contains_key(*name) && items(model.look("nodes", "", name), "/spec/taints").is_empty()
        };
        let free: Vec<String> = names.iter().filter(is_free).cloned().collect();
        let waiting: Vec<_> = model
            .all("pods", "")
            .filter(|pod| text(&pod.json, "/spec/nodeName").is_empty())
            .filter(|pod| pod.json["metadata"]["deletionTimestamp"].is_null())
            .cloned()
            .collect();
        for pod in waiting {
            if !volumes::are_bound(model, &pod.json) {
                continue;
            }
            let wanted = node_of(&pod.json).to_owned();
            let node = if wanted.is_empty() { dice.pick(&free).cloned() } else { Some(wanted) };
            let Some(node) = node.filter(|node| names.contains(node)) else { continue };
            drop(change(model, &pod.place, "", |pod| pod["spec"]["nodeName"] = json!(node)));
        }
    });
}

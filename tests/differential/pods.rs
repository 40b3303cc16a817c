//! The pods of a list: choice among them, and the statuses that a kubelet reports.
//!
//! Pods with random names are chosen by their other properties, in the same order under every manager.

use serde_json::{Value, json};

use crate::operation::Fate;
use crate::plane::NODES;

/// The condition of a pod that is about to be evicted or preempted.
const DISRUPTION: &str = "DisruptionTarget";
/// Labels with hashes, which managers compute differently.
pub(crate) const HASHES: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

/// Returns the indexes of up to `take` pods with a label (`app=web`) that can take a step.
pub(crate) fn choose(pods: &[Value], fate: Fate, selector: &str, take: usize) -> Vec<usize> {
    let (key, value) = selector.split_once('=').unwrap_or((selector, ""));
    let fits = |pod: &Value| pod["metadata"]["labels"][key] == value && can(pod, fate);
    let mut found: Vec<usize> = (0..pods.len()).filter(|at| fits(&pods[*at])).collect();
    found.sort_by_cached_key(|at| order(&pods[*at]));
    found.truncate(take);
    found
}

/// Returns a text by which pods are sorted: the properties that do not depend on the manager, then the name.
fn order(pod: &Value) -> String {
    let metadata = &pod["metadata"];
    let mut labels = metadata["labels"].clone();
    let mut owner = metadata["ownerReferences"][0]["name"].as_str().unwrap_or_default().to_owned();
    if let Some(labels) = labels.as_object_mut() {
        for key in HASHES {
            let hash = labels.shift_remove(key).unwrap_or_default();
            owner = owner.replace(hash.as_str().filter(|hash| !hash.is_empty()).unwrap_or("\u{0}"), "");
        }
        // Their values are UIDs.
        labels.retain(|key, _| !key.ends_with("controller-uid"));
    }
    [
        &metadata["ownerReferences"][0]["kind"],
        &Value::from(owner),
        &labels,
        &metadata["annotations"],
        &Value::from(node(pod)),
        &pod["spec"]["containers"][0]["image"],
        &pod["status"]["phase"],
        &Value::from(is_ready(pod)),
        &Value::from(is_disrupted(pod)),
        &metadata["finalizers"],
        &metadata["creationTimestamp"],
        &metadata["name"],
    ]
    .map(ToString::to_string)
    .join(" ")
}

fn is_ready(pod: &Value) -> bool {
    has_condition(pod, "Ready")
}

fn is_disrupted(pod: &Value) -> bool {
    has_condition(pod, DISRUPTION)
}

fn has_condition(pod: &Value, name: &str) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|each| each["type"] == name && each["status"] == "True")
}

fn can(pod: &Value, fate: Fate) -> bool {
    let is_deleted = !pod["metadata"]["deletionTimestamp"].is_null();
    let is_bound = pod["spec"]["nodeName"].is_string();
    let is_finished = pod["status"]["phase"] == "Failed" || pod["status"]["phase"] == "Succeeded";
    let is_held = pod["metadata"]["finalizers"].is_array();
    match fate {
        Fate::Bound => !is_bound && !is_deleted && !is_finished,
        Fate::Ready => is_bound && !is_deleted && !is_finished && !is_ready(pod),
        Fate::Unready => !is_deleted && is_ready(pod),
        Fate::Disrupted => is_bound && !is_deleted && !is_finished && !is_disrupted(pod),
        // A pod that is being deleted still ends.
        Fate::Failed | Fate::Succeeded => is_bound && !is_finished,
        Fate::Gone => is_deleted,
        Fate::Released => is_held,
        // The pod garbage collector looks every 20 seconds for pods that are being deleted and have no node.
        Fate::Held => is_bound && !is_held && !is_deleted,
        Fate::Deleted | Fate::Vanished | Fate::Evicted | Fate::Relabeled => !is_deleted,
    }
}

/// Returns the node of a pod, or the node that a scheduler would choose for it.
pub(crate) fn node(pod: &Value) -> String {
    let affinity = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                    /nodeSelectorTerms/0/matchFields/0/values/0";
    let chosen = pod["spec"]["nodeName"].as_str().or_else(|| pod.pointer(affinity)?.as_str());
    chosen.unwrap_or(NODES[0].0).to_owned()
}

/// Returns the status that a kubelet reports.
pub(crate) fn status(pod: &Value, fate: Fate, now: &str, address: &str) -> Value {
    if fate == Fate::Disrupted {
        let condition = json!({ "type": DISRUPTION, "status": "True", "reason": "PreemptionByScheduler", "lastTransitionTime": now });
        return json!({ "status": { "conditions": [condition] } });
    }
    let (phase, ready) = match fate {
        Fate::Failed => ("Failed", "False"),
        Fate::Succeeded => ("Succeeded", "False"),
        Fate::Ready => ("Running", "True"),
        _ => ("Running", "False"),
    };
    let state = match fate {
        Fate::Failed => json!({ "terminated": { "exitCode": 1, "reason": "Error", "finishedAt": now } }),
        Fate::Succeeded => {
            json!({ "terminated": { "exitCode": 0, "reason": "Completed", "finishedAt": now } })
        }
        _ => json!({ "running": { "startedAt": now } }),
    };
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten().map(|container| {
        let (name, image) = (&container["name"], &container["image"]);
        json!({ "name": name, "image": image, "imageID": "", "restartCount": 0, "ready": ready == "True", "state": state })
    });
    let mut status = json!({
        "phase": phase,
        "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": now }],
        "containerStatuses": containers.collect::<Vec<_>>(),
    });
    if pod["status"]["startTime"].is_null() {
        status["startTime"] = now.into();
    }
    if pod["status"]["podIP"].is_null() {
        status["podIP"] = address.into();
        status["podIPs"] = json!([{ "ip": address }]);
    }
    json!({ "status": status })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, owner: &str, hash: &str, image: &str) -> Value {
        json!({
            "metadata": {
                "name": name,
                "labels": { "app": "web", "pod-template-hash": hash },
                "ownerReferences": [{ "kind": "ReplicaSet", "name": owner }],
            },
            "spec": { "nodeName": "by-hand", "containers": [{ "name": "main", "image": image }] },
            "status": { "phase": "Pending" },
        })
    }

    #[test]
    fn pods_are_chosen_in_the_same_order_whatever_the_hashes_are() {
        let first = [pod("web-7c-a", "web-7c", "7c", "nginx:2"), pod("web-5d-b", "web-5d", "5d", "nginx:1")];
        let second = [pod("web-1a-a", "web-1a", "1a", "nginx:2"), pod("web-9f-b", "web-9f", "9f", "nginx:1")];
        for pods in [first, second] {
            assert_eq!(choose(&pods, Fate::Ready, "app=web", 1), [1]);
            assert_eq!(choose(&pods, Fate::Ready, "app=web", 9), [1, 0]);
            assert_eq!(choose(&pods, Fate::Ready, "app=db", 9), [0; 0]);
        }
    }

    #[test]
    fn only_pods_that_can_take_a_step_are_chosen() {
        let mut pods = [pod("a", "a", "1", "x")];
        let can_all = |pods: &[Value], fates: &[Fate]| {
            fates.iter().map(|fate| choose(pods, *fate, "app=web", 1).len()).collect::<Vec<_>>()
        };
        let fates = [Fate::Bound, Fate::Ready, Fate::Unready, Fate::Gone, Fate::Deleted, Fate::Released];
        assert_eq!(can_all(&pods, &fates), [0, 1, 0, 0, 1, 0]);
        pods[0]["status"] =
            status(&pods[0], Fate::Ready, "2026-01-01T00:00:00Z", "10.99.0.1")["status"].clone();
        assert_eq!(can_all(&pods, &fates), [0, 0, 1, 0, 1, 0]);
        assert_eq!(can_all(&pods, &[Fate::Disrupted]), [1]);
        let disrupted = status(&pods[0], Fate::Disrupted, "2026-01-01T00:00:00Z", "10.99.0.1");
        let mut other = pods[0].clone();
        other["status"]["conditions"] = disrupted["status"]["conditions"].clone();
        assert_eq!(can_all(&[other], &[Fate::Disrupted]), [0]);
        pods[0]["metadata"]["deletionTimestamp"] = "now".into();
        assert_eq!(can_all(&pods, &fates), [0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn pod_of_a_daemon_set_belongs_to_the_node_that_it_names() {
        let mut pod = json!({ "spec": {} });
        assert_eq!(node(&pod), "by-hand");
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
            json!([{ "matchFields": [{ "key": "metadata.name", "values": ["by-hand-3"] }] }]);
        assert_eq!(node(&pod), "by-hand-3");
    }
}

//! Rules about pods that are kept at a number: ReplicaSets, Deployments, StatefulSets, DaemonSets.

use serde_json::Value as Json;

use super::{Look, controller_of, is_active};
use crate::model::{items, text};

impl Look<'_> {
    /// Active pods of an owner.
    pub(super) fn active(&self, namespace: &str, owner: &str) -> i64 {
        let pods = self.model.all("pods", namespace);
        let own = pods.filter(|pod| is_active(&pod.json) && text(controller_of(&pod.json), "/uid") == owner);
        own.count() as i64
    }
}

/// A pod is made: its owner must not have more than it was to have at any time lately.
pub(super) fn too_many(look: &Look<'_>) -> Result<(), String> {
    if !look.makes("pods") {
        return Ok(());
    }
    let owner = text(controller_of(look.after()), "/uid");
    let count = look.active(text(look.after(), "/metadata/namespace"), owner);
    match look.memory.wished(owner, look.change.at) {
        Some((_, most)) if count > most => {
            Err(format!("{} is pod {count} of an owner that wants {most} at most", look.named()))
        }
        _ => Ok(()),
    }
}

/// A pod is deleted: its owner must have as many as it wants without it, counting those that went lately, of which it may not
/// know.
pub(super) fn too_few(look: &Look<'_>) -> Result<(), String> {
    let owner = text(controller_of(look.before()), "/uid");
    if !look.deletes("pods") || !is_active(look.before()) {
        return Ok(());
    }
    let count = look.active(text(look.before(), "/metadata/namespace"), owner);
    // This one has left, too.
    let left = look.memory.left(owner, look.change.at) - 1;
    match look.memory.wished(owner, look.change.at) {
        Some((least, _)) if count + left < least => {
            Err(format!("{} goes, {count} stay, {left} went lately, {least} are wanted", look.named()))
        }
        _ => Ok(()),
    }
}

/// A ReplicaSet is made or made larger.
pub(super) fn surge(look: &Look<'_>) -> Result<(), String> {
    let replicas = |object: &Json| object["spec"]["replicas"].as_i64().unwrap_or(0);
    if look.resource() != "replicasets" || replicas(look.after()) <= replicas(look.before()) {
        return Ok(());
    }
    let owner = text(controller_of(look.after()), "/uid");
    let namespace = text(look.after(), "/metadata/namespace");
    let own = look.model.all("replicasets", namespace);
    let sum: i64 = own
        .filter(|set| text(controller_of(&set.json), "/uid") == owner)
        .map(|set| replicas(&set.json))
        .sum();
    match look.memory.wished(owner, look.change.at) {
        Some((_, most)) if sum > most => {
            Err(format!("{}: all ReplicaSets want {sum} pods, {most} are allowed", look.named()))
        }
        _ => Ok(()),
    }
}

/// What is cleaned up is empty.
pub(super) fn history(look: &Look<'_>) -> Result<(), String> {
    if look.deletes("replicasets") && look.before()["spec"]["replicas"].as_i64().unwrap_or(0) > 0 {
        return Err(format!("{} has replicas", look.named()));
    }
    Ok(())
}

fn ordinal(pod: &Json) -> Option<(&str, i64)> {
    let (set, number) = text(pod, "/metadata/name").rsplit_once('-')?;
    Some((set, number.parse().ok()?))
}

/// A pod of a StatefulSet that starts them in order: those before it are there, or have been lately.
pub(super) fn ordinals(look: &Look<'_>) -> Result<(), String> {
    let Some((set, number)) = ordinal(look.after()).filter(|_| look.makes("pods")) else { return Ok(()) };
    let namespace = text(look.after(), "/metadata/namespace");
    let owner = text(controller_of(look.after()), "/uid");
    let held = look.model.look("statefulsets", namespace, set);
    if held["spec"]["podManagementPolicy"] == "Parallel" {
        return Ok(());
    }
    let start = held["spec"]["ordinals"]["start"].as_i64().unwrap_or(0);
    for before in start..number {
        let name = format!("{set}-{before}");
        let is_there = look.model.look("pods", namespace, &name).is_object();
        if !is_there && !look.memory.has_left(owner, &name, look.change.at) {
            return Err(format!("{} is made before {name}", look.named()));
        }
    }
    Ok(())
}

/// No pod of a StatefulSet has a number that it was not to have lately.
pub(super) fn beyond(look: &Look<'_>) -> Result<(), String> {
    let Some((_, number)) = ordinal(look.after()).filter(|_| look.makes("pods")) else { return Ok(()) };
    let owner = text(controller_of(look.after()), "/uid");
    match look.memory.wished(owner, look.change.at) {
        Some((_, most)) if number >= most => Err(format!("{}: {most} are wanted at most", look.named())),
        _ => Ok(()),
    }
}

/// The node that a pod of a DaemonSet is for.
pub(crate) fn node_of(pod: &Json) -> &str {
    const TERMS: &str =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let bound = text(pod, "/spec/nodeName");
    if !bound.is_empty() {
        return bound;
    }
    let fields = items(pod, TERMS).iter().flat_map(|term| items(term, "/matchFields"));
    let mut names =
        fields.filter(|field| field["key"] == "metadata.name").map(|field| text(field, "/values/0"));
    names.next_back().unwrap_or_default()
}

/// A DaemonSet has one active pod on a node.
pub(super) fn nodes(look: &Look<'_>) -> Result<(), String> {
    if !look.makes("pods") {
        return Ok(());
    }
    let (owner, node) = (text(controller_of(look.after()), "/uid"), node_of(look.after()));
    let pods = look.model.all("pods", text(look.after(), "/metadata/namespace"));
    let there = pods
        .filter(|pod| is_active(&pod.json) && text(controller_of(&pod.json), "/uid") == owner)
        .filter(|pod| node_of(&pod.json) == node)
        .count();
    if there > 1 { Err(format!("{} is the second on {node}", look.named())) } else { Ok(()) }
}

//! Rules about pods that are kept at a number: ReplicaSets, Deployments, StatefulSets, DaemonSets.

use jiff::Timestamp;
use serde_json::Value as Json;

use super::memory::is_ready;
use super::{Look, WINDOW, controller_of, is_active};
use apiserver_model::{items, text};

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

/// The set of a pod, and its number in it, by its name.
pub(crate) fn ordinal(pod: &Json) -> Option<(&str, i64)> {
    let (set, number) = text(pod, "/metadata/name").rsplit_once('-')?;
    Some((set, number.parse().ok()?))
}

/// A pod of a StatefulSet that starts them in order: those before it are there, or have been lately. In which order one starts them that
/// is gone, as far as its manager does not know, is not known here.
pub(super) fn ordinals(look: &Look<'_>) -> Result<(), String> {
    let Some((set, number)) = ordinal(look.after()).filter(|_| look.makes("pods")) else { return Ok(()) };
    let namespace = text(look.after(), "/metadata/namespace");
    let owner = text(controller_of(look.after()), "/uid");
    let held = look.model.look("statefulsets", namespace, set);
    if held["metadata"]["uid"] != owner || held["spec"]["podManagementPolicy"] == "Parallel" {
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

/// A pod that a StatefulSet deletes to have it anew, not for being too many: its set, and its number.
fn rolled<'a>(look: &'a Look<'_>) -> Option<(&'a Json, &'a str, i64)> {
    let pod = look.before();
    let (set, number) = ordinal(pod).filter(|_| look.deletes("pods") && is_active(pod))?;
    let owner = text(controller_of(pod), "/uid");
    let held = look.model.look("statefulsets", text(pod, "/metadata/namespace"), set);
    let (least, _) = look.memory.wished(owner, look.change.at)?;
    (text(held, "/metadata/uid") == owner && number < least).then_some((held, owner, number))
}

/// From which number on the pods of a StatefulSet are rolled; the others are held back, and with `OnDelete` all are.
pub(crate) fn partition(set: &Json) -> i64 {
    let strategy = &set["spec"]["updateStrategy"];
    if strategy["type"] == "OnDelete" {
        return i64::MAX;
    }
    strategy["rollingUpdate"]["partition"].as_i64().unwrap_or(0)
}

/// What a partition holds back is not rolled, nor what only its deletion by hand renews.
pub(super) fn held_back(look: &Look<'_>) -> Result<(), String> {
    let Some((set, _, number)) = rolled(look) else { return Ok(()) };
    let partition = partition(set);
    if number < partition {
        return Err(format!("{} goes, which is held back: below {partition}", look.named()));
    }
    Ok(())
}

/// Returns whether a pod of a StatefulSet has never run and has a template that is no longer rolled out. Such a pod is replaced even if others
/// are missing, because the StatefulSet would wait for it without end.
fn is_abandoned(look: &Look<'_>, set: &Json, owner: &str) -> bool {
    let pod = look.before();
    let revision = text(pod, "/metadata/labels/controller-revision-hash");
    let revisions = look.model.all("controllerrevisions", text(pod, "/metadata/namespace"));
    let own = revisions.filter(|each| text(controller_of(&each.json), "/uid") == owner);
    let newest = own.max_by_key(|each| each.json["revision"].as_i64());
    let is_newest = newest.is_some_and(|newest| text(&newest.json, "/metadata/name") == revision);
    text(pod, "/status/phase") == "Pending" && !is_newest && text(set, "/status/currentRevision") != revision
}

/// Pods are rolled from the last to the first: those behind one are back, and have been ready, before it goes. Of those that
/// somebody else has ended lately the controller may not know.
pub(super) fn one_by_one(look: &Look<'_>) -> Result<(), String> {
    let Some((set, owner, number)) = rolled(look).filter(|_| !look.memory.rolls_several) else {
        return Ok(());
    };
    if is_abandoned(look, set, owner) {
        return Ok(());
    }
    match look.missing(set, owner, number + 1).first() {
        Some(behind) => Err(format!("{} goes before {behind} was ready", look.named())),
        None => Ok(()),
    }
}

/// With the gate for it pods are rolled until as many are missing as may be, whichever these are.
pub(super) fn replicas_are_there(look: &Look<'_>) -> Result<(), String> {
    let Some((set, owner, _)) = rolled(look).filter(|_| look.memory.rolls_several) else { return Ok(()) };
    if is_abandoned(look, set, owner) {
        return Ok(());
    }
    let (missing, most) = (look.missing(set, owner, 0), most(set, "maxUnavailable").max(1));
    if missing.len() as i64 > most {
        return Err(format!("{} goes, and of at most {most} there are missing {missing:?}", look.named()));
    }
    Ok(())
}

impl Look<'_> {
    /// Names of replicas, from a number on, that are not there or have never been ready, but for those that somebody else has
    /// ended lately.
    fn missing(&self, set: &Json, owner: &str, from: i64) -> Vec<String> {
        let (namespace, name) = (text(set, "/metadata/namespace"), text(set, "/metadata/name"));
        let (least, _) = self.memory.wished(owner, self.change.at).unwrap_or_default();
        let is_missing = |replica: &String| {
            let pod = self.model.look("pods", namespace, replica);
            let is_back = is_active(pod) && self.memory.was_ready(text(pod, "/metadata/uid"));
            !is_back && !self.memory.has_left_by_others(owner, replica, &self.change.by, self.change.at)
        };
        (from..least).map(|number| format!("{name}-{number}")).filter(is_missing).collect()
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

impl Look<'_> {
    /// The active pods of the owner of a pod that are on its node, itself among them while it is.
    fn beside<'a>(&'a self, pod: &'a Json) -> impl Iterator<Item = &'a Json> {
        let (owner, node) = (text(controller_of(pod), "/uid"), node_of(pod));
        let pods = self.model.all("pods", text(pod, "/metadata/namespace")).map(|pod| &pod.json);
        pods.filter(move |pod| {
            is_active(pod) && text(controller_of(pod), "/uid") == owner && node_of(pod) == node
        })
    }

    /// The DaemonSet of a pod, while it is there.
    fn daemon_set(&self, pod: &Json) -> Option<&Json> {
        let owner = controller_of(pod);
        let set = self.model.look("daemonsets", text(pod, "/metadata/namespace"), text(owner, "/name"));
        (set.is_object() && set["metadata"]["uid"] == owner["uid"]).then_some(set)
    }

    /// Whether everybody knows that daemons should run on a node: none is made on one that may not be scheduled to, though those
    /// that are there stay.
    fn has_daemons(&self, node: &str) -> bool {
        let held = self.model.look("nodes", "", node);
        let created: Option<Timestamp> = text(held, "/metadata/creationTimestamp").parse().ok();
        created.is_some_and(|created| created < self.change.at - WINDOW)
            && items(held, "/spec/taints").is_empty()
            && !self.memory.fleet.was_tainted(node, self.change.at)
    }
}

fn most(set: &Json, field: &str) -> i64 {
    set["spec"]["updateStrategy"]["rollingUpdate"][field].as_i64().unwrap_or(0)
}

/// A DaemonSet has one active pod on a node, and one more where it surges. Of one that is gone nobody can tell any more.
pub(super) fn nodes(look: &Look<'_>) -> Result<(), String> {
    if !look.makes("pods") {
        return Ok(());
    }
    let surges = look.daemon_set(look.after()).is_none_or(|set| most(set, "maxSurge") > 0);
    let there = look.beside(look.after()).count();
    if there > 1 + usize::from(surges) {
        Err(format!("{} is one of {there} on {}", look.named(), node_of(look.after())))
    } else {
        Ok(())
    }
}

/// A DaemonSet that rolls deletes no more pods that are ready than may be missing, and with a surge none before there is another
/// one. The controller knows what it has deleted itself.
pub(super) fn daemons_are_there(look: &Look<'_>) -> Result<(), String> {
    let pod = look.before();
    if !look.deletes("pods") || !is_active(pod) || !is_ready(pod) {
        return Ok(());
    }
    let Some(set) = look.daemon_set(pod).filter(|set| set["metadata"]["deletionTimestamp"].is_null()) else {
        return Ok(());
    };
    let (owner, node) = (text(set, "/metadata/uid"), node_of(pod));
    let others: Vec<&Json> = look.beside(pod).collect();
    if !look.has_daemons(node) {
        return Ok(());
    }
    if most(set, "maxSurge") > 0 {
        let is_replaced = others.iter().any(|other| look.memory.was_ready(text(other, "/metadata/uid")))
            || look.memory.has_left_node(owner, node, &look.change.by, look.change.at);
        return if is_replaced {
            Ok(())
        } else {
            Err(format!("{} goes, and {node} has no other", look.named()))
        };
    }
    let emptied = look.memory.emptied(owner, &look.change.by);
    let missing = emptied.iter().filter(|emptied| look.has_daemons(emptied)).count() as i64;
    let most = most(set, "maxUnavailable");
    if others.is_empty() && missing > most {
        return Err(format!("{} goes, so that {missing} of {most} are missing: {emptied:?}", look.named()));
    }
    Ok(())
}

//! Rules about any object.

use serde_json::Value as Json;

use super::{CONTROLLER, Look, ON_ITS_WAY, controller_of, is_held_by};
use apiserver_model::{items, text};

/// Who may take which finalizer off.
const FINALIZERS: &[(&str, &str)] = &[
    ("batch.kubernetes.io/job-tracking", "job-controller"),
    ("foregroundDeletion", "garbage-collector-controller"),
    ("orphan", "garbage-collector-controller"),
    ("kubernetes.io/pvc-protection", "persistentvolumeclaim-protection-controller"),
    ("kubernetes.io/pv-protection", "persistentvolume-protection-controller"),
];
/// Whose pods which controller has.
const OWNERS: &[(&str, &str)] = &[
    ("replicaset-controller", "ReplicaSet"),
    ("replicationcontroller-controller", "ReplicationController"),
    ("statefulset-controller", "StatefulSet"),
    ("daemonset-controller", "DaemonSet"),
    ("job-controller", "Job"),
];
/// An annotation that users give to everything.
pub(crate) const KEEPSAKE: &str = "simulation/keep";

/// Where whose main writes may change something, besides labels, annotations, owner references and finalizers.
const WRITABLE: &[(&str, &str, &str)] = &[
    ("deployment-controller", "replicasets", "/spec/replicas"),
    ("deployment-controller", "replicasets", "/spec/minReadySeconds"),
    ("daemonset-controller", "controllerrevisions", "/revision"),
    ("statefulset-controller", "controllerrevisions", "/revision"),
    (CONTROLLER, "deployments", "/spec/replicas"),
    (CONTROLLER, "replicasets", "/spec/replicas"),
    (CONTROLLER, "statefulsets", "/spec/replicas"),
    ("persistentvolume-binder-controller", "persistentvolumes", "/spec/claimRef"),
    ("persistentvolume-binder-controller", "persistentvolumeclaims", "/spec/volumeName"),
    ("root-ca-certificate-publisher-controller", "configmaps", "/data"),
    // All that begins so.
    ("bootstrap-signer-controller", "configmaps", "/data/jws-kubeconfig-"),
];
/// Kinds whose specs controllers leave alone.
const GUARDED: &[&str] = &[
    "pods",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "replicationcontrollers",
    "jobs",
    "cronjobs",
    "poddisruptionbudgets",
    "persistentvolumes",
    "persistentvolumeclaims",
    "controllerrevisions",
    "configmaps",
    "secrets",
    "certificatesigningrequests",
    "horizontalpodautoscalers",
];

pub(super) fn finalizers(look: &Look<'_>) -> Result<(), String> {
    let held = items(look.before(), "/metadata/finalizers");
    let kept = items(look.after(), "/metadata/finalizers");
    for gone in held.iter().filter(|finalizer| !kept.contains(finalizer)) {
        let allowed = FINALIZERS.iter().any(|(name, whose)| gone == name && *whose == look.controller);
        // A delete with another propagation changes these two by itself.
        let by_delete = look.change.verb == "delete" && (gone == "orphan" || gone == "foregroundDeletion");
        if !allowed && !by_delete {
            return Err(format!("{} loses {gone}", look.named()));
        }
    }
    Ok(())
}

pub(super) fn fields(look: &Look<'_>) -> Result<(), String> {
    let (before, after) = (look.before(), look.after());
    if before.is_null() || after.is_null() {
        return Ok(());
    }
    let kept = |object: &Json| object["metadata"]["annotations"][KEEPSAKE].clone();
    if kept(before) != kept(after) {
        return Err(format!("{} loses its annotation", look.named()));
    }
    if !GUARDED.contains(&look.resource()) {
        return Ok(());
    }
    let mut changed = Vec::new();
    for part in ["spec", "data", "revision"] {
        differences(&format!("/{part}"), &before[part], &after[part], &mut changed);
    }
    let may = |path: &String| {
        WRITABLE.iter().any(|(whose, resource, writable)| {
            let is_below = path
                .strip_prefix(writable)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || writable.ends_with('-'));
            *whose == look.controller && *resource == look.resource() && is_below
        })
    };
    match changed.iter().find(|path| !may(path)) {
        Some(path) => Err(format!("{}: {path} has changed", look.named())),
        None => Ok(()),
    }
}

/// The paths at which two values differ.
fn differences(path: &str, one: &Json, other: &Json, found: &mut Vec<String>) {
    if let (Json::Object(ours), Json::Object(theirs)) = (one, other) {
        for name in ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name))) {
            differences(&format!("{path}/{name}"), &one[name], &other[name], found);
        }
    } else if one != other {
        found.push(path.to_owned());
    }
}

/// Leases are how leaders are found, and Events come after what they tell of.
pub(super) fn leader(look: &Look<'_>) -> Result<(), String> {
    if matches!(look.resource(), "leases" | "events") {
        return Ok(());
    }
    let by = look.change.by.split('/').next().unwrap_or_default();
    match &look.memory.leader {
        Some(leader) if leader != by => Err(format!("{} is written while {leader} leads", look.named())),
        _ => Ok(()),
    }
}

/// Whether one owner is a StatefulSet, and the other a pod with a name of its pods.
fn are_set_and_pod(one: &Json, other: &Json) -> bool {
    let is_pod_of = |pod: &Json, set: &Json| {
        let of = text(pod, "/name").rsplit_once('-').map(|(name, _)| name);
        pod["kind"] == "Pod" && set["kind"] == "StatefulSet" && of == Some(text(set, "/name"))
    };
    is_pod_of(one, other) || is_pod_of(other, one)
}

/// Pods and ReplicaSets are taken over only when nobody has them, and touched only by those who own them.
pub(super) fn owners(look: &Look<'_>) -> Result<(), String> {
    let (had, has) = (controller_of(look.before()), controller_of(look.after()));
    let (was, is) = (text(had, "/uid"), text(has, "/uid"));
    // A claim goes from its StatefulSet to its pod and back, as the policy says, and from an owner that is gone to the next.
    let stays = look.resource() == "persistentvolumeclaims"
        && (are_set_and_pod(had, has) || !look.memory.alive.contains_key(was));
    if look.change.verb == "update" && !was.is_empty() && !is.is_empty() && was != is && !stays {
        return Err(format!("{} is taken from {was} by {is}", look.named()));
    }
    let Some((_, kind)) = OWNERS.iter().find(|(name, _)| *name == look.controller) else { return Ok(()) };
    if look.resource() != "pods" || look.change.verb == "create" {
        return Ok(());
    }
    for (owner, reference) in [(was, had), (is, has)] {
        if !owner.is_empty() && reference["kind"] != *kind {
            return Err(format!("{} belongs to a {}", look.named(), reference["kind"]));
        }
    }
    // A delete may have been on its way when its pod was let go.
    let since = look.change.at - ON_ITS_WAY;
    let is_late = look.memory.was_released(text(look.before(), "/metadata/uid"), since);
    if look.change.verb == "delete" && was.is_empty() && !is_late {
        return Err(format!("{} belongs to nobody", look.named()));
    }
    if was.is_empty() && look.memory.is_long_gone(is, look.change.at) {
        return Err(format!("{} is adopted by one that is gone", look.named()));
    }
    Ok(())
}

/// What the garbage collector deletes has owners, all of which are gone or wait for it to go.
pub(super) fn garbage(look: &Look<'_>) -> Result<(), String> {
    if look.change.verb != "delete" {
        return Ok(());
    }
    let owners = items(look.before(), "/metadata/ownerReferences");
    if owners.is_empty() {
        return Err(format!("{} never had an owner", look.named()));
    }
    for owner in owners {
        let Some(place) = look.memory.alive.get(text(owner, "/uid")) else { continue };
        let Some(held) = look.model.get(place) else { continue };
        if !is_held_by(&held.json, "foregroundDeletion") {
            return Err(format!("{} is deleted, its owner {} is there", look.named(), place.name));
        }
    }
    Ok(())
}

pub(super) fn namespaces(look: &Look<'_>) -> Result<(), String> {
    if look.resource() == "namespaces" {
        if look.change.after.is_some() {
            return Ok(());
        }
        let name = text(look.before(), "/metadata/name");
        let left = look.model.everything().find(|stored| stored.place.namespace == name);
        return match left {
            Some(stored) => {
                Err(format!("{name} is gone, {} {} is not", stored.place.resource, stored.place.name))
            }
            None => Ok(()),
        };
    }
    let namespace = look.model.look("namespaces", "", text(look.before(), "/metadata/namespace"));
    if look.change.verb == "delete" && namespace["metadata"]["deletionTimestamp"].is_null() {
        return Err(format!("{} is deleted, its namespace stays", look.named()));
    }
    Ok(())
}

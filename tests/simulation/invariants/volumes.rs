//! Rules about volumes and claims: bindings, and what is in use.

use serde_json::Value as Json;

use super::{Look, controller_of};
use crate::actors::claims_of;
use apiserver_model::{items, text};

/// A volume is written: it stays its claim's, unless that has another volume or is gone.
pub(super) fn keeps_claim(look: &Look<'_>) -> Result<(), String> {
    let (had, has) = (&look.before()["spec"]["claimRef"], &look.after()["spec"]["claimRef"]);
    if look.resource() != "persistentvolumes" || look.after().is_null() {
        return Ok(());
    }
    let uid = text(had, "/uid");
    if uid.is_empty() || uid == text(has, "/uid") {
        return Ok(());
    }
    let claim = look.model.look("persistentvolumeclaims", text(had, "/namespace"), text(had, "/name"));
    let name = text(look.after(), "/metadata/name");
    if claim["metadata"]["uid"] == uid && claim["spec"]["volumeName"] == name {
        return Err(format!("{} is taken from {}", look.named(), text(had, "/name")));
    }
    Ok(())
}

/// A claim is written: it keeps its volume, and gets none that is not bound to it.
pub(super) fn both_ways(look: &Look<'_>) -> Result<(), String> {
    if look.resource() != "persistentvolumeclaims" || look.after().is_null() {
        return Ok(());
    }
    let (had, has) = (text(look.before(), "/spec/volumeName"), text(look.after(), "/spec/volumeName"));
    if !had.is_empty() && had != has {
        return Err(format!("{} had {had}, and has {has:?}", look.named()));
    }
    let volume = look.model.look("persistentvolumes", "", has);
    let is_bound = |claim: &Json| text(claim, "/status/phase") == "Bound";
    let becomes_bound = is_bound(look.after()) && !is_bound(look.before());
    let gets_volume = had.is_empty() && !has.is_empty();
    let is_its = volume["spec"]["claimRef"]["uid"] == look.after()["metadata"]["uid"];
    // A volume that nobody has can go at any moment.
    if (becomes_bound || gets_volume) && volume.is_object() && !is_its {
        return Err(format!("{} is bound to {has}, which is not bound to it", look.named()));
    }
    Ok(())
}

fn lets_go(look: &Look<'_>, resource: &str, finalizer: &str) -> bool {
    let has = |object: &Json| items(object, "/metadata/finalizers").iter().any(|held| held == finalizer);
    look.resource() == resource && has(look.before()) && !has(look.after())
}

/// A claim is let go of: no pod that has a node mounts it, though it may have ended; but one with which it goes and that the kubelet is
/// done with.
pub(super) fn claim_in_use(look: &Look<'_>) -> Result<(), String> {
    if !lets_go(look, "persistentvolumeclaims", "kubernetes.io/pvc-protection") {
        return Ok(());
    }
    let claim = look.before();
    let name = text(claim, "/metadata/name");
    let goes_with = |pod: &Json| {
        let (owner, meta) = (controller_of(claim), &pod["metadata"]);
        let is_done = meta["deletionTimestamp"].is_string() && meta["deletionGracePeriodSeconds"] == 0;
        is_done && owner["uid"] == meta["uid"]
    };
    let mounts = |pod: &Json| {
        let has_node = !text(pod, "/spec/nodeName").is_empty();
        has_node && claims_of(pod).any(|held| held == name) && !goes_with(pod)
    };
    match look.model.all("pods", text(claim, "/metadata/namespace")).find(|pod| mounts(&pod.json)) {
        Some(pod) => Err(format!("{} goes while {} mounts it", look.named(), pod.place.name)),
        None => Ok(()),
    }
}

/// A volume is let go of: it is not bound.
pub(super) fn volume_in_use(look: &Look<'_>) -> Result<(), String> {
    let is_bound = text(look.before(), "/status/phase") == "Bound";
    if lets_go(look, "persistentvolumes", "kubernetes.io/pv-protection") && is_bound {
        return Err(format!("{} goes, and is bound", look.named()));
    }
    Ok(())
}

/// A claim gets an owner with which it goes: the policy of its StatefulSet says so. What one said that is gone nobody knows.
pub(super) fn retention(look: &Look<'_>) -> Result<(), String> {
    if look.resource() != "persistentvolumeclaims" {
        return Ok(());
    }
    let namespace = text(look.after(), "/metadata/namespace");
    for owner in items(look.after(), "/metadata/ownerReferences") {
        let (kind, name) = (text(owner, "/kind"), text(owner, "/name"));
        let (owning, policy) = match kind {
            "StatefulSet" => (owner, "whenDeleted"),
            _ => (controller_of(look.model.look("pods", namespace, name)), "whenScaled"),
        };
        let set = look.model.look("statefulsets", namespace, text(owning, "/name"));
        let policy = &set["spec"]["persistentVolumeClaimRetentionPolicy"][policy];
        if set.is_object()
            && set["metadata"]["uid"] == owning["uid"]
            && !items(look.before(), "/metadata/ownerReferences").contains(owner)
            && policy != "Delete"
        {
            return Err(format!("{} is to go with {kind} {name}, and the policy is {policy}", look.named()));
        }
    }
    Ok(())
}

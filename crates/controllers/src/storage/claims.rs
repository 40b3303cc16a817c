//! Which claims a pod's volumes name, and which volumes these are bound to. Decides nothing.

use std::sync::Arc;

use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::{Pod, PodClaim, PodClaimSource};
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::api::{Index, IndexKeys, Object, distinct};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// Pods by [`claim_key`] of the claims that they name, be they there or not.
pub static BY_CLAIM: Index = Index { name: "claim", keys: by_claim };

/// The value under which [`BY_CLAIM`] files the pods that name a claim.
pub fn claim_key(claim: &Key) -> Str {
    Str::from(claim.to_string())
}

/// The claims that a pod names, by its volumes in order.
pub fn claims(pod: &Pod) -> impl Iterator<Item = Key> {
    let meta = &pod.metadata;
    pod.claims.iter().map(|volume| Key::new(meta.namespace.clone(), volume.claim_name(&meta.name)))
}

/// The volumes of a pod that are a claim: those that name it, and generic ephemeral ones if it was made for this very pod.
pub fn volumes_of<'a>(pod: &'a Pod, claim: &'a ObjectMeta) -> impl Iterator<Item = &'a PodClaim> {
    let in_namespace = pod.metadata.namespace == claim.namespace;
    let is_of = move |volume: &&PodClaim| {
        let is_meant = match volume.source {
            PodClaimSource::Named(_) => true,
            PodClaimSource::Ephemeral(_) => claim.is_controlled_by(&pod.metadata),
        };
        is_meant && volume.claim_name(&pod.metadata.name) == claim.name
    };
    pod.claims.iter().filter(move |_| in_namespace).filter(is_of)
}

/// The volume of a claim of the pod with this metadata, if they are bound both ways.
///
/// # Errors
/// They are not: why.
pub fn volume_of(
    claims: &Lister<PersistentVolumeClaim>,
    volumes: &Lister<PersistentVolume>,
    pod: &ObjectMeta,
    named: &PodClaim,
) -> Result<Arc<PersistentVolume>, String> {
    let key = Key::new(pod.namespace.clone(), named.claim_name(&pod.name));
    let claim = claims.get(&key).ok_or_else(|| format!("claim {key} not found"))?;
    if matches!(named.source, PodClaimSource::Ephemeral(_)) && !claim.metadata.is_controlled_by(pod) {
        return Err(format!("claim {key} was not created for the pod"));
    }
    let volume = &claim.spec.volume_name;
    if claim.status.phase != "Bound" || volume.is_empty() {
        return Err(format!("claim {key} is not bound"));
    }
    let found = volumes.get(&Key::new("", volume.clone()));
    let found = found.ok_or_else(|| format!("volume {volume} not found"))?;
    if found.spec.claim_ref.as_ref().is_none_or(|held| held.uid != claim.metadata.uid) {
        return Err(format!("volume {volume} is not bound to claim {key}"));
    }
    Ok(found)
}

fn by_claim(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let Some(pod) = any.downcast_ref::<Pod>() else { return IndexKeys::new() };
    distinct(claims(pod).map(|claim| claim_key(&claim)))
}

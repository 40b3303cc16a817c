//! A claim, and the pods that use it. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use super::{Controller, FINALIZER, condition, holds, uses};
use crate::live_reads::CLAIM_USERS;
use crate::storage::claims::claim_key;
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::PersistentVolumeClaim;
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::finalizers::{Due, due};
use coxswain_machinery::wire::Str;

/// A claim.
#[derive(Debug)]
pub(super) struct View {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    /// The pods that keep it from being deleted, in order.
    pub(super) holders: Vec<Str>,
    /// Whether a pod that has not ended uses it, if it is to say so.
    pub(super) is_used: Option<bool>,
    /// Whether the pods were read live, for the cache knows none.
    pub(super) is_live: bool,
    /// How long live reads have found users that the cache lacks.
    pub(super) unheard_for: Duration,
}

pub(super) fn observe(room: &Controller, key: &Key, read: &Reads) -> Result<Observation<View>, ObserveError> {
    let Some(claim) = room.claims.get(key) else { return Ok(Observation::Nothing) };
    let tells_use = room.tells_use && !claim.metadata.is_deleting();
    let pods = room.pods.filed(&claim_key(key));
    let view = view(claim, pods.iter().map(AsRef::as_ref), tells_use);
    let may_go = due(&view.claim.metadata, FINALIZER) == Some(Due::Take) && view.holders.is_empty();
    let seems_unused = view.is_used == Some(false) && condition(&view.claim) != Some("True");
    if !may_go && !seems_unused {
        return Ok(Observation::View(view));
    }
    match read.list(&PODS, &key.namespace) {
        None => Ok(Observation::Needs(vec![CLAIM_USERS.of(Read::List(&PODS, key.namespace.clone()))])),
        Some(Err(error)) => Err(ObserveError::Retry(format!("live list of pods failed: {error}"))),
        Some(Ok(live)) => {
            let live = live.complete().map_err(|error| ObserveError::Retry(error.to_string()))?;
            let live = self::view(view.claim, live.iter().filter_map(pod), tells_use);
            let unheard_for = room.unheard.lasts(&live.claim.metadata);
            Ok(Observation::View(View { is_live: true, unheard_for, ..live }))
        }
    }
}

fn view<'a>(claim: Arc<PersistentVolumeClaim>, pods: impl Iterator<Item = &'a Pod>, tells_use: bool) -> View {
    let meta: &ObjectMeta = &claim.metadata;
    let (mut holders, mut is_used) = (Vec::new(), false);
    for pod in pods {
        if holds(pod, meta) {
            holders.push(pod.metadata.name.clone());
        }
        is_used |= uses(pod, meta);
    }
    holders.sort_unstable();
    View {
        claim,
        holders,
        is_used: tells_use.then_some(is_used),
        is_live: false,
        unheard_for: Duration::ZERO,
    }
}

fn pod(object: &AnyObject) -> Option<&Pod> {
    let any: &dyn std::any::Any = &**object;
    any.downcast_ref()
}

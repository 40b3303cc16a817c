//! A PodGroup, and the active pods that name it. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use super::{Controller, goes};
use crate::live_reads::GROUP_USERS;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::scheduling::PodGroup;
use coxswain_machinery::api::{AnyObject, Index, IndexKeys, Object};
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// Active pods by the key of the PodGroup that they name.
pub(super) static ACTIVE_BY_GROUP: Index = Index { name: "pod group", keys: by_group };

fn by_group(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let active = any.downcast_ref::<Pod>().filter(|pod| !pod.is_finished());
    active.and_then(group_of).map(|group| Str::from(group.to_string())).into_iter().collect()
}

/// The PodGroup that a pod names.
pub(super) fn group_of(pod: &Pod) -> Option<Key> {
    let group = &pod.shape.pod_group;
    (!group.is_empty()).then(|| Key::new(pod.metadata.namespace.clone(), group.clone()))
}

/// A PodGroup.
#[derive(Debug)]
pub(super) struct View {
    pub(super) group: Arc<PodGroup>,
    /// Active pods that name it, in order.
    pub(super) pods: Vec<Str>,
    /// Whether they were read live, for the cache knows none.
    pub(super) is_live: bool,
    /// How long live reads have found users that the cache lacks.
    pub(super) unheard_for: Duration,
}

pub(super) fn observe(room: &Controller, key: &Key, read: &Reads) -> Result<Observation<View>, ObserveError> {
    let Some(group) = room.groups.get(key) else { return Ok(Observation::Nothing) };
    let place = key.to_string();
    let cached = room.pods.filed(&place);
    let pods = names(cached.iter().map(|pod| &pod.metadata.name));
    if !goes(&group) || !pods.is_empty() {
        return Ok(Observation::View(View { group, pods, is_live: false, unheard_for: Duration::ZERO }));
    }
    match read.list(&PODS, &key.namespace) {
        None => Ok(Observation::Needs(vec![GROUP_USERS.of(Read::List(&PODS, key.namespace.clone()))])),
        Some(Err(error)) => Err(ObserveError::Retry(format!("live list of pods failed: {error}"))),
        Some(Ok(live)) => {
            let live = live.complete().map_err(|error| ObserveError::Retry(error.to_string()))?;
            let belongs = |pod: &&AnyObject| by_group(&***pod).iter().any(|held| *held == place);
            let pods = names(live.iter().filter(belongs).map(|pod| &pod.meta().name));
            let unheard_for = room.unheard.lasts(&group.metadata);
            Ok(Observation::View(View { group, pods, is_live: true, unheard_for }))
        }
    }
}

fn names<'a>(names: impl Iterator<Item = &'a Str>) -> Vec<Str> {
    let mut names: Vec<Str> = names.cloned().collect();
    names.sort_unstable();
    names
}

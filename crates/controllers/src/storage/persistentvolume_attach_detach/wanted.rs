//! Which volumes the pods of a node want. Reads caches, decides nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::book::Want;
use super::source::Source;
use super::world::World;
use crate::storage::claims;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::Regarding;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Str, Uid};

/// What the pods of a node want: what their claims and volumes name now, and what they wanted before. A claim or volume that
/// vanishes under a pod takes nothing from it.
pub(super) fn wants(world: &World, node: &str, before: &BTreeMap<Str, Want>) -> BTreeMap<Str, Want> {
    let mut pods: Vec<Arc<Pod>> = world.pods.filed(node);
    pods.retain(|pod| !pod.has_ended());
    pods.sort_by(|one, other| {
        let key = |pod: &Pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        key(one).cmp(&key(other))
    });
    let mut wants: BTreeMap<Str, Want> = BTreeMap::new();
    let mut add = |source: Arc<Source>, pod: &Pod| {
        let is_told = before.get(&source.unique).is_some_and(|want| want.is_told);
        let want = wants.entry(source.unique.clone()).or_insert_with(|| Want {
            attachment: source.attachment(node),
            source,
            pods: Vec::new(),
            is_told,
        });
        // One pod comes after the other.
        if want.pods.last().is_none_or(|known| known.uid != pod.metadata.uid) {
            want.pods.push(Regarding::of(&PODS, &pod.metadata));
        }
    };
    let mut by_pod: HashMap<&Uid, Vec<&Want>> = HashMap::default();
    for want in before.values() {
        want.pods.iter().for_each(|pod| by_pod.entry(&pod.uid).or_default().push(want));
    }
    for pod in &pods {
        for source in sources(world, pod) {
            add(Arc::new(source), pod);
        }
        for want in by_pod.get(&pod.metadata.uid).into_iter().flatten() {
            if want.source.is_attachable(&world.drivers) {
                add(Arc::clone(&want.source), pod);
            }
        }
    }
    wants
}

/// The volumes of a pod that can be attached.
fn sources(world: &World, pod: &Pod) -> Vec<Source> {
    let mut found = all_sources(world, pod);
    found.retain(|source| source.is_attachable(&world.drivers));
    found
}

/// The same, with those that need no attaching.
pub(super) fn all_sources(world: &World, pod: &Pod) -> Vec<Source> {
    let meta = &pod.metadata;
    let of_claims = pod.claims.iter().filter_map(|named| {
        let volume = claims::volume_of(&world.claims, &world.volumes, meta, named).ok()?;
        Source::of_volume(&volume)
    });
    let inline = pod
        .shape
        .inline_volumes
        .iter()
        .filter_map(|volume| Source::of_inline(&volume.source().ok()?, &volume.name, &meta.namespace));
    of_claims.chain(inline).collect()
}

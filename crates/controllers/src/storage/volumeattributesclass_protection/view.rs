//! A class, and who names it. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use super::{Controller, FINALIZER};
use crate::live_reads::CLASS_USERS;
use coxswain_machinery::api::distinct;
use coxswain_machinery::api::kinds::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim, VolumeAttributesClass};
use coxswain_machinery::api::{AnyObject, Index, IndexKeys, Kind, Object};
use coxswain_machinery::framework::{Observation, ObserveError, Read, Reads};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::finalizers::{Due, due};
use coxswain_machinery::wire::Str;

/// Claims by the classes that they name.
pub(super) static CLAIMS_BY_CLASS: Index =
    Index { name: "attributes class", keys: |object| typed(object, classes_of_claim) };
/// Volumes by the class that they name.
pub(super) static VOLUMES_BY_CLASS: Index =
    Index { name: "attributes class", keys: |object| typed(object, classes_of_volume) };

/// A class.
#[derive(Debug)]
pub(super) struct View {
    pub(super) class: Arc<VolumeAttributesClass>,
    /// The claims and volumes that name it, in order.
    pub(super) users: Vec<String>,
    /// Whether that was read live, for the caches know none.
    pub(super) is_live: bool,
    /// How long live reads have found users that the cache lacks.
    pub(super) unheard_for: Duration,
}

/// The classes that a claim names: the one that it asks for, the one that its volume has and the one that this is to have.
pub(super) fn classes_of_claim(claim: &PersistentVolumeClaim) -> IndexKeys {
    let target = claim.status.modify_volume_status.as_ref();
    let all = [
        Some(&claim.spec.volume_attributes_class_name),
        Some(&claim.status.current_volume_attributes_class_name),
        target.map(|status| &status.target_volume_attributes_class_name),
    ];
    distinct(all.into_iter().flatten().filter(|class| !class.is_empty()).cloned())
}

/// The class that a volume names.
pub(super) fn classes_of_volume(volume: &PersistentVolume) -> IndexKeys {
    let class = volume.spec.volume_attributes_class_name.iter();
    class.filter(|class| !class.is_empty()).cloned().collect()
}

fn typed<T: Object>(object: &dyn Object, classes: fn(&T) -> IndexKeys) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    any.downcast_ref().map(classes).unwrap_or_default()
}

pub(super) fn observe(room: &Controller, key: &Key, read: &Reads) -> Result<Observation<View>, ObserveError> {
    let Some(class) = room.classes.get(key) else { return Ok(Observation::Nothing) };
    let claims = room.claims.filed(&key.name);
    let volumes = room.volumes.filed(&key.name);
    let users = named(
        claims.iter().map(|claim| &**claim as &dyn Object),
        volumes.iter().map(|volume| &**volume as &dyn Object),
    );
    if due(&class.metadata, FINALIZER) != Some(Due::Take) || !users.is_empty() {
        return Ok(Observation::View(View { class, users, is_live: false, unheard_for: Duration::ZERO }));
    }
    let lists = [&PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUMES].map(|kind| live(read, kind));
    let [Some(claims), Some(volumes)] = lists else {
        let all = [&PERSISTENT_VOLUME_CLAIMS, &PERSISTENT_VOLUMES];
        return Ok(Observation::Needs(all.map(|kind| CLASS_USERS.of(Read::List(kind, Str::EMPTY))).to_vec()));
    };
    let names_it = |classes: IndexKeys| classes.contains(&key.name);
    let claims = claims?.iter().filter(|claim| names_it(typed(&***claim, classes_of_claim)));
    let volumes = volumes?.iter().filter(|volume| names_it(typed(&***volume, classes_of_volume)));
    let users = named(claims.map(|claim| &**claim), volumes.map(|volume| &**volume));
    let unheard_for = room.unheard.lasts(&class.metadata);
    Ok(Observation::View(View { class, users, is_live: true, unheard_for }))
}

/// What was read of all objects of a kind.
fn live<'a>(read: &'a Reads, kind: &'static Kind) -> Option<Result<&'a [AnyObject], ObserveError>> {
    let found = read.list(kind, &Str::EMPTY)?;
    let found = found.map_err(|error| ObserveError::Retry(format!("live list of {kind} failed: {error}")));
    Some(found.and_then(|all| all.complete().map_err(|error| ObserveError::Retry(error.to_string()))))
}

fn named<'a>(
    claims: impl Iterator<Item = &'a dyn Object>,
    volumes: impl Iterator<Item = &'a dyn Object>,
) -> Vec<String> {
    let claims = claims.map(|claim| format!("claim {}", Key::of(claim.meta())));
    let volumes = volumes.map(|volume| format!("volume {}", volume.meta().name));
    let mut all: Vec<String> = claims.chain(volumes).collect();
    all.sort_unstable();
    all
}

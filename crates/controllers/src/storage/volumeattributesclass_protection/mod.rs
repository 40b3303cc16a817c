//! Keeps a VolumeAttributesClass from being deleted while a claim or a volume names it, by a finalizer. See "Volume Attributes
//! Classes" in the Kubernetes documentation.
//!
//! | change of | keys |
//! |---|---|
//! | a class that is being deleted with the finalizer, or is there without it | its own |
//! | a claim or a volume that is gone or names another class | those that it names no longer |
//!
//! What it rests on: users are looked for in the caches, where one is enough; that there is none is what live lists say. The
//! original goes by its caches alone. (What begins to name a class after the lists is found by neither.)
//! Differs: classes-read-live.
//!
//! It never writes a claim or a volume.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::{
    PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, VOLUME_ATTRIBUTES_CLASSES,
};
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim, VolumeAttributesClass};
use coxswain_machinery::api::{IndexKeys, Object};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter, UnheardNote, UnheardUsers, wake,
};
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod plan;
#[cfg(test)]
mod tests;
mod view;

use view::{CLAIMS_BY_CLASS, VOLUMES_BY_CLASS, View, classes_of_claim, classes_of_volume};

/// What keeps a class.
const FINALIZER: &str = "kubernetes.io/vac-protection";

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "volumeattributesclass-protection-controller",
    aliases: &[],
    description: "Prevents deletion of a VolumeAttributesClass while a volume uses it.",
    gates: &["VolumeAttributesClass"],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("volumeattributesclass-protection-controller"),
    event_source: None,
    writes: &[
        Grant {
            group: "storage.k8s.io",
            resource: "volumeattributesclasses",
            verbs: &["get", "list", "update", "watch"],
        },
        Grant { group: "", resource: "persistentvolumeclaims", verbs: &["list", "watch"] },
        Grant { group: "", resource: "persistentvolumes", verbs: &["list", "watch"] },
        // Granted, and never used: there is nothing to tell.
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let classes = build.watch::<VolumeAttributesClass>(&VOLUME_ATTRIBUTES_CLASSES);
    let claims = build.watch::<PersistentVolumeClaim>(&PERSISTENT_VOLUME_CLAIMS);
    let volumes = build.watch::<PersistentVolume>(&PERSISTENT_VOLUMES);
    let unheard = Arc::new(UnheardUsers::default());
    let room = Controller {
        classes: classes.lister(),
        unheard: Arc::clone(&unheard),
        claims: claims.index(&CLAIMS_BY_CLASS),
        volumes: volumes.index(&VOLUMES_BY_CLASS),
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "vacprotection",
            kind: Some(&VOLUME_ATTRIBUTES_CLASSES),
            settings: LoopSettings::default(),
            wake_ups: vec![
                classes.wakes(wake::protected(FINALIZER)),
                claims.wakes(named_no_longer(classes_of_claim)),
                volumes.wakes(named_no_longer(classes_of_volume)),
            ],
            reconcile: Arc::new(RoomAdapter::new(room).remembered_by(unheard)),
        }],
    })
}

/// A change of an object concerns the classes that it named before and does not name now.
fn named_no_longer<T: Object>(classes: fn(&T) -> IndexKeys) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<T>();
        let now = new.map(classes).unwrap_or_default();
        for class in old.map(classes).unwrap_or_default() {
            if !now.contains(&class) {
                add(Key::new("", class));
            }
        }
    })
}

/// The room: what it reads.
struct Controller {
    classes: Lister<VolumeAttributesClass>,
    claims: Indexed<PersistentVolumeClaim>,
    volumes: Indexed<PersistentVolume>,
    unheard: Arc<UnheardUsers>,
}

impl Room<UnheardNote> for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key, read)
    }

    fn plan(view: &View, _: Timestamp) -> Plan<UnheardNote> {
        plan::plan(view)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        plan::reasons(view)
    }
}

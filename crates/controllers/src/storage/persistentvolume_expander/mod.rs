//! What the manager does when a claim asks for more than its volume has. See "Expanding Persistent Volumes Claims" in the
//! Kubernetes documentation.
//!
//! Nearly all volumes are CSI drivers', and their resizers do the work: then this tells users that it is waited for, and names the
//! resizer on claims of volumes that were migrated to CSI. Volumes of FlexVolume drivers grow in the API's objects, and on their
//! nodes; no driver is asked here.
//!
//! | change of | keys |
//! |---|---|
//! | a bound claim that appears, or that asks for more or has more than before | its own |
//!
//! What it rests on: a claim and its volume as the caches have them; a volume that is missing there, or is another claim's, is
//! read live before that is said. Every patch carries the UID and resource version of what was read.
//!
//! It never resizes a CSI volume or touches its claim's status but for the resizer's name, and never writes the spec of a claim.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::PERSISTENT_VOLUME_CLAIMS;
use coxswain_machinery::api::kinds::PERSISTENT_VOLUMES;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, LoopSettings,
    Observation, ObserveError, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::{Failure, Key, Plan};

mod flex;
mod metrics;
mod plan;
mod reasons;
#[cfg(test)]
mod tests;
mod view;
mod writes;

use metrics::Metrics;
use plan::Note;
use view::View;

/// Keys taken at the same time, as in the original.
const WORKERS: i32 = 10;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolume-expander-controller",
    aliases: &["persistentvolume-expander"],
    description: "Expands volumes whose claims request more storage.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("expand-controller"),
    event_source: Some("volume_expand"),
    writes: &[
        Grant { group: "", resource: "persistentvolumes", verbs: &["get", "list", "patch", "watch"] },
        Grant { group: "", resource: "persistentvolumeclaims", verbs: &["list", "watch"] },
        Grant { group: "", resource: "persistentvolumeclaims/status", verbs: &["patch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let claims = build.watch::<PersistentVolumeClaim>(&PERSISTENT_VOLUME_CLAIMS);
    let volumes = build.watch::<PersistentVolume>(&PERSISTENT_VOLUMES);
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let room = Controller { claims: claims.lister(), volumes: volumes.lister() };
    Ok(Built {
        loops: vec![Loop {
            queue: "volume_expand",
            kind: Some(&PERSISTENT_VOLUME_CLAIMS),
            settings: LoopSettings::with_workers(WORKERS),
            wake_ups: vec![claims.wakes(grown())],
            reconcile: Arc::new(RoomAdapter::new(room).counted_by(metrics)),
        }],
    })
}

/// A bound claim that is new, or that asks for more or has more than before.
fn grown() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<PersistentVolumeClaim>();
        let Some(claim) = new.filter(|claim| view::is_bound(claim)) else { return };
        let has_grown = old.filter(|old| old.metadata.uid == claim.metadata.uid).is_none_or(|old| {
            view::requested(claim).exceeds(view::requested(old))
                || view::capacity(claim).exceeds(view::capacity(old))
        });
        if has_grown {
            add(Key::of(&claim.metadata));
        }
    })
}

/// The room: what it reads.
struct Controller {
    claims: Lister<PersistentVolumeClaim>,
    volumes: Lister<PersistentVolume>,
}

impl Room<Note> for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], read: &Reads) -> Result<Observation<View>, ObserveError> {
        view::observe(self, key, read)
    }

    fn plan(view: &View, now: Timestamp) -> Plan<Note> {
        plan::plan(view, now)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        reasons::reasons(view)
    }
}

//! Tells of pods that could not run on one node because they mount the same volume with different SELinux labels, or have them changed
//! in different ways. See "Configure a Security Context" in the Kubernetes documentation, and KEP-1710.
//!
//! | change of | keys |
//! |---|---|
//! | a pod that comes, ends or goes | its own |
//! | a claim that has another volume or phase | pods that name it |
//! | a volume that has another claim | pods that name that claim |
//! | a CSI driver that begins or ceases to mount with labels | pods that were seen with volumes of that driver |
//!
//! What it rests on: the caches. What was seen of a pod's volumes is remembered until the pod ends or goes ([`Record`]), so that a
//! conflict is told when it comes up and not with every look; whether nodes, access modes or the scheduler would let the pods
//! meet is not asked. A start tells every conflict once more.
//!
//! It writes events and a metric, and nothing else.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::kinds::{
    CSI_DRIVERS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SELINUX_PODS,
};
use coxswain_machinery::api::pod::selinux::SelinuxPod;
use coxswain_machinery::api::storage::{CsiDriver, PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter,
};
use coxswain_machinery::informer::Lister;
use coxswain_machinery::model::{Failure, Key, Plan};

mod conflict;
mod keys;
mod metrics;
mod mounts;
mod plan;
mod reasons;
mod record;
#[cfg(test)]
mod tests;
mod view;

use metrics::Series;
use record::{Note, Record};
use view::View;

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "selinux-warning-controller",
    aliases: &[],
    description: "Warns about Pods that mount the same volume with different SELinux labels.",
    gates: &["SELinuxChangePolicy"],
    default: DefaultState::Off,
    cloud: false,
    special: false,
    service_account: Some("selinux-warning-controller"),
    event_source: Some("selinux_warning"),
    writes: &[
        Grant { group: "", resource: "pods", verbs: &["list", "watch"] },
        Grant { group: "", resource: "persistentvolumeclaims", verbs: &["list", "watch"] },
        Grant { group: "", resource: "persistentvolumes", verbs: &["list", "watch"] },
        Grant { group: "storage.k8s.io", resource: "csidrivers", verbs: &["list", "watch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let pods = build.watch::<SelinuxPod>(&SELINUX_PODS);
    let claims = build.watch::<PersistentVolumeClaim>(&PERSISTENT_VOLUME_CLAIMS);
    let volumes = build.watch::<PersistentVolume>(&PERSISTENT_VOLUMES);
    let drivers = build.watch::<CsiDriver>(&CSI_DRIVERS);
    let series = Series::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let record = Arc::new(Record::new(series));
    let room = Controller {
        pods: pods.lister(),
        claims: claims.lister(),
        volumes: volumes.lister(),
        drivers: drivers.lister(),
        record: Arc::clone(&record),
        compares_labels: (build.gate)("SELinuxMountReadWriteOncePod"),
    };
    Ok(Built {
        loops: vec![Loop {
            queue: "selinux_warning",
            kind: Some(&SELINUX_PODS),
            settings: LoopSettings::default(),
            wake_ups: vec![
                pods.wakes(keys::own()),
                claims.wakes(keys::of_claims(pods.index(&keys::BY_CLAIM))),
                volumes.wakes(keys::of_volumes(pods.index(&keys::BY_CLAIM))),
                drivers.wakes(keys::of_drivers(Arc::clone(&record))),
            ],
            reconcile: Arc::new(RoomAdapter::new(room).remembered_by(record)),
        }],
    })
}

/// The room: what it reads.
struct Controller {
    pods: Lister<SelinuxPod>,
    claims: Lister<PersistentVolumeClaim>,
    volumes: Lister<PersistentVolume>,
    drivers: Lister<CsiDriver>,
    record: Arc<Record>,
    /// Whether volumes are mounted with labels at all.
    compares_labels: bool,
}

impl Room<Note> for Controller {
    type View = View;

    fn observe(&self, key: &Key, _: &[Failure], _: &Reads) -> Result<Observation<View>, ObserveError> {
        Ok(Observation::View(view::observe(self, key)))
    }

    fn plan(view: &View, _: Timestamp) -> Plan<Note> {
        plan::plan(view)
    }

    fn reasons(view: &View, _: Timestamp) -> Vec<String> {
        reasons::reasons(view)
    }
}

//! Binds PersistentVolumeClaims to PersistentVolumes, has volumes made, and sees to those whose claims are gone. See "Persistent
//! Volumes" in the Kubernetes documentation; KEP-490 for binding by the first consumer, KEP-3333 for the default class.
//!
//! | loop | key | a change of | concerns |
//! |---|---|---|---|
//! | `claims` | a claim | a claim | its own key |
//! | | | a volume that is linked to a claim which does not name it, or is gone | that claim |
//! | | | a volume that unbound claims name | these claims |
//! | `volumes` | a volume | a volume | its own key |
//! | | | a claim that is gone | its volume |
//! | | | a Pod that emptied a volume, and has ended | that volume |
//!
//! Both look at everything again each `--pvclaimbinder-sync-period`. [`claim`] decides about claims, [`volume`] about volumes; what they
//! rest on is in [`matching`], [`provisioning`], [`reclaiming`] and [`recycler`].
//!
//! What it rests on: a binding is four writes, of which each is sent when the one before has succeeded, and carries the version that was
//! read: so a volume goes to one claim, and what a crash leaves is finished later. A claim is lost, and a volume is released, deleted or
//! recycled, on the strength of a live read. What was written a moment ago both loops know by [`memory`]; no decision that destroys
//! anything rests on that.
//!
//! It never provisions or deletes what is a CSI driver's, and never resizes.

use std::sync::Arc;

use jiff::Timestamp;

use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::{
    NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES,
};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, Observation,
    ObserveError, Reads, Room, RoomAdapter, wake, workers,
};
use coxswain_machinery::model::{Failure, Key, Plan};
use coxswain_machinery::options::Flags;
use coxswain_machinery::options::recycler::template;

mod claim;
mod facts;
mod free;
mod keys;
mod matching;
mod memory;
mod metrics;
mod migrating;
mod note;
mod plan;
mod provisioning;
mod reasons;
mod reclaiming;
mod recycler;
#[cfg(test)]
mod tests;
mod view;
mod volume;
mod writes;

use crate::storage::claims::BY_CLAIM;
use free::FreeVolumes;
use memory::Ledger;
use metrics::{Counter, Metrics};
use note::Note;
use recycler::{Recipe, Recipes};
use view::{Binder, ClaimView, MEANT, Settings, VolumeView};

/// Keys taken at the same time by each loop. The original takes one, and waits for each answer.
const WORKERS: i32 = 8;

/// The name of what makes and removes directories on the manager's machine, among the finishers.
pub const DIRECTORIES: &str = "directories";

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "persistentvolume-binder-controller",
    aliases: &["persistentvolume-binder"],
    description: "Binds PersistentVolumeClaims to PersistentVolumes and requests provisioning.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("persistent-volume-binder"),
    event_source: Some("persistentvolume-controller"),
    writes: &[
        Grant {
            group: "",
            resource: "persistentvolumes",
            verbs: &["create", "delete", "get", "list", "update", "watch"],
        },
        Grant { group: "", resource: "persistentvolumes/status", verbs: &["update"] },
        Grant { group: "", resource: "persistentvolumeclaims", verbs: &["get", "list", "update", "watch"] },
        Grant { group: "", resource: "persistentvolumeclaims/status", verbs: &["update"] },
        Grant { group: "", resource: "pods", verbs: &["create", "delete", "get", "list", "watch"] },
        Grant { group: "storage.k8s.io", resource: "storageclasses", verbs: &["get", "list", "watch"] },
        // Where the manager makes directories.
        Grant { group: "", resource: "nodes", verbs: &["list", "watch"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

fn settings(flags: &Flags, knows_attributes: bool) -> Result<Settings, BuildError> {
    let recipe = |path: &str, minimum: i32, increment: i32| {
        let found = template(path).map_err(BuildError::Invalid)?;
        let template = found.unwrap_or_else(recycler::built_in);
        Ok::<_, BuildError>(Recipe { template, minimum, increment })
    };
    Ok(Settings {
        provisions: flags.enable_dynamic_provisioning,
        makes_directories: flags.enable_hostpath_provisioner,
        knows_attributes,
        recipes: Recipes {
            host_path: recipe(
                &flags.pv_recycler_pod_template_filepath_hostpath,
                flags.pv_recycler_minimum_timeout_hostpath,
                flags.pv_recycler_timeout_increment_hostpath,
            )?,
            nfs: recipe(
                &flags.pv_recycler_pod_template_filepath_nfs,
                flags.pv_recycler_minimum_timeout_nfs,
                flags.pv_recycler_increment_timeout_nfs,
            )?,
        },
    })
}

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let settings = Arc::new(settings(&build.config.flags, (build.gate)("VolumeAttributesClass"))?);
    let claims = build.watch::<PersistentVolumeClaim>(&PERSISTENT_VOLUME_CLAIMS);
    let volumes = build.watch::<PersistentVolume>(&PERSISTENT_VOLUMES);
    let classes = build.watch::<StorageClass>(&STORAGE_CLASSES);
    let pods = build.watch::<Pod>(&PODS);
    let nodes = settings.makes_directories.then(|| build.watch::<Node>(&NODES).lister());
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let metrics = Arc::new(metrics);
    let ledger = Arc::new(Ledger::new(claims.lister(), volumes.lister()));
    let free = Arc::new(FreeVolumes::default());
    let binder = Arc::new(Binder {
        free: Arc::clone(&free),
        meant: volumes.index(&MEANT),
        classes: classes.lister(),
        pods: pods.lister(),
        users: pods.index(&BY_CLAIM),
        nodes,
        ledger: Arc::clone(&ledger),
        metrics: Arc::clone(&metrics),
        settings,
    });
    let counter = || Counter { metrics: Arc::clone(&metrics), ledger: Arc::clone(&ledger) };
    let loop_settings = LoopSettings {
        workers: workers(WORKERS),
        resync: Some(build.config.flags.pvclaimbinder_sync_period),
        ..LoopSettings::default()
    };
    let of_claims = RoomAdapter::new(ClaimRoom(Arc::clone(&binder)));
    let of_volumes = RoomAdapter::new(VolumeRoom(binder));
    Ok(Built {
        loops: vec![
            Loop {
                queue: "claims",
                kind: Some(&PERSISTENT_VOLUME_CLAIMS),
                settings: loop_settings.clone(),
                wake_ups: vec![
                    // Before the keys of the same change: their reconciles find it there.
                    volumes.wakes(free.follow()),
                    claims.wakes(wake::own()),
                    claims.wakes(metrics::count_claims(Arc::clone(&metrics))),
                    volumes.wakes(keys::claims_of_volumes(claims.lister(), claims.index(&keys::NAMING))),
                ],
                reconcile: Arc::new(of_claims.counted_by(counter()).remembered_by(ledger.clone())),
            },
            Loop {
                queue: "volumes",
                kind: Some(&PERSISTENT_VOLUMES),
                settings: loop_settings,
                wake_ups: vec![
                    volumes.wakes(wake::own()),
                    volumes.wakes(metrics::count_volumes(Arc::clone(&metrics))),
                    claims.wakes(keys::volumes_of_claims()),
                    pods.wakes(keys::volumes_of_recyclers()),
                ],
                reconcile: Arc::new(of_volumes.counted_by(counter()).remembered_by(ledger.clone())),
            },
        ],
    })
}

/// The room of claims.
struct ClaimRoom(Arc<Binder>);

/// The room of volumes.
struct VolumeRoom(Arc<Binder>);

impl Room<Note> for ClaimRoom {
    const HEEDS_FAILURES: bool = true;

    type View = ClaimView;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<ClaimView>, ObserveError> {
        self.0.claim(key, failures, read)
    }

    fn plan(view: &ClaimView, now: Timestamp) -> Plan<Note> {
        claim::plan(view, now)
    }

    fn reasons(view: &ClaimView, _: Timestamp) -> Vec<String> {
        reasons::of_claim(view)
    }
}

impl Room<Note> for VolumeRoom {
    const HEEDS_FAILURES: bool = true;

    type View = VolumeView;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<VolumeView>, ObserveError> {
        self.0.volume(key, failures, read)
    }

    fn plan(view: &VolumeView, now: Timestamp) -> Plan<Note> {
        volume::plan(view, now)
    }

    fn reasons(view: &VolumeView, _: Timestamp) -> Vec<String> {
        reasons::of_volume(view)
    }
}

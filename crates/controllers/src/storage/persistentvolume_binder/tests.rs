//! Tables of the plans, and stories on the model of the API server, with caches that lag as the test says.

use super::note::Note;
use super::*;
use coxswain_machinery::api::core::ObjectReference;
use coxswain_machinery::api::volumes::{CsiPersistent, HostPath, Nfs, PersistentVolumeSource};
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::framework::{Memory as _, Meter as _, Outcome, Read, ReconcileEnd, RoomMetrics};
use coxswain_machinery::informer::{Indexed, Lister, Store, downcast};
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::{Labels, Message, Str, Time};

mod attributes;
mod best_match;
mod in_order;
mod makers;
mod of_claims;
mod of_volumes;
mod recycling;
mod search;
mod server;
mod stories;
mod telling;

use server::World;

const NOW: i64 = 1_700_000_000;

#[test]
fn flags_are_its_settings() {
    let templates = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = templates.path().join(name);
        let pod = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{volumes: [{{name: v}}], containers: []}}}}"
        );
        std::fs::write(&path, pod).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let usual = super::settings(&Flags::default(), true).unwrap();
    assert!(usual.provisions && !usual.makes_directories);
    let (nfs, host_path) = (&usual.recipes.nfs, &usual.recipes.host_path);
    let times = [nfs.minimum, nfs.increment, host_path.minimum, host_path.increment];
    assert_eq!(times, [300, 30, 60, 30]);
    let flags = Flags {
        enable_dynamic_provisioning: false,
        enable_hostpath_provisioner: true,
        pv_recycler_minimum_timeout_nfs: 1,
        pv_recycler_increment_timeout_nfs: 2,
        pv_recycler_minimum_timeout_hostpath: 3,
        pv_recycler_timeout_increment_hostpath: 4,
        pv_recycler_pod_template_filepath_nfs: file("for-nfs"),
        pv_recycler_pod_template_filepath_hostpath: file("for-paths"),
        ..Flags::default()
    };
    let settings = super::settings(&flags, true).unwrap();
    assert!(!settings.provisions && settings.makes_directories);
    let (nfs, host_path) = (&settings.recipes.nfs, &settings.recipes.host_path);
    let times = [nfs.minimum, nfs.increment, host_path.minimum, host_path.increment];
    assert_eq!(times, [1, 2, 3, 4]);
    let names = [nfs, host_path].map(|recipe| recipe.template["metadata"]["name"].clone());
    assert_eq!(names, ["for-nfs", "for-paths"]);
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

/// A claim of the class `c` for 1Gi that was just made.
fn claim(name: &str) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.namespace = "ns".into();
    claim.metadata.name = name.into();
    claim.metadata.uid = format!("uid-of-{name}").as_str().into();
    claim.spec.access_modes = vec!["ReadWriteOnce".into()];
    claim.spec.storage_class_name = Some("c".into());
    claim.spec.resources.requests.insert("storage", "1Gi");
    claim.status.phase = "Pending".into();
    claim
}

/// A volume of the class `c` with 1Gi that is free.
fn volume(name: &str) -> PersistentVolume {
    let mut volume = PersistentVolume::default();
    volume.metadata.name = name.into();
    volume.metadata.uid = format!("uid-of-{name}").as_str().into();
    volume.spec.capacity.insert("storage", "1Gi");
    volume.spec.access_modes = vec!["ReadWriteOnce".into()];
    volume.spec.storage_class_name = "c".into();
    volume.spec.persistent_volume_reclaim_policy = "Retain".into();
    volume.spec.persistent_volume_source = csi();
    volume.status.phase = "Available".into();
    volume
}

fn csi() -> PersistentVolumeSource {
    let csi = Some(Box::new(CsiPersistent { driver: "d".into(), volume_handle: "h".into() }));
    PersistentVolumeSource { csi, ..PersistentVolumeSource::default() }
}

fn directory(path: &str) -> PersistentVolumeSource {
    let host_path = Some(Box::new(HostPath { path: path.into() }));
    PersistentVolumeSource { host_path, ..PersistentVolumeSource::default() }
}

fn nfs() -> PersistentVolumeSource {
    let nfs = Some(Box::new(Nfs { server: "s".into(), path: "/p".into() }));
    PersistentVolumeSource { nfs, ..PersistentVolumeSource::default() }
}

#[expect(clippy::unnecessary_wraps, reason = "it is what a volume holds")]
fn reference(claim: &PersistentVolumeClaim, with_uid: bool) -> Option<Box<ObjectReference>> {
    let uid = if with_uid { claim.metadata.uid.to_str() } else { Str::EMPTY };
    Some(Box::new(ObjectReference {
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid,
        ..ObjectReference::default()
    }))
}

/// Claim and volume as they are when the binder has bound them.
fn bound_pair() -> (PersistentVolumeClaim, PersistentVolume) {
    let (mut claim, mut volume) = (claim("data"), volume("vol"));
    claim.metadata.annotations =
        labels(&[(facts::BIND_COMPLETED, "yes"), (facts::BOUND_BY_CONTROLLER, "yes")]);
    claim.spec.volume_name = "vol".into();
    claim.status.phase = "Bound".into();
    claim.status.access_modes = vec!["ReadWriteOnce".into()];
    claim.status.capacity.insert("storage", "1Gi");
    volume.metadata.annotations = labels(&[(facts::BOUND_BY_CONTROLLER, "yes")]);
    volume.spec.claim_ref = reference(&claim, true);
    volume.status.phase = "Bound".into();
    (claim, volume)
}

/// A volume whose claim is gone.
fn released(name: &str, policy: &str, source: PersistentVolumeSource) -> PersistentVolume {
    let mut volume = volume(name);
    volume.metadata.annotations = labels(&[(facts::BOUND_BY_CONTROLLER, "yes")]);
    volume.spec.persistent_volume_reclaim_policy = policy.into();
    volume.spec.persistent_volume_source = source;
    volume.spec.claim_ref = reference(&claim("data"), true);
    volume.status.phase = "Released".into();
    volume
}

fn class(name: &str, provisioner: &str, binding: &str) -> StorageClass {
    let mut class = StorageClass::default();
    class.metadata.name = name.into();
    class.provisioner = provisioner.into();
    class.volume_binding_mode = (!binding.is_empty()).then(|| binding.into());
    class
}

fn waiting_class() -> StorageClass {
    class("c", "kubernetes.io/no-provisioner", "WaitForFirstConsumer")
}

/// What a pod says that mounts a claim.
fn mounting(claim: &str) -> serde_json::Value {
    let mounted = serde_json::json!({ "name": "v", "persistentVolumeClaim": { "claimName": claim } });
    serde_json::json!({ "volumes": [mounted] })
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

/// The object as the API server sends it, with a field that nobody has declared.
fn stored<T: Object + Message>(kind: &'static Kind, object: &T) -> AnyObject {
    let mut bytes = object.to_bytes();
    bytes.extend([0xfa, 0x3f, 1, b'x']);
    (kind.decode)(&bytes.into()).unwrap()
}

//! Who makes a volume for a claim that finds none, and what stands against it. Pure.

use super::facts::{BETA_PROVISIONER, MIGRATED_TO, PROVISIONER, SELECTED_NODE, has};
use super::migrating::{IN_TREE, IN_TREE_FINALIZER};
use crate::storage::migration;
use coxswain_machinery::api::core::ObjectReference;
use coxswain_machinery::api::kinds::PERSISTENT_VOLUME_CLAIMS;
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use coxswain_machinery::api::volumes::HostPath;
use coxswain_machinery::model::metadata::annotation_edit;
use coxswain_machinery::wire::splice::Edit;
use coxswain_machinery::wire::{Labels, Str};

/// The plugin for directories of the manager's own machine.
pub(super) const HOST_PATH: &str = "kubernetes.io/host-path";
/// The plugin for directories of NFS servers.
pub(super) const NFS: &str = "kubernetes.io/nfs";
/// Where directories are made.
const DIRECTORIES: &str = "/tmp/hostpath_pv";

/// Who makes the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Provisioner {
    /// An external one, of this name.
    External(Str),
    /// The manager itself, in a directory.
    HostPath,
    /// Nobody: why.
    Nobody(String),
}

/// Who makes volumes of a class of this name.
pub(super) fn provisioner(name: &str, class: Option<&StorageClass>) -> Provisioner {
    let Some(class) = class else {
        return Provisioner::Nobody(format!("storageclass.storage.k8s.io {name:?} not found"));
    };
    let plugin = &class.provisioner;
    if let Some(of) = migration::of_plugin(plugin) {
        return Provisioner::External(of.driver.into());
    }
    match plugin.as_str() {
        HOST_PATH => Provisioner::HostPath,
        NFS => Provisioner::Nobody("no provisionable volume plugin matched".to_owned()),
        other if other.starts_with(IN_TREE) => {
            Provisioner::Nobody(format!("no volume plugin matched name: {other}"))
        }
        _ => Provisioner::External(plugin.clone()),
    }
}

/// How metrics name who makes volumes of a class.
pub(super) fn label(class: Option<&StorageClass>) -> Str {
    match provisioner("", class) {
        Provisioner::External(name) => name,
        Provisioner::HostPath => HOST_PATH.into(),
        Provisioner::Nobody(_) => "N/A".into(),
    }
}

/// How a claim says who is to make its volume; nothing if it does.
pub(super) fn asked(claim: &PersistentVolumeClaim, provisioner: &str) -> Vec<Edit> {
    if claim.metadata.annotations.get(PROVISIONER).is_some_and(|said| said == provisioner) {
        return Vec::new();
    }
    let mut edits: Vec<Edit> = [BETA_PROVISIONER, PROVISIONER]
        .map(|name| annotation_edit(name, Some(provisioner.to_owned())))
        .to_vec();
    if has(&claim.metadata, MIGRATED_TO) {
        edits.push(annotation_edit(MIGRATED_TO, None));
    }
    edits
}

/// What an external provisioner's claim is told.
pub(super) fn external_message(provisioner: &str) -> String {
    format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. \
         If volume creation is delayed, please verify that the provisioner is running and correctly registered."
    )
}

/// Why no directory is made for a claim that asks for a copy of something: before anything is written.
pub(super) fn refused_at_once(claim: &PersistentVolumeClaim) -> Option<String> {
    claim.spec.data_source.as_ref().map(|_| {
        format!("plugin {HOST_PATH:?} is not a CSI plugin. Only CSI plugin can provision a claim with a datasource")
    })
}

/// What stands against a directory for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// This, as the event has it.
    Told(String),
    /// This, and the scheduler is to choose a node anew.
    Reschedule(String),
}

/// What stands against a directory for a claim, once it says who is to make it. `node_is_there` is about the node that the scheduler
/// chose, if it did.
pub(super) fn refusal(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    is_enabled: bool,
    node_is_there: bool,
) -> Option<Refusal> {
    let name = &class.metadata.name;
    if !class.mount_options.is_empty() {
        let options: Vec<&str> = class.mount_options.iter().map(Str::as_str).collect();
        return Some(Refusal::Told(format!(
            "Mount options are not supported by the provisioner but StorageClass {name:?} has mount options [{}]",
            options.join(" ")
        )));
    }
    if !is_enabled {
        return Some(Refusal::Told(format!(
            "Failed to create provisioner: provisioning in volume plugin {HOST_PATH:?} is disabled"
        )));
    }
    if let Some(node) = claim.metadata.annotations.get(SELECTED_NODE).filter(|_| !node_is_there) {
        return Some(Refusal::Told(format!("Failed to get target node: node {node:?} not found")));
    }
    claim.spec.volume_mode.as_ref().filter(|mode| *mode == "Block").map(|_| {
        Refusal::Reschedule(format!(
            "Failed to provision volume with StorageClass {name:?}: {HOST_PATH} does not support block volume provisioning"
        ))
    })
}

/// The name of the volume that is made for a claim.
pub(super) fn volume_name(claim: &PersistentVolumeClaim) -> Str {
    format!("pvc-{}", claim.metadata.uid).into()
}

/// The directory for a claim. It is named after the claim, so that whoever tries again takes the same one.
pub(super) fn directory(claim: &PersistentVolumeClaim) -> String {
    format!("{DIRECTORIES}/{}", claim.metadata.uid)
}

/// A new volume in the directory of a claim.
pub(super) fn host_path_volume(claim: &PersistentVolumeClaim, class: &StorageClass) -> PersistentVolume {
    let mut volume = PersistentVolume::default();
    volume.metadata.name = volume_name(claim);
    let annotations = [
        ("kubernetes.io/createdby", "hostpath-dynamic-provisioner"),
        (super::facts::BOUND_BY_CONTROLLER, "yes"),
        (super::facts::PROVISIONED_BY, HOST_PATH),
    ];
    volume.metadata.annotations = annotations.into_iter().collect::<Labels>();
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".into());
    if policy == "Delete" {
        volume.metadata.finalizers.push(IN_TREE_FINALIZER.into());
    }
    let spec = &mut volume.spec;
    if let Some(size) = super::facts::storage(&claim.spec.resources.requests) {
        spec.capacity.insert("storage", size);
    }
    spec.access_modes.clone_from(&claim.spec.access_modes);
    if spec.access_modes.is_empty() {
        spec.access_modes.push("ReadWriteOnce".into());
    }
    spec.persistent_volume_reclaim_policy = policy;
    spec.storage_class_name = class.metadata.name.clone();
    spec.persistent_volume_source.host_path = Some(Box::new(HostPath { path: directory(claim).into() }));
    spec.claim_ref = Some(Box::new(ObjectReference {
        kind: PERSISTENT_VOLUME_CLAIMS.kind.into(),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.to_str(),
        api_version: "v1".into(),
        resource_version: claim.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }));
    volume
}

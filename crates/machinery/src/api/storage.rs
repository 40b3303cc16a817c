//! PersistentVolumes and their claims (`core/v1`), and `storage.k8s.io/v1`, trimmed. What is rewritten keeps its bytes in
//! `raw`.

use std::sync::Arc;

use bytes::Bytes;

use super::core::ObjectReference;
use super::kind::{AnyObject, ApiVersion, decode_kept, kinds, objects};
use super::meta::{LabelSelector, ObjectMeta, PartialObjectMetadata};
use super::volumes::PersistentVolumeSource;
use crate::wire::{Keep, Labels, Quantities, Raw, Str, Time, WireError, message};

const CORE: ApiVersion = ApiVersion { group: "", version: "v1" };
const STORAGE: ApiVersion = ApiVersion { group: "storage.k8s.io", version: "v1" };

kinds! {
    /// PersistentVolumeClaims.
    PERSISTENT_VOLUME_CLAIMS = CORE
        .namespaced::<PersistentVolumeClaim>("PersistentVolumeClaim", "persistentvolumeclaims")
        .decoded_by(decode_volume_claim);
    /// PersistentVolumes.
    PERSISTENT_VOLUMES = CORE.cluster_wide::<PersistentVolume>("PersistentVolume", "persistentvolumes");
    /// StorageClasses.
    STORAGE_CLASSES = STORAGE.cluster_wide::<StorageClass>("StorageClass", "storageclasses");
    /// VolumeAttachments.
    VOLUME_ATTACHMENTS = STORAGE.cluster_wide::<VolumeAttachment>("VolumeAttachment", "volumeattachments");
    /// VolumeAttributesClasses.
    VOLUME_ATTRIBUTES_CLASSES =
        STORAGE.cluster_wide::<VolumeAttributesClass>("VolumeAttributesClass", "volumeattributesclasses");
    /// CSIDrivers.
    CSI_DRIVERS = STORAGE.cluster_wide::<CsiDriver>("CSIDriver", "csidrivers");
    /// CSINodes, which are there or not.
    CSI_NODES = STORAGE.cluster_wide::<PartialObjectMetadata>("CSINode", "csinodes").metadata_only();
}

/// What controllers read of a class's annotations.
const CLASS: Keep = Keep {
    annotations: Some(&[
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ]),
    ..Keep::BARE
};

objects! {
    PersistentVolumeClaim + raw;
    PersistentVolume + raw;
    StorageClass keeps CLASS;
    VolumeAttachment + raw keeps Keep::BARE;
    VolumeAttributesClass + raw keeps Keep::BARE;
    CsiDriver keeps Keep::BARE;
}

/// Claims ask for storage, and for nothing else that anybody reads.
fn decode_volume_claim(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let mut claim: PersistentVolumeClaim = decode_kept(bytes)?;
    for amounts in [
        &mut claim.spec.resources.requests,
        &mut claim.status.capacity,
        &mut claim.status.allocated_resources,
    ] {
        amounts.retain(|resource| resource == "storage");
    }
    Ok(Arc::new(claim))
}

message! {
    schema SCHEMA;

    /// A claim on a volume.
    pub struct PersistentVolumeClaim + raw = "k8s.io.api.core.v1.PersistentVolumeClaim" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: PersistentVolumeClaimSpec,
        /// Observed state.
        3 => status: PersistentVolumeClaimStatus,
    }

    /// What controllers read of a volume claim's spec.
    pub struct PersistentVolumeClaimSpec = "k8s.io.api.core.v1.PersistentVolumeClaimSpec" {
        /// How it is to be used.
        1 => access_modes: Vec<Str> [interned],
        /// How much is wanted.
        2 => resources: VolumeResources,
        /// Its volume.
        3 => volume_name: Str,
        /// Which volumes will do.
        4 => selector: Option<Box<LabelSelector>>,
        /// Its storage class.
        5 => storage_class_name: Option<Str> [interned],
        /// `Filesystem` or `Block`.
        6 => volume_mode: Option<Str> [interned],
        /// What its volume is made from.
        7 => data_source: Option<Box<DataSource>>,
        /// The class of attributes that its volume should have.
        9 => volume_attributes_class_name: Str [interned],
    }

    /// What a volume is made from.
    pub struct DataSource = "k8s.io.api.core.v1.TypedLocalObjectReference" {
        /// API group.
        1 => api_group: Option<Str> [interned],
        /// Kind.
        2 => kind: Str [interned],
        /// Name.
        3 => name: Str,
    }

    /// How much of a volume is wanted.
    pub struct VolumeResources = "k8s.io.api.core.v1.VolumeResourceRequirements" {
        /// At least this, by resource.
        2 => requests: Quantities,
    }

    /// What controllers read of a volume claim's status.
    pub struct PersistentVolumeClaimStatus = "k8s.io.api.core.v1.PersistentVolumeClaimStatus" {
        /// `Pending`, `Bound` or `Lost`.
        1 => phase: Str [interned],
        /// How its volume can be used.
        2 => access_modes: Vec<Str> [interned],
        /// How large its volume is; of a cached claim only `storage`.
        3 => capacity: Quantities,
        /// Conditions.
        4 => conditions: Vec<PersistentVolumeClaimCondition>,
        /// What is set aside for it while it is being resized; of a cached claim only `storage`.
        5 => allocated_resources: Quantities,
        /// How far its resizing has come, by resource.
        7 => allocated_resource_statuses: Labels,
        /// The class of attributes that its volume has.
        8 => current_volume_attributes_class_name: Str [interned],
        /// A change of attributes under way.
        9 => modify_volume_status: Option<Box<ModifyVolumeStatus>>,
    }

    /// A condition of a volume claim.
    pub struct PersistentVolumeClaimCondition = "k8s.io.api.core.v1.PersistentVolumeClaimCondition" {
        /// `Resizing`, `FileSystemResizePending`, `Unused` …
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
        /// When it was looked at last.
        3 => last_probe_time: Option<Time>,
        /// When `status` changed last.
        4 => last_transition_time: Option<Time>,
        /// For machines.
        5 => reason: Str [interned],
        /// For people.
        6 => message: Str,
    }

    /// A change of a volume's attributes.
    pub struct ModifyVolumeStatus = "k8s.io.api.core.v1.ModifyVolumeStatus" {
        /// The class of attributes that it is about to have.
        1 => target_volume_attributes_class_name: Str [interned],
    }

    /// A volume.
    pub struct PersistentVolume + raw = "k8s.io.api.core.v1.PersistentVolume" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: PersistentVolumeSpec,
        /// Observed state.
        3 => status: PersistentVolumeStatus,
    }

    /// What controllers read of a volume's spec.
    pub struct PersistentVolumeSpec = "k8s.io.api.core.v1.PersistentVolumeSpec" {
        /// How large it is.
        1 => capacity: Quantities,
        /// Where its data is.
        2 => persistent_volume_source: PersistentVolumeSource,
        /// How it can be used.
        3 => access_modes: Vec<Str> [interned],
        /// The claim that has it.
        4 => claim_ref: Option<Box<ObjectReference>>,
        /// What becomes of it when its claim is gone.
        5 => persistent_volume_reclaim_policy: Str [interned],
        /// Its storage class.
        6 => storage_class_name: Str [interned],
        /// `Filesystem` or `Block`.
        8 => volume_mode: Option<Str> [interned],
        /// Its class of attributes.
        10 => volume_attributes_class_name: Option<Str> [interned],
    }

    /// A volume's status.
    pub struct PersistentVolumeStatus = "k8s.io.api.core.v1.PersistentVolumeStatus" {
        /// `Pending`, `Available`, `Bound`, `Released` or `Failed`.
        1 => phase: Str [interned],
        /// Why, for people.
        2 => message: Str,
    }

    /// A class of volumes.
    pub struct StorageClass = "k8s.io.api.storage.v1.StorageClass" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Who makes them.
        2 => provisioner: Str [interned],
        /// What becomes of them when their claims are gone.
        4 => reclaim_policy: Option<Str> [interned],
        /// How they are mounted.
        5 => mount_options: Vec<Str> [interned],
        /// `Immediate` or `WaitForFirstConsumer`.
        7 => volume_binding_mode: Option<Str> [interned],
    }

    /// A volume on a node.
    pub struct VolumeAttachment + raw = "k8s.io.api.storage.v1.VolumeAttachment" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: VolumeAttachmentSpec,
        /// Observed state.
        3 => status: VolumeAttachmentStatus,
    }

    /// Which volume, on which node.
    pub struct VolumeAttachmentSpec = "k8s.io.api.storage.v1.VolumeAttachmentSpec" {
        /// The CSI driver.
        1 => attacher: Str [interned],
        /// The volume.
        2 => source: VolumeAttachmentSource,
        /// The node.
        3 => node_name: Str [interned],
    }

    /// A volume: a PersistentVolume, or one that is described in full.
    pub struct VolumeAttachmentSource = "k8s.io.api.storage.v1.VolumeAttachmentSource" {
        /// Name of the PersistentVolume.
        1 => persistent_volume_name: Option<Str>,
        /// Its description, unparsed.
        2 => inline_volume_spec: Raw as PersistentVolumeSpec,
    }

    /// Whether a volume is attached.
    pub struct VolumeAttachmentStatus = "k8s.io.api.storage.v1.VolumeAttachmentStatus" {
        /// Whether it is.
        1 => attached: bool,
        /// Why attaching failed last.
        3 => attach_error: Option<Box<VolumeError>>,
        /// Why detaching failed last.
        4 => detach_error: Option<Box<VolumeError>>,
    }

    /// What went wrong with a volume.
    pub struct VolumeError = "k8s.io.api.storage.v1.VolumeError" {
        /// When.
        1 => time: Option<Time>,
        /// What, for people.
        2 => message: Str,
    }

    /// A class of attributes of volumes. Only who uses it matters.
    pub struct VolumeAttributesClass + raw = "k8s.io.api.storage.v1.VolumeAttributesClass" {
        /// Metadata.
        1 => metadata: ObjectMeta,
    }

    /// A CSI driver.
    pub struct CsiDriver = "k8s.io.api.storage.v1.CSIDriver" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// What it needs.
        2 => spec: CsiDriverSpec,
    }

    /// What controllers read of a CSI driver.
    pub struct CsiDriverSpec = "k8s.io.api.storage.v1.CSIDriverSpec" {
        /// Whether its volumes must be attached; they must if it is not said.
        1 => attach_required: Option<bool>,
        /// Whether its volumes can be mounted with an SELinux context.
        8 => se_linux_mount: Option<bool>,
    }
}

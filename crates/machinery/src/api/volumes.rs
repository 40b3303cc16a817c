//! Sources of volumes of `core/v1`, trimmed: what a volume's unique name, its translation to CSI and its attaching are made
//! of. A source has one of these fields, or one that no controller knows.

use super::core::LocalObjectReference;
use crate::wire::{Str, message};

message! {
    schema SCHEMA;

    /// Where a PersistentVolume's data is.
    pub struct PersistentVolumeSource = "k8s.io.api.core.v1.PersistentVolumeSource" {
        /// A disk of Google's cloud.
        1 => gce_persistent_disk: Option<Box<GcePersistentDisk>>,
        /// A disk of Amazon's cloud.
        2 => aws_elastic_block_store: Option<Box<AwsElasticBlockStore>>,
        /// A directory of the node.
        3 => host_path: Option<Box<HostPath>>,
        /// A directory of an NFS server.
        5 => nfs: Option<Box<Nfs>>,
        /// A disk by iSCSI.
        7 => iscsi: Option<Box<Iscsi>>,
        /// A disk of OpenStack.
        8 => cinder: Option<Box<Cinder>>,
        /// A disk by Fibre Channel.
        10 => fc: Option<Box<FibreChannel>>,
        /// Something of a FlexVolume driver.
        12 => flex_volume: Option<Box<FlexVolume>>,
        /// A share of Microsoft's cloud.
        13 => azure_file: Option<Box<AzureFilePersistent>>,
        /// A disk of vSphere.
        14 => vsphere_volume: Option<Box<VsphereVolume>>,
        /// A disk of Microsoft's cloud.
        16 => azure_disk: Option<Box<AzureDisk>>,
        /// A volume of Portworx.
        18 => portworx_volume: Option<Box<PortworxVolume>>,
        /// A volume of a CSI driver.
        22 => csi: Option<Box<CsiPersistent>>,
    }

    /// Where the data of a pod's volume is, as far as it can be attached.
    pub struct InlineSource = "k8s.io.api.core.v1.VolumeSource" {
        /// A directory of the node.
        1 => host_path: Option<Box<HostPath>>,
        /// A disk of Google's cloud.
        3 => gce_persistent_disk: Option<Box<GcePersistentDisk>>,
        /// A disk of Amazon's cloud.
        4 => aws_elastic_block_store: Option<Box<AwsElasticBlockStore>>,
        /// A directory of an NFS server.
        7 => nfs: Option<Box<Nfs>>,
        /// A disk by iSCSI.
        8 => iscsi: Option<Box<Iscsi>>,
        /// Something of a FlexVolume driver.
        12 => flex_volume: Option<Box<FlexVolume>>,
        /// A disk of OpenStack.
        13 => cinder: Option<Box<Cinder>>,
        /// A disk by Fibre Channel.
        17 => fc: Option<Box<FibreChannel>>,
        /// A share of Microsoft's cloud.
        18 => azure_file: Option<Box<AzureFile>>,
        /// A disk of vSphere.
        20 => vsphere_volume: Option<Box<VsphereVolume>>,
        /// A disk of Microsoft's cloud.
        22 => azure_disk: Option<Box<AzureDisk>>,
        /// A volume of Portworx.
        24 => portworx_volume: Option<Box<PortworxVolume>>,
        /// A volume that a CSI driver makes for the pod.
        28 => csi: Option<Box<CsiInline>>,
    }

    /// A disk of Google's cloud.
    pub struct GcePersistentDisk = "k8s.io.api.core.v1.GCEPersistentDiskVolumeSource" {
        /// Its name.
        1 => pd_name: Str,
        /// File system.
        2 => fs_type: Str [interned],
        /// Partition.
        3 => partition: i32,
        /// Whether it is only read.
        4 => read_only: bool,
    }

    /// A disk of Amazon's cloud.
    pub struct AwsElasticBlockStore = "k8s.io.api.core.v1.AWSElasticBlockStoreVolumeSource" {
        /// Its ID, or a URL with it.
        1 => volume_id: Str,
        /// File system.
        2 => fs_type: Str [interned],
        /// Partition.
        3 => partition: i32,
        /// Whether it is only read.
        4 => read_only: bool,
    }

    /// A directory of the node.
    pub struct HostPath = "k8s.io.api.core.v1.HostPathVolumeSource" {
        /// Its path.
        1 => path: Str [interned],
    }

    /// A directory of an NFS server.
    pub struct Nfs = "k8s.io.api.core.v1.NFSVolumeSource" {
        /// The server.
        1 => server: Str [interned],
        /// The path there.
        2 => path: Str,
    }

    /// A disk by iSCSI.
    pub struct Iscsi = "k8s.io.api.core.v1.ISCSIVolumeSource" {
        /// Where it is offered.
        1 => target_portal: Str [interned],
        /// Its qualified name.
        2 => iqn: Str,
        /// Its number there.
        3 => lun: i32,
    }

    /// A disk of OpenStack.
    pub struct Cinder = "k8s.io.api.core.v1.CinderVolumeSource" {
        /// Its ID.
        1 => volume_id: Str,
        /// File system.
        2 => fs_type: Str [interned],
        /// Whether it is only read.
        3 => read_only: bool,
    }

    /// A disk by Fibre Channel.
    pub struct FibreChannel = "k8s.io.api.core.v1.FCVolumeSource" {
        /// Names of its targets.
        1 => target_wwns: Vec<Str>,
        /// Its number there.
        2 => lun: Option<i32>,
        /// Names of its own.
        5 => wwids: Vec<Str>,
    }

    /// Something of a FlexVolume driver.
    pub struct FlexVolume = "k8s.io.api.core.v1.FlexVolumeSource" {
        /// The driver.
        1 => driver: Str [interned],
    }

    /// A share of Microsoft's cloud, for a pod.
    pub struct AzureFile = "k8s.io.api.core.v1.AzureFileVolumeSource" {
        /// The Secret that opens it.
        1 => secret_name: Str [interned],
        /// Its name.
        2 => share_name: Str,
        /// Whether it is only read.
        3 => read_only: bool,
    }

    /// A share of Microsoft's cloud.
    pub struct AzureFilePersistent = "k8s.io.api.core.v1.AzureFilePersistentVolumeSource" {
        /// The Secret that opens it.
        1 => secret_name: Str [interned],
        /// Its name.
        2 => share_name: Str,
        /// Whether it is only read.
        3 => read_only: bool,
        /// The Secret's namespace; the claim's if absent.
        4 => secret_namespace: Option<Str> [interned],
    }

    /// A disk of vSphere.
    pub struct VsphereVolume = "k8s.io.api.core.v1.VsphereVirtualDiskVolumeSource" {
        /// Its path.
        1 => volume_path: Str,
        /// File system.
        2 => fs_type: Str [interned],
        /// Its policy.
        3 => storage_policy_name: Str [interned],
    }

    /// A disk of Microsoft's cloud.
    pub struct AzureDisk = "k8s.io.api.core.v1.AzureDiskVolumeSource" {
        /// Its name.
        1 => disk_name: Str,
        /// Its URI.
        2 => disk_uri: Str,
        /// How it is cached.
        3 => caching_mode: Option<Str> [interned],
        /// File system.
        4 => fs_type: Option<Str> [interned],
        /// Whether it is only read.
        5 => read_only: Option<bool>,
        /// `Managed`, `Shared` or `Dedicated`.
        6 => kind: Option<Str> [interned],
    }

    /// A volume of Portworx.
    pub struct PortworxVolume = "k8s.io.api.core.v1.PortworxVolumeSource" {
        /// Its ID.
        1 => volume_id: Str,
        /// File system.
        2 => fs_type: Str [interned],
        /// Whether it is only read.
        3 => read_only: bool,
    }

    /// A volume of a CSI driver.
    pub struct CsiPersistent = "k8s.io.api.core.v1.CSIPersistentVolumeSource" {
        /// The driver.
        1 => driver: Str [interned],
        /// How the driver calls it.
        2 => volume_handle: Str,
    } + named {
        3 => read_only,
        4 => fs_type,
        5 => volume_attributes,
        7 => node_stage_secret_ref as SecretReference,
    }

    /// A Secret of any namespace.
    pub struct SecretReference = "k8s.io.api.core.v1.SecretReference" {
        /// Its name.
        1 => name: Str,
        /// Its namespace.
        2 => namespace: Str [interned],
    }

    /// A volume that a CSI driver makes for a pod.
    pub struct CsiInline = "k8s.io.api.core.v1.CSIVolumeSource" {
        /// The driver.
        1 => driver: Str [interned],
        /// The Secret that opens it.
        5 => node_publish_secret_ref: Option<Box<LocalObjectReference>>,
    }
}

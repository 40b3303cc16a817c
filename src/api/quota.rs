//! Resource quotas, and the claims that they limit: `core/v1` and `resource.k8s.io/v1`, trimmed.

use super::meta::ObjectMeta;
use crate::wire::{Quantities, Str, message};

message! {
    schema SCHEMA;

    /// A quota of a namespace.
    pub struct ResourceQuota + raw = "k8s.io.api.core.v1.ResourceQuota" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// What is limited.
        2 => spec: ResourceQuotaSpec,
        /// What is used.
        3 => status: ResourceQuotaStatus,
    }

    /// What a quota limits.
    pub struct ResourceQuotaSpec = "k8s.io.api.core.v1.ResourceQuotaSpec" {
        /// How much there may be, by resource.
        1 => hard: Quantities,
        /// What objects must be to count: all of these.
        2 => scopes: Vec<Str> [interned],
        /// What else they must be.
        3 => scope_selector: Option<Box<ScopeSelector>>,
    }

    /// Further conditions on what counts.
    pub struct ScopeSelector = "k8s.io.api.core.v1.ScopeSelector" {
        /// All of which must hold.
        1 => match_expressions: Vec<ScopeRequirement>,
    }

    /// One condition on what counts.
    pub struct ScopeRequirement = "k8s.io.api.core.v1.ScopedResourceSelectorRequirement" {
        /// The scope.
        1 => scope_name: Str [interned],
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        2 => operator: Str [interned],
        /// Values for `In` and `NotIn`.
        3 => values: Vec<Str> [interned],
    }

    /// How much is used.
    pub struct ResourceQuotaStatus = "k8s.io.api.core.v1.ResourceQuotaStatus" {
        /// The limits that are in force.
        1 => hard: Quantities,
        /// What is used of them.
        2 => used: Quantities,
    }

    /// A claim on a volume.
    pub struct PersistentVolumeClaim = "k8s.io.api.core.v1.PersistentVolumeClaim" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: PersistentVolumeClaimSpec,
        /// Observed state.
        3 => status: PersistentVolumeClaimStatus,
    }

    /// What controllers read of a volume claim's spec.
    pub struct PersistentVolumeClaimSpec = "k8s.io.api.core.v1.PersistentVolumeClaimSpec" {
        /// How much is wanted.
        2 => resources: VolumeResources,
        /// Its storage class.
        5 => storage_class_name: Option<Str> [interned],
        /// The class of attributes that its volume should have.
        9 => volume_attributes_class_name: Str [interned],
    }

    /// How much of a volume is wanted.
    pub struct VolumeResources = "k8s.io.api.core.v1.VolumeResourceRequirements" {
        /// At least this, by resource.
        2 => requests: Quantities,
    }

    /// What controllers read of a volume claim's status.
    pub struct PersistentVolumeClaimStatus = "k8s.io.api.core.v1.PersistentVolumeClaimStatus" {
        /// What is set aside for it while it is being resized.
        5 => allocated_resources: Quantities,
        /// The class of attributes that its volume has.
        8 => current_volume_attributes_class_name: Str [interned],
        /// A change of attributes under way.
        9 => modify_volume_status: Option<Box<ModifyVolumeStatus>>,
    }

    /// A change of a volume's attributes.
    pub struct ModifyVolumeStatus = "k8s.io.api.core.v1.ModifyVolumeStatus" {
        /// The class of attributes that it is about to have.
        1 => target_volume_attributes_class_name: Str [interned],
    }

    /// A claim on devices.
    pub struct ResourceClaim = "k8s.io.api.resource.v1.ResourceClaim" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: ResourceClaimSpec,
    }

    /// What controllers read of a resource claim's spec.
    pub struct ResourceClaimSpec = "k8s.io.api.resource.v1.ResourceClaimSpec" {
        /// The devices.
        1 => devices: DeviceClaim,
    }

    /// Which devices are wanted.
    pub struct DeviceClaim = "k8s.io.api.resource.v1.DeviceClaim" {
        /// All of these.
        1 => requests: Vec<DeviceRequest>,
    }

    /// Some devices that are wanted: exactly these, or one of several alternatives.
    pub struct DeviceRequest = "k8s.io.api.resource.v1.DeviceRequest" {
        /// Without alternatives.
        2 => exactly: Option<Box<ExactDeviceRequest>>,
        /// The first of these that can be had.
        3 => first_available: Vec<DeviceSubRequest>,
    }

    /// Devices of one class.
    pub struct ExactDeviceRequest = "k8s.io.api.resource.v1.ExactDeviceRequest" {
        /// The class.
        1 => device_class_name: Str [interned],
        /// `ExactCount` or `All`.
        3 => allocation_mode: Str [interned],
        /// How many, if that counts.
        4 => count: i64,
    }

    /// Devices of one class, as an alternative.
    pub struct DeviceSubRequest = "k8s.io.api.resource.v1.DeviceSubRequest" {
        /// The class.
        2 => device_class_name: Str [interned],
        /// `ExactCount` or `All`.
        4 => allocation_mode: Str [interned],
        /// How many, if that counts.
        5 => count: i64,
    }

    /// A class of devices.
    pub struct DeviceClass = "k8s.io.api.resource.v1.DeviceClass" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// What it is.
        2 => spec: DeviceClassSpec,
    }

    /// What controllers read of a device class.
    pub struct DeviceClassSpec = "k8s.io.api.resource.v1.DeviceClassSpec" {
        /// The extended resource by which pods can ask for its devices, too (KEP-5004).
        4 => extended_resource_name: Str [interned],
    }
}

/// Field numbers of what a quota's status is made of.
pub mod field {
    /// `ResourceQuota.status.hard`.
    pub const HARD: [u32; 2] = [3, 1];
    /// `ResourceQuota.status.used`.
    pub const USED: [u32; 2] = [3, 2];
}

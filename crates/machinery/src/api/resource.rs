//! `resource.k8s.io`, trimmed: dynamic resource allocation. ResourceClaims and ResourcePoolStatusRequests are rewritten, so
//! their bytes are kept in `raw`.

use super::kind::{ApiVersion, kinds, objects};
use super::meta::{Condition, ObjectMeta};
use crate::wire::{Keep, Raw, Str, Time, message};

const V1: ApiVersion = ApiVersion { group: "resource.k8s.io", version: "v1" };
const V1_BETA: ApiVersion = ApiVersion { group: "resource.k8s.io", version: "v1beta2" };
const V1_ALPHA: ApiVersion = ApiVersion { group: "resource.k8s.io", version: "v1alpha3" };

kinds! {
    /// ResourceClaims.
    RESOURCE_CLAIMS = V1.namespaced::<ResourceClaim>("ResourceClaim", "resourceclaims");
    /// ResourceClaimTemplates.
    RESOURCE_CLAIM_TEMPLATES = V1.namespaced::<ResourceClaimTemplate>("ResourceClaimTemplate", "resourceclaimtemplates");
    /// ResourceSlices.
    RESOURCE_SLICES = V1.cluster_wide::<ResourceSlice>("ResourceSlice", "resourceslices");
    /// DeviceClasses.
    DEVICE_CLASSES = V1.cluster_wide::<DeviceClass>("DeviceClass", "deviceclasses");
    /// DeviceTaintRules.
    DEVICE_TAINT_RULES = V1_BETA.cluster_wide::<DeviceTaintRule>("DeviceTaintRule", "devicetaintrules");
    /// ResourcePoolStatusRequests.
    RESOURCE_POOL_STATUS_REQUESTS = V1_ALPHA
        .cluster_wide::<ResourcePoolStatusRequest>("ResourcePoolStatusRequest", "resourcepoolstatusrequests");
}

/// What controllers read of a claim's annotations: whose entry it was made for.
const CLAIM: Keep = Keep {
    annotations: Some(&[
        "resource.kubernetes.io/extended-resource-claim",
        "resource.kubernetes.io/pod-claim-name",
    ]),
    ..Keep::ALL
};

objects! {
    ResourceClaim + raw keeps CLAIM;
    ResourceClaimTemplate + raw;
    ResourceSlice keeps Keep::BARE;
    DeviceClass keeps Keep::LABELS;
    DeviceTaintRule keeps Keep::LABELS;
    ResourcePoolStatusRequest + raw;
}

message! {
    schema SCHEMA;

    /// A claim on devices.
    pub struct ResourceClaim + raw = "k8s.io.api.resource.v1.ResourceClaim" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: ResourceClaimSpec,
        /// Observed state.
        3 => status: ResourceClaimStatus,
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
        /// Whether they are to be had beside others that have them, by an administrator.
        5 => admin_access: Option<bool>,
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

    /// Observed state of a claim.
    pub struct ResourceClaimStatus = "k8s.io.api.resource.v1.ResourceClaimStatus" {
        /// What it was given.
        1 => allocation: Option<Box<AllocationResult>>,
        /// Who may use it.
        2 => reserved_for: Vec<ResourceClaimConsumer>,
    }

    /// What a claim was given.
    pub struct AllocationResult = "k8s.io.api.resource.v1.AllocationResult" {
        /// The devices.
        1 => devices: DeviceAllocationResult,
    }

    /// The devices that a claim was given.
    pub struct DeviceAllocationResult = "k8s.io.api.resource.v1.DeviceAllocationResult" {
        /// One by one.
        1 => results: Vec<AllocatedDevice>,
    }

    /// A device that a claim was given.
    pub struct AllocatedDevice = "k8s.io.api.resource.v1.DeviceRequestAllocationResult" {
        /// Its driver.
        2 => driver: Str [interned],
        /// Its pool.
        3 => pool: Str [interned],
        /// Its name.
        4 => device: Str [interned],
        /// Taints that the claim tolerates.
        6 => tolerations: Vec<DeviceToleration>,
    }

    /// Taints of devices that a claim tolerates.
    pub struct DeviceToleration = "k8s.io.api.resource.v1.DeviceToleration" {
        /// Key; any if empty.
        1 => key: Str [interned],
        /// `Equal` or `Exists`.
        2 => operator: Str [interned],
        /// Value.
        3 => value: Str [interned],
        /// Effect.
        4 => effect: Str [interned],
        /// For how long; for ever if absent.
        5 => toleration_seconds: Option<i64>,
    }

    /// Who may use a claim.
    pub struct ResourceClaimConsumer = "k8s.io.api.resource.v1.ResourceClaimConsumerReference" {
        /// API group.
        1 => api_group: Str [interned],
        /// Resource.
        3 => resource: Str [interned],
        /// Name.
        4 => name: Str,
        /// UID.
        5 => uid: Str,
    }

    /// What claims of pods are made from.
    pub struct ResourceClaimTemplate + raw = "k8s.io.api.resource.v1.ResourceClaimTemplate" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// The claims.
        2 => spec: ResourceClaimTemplateSpec,
    }

    /// What a claim is made from.
    pub struct ResourceClaimTemplateSpec = "k8s.io.api.resource.v1.ResourceClaimTemplateSpec" {
        /// Its labels and annotations.
        1 => metadata: ObjectMeta,
        /// Its spec, unparsed.
        2 => spec: Raw as ResourceClaimSpec,
    }

    /// Devices that a driver offers.
    pub struct ResourceSlice = "k8s.io.api.resource.v1.ResourceSlice" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// The devices.
        2 => spec: ResourceSliceSpec,
    }

    /// What controllers read of a slice.
    pub struct ResourceSliceSpec = "k8s.io.api.resource.v1.ResourceSliceSpec" {
        /// The driver.
        1 => driver: Str [interned],
        /// The pool that it is a part of.
        2 => pool: ResourcePool,
        /// The node that has the devices, if only one has.
        3 => node_name: Str [interned],
        /// The devices.
        6 => devices: Vec<Device>,
    }

    /// A pool of devices.
    pub struct ResourcePool = "k8s.io.api.resource.v1.ResourcePool" {
        /// Its name.
        1 => name: Str [interned],
        /// Slices of older generations don't count.
        2 => generation: i64,
        /// How many slices of this generation there are.
        3 => resource_slice_count: i64,
    }

    /// What controllers read of a device.
    pub struct Device = "k8s.io.api.resource.v1.Device" {
        /// Its name.
        1 => name: Str [interned],
        /// Its taints.
        8 => taints: Vec<DeviceTaint>,
    }

    /// A taint of a device.
    pub struct DeviceTaint = "k8s.io.api.resource.v1.DeviceTaint" {
        /// Key.
        1 => key: Str [interned],
        /// Value.
        2 => value: Str [interned],
        /// `NoSchedule`, `NoExecute` or `None`.
        3 => effect: Str [interned],
        /// Since when.
        4 => time_added: Option<Time>,
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

    /// A taint for all devices that are selected.
    pub struct DeviceTaintRule = "k8s.io.api.resource.v1beta2.DeviceTaintRule" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: DeviceTaintRuleSpec,
        /// Observed state.
        3 => status: DeviceTaintRuleStatus,
    }

    /// Which devices get which taint.
    pub struct DeviceTaintRuleSpec = "k8s.io.api.resource.v1beta2.DeviceTaintRuleSpec" {
        /// The devices; none if absent, all if empty.
        1 => device_selector: Option<Box<DeviceTaintSelector>>,
        /// The taint.
        2 => taint: RuleTaint,
    }

    /// Which devices get a taint: those for which all that is said is true.
    pub struct DeviceTaintSelector = "k8s.io.api.resource.v1beta2.DeviceTaintSelector" {
        /// Their driver.
        2 => driver: Option<Str> [interned],
        /// Their pool.
        3 => pool: Option<Str> [interned],
        /// Their name.
        4 => device: Option<Str> [interned],
    }

    /// The taint that a rule gives.
    pub struct RuleTaint = "k8s.io.api.resource.v1beta2.DeviceTaint" {
        /// Key.
        1 => key: Str [interned],
        /// Value.
        2 => value: Str [interned],
        /// `NoSchedule`, `NoExecute` or `None`.
        3 => effect: Str [interned],
        /// Since when.
        4 => time_added: Option<Time>,
    }

    /// What became of a rule.
    pub struct DeviceTaintRuleStatus = "k8s.io.api.resource.v1beta2.DeviceTaintRuleStatus" {
        /// Conditions.
        1 => conditions: Vec<Condition>,
    }

    /// A question: what is in the pools of a driver?
    pub struct ResourcePoolStatusRequest + raw = "k8s.io.api.resource.v1alpha3.ResourcePoolStatusRequest" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// The question.
        2 => spec: ResourcePoolStatusRequestSpec,
        /// The answer.
        3 => status: Option<Box<ResourcePoolStatusRequestStatus>>,
    }

    /// Which pools.
    pub struct ResourcePoolStatusRequestSpec = "k8s.io.api.resource.v1alpha3.ResourcePoolStatusRequestSpec" {
        /// Those of this driver.
        1 => driver: Str [interned],
        /// Only the one of this name.
        2 => pool_name: Option<Str>,
        /// At most so many.
        3 => limit: Option<i32>,
    }

    /// What is in the pools.
    pub struct ResourcePoolStatusRequestStatus = "k8s.io.api.resource.v1alpha3.ResourcePoolStatusRequestStatus" {
        /// One by one.
        2 => pools: Vec<PoolStatus>,
        /// Conditions.
        3 => conditions: Vec<Condition>,
        /// How many pools there are.
        6 => pool_count: Option<i32>,
    }

    /// What is in a pool.
    pub struct PoolStatus = "k8s.io.api.resource.v1alpha3.PoolStatus" {
        /// Its driver.
        1 => driver: Str [interned],
        /// Its name.
        2 => pool_name: Str [interned],
        /// The node that has it, if only one has.
        3 => node_name: Option<Str> [interned],
        /// Devices in all.
        4 => total_devices: Option<i32>,
        /// Devices that were given to claims.
        5 => allocated_devices: Option<i32>,
        /// Devices that are left.
        6 => available_devices: Option<i32>,
        /// Devices that nobody may have.
        7 => unavailable_devices: Option<i32>,
        /// Slices of its generation.
        8 => resource_slice_count: Option<i32>,
        /// Its generation.
        9 => generation: i64,
        /// Why its devices are not counted.
        10 => validation_error: Option<Str>,
    }
}

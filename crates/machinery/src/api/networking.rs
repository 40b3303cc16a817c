//! `networking/v1`, trimmed. ServiceCIDRs are rewritten, so their bytes are kept in `raw`; of IPAddresses only metadata is
//! read: an IPAddress is named after its address.

use super::kind::{ApiVersion, kinds, objects};
use super::meta::{Condition, ObjectMeta, PartialObjectMetadata};
use crate::wire::{Str, message};

const NETWORKING: ApiVersion = ApiVersion { group: "networking.k8s.io", version: "v1" };

kinds! {
    /// ServiceCIDRs.
    SERVICE_CIDRS = NETWORKING.cluster_wide::<ServiceCidr>("ServiceCIDR", "servicecidrs");
    /// IPAddresses, of which the metadata says everything but whose they are.
    IP_ADDRESSES = NETWORKING.cluster_wide::<PartialObjectMetadata>("IPAddress", "ipaddresses").metadata_only();
}

objects! {
    ServiceCidr + raw;
}

message! {
    schema SCHEMA;

    /// Ranges from which Services get their addresses.
    pub struct ServiceCidr + raw = "k8s.io.api.networking.v1.ServiceCIDR" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: ServiceCidrSpec,
        /// Observed state.
        3 => status: ServiceCidrStatus,
    }

    /// What controllers read of a ServiceCIDR's spec.
    pub struct ServiceCidrSpec = "k8s.io.api.networking.v1.ServiceCIDRSpec" {
        /// One range, or one of each IP family.
        1 => cidrs: Vec<Str>,
    }

    /// A ServiceCIDR's status.
    pub struct ServiceCidrStatus = "k8s.io.api.networking.v1.ServiceCIDRStatus" {
        /// Conditions.
        1 => conditions: Vec<Condition>,
    }
}

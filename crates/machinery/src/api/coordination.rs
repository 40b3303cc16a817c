//! `coordination/v1`, trimmed.

use super::kind::{ApiVersion, kinds, objects};
use super::meta::ObjectMeta;
use crate::wire::{Str, message};

const COORDINATION: ApiVersion = ApiVersion { group: "coordination.k8s.io", version: "v1" };

kinds! {
    /// Leases.
    LEASES = COORDINATION.namespaced::<Lease>("Lease", "leases");
}

objects! {
    Lease + raw;
}

message! {
    schema SCHEMA;

    /// A lease.
    pub struct Lease + raw = "k8s.io.api.coordination.v1.Lease" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Who holds it.
        2 => spec: LeaseSpec,
    }

    /// Who holds a lease.
    pub struct LeaseSpec = "k8s.io.api.coordination.v1.LeaseSpec" {
        /// Identity of the holder.
        1 => holder_identity: Str,
        /// For how long others wait after the last renewal.
        2 => lease_duration_seconds: i32,
        /// When the holder took it.
        3 => acquire_time: MicroTime,
        /// When the holder renewed it last.
        4 => renew_time: MicroTime,
        /// How often it changed hands.
        5 => lease_transitions: i32,
    }

    /// A time with microseconds.
    pub struct MicroTime = "k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime" {
        /// Seconds since 1970.
        1 => seconds: i64,
        /// Nanoseconds within the second.
        2 => nanos: i32,
    }
}

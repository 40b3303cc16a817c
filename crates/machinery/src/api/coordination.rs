//! `coordination/v1`, and candidates of `v1beta1`, trimmed.

use super::kind::{ApiVersion, kinds, objects};
use super::meta::{ObjectMeta, PartialObjectMetadata};
use crate::wire::{Keep, Str, message};

const COORDINATION: ApiVersion = ApiVersion { group: "coordination.k8s.io", version: "v1" };
const CANDIDATES: ApiVersion = ApiVersion { group: "coordination.k8s.io", version: "v1beta1" };

kinds! {
    /// Leases.
    LEASES = COORDINATION.namespaced::<Lease>("Lease", "leases");
    /// The same, of which only the renewal is kept: nodes have thousands. Who is told of all hears every few seconds from whoever
    /// leads something, so a watch of them is known to be alive.
    HEARTBEATS = COORDINATION.namespaced::<Heartbeat>("Lease", "leases");
    /// Leases of which only metadata is asked: whose they are, and that they are there.
    IDENTITY_LEASES = COORDINATION.namespaced::<PartialObjectMetadata>("Lease", "leases").metadata_only();
    /// Who stands for a Lease that the API server gives away.
    LEASE_CANDIDATES = CANDIDATES.namespaced::<LeaseCandidate>("LeaseCandidate", "leasecandidates");
}

objects! {
    Lease + raw;
    Heartbeat keeps Keep::BARE;
    LeaseCandidate + raw;
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
        /// Who is to have it in the holder's place, by the API server's choice.
        7 => preferred_holder: Str,
    } + named {
        6 => strategy,
    }

    /// A lease, of which only the renewal matters.
    pub struct Heartbeat = "k8s.io.api.coordination.v1.Lease" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// When it was renewed.
        2 => spec: HeartbeatSpec,
    }

    /// When a lease was renewed.
    pub struct HeartbeatSpec = "k8s.io.api.coordination.v1.LeaseSpec" {
        /// When the holder renewed it last.
        4 => renew_time: MicroTime,
    }

    /// Who stands for a Lease that the API server gives away.
    pub struct LeaseCandidate + raw = "k8s.io.api.coordination.v1beta1.LeaseCandidate" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// For which Lease, and by which versions to be chosen.
        2 => spec: LeaseCandidateSpec,
    }

    /// For which Lease somebody stands.
    pub struct LeaseCandidateSpec = "k8s.io.api.coordination.v1beta1.LeaseCandidateSpec" {
        /// The Lease's name, in the same namespace.
        1 => lease_name: Str,
        /// When the API server asked last whether the candidate is there.
        2 => ping_time: MicroTime,
        /// When the candidate said last that it is.
        3 => renew_time: MicroTime,
        /// Its own version.
        4 => binary_version: Str,
        /// The version that it behaves as.
        5 => emulation_version: Str,
        /// How the API server is to choose.
        6 => strategy: Str,
    }

    /// A time with microseconds.
    pub struct MicroTime = "k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime" {
        /// Seconds since 1970.
        1 => seconds: i64,
        /// Nanoseconds within the second.
        2 => nanos: i32,
    }
}

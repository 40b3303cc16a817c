//! `coordination/v1`, and candidates of `v1beta1`, trimmed.

use super::kind::{ApiVersion, kinds, objects};
use super::meta::{ObjectMeta, PartialObjectMetadata};
use crate::wire::{Field, Keep, Message as _, MessageRow, Source, Str, Value, WallTime, WireError, message};

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

    /// The encoding of a [`MicroTime`].
    pub struct WireMicroTime = "k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime" {
        /// Seconds since 1970.
        1 => seconds: i64,
        /// Nanoseconds.
        2 => nanos: i32,
    }
}

/// A time with microseconds, as Kubernetes' types decode it: nanoseconds below a microsecond are cut off, and the first second of the year 1
/// is unset. The default value is unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MicroTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: i32,
}

impl From<WallTime> for MicroTime {
    fn from(at: WallTime) -> Self {
        if at.is_unset() {
            return Self::default();
        }
        let nanos = i32::try_from(at.subsec_nanoseconds()).unwrap_or_default();
        Self { seconds: at.seconds(), nanos }
    }
}

impl Field for MicroTime {
    const MESSAGE: Option<&'static MessageRow> = Some(WireMicroTime::ROW);

    fn merge(&mut self, value: Value<'_>, source: Source<'_>) -> Result<(), WireError> {
        let mut wire = WireMicroTime::default();
        wire.merge(value, source)?;
        *self = WallTime::new(wire.seconds, wire.nanos / 1000 * 1000).into();
        Ok(())
    }

    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        WireMicroTime { seconds: self.seconds, nanos: self.nanos }.encode(number, out);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::wire::splice::put_varint_field;

    /// Kubernetes' types were seen to read these messages so.
    #[test]
    fn micro_times_are_cut_off_to_microseconds() {
        const UNSET_SECONDS: i64 = -62_135_596_800;
        let read = |seconds: i64, nanos: i64| {
            let mut time = Vec::new();
            put_varint_field(&mut time, 1, seconds as u64);
            put_varint_field(&mut time, 2, nanos as u64);
            let mut spec = vec![0x22, time.len() as u8];
            spec.extend(time);
            let at = LeaseSpec::decode(&Bytes::from(spec)).unwrap().renew_time;
            (at.seconds, at.nanos)
        };
        for (time, expected) in [
            ((0, 5), (0, 0)),
            ((0, 5_999), (0, 5_000)),
            ((1, -5), (1, 0)),
            ((1, -1_500), (0, 999_999_000)),
            ((1, 1_500_000_999), (2, 500_000_000)),
            ((1, (1 << 32) + 1_000), (1, 1_000)),
            ((UNSET_SECONDS, 5), (0, 0)),
            ((UNSET_SECONDS, 2_000), (UNSET_SECONDS, 2_000)),
        ] {
            assert_eq!(read(time.0, time.1), expected, "{time:?}");
        }
        let twice = Bytes::from_static(&[0x22, 2, 8, 5, 0x22, 0]);
        assert_eq!(LeaseSpec::decode(&twice).unwrap().renew_time, MicroTime::default());
    }
}

//! What a replica's Lease looks like, read and written.

use std::time::Duration;

use jiff::Timestamp;

use crate::admin::Group;
use crate::admin::manager::ReplicaState;
use coxswain_machinery::api::Object as _;
use coxswain_machinery::api::coordination::Lease;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::election::Record;
use coxswain_machinery::model::metadata::{ANNOTATIONS, LABELS};
use coxswain_machinery::options::versions::COXSWAIN;
use coxswain_machinery::wire::splice::{Edit, edit};
use coxswain_machinery::wire::{Message, WireError};

/// Namespace of the Leases.
pub const REPLICA_NAMESPACE: &str = "kube-system";
/// What their names begin with; a number follows.
pub const REPLICA_NAME_PREFIX: &str = "coxswain-replica-";
/// Selects them.
pub const REPLICA_SELECTOR: &str = "coxswain.dev/component=replica";
/// Where the replica serves the admin API, as `host:port`; absent if nowhere.
pub const ADMIN_ADDRESS_ANNOTATION: &str = "coxswain.dev/admin-address";
/// The certificate to trust there, in PEM; absent if the serving certificate is not self-signed.
pub const ADMIN_CA_ANNOTATION: &str = "coxswain.dev/admin-ca";
/// The replica's version.
pub const VERSION_ANNOTATION: &str = "coxswain.dev/version";
/// Digest of the flags by which the replica selects controllers, and the replica's identity: an older version that takes a
/// Lease over leaves the annotation of its predecessor.
pub const SELECTION_ANNOTATION: &str = "coxswain.dev/selection";

/// The Lease by which the replica leads, as `NAMESPACE/NAME`, and the replica's identity, as with [`SELECTION_ANNOTATION`].
pub const LEASE_ANNOTATION: &str = "coxswain.dev/lease";

const COMPONENT_LABEL: (&str, &str) = ("coxswain.dev/component", "replica");
const NAME_LABEL: (&str, &str) = ("app.kubernetes.io/name", "coxswain");

/// For how long a sign of life counts.
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(40);

/// What a replica tells the others, and clients, of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Where it serves the admin API, as `host:port`; `None` if nowhere.
    pub admin_address: Option<String>,
    /// The certificate to trust there, in PEM, if the serving certificate is self-signed.
    pub admin_ca: Option<String>,
}

/// A replica, as it writes itself into its Lease.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) identity: String,
    pub(super) started: Timestamp,
    /// Digest of the flags by which it selects controllers.
    pub(super) selection: String,
    /// The replicas with which it fights for a Lease.
    pub(super) group: Group,
}

impl Own {
    /// A new Lease of this name.
    pub(super) fn lease(
        &self,
        name: &str,
        announcement: &Announcement,
        now: Timestamp,
    ) -> Result<Vec<u8>, WireError> {
        let metadata = ObjectMeta {
            name: name.into(),
            namespace: REPLICA_NAMESPACE.into(),
            labels: [COMPONENT_LABEL, NAME_LABEL].into_iter().collect(),
            ..ObjectMeta::default()
        };
        let empty = Lease { metadata, ..Lease::default() }.to_bytes();
        edit(&empty, &self.edits(0, announcement, now))
    }

    /// This Lease, taken or renewed.
    pub(super) fn renewed(
        &self,
        lease: &Lease,
        announcement: &Announcement,
        now: Timestamp,
    ) -> Result<Vec<u8>, WireError> {
        let is_ours = lease.spec.holder_identity == *self.identity;
        let transitions = lease.spec.lease_transitions.saturating_add(i32::from(!is_ours));
        edit(&lease.raw(), &self.edits(transitions, announcement, now))
    }

    fn edits(&self, transitions: i32, announcement: &Announcement, now: Timestamp) -> Vec<Edit> {
        let record = Record {
            holder: self.identity.as_str().into(),
            duration_seconds: LEASE_DURATION.as_secs() as i32,
            acquired: self.started,
            renewed: now,
            transitions,
            successor: coxswain_machinery::wire::Str::EMPTY,
        };
        let mut edits = record.edits();
        edits.push(Edit::MapSet(LABELS, NAME_LABEL.0.to_owned(), NAME_LABEL.1.to_owned()));
        edits.extend(annotations(announcement, Some(self)));
        edits
    }
}

/// This Lease, given up: the next replica may have it.
pub(super) fn released(lease: &Lease, now: Timestamp) -> Result<Vec<u8>, WireError> {
    let mut edits = Record::from(lease).released(None, now).edits();
    edits.extend(annotations(&Announcement::default(), None));
    edit(&lease.raw(), &edits)
}

/// The annotations of a replica; `None` for a Lease that is given up.
fn annotations(announcement: &Announcement, replica: Option<&Own>) -> [Edit; 5] {
    let selection = replica.map(|own| format!("{} {}", own.selection, own.identity));
    let lease = replica.map(|own| format!("{} {}", own.group.lease(), own.identity));
    let annotation = |key: &str, value: Option<&str>| match value {
        Some(value) => Edit::MapSet(ANNOTATIONS, key.to_owned(), value.to_owned()),
        None => Edit::MapRemove(ANNOTATIONS, key.to_owned()),
    };
    [
        annotation(ADMIN_ADDRESS_ANNOTATION, announcement.admin_address.as_deref()),
        annotation(ADMIN_CA_ANNOTATION, announcement.admin_ca.as_deref()),
        annotation(VERSION_ANNOTATION, replica.map(|_| COXSWAIN)),
        annotation(SELECTION_ANNOTATION, selection.as_deref()),
        annotation(LEASE_ANNOTATION, lease.as_deref()),
    ]
}

/// Whether it is a Lease of a replica. No other is ever written.
pub(super) fn is_replicas(lease: &Lease) -> bool {
    let (key, value) = COMPONENT_LABEL;
    lease.metadata.namespace == REPLICA_NAMESPACE
        && lease.metadata.labels.get(key).is_some_and(|held| *held == *value)
}

/// For how long the Lease's last sign of life counts, by its own account.
pub(super) fn lifetime(lease: &Lease) -> Duration {
    Duration::from_secs(u64::from(lease.spec.lease_duration_seconds.max(0).unsigned_abs()))
}

/// The replica that a Lease is of.
pub(super) fn state(lease: &Lease, live: bool) -> ReplicaState {
    let record = Record::from(lease);
    let annotation =
        |key: &str| lease.metadata.annotations.get(key).map(ToString::to_string).unwrap_or_default();
    // An annotation with another identity is left over from a predecessor.
    let own = |key: &str| {
        let value = annotation(key);
        let own = value.split_once(' ').filter(|(_, identity)| **identity == *record.holder);
        own.map(|(value, _)| value.to_owned()).unwrap_or_default()
    };
    ReplicaState {
        identity: record.holder.to_string(),
        admin_address: annotation(ADMIN_ADDRESS_ANNOTATION),
        version: annotation(VERSION_ANNOTATION),
        lease: own(LEASE_ANNOTATION),
        selection: own(SELECTION_ANNOTATION),
        started: record.acquired,
        renewed: record.renewed,
        lease_duration: lifetime(lease),
        live,
    }
}

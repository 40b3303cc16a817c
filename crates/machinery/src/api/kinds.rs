//! The kinds that some controller watches or writes. Each row stands in the file of its messages.

use std::sync::LazyLock;

pub use super::apps::{
    CONTROLLER_REVISION_DOCUMENTS, CONTROLLER_REVISIONS, DAEMON_SETS, DEPLOYMENTS, REPLICA_SETS,
    STATEFUL_SETS,
};
pub use super::autoscaling::HORIZONTAL_POD_AUTOSCALERS;
pub use super::batch::{CRON_JOBS, JOBS};
pub use super::certificates::{
    CERTIFICATE_SIGNING_REQUESTS, CLUSTER_TRUST_BUNDLES, CLUSTER_TRUST_BUNDLES_ALPHA,
    POD_CERTIFICATE_REQUESTS,
};
pub use super::cloud::CLOUD_SERVICES;
pub use super::coordination::{HEARTBEATS, IDENTITY_LEASES, LEASE_CANDIDATES, LEASES};
pub use super::core::{
    CONFIG_MAPS, ENDING_NAMESPACES, NAMESPACES, NODES, REPLICATION_CONTROLLERS, SECRETS, SERVICE_ACCOUNTS,
    SERVICES,
};
pub use super::discovery::ENDPOINT_SLICES;
pub use super::endpoints::ENDPOINTS;
pub use super::events::EVENTS;
use super::kind::Kind;
pub use super::networking::{IP_ADDRESSES, SERVICE_CIDRS};
pub use super::pod::PODS;
pub use super::pod::selinux::SELINUX_PODS;
pub use super::policy::POD_DISRUPTION_BUDGETS;
pub use super::quota::RESOURCE_QUOTAS;
pub use super::rbac::CLUSTER_ROLES;
pub use super::resource::{
    DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS,
    RESOURCE_POOL_STATUS_REQUESTS, RESOURCE_SLICES,
};
pub use super::scheduling::{POD_GROUPS, WORKLOADS};
pub use super::storage::{
    CSI_DRIVERS, CSI_NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES,
    VOLUME_ATTACHMENTS, VOLUME_ATTRIBUTES_CLASSES,
};
pub use super::system::{
    CUSTOM_RESOURCE_DEFINITIONS, STORAGE_VERSION_MIGRATIONS, STORAGE_VERSIONS, VALIDATING_ADMISSION_POLICIES,
};

/// All rows.
pub static ALL: LazyLock<Vec<&'static Kind>> = LazyLock::new(|| {
    [
        super::apps::KINDS,
        super::autoscaling::KINDS,
        super::batch::KINDS,
        super::certificates::KINDS,
        super::cloud::KINDS,
        super::coordination::KINDS,
        super::core::KINDS,
        super::discovery::KINDS,
        super::endpoints::KINDS,
        super::events::KINDS,
        super::networking::KINDS,
        super::pod::KINDS,
        super::pod::selinux::KINDS,
        super::policy::KINDS,
        super::quota::KINDS,
        super::rbac::KINDS,
        super::resource::KINDS,
        super::scheduling::KINDS,
        super::storage::KINDS,
        super::system::KINDS,
    ]
    .concat()
});

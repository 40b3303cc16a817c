//! What keeps the API tidy: garbage, namespaces, quotas, roles of roles, policies that make sense.

pub mod clusterrole_aggregation;
pub mod garbage_collector;
pub mod namespace;
pub mod resourcequota;
pub mod storage_version_migrator;
pub mod storageversion_garbage_collector;
pub mod validatingadmissionpolicy_status;

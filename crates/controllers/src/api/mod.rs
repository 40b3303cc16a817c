//! What keeps the API tidy: garbage, namespaces, quotas, roles of roles.

pub mod clusterrole_aggregation;
pub mod garbage_collector;
pub mod namespace;
pub mod resourcequota;

//! What keeps the API tidy: garbage, namespaces, quotas.

pub mod garbage_collector;
pub mod namespace;
pub mod resourcequota;

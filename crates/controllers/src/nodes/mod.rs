//! Nodes: what becomes of them and of their pods when machines come, go and fail.

pub mod node_ipam;
pub mod node_lifecycle;
pub mod taint_eviction;
pub mod ttl;

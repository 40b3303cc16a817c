//! Nodes: what becomes of them and of their pods when machines come, go and fail.

pub mod taint_eviction;
pub mod ttl;

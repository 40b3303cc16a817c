//! The controllers, one room each, all of one shape, grouped by area, and the registry of them all. An area is a home for what
//! its rooms share. Rooms never do I/O of their own.

pub mod api;
pub mod devices;
#[cfg(test)]
mod fixtures;
pub mod identity;
pub mod live_reads;
pub mod network;
pub mod nodes;
pub mod registry;
pub mod storage;
pub mod workloads;

//! The controllers, one room each, all of one shape, grouped by area. An area is a home for what its rooms share.

pub mod api;
pub mod identity;
pub mod network;
pub mod workloads;

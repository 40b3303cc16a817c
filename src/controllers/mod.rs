//! The controllers, one room each, all of one shape.

pub mod deployment;
pub mod endpoints;
pub mod endpointslice;
pub mod endpointslice_mirroring;
pub mod garbage_collector;
pub mod namespace;
#[cfg(test)]
mod objects;
pub mod replicaset;
pub mod resourcequota;
pub mod root_ca_certificate_publisher;
pub mod service_cidr;
pub mod serviceaccount;
pub mod serviceaccount_token;
mod services;

//! Services: which addresses and ports serve them, and from which ranges their own addresses come.

pub mod endpoints;
pub mod endpointslice;
pub mod endpointslice_mirroring;
#[cfg(test)]
mod objects;
pub mod service_cidr;
mod services;
mod slice_writes;

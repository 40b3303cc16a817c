//! Devices: what there is of them, and who may have it.

pub mod device_taint_eviction;
pub mod resourceclaim;
pub mod resourcepoolstatusrequest;

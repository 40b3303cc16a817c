//! Devices: what there is of them, and who may have it.

pub mod resourcepoolstatusrequest;

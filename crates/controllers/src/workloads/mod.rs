//! Workloads: what keeps pods of one template running.

pub mod daemonset;
pub mod deployment;
pub mod job;
pub mod replicaset;
pub mod replicationcontroller;
pub mod statefulset;

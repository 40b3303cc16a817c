//! Workloads: what keeps pods of one template running.

pub mod daemonset;
pub mod deployment;
pub mod replicaset;
pub mod replicationcontroller;
pub mod statefulset;

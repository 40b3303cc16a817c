//! Workloads: what keeps pods of one template running, what starts them on schedule, how many of them there are to be,
//! and what clears up after them.

pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod horizontal_pod_autoscaler;
pub mod job;
pub mod pod_garbage_collector;
pub mod podgroup_protection;
pub mod replicaset;
pub mod replicationcontroller;
pub mod statefulset;
pub mod ttl_after_finished;

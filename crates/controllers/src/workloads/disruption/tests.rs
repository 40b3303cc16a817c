//! Tables and properties of the disruption controller.

mod failures;
mod fixtures;
mod keys;
mod overlaps;
mod properties;
mod reasons;
mod replicas;
mod stale;
mod statuses;

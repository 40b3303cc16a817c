//! Tables and properties of the autoscaler.

mod answers;
mod counts;
mod fixtures;
mod limits;
mod looks;
mod many;
mod metrics;
mod properties;
mod replicas;
mod scaling;

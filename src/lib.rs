//! Coxswain: a kube-controller-manager in Rust. `ARCHITECTURE.md` is the map.

pub mod admin;
pub mod api;
pub mod cli;
pub mod client;
pub mod controllers;
pub mod election;
pub mod environment;
pub mod events;
pub mod executor;
pub mod framework;
pub mod informer;
pub mod latest;
pub mod manager;
pub mod model;
pub mod options;
pub mod queue;
pub mod random;
pub mod registry;
pub mod serve;
pub mod telemetry;
pub mod wire;

#[cfg(test)]
mod behaviour;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod tidy;

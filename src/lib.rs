//! Coxswain: a kube-controller-manager in Rust. `ARCHITECTURE.md` is the map.

pub mod admin;
pub mod api;
pub mod client;
pub mod controllers;
pub mod election;
pub mod executor;
pub mod framework;
pub mod informer;
pub mod model;
pub mod options;
pub mod serve;
pub mod wire;

//! Coxswain: a kube-controller-manager in Rust. `ARCHITECTURE.md` is the map.

pub mod api;
pub mod client;
pub mod controllers;
pub mod framework;
pub mod informer;
pub mod model;
pub mod options;
pub mod registry;
pub mod wire;

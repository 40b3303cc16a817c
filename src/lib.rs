//! Coxswain: a kube-controller-manager in Rust. `ARCHITECTURE.md` is the map.

pub mod admin;
pub mod cli;
pub mod manager;

#[cfg(test)]
mod behaviour;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod security;
#[cfg(test)]
mod tidy;

//! The room's tables and properties. Nodes, Leases and time are played by [`fixtures`].

mod fixtures;
mod fleet;
mod rounds;
mod taints;

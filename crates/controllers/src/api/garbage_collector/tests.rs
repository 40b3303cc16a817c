//! The graph by itself, decisions by themselves, and both against the model of the API server in any order of events.

mod fixtures;
mod graph;
mod names;
mod patches;
mod plan;
mod properties;
mod room;
mod search;
mod server;
mod unseen;
mod world;

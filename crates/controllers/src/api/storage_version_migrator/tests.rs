//! Tables and properties of the plans, on caches and reads that are made by hand.

mod fixtures;
mod migrator;
mod room;
mod runner;
mod version;

//! The room's tables and properties.

mod admitted;
mod bytes;
mod claims;
mod cluster;
mod failures;
mod fixtures;
mod history;
mod keys;
mod properties;
mod reasons;
mod recreate;
mod rollback;
mod rolling;
mod scaling;
mod statuses;

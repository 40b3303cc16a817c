//! Tables and properties of the plan, and which keys a change concerns.

mod counting;
mod fixtures;
mod keys;
mod properties;
mod scopes;
mod status;

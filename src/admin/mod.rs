//! The admin API: everything about the running manager, listed, watched and changed through typed gRPC.
//!
//! ```text
//! secure port ─► Deadlines ─► Guard (who needs credentials) ─► services ─► authorize (SubjectAccessReview)
//!                                                                 └─► Manager (a trait), EventLog
//! ```
//!
//! `proto/coxswain/admin/v1` is the public face and says what each RPC does. The services know the manager through the
//! trait [`manager::Manager`] alone; overrides are a pure model with a small store. Nothing here reconciles, elects, or
//! holds a connection: it asks the manager and says what came of it.

mod audit;
pub mod authorize;
mod convert;
pub mod critical;
mod deadline;
pub mod errors;
pub mod events;
mod group;
pub mod manager;
mod metrics;
pub mod overrides;
pub mod paging;
pub mod proto;
mod services;
pub mod validate;

pub use group::Group;
pub use manager::Manager;
pub use metrics::AdminMetrics;
#[cfg(test)]
pub(crate) use services::tests as testing;
pub use services::{AdminDeps, AdminOptions, RoutesError, admin_handler, service};

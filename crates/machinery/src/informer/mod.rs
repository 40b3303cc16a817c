//! Informers: a local, indexed, always current copy of the API server's objects, shared by all controllers.
//!
//! ```text
//! API server ──watch──► reflector ──decode──► Store ──(old, new)──► handlers ──keys──► work queues
//! ```
//!
//! One informer per kind and selector, started on first use; when its last user lets go it stops and its memory is
//! freed. Handlers are synchronous and run in the informer's own task: nothing awaits there, so no consumer can stall
//! the reader, and what waits is bounded by the number of keys. The layer is not generic over kinds; a [`Kind`] is a
//! row of functions. It never writes to the API server.
//!
//! [`Kind`]: crate::api::Kind

mod deliveries;
mod epochs;
mod list_watch;
mod metrics;
mod reflector;
mod set;
mod stats;
mod store;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

pub use deliveries::{Covered, Deliveries};
pub use epochs::{CONFIRM_AFTER, Epoch, Epochs};
pub use list_watch::ListWatch;
pub(crate) use reflector::Frames;
pub use set::{
    InformerHandle, InformerStopped, Informers, InformersConfig, NewHandler, Registration, WatchTiming,
};
pub use stats::InformerStats;
pub use store::{
    Awaited, Delta, Dependents, EventHandler, HandlerId, HandlerPanics, Indexed, Labeled, Lister, Store,
    Wake, downcast,
};

/// What a panic said.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

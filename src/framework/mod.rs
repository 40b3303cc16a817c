//! What every controller is made of: the room's shape and its descriptor.
//!
//! A room gives the framework three things: which objects it watches and which key a change concerns, how to observe
//! (synchronous reads from the stores into a view), and how to plan (a pure function of the view and the time). The
//! framework owns queues, workers, retries, expectations, metrics, spans, events and shutdown; a room repeats none
//! of it.

mod descriptor;
pub mod expectations;
mod room;

pub use descriptor::{
    Build, BuildError, BuildFn, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, KeyMap, Loop, Watch,
};
pub use room::{ObserveError, Reconcile, Room, RoomAdapter};

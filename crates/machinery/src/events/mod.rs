//! The event recorder: tells people, through `core/v1` Events, what controllers do.
//!
//! ```text
//!   controller ──emit──► bounded queue ──► correlator ──┬─ new ──────► POST   ┐
//!              (never waits, drops when full)           ├─ repeated ─► PATCH  ├─► retried while nobody answers
//!                                                       └─ too many ► nothing ┘
//! ```
//!
//! Events behave as client-go's do: repetitions of an event raise its count, many similar ones are combined, and a
//! source that talks too much about one object is cut off for a while. Every recorder has a queue, a correlator and a
//! task of its own, so that a controller whose events are refused or slow holds up no other. An event is a hint, not a
//! record: it may get lost, and nothing may rest on it. Orders of operators are the exception: a [`Journal`] writes each as an
//! object of its own.

mod broadcaster;
mod correlator;
mod journal;
mod lanes;
mod queue;
mod sink;
mod writer;

#[cfg(test)]
mod tests;

pub use broadcaster::{EventBroadcaster, EventMetrics, Recorder};
pub use journal::Journal;
pub use sink::EventSink;

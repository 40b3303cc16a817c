//! The log of what the manager does: a ring with a bound, and readers that follow it.
//!
//! ```text
//! controllers ──publish──► EventLog: ring of Arc<LogEvent> ──► LogReader (a cursor) ──► stream
//!                               └─ pump: wakes readers, at most once per interval
//! ```
//!
//! Publishing is a push under a short lock and, when somebody reads, one wake of the pump: its cost does not depend on
//! how many readers there are or how slow they are. Readers have no queues: they follow the ring with a cursor, and one
//! that the ring has overtaken is told how many events it missed. An event is encoded when the first reader wants it,
//! once for all of them.

mod convert;
mod encoded;
mod filter;
mod log;
mod record;

#[cfg(test)]
mod tests;

pub use encoded::EncodedResponse;
pub use filter::Filter;
pub(crate) use filter::bit;
pub use log::{CannotStart, EventLog, LogItem, LogReader, Start};
pub use record::{ApiWrite, Body, LogEvent, ObjectRef, OverrideChange, ReconcileAttempt, Severity};

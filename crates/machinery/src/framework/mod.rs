//! What every controller is made of: the room's shape and its descriptor.
//!
//! A room gives the framework three things: which objects it watches and which key a change concerns, how to observe
//! (synchronous reads from the stores into a view), and how to plan (a pure function of the view and the time). The
//! framework owns queues, workers, retries, expectations, metrics, spans, events and shutdown; a room repeats none
//! of it.

mod blocking;
mod caches;
mod change;
mod clock_watch;
mod contention;
mod demand;
mod descriptor;
mod documents;
mod dynamic;
pub mod expectations;
mod freshness;
mod instance;
mod metrics;
mod parsing;
mod phase;
mod progress;
mod reader;
mod reads;
mod report;
pub mod rig;
mod room;
pub mod scales;
mod settings;
mod shared_reads;
mod slow_reads;
mod stats;
mod terminating;
#[cfg(test)]
mod tests;
mod trace;
mod unheard;
pub mod wake;
mod watch;
mod watchdog;
mod worker;

pub use blocking::BlockingPool;
pub use demand::{Explained, Synced};
pub use descriptor::{
    Build, BuildError, BuildFn, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop,
};
pub use documents::{AnyDocument, DocumentForm};
pub use dynamic::{ApiResource, DynamicRoom, DynamicWatches, Enqueue, ServedRow};
pub use expectations::ExpectationsRegistry;
pub use freshness::KeyWait;
pub use instance::{Instance, RunningLoop, Runtime, StartError, Stop, Watched, WriteReport};
pub use metrics::{ReconcileMetrics, RoomMetrics};
pub use parsing::{ParsedValue, Parser, ParserInput};
pub use phase::Phase;
pub use reads::{
    AccessQuestion, AccessVerdict, ApiError, ApiResources, DeclaredRead, DiscoveryError, InvalidPath,
    LiveRead, ObjectList, ObjectPage, Observation, PageQuery, Pass, Query, Read, Reads, RequestPath,
    RequestUri,
};
pub use report::{ReconcileStart, Report, Requeue, Unreported};
pub use room::{
    EndedPass, FirstSlice, Memory, Meter, NextSlice, ObserveError, PlanNote, QpsFactor, Reconcile,
    ReconcileEnd, Room, RoomAdapter,
};
pub use settings::{BucketConfig, LoopSettings, QueueConfig, Tries, workers};
pub use stats::{KeyFailure, LoopStats};
pub use unheard::{UnheardNote, UnheardUsers};
pub use watch::{CacheSource, Debounce, KeyMap, Selecting, WakeUp, Watch};
pub use watchdog::{SlowPoll, Watchdog};
pub use worker::Outcome;

//! What a queue shows of itself.

use std::sync::Arc;
use std::time::Duration;

/// A queue at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSnapshot<K> {
    /// The queue's name, as in its metrics.
    pub name: Arc<str>,
    /// Keys that wait, counting those in flight that were added again; as `workqueue_depth`.
    pub depth: usize,
    /// Keys being worked on.
    pub in_flight: usize,
    /// Keys that will be added later. A key may be delayed and wait at the same time.
    pub delayed: usize,
    /// How long the key that waits longest has waited.
    pub oldest_age: Option<Duration>,
    /// The keys that have waited longest, oldest first; as many as were asked for.
    pub oldest: Vec<QueuedKey<K>>,
    /// The keys being worked on, longest first.
    pub running: Vec<QueuedKey<K>>,
    /// Whether the queue takes nothing more in.
    pub shutting_down: bool,
}

/// The figures of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSummary {
    /// Keys that wait, counting those in flight that were added again; as `workqueue_depth`.
    pub depth: usize,
    /// Keys being worked on.
    pub in_flight: usize,
    /// Keys that will be added later.
    pub delayed: usize,
    /// How long the key that waits longest has waited.
    pub oldest_age: Option<Duration>,
    /// How long the key that is worked on longest has been worked on.
    pub longest_running: Option<Duration>,
}

/// A key in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedKey<K> {
    /// The key.
    pub key: K,
    /// How long it has waited, or has been worked on.
    pub age: Duration,
    /// How often it has failed since it was last forgotten.
    pub retries: u32,
}

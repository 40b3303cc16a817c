//! Queues events that an overloaded API server refused with `Retry-After`, in one lane per namespace.
//!
//! A webhook that refuses the events of one namespace delays no other namespace. A lane keeps the order of its events and has one request in
//! flight, so a burst of events leaves most of the rate limit to the controller.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::broadcaster::QUEUE;
use super::correlator::Entry;
use super::writer::{Delivery, Patience};
use crate::random::HashMap;
use crate::wire::Str;

/// Maximum number of lanes per recorder. With more refused namespaces the API server is overloaded for all, and the recorder waits.
pub(super) const MAX_LANES: usize = 16;

/// An event and its remaining attempts.
type Waiting = (Entry, Patience);

/// The lanes of one recorder.
pub(super) struct Lanes {
    delivery: Arc<Delivery>,
    /// Ends all lanes at once.
    abort: CancellationToken,
    tasks: TaskTracker,
    /// Events per namespace, without the event that the task of the lane holds.
    behind: Arc<Mutex<HashMap<Str, VecDeque<Waiting>>>>,
}

impl Lanes {
    pub(super) fn new(delivery: Arc<Delivery>, abort: CancellationToken) -> Self {
        Self { delivery, abort, tasks: TaskTracker::new(), behind: Arc::default() }
    }

    /// Appends an event to the lane of its namespace. Returns the event if there is no such lane. In full lanes the longest one loses its
    /// newest event, so one namespace never takes the places of the others.
    pub(super) fn join(&self, entry: Entry) -> Option<Entry> {
        let mut behind = self.behind.lock();
        let waiting: usize = behind.values().map(VecDeque::len).sum();
        let longest = behind.values().map(VecDeque::len).max().unwrap_or(0);
        let lane = behind.get(&entry.event.metadata.namespace).map(VecDeque::len);
        let Some(length) = lane else { return Some(entry) };
        if waiting >= QUEUE {
            self.delivery.outcomes.dropped.inc();
            if length == longest {
                return None;
            }
            if let Some(lane) = behind.values_mut().find(|lane| lane.len() == longest) {
                lane.pop_back();
            }
        }
        if let Some(lane) = behind.get_mut(&entry.event.metadata.namespace) {
            lane.push_back((entry, Patience::default()));
        }
        None
    }

    /// Spawns the task of a new lane, which retries the event after `wait`. Returns the event if there are [`MAX_LANES`] lanes.
    pub(super) fn open(&self, entry: Entry, patience: Patience, wait: Duration) -> Option<Waiting> {
        let namespace = entry.event.metadata.namespace.clone();
        {
            let mut behind = self.behind.lock();
            if behind.len() >= MAX_LANES {
                return Some((entry, patience));
            }
            behind.insert(namespace.clone(), VecDeque::new());
        }
        let (delivery, behind, abort) =
            (Arc::clone(&self.delivery), Arc::clone(&self.behind), self.abort.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = abort.cancelled() => {
                    let left = behind.lock().remove(&namespace).map_or(0, |lane| lane.len());
                    delivery.outcomes.dropped.inc_by(1 + left as u64);
                }
                () = drain(&delivery, &behind, &namespace, (entry, patience), wait) => {}
            }
        });
        None
    }

    /// Waits for the end of all lanes. The caller must not open a lane afterwards.
    pub(super) async fn end(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Writes the events of a lane in order and removes the empty lane.
async fn drain(
    delivery: &Delivery,
    behind: &Mutex<HashMap<Str, VecDeque<Waiting>>>,
    namespace: &Str,
    first: Waiting,
    wait: Duration,
) {
    let mut next = Some((first, wait));
    while let Some(((entry, patience), wait)) = next {
        delivery.write_after(wait, &entry, patience).await;
        let mut behind = behind.lock();
        let follower = behind.get_mut(namespace).and_then(VecDeque::pop_front);
        if follower.is_none() {
            behind.remove(namespace);
        }
        next = follower.map(|follower| (follower, Duration::ZERO));
    }
}

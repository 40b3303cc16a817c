//! The events of one recorder that wait for its writer.
//!
//! Namespaces take turns. In a full queue the namespace with most events loses its newest one, so a namespace that reports without end
//! takes no places of the others.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::writer::Emitted;
use crate::random::HashMap;
use crate::wire::Str;

/// Creates a queue for a number of events.
pub(super) fn event_queue(places: usize) -> (EventSender, EventReceiver) {
    let lanes = EventLanes { places, senders: 1, ..EventLanes::default() };
    let queue = Arc::new(EventQueue { lanes: Mutex::new(lanes), changed: Notify::new() });
    (EventSender(Arc::clone(&queue)), EventReceiver(queue))
}

struct EventQueue {
    lanes: Mutex<EventLanes>,
    /// An event was added, or no more will be.
    changed: Notify,
}

/// Events by namespace.
#[derive(Default)]
struct EventLanes {
    places: usize,
    waiting: usize,
    /// Lanes with at least one event, by namespace.
    lanes: HashMap<Str, VecDeque<Emitted>>,
    /// Their lengths, to find the longest.
    lengths: BTreeSet<(usize, Str)>,
    /// Their order: the namespace whose turn it is first.
    turns: VecDeque<Str>,
    senders: usize,
    is_closed: bool,
}

impl EventLanes {
    /// Changes a lane and keeps the books about its length.
    fn change<T>(&mut self, namespace: &Str, change: impl FnOnce(&mut VecDeque<Emitted>) -> T) -> T {
        let lane = self.lanes.entry(namespace.clone()).or_default();
        let before = lane.len();
        let changed = change(lane);
        let after = lane.len();
        if after == 0 {
            self.lanes.remove(namespace);
        }
        self.lengths.remove(&(before, namespace.clone()));
        if after > 0 {
            self.lengths.insert((after, namespace.clone()));
        }
        self.waiting = self.waiting + after - before;
        changed
    }

    /// Adds an event. Returns whether this one or another was dropped.
    fn push(&mut self, event: Emitted) -> bool {
        if self.is_closed {
            return true;
        }
        let namespace = event.0.regarding.key.namespace.clone();
        let length = self.lanes.get(&namespace).map_or(0, VecDeque::len);
        let is_full = self.waiting >= self.places;
        if is_full {
            let Some((longest, of)) = self.lengths.last().cloned() else { return true };
            if length + 1 >= longest {
                return true;
            }
            // The longest lane has two events or more, so it keeps its turn.
            drop(self.change(&of, VecDeque::pop_back));
        }
        if length == 0 {
            self.turns.push_back(namespace.clone());
        }
        self.change(&namespace, |lane| lane.push_back(event));
        is_full
    }

    fn pop(&mut self) -> Option<Emitted> {
        let namespace = self.turns.pop_front()?;
        let event = self.change(&namespace, VecDeque::pop_front);
        if self.lanes.contains_key(&namespace) {
            self.turns.push_back(namespace);
        }
        event
    }
}

/// Adds events to a queue.
pub(super) struct EventSender(Arc<EventQueue>);

impl EventSender {
    /// Adds an event and never waits. Returns whether this event or another one was dropped for lack of a place.
    pub(super) fn send(&self, event: Emitted) -> bool {
        let dropped = self.0.lanes.lock().push(event);
        self.0.changed.notify_one();
        dropped
    }
}

impl Clone for EventSender {
    fn clone(&self) -> Self {
        self.0.lanes.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for EventSender {
    fn drop(&mut self) {
        self.0.lanes.lock().senders -= 1;
        self.0.changed.notify_one();
    }
}

/// Takes events out of a queue.
pub(super) struct EventReceiver(Arc<EventQueue>);

impl EventReceiver {
    /// Returns the next event; `None` when there is none and no more can come. May be dropped while it waits.
    pub(super) async fn recv(&mut self) -> Option<Emitted> {
        loop {
            {
                let mut lanes = self.0.lanes.lock();
                if let Some(event) = lanes.pop() {
                    return Some(event);
                }
                if lanes.is_closed || lanes.senders == 0 {
                    return None;
                }
            }
            // Whatever happened since is remembered: there is one receiver.
            self.0.changed.notified().await;
        }
    }

    /// Refuses all further events.
    pub(super) fn close(&mut self) {
        self.0.lanes.lock().is_closed = true;
    }

    /// Drops the events that wait. Returns their number.
    pub(super) fn clear(&mut self) -> usize {
        let mut lanes = self.0.lanes.lock();
        std::iter::from_fn(|| lanes.pop()).count()
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::api::kinds::PODS;
    use crate::model::Key;
    use crate::model::plan::{EventSpec, Regarding};

    fn event(namespace: u8, number: usize) -> Emitted {
        let key = Key::new(format!("ns-{namespace}"), "web");
        let regarding = Regarding { kind: &PODS, key, uid: "u".into(), resource_version: "1".into() };
        let spec = EventSpec { regarding, warning: false, reason: "Any", message: number.to_string() };
        (spec, Timestamp::UNIX_EPOCH)
    }

    proptest! {
        /// Each namespace has an equal share of a full queue, its events stay in order, and each event is written or counted.
        #[test]
        fn namespaces_share_a_queue_and_keep_their_order(steps in prop::collection::vec((0..5u8, any::<bool>()), 0..300)) {
            const PLACES: usize = 20;
            let (sender, receiver) = event_queue(PLACES);
            let (mut sent, mut dropped, mut read) = (0, 0, Vec::new());
            for (namespace, takes) in steps {
                let before = receiver.0.lanes.lock().lanes.get(&Str::from(format!("ns-{namespace}"))).map_or(0, VecDeque::len);
                sent += 1;
                let was_dropped = sender.send(event(namespace, sent));
                dropped += usize::from(was_dropped);
                let lanes = receiver.0.lanes.lock();
                let longest = lanes.lanes.values().map(VecDeque::len).max().unwrap_or(0);
                let after = lanes.lanes[&Str::from(format!("ns-{namespace}"))].len();
                prop_assert!(after > before || before + 1 >= longest, "{before} of {longest} places");
                prop_assert_eq!(lanes.waiting, lanes.lanes.values().map(VecDeque::len).sum::<usize>());
                prop_assert!(lanes.waiting <= PLACES && lanes.turns.len() == lanes.lanes.len());
                drop(lanes);
                if takes {
                    read.extend(receiver.0.lanes.lock().pop());
                }
            }
            read.extend(std::iter::from_fn(|| receiver.0.lanes.lock().pop()));
            prop_assert_eq!(read.len() + dropped, sent);
            for namespace in 0..5u8 {
                let of = |(spec, _): &&Emitted| spec.regarding.key.namespace.as_str() == format!("ns-{namespace}");
                let numbers: Vec<usize> = read.iter().filter(of).map(|(spec, _)| spec.message.parse().unwrap()).collect();
                prop_assert!(numbers.is_sorted(), "{numbers:?}");
            }
        }
    }
}

//! The events of one recorder that wait for its writer.
//!
//! Namespaces take turns. In a full queue the namespace with most events loses its newest one, so a namespace that reports without end
//! takes no places of the others.
//!
//! Users who may create namespaces can fill the queue with one event for each, and each of these namespaces has a turn. So objects that are
//! in no namespace (nodes, volumes) and those in `kube-system` each have a tenth of the places that no other namespace can take, and one
//! turn in ten. Namespaces of users share the other places as if there were no others.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::writer::Emitted;
use crate::random::HashMap;
use crate::wire::Str;

/// The namespaces that users cannot create: the empty one of objects without a namespace, and `kube-system`.
const SYSTEM: [&str; 2] = ["", "kube-system"];
/// The inverse of the share of each of [`SYSTEM`]: one place of this many is reserved, and at least one turn of this many.
const SYSTEM_SHARE: usize = 10;

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
    /// For each of [`SYSTEM`], the number of turns that other namespaces took in a row while it had events.
    waited: [usize; SYSTEM.len()],
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

    /// Returns the number of places that no other namespace can take from this one.
    fn reserved(&self, namespace: &str) -> usize {
        if is_system(namespace) { self.places / SYSTEM_SHARE } else { 0 }
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
            let Some(loser) = self.loser(&namespace, length) else { return true };
            drop(self.change(&loser, VecDeque::pop_back));
            if !self.lanes.contains_key(&loser)
                && let Some(at) = self.turns.iter().rposition(|waiting| *waiting == loser)
            {
                self.turns.remove(at);
            }
        }
        if length == 0 {
            self.turns.push_back(namespace.clone());
        }
        self.change(&namespace, |lane| lane.push_back(event));
        is_full
    }

    /// Returns the namespace whose newest event is dropped for a new event of `namespace`, which has `length` events; `None` if the new event
    /// is dropped instead.
    fn loser(&self, namespace: &Str, length: usize) -> Option<Str> {
        // The search skips at most the two of `SYSTEM`.
        let (longest, of) =
            self.lengths.iter().rev().find(|(length, namespace)| *length > self.reserved(namespace))?;
        if length + 1 < *longest {
            return Some(of.clone());
        }
        if length >= self.reserved(namespace) {
            return None;
        }
        if *longest > 1 {
            return Some(of.clone());
        }
        // Each namespace of a user has one event: the one that would be written last is dropped, as if it had been sent after the new one.
        self.turns.iter().rfind(|namespace| !is_system(namespace)).cloned()
    }

    fn pop(&mut self) -> Option<Emitted> {
        let namespace = self.next_turn()?;
        for (waited, system) in self.waited.iter_mut().zip(SYSTEM) {
            let waits = namespace.as_str() != system && self.lanes.contains_key(system);
            *waited = if waits { *waited + 1 } else { 0 };
        }
        let event = self.change(&namespace, VecDeque::pop_front);
        if self.lanes.contains_key(&namespace) {
            self.turns.push_back(namespace);
        }
        event
    }

    /// Removes and returns the namespace whose turn it is: one of [`SYSTEM`] that is owed its share of turns, or else the first one.
    fn next_turn(&mut self) -> Option<Str> {
        let most = self.waited.iter().zip(SYSTEM).max_by_key(|(waited, _)| **waited);
        if let Some((waited, overdue)) = most
            && *waited + 1 >= SYSTEM_SHARE
            && let Some(at) = self.turns.iter().position(|namespace| namespace.as_str() == overdue)
        {
            return self.turns.remove(at);
        }
        self.turns.pop_front()
    }
}

fn is_system(namespace: &str) -> bool {
    SYSTEM.contains(&namespace)
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

    fn event_in(namespace: &str, number: usize) -> Emitted {
        let key = Key::new(namespace, "web");
        let regarding = Regarding { kind: &PODS, key, uid: "u".into(), resource_version: "1".into() };
        let spec = EventSpec { regarding, warning: false, reason: "Any", message: number.to_string() };
        (spec, Timestamp::UNIX_EPOCH)
    }

    fn lengths<const N: usize>(receiver: &EventReceiver, namespaces: [&str; N]) -> [usize; N] {
        let lanes = receiver.0.lanes.lock();
        namespaces.map(|namespace| lanes.lanes.get(namespace).map_or(0, VecDeque::len))
    }

    fn read_all(receiver: &EventReceiver) -> Vec<Emitted> {
        std::iter::from_fn(|| receiver.0.lanes.lock().pop()).collect()
    }

    #[test]
    fn many_namespaces_leave_places_for_the_system() {
        let (sender, receiver) = event_queue(1000);
        let mut dropped = 0;
        let mut send =
            |namespace: &str, number| dropped += usize::from(sender.send(event_in(namespace, number)));
        for number in 0..2000 {
            send(&format!("ns-{number}"), number);
        }
        for number in 0..150 {
            send("", number);
            send("kube-system", number);
        }
        // The namespaces that sent first have the other places.
        let shares = ["", "kube-system", "ns-0", "ns-799", "ns-800"];
        assert_eq!(lengths(&receiver, shares), [100, 100, 1, 1, 0]);
        for number in 2000..4000 {
            send(&format!("ns-{number}"), number);
        }
        assert_eq!(lengths(&receiver, shares), [100, 100, 1, 1, 0], "reserved places are not taken back");
        assert_eq!(dropped + 1000, 2000 + 300 + 2000, "each event is written or counted");
        assert_eq!(read_all(&receiver).len(), 1000);
        let lanes = receiver.0.lanes.lock();
        assert!(lanes.lanes.is_empty() && lanes.lengths.is_empty() && lanes.turns.is_empty());
    }

    /// The longest namespace of a user loses events to the system, even if the system has nearly as many. A namespace with one event keeps it.
    #[test]
    fn the_system_takes_its_places_from_the_longest_namespace_of_users() {
        let (sender, receiver) = event_queue(100);
        for number in 0..300 {
            sender.send(event_in(&format!("ns-{}", number % 12), number));
        }
        sender.send(event_in("small", 0));
        for number in 0..10 {
            sender.send(event_in("", number));
        }
        assert_eq!(lengths(&receiver, ["", "small"]), [10, 1]);
    }

    #[test]
    fn many_namespaces_leave_turns_for_the_system() {
        let (sender, receiver) = event_queue(1000);
        for number in 0..500 {
            sender.send(event_in(&format!("ns-{number}"), number));
        }
        for number in 0..50 {
            sender.send(event_in("", number));
            sender.send(event_in("kube-system", number));
        }
        let read = read_all(&receiver);
        for system in SYSTEM {
            let turns = read
                .iter()
                .enumerate()
                .filter(|(_, (spec, _))| spec.regarding.key.namespace.as_str() == system);
            let turns: Vec<usize> = turns.map(|(at, _)| at).collect();
            assert_eq!(turns.len(), 50);
            assert!(
                turns[0] < SYSTEM_SHARE + 1 && turns.is_sorted_by(|a, b| b - a <= SYSTEM_SHARE + 1),
                "{turns:?}"
            );
        }
        assert_eq!(read.len(), 600);
    }

    #[test]
    fn with_few_namespaces_the_system_has_a_turn_like_each_of_them() {
        let (sender, receiver) = event_queue(100);
        for number in 0..6 {
            for namespace in ["", "kube-system", "web"] {
                sender.send(event_in(namespace, number));
            }
        }
        let turns = read_all(&receiver);
        let turns: Vec<&str> = turns.iter().map(|(spec, _)| spec.regarding.key.namespace.as_str()).collect();
        assert_eq!(turns, ["", "kube-system", "web"].repeat(6));
    }

    #[test]
    fn queue_full_of_system_events_accepts_an_event_of_a_user_namespace() {
        let (sender, receiver) = event_queue(20);
        for number in 0..100 {
            sender.send(event_in("", number));
            sender.send(event_in("kube-system", number));
        }
        assert_eq!(lengths(&receiver, SYSTEM), [10, 10]);
        sender.send(event_in("web", 0));
        assert_eq!(
            lengths(&receiver, ["web"]),
            [1],
            "beyond its reserved places the system competes like other namespaces"
        );
        let lanes = receiver.0.lanes.lock();
        assert_eq!((lanes.waiting, lanes.turns.len()), (20, 3));
    }

    /// Returns a namespace by number. The first two are those of the system.
    fn namespace(number: u8) -> String {
        SYSTEM.get(usize::from(number)).map_or_else(|| format!("ns-{number}"), |system| (*system).to_owned())
    }

    proptest! {
        /// Each namespace has an equal share of a full queue, the system no less than what is reserved, the events of a namespace stay in
        /// order, and each event is written or counted.
        #[test]
        fn namespaces_share_a_queue_and_keep_their_order(steps in prop::collection::vec((0..8u8, any::<bool>()), 0..300)) {
            const PLACES: usize = 20;
            let (sender, receiver) = event_queue(PLACES);
            let (mut sent, mut dropped, mut read) = (0, 0, Vec::new());
            let all: [String; 8] = std::array::from_fn(|number| namespace(number as u8));
            let all = all.each_ref().map(String::as_str);
            for (number, takes) in steps {
                let reserved = all.map(|namespace| receiver.0.lanes.lock().reserved(namespace));
                let before = lengths(&receiver, all);
                sent += 1;
                let was_dropped = sender.send(event_in(all[usize::from(number)], sent));
                dropped += usize::from(was_dropped);
                let after = lengths(&receiver, all);
                let at = usize::from(number);
                let longest = (0..all.len()).filter(|of| after[*of] > reserved[*of]).map(|of| after[of]).max();
                prop_assert!(
                    after[at] > before[at] || (before[at] + 1 >= longest.unwrap_or(0) && before[at] >= reserved[at]),
                    "{before:?} {after:?}"
                );
                for of in 0..all.len() {
                    prop_assert!(after[of] >= before[of].min(reserved[of]), "{before:?} {after:?}");
                }
                let lanes = receiver.0.lanes.lock();
                prop_assert_eq!(lanes.waiting, after.iter().sum::<usize>());
                prop_assert!(lanes.waiting <= PLACES);
                let mut turns: Vec<&Str> = lanes.turns.iter().collect();
                turns.sort_unstable();
                turns.dedup();
                prop_assert_eq!((lanes.turns.len(), turns.len()), (lanes.lanes.len(), lanes.lanes.len()));
                drop(lanes);
                if takes {
                    read.extend(receiver.0.lanes.lock().pop());
                }
            }
            read.extend(read_all(&receiver));
            prop_assert_eq!(read.len() + dropped, sent);
            for namespace in all {
                let of = |(spec, _): &&Emitted| spec.regarding.key.namespace.as_str() == namespace;
                let numbers: Vec<usize> = read.iter().filter(of).map(|(spec, _)| spec.message.parse().unwrap()).collect();
                prop_assert!(numbers.is_sorted(), "{numbers:?}");
            }
        }
    }
}

//! [`Journal`]: events of which each is a record of its own.

use jiff::Timestamp;
use parking_lot::Mutex;

use super::broadcaster::log;
use super::correlator::{Entry, event_name, new_event};
use super::writer::Delivery;
use crate::model::clock::SharedClock;
use crate::model::plan::EventSpec;
use crate::wire::{Str, Time};

/// Writes events that nobody may hide behind others: none is combined with another, counted up or dropped by a rate limit,
/// as a [`Recorder`](super::Recorder)'s are. For the orders of operators, which are few.
pub struct Journal {
    component: Str,
    delivery: Delivery,
    clock: SharedClock,
    /// The number in the last event's name: two events of one moment need two names.
    last_name: Mutex<i128>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("component", &self.component).finish_non_exhaustive()
    }
}

impl Journal {
    pub(super) fn new(delivery: Delivery, clock: SharedClock) -> Self {
        Self { component: (&*delivery.component).into(), delivery, clock, last_name: Mutex::new(0) }
    }

    /// Logs the event and writes it. Returns when it is written, refused or given up after all tries, which are logged and
    /// counted; after the shutdown of the broadcaster there is one try.
    pub async fn write(&self, event: EventSpec) {
        let at: Timestamp = self.clock.now();
        log(&self.delivery.component, &event);
        let EventSpec { regarding, warning, reason, message } = event;
        let number = {
            let mut last = self.last_name.lock();
            *last = at.as_nanosecond().max(*last + 1);
            *last
        };
        let name = event_name(&regarding.key.name, number);
        let event =
            new_event(&self.component, regarding, (warning, reason, message.into()), name, Time::from(at));
        self.delivery.write(&Entry { event, patch: None }).await;
    }
}

//! The journal: each event is an object of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::record::{refused, timeout};
use super::*;
use crate::api::events::Event;
use crate::client::ApiError;
use crate::events::{EventBroadcaster, EventMetrics, EventSink};
use crate::model::clock::ManualClock;
use crate::telemetry::Registry;

/// Keeps what is created, and answers so before.
#[derive(Default)]
struct Store {
    failures: Mutex<Vec<ApiError>>,
    created: Mutex<Vec<Event>>,
}

impl EventSink for Store {
    fn create<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            if let Some(error) = self.failures.lock().pop() {
                return Err(error);
            }
            self.created.lock().push(event.clone());
            Ok(())
        })
    }

    fn patch<'a>(&'a self, _: &'a Key, _: &'a Patch) -> BoxFuture<'a, Result<(), ApiError>> {
        panic!("a journal changes no event")
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_orders_of_one_moment_are_fifty_events() {
    let metrics = EventMetrics::register(&Registry::new()).unwrap();
    let broadcaster = EventBroadcaster::new(Arc::new(ManualClock::new(at(0))), metrics);
    // No answer, and answers that a recorder takes as final.
    let failures = vec![refused(500, "InternalError", ""), refused(429, "TooManyRequests", ""), timeout()];
    let store = Arc::new(Store { failures: Mutex::new(failures), ..Store::default() });
    let journal = broadcaster.journal_to("test", Arc::<Store>::clone(&store));
    // Half of them say the same, too.
    for order in 0..50 {
        journal.write(event(pod("overrides"), &format!("order {}", order / 2))).await;
    }
    let created = store.created.lock();
    let names: BTreeSet<_> = created.iter().map(|event| event.metadata.name.clone()).collect();
    assert_eq!((created.len(), names.len()), (50, 50));
    assert!(created.iter().all(|event| event.count == 1 && event.reason == "SuccessfulCreate"));
    assert_eq!(created[49].message, "order 24");
    assert_eq!(created[0].involved_object.name, "overrides");
}

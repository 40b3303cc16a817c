//! What an event of the admin API costs: to the controller that publishes it, and per reader that takes it.

use std::sync::Arc;
use std::time::Duration;

use coxswain::admin::events::{Body, EncodedResponse, EventLog, Filter, LogItem, Start};
use coxswain_machinery::framework::Requeue;
use coxswain_machinery::model::clock::SystemClock;
use divan::counter::ItemsCount;
use futures::FutureExt;

const CAPACITY: usize = 10_000;
/// Events that the readers of one measurement take.
const EVENTS: usize = 100;

fn log() -> Arc<EventLog> {
    Arc::new(EventLog::new("bench", CAPACITY, Arc::new(SystemClock)))
}

fn publish(log: &EventLog) {
    let body = Body::ReconcileRequeued {
        queue: "deployment",
        cause: Requeue::Planned,
        delay: Duration::from_secs(1),
    };
    log.publish(Some("deployment-controller"), None, None, body);
}

#[divan::bench(args = [0, 1, 1000])]
fn publish_beside_readers(bencher: divan::Bencher<'_, '_>, readers: usize) {
    let log = log();
    let held: Vec<_> =
        (0..readers).map(|_| log.read(Filter::default(), Start::Live, false).expect("it starts")).collect();
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| publish(&log));
    assert_eq!(held.len(), log.readers());
}

/// A hundred events to each reader, encoded once for all of them.
#[divan::bench(args = [1, 100, 1000], sample_count = 20, sample_size = 1)]
fn fan_out(bencher: divan::Bencher<'_, '_>, readers: usize) {
    bencher.counter(ItemsCount::new(readers * EVENTS)).with_inputs(log).bench_local_values(|log| {
        let mut held: Vec<_> = (0..readers)
            .map(|_| log.read(Filter::default(), Start::Live, false).expect("it starts"))
            .collect();
        (0..EVENTS).for_each(|_| publish(&log));
        let mut bytes = 0;
        for reader in &mut held {
            let mut events = 0;
            while events < EVENTS {
                let item = reader.next().now_or_never().flatten().expect("there is more");
                if let LogItem::Event(event) = item {
                    events += 1;
                    bytes += EncodedResponse::of_event(&event).bytes().len();
                }
            }
        }
        bytes
    });
}

//! What a key costs on its way through a work queue.

use coxswain_machinery::model::Key;
use coxswain_machinery::queue::{QueueMetrics, WorkQueue};
use coxswain_machinery::telemetry::Registry;
use divan::counter::ItemsCount;
use futures::FutureExt;

/// Keys that wait at the same time.
const MANY: usize = 1000;

fn queue() -> (WorkQueue<Key>, Vec<Key>) {
    let metrics = QueueMetrics::register(&Registry::new()).expect("nothing else is registered");
    let keys = (0..MANY).map(|at| Key::new("default", format!("web-{at}"))).collect();
    (WorkQueue::new("bench", &metrics), keys)
}

/// A key is added to an empty queue, taken, and done with.
fn round(queue: &WorkQueue<Key>, key: &Key) {
    queue.add(key.clone());
    let item = queue.get().now_or_never().flatten().expect("a key waits");
    queue.forget(item.key());
    item.done();
}

/// Rounds of one key after the other.
pub(crate) fn rounds() -> impl FnMut() {
    let (queue, keys) = queue();
    let mut at = 0;
    move || {
        round(&queue, &keys[at % MANY]);
        at += 1;
    }
}

#[divan::bench]
fn add_get_done(bencher: divan::Bencher<'_, '_>) {
    let (queue, keys) = queue();
    let mut next = keys.iter().cycle();
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        if let Some(key) = next.next() {
            round(&queue, key);
        }
    });
}

/// A thousand keys are added three times each, then taken: they come once.
#[divan::bench]
fn add_thrice_get_once(bencher: divan::Bencher<'_, '_>) {
    let (queue, keys) = queue();
    bencher.counter(ItemsCount::new(MANY)).bench_local(|| {
        for key in keys.iter().chain(&keys).chain(&keys) {
            queue.add(key.clone());
        }
        for _ in 0..MANY {
            queue.get().now_or_never().flatten().expect("a key waits").done();
        }
        assert!(queue.is_empty());
    });
}

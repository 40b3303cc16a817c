//! Many threads add, many workers take: every key is worked on after its last add, by one worker at a time, and no
//! worker sleeps while a key waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::environment::Threads;

const KEYS: usize = 64;
const ADDERS: u64 = 4;
const WORKERS: usize = 8;
const ADDS: u64 = 20_000;

#[derive(Default)]
struct Cell {
    /// Raised before each add.
    added: AtomicU64,
    /// What `added` was when the key was last taken.
    seen: AtomicU64,
    busy: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_key_is_worked_on_after_its_last_add() {
    let queue: WorkQueue<usize> =
        WorkQueue::new("stress", &QueueMetrics::register(&Registry::new()).unwrap());
    let cells: Arc<Vec<Cell>> = Arc::new((0..KEYS).map(|_| Cell::default()).collect());
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (queue, cells) = (queue.clone(), Arc::clone(&cells));
        workers.spawn(async move {
            while let Some(item) = queue.get().await {
                let cell = &cells[*item.key()];
                let added = cell.added.load(Ordering::SeqCst);
                assert!(!cell.busy.swap(true, Ordering::SeqCst), "{} is worked on twice", item.key());
                tokio::task::yield_now().await;
                cell.seen.fetch_max(added, Ordering::SeqCst);
                cell.busy.store(false, Ordering::SeqCst);
            }
        });
    }
    #[expect(clippy::disallowed_methods, reason = "what is tested is threads")]
    let adders: Vec<_> = (0..ADDERS)
        .map(|seed| {
            let (queue, cells) = (queue.clone(), Arc::clone(&cells));
            std::thread::spawn(move || {
                let mut random = seed + 1;
                for _ in 0..ADDS {
                    // A linear congruential generator: the threads need no better one.
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let key = (random >> 33) as usize % KEYS;
                    cells[key].added.fetch_add(1, Ordering::SeqCst);
                    match (random >> 60) & 0xf {
                        0 => queue.add_after(key, Duration::from_micros(random >> 54)),
                        1 => {
                            queue.add_rate_limited(key);
                        }
                        2 => {
                            queue.forget(&key);
                            queue.add(key);
                        }
                        _ => queue.add(key),
                    }
                }
                // Whoever failed is added once more without delay: what is measured is loss, not backoff.
                (0..KEYS).for_each(|key| queue.add(key));
            })
        })
        .collect();
    Threads::Own.blocking(move || adders.into_iter().for_each(|adder| adder.join().unwrap())).await.unwrap();
    queue.shut_down_with_drain().await;
    while let Some(joined) = workers.join_next().await {
        joined.unwrap();
    }
    for (key, cell) in cells.iter().enumerate() {
        assert_eq!(cell.seen.load(Ordering::SeqCst), cell.added.load(Ordering::SeqCst), "{key}");
    }
}

/// Two keys at a time, each time when all workers have run dry, and whoever gets the first one waits for the second: a
/// wakeup that gets lost leaves a key behind that nobody else comes for.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wakeup_is_lost_when_the_queue_runs_dry() {
    let queue: WorkQueue<usize> = WorkQueue::new("dry", &QueueMetrics::register(&Registry::new()).unwrap());
    let finished = Arc::new(tokio::sync::Semaphore::new(0));
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (queue, finished, both) = (queue.clone(), Arc::clone(&finished), Arc::clone(&both));
        workers.spawn(async move {
            while let Some(item) = queue.get().await {
                both.wait().await;
                item.done();
                finished.add_permits(1);
            }
        });
    }
    let rounds = async {
        for _ in 0..20_000 {
            queue.add(1);
            queue.add(2);
            finished.acquire_many(2).await.unwrap().forget();
        }
    };
    // Not a measurement: without a limit, a lost wakeup would hang the test.
    tokio::time::timeout(Duration::from_mins(1), rounds).await.unwrap();
    queue.shut_down();
    workers.join_all().await;
}

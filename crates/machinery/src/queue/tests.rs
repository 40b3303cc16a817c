//! Tables of the queue's semantics; [`model`] compares it with a naive one, [`stress`] runs it on threads.

mod delays;
mod memory;
mod model;
mod retries;
mod stress;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::advance;

use super::limit::Bucket;
use super::*;
use crate::telemetry::Registry;
use crate::telemetry::encode_text;

fn queue() -> WorkQueue<&'static str> {
    WorkQueue::new("test", &QueueMetrics::register(&Registry::new()).unwrap())
}

/// The item that could be taken now.
fn take<K: Clone + Eq + Hash + Send + 'static>(queue: &WorkQueue<K>) -> Option<Item<K>> {
    queue.get().now_or_never().flatten()
}

/// Takes and finishes whatever can be taken now.
fn work_off(queue: &WorkQueue<&'static str>) -> Vec<&'static str> {
    std::iter::from_fn(|| take(queue).map(|item| *item.key())).collect()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test(start_paused = true)]
async fn keys_come_in_the_order_of_their_first_add_and_once() {
    let queue = queue();
    for key in ["b", "a", "b", "c", "a"] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 3);
    assert_eq!(work_off(&queue), ["b", "a", "c"]);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_added_in_flight_is_handed_out_again_and_not_before() {
    let queue = queue();
    queue.add("a");
    let item = take(&queue).unwrap();
    queue.add("a");
    queue.add("a");
    queue.add("b");
    assert_eq!(work_off(&queue), ["b"]);
    item.done();
    assert_eq!(work_off(&queue), ["a"]);
    assert_eq!(queue.snapshot(9).depth, 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cools_down_collects_what_comes_meanwhile() {
    let queue = queue();
    for add_at in [None, Some(0), Some(40)] {
        queue.add("a");
        take(&queue).unwrap().cool_down(ms(50));
        if let Some(at) = add_at {
            advance(ms(at)).await;
            queue.add("a");
            queue.add("b");
            assert_eq!(work_off(&queue), ["b"], "others do not rest");
            advance(ms(49 - at)).await;
            assert!(work_off(&queue).is_empty());
            advance(ms(1)).await;
            assert_eq!(work_off(&queue), ["a"], "once");
        }
        advance(ms(60)).await;
        assert!(work_off(&queue).is_empty(), "nothing came meanwhile");
        queue.add("a");
        assert_eq!(work_off(&queue), ["a"], "and what comes later waits for nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cooldown_is_counted_from_when_the_key_was_taken() {
    let queue = queue();
    for (took, cools) in [(20, true), (50, false), (80, false)] {
        queue.add("a");
        let item = take(&queue).unwrap();
        advance(ms(took)).await;
        queue.add("a");
        item.cool_down(ms(50));
        if cools {
            advance(ms(49 - took)).await;
            assert!(work_off(&queue).is_empty());
            advance(ms(1)).await;
        }
        assert_eq!(work_off(&queue), ["a"], "after {took} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cooldown_is_over_for_whoever_asks_and_at_the_end() {
    let queue = queue();
    let cools = |added: bool| {
        queue.add("a");
        take(&queue).unwrap().cool_down(ms(50));
        if added {
            queue.add("a");
        }
    };
    for added in [false, true] {
        cools(added);
        queue.add_first(&"a");
        assert_eq!(work_off(&queue), ["a"]);
        advance(ms(50)).await;
        assert!(work_off(&queue).is_empty());
    }
    cools(true);
    queue.shut_down();
    assert_eq!(work_off(&queue), ["a"], "nothing that was taken in is lost");
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_panicking_worker_leaves_no_key_in_flight() {
    let queue = queue();
    queue.add("a");
    let mut workers = JoinSet::new();
    let worker = queue.clone();
    workers.spawn(async move {
        let item = worker.get().await.unwrap();
        panic!("{}", item.key());
    });
    assert!(workers.join_next().await.unwrap().unwrap_err().is_panic());
    assert_eq!(queue.snapshot(0).in_flight, 0);
    queue.add("a");
    assert_eq!(work_off(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn the_delay_that_ends_first_counts() {
    for (delays, due) in [(vec![50, 20], 20), (vec![20, 50], 20), (vec![30], 30), (vec![9, 9, 8], 8)] {
        let queue = queue();
        for delay in &delays {
            queue.add_after("a", ms(*delay));
        }
        assert_eq!(queue.snapshot(0).delayed, 1);
        advance(ms(due - 1)).await;
        assert_eq!(work_off(&queue), [] as [&str; 0], "{delays:?}");
        advance(ms(1)).await;
        assert_eq!(work_off(&queue), ["a"], "{delays:?}");
        advance(ms(100)).await;
        assert_eq!(work_off(&queue), [] as [&str; 0], "{delays:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_add_is_independent_of_an_immediate_one() {
    let queue = queue();
    queue.add_after("a", ms(10));
    queue.add("a");
    assert_eq!(work_off(&queue), ["a"]);
    advance(ms(10)).await;
    assert_eq!(work_off(&queue), ["a"]);
    queue.add_after("b", Duration::ZERO);
    assert_eq!(work_off(&queue), ["b"]);
    queue.add_after("c", Duration::MAX);
    assert_eq!(queue.snapshot(0).delayed, 1);
}

#[tokio::test(start_paused = true)]
async fn keys_that_fall_due_keep_their_place_among_those_added() {
    let queue = queue();
    queue.add_after("second", ms(5));
    queue.add("first");
    advance(ms(7)).await;
    queue.add("third");
    assert_eq!(work_off(&queue), ["first", "second", "third"]);
}

#[test]
fn backoff_doubles_up_to_its_limit() {
    let config = QueueConfig::default();
    for (failures, delay) in
        [(0, ms(5)), (1, ms(10)), (4, ms(80)), (17, ms(655_360)), (18, ms(1_000_000)), (40, ms(1_000_000))]
    {
        assert_eq!(config.backoff(failures), delay, "{failures}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_bucket_gives_its_burst_and_then_its_rate() {
    let mut bucket = Bucket::new(BucketConfig { qps: 10.0, burst: 100 });
    let now = Instant::now();
    assert!((0..100).all(|_| bucket.reserve(now).is_zero()));
    assert_eq!(bucket.reserve(now), ms(100));
    assert_eq!(bucket.reserve(now), ms(200));
    // After a second ten tokens came: two were taken in advance.
    let later = now + ms(1000);
    assert!((0..8).all(|_| bucket.reserve(later).is_zero()));
    assert_eq!(bucket.reserve(later), ms(100));
    // It never holds more than its burst.
    let much_later = now + Duration::from_hours(24);
    assert!((0..100).all(|_| bucket.reserve(much_later).is_zero()));
    assert_eq!(bucket.reserve(much_later), ms(100));
    let mut none = Bucket::new(BucketConfig { qps: 0.0, burst: 1 });
    assert!(none.reserve(now).is_zero());
    assert_eq!(none.reserve(now), Duration::from_hours(24));
}

#[tokio::test(start_paused = true)]
async fn failures_delay_a_key_until_it_is_forgotten() {
    let queue = queue();
    for (retries, delay) in [(1, 5), (2, 10), (3, 20)] {
        queue.add_rate_limited("a");
        assert_eq!(queue.retries(&"a"), retries);
        advance(ms(delay - 1)).await;
        assert!(queue.is_empty());
        advance(ms(1)).await;
        assert_eq!(work_off(&queue), ["a"]);
    }
    queue.forget(&"a");
    queue.forget(&"never seen");
    assert_eq!(queue.retries(&"a"), 0);
    queue.add_rate_limited("a");
    advance(ms(5)).await;
    assert_eq!(work_off(&queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn the_bucket_is_shared_by_all_keys() {
    let config = QueueConfig { bucket: Some(BucketConfig { qps: 10.0, burst: 1 }), ..QueueConfig::default() };
    let queue = WorkQueue::with_config("test", config, &QueueMetrics::register(&Registry::new()).unwrap());
    for key in ["a", "b", "c"] {
        queue.add_rate_limited(key);
    }
    for (at, keys) in [(5, vec!["a"]), (95, vec!["b"]), (100, vec!["c"])] {
        advance(ms(at)).await;
        assert_eq!(work_off(&queue), keys);
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_due_soon_after_one_another_are_taken_together() {
    let config = QueueConfig { slack: ms(100), ..QueueConfig::default() };
    let queue = WorkQueue::with_config("test", config, &QueueMetrics::register(&Registry::new()).unwrap());
    let workers = workers(&queue, 4);
    for (key, due) in [("a", 1000), ("b", 1060), ("c", 1099), ("d", 1101)] {
        queue.add_after(key, ms(due));
    }
    tokio::time::sleep(ms(3000)).await;
    // What has no delay is taken at once.
    queue.add_after("later", ms(10));
    queue.add("now");
    tokio::time::sleep(ms(1)).await;
    queue.shut_down();
    let got = all(workers).await;
    assert_eq!(got, [(ms(1100), "a"), (ms(1100), "b"), (ms(1100), "c"), (ms(1201), "d"), (ms(3000), "now")]);
}

/// Workers that write down when they got which key.
fn workers(queue: &WorkQueue<&'static str>, count: usize) -> JoinSet<Vec<(Duration, &'static str)>> {
    let mut workers = JoinSet::new();
    let start = Instant::now();
    for _ in 0..count {
        let queue = queue.clone();
        workers.spawn(async move {
            let mut got = Vec::new();
            while let Some(item) = queue.get().await {
                got.push((start.elapsed(), *item.key()));
                tokio::time::sleep(ms(1000)).await;
            }
            got
        });
    }
    workers
}

async fn all(workers: JoinSet<Vec<(Duration, &'static str)>>) -> Vec<(Duration, &'static str)> {
    let mut got = workers.join_all().await.concat();
    got.sort_unstable();
    got
}

#[tokio::test(start_paused = true)]
async fn keys_that_fall_due_together_each_wake_a_worker() {
    let queue = queue();
    let workers = workers(&queue, 4);
    tokio::time::sleep(ms(1)).await;
    for key in ["a", "b", "c"] {
        queue.add_after(key, ms(50));
    }
    tokio::time::sleep(ms(100)).await;
    queue.shut_down();
    assert_eq!(all(workers).await, [(ms(51), "a"), (ms(51), "b"), (ms(51), "c")]);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_delay_shortens_the_wait() {
    let queue = queue();
    let workers = workers(&queue, 2);
    queue.add_after("late", ms(500));
    tokio::time::sleep(ms(1)).await;
    queue.add_after("early", ms(10));
    tokio::time::sleep(ms(3000)).await;
    queue.shut_down();
    assert_eq!(all(workers).await, [(ms(11), "early"), (ms(500), "late")]);
}

#[tokio::test(start_paused = true)]
async fn when_the_timekeeper_goes_another_worker_takes_over() {
    let queue = queue();
    queue.add_after("a", ms(50));
    let mut first = JoinSet::new();
    let worker = queue.clone();
    first.spawn(async move { worker.get().await.map(|item| *item.key()) });
    tokio::task::yield_now().await;
    let second = workers(&queue, 1);
    tokio::time::sleep(ms(1)).await;
    first.shutdown().await;
    tokio::time::sleep(ms(100)).await;
    queue.shut_down();
    assert_eq!(all(second).await, [(ms(50), "a")]);
}

#[tokio::test(start_paused = true)]
async fn a_timekeeper_that_gets_a_key_finds_a_successor() {
    let queue = queue();
    let workers = workers(&queue, 2);
    tokio::time::sleep(ms(1)).await;
    queue.add_after("delayed", ms(2500));
    tokio::time::sleep(ms(1)).await;
    // Goes to the other worker, which lines up behind the timekeeper when it is done.
    queue.add("other");
    tokio::time::sleep(ms(1998)).await;
    // Goes to the timekeeper, which is busy with it when the delay is over.
    queue.add("timekeeper");
    tokio::time::sleep(ms(5000)).await;
    queue.shut_down();
    assert_eq!(all(workers).await, [(ms(2), "other"), (ms(2000), "timekeeper"), (ms(2501), "delayed")]);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_in_flight_goes_to_whoever_waits() {
    let queue = queue();
    queue.add("a");
    let item = take(&queue).unwrap();
    let workers = workers(&queue, 1);
    queue.add("a");
    tokio::time::sleep(ms(10)).await;
    drop(item);
    tokio::time::sleep(ms(10)).await;
    queue.shut_down();
    assert_eq!(all(workers).await, [(ms(10), "a")]);
}

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_what_waits_is_handed_out_and_nothing_else() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add_after("due", ms(10));
    queue.add_after("later", ms(11));
    let item = take(&queue).unwrap();
    queue.add("a");
    // Nobody has looked at the queue since this key fell due.
    advance(ms(10)).await;
    queue.shut_down();
    assert!(queue.is_shutting_down());
    queue.add("x");
    queue.add_after("x", ms(1));
    queue.add_rate_limited("x");
    assert_eq!(queue.retries(&"x"), 0);
    advance(ms(20)).await;
    assert_eq!(work_off(&queue), ["b", "due"]);
    drop(item);
    assert_eq!(work_off(&queue), ["a"]);
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_all_who_wait() {
    let queue = queue();
    queue.add_after("later", ms(10));
    let workers = workers(&queue, 3);
    tokio::time::sleep(ms(1)).await;
    queue.shut_down();
    assert_eq!(all(workers).await, []);
}

#[tokio::test(start_paused = true)]
async fn an_immediate_shutdown_forgets_what_waits() {
    let queue = queue();
    queue.add("in flight");
    queue.add("waiting");
    queue.add_after("later", ms(10));
    let item = take(&queue).unwrap();
    queue.add("in flight");
    queue.shut_down_now();
    assert!(queue.get().await.is_none());
    drop(item);
    assert!(queue.get().await.is_none());
    let snapshot = queue.snapshot(9);
    assert_eq!((snapshot.depth, snapshot.in_flight, snapshot.delayed), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_what_waits_and_what_is_in_flight() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    let item = take(&queue).unwrap();
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    queue.add("c");
    assert_eq!(work_off(&queue), ["b"]);
    assert!(drain.as_mut().now_or_never().is_none());
    drop(item);
    drain.await;
    assert!(queue.get().await.is_none());
    queue.shut_down_with_drain().await;
}

#[tokio::test(start_paused = true)]
async fn another_shutdown_ends_a_drain() {
    let queue = queue();
    queue.add("a");
    let item = take(&queue).unwrap();
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(drain.as_mut().now_or_never().is_none());
    queue.shut_down();
    drain.await;
    drop(item);
}

fn lines(registry: &Registry) -> Vec<String> {
    let text = encode_text(registry);
    let line = |line: &&str| !line.starts_with('#') && !line.contains("_bucket");
    text.lines().filter(line).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn the_metrics_are_the_original_s() {
    let registry = Registry::new();
    let metrics = QueueMetrics::register(&registry).unwrap();
    let queue = WorkQueue::new("deployment", &metrics);
    queue.add("a");
    queue.add("a");
    queue.add("b");
    queue.add_after("c", ms(10));
    advance(ms(1500)).await;
    let item = take(&queue).unwrap();
    assert_eq!(item.waited(), ms(1500));
    advance(ms(500)).await;
    let other = take(&queue).unwrap();
    queue.add("b");
    advance(ms(2000)).await;
    let text = [
        "workqueue_adds_total{name=\"deployment\"} 4",
        "workqueue_depth{name=\"deployment\"} 2",
        "workqueue_longest_running_processor_seconds{name=\"deployment\"} 2.5",
        "workqueue_queue_duration_seconds_sum{name=\"deployment\"} 3.5",
        "workqueue_queue_duration_seconds_count{name=\"deployment\"} 2",
        "workqueue_retries_total{name=\"deployment\"} 1",
        "workqueue_unfinished_work_seconds{name=\"deployment\"} 4.5",
        "workqueue_work_duration_seconds_sum{name=\"deployment\"} 0",
        "workqueue_work_duration_seconds_count{name=\"deployment\"} 0",
    ];
    assert_eq!(lines(&registry), text);
    drop((item, other));
    let after = lines(&registry);
    assert!(
        after.contains(&"workqueue_work_duration_seconds_sum{name=\"deployment\"} 4.5".to_owned()),
        "{after:?}"
    );
    assert!(
        after.contains(&"workqueue_unfinished_work_seconds{name=\"deployment\"} 0".to_owned()),
        "{after:?}"
    );
    let bounds: Vec<_> = encode_text(&registry)
        .lines()
        .filter_map(|line| {
            line.strip_prefix("workqueue_queue_duration_seconds_bucket{name=\"deployment\",le=\"")
        })
        .map(|line| line.split('"').next().unwrap_or_default().to_owned())
        .collect();
    let expected = "1e-08,1e-07,1e-06,9.999999999999999e-06,9.999999999999999e-05,0.001,0.01,0.1,1,10,+Inf";
    assert_eq!(bounds.join(","), expected);
    drop(queue);
    let gone = lines(&registry);
    assert!(gone.contains(&"workqueue_depth{name=\"deployment\"} 0".to_owned()), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn two_queues_of_one_name_share_their_metrics() {
    let registry = Registry::new();
    let metrics = QueueMetrics::register(&registry).unwrap();
    let (old, new) = (WorkQueue::new("q", &metrics), WorkQueue::new("q", &metrics));
    old.add("a");
    new.add("a");
    let items = (take(&old).unwrap(), take(&new).unwrap());
    advance(ms(1000)).await;
    let both = lines(&registry);
    assert!(both.contains(&"workqueue_unfinished_work_seconds{name=\"q\"} 2".to_owned()), "{both:?}");
    assert!(
        both.contains(&"workqueue_longest_running_processor_seconds{name=\"q\"} 1".to_owned()),
        "{both:?}"
    );
    drop((items, old));
    let one = lines(&registry);
    assert!(one.contains(&"workqueue_unfinished_work_seconds{name=\"q\"} 0".to_owned()), "{one:?}");
    drop(new);
    let none = lines(&registry);
    assert!(none.contains(&"workqueue_unfinished_work_seconds{name=\"q\"} 0".to_owned()), "{none:?}");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_the_oldest_keys() {
    let queue = queue();
    queue.add("taken");
    let item = take(&queue).unwrap();
    queue.add_rate_limited("failed");
    advance(ms(5)).await;
    assert_eq!(queue.len(), 1);
    advance(ms(95)).await;
    queue.add("taken");
    advance(ms(100)).await;
    queue.add("young");
    queue.add_after("later", ms(10));
    let row = |key, age, retries| QueuedKey { key, age: ms(age), retries };
    let snapshot = queue.snapshot(2);
    let expected = QueueSnapshot {
        name: "test".into(),
        depth: 3,
        in_flight: 1,
        delayed: 1,
        oldest_age: Some(ms(195)),
        oldest: vec![row("failed", 195, 1), row("taken", 100, 0)],
        running: vec![row("taken", 200, 0)],
        shutting_down: false,
    };
    assert_eq!(snapshot, expected);
    assert_eq!(queue.snapshot(0).oldest_age, Some(ms(195)));
    assert_eq!(queue.snapshot(usize::MAX).oldest.len(), 3);
    drop(item);
}

#[tokio::test(start_paused = true)]
async fn a_summary_has_the_figures_of_a_snapshot_and_is_computed_ten_times_a_second() {
    let queue = queue();
    queue.add("taken");
    let item = take(&queue).unwrap();
    advance(ms(100)).await;
    queue.add("waits");
    queue.add_after("later", ms(500));
    advance(ms(20)).await;
    let expected = QueueSummary {
        depth: 1,
        in_flight: 1,
        delayed: 1,
        oldest_age: Some(ms(20)),
        longest_running: Some(ms(120)),
    };
    assert_eq!(queue.summary(), expected);
    // Within 100 ms nothing is computed again, nor is the queue's lock taken.
    queue.add("another");
    advance(ms(99)).await;
    let held = queue.shared.state.lock();
    assert_eq!(queue.summary(), expected);
    drop(held);
    advance(ms(1)).await;
    assert_eq!((queue.summary().depth, queue.summary().oldest_age), (2, Some(ms(120))));
    drop(item);
}

#[tokio::test(start_paused = true)]
async fn a_key_can_be_put_before_all_others() {
    let queue = queue();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    queue.add_first(&"c");
    queue.add_first(&"d");
    let mut order = Vec::new();
    while !queue.is_empty() {
        order.push(*queue.get().await.unwrap().key());
    }
    assert_eq!(order, ["d", "c", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_handed_out_with_the_time_of_its_first_change() {
    let queue = queue();
    let debounce = Duration::from_secs(2);
    let begun = Instant::now();
    queue.add_changed("a", debounce);
    advance(Duration::from_secs(1)).await;
    queue.add_changed("a", debounce);
    let item = queue.get().await.unwrap();
    assert_eq!(
        (item.changed_at(), begun.elapsed()),
        (Some(begun), debounce),
        "the first of those that were gathered"
    );
    // One that comes during the work is another one, unless the work comes to nothing.
    advance(Duration::from_secs(1)).await;
    let later = Instant::now();
    queue.add_changed("a", Duration::ZERO);
    drop(item);
    let item = queue.get().await.unwrap();
    assert_eq!(item.changed_at(), Some(later));
    item.unanswered();
    queue.add_rate_limited("a");
    drop(item);
    advance(Duration::from_secs(1)).await;
    queue.add_changed("a", Duration::ZERO);
    let item = queue.get().await.unwrap();
    assert_eq!(item.changed_at(), Some(later), "it is still to be answered");
    queue.forget(&"a");
    drop(item);
    queue.add("a");
    assert_eq!(queue.get().await.unwrap().changed_at(), None, "nothing has changed");
    queue.add("a");
    let now = Instant::now();
    queue.add_changed("a", Duration::ZERO);
    queue.add_changed("a", Duration::ZERO);
    assert_eq!(queue.get().await.unwrap().changed_at(), Some(now), "it waited for something else");
    assert!(queue.is_empty());
}

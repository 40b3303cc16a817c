//! The queue against a naive model of what client-go's queues promise, and workers against lost keys.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const INTERVAL: i64 = 100;
const BURST: i64 = 3;
const CONFIG: QueueConfig = QueueConfig {
    slack: Duration::ZERO,
    base_delay: Duration::from_millis(5),
    max_delay: Duration::from_millis(60),
    bucket: Some(BucketConfig { qps: 10.0, burst: 3 }),
};

#[derive(Clone, Debug)]
enum Op {
    Add(u8),
    AddAfter(u8, u64),
    AddRateLimited(u8),
    Forget(u8),
    Get,
    Done(usize),
    CoolDown(usize, u64),
    Advance(u64),
    ShutDown,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = || 0_u8..5;
    let op = prop_oneof![
        6 => key().prop_map(Op::Add),
        4 => (key(), 0_u64..120).prop_map(|(key, delay)| Op::AddAfter(key, delay)),
        4 => key().prop_map(Op::AddRateLimited),
        2 => key().prop_map(Op::Forget),
        8 => Just(Op::Get),
        4 => (0_usize..4).prop_map(Op::Done),
        3 => (0_usize..4, 0_u64..60).prop_map(|(at, cooldown)| Op::CoolDown(at, cooldown)),
        4 => (0_u64..80).prop_map(Op::Advance),
    ];
    (prop::collection::vec(op, 0..120), prop::option::weighted(0.3, 0_usize..120)).prop_map(
        |(mut ops, at)| {
            if let Some(at) = at {
                ops.insert(at.min(ops.len()), Op::ShutDown);
            }
            ops
        },
    )
}

/// The sets and lists of the documentation, each by itself; times in milliseconds.
#[derive(Default)]
struct Model {
    now: u64,
    closed: bool,
    queue: Vec<u8>,
    dirty: BTreeSet<u8>,
    /// Since when.
    processing: BTreeMap<u8, u64>,
    /// In the order in which they were told; the last is whether it is the end of a cooldown.
    delayed: Vec<(u64, u8, bool)>,
    failures: BTreeMap<u8, u32>,
    /// What the bucket lacks, in milliseconds of refill.
    spent: i64,
}

impl Model {
    fn add(&mut self, key: u8) {
        if !self.closed && self.dirty.insert(key) && !self.processing.contains_key(&key) && !self.cools(key) {
            self.queue.push(key);
        }
    }

    fn add_after(&mut self, key: u8, delay: u64) {
        if self.closed {
            return;
        }
        if delay == 0 {
            return self.add(key);
        }
        let at = self.now + delay;
        match self.delayed.iter().position(|&(_, held, cools)| held == key && !cools) {
            Some(held) if self.delayed[held].0 <= at => {}
            Some(held) => {
                self.delayed.remove(held);
                self.delayed.push((at, key, false));
            }
            None => self.delayed.push((at, key, false)),
        }
    }

    fn add_rate_limited(&mut self, key: u8) {
        if self.closed {
            return;
        }
        let failures = self.failures.entry(key).or_default();
        let backoff = (5 * 2_u64.pow((*failures).min(20))).min(60);
        *failures += 1;
        self.spent += INTERVAL;
        let lacking = (self.spent - BURST * INTERVAL).max(0);
        self.add_after(key, backoff.max(lacking as u64));
    }

    fn get(&mut self) -> Option<u8> {
        if self.queue.is_empty() {
            return None;
        }
        let key = self.queue.remove(0);
        assert!(self.dirty.remove(&key) && self.processing.insert(key, self.now).is_none());
        Some(key)
    }

    fn cools(&self, key: u8) -> bool {
        self.delayed.iter().any(|&(_, held, cools)| held == key && cools)
    }

    fn done(&mut self, key: u8, cooldown: u64) {
        let cooled = self.processing.remove(&key).unwrap() + cooldown;
        if cooled > self.now && !self.closed {
            self.delayed.push((cooled, key, true));
        } else if self.dirty.contains(&key) {
            self.queue.push(key);
        }
    }

    fn advance(&mut self, by: u64) {
        for _ in 0..by {
            self.now += 1;
            self.spent = (self.spent - 1).max(0);
            while let Some(due) = self.delayed.iter().position(|&(at, ..)| at == self.now) {
                let (_, key, cools) = self.delayed.remove(due);
                if cools { self.wake(key) } else { self.add(key) }
            }
        }
    }

    fn wake(&mut self, key: u8) {
        if self.dirty.contains(&key) {
            self.queue.push(key);
        }
    }

    fn shut_down(&mut self) {
        self.closed = true;
        let mut delayed = std::mem::take(&mut self.delayed);
        delayed.sort_by_key(|&(at, ..)| at);
        for (_, key, _) in delayed.into_iter().filter(|&(.., cools)| cools) {
            self.wake(key);
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

async fn compare(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let queue = WorkQueue::with_config("model", CONFIG, &QueueMetrics::register(&Registry::new()).unwrap());
    let mut model = Model::default();
    let mut items: Vec<Item<u8>> = Vec::new();
    for op in ops {
        match op {
            Op::Add(key) => {
                queue.add(key);
                model.add(key);
            }
            Op::AddAfter(key, delay) => {
                queue.add_after(key, ms(delay));
                model.add_after(key, delay);
            }
            Op::AddRateLimited(key) => {
                queue.add_rate_limited(key);
                model.add_rate_limited(key);
            }
            Op::Forget(key) => {
                queue.forget(&key);
                model.failures.remove(&key);
            }
            Op::Get => {
                let got = queue.get().now_or_never();
                prop_assert_eq!(matches!(got, Some(None)), model.closed && model.queue.is_empty());
                let got = got.flatten();
                prop_assert_eq!(got.as_ref().map(|item| *item.key()), model.get());
                items.extend(got);
            }
            Op::Done(at) if at < items.len() => {
                let item = items.remove(at);
                model.done(*item.key(), 0);
                item.done();
            }
            Op::CoolDown(at, cooldown) if at < items.len() => {
                let item = items.remove(at);
                model.done(*item.key(), cooldown);
                item.cool_down(ms(cooldown));
            }
            Op::Done(_) | Op::CoolDown(..) => {}
            Op::Advance(by) => {
                advance(ms(by)).await;
                model.advance(by);
            }
            Op::ShutDown => {
                queue.shut_down();
                model.shut_down();
            }
        }
        // Half of the time nobody looks at the queue between two operations.
        if model.now % 2 == 0 {
            let snapshot = queue.snapshot(0);
            prop_assert_eq!(snapshot.depth, model.dirty.len());
            prop_assert_eq!(snapshot.in_flight, model.processing.len());
            prop_assert_eq!(snapshot.delayed, model.delayed.iter().filter(|(.., cools)| !cools).count());
            prop_assert_eq!(queue.len(), model.queue.len());
        }
        for key in 0..5 {
            prop_assert_eq!(queue.retries(&key), model.failures.get(&key).copied().unwrap_or(0));
        }
    }
    Ok(())
}

/// What the workers of [`work`] write down.
#[derive(Default)]
struct Log {
    busy: BTreeSet<u8>,
    started: BTreeMap<u8, Instant>,
}

/// Runs workers, some of which are cancelled and replaced while they wait or work, and looks for keys that nobody got.
async fn work(count: usize, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let queue: WorkQueue<u8> =
        WorkQueue::with_config("work", CONFIG, &QueueMetrics::register(&Registry::new()).unwrap());
    let log = Arc::new(Mutex::new(Log::default()));
    let worker = || {
        let (queue, log) = (queue.clone(), Arc::clone(&log));
        async move {
            while let Some(item) = queue.get().await {
                let key = *item.key();
                assert!(log.lock().busy.insert(key), "{key} is worked on twice at the same time");
                log.lock().started.insert(key, Instant::now());
                tokio::time::sleep(ms(u64::from(key) * 7)).await;
                log.lock().busy.remove(&key);
                item.cool_down(ms(u64::from(key) * 5));
            }
        }
    };
    // Only its wait is ever cancelled: the key that it may have got by then must go back to another worker.
    let victim = || {
        let queue = queue.clone();
        async move { queue.get().await.map(|item| queue.add(*item.key())) }
    };
    let mut workers = JoinSet::new();
    let mut victims = JoinSet::new();
    for _ in 0..count {
        workers.spawn(worker());
    }
    let mut added: BTreeMap<u8, Instant> = BTreeMap::new();
    for op in ops {
        match op {
            Op::Add(key) => {
                queue.add(key);
                added.insert(key, Instant::now());
            }
            Op::AddAfter(key, delay) => {
                queue.add_after(key, ms(delay));
                added.insert(key, Instant::now());
            }
            Op::AddRateLimited(key) => {
                queue.add_rate_limited(key);
                added.insert(key, Instant::now());
            }
            Op::Forget(key) => queue.forget(&key),
            Op::Get => {
                victims.spawn(victim());
            }
            Op::Done(_) | Op::CoolDown(..) => victims.shutdown().await,
            Op::Advance(by) => tokio::time::sleep(ms(by)).await,
            Op::ShutDown => {}
        }
    }
    victims.shutdown().await;
    // Far longer than all work and all delays together.
    tokio::time::sleep(Duration::from_hours(1)).await;
    let snapshot = queue.snapshot(0);
    prop_assert_eq!((snapshot.depth, snapshot.in_flight, snapshot.delayed), (0, 0, 0));
    queue.shut_down();
    while let Some(joined) = workers.join_next().await {
        prop_assert!(joined.is_ok(), "{joined:?}");
    }
    let log = log.lock();
    for (key, at) in added {
        prop_assert!(log.started.get(&key).is_some_and(|&started| started >= at), "{key} was lost");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_queue_does_as_the_model(ops in ops()) {
        runtime().block_on(compare(ops))?;
    }

    #[test]
    fn no_key_is_lost_whoever_waits(count in 1_usize..5, ops in ops()) {
        runtime().block_on(work(count, ops))?;
    }
}

//! Rooms under their adapter: what a loop's settings do, and what is counted and remembered of plans.

use super::*;
use crate::executor::{Effect, WriteEffect};
use crate::framework::settings::Tries;
use crate::framework::{Memory, Meter, Observation, PlanNote, ReconcileEnd, Room, RoomAdapter};
use crate::queue::QueueConfig;

#[tokio::test(start_paused = true)]
async fn a_serial_loop_waits_for_what_was_written_for_any_key() {
    let other = Key::new("ns", "other");
    for serial in [false, true] {
        let mut bench = Bench::new();
        bench.worker.settings.serial = serial;
        bench.plan(vec![create()]);
        bench.plan(Vec::new());
        bench.server.answer(201, pod("5"));
        assert!(matches!(bench.reconcile().await, Outcome::Done { writes: 1, .. }));
        let explained = bench.worker.explain(&other).await;
        assert_eq!(explained.waiting_for, serial.then_some(&PODS));
        bench.plan(Vec::new());
        let outcome = bench.worker.reconcile(&other, &|| {}).await.0;
        if !serial {
            assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
            continue;
        }
        assert_eq!(outcome, Outcome::Waiting(&PODS));
        bench.store.bookmark("5");
        let outcome = bench.worker.reconcile(&other, &|| {}).await.0;
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_used_up_its_tries_is_tried_once_per_pause_until_it_changes() {
    let minute = Duration::from_mins(1);
    for then in [Some(minute), None] {
        let mut bench = Bench::new();
        bench.worker.settings.tries = Some(Tries { most: 3, then });
        let queue = Arc::clone(&bench.worker.queue);
        let fail = async |changed: bool| {
            let retry = Some("not yet".to_owned());
            bench.script.plans.lock().push_back(Plan { retry, ..Plan::default() });
            let item = queue.get().await.unwrap();
            assert_eq!(item.changed_at().is_some(), changed, "as its metric has it");
            bench.worker.process(item).await;
        };
        queue.add_changed(key(), Duration::ZERO);
        for _ in 0..2 {
            for tried in 1..=3 {
                fail(true).await;
                assert_eq!(queue.len(), 0, "{tried}");
            }
            if then.is_none() {
                tokio::time::advance(minute * 60).await;
                assert!(queue.is_empty() && queue.retries(&key()) == 0, "its failures are forgotten");
            }
            let mut pauses = Vec::new();
            for _ in 0..then.map_or(0, |_| 5) {
                let tried = tokio::time::Instant::now();
                fail(false).await;
                pauses.push(tried.elapsed());
            }
            assert!(pauses.iter().all(|pause| (minute..minute * 5 / 4).contains(pause)), "{pauses:?}");
            pauses.dedup();
            assert!(pauses.len() != 1, "the pauses differ");
            // A change of it is another matter.
            queue.add_changed(key(), Duration::ZERO);
        }
        fail(true).await;
        assert_eq!(queue.retries(&key()), 1, "it begins from the start");
    }
}

/// What the server answers to every request: a code (0: the connection breaks), and the cause that it names.
type Answer = (u16, &'static str);

/// After which delays a key is tried whose creates are answered so, until it is left alone for ten minutes; at most so many tries.
async fn delays(bench: &Bench, answer: impl Fn(usize) -> Answer, most: usize) -> Vec<Duration> {
    let (queue, mut delays) = (Arc::clone(&bench.worker.queue), Vec::new());
    let mut last = tokio::time::Instant::now();
    queue.add_changed(key(), Duration::ZERO);
    while delays.len() < most
        && let Ok(Some(item)) = tokio::time::timeout(Duration::from_mins(10), queue.get()).await
    {
        delays.push(std::mem::replace(&mut last, tokio::time::Instant::now()).elapsed());
        let (code, cause) = answer(delays.len());
        let causes = serde_json::json!({ "causes": [{ "reason": cause }] });
        let status = serde_json::json!({ "kind": "Status", "code": code, "details": causes });
        *bench.server.0.lock() =
            (code != 0).then(|| (code, status.to_string().into_bytes())).into_iter().collect();
        *bench.script.plans.lock() = [Plan { steps: vec![create()], ..Plan::default() }].into();
        bench.worker.process(item).await;
    }
    delays
}

/// A bench with so many tries, whose script records no failures.
fn bench_with(tries: Tries) -> Bench {
    let mut bench = Bench::new();
    bench.script.heedless.store(true, std::sync::atomic::Ordering::Relaxed);
    bench.worker.settings.tries = Some(tries);
    bench
}

/// Takes the next key, whose create is answered with this code. Returns how long the key was awaited.
async fn fail_next(bench: &Bench, code: u16) -> Duration {
    let since = tokio::time::Instant::now();
    let item = bench.worker.queue.get().await.unwrap();
    let waited = since.elapsed();
    *bench.server.0.lock() = [(code, Vec::new())].into();
    *bench.script.plans.lock() = [Plan { steps: vec![create()], ..Plan::default() }].into();
    bench.worker.process(item).await;
    waited
}

#[tokio::test(start_paused = true)]
async fn a_key_is_given_up_for_what_is_said_of_it_alone() {
    let bench = || bench_with(Tries::USUAL);
    let refused = bench();
    for _ in 0..2 {
        // Its next event finds it as new.
        let delays = delays(&refused, |_| (422, "FieldValueInvalid"), 100).await;
        let expected = (0..15).map(|failures| Duration::from_millis(5) * 2_u32.pow(failures));
        assert_eq!(delays[1..], expected.collect::<Vec<_>>());
        assert_eq!(refused.worker.queue.retries(&key()), 16, "the count is kept");
    }
    let tries = |answer: fn(usize) -> Answer| async move { delays(&bench(), answer, 100).await.len() };
    assert_eq!(tries(|tried| (if tried <= 16 { 503 } else { 403 }, "")).await, 16 + 16);
    // What refuses it may end without a word: it is tried anew later.
    let later = tokio::time::timeout(Duration::from_mins(12), refused.worker.queue.get()).await;
    assert!(later.is_ok(), "1,000 to 1,250 s after it was given up");
    // Nothing can be made there any more.
    assert_eq!(tries(|_| (403, "NamespaceTerminating")).await, 1);
    assert_eq!(tries(|_| (403, "")).await, 16);
}

/// A server that cannot answer has not refused the key, and no change follows when the server is back.
#[tokio::test(start_paused = true)]
async fn key_without_an_answer_is_retried_for_ever_with_a_growing_backoff() {
    // A change precedes this try: the key is reconciled at once, and again when the earlier retry is due.
    const CHANGED: u32 = 14;
    let grown =
        |failures: u32| (Duration::from_millis(5) * 2_u32.pow(failures)).min(Duration::from_secs(1000));
    let mut expected = vec![Duration::ZERO];
    expected.extend((0..CHANGED - 1).map(grown));
    expected.extend([Duration::ZERO, grown(CHANGED - 1)]);
    expected.extend((CHANGED + 1..24).map(grown));
    for code in [429, 503] {
        let bench = bench_with(Tries::retries(10));
        let (queue, mut delays) = (Arc::clone(&bench.worker.queue), Vec::new());
        queue.add_changed(key(), Duration::ZERO);
        for tried in 0..25 {
            if tried == CHANGED {
                queue.add_changed(key(), Duration::ZERO);
            }
            delays.push(fail_next(&bench, code).await);
        }
        assert_eq!(delays, expected, "{code}");
        assert!(!queue.is_given_up(&key()), "{code}");
    }
}

/// A server that was away may refuse a request once when it is back, because its webhooks and roles are not in its caches yet.
#[tokio::test(start_paused = true)]
async fn refusals_alone_use_up_the_tries_of_a_key() {
    let bench = bench_with(Tries { most: 3, then: Some(Duration::from_mins(1)) });
    let queue = Arc::clone(&bench.worker.queue);
    queue.add_changed(key(), Duration::ZERO);
    let answers =
        std::iter::repeat_n((503, false), 20).chain([(403, false), (503, false), (403, false), (403, true)]);
    let mut waited = Vec::new();
    for (at, (code, is_given_up)) in answers.enumerate() {
        waited.push(fail_next(&bench, code).await);
        assert_eq!(queue.is_given_up(&key()), is_given_up, "try {at}: {code}");
    }
    let longest = bench.worker.settings.backoff.max_delay;
    assert_eq!(waited[20], longest, "after 20 failures without an answer");
    assert!(waited[21] < Duration::from_millis(10), "after the first refusal: {:?}", waited[21]);
    assert_eq!(waited[22], longest, "after another failure without an answer");
    assert!(waited[23] < Duration::from_millis(20), "after the second refusal: {:?}", waited[23]);
}

/// A key that was given up meets a server that cannot answer when its pause is over.
#[tokio::test(start_paused = true)]
async fn key_that_was_given_up_is_retried_when_the_server_cannot_answer() {
    let bench = bench_with(Tries { most: 3, then: Some(Duration::from_mins(1)) });
    let queue = Arc::clone(&bench.worker.queue);
    let fail = async |code: u16| {
        let waited = tokio::time::timeout(Duration::from_mins(2), fail_next(&bench, code)).await;
        waited.expect("the key is retried")
    };
    queue.add_changed(key(), Duration::ZERO);
    for _ in 0..3 {
        fail(403).await;
    }
    assert!(queue.is_given_up(&key()));
    let mut waited = Vec::new();
    for code in [503, 503, 403, 503] {
        waited.push(fail(code).await);
    }
    let ms = Duration::from_millis;
    let is_pause = |waited: Duration| (Duration::from_mins(1)..Duration::from_secs(75)).contains(&waited);
    assert!(is_pause(waited[0]) && is_pause(waited[3]), "{waited:?}");
    assert_eq!(waited[1..3], [ms(5 * 8), ms(5 * 16)], "its backoff goes on from its failures");
    queue.add_changed(key(), Duration::ZERO);
    fail(503).await;
    assert_eq!(queue.retries(&key()), 1, "a change begins the tries from the start");
    assert!(!queue.is_given_up(&key()));
}

#[tokio::test(start_paused = true)]
async fn planned_requeue_comes_earlier_when_the_wall_clock_is_set_forward() {
    let (bench, hour) = (Bench::new(), Duration::from_hours(1));
    let queue = Arc::clone(&bench.worker.queue);
    *bench.script.plans.lock() = [Plan { requeue_after: Some(hour), ..Plan::default() }].into();
    queue.add(key());
    let item = queue.get().await.unwrap();
    bench.worker.process(item).await;
    queue.wall_clock_set_forward(Duration::from_secs(3599));
    assert!(queue.is_empty(), "a second is left");
    queue.wall_clock_set_forward(Duration::from_secs(1));
    assert_eq!(queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn planned_requeue_ends_with_the_object() {
    let years = Duration::from_hours(24 * 365 * 68);
    let delayed = Plan { requeue_after: Some(years), ..Plan::default() };
    // After these there are no more plans, as for a deleted object of which the controller remembers nothing.
    let remembered = vec![delayed.clone(), Plan { is_gone: true, ..Plan::default() }];
    let present = vec![delayed.clone(), Plan::default()];
    for (plans, ends) in [(vec![delayed], true), (remembered, true), (present, false)] {
        let bench = Bench::new();
        let queue = Arc::clone(&bench.worker.queue);
        *bench.script.plans.lock() = plans.into();
        for held in [1, usize::from(!ends)] {
            queue.add(key());
            let item = queue.get().await.unwrap();
            bench.worker.process(item).await;
            assert_eq!(queue.snapshot(0).delayed, held);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn backoff_is_as_it_is_set() {
    let second = Duration::from_secs(1);
    let backoff =
        QueueConfig { base_delay: second, max_delay: second * 3, bucket: None, ..QueueConfig::default() };
    let queue = WorkQueue::with_config("test", backoff, &QueueMetrics::register(&Registry::new()).unwrap());
    let delays: Vec<Duration> = (0..4).map(|_| queue.add_rate_limited(key())).collect();
    assert_eq!(delays, [second, second * 2, second * 3, second * 3]);
}

/// What a controller was told about its plans' notes.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Counts into the same list as the memory, by reference.
struct Counted(Arc<Told>);

impl Meter<String> for Counted {
    fn planned(&self, key: &Key, note: &String) {
        self.0.0.lock().push(format!("planned {key}: {note}"));
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        self.0.0.lock().push(format!("ended {key}: {} steps", ended.actions.len()));
    }
}

impl Memory<String> for Told {
    fn commit(&self, key: &Key, note: String) {
        self.0.lock().push(format!("commit {key}: {note}"));
    }

    fn commit_item(&self, key: &Key, note: &String, item: usize) {
        self.0.lock().push(format!("item {item} {key}: {note}"));
    }
}

/// Creates a pod, and tells so. After a failure it only tells.
struct Noting;

impl Room<String> for Noting {
    const HEEDS_FAILURES: bool = true;

    type View = usize;

    fn observe(&self, _: &Key, failures: &[Failure], _: &Reads) -> Result<Observation<usize>, ObserveError> {
        Ok(Observation::View(failures.len()))
    }

    fn plan(failures: &usize, _: Timestamp) -> Plan<String> {
        let steps = if *failures == 0 { vec![create()] } else { Vec::new() };
        Plan { steps, ..Plan::default() }.with_note(format!("after {failures} failures"))
    }
}

fn noting() -> (Bench, Arc<Told>) {
    let (mut bench, told) = (Bench::new(), Arc::new(Told::default()));
    let adapter = RoomAdapter::new(Noting).counted_by(Counted(Arc::clone(&told)));
    bench.worker.reconcile = Arc::new(adapter.remembered_by(Arc::clone(&told) as _));
    (bench, told)
}

#[tokio::test(start_paused = true)]
async fn what_a_plan_adds_is_remembered_when_its_writes_have_succeeded() {
    let (bench, told) = noting();
    bench.server.answer(201, pod("5"));
    assert!(matches!(bench.reconcile().await, Outcome::Done { writes: 1, .. }));
    assert_eq!(told.take(), ["planned ns/web: after 0 failures", "commit ns/web: after 0 failures"]);
}

/// Notes the effects of writes.
#[derive(Default)]
struct Effects(Mutex<Vec<WriteEffect>>);

impl Memory<String> for Effects {
    fn commit(&self, _: &Key, _: String) {}

    fn record_effects(&self, _: &Key, effects: &[Effect]) {
        self.0.lock().extend(effects.iter().map(|effect| effect.change.clone()));
    }
}

#[tokio::test(start_paused = true)]
async fn memory_records_the_effects_of_writes() {
    let (mut bench, effects) = (Bench::new(), Arc::new(Effects::default()));
    bench.worker.reconcile = Arc::new(RoomAdapter::new(Noting).remembered_by(Arc::clone(&effects) as _));
    bench.server.answer(201, pod("5"));
    bench.reconcile().await;
    assert_eq!(*effects.0.lock(), [WriteEffect::Stored("5".into())]);
    bench.store.bookmark("5");
    bench.reconcile().await;
    assert_eq!(effects.0.lock().last(), Some(&WriteEffect::Unknown), "the connection broke");
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_leaves_the_memory_as_it_was() {
    let (bench, told) = noting();
    bench.server.answer(500, Vec::new());
    assert!(matches!(bench.reconcile().await, Outcome::Failed { .. }));
    // The plan for the failure is one of its own.
    let after = ["planned ns/web: after 1 failures", "commit ns/web: after 1 failures"];
    assert_eq!(told.take(), [&["planned ns/web: after 0 failures"], &after[..]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_leaves_the_memory_as_it_was() {
    let (bench, told) = noting();
    assert!(matches!(bench.reconcile().await, Outcome::Failed { .. }), "the connection broke");
    assert!(!told.take().contains(&"commit ns/web: after 0 failures".to_owned()));
}

/// Makes two pods, the first of which it can do without; its note has an item for each.
struct Itemized;

impl Room<String> for Itemized {
    type View = ();

    fn observe(&self, _: &Key, _: &[Failure], _: &Reads) -> Result<Observation<()>, ObserveError> {
        Ok(Observation::View(()))
    }

    fn plan((): &(), _: Timestamp) -> Plan<String> {
        let item = |item, keep_going| match create() {
            Step::Write(write) => Step::Write(Write { item: Some(item), keep_going, ..write }),
            other => other,
        };
        Plan { steps: vec![item(0, true), item(1, false)], ..Plan::default() }.with_note("note".to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_plan_adds_for_one_write_is_remembered_when_that_one_has_succeeded() {
    let all = ["item 0 ns/web: note", "item 1 ns/web: note", "commit ns/web: note"];
    for (codes, remembered) in
        [([201, 201], &all[..]), ([403, 201], &all[1..2]), ([201, 403], &all[..1]), ([403, 403], &[])]
    {
        let (mut bench, told) = (Bench::new(), Arc::new(Told::default()));
        let adapter = RoomAdapter::new(Itemized).remembered_by(Arc::clone(&told) as _);
        bench.worker.reconcile = Arc::new(adapter);
        for code in codes {
            bench.server.answer(code, if code == 201 { pod("5") } else { Vec::new() });
        }
        bench.reconcile().await;
        assert_eq!(told.take(), remembered, "{codes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_explanation_counts_and_remembers_nothing() {
    let (bench, told) = noting();
    let explained = bench.worker.explain(&key()).await;
    assert_eq!(explained.actions.unwrap().unwrap().len(), 1);
    assert_eq!(told.take(), [""; 0]);
    bench.worker.queue.add(key());
    bench.server.answer(201, pod("5"));
    let item = bench.worker.queue.get().await.unwrap();
    bench.worker.process(item).await;
    assert_eq!(told.take().last().unwrap(), "ended ns/web: 1 steps");
}

#[test]
fn a_note_that_is_dropped_has_no_effect() {
    let (bench, told) = noting();
    let pass = bench.worker.reconcile.plan(&key(), &[], &Reads::default(), Timestamp::UNIX_EPOCH);
    let Ok(Pass::Plan(_, note)) = pass else { panic!("{pass:?}") };
    drop::<PlanNote>(note);
    assert_eq!(told.take(), [""; 0]);
}

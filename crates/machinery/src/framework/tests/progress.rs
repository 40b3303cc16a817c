//! Requeues without delay: only progress keeps them short.

use super::*;
use crate::model::plan::{Admission, Patch, Tolerate};
use crate::wire::Time;

/// A code and a body.
type Answer = (u16, Vec<u8>);
/// A description of a plan, the plan, and the answer to each of its writes.
type Case = (&'static str, fn() -> Plan, fn() -> Answer);
/// A write that each plan of a reconcile has, by the plan's number.
type Repeated = (&'static str, fn(usize) -> Step);

const ZERO: Duration = Duration::ZERO;

fn hasty(steps: Vec<Step>) -> Plan {
    Plan { steps, requeue_after: Some(ZERO), ..Plan::default() }
}

fn write(verb: Verb) -> Write {
    Write::new(&PODS, Key::new("ns", "web-1"), verb)
}

fn patch() -> Write {
    write(Verb::Patch(Patch::Strategic(serde_json::json!({ "metadata": { "uid": "" } }))))
}

fn tolerated() -> Write {
    Write { tolerate: Tolerate { invalid: true, absent: true, ..Tolerate::default() }, ..patch() }
}

fn refusal(code: u16, reason: &str) -> Answer {
    let details = serde_json::json!({ "name": "web-1" });
    let status = serde_json::json!({ "kind": "Status", "reason": reason, "code": code, "details": details });
    (code, status.to_string().into_bytes())
}

fn meta(deletion_timestamp: Option<Time>) -> ObjectMeta {
    ObjectMeta {
        name: "web-1".into(),
        namespace: "ns".into(),
        resource_version: "5".into(),
        deletion_timestamp,
        ..ObjectMeta::default()
    }
}

/// A cached pod at version 5.
fn cached(bench: &Bench, deletion: Option<Time>) {
    let metadata = meta(deletion);
    bench.store.upsert(&(Arc::new(Pod { metadata, ..Pod::default() }) as AnyObject));
    bench.store.bookmark("5");
}

/// Reconciles a key six times, each time between `prepare` and `check`. Returns the delay before each but the first, in milliseconds.
async fn delays_between(bench: &Bench, prepare: impl Fn(), check: impl Fn()) -> Vec<u128> {
    let (queue, mut delays) = (Arc::clone(&bench.worker.queue), Vec::new());
    queue.add(key());
    for _ in 0..6 {
        let asked = tokio::time::Instant::now();
        let item = queue.get().await.unwrap();
        delays.push(asked.elapsed().as_millis());
        prepare();
        bench.worker.process(item).await;
        check();
    }
    delays.split_off(1)
}

/// After which delays, in milliseconds, a key comes back whose plans are all like this, and whose writes are all answered so.
async fn delays(bench: &Bench, plan: impl Fn() -> Plan, answer: impl Fn() -> Answer) -> Vec<u128> {
    let prepare = || {
        *bench.script.plans.lock() = [plan()].into();
        *bench.server.0.lock() = std::iter::repeat_n(answer(), 8).collect();
    };
    delays_between(bench, prepare, || {}).await
}

const GROWING: [u128; 5] = [5, 10, 20, 40, 80];

/// An update at a version of its own.
fn update_at(version: usize) -> Step {
    let metadata = ObjectMeta { resource_version: version.to_string().into(), ..meta(None) };
    Step::Write(write(Verb::Update(Pod { metadata, ..Pod::default() }.to_bytes().into())))
}

/// A webhook removes the label by which the controller finds the created object, and reverts each patch and update.
#[tokio::test(start_paused = true)]
async fn plan_that_repeats_a_write_ends_the_reconcile_and_backs_off() {
    let writes: [Repeated; 3] =
        [("create", |_| create()), ("patch", |_| Step::Each(vec![patch()])), ("update", update_at)];
    for (what, step) in writes {
        let bench = Bench::new();
        cached(&bench, None);
        let prepare = || {
            let plan = |look| Plan { steps: vec![step(look)], look_again: true, ..Plan::default() };
            *bench.script.plans.lock() = (1..=5).map(plan).collect();
            *bench.server.0.lock() = std::iter::repeat_n((200, pod("5")), 8).collect();
            bench.server.1.lock().clear();
        };
        let check = || assert_eq!(bench.server.1.lock().len(), 1, "{what} is sent once");
        assert_eq!(delays_between(&bench, prepare, check).await, GROWING, "{what}");
        let error = bench.worker.stats.last_error().unwrap().error;
        assert!(error.contains("an identical write had no effect"), "{what}: {error}");
    }
}

/// A write that failed, or met another version, may be sent again by the next plan.
#[tokio::test(start_paused = true)]
async fn write_that_did_not_succeed_may_be_repeated() {
    let fails: fn() -> Write = || Write { keep_going: true, ..write(Verb::Update(Bytes::new())) };
    let conflicts: fn() -> Write = || {
        let tolerate = Tolerate { conflict: true, ..Tolerate::default() };
        Write { tolerate, ..write(Verb::Update(Bytes::new())) }
    };
    for of in [fails, conflicts] {
        let bench = Bench::new();
        let steps = || vec![Step::Write(of())];
        let looking = Plan { steps: steps(), look_again: true, ..Plan::default() };
        bench.script.plans.lock().extend([looking, Plan { steps: steps(), ..Plan::default() }]);
        let (code, body) = refusal(409, "Conflict");
        bench.server.answer(code, body);
        bench.server.answer(200, pod("5"));
        bench.reconcile().await;
        assert_eq!(bench.server.1.lock().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn recheck_follows_writes_that_changed_something() {
    let soon = Duration::from_secs(5);
    for (answered, requeue_after) in [("5", None), ("6", Some(soon))] {
        let bench = Bench::new();
        cached(&bench, None);
        let steps = vec![Step::Write(patch())];
        let plan = Plan { steps, recheck_after: Some(soon), ..Plan::default() };
        bench.script.plans.lock().push_back(plan);
        bench.server.answer(200, pod(answered));
        let expected = Outcome::Done { writes: 1, requeue_after, cooldown: Cooldown::NONE };
        assert_eq!(bench.reconcile().await, expected, "stored at version {answered}");
    }
    let bench = Bench::new();
    bench.script.plans.lock().push_back(Plan { recheck_after: Some(soon), ..Plan::default() });
    let nothing = Outcome::Done { writes: 0, requeue_after: None, cooldown: Cooldown::NONE };
    assert_eq!(bench.reconcile().await, nothing);
}

#[tokio::test(start_paused = true)]
async fn requeue_without_delay_after_no_change_backs_off() {
    let fine = || (200, pod("5"));
    let plans: [Case; 6] = [
        ("no write", || hasty(Vec::new()), || (500, Vec::new())),
        ("tolerated 422", || hasty(vec![Step::Write(tolerated())]), || refusal(422, "Invalid")),
        (
            "tolerated 404",
            || hasty(vec![Step::Each(vec![tolerated(), tolerated()])]),
            || refusal(404, "NotFound"),
        ),
        ("patch undone by a webhook", || hasty(vec![Step::Write(patch())]), fine),
        ("update without a difference", || hasty(vec![Step::Write(write(Verb::Update(Bytes::new())))]), fine),
        (
            "a delay of 3 ms",
            || Plan { requeue_after: Some(Duration::from_millis(3)), ..hasty(Vec::new()) },
            fine,
        ),
    ];
    for (what, plan, answer) in plans {
        let bench = Bench::new();
        cached(&bench, None);
        assert_eq!(delays(&bench, plan, answer).await, GROWING, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn deleting_again_what_is_being_deleted_backs_off() {
    let bench = Bench::new();
    cached(&bench, Time::from_seconds(1));
    let delete = || hasty(vec![Step::Write(write(Verb::delete_as_seen(&meta(None))))]);
    assert_eq!(delays(&bench, delete, || (200, pod("5"))).await, GROWING);
}

/// Nothing proves that an object which is not cached has changed.
#[tokio::test(start_paused = true)]
async fn write_of_what_is_not_cached_backs_off() {
    let bench = Bench::new();
    bench.store.bookmark("9");
    assert_eq!(delays(&bench, || hasty(vec![Step::Write(patch())]), || (200, pod("5"))).await, GROWING);
}

#[tokio::test(start_paused = true)]
async fn failed_write_with_a_requeue_without_delay_backs_off() {
    let bench = Bench::new();
    bench.script.heedless.store(true, Ordering::Relaxed);
    let optional = || hasty(vec![Step::Write(Write { keep_going: true, ..patch() })]);
    assert_eq!(delays(&bench, optional, || refusal(403, "Forbidden")).await, GROWING);
}

#[tokio::test(start_paused = true)]
async fn requeue_without_delay_after_a_change_is_immediate() {
    let bench = Bench::new();
    cached(&bench, None);
    let version = std::sync::atomic::AtomicU32::new(6);
    let store = Arc::clone(&bench.store);
    let answer = || {
        let at = version.fetch_add(1, Ordering::Relaxed).to_string();
        store.bookmark(&at);
        (200, pod(&at))
    };
    assert_eq!(delays(&bench, || hasty(vec![Step::Write(patch())]), answer).await, [0; 5]);
}

#[tokio::test(start_paused = true)]
async fn longer_delays_and_parts_of_longer_work_are_kept() {
    let bench = Bench::new();
    let poll = || Plan { requeue_after: Some(Duration::from_millis(100)), ..Plan::default() };
    assert_eq!(delays(&bench, poll, || (500, Vec::new())).await, [100; 5]);
    let bench = Bench::new();
    let part = || Plan { has_more: true, ..hasty(Vec::new()) };
    assert_eq!(delays(&bench, part, || (500, Vec::new())).await, [0; 5]);
    // The budget is empty after the first plan.
    let bench = Bench::new();
    let admission = || Admission {
        kind: &PODS,
        key: Key::new("ns", "web-1"),
        budget: "zone".into(),
        per_second: 50.0,
        burst: 1,
    };
    let admitted =
        || Plan { steps: vec![Step::Admit(admission()), Step::Admit(admission())], ..Plan::default() };
    assert_eq!(delays(&bench, admitted, || (500, Vec::new())).await, [20; 5]);
}

#[tokio::test(start_paused = true)]
async fn progress_ends_the_backoff_and_failures_are_counted_apart() {
    let bench = Bench::new();
    cached(&bench, None);
    assert_eq!(delays(&bench, || hasty(Vec::new()), || (500, Vec::new())).await, GROWING);
    assert_eq!(bench.worker.queue.retries(&key()), 0, "it has not failed");
    // A change ends it although the plan fails in the end.
    let item = bench.worker.queue.get().await.unwrap();
    *bench.script.plans.lock() = [Plan { steps: vec![create(), create()], ..Plan::default() }].into();
    bench.script.heedless.store(true, Ordering::Relaxed);
    *bench.server.0.lock() = [(201, pod("5")), refusal(403, "Forbidden")].into();
    bench.worker.process(item).await;
    assert_eq!(delays(&bench, || hasty(Vec::new()), || (500, Vec::new())).await, GROWING);
    let item = bench.worker.queue.get().await.unwrap();
    *bench.script.plans.lock() = [Plan::default()].into();
    bench.worker.process(item).await;
    assert_eq!(delays(&bench, || hasty(Vec::new()), || (500, Vec::new())).await, GROWING);
}

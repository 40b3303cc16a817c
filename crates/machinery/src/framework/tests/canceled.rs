//! Writes and reads that a stop of the controller cancels while they wait for the API server.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use tower::util::BoxCloneSyncService;

use super::{Bench, create, key, pod};
use crate::api::kinds::PODS;
use crate::api::meta::ObjectMeta;
use crate::client::{ApiClient, BoxError, Discovery, WaitSeats, WriteGate};
use crate::executor::{Events, Executor};
use crate::framework::blocking::BlockingPool;
use crate::framework::reader::Reader;
use crate::framework::reads::Read;
use crate::framework::worker::Outcome;
use crate::model::Key;
use crate::model::plan::{EventSpec, Plan, Regarding, Step, Write};

/// A server that asks for 30 seconds in the namespace `busy`, forbids all in `closed`, and carries out the rest.
fn client() -> ApiClient {
    let service = tower::service_fn(|request: Request<Full<Bytes>>| async move {
        let path = request.uri().path();
        let (code, body) = if path.contains("/namespaces/busy/") {
            (429, Vec::new())
        } else if path.contains("/namespaces/closed/") {
            (403, Vec::new())
        } else {
            (201, pod("5"))
        };
        let body = Full::new(Bytes::from(body)).map_err(BoxError::from).boxed_unsync();
        Response::builder().status(code).header("retry-after", "30").body(body).map_err(BoxError::from)
    });
    let client = ApiClient::new(BoxCloneSyncService::new(service), "test");
    client.patient(WriteGate::new(), Duration::from_secs(70))
}

#[derive(Default)]
struct Emitted(Mutex<Vec<&'static str>>);

impl Events for Emitted {
    fn emit(&self, event: EventSpec) {
        self.0.lock().push(event.reason);
    }
}

fn event(reason: &'static str) -> EventSpec {
    let regarding = Regarding::of(&PODS, &ObjectMeta::default());
    EventSpec { regarding, warning: true, reason, message: String::new() }
}

fn create_in(namespace: &str) -> Write {
    let Step::Write(write) = create() else { panic!("create() is a write") };
    let key = Key::new(namespace, "web-1");
    Write { key, on_failure: Some(event("FailedCreate")), on_success: Some(event("Created")), ..write }
}

/// Reconciles until a request waits, and then stops the controller. Returns the outcome and the reasons of the events.
async fn stopped_in_a_wait(bench: &mut Bench) -> (Outcome, Vec<&'static str>) {
    let events = Arc::new(Emitted::default());
    bench.worker.executor = Executor::new(client(), Arc::clone(&events) as _);
    bench.worker.reader = Reader::new(client(), Arc::new(Discovery::new(client())), BlockingPool::inline());
    bench.worker.wait_seats = WaitSeats::new(true);
    let began = tokio::time::Instant::now();
    let seats = bench.worker.wait_seats.clone();
    let mut reconcile = pin!(seats.scope(&crate::wire::Str::default()).run(bench.reconcile()));
    assert!(tokio::time::timeout(Duration::from_secs(1), reconcile.as_mut()).await.is_err(), "it waits");
    seats.close();
    let outcome = reconcile.await;
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    let reasons = events.0.lock().clone();
    (outcome, reasons)
}

#[track_caller]
fn assert_quiet(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Failed { retry: true, quiet: true, .. }), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn plan_that_goes_on_without_a_write_is_not_made_again_when_a_stop_cancels_that_write() {
    // As the plan of an autoscaler that scales.
    for (look_again, end) in [(true, true), (true, false), (false, false)] {
        let mut bench = Bench::new();
        let scales = Step::Write(Write { keep_going: true, ..create_in("busy") });
        let steps = vec![scales, Step::Emit(event("Rescaled")), Step::Write(create_in("ns"))];
        bench.script.plans.lock().push_back(Plan { steps, look_again, end, ..Plan::default() });
        let (outcome, events) = stopped_in_a_wait(&mut bench).await;
        assert_eq!((bench.script.asked.lock().len(), events), (1, Vec::new()), "{look_again} {end}");
        assert_quiet(&outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn failure_next_to_a_canceled_write_is_left_to_the_next_instance() {
    for keep_going in [true, false] {
        let mut bench = Bench::new();
        let write = |namespace| Write { keep_going, ..create_in(namespace) };
        bench.plan(vec![Step::Each(vec![write("closed"), write("busy"), write("ns")])]);
        let (outcome, mut events) = stopped_in_a_wait(&mut bench).await;
        events.sort_unstable();
        assert_eq!(events, ["Created", "FailedCreate"], "the server refused one, and carried out one");
        assert_eq!(bench.script.asked.lock().len(), 1, "no failure with the text of the stop is recorded");
        assert_quiet(&outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn canceled_write_of_a_plan_for_a_failure_is_no_error() {
    let mut bench = Bench::new();
    bench.plan(vec![Step::Write(create_in("closed"))]);
    bench.plan(vec![Step::Write(create_in("busy"))]);
    let (outcome, events) = stopped_in_a_wait(&mut bench).await;
    assert_eq!((bench.script.asked.lock().len(), events), (2, vec!["FailedCreate"]));
    assert_quiet(&outcome);
}

#[tokio::test(start_paused = true)]
async fn read_that_a_stop_cancels_is_no_error() {
    let mut bench = Bench::new();
    bench.script.heedless.store(true, Ordering::Relaxed);
    bench.script.needs.lock().push_back(vec![Read::Object(&PODS, Key::new("busy", "owner"))]);
    let (outcome, _) = stopped_in_a_wait(&mut bench).await;
    assert_quiet(&outcome);
    bench.worker.stats.record(&key(), &outcome, 1);
    assert_eq!((bench.worker.stats.syncs(), bench.worker.stats.errors()), (1, 0));
}

//! The way of an event from the recorder to the sink: order, retries, refusals, bounds, shutdown.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::*;
use crate::api::events::Event;
use crate::api::meta::{Status, StatusCause, StatusDetails};
use crate::client::{ApiClient, ApiError, BoxError, HttpService};
use crate::events::broadcaster::QUEUE;
use crate::events::lanes::MAX_LANES;
use crate::events::writer::{LONGEST_WAIT, MAX_TRIES, MAX_WAITS, PAUSE, SHORTEST_WAIT};
use crate::events::{EventBroadcaster, EventMetrics, EventSink, Recorder};
use crate::model::clock::ManualClock;
use crate::telemetry::Registry;
use crate::telemetry::encode_text;
use crate::wire::{Message, unwrap_envelope};

/// A sink that answers by a script and then with success.
struct FakeSink {
    script: Mutex<VecDeque<ApiError>>,
    calls: Mutex<Vec<(Instant, String)>>,
    gate: Semaphore,
}

impl FakeSink {
    fn answer(&self, call: String) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move {
            let _permit = self.gate.acquire().await.unwrap();
            self.calls.lock().push((Instant::now(), call));
            self.script.lock().pop_front().map_or(Ok(()), Err)
        })
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().iter().map(|(_, call)| call.clone()).collect()
    }
}

impl EventSink for FakeSink {
    fn create<'a>(&'a self, event: &'a Event) -> BoxFuture<'a, Result<(), ApiError>> {
        self.answer(format!("create {} x{}", event.message, event.count))
    }

    fn patch<'a>(&'a self, _: &'a Key, patch: &'a Patch) -> BoxFuture<'a, Result<(), ApiError>> {
        let Patch::Strategic(patch) = patch else { panic!("{patch:?}") };
        self.answer(format!("patch {} x{}", patch["message"].as_str().unwrap(), patch["count"]))
    }
}

struct Setup {
    registry: Registry,
    broadcaster: EventBroadcaster,
    sink: Arc<FakeSink>,
    recorder: Recorder,
}

impl Setup {
    /// `permits`: requests that are answered at the same time; with none, the sink hangs.
    fn new(script: impl IntoIterator<Item = ApiError>, permits: usize) -> Self {
        let registry = Registry::new();
        let metrics = EventMetrics::register(&registry).unwrap();
        let broadcaster = EventBroadcaster::new(Arc::new(ManualClock::new(at(0))), metrics);
        let sink = Arc::new(FakeSink {
            script: Mutex::new(script.into_iter().collect()),
            calls: Mutex::default(),
            gate: Semaphore::new(permits),
        });
        let recorder = broadcaster.recorder_to("test", Arc::<FakeSink>::clone(&sink));
        Self { registry, broadcaster, sink, recorder }
    }

    fn emit(&self, message: &str) {
        self.recorder.emit(event(pod("web"), message));
    }

    fn emit_in(&self, namespace: &str, message: &str) {
        let mut event = event(pod("web"), message);
        event.regarding.key.namespace = namespace.into();
        self.recorder.emit(event);
    }

    /// How many events had this outcome.
    fn count(&self, outcome: &str) -> u64 {
        let prefix = format!("coxswain_events_total{{component=\"test\",outcome=\"{outcome}\"}} ");
        encode_text(&self.registry).lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()).unwrap()
    }
}

pub(super) fn refused(code: u16, reason: &str, cause: &str) -> ApiError {
    let causes = vec![StatusCause { reason: cause.into(), ..StatusCause::default() }];
    ApiError::Refused {
        request: "POST events".to_owned(),
        code,
        reason: reason.into(),
        message: "no".to_owned(),
        status: Box::new(Status {
            details: Some(Box::new(StatusDetails { causes, ..StatusDetails::default() })),
            ..Status::default()
        }),
        retry_after: None,
    }
}

pub(super) fn timeout() -> ApiError {
    ApiError::Timeout { request: "POST events".to_owned(), after: Duration::from_secs(1) }
}

/// Long enough for everything that is under way.
async fn settle() {
    tokio::time::sleep(Duration::from_hours(1)).await;
}

#[tokio::test(start_paused = true)]
async fn events_are_written_in_order_and_repetitions_patched() {
    let setup = Setup::new([], 1);
    for message in ["a", "b", "a"] {
        setup.emit(message);
    }
    settle().await;
    assert_eq!(setup.sink.calls(), ["create a x1", "create b x1", "patch a x2"]);
    assert_eq!((setup.count("created"), setup.count("repeated")), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_repetition_of_an_event_that_is_gone_is_created() {
    let setup = Setup::new([], 1);
    setup.emit("a");
    settle().await;
    setup.sink.script.lock().push_back(refused(404, "NotFound", ""));
    setup.emit("a");
    settle().await;
    assert_eq!(setup.sink.calls(), ["create a x1", "patch a x2", "create a x2"]);
    assert_eq!((setup.count("created"), setup.count("repeated")), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_an_event_is_tried_twelve_times() {
    let setup = Setup::new(std::iter::repeat_with(timeout).take(MAX_TRIES as usize), 1);
    setup.emit("a");
    setup.emit("b");
    settle().await;
    let calls = setup.sink.calls.lock().clone();
    assert_eq!(calls.len(), MAX_TRIES as usize + 1);
    assert!(calls[..12].iter().all(|(_, call)| call == "create a x1"));
    assert_eq!(calls[12].1, "create b x1");
    let pauses: Vec<_> = calls.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(pauses[0] <= PAUSE + Duration::from_millis(1), "{pauses:?}");
    assert!(pauses[1..11].iter().all(|pause| *pause == PAUSE), "{pauses:?}");
    assert_eq!((setup.count("failed"), setup.count("created")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_the_server_says_decides_about_a_retry() {
    let transport =
        ApiError::Transport { request: "POST".into(), source: Arc::from(BoxError::from("reset")) };
    let malformed = ApiError::Malformed { request: "POST".into(), what: "short".into() };
    for (error, tries, outcome) in [
        (refused(403, "Forbidden", "NamespaceTerminating"), 1, "refused"),
        (refused(403, "Forbidden", ""), 1, "refused"),
        (refused(422, "Invalid", ""), 1, "refused"),
        (refused(404, "NotFound", ""), 1, "refused"),
        (malformed, 1, "refused"),
        (refused(409, "AlreadyExists", ""), 1, "created"),
        (refused(409, "Conflict", ""), 1, "refused"),
        (refused(429, "TooManyRequests", ""), 1, "refused"),
        (refused(500, "InternalError", ""), 1, "refused"),
        (refused(503, "ServiceUnavailable", ""), 1, "refused"),
        (transport, 2, "created"),
        (timeout(), 2, "created"),
    ] {
        let what = error.to_string();
        let setup = Setup::new([error], 1);
        setup.emit("a");
        settle().await;
        assert_eq!(setup.sink.calls().len(), tries, "{what}");
        assert_eq!(setup.count(outcome), 1, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_repetition_that_failed_is_patched_again() {
    let setup = Setup::new([], 1);
    setup.emit("a");
    settle().await;
    setup.sink.script.lock().extend([timeout(), refused(404, "NotFound", ""), timeout()]);
    setup.emit("a");
    settle().await;
    assert_eq!(setup.sink.calls(), ["create a x1", "patch a x2", "patch a x2", "create a x2", "patch a x2"]);
}

#[tokio::test(start_paused = true)]
async fn event_that_is_refused_holds_up_no_other() {
    let setup = Setup::new([refused(500, "InternalError", ""), overloaded(i32::MAX as u64)], 1);
    setup.emit("a");
    setup.emit("b");
    setup.emit_in("other", "c");
    settle().await;
    let calls = setup.sink.calls.lock().clone();
    // The namespaces take turns, and the one that the overloaded server refuses waits by itself.
    assert_eq!(setup.sink.calls(), ["create a x1", "create c x1", "create b x1", "create c x1"]);
    assert_eq!(calls[2].0, calls[0].0, "the third event is not late");
    assert_eq!(calls[3].0 - calls[1].0, LONGEST_WAIT);
    assert_eq!((setup.count("refused"), setup.count("created")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn event_that_an_overloaded_server_refuses_is_tried_as_it_says() {
    let setup = Setup::new((0..3).map(|_| overloaded(1)), 1);
    setup.emit("a");
    settle().await;
    assert_eq!((setup.sink.calls().len(), setup.count("created")), (4, 1));
    let setup = Setup::new((0..20).map(|_| overloaded(1)), 1);
    setup.emit("a");
    settle().await;
    assert_eq!((setup.sink.calls().len(), setup.count("refused")), (1 + MAX_WAITS as usize, 1));
}

#[tokio::test(start_paused = true)]
async fn burst_that_an_overloaded_server_refuses_is_written_late_and_in_order() {
    let setup = Setup::new((0..5).map(|_| overloaded(1)), 1);
    for n in 0..200 {
        setup.recorder.emit(event(pod(&format!("pod-{n}")), &n.to_string()));
    }
    settle().await;
    let calls = setup.sink.calls.lock().clone();
    let wanted = (0..5).map(|_| 0).chain(0..200).map(|n| format!("create {n} x1"));
    assert_eq!(setup.sink.calls(), wanted.collect::<Vec<_>>(), "one request at a time");
    assert_eq!(calls[204].0 - calls[0].0, Duration::from_secs(5));
    assert_eq!((setup.count("created"), setup.count("refused")), (200, 0));
}

#[tokio::test(start_paused = true)]
async fn repetition_waits_behind_the_event_that_it_repeats() {
    let setup = Setup::new([], 1);
    setup.emit("a");
    settle().await;
    setup.sink.script.lock().push_back(overloaded(10));
    setup.emit("a");
    setup.emit("a");
    settle().await;
    assert_eq!(setup.sink.calls(), ["create a x1", "patch a x2", "patch a x2", "patch a x3"]);
}

#[tokio::test(start_paused = true)]
async fn where_all_namespaces_are_refused_the_recorder_waits() {
    let setup = Setup::new((0..=MAX_LANES).map(|_| overloaded(10)), 1);
    for n in 0..MAX_LANES + 2 {
        setup.emit_in(&format!("ns-{n}"), &n.to_string());
    }
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(setup.sink.calls().len(), MAX_LANES + 1, "the last one is not sent to an overloaded server");
    settle().await;
    assert_eq!((setup.sink.calls().len(), setup.count("created")), (2 * MAX_LANES + 3, MAX_LANES as u64 + 2));
}

#[tokio::test(start_paused = true)]
async fn full_lane_leaves_places_to_another_namespace() {
    let setup = Setup::new((0..2).map(|_| overloaded(10)), 1);
    setup.emit_in("small", "0");
    tokio::time::sleep(Duration::from_millis(1)).await;
    for n in 0..QUEUE + 2 {
        let mut event = event(pod(&format!("pod-{n}")), &n.to_string());
        event.regarding.key.namespace = "large".into();
        setup.recorder.emit(event);
        tokio::task::yield_now().await;
    }
    setup.emit_in("small", "1");
    settle().await;
    let calls = setup.sink.calls();
    assert_eq!(
        calls.iter().filter(|call| *call == "create 1 x1").count(),
        2,
        "both namespaces have an event 1"
    );
    assert_eq!((setup.count("created"), setup.count("dropped")), (QUEUE as u64 + 4 - 2, 2));
}

#[tokio::test(start_paused = true)]
async fn server_that_asks_for_no_wait_gets_a_second() {
    let setup = Setup::new((0..20).map(|_| overloaded(0)), 1);
    setup.emit("a");
    settle().await;
    let calls = setup.sink.calls.lock().clone();
    assert_eq!(calls.len(), 1 + MAX_WAITS as usize);
    assert!(calls.windows(2).all(|pair| pair[1].0 - pair[0].0 == SHORTEST_WAIT), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn silence_and_overload_together_end() {
    let answers = (0..100).map(|n| if n % 2 == 0 { overloaded(1) } else { timeout() });
    let setup = Setup::new(answers, 1);
    setup.emit("a");
    settle().await;
    assert_eq!((setup.sink.calls().len(), setup.count("failed")), (MAX_TRIES as usize, 1));
}

#[tokio::test(start_paused = true)]
async fn shutdown_tries_events_that_wait_once_more() {
    let setup = Setup::new([overloaded(10)], 1);
    setup.emit("a");
    setup.emit("b");
    tokio::time::sleep(Duration::from_millis(1)).await;
    // The answers take time, and the shutdown awaits them.
    let held = setup.sink.gate.acquire().await.unwrap();
    let (ended, ()) = tokio::join!(setup.broadcaster.shutdown(Duration::from_secs(1)), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(held);
    });
    assert!(ended);
    assert_eq!(setup.sink.calls(), ["create a x1", "create a x1", "create b x1"]);
    assert_eq!(setup.count("created"), 2);
}

fn overloaded(seconds: u64) -> ApiError {
    match refused(429, "TooManyRequests", "") {
        ApiError::Refused { request, code, reason, message, status, .. } => {
            let retry_after = Some(Duration::from_secs(seconds));
            ApiError::Refused { request, code, reason, message, status, retry_after }
        }
        other => other,
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_and_never_waits() {
    let setup = Setup::new([], 0);
    for n in 0..QUEUE + 50 {
        setup.recorder.emit(event(pod(&format!("pod-{n}")), "m"));
    }
    assert_eq!(setup.count("dropped"), 50);
    setup.sink.gate.add_permits(1);
    settle().await;
    assert_eq!(setup.count("created"), QUEUE as u64);
}

#[tokio::test(start_paused = true)]
async fn namespace_that_reports_without_end_takes_no_places_of_the_others() {
    let setup = Setup::new([], 0);
    let flood = |count: usize| {
        for n in 0..count {
            setup.recorder.emit(event(pod(&format!("pod-{n}")), "m"));
        }
    };
    flood(QUEUE * 2);
    for n in 0..10 {
        setup.emit_in(&format!("quiet-{n}"), &format!("quiet {n}"));
    }
    flood(QUEUE);
    assert_eq!(setup.count("dropped"), 2 * QUEUE as u64 + 10);
    setup.sink.gate.add_permits(1);
    settle().await;
    // They take turns: the flood does not go first.
    let calls = setup.sink.calls();
    let quiet = |call: &&String| call.starts_with("create quiet ");
    assert_eq!(calls.iter().take(12).filter(quiet).count(), 10, "{calls:?}");
    assert_eq!(setup.count("created"), QUEUE as u64);
}

#[tokio::test(start_paused = true)]
async fn filtered_events_are_counted_and_not_sent() {
    let setup = Setup::new([], 1);
    for _ in 0..40 {
        setup.emit("m");
    }
    settle().await;
    assert_eq!(setup.sink.calls().len(), 25);
    assert_eq!((setup.count("repeated"), setup.count("filtered")), (24, 15));
}

#[tokio::test(start_paused = true)]
async fn recorders_do_not_hold_each_other_up() {
    let setup = Setup::new([], 0);
    setup.emit("stuck");
    let other =
        Arc::new(FakeSink { script: Mutex::default(), calls: Mutex::default(), gate: Semaphore::new(1) });
    let recorder = setup.broadcaster.recorder_to("other", Arc::<FakeSink>::clone(&other));
    recorder.emit(event(pod("web"), "free"));
    settle().await;
    assert_eq!(other.calls(), ["create free x1"]);
    assert_eq!(setup.sink.calls(), [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_writes_what_waits() {
    let setup = Setup::new([], 1);
    for n in 0..100 {
        setup.recorder.emit(event(pod(&format!("pod-{n}")), "m"));
    }
    assert!(setup.broadcaster.shutdown(Duration::from_secs(1)).await);
    assert_eq!(setup.count("created"), 100);
    setup.emit("too late");
    assert_eq!((setup.count("dropped"), setup.count("created")), (1, 100));
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_no_retry() {
    let setup = Setup::new(std::iter::repeat_with(timeout).take(4), 1);
    setup.emit("a");
    tokio::time::sleep(Duration::from_millis(1)).await;
    setup.emit("b");
    let before = Instant::now();
    assert!(setup.broadcaster.shutdown(Duration::from_secs(1)).await);
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(setup.sink.calls().last().unwrap(), "create b x1");
    assert_eq!(setup.count("failed"), 2);
}

#[tokio::test(start_paused = true)]
async fn shutdown_drops_the_rest_in_the_end() {
    let setup = Setup::new([], 0);
    for n in 0..10 {
        setup.recorder.emit(event(pod(&format!("pod-{n}")), "m"));
    }
    let before = Instant::now();
    assert!(!setup.broadcaster.shutdown(Duration::from_secs(3)).await);
    assert_eq!(before.elapsed(), Duration::from_secs(3));
    assert_eq!(setup.count("dropped"), 10);
}

#[tokio::test(start_paused = true)]
async fn a_recorder_s_task_ends_with_its_last_clone() {
    let Setup { broadcaster, sink, recorder, .. } = Setup::new([], 1);
    let clone = recorder.clone();
    drop(recorder);
    clone.emit(event(pod("web"), "last words"));
    drop(clone);
    settle().await;
    assert_eq!(sink.calls(), ["create last words x1"]);
    assert_eq!(format!("{broadcaster:?}"), "EventBroadcaster { recorders: 0, .. }");
}

type Seen = Arc<Mutex<Vec<(String, String, Bytes)>>>;

/// A client whose server notes each request and answers with an event.
fn client(seen: &Seen) -> ApiClient {
    let seen = Arc::clone(seen);
    let service = tower::service_fn(move |request: http::Request<Full<Bytes>>| {
        let seen = Arc::clone(&seen);
        async move {
            let (parts, body) = request.into_parts();
            let content_type = parts.headers["content-type"].to_str()?.to_owned();
            let body = body.collect().await?.to_bytes();
            seen.lock().push((format!("{} {}", parts.method, parts.uri), content_type, body));
            let answer = crate::wire::wrap_envelope("v1", "Event", &Event::default().to_bytes());
            let body = Full::new(Bytes::from(answer)).map_err(|never| match never {}).boxed_unsync();
            Ok::<_, BoxError>(http::Response::new(body))
        }
    });
    ApiClient::new(HttpService::new(service), "test")
}

#[tokio::test(start_paused = true)]
async fn the_api_server_gets_protobuf_and_a_strategic_patch() {
    let seen = Seen::default();
    let metrics = EventMetrics::register(&Registry::new()).unwrap();
    let broadcaster = EventBroadcaster::new(Arc::new(ManualClock::new(at(0))), metrics);
    let recorder = broadcaster.recorder("deployment-controller", client(&seen));
    recorder.emit(event(pod("web"), "m"));
    recorder.emit(event(pod("web"), "m"));
    assert!(broadcaster.shutdown(Duration::from_secs(1)).await);
    let seen = seen.lock();
    let (request, content_type, body) = &seen[0];
    assert_eq!(request, "POST /api/v1/namespaces/ns/events");
    assert_eq!(content_type, "application/vnd.kubernetes.protobuf");
    let created = Event::decode(&unwrap_envelope(body).unwrap()).unwrap();
    assert_eq!(created.source.component, "deployment-controller");
    assert_eq!(created.involved_object.resource_version, "7");
    let (request, content_type, body) = &seen[1];
    assert_eq!(*request, format!("PATCH /api/v1/namespaces/ns/events/{}", created.metadata.name));
    assert_eq!(content_type, "application/strategic-merge-patch+json");
    let patch: serde_json::Value = serde_json::from_slice(body).unwrap();
    assert_eq!(patch["count"], 2);
}

//! Requests that the API server refuses with a time to come back, in paused time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::join_all;
use http::{HeaderValue, Request};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tower::Layer as _;

use crate::api::kinds::PODS;
use crate::api::meta::ObjectMeta;
use crate::client::layers::{ClientMetrics, RateLimit, RateLimits, With, WriteGate};
use crate::client::testing::{answer, endless, mock};
use crate::client::{
    ApiClient, ApiError, DeleteOptions, HttpService, ListQuery, RequestIntent, WaitSeats, WatchQuery,
};
use crate::events::{EventBroadcaster, EventMetrics};
use crate::informer::ListWatch;
use crate::model::Key;
use crate::model::clock::ManualClock;
use crate::model::plan::{EventSpec, Regarding};
use crate::telemetry::Registry;
use crate::wire::wrap_envelope;

const LIMIT: Duration = Duration::from_secs(70);

type Seen = Arc<Mutex<Vec<Request<Bytes>>>>;

/// A server that refuses as the script says, code and `Retry-After`, and then answers well.
fn scripted<R>(refusals: R) -> (HttpService, Seen)
where
    R: IntoIterator<Item = (u16, &'static str), IntoIter: Send + 'static>,
{
    let refusals = Arc::new(Mutex::new(refusals.into_iter()));
    mock(move |request| {
        let refusal = refusals.lock().next();
        async move {
            let Some((code, retry_after)) = refusal else {
                let kind = if request.uri().path().ends_with("/pods") { "PodList" } else { "Pod" };
                return Ok(answer(200, wrap_envelope("v1", kind, b"")));
            };
            let mut response = answer(code, r#"{"kind":"Status","message":"later"}"#);
            if !retry_after.is_empty() {
                response.headers_mut().insert("retry-after", HeaderValue::from_static(retry_after));
            }
            Ok(response)
        }
    })
}

fn always(code: u16, retry_after: &'static str) -> (HttpService, Seen) {
    scripted(std::iter::repeat((code, retry_after)))
}

fn patient(service: HttpService) -> (ApiClient, WriteGate) {
    let gate = WriteGate::new();
    let gated = HttpService::new(With(gate.clone()).layer(service));
    (ApiClient::new(gated, "test").patient(gate.clone(), LIMIT), gate)
}

fn key() -> Key {
    Key::new("default", "web")
}

async fn send(client: &ApiClient, intent: RequestIntent) -> Result<(), ApiError> {
    match intent {
        RequestIntent::Get => client.get(&PODS, &key()).await.map(drop),
        RequestIntent::List => client.list(&PODS, &ListQuery::default()).await.map(drop),
        RequestIntent::Find => client.find(&PODS, &key()).await.map(drop),
        RequestIntent::Watch => client.watch(&PODS, &WatchQuery::default()).await.map(drop),
        RequestIntent::Create => client.create(&PODS, "default", b"").await.map(drop),
        RequestIntent::Update => client.update(&PODS, &key(), None, b"").await.map(drop),
        RequestIntent::Delete => client.delete(&PODS, &key(), &DeleteOptions::default()).await.map(drop),
        RequestIntent::Document | RequestIntent::Patch | RequestIntent::DeleteCollection => {
            panic!("{intent:?} is not sent here")
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_with_retry_after_is_repeated_if_nothing_was_done() {
    use RequestIntent::{Create, Delete, Find, Get, List, Update, Watch};
    for (code, retry_after, repeated, final_for) in [
        (429, "1", &[Get, List, Find, Create, Update, Delete][..], &[Watch][..]),
        (503, "1", &[Get, List, Create, Update, Delete], &[Watch]),
        // Such a write may have been carried out.
        (500, "1", &[Get, List], &[Create, Update, Delete, Watch]),
        (502, "1", &[Get, List], &[Create, Update, Delete, Watch]),
        (504, "1", &[Get, List], &[Create, Update, Delete, Watch]),
        (429, "", &[], &[Get, List, Create, Update, Delete, Watch]),
        (503, "", &[], &[Get, List, Create, Update, Delete, Watch]),
        (429, "soon", &[], &[Get, Create]),
        (429, "-1", &[], &[Get, Create]),
        (403, "1", &[], &[Get, List, Create, Update, Delete, Watch]),
        (409, "1", &[], &[Get, List, Create, Update, Delete, Watch]),
    ] {
        for intent in repeated {
            let (service, seen) = scripted([(code, retry_after)]);
            let began = Instant::now();
            send(&patient(service).0, *intent).await.unwrap();
            assert_eq!((seen.lock().len(), began.elapsed().as_secs()), (2, 1), "{code} {intent:?}");
            let seen = seen.lock();
            assert_eq!((seen[0].uri(), seen[0].body()), (seen[1].uri(), seen[1].body()));
        }
        for intent in final_for {
            let (service, seen) = scripted([(code, retry_after)]);
            let began = Instant::now();
            let error = send(&patient(service).0, *intent).await.unwrap_err();
            assert_eq!((error.code(), error.message().as_str()), (code, "later"));
            assert_eq!((seen.lock().len(), began.elapsed()), (1, Duration::ZERO), "{code} {intent:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn repetitions_end_after_ten_or_at_the_deadline_of_the_request() {
    for (retry_after, requests, seconds) in [
        ("0", 11, 10),
        ("1", 11, 10),
        ("2", 11, 20),
        // Each repetition begins before the 70 seconds are over.
        ("10", 7, 60),
        ("69", 2, 69),
        ("70", 1, 0),
        ("18446744073709551615", 1, 0),
        ("18446744073709551616", 1, 0),
    ] {
        let (service, seen) = always(429, retry_after);
        let client = patient(service).0;
        let began = Instant::now();
        let seats = WaitSeats::new(true);
        let error =
            seats.scope(&"default".into()).run(client.create(&PODS, "default", b"")).await.unwrap_err();
        assert_eq!(error.code(), 429);
        assert_eq!((seen.lock().len(), began.elapsed().as_secs()), (requests, seconds), "{retry_after}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_leadership_ends_the_wait_and_the_write_is_never_sent_again() {
    let (service, seen) = always(429, "20");
    let (client, gate) = patient(service);
    let (key, mut began) = (key(), Instant::now());
    let mut write = pin!(client.create(&PODS, "default", b""));
    let mut read = pin!(client.get(&PODS, &key));
    assert!(timeout(Duration::from_secs(5), write.as_mut()).await.is_err());
    assert!(timeout(Duration::from_secs(1), read.as_mut()).await.is_err());
    assert_eq!((began.elapsed().as_secs(), gate.in_flight()), (6, 0), "a write that waits is not under way");
    gate.close();
    gate.drained().await;
    // Another term begins before the request is polled.
    gate.reopen(Arc::new(|| true));
    began = Instant::now();
    let error = write.await.unwrap_err();
    assert!(error.is_writes_stopped() && !error.is_ambiguous(), "{error}");
    assert!(read.await.unwrap_err().is_writes_stopped());
    assert_eq!((began.elapsed(), seen.lock().len()), (Duration::ZERO, 2));
}

/// The rate limit lies between the wait and the gate.
#[tokio::test(start_paused = true)]
async fn write_of_an_earlier_term_does_not_pass_a_gate_that_is_open_again() {
    let (service, seen) = always(429, "1");
    let gate = WriteGate::new();
    let limit = RateLimit {
        limits: RateLimits::new(0.1, 1),
        metrics: ClientMetrics::register(&Registry::new()).unwrap().of_host("host:1".into()),
    };
    let stack = With(limit).layer(With(gate.clone()).layer(service));
    let client = ApiClient::new(HttpService::new(stack), "test").patient(gate.clone(), LIMIT);
    let mut write = pin!(client.create(&PODS, "default", b""));
    assert!(timeout(Duration::from_secs(5), write.as_mut()).await.is_err(), "it waits for a token");
    gate.close();
    gate.reopen(Arc::new(|| true));
    assert!(write.await.unwrap_err().is_writes_stopped());
    assert_eq!(seen.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn cut_of_an_open_gate_ends_the_wait_and_is_no_failure_of_the_object() {
    let (service, seen) = always(429, "30");
    let (client, gate) = patient(service);
    let mut write = pin!(client.create(&PODS, "default", b""));
    assert!(timeout(Duration::from_secs(1), write.as_mut()).await.is_err());
    gate.cut();
    let began = Instant::now();
    let error = write.await.unwrap_err();
    assert!(error.is_writes_stopped() && !error.is_ambiguous(), "{error}");
    assert_eq!((began.elapsed(), seen.lock().len()), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn wait_holds_no_place_and_attempts_are_repeated_as_a_whole() {
    let (service, seen) = scripted([(429, "5")]);
    let client = patient(service).0;
    let (places, began) = (Semaphore::new(1), Instant::now());
    let ask = || {
        client.patiently(None, |client| async {
            let client = client;
            let _place = places.acquire().await;
            client.get(&PODS, &key()).await
        })
    };
    let (refused, other) = tokio::join!(ask(), async {
        sleep(Duration::from_secs(1)).await;
        ask().await.map(|_| began.elapsed().as_secs())
    });
    refused.unwrap();
    assert_eq!((other.unwrap(), began.elapsed().as_secs(), seen.lock().len()), (1, 5, 3));
}

/// As in kube-controller-manager. Otherwise a read would be repeated and the write of the same reconcile not.
#[tokio::test(start_paused = true)]
async fn time_to_come_back_in_a_status_repeats_no_request() {
    let status = r#"{"kind":"Status","message":"later","details":{"retryAfterSeconds":5}}"#;
    let (service, seen) = mock(move |_| async move { Ok(answer(503, status)) });
    let client = patient(service).0;
    let read =
        client.patiently(None, |client| async move { client.get(&PODS, &key()).await }).await.unwrap_err();
    let written = client.create(&PODS, "default", b"").await.unwrap_err();
    for error in [read, written] {
        assert_eq!(error.retry_after(), Some(Duration::from_secs(5)), "the caller is told");
    }
    assert_eq!(seen.lock().len(), 2);
}

/// A webhook that always asks for more time must not keep the only worker of a loop.
#[tokio::test(start_paused = true)]
async fn requests_without_a_seat_wait_for_a_quarter_of_the_time_at_most() {
    let (service, _) = always(429, "1");
    let client = patient(service).0;
    let began = Instant::now();
    let mut waited = Duration::ZERO;
    while began.elapsed() < Duration::from_hours(1) {
        let sent = Instant::now();
        client.create(&PODS, "default", b"").await.unwrap_err();
        waited += sent.elapsed();
        sleep(Duration::from_millis(50)).await;
    }
    assert!(waited < Duration::from_secs(40) + began.elapsed() / 4, "{waited:?}");
    assert!(waited > began.elapsed() / 8, "{waited:?}");
    // A batch waits together.
    sleep(Duration::from_mins(10)).await;
    let (service, seen) = scripted(std::iter::repeat_n((429, "3"), 64));
    let client = patient(service).0;
    let batch = join_all((0..64).map(|_| client.create(&PODS, "default", b""))).await;
    assert!(batch.iter().all(Result::is_ok));
    assert_eq!(seen.lock().len(), 128);
}

#[tokio::test(start_paused = true)]
async fn reconcile_that_waits_takes_one_seat_until_it_ends_or_its_loop_is_stopped() {
    let (service, seen) = always(429, "60");
    let client = &patient(service).0;
    let seats = WaitSeats::new(true);
    let two = async || {
        let create = || client.create(&PODS, "default", b"");
        let (one, other) = tokio::join!(create(), create());
        (one.unwrap_err().code(), other.unwrap_err().code())
    };
    let scopes: Vec<_> = (0..33).map(|at| seats.scope(&format!("ns-{at}").into())).collect();
    let mut waiting: Vec<_> = scopes[..32].iter().map(|scope| Box::pin(scope.run(two()))).collect();
    for each in &mut waiting {
        assert!(futures::poll!(each).is_pending());
    }
    for scope in &scopes[..32] {
        assert!(futures::poll!(pin!(scope.begun())).is_ready(), "its worker is told");
    }
    let began = Instant::now();
    assert_eq!(scopes[32].run(two()).await, (429, 429));
    assert!(futures::poll!(pin!(scopes[32].begun())).is_pending());
    assert_eq!((began.elapsed(), seen.lock().len()), (Duration::ZERO, 66), "there is no seat for it");
    seats.close();
    assert!(join_all(waiting).await.iter().all(|codes| *codes == (0, 0)));
    assert_eq!(
        seats.scope(&"default".into()).run(two()).await,
        (0, 0),
        "a refusal after the stop is no failure of the object"
    );
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_gets_no_more_seats_than_it_leaves_free() {
    let (service, _) = always(429, "60");
    let client = &patient(service).0;
    let seats = WaitSeats::new(true);
    // Begins reconciles and returns those that wait; the refusal is the answer of the others.
    let begin = |namespace: &str, count: usize| -> Vec<_> {
        let reconciles = (0..count).map(|_| {
            let scope = seats.scope(&namespace.into());
            Box::pin(scope.run(client.create(&PODS, "default", b"")))
        });
        reconciles.filter_map(|mut each| (&mut each).now_or_never().is_none().then_some(each)).collect()
    };
    let waiting = [("a", 17), ("b", 9), ("a", 1), ("c", 5)].map(|(name, count)| begin(name, count));
    assert_eq!(waiting.each_ref().map(Vec::len), [16, 8, 0, 4]);
    // Objects without a namespace take what is left.
    let rest = begin("", 5);
    assert_eq!((rest.len(), begin("d", 1).len(), begin("", 1).len()), (4, 0, 0));
    drop((waiting, rest));
    assert_eq!(begin("b", 17).len(), 16, "reconciles that end give their seats back");
}

#[tokio::test(start_paused = true)]
async fn answer_without_an_end_does_not_hold_up_a_repetition() {
    let (service, seen) = mock(|_| async {
        let mut response = http::Response::new(endless("x".repeat(2 << 20)));
        *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
        response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
        Ok(response)
    });
    let error = patient(service).0.get(&PODS, &key()).await.unwrap_err();
    assert_eq!((error.code(), seen.lock().len()), (429, 11));
}

#[tokio::test(start_paused = true)]
async fn reflectors_and_event_writers_wait_by_themselves() {
    let (service, seen) = always(429, "1");
    let client = patient(service).0;
    let began = Instant::now();
    ListWatch::list(&client, &PODS, ListQuery::default()).await.unwrap_err();
    assert_eq!((began.elapsed(), seen.lock().len()), (Duration::ZERO, 1));

    let (service, seen) = scripted([(429, "5")]);
    let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
    let broadcaster = EventBroadcaster::new(clock, EventMetrics::register(&Registry::new()).unwrap());
    let recorder = broadcaster.recorder("test-controller", patient(service).0);
    for name in ["a", "b"] {
        let meta = ObjectMeta { namespace: name.into(), name: name.into(), ..ObjectMeta::default() };
        let regarding = Regarding::of(&PODS, &meta);
        recorder.emit(EventSpec { regarding, warning: false, reason: "Test", message: "m".to_owned() });
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(seen.lock().len(), 2, "the event of another namespace is not late");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(seen.lock().len(), 3);
}

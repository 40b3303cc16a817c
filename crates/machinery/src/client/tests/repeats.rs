//! How many requests a client repeats that the API server refuses with a time to come back, in paused time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use futures::stream;
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::api::kinds::PODS;
use crate::client::layers::{ClientMetrics, RateLimit, RateLimits, WriteGate};
use crate::client::testing::{answer, mock};
use crate::client::{ApiClient, BoxError, WaitSeats};
use crate::model::Key;
use crate::random::HashMap;
use crate::telemetry::Registry;
use crate::wire::{Str, wrap_envelope};

/// The refusals of a namespace: how often it is refused, and `Retry-After`.
type Refusals = Arc<Mutex<HashMap<String, (usize, &'static str)>>>;

/// A client with this rate limit on a server that refuses the first requests about pods of each namespace.
fn client(
    qps: f32,
    burst: u32,
    refusals: &[(&str, usize, &'static str)],
) -> (ApiClient, Arc<Mutex<Vec<String>>>) {
    let refusals: Refusals = Arc::new(Mutex::new(
        refusals
            .iter()
            .map(|(namespace, count, after)| ((*namespace).to_owned(), (*count, *after)))
            .collect(),
    ));
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&asked);
    let (service, _) = mock(move |request| {
        let namespace = request.uri().path().split('/').nth(4).unwrap_or_default().to_owned();
        noted.lock().push(namespace.clone());
        let mut refusals = refusals.lock();
        let refusal = refusals.get_mut(&namespace).filter(|(count, _)| *count > 0);
        let after = refusal.map(|(count, after)| {
            *count -= 1;
            *after
        });
        async move {
            let Some(after) = after else { return Ok(answer(200, wrap_envelope("v1", "Pod", b""))) };
            let mut response = answer(429, "later");
            response.headers_mut().insert("retry-after", HeaderValue::from_static(after));
            Ok(response)
        }
    });
    let metrics = ClientMetrics::register(&Registry::new()).unwrap().of_host("host:1".into());
    // The service has no limiter, so that all requests are sent at once.
    let rate = RateLimit { limits: RateLimits::new(qps, burst), metrics };
    let client = ApiClient::new(service, "test").limited_by(rate);
    (client.patient(WriteGate::new(), Duration::from_secs(70)), asked)
}

/// Creates so many pods at once. Returns how many were created.
async fn create(client: &ApiClient, namespace: &str, count: usize) -> usize {
    let all = join_all((0..count).map(|_| client.create(&PODS, namespace, b""))).await;
    all.iter().filter(|created| created.is_ok()).count()
}

/// The largest group of a slow start of 500 has 245 writes.
#[tokio::test(start_paused = true)]
async fn largest_group_of_a_slow_start_is_repeated_whatever_the_rate_limit() {
    for (qps, burst, count) in
        [(20.0, 30, 245), (20.0, 30, 256), (0.0, 0, 245), (200.0, 300, 1_200), (-1.0, 0, 5_000)]
    {
        let (client, _) = client(qps, burst, &[("a", count, "1")]);
        let (seats, began) = (WaitSeats::new(true), Instant::now());
        let created = seats.scope(&Str::default()).run(create(&client, "a", count)).await;
        assert_eq!((created, began.elapsed().as_secs()), (count, 1), "{qps} {burst}");
    }
}

/// A webhook of one tenant asks for more time than the credit has.
#[tokio::test(start_paused = true)]
async fn request_that_may_not_wait_takes_no_repetition_from_others() {
    let (client, asked) = client(20.0, 30, &[("a", usize::MAX, "60"), ("b", 1, "1")]);
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(create(&client, "a", 100).await, 0);
    }
    assert_eq!((began.elapsed(), asked.lock().len()), (Duration::ZERO, 2_000), "none waited");
    assert_eq!(create(&client, "b", 1).await, 1);
    assert_eq!(began.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_namespace_has_half_of_the_repetitions_at_most() {
    let (client, asked) = client(20.0, 30, &[("a", usize::MAX, "1"), ("b", 200, "1")]);
    let seats = WaitSeats::new(true);
    let (one, other) = (seats.scope(&Str::default()), seats.scope(&Str::default()));
    let mut refused = pin!(one.run(create(&client, "a", 2_000)));
    assert!(timeout(Duration::from_millis(500), refused.as_mut()).await.is_err());
    assert_eq!(other.run(create(&client, "b", 200)).await, 200);
    assert_eq!(refused.await, 0);
    let repeated = asked.lock().iter().filter(|namespace| *namespace == "a").count() - 2_000;
    // The burst, and five per second for the ten seconds of the last repetition.
    assert!((256..=306).contains(&repeated), "{repeated}");
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_shared_read_take_one_repetition() {
    let (client, _) = client(20.0, 30, &[("b", 250, "1")]);
    let (refusals, seats) = (Mutex::new(0), WaitSeats::new(true));
    let read = |shared| {
        let refused = Mutex::new(false);
        let (client, refusals) = (&client, &refusals);
        async move {
            let attempt = |_| {
                let is_first = !std::mem::replace(&mut *refused.lock(), true);
                async move {
                    if !is_first {
                        return Ok(());
                    }
                    *refusals.lock() += 1;
                    let label = "GET /api/v1/namespaces/b/pods/owner";
                    let after = Some(Duration::from_secs(1));
                    Err(crate::client::ApiError::refused(
                        label,
                        crate::client::RequestIntent::Get,
                        StatusCode::TOO_MANY_REQUESTS,
                        after,
                        &bytes::Bytes::new(),
                    ))
                }
            };
            client.patiently(shared, attempt).await.is_ok()
        }
    };
    // As many as there are keys in the garbage collector, again and again.
    let scope = seats.scope(&Str::default());
    let all = scope.run(join_all((0..1_000).map(|_| read(Some(7))))).await;
    assert!(all.iter().all(|is_read| *is_read));
    assert_eq!(*refusals.lock(), 1_000);
    assert_eq!(
        seats.scope(&Str::default()).run(create(&client, "b", 250)).await,
        250,
        "their repetitions are left"
    );
    // A caller whose repetition begins later joins another one.
    let key = Key::new("b", "web");
    assert!(client.get(&PODS, &key).await.is_ok());
    let alone = seats.scope(&Str::default()).run(join_all((0..20).map(|_| read(None)))).await;
    assert!(alone.iter().filter(|is_read| **is_read).count() < 20, "nothing is left");
}

/// A proxy that answers `Timeout` may have forwarded the write to the API server.
#[tokio::test(start_paused = true)]
async fn write_that_timed_out_at_the_server_is_not_repeated() {
    for (code, reason, sent) in
        [(503, "Timeout", 1), (429, "Timeout", 1), (503, "ServiceUnavailable", 2), (503, "", 2)]
    {
        let asked = Arc::new(Mutex::new(0));
        let noted = Arc::clone(&asked);
        let (service, _) = mock(move |_| {
            let mut asked = noted.lock();
            *asked += 1;
            let is_first = *asked == 1;
            async move {
                if !is_first {
                    return Ok(answer(200, wrap_envelope("v1", "Pod", b"")));
                }
                let status = serde_json::json!({ "kind": "Status", "reason": reason, "code": code });
                let mut response = answer(code, status.to_string());
                response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
                Ok(response)
            }
        });
        let client = ApiClient::new(service, "test").patient(WriteGate::new(), Duration::from_secs(70));
        let created = client.create(&PODS, "a", b"").await;
        assert_eq!(*asked.lock(), sent, "{code} {reason}");
        assert_eq!(created.is_ok(), sent == 2, "{code} {reason}");
        if let Err(error) = created {
            assert!(error.is_ambiguous() && error.code() == code, "its answer is complete: {error:?}");
        }
        // A read has no effect.
        *asked.lock() = 0;
        assert!(
            client.get(&PODS, &Key::new("a", "b")).await.is_ok() && *asked.lock() == 2,
            "{code} {reason}"
        );
    }
}

/// The connection breaks off before the reason was received.
#[tokio::test(start_paused = true)]
async fn write_whose_refusal_breaks_off_is_not_repeated() {
    let (service, seen) = mock(|_| async {
        let pieces =
            [Ok(Frame::data(Bytes::from_static(b"{\"kind\": \"Status\", "))), Err(BoxError::from("reset"))];
        let mut response = Response::new(StreamBody::new(stream::iter(pieces)).boxed_unsync());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
        Ok(response)
    });
    let client = ApiClient::new(service, "test").patient(WriteGate::new(), Duration::from_secs(70));
    let error = client.create(&PODS, "a", b"").await.unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
    assert_eq!(seen.lock().len(), 1);
}

/// The reason of a `Status` follows its message, so it is cut off when the message is longer than the limit.
#[tokio::test(start_paused = true)]
async fn write_whose_refusal_is_cut_is_not_repeated() {
    for (code, is_known) in [(503, false), (429, false), (403, true)] {
        let (service, seen) = mock(move |_| async move {
            let message = "x".repeat(1 << 20);
            let status = serde_json::json!({ "kind": "Status", "message": message, "reason": "Timeout" });
            let mut response = answer(code, status.to_string());
            response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
            Ok(response)
        });
        let client = ApiClient::new(service, "test").patient(WriteGate::new(), Duration::from_secs(70));
        let error = client.create(&PODS, "a", b"").await.unwrap_err();
        assert_eq!((error.is_ambiguous(), error.code() == code), (!is_known, is_known), "{code}");
        assert_eq!(seen.lock().len(), 1, "{code}");
        let error = client.get(&PODS, &Key::new("a", "b")).await.unwrap_err();
        assert_eq!(error.code(), code, "a read has no effect, so its error has the code");
    }
}

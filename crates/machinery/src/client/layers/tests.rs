//! Tests of the layers over a service that answers as told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::trace::SpanData;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::api::kinds::{CONFIG_MAPS, PODS};
use crate::client::api::HttpService;
use crate::client::request::{RequestIntent, RequestPath, build};
use crate::client::testing::{answer, endless, mock};
use crate::client::{RequestTimeout, TransportError};
use crate::telemetry::Registry;
use crate::telemetry::tracing::Tracing;

fn request(method: Method, uri: &str, body: &'static str) -> ApiRequest {
    Request::builder().method(method).uri(uri).body(Full::new(Bytes::from(body))).unwrap()
}

fn get(uri: &str) -> ApiRequest {
    request(Method::GET, uri, "")
}

/// A request as the client builds it.
fn built(intent: RequestIntent, path: RequestPath<'_>) -> ApiRequest {
    build(intent, &path.into(), HeaderValue::from_static("*/*"), None).unwrap().1
}

fn watch() -> ApiRequest {
    built(RequestIntent::Watch, RequestPath::collection(&PODS, ""))
}

/// A GET of an object whose name looks like a query.
fn get_of_a_name_like_a_watch() -> ApiRequest {
    built(
        RequestIntent::Get,
        RequestPath::object(&CONFIG_MAPS, "mine", "?watch=true&timeoutSeconds=31536000"),
    )
}

async fn send<M: Middleware>(
    middleware: M,
    below: HttpService,
    request: ApiRequest,
) -> Result<ApiResponse, BoxError> {
    With(middleware).layer(below).oneshot(request).await
}

fn ok() -> HttpService {
    mock(|_| async { Ok(answer(200, "body")) }).0
}

#[test]
fn intent_is_not_told_by_the_uri() {
    for uri in ["/x?watch=true", "/x?watch=1", "/watch"] {
        assert_eq!(RequestIntent::of(&get(uri)), RequestIntent::Get, "{uri}");
    }
    assert_eq!(RequestIntent::of(&get_of_a_name_like_a_watch()), RequestIntent::Get);
    assert_eq!(RequestIntent::of(&watch()), RequestIntent::Watch);
}

#[tokio::test(start_paused = true)]
async fn get_of_a_name_like_a_watch_has_deadline_and_rate_limit() {
    let (forever, seen) = mock(|_| async { Ok(http::Response::new(endless("some"))) });
    let limit = Timeout(Duration::from_secs(10));
    let response = send(limit, forever.clone(), get_of_a_name_like_a_watch()).await.unwrap();
    let error = response.into_body().collect().await.err().unwrap();
    assert_eq!(error.downcast_ref(), Some(&RequestTimeout(limit.0)));
    let path = "/api/v1/namespaces/mine/configmaps/%3Fwatch=true&timeoutSeconds=31536000";
    assert_eq!(seen.lock()[0].uri(), path);

    let limit = RateLimit {
        limits: RateLimits::new(1.0, 1),
        metrics: ClientMetrics::register(&Registry::new()).unwrap().of_host("host:1".into()),
    };
    let began = Instant::now();
    for _ in 0..3 {
        send(limit.clone(), ok(), get_of_a_name_like_a_watch()).await.unwrap();
    }
    assert_eq!(began.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn watch_that_is_refused_has_a_deadline_on_its_body() {
    let (refusing, _) = mock(|_| async {
        let mut response = http::Response::new(endless("some"));
        *response.status_mut() = StatusCode::FORBIDDEN;
        Ok(response)
    });
    let limit = Timeout(Duration::from_secs(10));
    let response = send(limit, refusing, watch()).await.unwrap();
    let error = response.into_body().collect().await.err().unwrap();
    assert_eq!(error.downcast_ref(), Some(&RequestTimeout(limit.0)));
}

#[tokio::test]
async fn user_agent_begins_with_the_field_manager_of_the_go_manager() {
    let (below, seen) = mock(|_| async { Ok(answer(200, "")) });
    send(UserAgent::new("deployment-\ncontroller"), below, get("/x")).await.unwrap();
    let seen = seen.lock();
    let agent = seen[0].headers()["user-agent"].to_str().unwrap();
    assert!(agent.starts_with("kube-controller-manager/v1.36.3 ("), "{agent}");
    let build = concat!(") kubernetes/coxswain-", env!("CARGO_PKG_VERSION"), "/deployment-controller");
    assert!(agent.ends_with(build), "{agent}");
    assert!(!seen[0].headers().contains_key("traceparent"), "there is no trace");
}

#[tokio::test(start_paused = true)]
async fn the_bucket_gives_its_burst_then_its_rate_in_order() {
    let limiter = Arc::new(RateLimiter::new(10.0, 3).unwrap());
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(limiter.acquire().await, Duration::ZERO);
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let waiters = (0..4).map(|number| {
        let (limiter, order) = (Arc::clone(&limiter), Arc::clone(&order));
        async move {
            limiter.acquire().await;
            order.lock().push((number, began.elapsed().as_millis() / 100));
        }
    });
    futures::future::join_all(waiters).await;
    assert_eq!(*order.lock(), [(0, 1), (1, 2), (2, 3), (3, 4)]);

    tokio::time::advance(Duration::from_hours(1)).await;
    for _ in 0..3 {
        assert_eq!(limiter.acquire().await, Duration::ZERO, "an hour earns no more than the burst");
    }
    assert!(limiter.acquire().await > Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn many_that_wait_go_in_groups_at_the_same_rate() {
    let limiter = RateLimiter::new(100.0, 8).unwrap();
    for _ in 0..8 {
        assert_eq!(limiter.acquire().await, Duration::ZERO);
    }
    let waited = |count: usize| {
        let each = (0..count).map(|_| async { limiter.acquire().await.as_millis() });
        futures::future::join_all(each)
    };
    // The first waits for nobody. Then at most as many go as are granted in 50 ms, and never more than wait.
    assert_eq!(waited(8).await, [10, 60, 60, 60, 60, 60, 80, 80]);
    assert_eq!(waited(1).await, [10]);
    let limiter = RateLimiter::new(100.0, 2).unwrap();
    let each = (0..5).map(|_| async { limiter.acquire().await.as_millis() });
    assert_eq!(futures::future::join_all(each).await, [0, 0, 10, 30, 30], "nor more than the burst");
}

#[tokio::test(start_paused = true)]
async fn who_stops_waiting_leaves_the_token_to_the_next() {
    let limiter = Arc::new(RateLimiter::new(1.0, 1).unwrap());
    limiter.acquire().await;
    let began = Instant::now();
    let mut head = Box::pin(limiter.acquire());
    let mut second = Box::pin(limiter.acquire());
    let mut third = Box::pin(limiter.acquire());
    assert!(futures::poll!(&mut head).is_pending());
    assert!(futures::poll!(&mut second).is_pending());
    assert!(futures::poll!(&mut third).is_pending());
    tokio::time::advance(Duration::from_millis(600)).await;
    drop(head);
    drop(second);
    third.await;
    assert_eq!(began.elapsed().as_millis(), 1000, "as if the two had never been there");
}

#[tokio::test(start_paused = true)]
async fn limits_of_zero_and_below_mean_what_they_mean_to_client_go() {
    assert!(RateLimiter::new(-1.0, 10).is_none());
    assert!(RateLimiter::new(f32::NAN, 10).is_none());
    let limiter = RateLimiter::new(0.0, 0).unwrap();
    for _ in 0..10 {
        assert_eq!(limiter.acquire().await, Duration::ZERO);
    }
    assert_eq!(limiter.acquire().await.as_millis(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_limited_request_waits_in_the_call_and_is_measured() {
    let registry = Registry::new();
    let limit = RateLimit {
        limits: RateLimits::new(1.0, 1),
        metrics: ClientMetrics::register(&registry).unwrap().of_host("host:1".into()),
    };
    send(limit.clone(), ok(), get("/a")).await.unwrap();
    let began = Instant::now();
    send(limit.clone(), ok(), watch()).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 0, "watches are free");
    send(limit, ok(), get("/b")).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 1);
    let waits = histogram(&registry, "rest_client_rate_limiter_duration_seconds");
    assert_eq!((waits.get_sample_count(), waits.get_sample_sum().round()), (2, 1.0));
}

#[tokio::test(start_paused = true)]
async fn scales_each_metrics_api_and_everything_else_have_a_limiter_each() {
    let metrics = ClientMetrics::register(&Registry::new()).unwrap().of_host("host:1".into());
    let limit = RateLimit { limits: RateLimits::new(1.0, 1), metrics };
    let scale = |intent| {
        let path = RequestPath::object(&PODS, "default", "web").subresource(Some("scale"));
        build(intent, &path.into(), HeaderValue::from_static("x"), None).unwrap().1
    };
    let metrics = |group: &str, version: &str| {
        let path = RequestPath::group_version(group, version).in_namespace("default").resource("pods");
        build(RequestIntent::Get, &path.into(), HeaderValue::from_static("x"), None).unwrap().1
    };
    let requests = || {
        [
            get("/x"),
            scale(RequestIntent::Get),
            metrics("metrics.k8s.io", "v1beta1"),
            metrics("custom.metrics.k8s.io", "v1beta1"),
            metrics("custom.metrics.k8s.io", "v1beta2"),
            metrics("external.metrics.k8s.io", "v1beta1"),
        ]
    };
    let began = Instant::now();
    for request in requests() {
        send(limit.clone(), ok(), request).await.unwrap();
    }
    assert_eq!(began.elapsed().as_secs(), 0, "each has its burst");
    for request in requests() {
        let began = Instant::now();
        send(limit.clone(), ok(), request).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(began.elapsed().as_secs() <= 2);
    }
    // A write of a scale waits for a read of one, and what is of another group for everything else.
    let began = Instant::now();
    send(limit.clone(), ok(), scale(RequestIntent::Update)).await.unwrap();
    send(limit.clone(), ok(), metrics("metrics.example.com", "v1")).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 0);
    send(limit.clone(), ok(), scale(RequestIntent::Get)).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 1);
    send(limit.clone(), ok(), scale(RequestIntent::Update)).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 2);
    send(limit.clone(), ok(), get("/x")).await.unwrap();
    send(limit, ok(), metrics("metrics.example.com", "v1")).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_has_its_time_to_the_end_of_its_body() {
    let limit = Timeout(Duration::from_secs(10));
    let stalled = mock(|_| std::future::pending()).0;
    let error = send(limit, stalled.clone(), get("/x")).await.err().unwrap();
    assert_eq!(error.downcast_ref(), Some(&RequestTimeout(limit.0)));

    let (slow, _) = mock(|_| async { Ok(http::Response::new(endless("some"))) });
    let response = send(limit, slow.clone(), get("/x")).await.unwrap();
    let error = response.into_body().collect().await.err().unwrap();
    assert_eq!(error.downcast_ref(), Some(&RequestTimeout(limit.0)));

    let mut body = send(limit, slow, watch()).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "some");
    let next = tokio::time::timeout(Duration::from_hours(1), body.frame()).await;
    assert!(next.is_err(), "a watch goes on for as long as it likes");
    assert!(send(limit, stalled, watch()).await.is_err(), "but it must begin in time");
}

#[tokio::test]
async fn a_closed_gate_stops_writes_before_they_are_sent() {
    let (below, seen) = mock(|_| async { Ok(answer(200, "")) });
    let gate = WriteGate::new();
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        send(gate.clone(), below.clone(), request(method, "/x", "")).await.unwrap();
    }
    gate.close();
    gate.drained().await;
    seen.lock().clear();
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let error = send(gate.clone(), below.clone(), request(method, "/x", "")).await.err().unwrap();
        assert!(error.is::<WritesStopped>());
    }
    assert!(seen.lock().is_empty());
    send(gate.clone(), below, get("/x")).await.unwrap();
    assert_eq!(seen.lock().len(), 1, "reads go on");
}

#[tokio::test]
async fn a_guarded_gate_asks_its_guards_before_every_write() {
    let (below, seen) = mock(|_| async { Ok(answer(200, "")) });
    let gate = WriteGate::new();
    let leads: [Arc<AtomicBool>; 2] = Default::default();
    for each in &leads {
        let each = Arc::clone(each);
        gate.guard(Arc::new(move || each.load(Ordering::SeqCst)));
    }
    for (first, second) in [(false, false), (true, false), (false, true), (true, true), (true, false)] {
        leads[0].store(first, Ordering::SeqCst);
        leads[1].store(second, Ordering::SeqCst);
        let sent = send(gate.clone(), below.clone(), request(Method::PATCH, "/x", "")).await;
        assert_eq!(sent.is_ok(), first && second);
        assert!(sent.err().is_none_or(|error| error.is::<WritesStopped>()));
        send(gate.clone(), below.clone(), get("/x")).await.unwrap();
    }
    assert_eq!(seen.lock().len(), 6, "five reads and the one write");
    assert_eq!(gate.in_flight(), 0);
    assert!(!gate.is_closed(), "a guard may change its mind");
}

#[tokio::test]
async fn the_gate_drains_when_the_last_write_has_ended() {
    let (below, _) = mock(|_| async { Ok(answer(200, "body")) });
    let gate = WriteGate::new();
    let response = send(gate.clone(), below, request(Method::POST, "/x", "")).await.unwrap();
    let (stalled, _) = mock(|_| std::future::pending());
    let mut cancelled = Box::pin(send(gate.clone(), stalled, request(Method::PUT, "/x", "")));
    assert!(futures::poll!(&mut cancelled).is_pending());
    gate.close();
    assert_eq!(gate.in_flight(), 2);
    let mut drained = Box::pin(gate.drained());
    assert!(futures::poll!(&mut drained).is_pending());
    drop(cancelled);
    assert!(futures::poll!(&mut drained).is_pending());
    response.into_body().collect().await.unwrap();
    drained.await;
    assert_eq!(gate.in_flight(), 0);
}

#[tokio::test]
async fn a_reopened_gate_asks_its_new_guard_alone() {
    let (below, _) = mock(|_| async { Ok(answer(200, "")) });
    let gate = WriteGate::new();
    gate.guard(Arc::new(|| false));
    gate.close();
    let leads = Arc::new(AtomicBool::new(true));
    let guard = Arc::clone(&leads);
    gate.reopen(Arc::new(move || guard.load(Ordering::SeqCst)));
    assert!(!gate.is_closed());
    let response = send(gate.clone(), below.clone(), request(Method::PUT, "/x", "")).await.unwrap();
    leads.store(false, Ordering::SeqCst);
    assert!(send(gate.clone(), below, request(Method::PUT, "/x", "")).await.is_err());
    gate.close();
    let mut drained = Box::pin(gate.drained());
    assert!(futures::poll!(&mut drained).is_pending(), "a write of the new term is under way");
    drop(response);
    drained.await;
}

#[tokio::test]
async fn a_cut_ends_writes_under_way_and_not_those_that_come_later() {
    let (stalled, _) = mock(|_| std::future::pending());
    let (below, _) = mock(|_| async { Ok(answer(200, "")) });
    let gate = WriteGate::new();
    let mut write = Box::pin(send(gate.clone(), stalled.clone(), request(Method::PUT, "/x", "")));
    let mut read = Box::pin(send(gate.clone(), stalled.clone(), get("/x")));
    assert!(futures::poll!(&mut write).is_pending() && futures::poll!(&mut read).is_pending());
    gate.cut();
    let error = write.await.err().unwrap();
    assert!(!error.downcast_ref::<TransportError>().unwrap().is_not_sent(), "it may have been");
    assert!(futures::poll!(&mut read).is_pending(), "reads do no harm");
    send(gate.clone(), below.clone(), request(Method::PUT, "/x", "")).await.unwrap();
    assert_eq!(gate.in_flight(), 0);

    // What a term has left behind does not come into the next one.
    let mut write = Box::pin(send(gate.clone(), stalled, request(Method::PUT, "/x", "")));
    assert!(futures::poll!(&mut write).is_pending());
    gate.close();
    gate.reopen(Arc::new(|| true));
    write.await.err().unwrap();
    send(gate, below, request(Method::PUT, "/x", "")).await.unwrap();
}

fn histogram(registry: &Registry, name: &str) -> prometheus::proto::Histogram {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name).unwrap();
    assert_eq!(family.get_metric().len(), 1, "{name}");
    let metric = &family.get_metric()[0];
    let labels: Vec<_> = metric.get_label().iter().map(prometheus::proto::LabelPair::name).collect();
    assert_eq!(labels, ["host", "verb"]);
    metric.get_histogram().clone()
}

#[tokio::test(start_paused = true)]
async fn time_of_the_api_server_is_that_of_its_own_answers() {
    let metrics = ClientMetrics::register(&Registry::new()).unwrap();
    let ask = async |path: &str, date: &'static str| {
        let (below, _) = mock(move |_| async move {
            let mut response = answer(200, "");
            response.headers_mut().insert("date", date.parse().unwrap());
            Ok(response)
        });
        let middleware = RequestMetrics(metrics.of_host("host:1".into()));
        send(middleware, below, request(Method::GET, path, "")).await.unwrap();
        metrics.server_time().map(|time| time.to_string())
    };
    assert_eq!(metrics.server_time(), None);
    // An aggregated API server has a clock of its own.
    assert_eq!(ask("/apis/metrics.k8s.io/v1beta1/pods", "Sat, 28 Nov 2026 17:00:00 GMT").await, None);
    assert_eq!(ask("/api/v1/pods", "today").await, None);
    let first = ask("/api/v1/pods", "Sat, 28 Nov 2026 18:00:00 GMT").await;
    assert_eq!(first.as_deref(), Some("2026-11-28T18:00:00.5Z"));
    tokio::time::advance(Duration::from_secs(90)).await;
    let later = metrics.server_time().map(|time| time.to_string());
    assert_eq!(later.as_deref(), Some("2026-11-28T18:01:30.5Z"), "it goes on with a clock that nobody sets");
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a";
    let newer = ask(path, "Sat, 28 Nov 2026 18:02:00 GMT").await;
    assert_eq!(newer.as_deref(), Some("2026-11-28T18:02:00.5Z"));
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_and_measured() {
    let registry = Registry::new();
    let metrics = RequestMetrics(ClientMetrics::register(&registry).unwrap().of_host("host:1".into()));
    let (below, _) = mock(|request: Request<Bytes>| async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        if request.uri().path() == "/broken" { Err("broken".into()) } else { Ok(answer(201, "response")) }
    });
    let post = || request(Method::POST, "/x", "request");
    let response = send(metrics.clone(), below.clone(), post()).await.unwrap();
    response.into_body().collect().await.unwrap();
    send(metrics.clone(), below.clone(), request(Method::POST, "/broken", "request")).await.err().unwrap();
    let (forever, _) = mock(|_| async { Ok(http::Response::new(endless("some"))) });
    drop(
        send(metrics.clone(), forever, {
            let mut request = watch();
            *request.method_mut() = Method::POST;
            request.map(|_| Full::new(Bytes::from("request")))
        })
        .await
        .unwrap(),
    );

    let families = registry.gather();
    let total = families.iter().find(|family| family.name() == "rest_client_requests_total").unwrap();
    let mut counts: Vec<_> = total
        .get_metric()
        .iter()
        .map(|metric| {
            let label = |name: &str| {
                metric.get_label().iter().find(|label| label.name() == name).unwrap().value().to_owned()
            };
            (label("code"), label("method"), label("host"), metric.get_counter().get_value())
        })
        .collect();
    counts.sort_by(|a, b| a.0.cmp(&b.0));
    let row = |code: &str| (code.to_owned(), "POST".to_owned(), "host:1".to_owned(), 1.0);
    assert_eq!(counts, [row("200"), row("201"), row("<error>")]);

    let duration = histogram(&registry, "rest_client_request_duration_seconds");
    assert_eq!((duration.get_sample_count(), duration.get_sample_sum()), (2, 6.0), "without the watch");
    assert_eq!(duration.get_bucket().len(), 12);
    let sent = histogram(&registry, "rest_client_request_size_bytes");
    assert_eq!((sent.get_sample_count(), sent.get_sample_sum()), (3, 21.0));
    let received = histogram(&registry, "rest_client_response_size_bytes");
    assert_eq!((received.get_sample_count(), received.get_sample_sum()), (1, 8.0));
}

#[tokio::test(start_paused = true)]
async fn faults_do_what_they_say() {
    let (below, seen) = mock(|_| async { Ok(answer(200, "0123456789")) });
    let faults = Faults::new(7);
    let only = |fault| {
        faults.clear();
        faults.add(FaultRule::new(fault).method(Method::PUT).path("*/pods/*").watch(false).times(1));
    };
    let put = || send(faults.clone(), below.clone(), request(Method::PUT, "/api/v1/pods/a", ""));

    only(Fault::Drop);
    put().await.err().unwrap();
    assert!(seen.lock().is_empty());
    assert_eq!(put().await.unwrap().status(), StatusCode::OK, "once means once");

    only(Fault::LoseAnswer);
    put().await.err().unwrap();
    assert_eq!(seen.lock().len(), 2);

    only(Fault::Delay(Duration::from_secs(5)));
    let began = Instant::now();
    put().await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 5);

    only(Fault::Stall);
    assert!(tokio::time::timeout(Duration::from_hours(1), put()).await.is_err());

    only(Fault::Status { code: StatusCode::CONFLICT, reason: "Conflict", retry_after: Some(3) });
    let response = put().await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["retry-after"]),
        (StatusCode::CONFLICT, &"3".parse().unwrap())
    );

    only(Fault::Cut { after: 4 });
    let mut body = put().await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "0123");
    body.frame().await.unwrap().err().unwrap();

    only(Fault::Freeze { after: 4 });
    let body = put().await.unwrap().into_body();
    assert!(tokio::time::timeout(Duration::from_hours(1), body.collect()).await.is_err());
    assert_eq!(faults.hits(), 7);

    only(Fault::Drop);
    send(faults.clone(), below.clone(), get("/api/v1/pods/a")).await.unwrap();
    send(faults.clone(), below.clone(), request(Method::PUT, "/api/v1/nodes/a", "")).await.unwrap();
    let mut watch = built(RequestIntent::Watch, RequestPath::object(&PODS, "ns", "a"));
    *watch.method_mut() = Method::PUT;
    send(faults.clone(), below.clone(), watch).await.unwrap();
}

#[tokio::test]
async fn the_dice_of_faults_are_seeded() {
    let throws = |seed| async move {
        let faults = Faults::new(seed);
        faults.add(FaultRule::new(Fault::Drop).probability(0.5));
        let mut falls = Vec::new();
        for _ in 0..64 {
            falls.push(send(faults.clone(), ok(), get("/x")).await.is_err());
        }
        falls
    };
    let (one, again, other) = (throws(1).await, throws(1).await, throws(2).await);
    assert_eq!(one, again);
    assert_ne!(one, other);
    assert!(one.contains(&true) && one.contains(&false));
}

#[test]
fn a_request_is_a_span_and_names_it_to_the_server() {
    let mut traces = Tracing::unsent(-1);
    let subscriber = tracing_subscriber::Registry::default().with(vec![traces.layer()]);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let registry = Registry::new();
    let limit = RateLimit {
        limits: RateLimits::new(1.0, 1),
        metrics: ClientMetrics::register(&registry).unwrap().of_host("host:1".into()),
    };
    let (below, seen) = mock(|request: Request<Bytes>| async move {
        if request.uri().path().ends_with("/c") { Err("broken".into()) } else { Ok(answer(409, "no")) }
    });
    let trace = Trace { server: "https://[::1]:6443".into() };
    tracing::subscriber::with_default(subscriber, || {
        let outer = tracing::info_span!("reconcile");
        let sent = async {
            for name in ["b", "c"] {
                let below = HttpService::new(With(limit.clone()).layer(below.clone()));
                let mut request = built(RequestIntent::Update, RequestPath::object(&PODS, "a", name));
                request.headers_mut().insert("traceparent", "00-old".parse().unwrap());
                if let Ok(response) = send(trace.clone(), below, request).await {
                    response.into_body().collect().await.unwrap();
                }
            }
        };
        runtime.block_on(sent.instrument(outer));
    });
    let spans = traces.recorded();
    let [refused, broken, outer] = &spans[..] else { panic!("{spans:#?}") };
    let attribute = |span: &SpanData, key: &str| {
        let found = span.attributes.iter().find(|pair| pair.key.as_str() == key);
        found.map(|pair| pair.value.to_string()).unwrap_or_default()
    };
    for (span, request) in [refused, broken].into_iter().zip(seen.lock().iter()) {
        assert_eq!(span.name, "update pods");
        assert_eq!(span.span_kind, SpanKind::Client);
        assert_eq!(span.parent_span_id, outer.span_context.span_id());
        let (trace, id) = (span.span_context.trace_id(), span.span_context.span_id());
        let headers: Vec<_> = request.headers().get_all("traceparent").iter().collect();
        assert_eq!(headers, [format!("00-{trace}-{id}-01").as_str()]);
        assert_eq!(attribute(span, "server.address"), "::1");
        assert_eq!(attribute(span, "server.port"), "6443");
        assert_eq!(attribute(span, "k8s.namespace.name"), "a");
        assert!(matches!(span.status, Status::Error { .. }), "{:?}", span.status);
    }
    assert_eq!(attribute(refused, "http.response.status_code"), "409");
    assert_eq!(attribute(refused, "error.type"), "409");
    assert_eq!(attribute(refused, "url.full"), "https://[::1]:6443/api/v1/namespaces/a/pods/b");
    assert_eq!(attribute(refused, "coxswain.rate_limit.wait_us"), "0");
    assert_eq!(attribute(broken, "error.type"), "transport");
    assert_ne!(attribute(broken, "coxswain.rate_limit.wait_us"), "0");
}

//! What is asked for, what is sent, and what becomes of it when nobody takes it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;
use crate::model::clock::ManualClock;
use crate::random::HashMap;
use crate::telemetry::tracing::Ids;
use crate::telemetry::tracing::settings::{Protocol, SettingProblem, SettingSource};

fn complete(given: &str, variables: &[(&str, &str)]) -> Result<Option<PushSettings>, Vec<SettingProblem>> {
    let variables: HashMap<&str, &str> = variables.iter().copied().collect();
    PushSettings::complete(given, &|name| variables.get(name).map(|value| (*value).to_owned()))
}

fn on(given: &str, variables: &[(&str, &str)]) -> PushSettings {
    complete(given, variables).unwrap().unwrap()
}

#[test]
fn metrics_are_pushed_only_where_somebody_asks_for_it() {
    let own = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://y:1/whole");
    for variables in [
        &[][..],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:4318")],
        &[own, ("OTEL_METRICS_EXPORTER", "none")],
        &[own, ("OTEL_METRICS_EXPORTER", "prometheus")],
        &[own, ("OTEL_SDK_DISABLED", "true")],
    ] {
        assert_eq!(complete("", variables), Ok(None), "{variables:?}");
    }
    let otlp = ("OTEL_METRICS_EXPORTER", "otlp");
    let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:1/base");
    let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    let grpc = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc");
    for (given, variables, endpoint, protocol) in [
        ("h:1", &[][..], "http://h:1/", Protocol::Grpc),
        ("h:1", &[http], "http://h:1/v1/metrics", Protocol::HttpProtobuf),
        ("", &[otlp], "http://localhost:4318/v1/metrics", Protocol::HttpProtobuf),
        ("", &[otlp, grpc], "http://localhost:4317/", Protocol::Grpc),
        ("", &[otlp, all], "http://x:1/base/v1/metrics", Protocol::HttpProtobuf),
        ("", &[own, all], "http://y:1/whole", Protocol::HttpProtobuf),
    ] {
        let settings = on(given, variables);
        assert_eq!((settings.endpoint.to_string().as_str(), settings.protocol), (endpoint, protocol));
    }
    assert!(complete("", &[("OTEL_METRICS_EXPORTER", "console")]).is_err());
}

#[test]
fn times_and_headers_and_what_is_wrong_with_them() {
    let settings = on("h:1", &[]);
    assert_eq!((settings.interval, settings.timeout), (Duration::from_mins(1), Duration::from_secs(10)));
    let variables = [
        ("OTEL_METRIC_EXPORT_INTERVAL", "5000"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "700"),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "authorization=Bearer%20s3cret, x-tenant=a"),
        ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "/ca.pem"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=n,k=v"),
    ];
    let settings = on("h:1", &variables);
    assert_eq!((settings.interval, settings.timeout), (Duration::from_secs(5), Duration::from_millis(700)));
    assert_eq!(settings.certificate.as_deref(), Some("/ca.pem".as_ref()));
    assert_eq!(settings.service_name.as_deref(), Some("n"));
    assert_eq!(settings.headers["authorization"], "Bearer s3cret");
    assert!(!format!("{settings:?}").contains("s3cret"));
    let wrong = [
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "s3cret"),
        ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip"),
    ];
    let problems = complete("ftp://h", &wrong).unwrap_err();
    let sources: Vec<_> = problems.iter().map(|problem| problem.source).collect();
    assert!(sources.contains(&SettingSource::Flag("metrics-otlp-endpoint")), "{sources:?}");
    for (name, _) in wrong {
        assert!(sources.contains(&SettingSource::Variable(name)), "{name} in {sources:?}");
    }
    assert!(!format!("{problems:?}").contains("s3cret"));
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A counter, a gauge, and a histogram with exemplars in two of its buckets.
fn registry() -> Registry {
    let registry = Registry::new();
    let registrar = Registrar::new(&registry);
    registrar.counters("a_total", "As.", &["l"]).unwrap().with_label_values(&["x"]).inc_by(3);
    registrar.gauge("b_bytes", "Bs.").unwrap().set(2.5);
    let times = registrar.traced_histograms("c_seconds", "Cs.", &["l"], vec![1.0, 10.0]).unwrap();
    registry.exemplars().enable(Arc::new(ManualClock::new(at(50))));
    let ids = Ids { trace: [1; 16], span: [2; 8] };
    for value in [0.5, 0.25, 7.0, 11.0] {
        times.observe_in(&["x"], value, || (value > 5.0).then_some(ids));
    }
    registry
}

type Taken = (HeaderMap, ExportMetricsServiceRequest);

/// One that speaks both protocols and hands out what it is sent; it refuses while it is told to.
struct Receiver {
    address: SocketAddr,
    taken: mpsc::Receiver<Taken>,
    refuses: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, taken) = mpsc::channel(64);
        let refuses = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let refusing = Arc::clone(&refuses);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (sender, refusing) = (sender.clone(), Arc::clone(&refusing));
                let service = service_fn(move |request: http::Request<Incoming>| {
                    let (sender, refuses) = (sender.clone(), refusing.load(Ordering::SeqCst));
                    async move { Ok::<_, Infallible>(answer(request, sender, refuses).await) }
                });
                let server = auto::Builder::new(TokioExecutor::new());
                connections.spawn(async move {
                    drop(server.serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { address, taken, refuses, _tasks: tasks }
    }

    async fn next(&mut self) -> Taken {
        self.taken.recv().await.unwrap()
    }
}

async fn answer(
    request: http::Request<Incoming>,
    sender: mpsc::Sender<Taken>,
    refuses: bool,
) -> Response<BoxBody<Bytes, Infallible>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let grpc = head.headers["content-type"] == "application/grpc";
    let path =
        if grpc { "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" } else { "/v1/metrics" };
    assert_eq!(head.uri.path(), path);
    // A gRPC message has five bytes before it.
    let body = if grpc { body.slice(5..) } else { body };
    let request = ExportMetricsServiceRequest::decode(body).unwrap();
    // Nobody may be left who looks at it.
    drop(sender.try_send((head.headers, request)));
    if !grpc {
        let status = if refuses { 503 } else { 200 };
        return Response::builder().status(status).body(Full::new(Bytes::new()).boxed()).unwrap();
    }
    let status = if refuses { "14" } else { "0" };
    let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), status.parse().unwrap())]);
    let frames = [Ok(Frame::data(Bytes::from_static(&[0; 5]))), Ok(Frame::trailers(trailers))];
    let body = BoxBody::new(StreamBody::new(futures::stream::iter(frames)));
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

fn metric<'a>(request: &'a ExportMetricsServiceRequest, name: &str) -> &'a Metric {
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    metrics.iter().find(|metric| metric.name == name).unwrap()
}

/// Pushes that came to this result.
fn pushes(request: &ExportMetricsServiceRequest, result: &str) -> f64 {
    let Some(metric::Data::Sum(sum)) = &metric(request, "coxswain_metrics_exports_total").data else {
        panic!("{request:?}")
    };
    let point = sum.data_points.iter().find(|point| format!("{:?}", point.attributes).contains(result));
    match point.unwrap().value {
        Some(number_data_point::Value::AsDouble(count)) => count,
        other => panic!("{other:?}"),
    }
}

fn check(request: &ExportMetricsServiceRequest) {
    let resource = request.resource_metrics[0].resource.as_ref().unwrap();
    let attributes = format!("{:?}", resource.attributes);
    for expected in ["service.name", "coxswain", "1.2", "service.instance.id", "me", "here", "\"k\"", "\"v\""]
    {
        assert!(attributes.contains(expected), "{expected} in {attributes}");
    }
    let Some(metric::Data::Sum(sum)) = &metric(request, "a_total").data else { panic!("{request:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "cumulative");
    let point = &sum.data_points[0];
    assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (7_000_000_000, 100_000_000_000));
    assert_eq!(point.value, Some(number_data_point::Value::AsDouble(3.0)));
    assert_eq!(point.attributes[0].key, "l");
    let gauge = metric(request, "b_bytes");
    assert_eq!(gauge.unit, "By");
    assert!(matches!(&gauge.data, Some(metric::Data::Gauge(gauge)) if gauge.data_points.len() == 1));
    let Some(metric::Data::Histogram(histogram)) = &metric(request, "c_seconds").data else {
        panic!("{request:?}")
    };
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.sum), (4, Some(18.75)));
    assert_eq!(
        (point.bucket_counts.as_slice(), point.explicit_bounds.as_slice()),
        ([2, 1, 1].as_slice(), [1.0, 10.0].as_slice())
    );
    let traces: Vec<_> = point.exemplars.iter().map(|exemplar| exemplar.trace_id.clone()).collect();
    assert_eq!(traces, [vec![1; 16], vec![1; 16]]);
}

async fn pushed_by(protocol: &str) {
    let mut receiver = Receiver::start().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1"),
        ("OTEL_RESOURCE_ATTRIBUTES", "k=v"),
    ];
    let settings = on(&receiver.address.to_string(), &variables);
    let registry = registry();
    let process = Process { version: "1.2", identity: "me", host: "here" };
    let clock = Arc::new(ManualClock::new(at(100)));
    let pushing = Pushing::start(&settings, (process, at(7)), &registry, clock, &Handle::current()).unwrap();
    let (headers, request) = receiver.next().await;
    assert_eq!(headers["x-tenant"], "a");
    check(&request);
    receiver.refuses.store(true, Ordering::SeqCst);
    while pushes(&receiver.next().await.1, "failure") < 1.0 {}
    receiver.refuses.store(false, Ordering::SeqCst);
    let before = pushes(&receiver.next().await.1, "success");
    while pushes(&receiver.next().await.1, "success") <= before {}
    pushing.shutdown(Duration::from_secs(30)).await;
}

#[tokio::test]
async fn grpc_brings_everything_and_goes_on_after_refusals() {
    pushed_by("grpc").await;
}

#[tokio::test]
async fn http_brings_everything_and_goes_on_after_refusals() {
    pushed_by("http/protobuf").await;
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_says_nothing_costs_a_failed_push() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = on(&listener.local_addr().unwrap().to_string(), &[]);
    let registry = registry();
    let mut push = Push {
        registry: registry.clone(),
        sender: Sender::new(&settings).unwrap(),
        resource: Resource::default(),
        clock: Arc::new(ManualClock::new(at(100))),
        started: at(7),
        interval: settings.interval,
        timeout: settings.timeout,
        counts: register(&registry).unwrap(),
        closing: CancellationToken::new(),
        failing: false,
    };
    push.push().await;
    push.push().await;
    assert_eq!((push.counts.failed.get(), push.counts.taken.get(), push.failing), (2, 0, true));
}

//! Spans on their way: which are made, what they are called, and what becomes of them when nobody takes them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry, fmt};

use super::processor::{Counts, Sending};
use super::provider::resource;
use super::settings::Batching;
use super::{
    Process, Tracing, child, continue_from, inject, is_on, linked, present, set_attribute, set_failed,
};
use crate::telemetry::tracing::settings::{Given, TracingSettings};

/// Traces that are sampled, per million.
const ALL: i32 = 1_000_000;
const NONE: i32 = 0;

/// The spans of `run`, traced.
fn traced(rate_per_million: i32, run: impl FnOnce()) -> Vec<SpanData> {
    let mut tracing = Tracing::unsent(rate_per_million);
    let subscriber = Registry::default().with(vec![tracing.layer()]);
    tracing::subscriber::with_default(subscriber, run);
    tracing.recorded()
}

fn traceparent() -> Option<String> {
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", "old".parse().unwrap());
    headers.insert("tracestate", "old=1".parse().unwrap());
    inject(&mut headers);
    assert_eq!(headers.get_all("traceparent").iter().count(), 1);
    let header = headers["traceparent"].to_str().unwrap().to_owned();
    assert_eq!(headers.contains_key("tracestate"), header == "old", "there is no state");
    (header != "old").then_some(header)
}

#[test]
fn spans_are_one_tree_whatever_the_verbosity() {
    let spans = traced(ALL, || {
        assert!(is_on());
        let outer = tracing::info_span!("reconcile", otel.name = "reconcile x", controller = "x");
        let ids = outer.in_scope(|| {
            let ids = present().unwrap();
            assert_eq!(traceparent().unwrap(), format!("00-{}-{}-01", ids.trace_hex(), ids.span_hex()));
            tracing::debug_span!("plan").in_scope(|| tracing::warn!("odd"));
            let _ = tracing::trace_span!("too fine").entered();
            ids
        });
        assert_eq!(linked(&outer).unwrap().trace_id().to_bytes(), ids.trace);
        set_attribute(&outer, "uid", "u");
        set_failed(&outer, "bad luck");
        drop(outer);
        assert_eq!((present(), traceparent()), (None, None));
    });
    let [plan, reconcile] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!((&*plan.name, &*reconcile.name), ("plan", "reconcile x"));
    assert_eq!(plan.parent_span_id, reconcile.span_context.span_id());
    assert_eq!(plan.span_context.trace_id(), reconcile.span_context.trace_id());
    assert_eq!(plan.events.len(), 1, "what goes wrong is told");
    assert_eq!(reconcile.parent_span_id, SpanId::INVALID);
    assert_eq!(reconcile.status, Status::error("bad luck"));
    let held: Vec<_> = reconcile.attributes.iter().map(|pair| pair.key.as_str()).collect();
    assert!(held.contains(&"controller") && held.contains(&"uid"), "{held:?}");
}

#[test]
fn what_is_not_recorded_makes_no_children_and_says_so() {
    let spans = traced(NONE, || {
        let outer = tracing::info_span!("reconcile");
        outer.in_scope(|| {
            assert!(child(|| tracing::debug_span!("plan")).is_disabled());
            tracing::debug_span!("plan").in_scope(|| assert_eq!(present(), None));
            let header = traceparent().unwrap();
            assert!(header.starts_with("00-") && header.ends_with("-00"), "{header}");
        });
        assert_eq!(linked(&outer), None);
    });
    assert_eq!(spans, []);
}

#[test]
fn a_callers_trace_is_continued() {
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let call = |flags: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", format!("00-{trace}-b7ad6b7169203331-{flags}").parse().unwrap());
        let span = tracing::debug_span!("call");
        continue_from(&span, &headers);
        span.in_scope(|| ());
    };
    let spans = traced(NONE, || call("01"));
    assert_eq!(spans.len(), 1, "the caller decides");
    assert_eq!(spans[0].span_context.trace_id().to_string(), trace);
    assert_eq!(spans[0].parent_span_id.to_string(), "b7ad6b7169203331");
    assert_eq!(traced(ALL, || call("00")), []);
    assert_eq!(traced(ALL, || call("zz")).len(), 1, "a trace of its own");
}

#[test]
fn without_tracing_there_is_nothing() {
    let subscriber = Registry::default().with(fmt::layer().with_writer(std::io::sink).boxed());
    tracing::subscriber::with_default(subscriber, || {
        let span = tracing::info_span!("reconcile");
        assert!(!is_on() && linked(&span).is_none());
        span.in_scope(|| assert_eq!((present(), traceparent()), (None, None)));
        set_attribute(&span, "a", "b");
        set_failed(&span, "c");
    });
}

#[test]
fn the_resource_says_which_process() {
    let given = Given { endpoint: "127.0.0.1:1", rate_per_million: ALL, file: "" };
    let mut settings = TracingSettings::complete(given, &|_| None).unwrap().unwrap();
    settings.attributes = vec![("host.name".to_owned(), "given".to_owned())];
    let process = Process { version: "1", identity: "host_1", host: "host" };
    let of = |settings: &TracingSettings, key: &'static str| {
        resource(settings, process).get(&key.into()).map(|value| value.to_string())
    };
    assert_eq!(of(&settings, "service.name").as_deref(), Some("coxswain"));
    assert_eq!(of(&settings, "service.instance.id").as_deref(), Some("host_1"));
    assert_eq!(of(&settings, "host.name").as_deref(), Some("given"), "what is given wins");
    settings.service_name = Some("kube-controller-manager".to_owned());
    assert_eq!(of(&settings, "service.name").as_deref(), Some("kube-controller-manager"));
}

/// What a collector does with a batch.
#[derive(Clone, Copy, Debug)]
enum Collector {
    Takes,
    Refuses,
    Stalls,
}

#[derive(Clone, Debug)]
struct Fake(Arc<Mutex<(Collector, Vec<usize>)>>);

impl SpanExporter for Fake {
    fn export(&self, batch: Vec<SpanData>) -> impl Future<Output = OTelSdkResult> + Send {
        let collector = {
            let mut held = self.0.lock();
            held.1.push(batch.len());
            held.0
        };
        async move {
            match collector {
                Collector::Takes => Ok(()),
                Collector::Refuses => Err(OTelSdkError::InternalFailure("refused".to_owned())),
                Collector::Stalls => std::future::pending().await,
            }
        }
    }
}

struct Bench {
    fake: Fake,
    counts: Counts,
    spans: mpsc::Sender<SpanData>,
    closing: CancellationToken,
    task: JoinSet<()>,
}

const LIMIT: Duration = Duration::from_secs(10);

/// A queue of 8 in front of batches of 4.
fn bench(collector: Collector) -> Bench {
    let fake = Fake(Arc::new(Mutex::new((collector, Vec::new()))));
    let counter = |name: &str| IntCounter::new(name, "x").unwrap();
    let counts = Counts { exported: counter("a"), dropped: counter("b") };
    let (sender, spans) = mpsc::channel(8);
    let closing = CancellationToken::new();
    let batching = Batching { queue: 8, batch: 4, delay: Duration::from_secs(1) };
    let sending = Sending::new(spans, fake.clone(), (batching, LIMIT), counts.clone(), closing.clone());
    let mut task = JoinSet::new();
    task.spawn(sending.run());
    Bench { fake, counts, spans: sender, closing, task }
}

impl Bench {
    /// Ends so many spans, never waiting.
    fn end(&self, count: usize) {
        use opentelemetry_sdk::trace::SpanProcessor as _;
        let queue = super::processor::Queue { spans: self.spans.clone(), counts: self.counts.clone() };
        let span = traced(ALL, || drop(tracing::info_span!("x").entered())).remove(0);
        for _ in 0..count {
            queue.on_end(span.clone());
        }
    }

    fn counts(&self) -> (u64, u64) {
        (self.counts.exported.get(), self.counts.dropped.get())
    }
}

#[tokio::test(start_paused = true)]
async fn batches_are_sent_when_full_or_old_and_at_the_end() {
    let mut bench = bench(Collector::Takes);
    bench.end(6);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(bench.counts(), (4, 0), "one is full");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.counts(), (6, 0), "the other has waited");
    bench.end(3);
    tokio::task::yield_now().await;
    bench.closing.cancel();
    bench.task.join_next().await.unwrap().unwrap();
    assert_eq!(bench.counts.exported.get(), 9);
    assert_eq!(bench.fake.0.lock().1, [4, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_collector_costs_spans_and_is_found_again() {
    let bench = bench(Collector::Refuses);
    bench.end(4);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.counts(), (0, 4));
    bench.fake.0.lock().0 = Collector::Takes;
    bench.end(4);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.counts(), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_collector_holds_one_batch_for_the_timeout_and_a_queue_of_fixed_size() {
    let bench = bench(Collector::Stalls);
    bench.end(4);
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.end(1000);
    assert_eq!(bench.counts(), (0, 992), "8 wait");
    tokio::time::sleep(LIMIT).await;
    assert_eq!(bench.counts(), (0, 996), "the first batch is given up");
    bench.fake.0.lock().0 = Collector::Takes;
    tokio::time::sleep(LIMIT * 2).await;
    assert_eq!(bench.counts(), (4, 1000), "one more was on its way");
}

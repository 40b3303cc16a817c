//! Tracing of one process, from its layer of `tracing` to the task that sends spans.

use std::path::PathBuf;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanId, TraceId, TracerProvider as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, SdkTracerProvider, SpanData, SpanExporter as _};
use prometheus::IntCounter;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use super::filter::SpanFilter;
use super::processor::{Counts, Queue, Sending};
use super::settings::TracingSettings;
use super::transport;
use crate::random::{self, HashSet};
use crate::telemetry::Registry;
use crate::telemetry::{MetricsError, Registrar};

/// `service.name`, unless it is given.
const SERVICE: &str = "coxswain";

/// A layer that makes traces of spans.
pub type TraceLayer<S> = Box<dyn Layer<S> + Send + Sync>;

/// Traces can't be sent, or not be counted.
#[derive(Debug, thiserror::Error)]
pub enum TracingError {
    /// The file with the authorities of the collector can't be used.
    #[error("load certificate of the trace collector {}: {why}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The exporter can't be made.
    #[error("create trace exporter: {0}")]
    Exporter(String),
    /// A metric is registered twice.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}

/// The process as its traces name it.
#[derive(Clone, Copy, Debug)]
pub struct Process<'a> {
    /// `service.version`.
    pub version: &'a str,
    /// `service.instance.id`: this replica's name in elections too.
    pub identity: &'a str,
    /// `host.name`.
    pub host: &'a str,
}

/// Ids of traces and spans, by the thread's generator. None is zero, which would be no id.
#[derive(Debug)]
struct Ids;

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        TraceId::from(random::within(1..=u128::MAX))
    }

    fn new_span_id(&self) -> SpanId {
        SpanId::from(random::within(1..=u64::MAX))
    }
}

/// Tracing before anything is sent: spans gather in the queue, and are dropped once it is full.
#[derive(Debug)]
pub struct Tracing {
    settings: TracingSettings,
    provider: SdkTracerProvider,
    spans: Receiver<SpanData>,
    counts: Counts,
}

impl Tracing {
    /// Makes ready; nothing is sent yet.
    ///
    /// # Errors
    /// A counter can't be made, which would be a programming error.
    pub fn new(settings: TracingSettings) -> Result<Self, TracingError> {
        let counter = |name: &str, help: &str| {
            IntCounter::new(name, help).map_err(|error| MetricsError::new(name, error))
        };
        let counts = Counts {
            exported: counter(EXPORTED, "Spans exported to the trace collector.")?,
            dropped: counter(
                DROPPED,
                "Dropped spans: rejected by the trace collector, or exceeding the queue size.",
            )?,
        };
        let (sender, spans) = mpsc::channel(settings.batching.queue);
        let provider = SdkTracerProvider::builder()
            .with_sampler(settings.sampling.sampler())
            .with_id_generator(Ids)
            // What is sent with each batch is told to the exporter, once it is known.
            .with_resource(Resource::builder_empty().build())
            .with_span_processor(Queue { spans: sender, counts: counts.clone() })
            .build();
        Ok(Self { settings, provider, spans, counts })
    }

    /// The layer that makes traces of the spans of `tracing`.
    pub fn layer<S>(&self) -> TraceLayer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(SERVICE))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_filter(SpanFilter)
            .boxed()
    }

    /// With a collector that is not there, for tests that look at what is [recorded](Self::recorded). All traces are
    /// sampled with a rate of -1.
    #[cfg(any(test, feature = "testing"))]
    #[allow(
        clippy::missing_panics_doc,
        clippy::unwrap_used,
        reason = "for tests: they should end where it fails"
    )]
    pub fn unsent(rate_per_million: i32) -> Self {
        // As long as there is but one dispatcher, `tracing` asks the present thread's, which may have none, about call sites
        // that all threads share. These two stay.
        static STAYING: std::sync::LazyLock<[tracing::Dispatch; 2]> = std::sync::LazyLock::new(|| {
            [0, 1].map(|_| tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default()))
        });
        std::sync::LazyLock::force(&STAYING);
        let given = super::settings::Given { endpoint: "127.0.0.1:1", rate_per_million, file: "" };
        Self::new(TracingSettings::complete(given, &|_| None).unwrap().unwrap()).unwrap()
    }

    /// The spans that have ended, instead of sending them.
    #[cfg(any(test, feature = "testing"))]
    pub fn recorded(&mut self) -> Vec<SpanData> {
        std::iter::from_fn(|| self.spans.try_recv().ok()).collect()
    }

    /// Begins to send, on threads of `runtime`.
    ///
    /// # Errors
    /// The collector's certificate is unfit, or a metric is registered already.
    pub fn start(
        self,
        process: Process<'_>,
        registry: &Registry,
        runtime: &Handle,
    ) -> Result<Exporting, TracingError> {
        let Self { settings, provider, spans, counts } = self;
        let registrar = Registrar::new(registry);
        registrar.collector(EXPORTED, Box::new(counts.exported.clone()))?;
        registrar.collector(DROPPED, Box::new(counts.dropped.clone()))?;
        let mut exporter = {
            let _within = runtime.enter();
            transport::exporter(&settings)?
        };
        exporter.set_resource(&resource(&settings, process));
        let closing = CancellationToken::new();
        let limits = (settings.batching, settings.timeout);
        let sending = Sending::new(spans, exporter, limits, counts, closing.clone());
        tracing::info!(endpoint = %settings.endpoint, protocol = ?settings.protocol, "Exporting traces");
        Ok(Exporting { task: runtime.spawn(sending.run()), closing, _provider: provider })
    }
}

const EXPORTED: &str = "coxswain_trace_spans_exported_total";
const DROPPED: &str = "coxswain_trace_spans_dropped_total";

/// Tracing at work.
#[derive(Debug)]
pub struct Exporting {
    task: JoinHandle<()>,
    closing: CancellationToken,
    _provider: SdkTracerProvider,
}

impl Exporting {
    /// Sends what is left, for as long as `limit` at most.
    pub async fn shutdown(mut self, limit: Duration) {
        self.closing.cancel();
        match tokio::time::timeout(limit, &mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "The trace exporter panicked"),
            Err(_) => {
                self.task.abort();
                tracing::warn!(?limit, "Timed out exporting the last spans; they are lost");
            }
        }
    }
}

/// What all spans share (OpenTelemetry's semantic conventions for resources).
pub(super) fn resource(settings: &TracingSettings, process: Process<'_>) -> Resource {
    Resource::builder_empty()
        .with_attributes(attributes(settings.service_name.as_deref(), &settings.attributes, process))
        .build()
}

/// The attributes of what this process sends.
pub(in crate::telemetry) fn attributes(
    service_name: Option<&str>,
    given: &[(String, String)],
    process: Process<'_>,
) -> Vec<KeyValue> {
    let own = [
        ("service.version", process.version),
        ("service.instance.id", process.identity),
        ("host.name", process.host),
        ("telemetry.sdk.name", "opentelemetry"),
        ("telemetry.sdk.language", "rust"),
        ("coxswain.leader_election.identity", process.identity),
    ];
    let mut attributes: Vec<KeyValue> = own.map(|(name, value)| KeyValue::new(name, value.to_owned())).into();
    attributes.push(KeyValue::new("process.pid", i64::from(std::process::id())));
    attributes.extend(given.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone())));
    attributes.push(KeyValue::new("service.name", service_name.unwrap_or(SERVICE).to_owned()));
    // Of several of one name the last one counts.
    let mut seen = HashSet::default();
    attributes.reverse();
    attributes.retain(|attribute| seen.insert(attribute.key.clone()));
    attributes.reverse();
    attributes
}

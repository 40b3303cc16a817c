//! How to trace: the flags, the file that one of them names, and the variables of the OpenTelemetry specification.
//!
//! A flag wins over the file, and both over the variables. Tracing is on if a flag asks for it or a variable names an
//! endpoint. See the OpenTelemetry specification, "Environment Variable Specification" and "OTLP Exporter", and
//! `TracingConfiguration` in the Kubernetes reference. What is secret (headers) is checked here and kept nowhere.

mod document;
mod sampling;
mod variables;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

pub use sampling::{Root, Sampling};
use variables::TRACES;
pub(in crate::telemetry) use variables::{METRICS, Signal, Variables};

/// Where a collector for gRPC is, unless the file says otherwise: as with other components of Kubernetes.
const DEFAULT_ENDPOINT: &str = "localhost:4317";
/// `OTEL_EXPORTER_OTLP_TIMEOUT` by default.
pub(in crate::telemetry) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// `OTEL_BSP_SCHEDULE_DELAY` by default.
const DEFAULT_DELAY: Duration = Duration::from_secs(5);
/// `OTEL_BSP_MAX_QUEUE_SIZE` by default, in spans.
const DEFAULT_QUEUE: usize = 2048;
/// The largest queue: what it holds when it is full must be bearable.
const MOST_QUEUED: usize = 65_536;
/// `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` by default, in spans.
const DEFAULT_BATCH: usize = 512;

/// How to trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TracingSettings {
    /// The collector: a URL of scheme, host and, for HTTP, path.
    pub endpoint: Uri,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// How long it may take over one batch.
    pub timeout: Duration,
    /// PEM file of the authorities that it is trusted by; the system's if `None`.
    pub certificate: Option<PathBuf>,
    /// Which traces are recorded.
    pub sampling: Sampling,
    /// How spans are gathered.
    pub batching: Batching,
    /// `service.name`, if it is given.
    pub service_name: Option<String>,
    /// Further attributes of the resource.
    pub attributes: Vec<(String, String)>,
}

/// How a collector is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP/gRPC.
    Grpc,
    /// OTLP/HTTP, in protobuf.
    HttpProtobuf,
}

/// How spans are gathered before they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Spans that may wait.
    pub queue: usize,
    /// Spans that are sent together at most.
    pub batch: usize,
    /// How long the first span of a batch waits for more.
    pub delay: Duration,
}

impl Default for Batching {
    fn default() -> Self {
        Self { queue: DEFAULT_QUEUE, batch: DEFAULT_BATCH, delay: DEFAULT_DELAY }
    }
}

/// What the command line says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// `--tracing-endpoint`; empty if not given.
    pub endpoint: &'a str,
    /// `--tracing-sampling-rate-per-million`; -1 if not given.
    pub rate_per_million: i32,
    /// `--tracing-config-file`; empty if not given.
    pub file: &'a str,
}

/// Something wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingProblem {
    /// Where it stands.
    pub source: SettingSource,
    /// What is wrong. Never says what is in a header.
    pub problem: String,
    /// What would be right.
    pub allowed: String,
}

/// Where a setting stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// A flag, by its name without dashes.
    Flag(&'static str),
    /// A variable of the environment.
    Variable(&'static str),
}

impl SettingProblem {
    fn new(source: SettingSource, problem: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { source, problem: problem.into(), allowed: allowed.into() }
    }
}

const ENDPOINT: SettingSource = SettingSource::Flag("tracing-endpoint");
const RATE: SettingSource = SettingSource::Flag("tracing-sampling-rate-per-million");
const FILE: SettingSource = SettingSource::Flag("tracing-config-file");

/// An endpoint as it was found.
pub(in crate::telemetry) struct Found {
    pub(in crate::telemetry) source: SettingSource,
    pub(in crate::telemetry) text: String,
    /// The protocol that holds for it unless a variable says otherwise.
    pub(in crate::telemetry) protocol: Protocol,
    /// Whether it is the whole URL, to which no path is added.
    pub(in crate::telemetry) whole: bool,
}

impl Found {
    /// As a flag or a file says it.
    pub(in crate::telemetry) fn said(source: SettingSource, text: &str) -> Self {
        Self { source, text: text.to_owned(), protocol: Protocol::Grpc, whole: false }
    }
}

impl TracingSettings {
    /// Makes out how to trace; `None` if nothing asks for it. `environment` gives the value of a variable.
    ///
    /// # Errors
    /// Everything that is wrong, of what is used.
    pub fn complete(
        given: Given<'_>,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Vec<SettingProblem>> {
        let mut problems = Vec::new();
        let document = document::read(given.file, &mut problems);
        let rate = rate(given.rate_per_million, &mut problems);
        let variables = Variables::new(environment, &TRACES);
        let flag = (!given.endpoint.is_empty()).then(|| Found::said(ENDPOINT, given.endpoint));
        let file = document
            .as_ref()
            .map(|document| Found::said(FILE, document.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT)));
        let Some(found) = flag.or(file).or_else(|| variables.endpoint(&mut problems)) else {
            return if problems.is_empty() { Ok(None) } else { Err(problems) };
        };
        let sampling = match rate.or(document.map(|document| document.rate_per_million)) {
            Some(rate) => Sampling::per_million(rate),
            None => variables.sampling(&mut problems),
        };
        let protocol = variables.protocol(&mut problems).unwrap_or(found.protocol);
        let endpoint = endpoint(&found, protocol, &TRACES, &mut problems);
        // The exporter reads them by itself.
        variables.headers(&mut problems);
        variables.compression(&mut problems);
        let timeout = variables.timeout(&mut problems).unwrap_or(DEFAULT_TIMEOUT);
        let batching = variables.batching(&mut problems);
        let attributes = variables.attributes(&mut problems);
        let service_name = variables.service_name(&attributes);
        match endpoint {
            Some(endpoint) if problems.is_empty() => Ok(Some(Self {
                endpoint,
                protocol,
                timeout,
                certificate: variables.certificate(),
                sampling,
                batching,
                service_name,
                attributes,
            })),
            _ => Err(problems),
        }
    }
}

fn rate(given: i32, problems: &mut Vec<SettingProblem>) -> Option<u32> {
    match given {
        -1 => None,
        0..=1_000_000 => Some(given.unsigned_abs()),
        other => {
            let problem = format!("{other} is out of range");
            problems.push(SettingProblem::new(
                RATE,
                problem,
                "0 to 1000000, or -1 for the value of the file or the environment",
            ));
            None
        }
    }
}

/// Reads an endpoint: `HOST:PORT`, which is not encrypted, or a URL.
pub(in crate::telemetry) fn endpoint(
    found: &Found,
    protocol: Protocol,
    signal: &Signal,
    problems: &mut Vec<SettingProblem>,
) -> Option<Uri> {
    let text = found.text.trim();
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let mut refuse = |problem: String| {
        problems.push(SettingProblem::new(found.source, problem, "HOST:PORT, or a URL with http or https"));
        None
    };
    let uri = match url.parse::<Uri>() {
        Ok(uri) => uri,
        Err(error) => return refuse(format!("{text:?} is not an endpoint: {error}")),
    };
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return refuse(format!("{text:?} has an unsupported scheme"));
    }
    if uri.authority().is_none_or(|authority| authority.host().is_empty()) {
        return refuse(format!("{text:?} has no host"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return refuse("the URL has credentials, which would appear in logs".to_owned());
    }
    if protocol == Protocol::Grpc || found.whole {
        return Some(uri);
    }
    let base = uri.path().trim_end_matches('/');
    if matches!(found.source, SettingSource::Flag(_)) && !base.is_empty() {
        return Some(uri);
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{base}{}", signal.path).parse().ok();
    Uri::from_parts(parts).ok()
}

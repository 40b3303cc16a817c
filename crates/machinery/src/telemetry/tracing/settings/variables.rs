//! The variables of the OpenTelemetry specification, each read where it is used. An empty one is one that is not set.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::{Batching, Found, MOST_QUEUED, Protocol, Root, Sampling, SettingProblem, SettingSource};

/// Reads variables. Those of a signal win over those of all.
pub(in crate::telemetry) struct Variables<'a> {
    environment: &'a dyn Fn(&str) -> Option<String>,
    signal: &'static Signal,
}

type Names = [&'static str; 2];

/// What is exported, and the names of the variables about it: its own, and that of all signals.
pub(in crate::telemetry) struct Signal {
    endpoint: Names,
    protocol: Names,
    headers: Names,
    timeout: Names,
    certificate: Names,
    compression: Names,
    exporter: &'static str,
    /// Exporters that are none of this process' business: with them nothing is sent.
    elsewhere: &'static [&'static str],
    /// Whether an endpoint of all signals is one of this one, too, if nothing more is said.
    is_part_of_all: bool,
    /// Below an endpoint for HTTP.
    pub(in crate::telemetry) path: &'static str,
}

/// Traces.
pub(in crate::telemetry) static TRACES: Signal = Signal {
    endpoint: ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"],
    protocol: ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"],
    headers: ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"],
    timeout: ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"],
    certificate: ["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"],
    compression: ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"],
    exporter: "OTEL_TRACES_EXPORTER",
    elsewhere: &["none"],
    is_part_of_all: true,
    path: "/v1/traces",
};

/// Metrics. They can be had from `/metrics` already, so that to send them must be asked for.
pub(in crate::telemetry) static METRICS: Signal = Signal {
    endpoint: ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"],
    protocol: ["OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"],
    headers: ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"],
    timeout: ["OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"],
    certificate: ["OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"],
    compression: ["OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"],
    exporter: "OTEL_METRICS_EXPORTER",
    elsewhere: &["none", "prometheus"],
    is_part_of_all: false,
    path: "/v1/metrics",
};

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// What a variable that names an endpoint is without one: the specification's place for OTLP/HTTP.
const DEFAULT_HTTP_ENDPOINT: &str = "http://localhost:4318";

impl<'a> Variables<'a> {
    pub(in crate::telemetry) fn new(
        environment: &'a dyn Fn(&str) -> Option<String>,
        signal: &'static Signal,
    ) -> Self {
        Self { environment, signal }
    }

    fn get(&self, name: &str) -> Option<String> {
        (self.environment)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn first(&self, names: Names) -> Option<(&'static str, String)> {
        names.into_iter().find_map(|name| Some((name, self.get(name)?)))
    }

    /// The endpoint, unless the variables ask for none.
    pub(in crate::telemetry) fn endpoint(&self, problems: &mut Vec<SettingProblem>) -> Option<Found> {
        // Anything but `true` is false, says the specification.
        if self.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let exporter = self.signal.exporter;
        let asked = match self.get(exporter).as_deref() {
            Some(name) if self.signal.elsewhere.contains(&name) => return None,
            Some("otlp") => true,
            None => false,
            Some(other) => {
                let problem = format!("unknown exporter {other:?}");
                let allowed = format!("otlp, {}", self.signal.elsewhere.join(", "));
                problems.push(SettingProblem::new(SettingSource::Variable(exporter), problem, allowed));
                return None;
            }
        };
        let protocol = Protocol::HttpProtobuf;
        let names = self.signal.endpoint;
        let named =
            self.first(names).filter(|(name, _)| *name == names[0] || asked || self.signal.is_part_of_all);
        let named = named.map(|(name, text)| Found {
            source: SettingSource::Variable(name),
            text,
            protocol,
            whole: name == names[0],
        });
        named.or_else(|| {
            asked.then(|| {
                let grpc = self.first(self.signal.protocol).is_some_and(|(_, protocol)| protocol == "grpc");
                let text = if grpc { super::DEFAULT_ENDPOINT } else { DEFAULT_HTTP_ENDPOINT };
                Found {
                    source: SettingSource::Variable(exporter),
                    text: text.to_owned(),
                    protocol,
                    whole: false,
                }
            })
        })
    }

    pub(in crate::telemetry) fn protocol(&self, problems: &mut Vec<SettingProblem>) -> Option<Protocol> {
        let (name, value) = self.first(self.signal.protocol)?;
        match value.as_str() {
            "grpc" => Some(Protocol::Grpc),
            "http/protobuf" => Some(Protocol::HttpProtobuf),
            other => {
                let problem = format!("unknown protocol {other:?}");
                problems.push(SettingProblem::new(
                    SettingSource::Variable(name),
                    problem,
                    "grpc, http/protobuf",
                ));
                None
            }
        }
    }

    /// The headers to send, marked as secret; there is no word of what is in them in a problem.
    pub(in crate::telemetry) fn headers(&self, problems: &mut Vec<SettingProblem>) -> HeaderMap {
        let Some((name, value)) = self.first(self.signal.headers) else { return HeaderMap::new() };
        let pairs = value.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            let mut value = HeaderValue::try_from(value.as_ref()).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::try_from(key.trim()).ok()?, value))
        });
        pairs.collect::<Option<HeaderMap>>().unwrap_or_else(|| {
            let problem = "the value has an invalid header";
            problems.push(SettingProblem::new(
                SettingSource::Variable(name),
                problem,
                "NAME=VALUE,NAME=VALUE",
            ));
            HeaderMap::new()
        })
    }

    pub(in crate::telemetry) fn compression(&self, problems: &mut Vec<SettingProblem>) {
        if let Some((name, value)) = self.first(self.signal.compression)
            && value != "none"
        {
            let problem = format!("{value:?} is not supported");
            problems.push(SettingProblem::new(SettingSource::Variable(name), problem, "none"));
        }
    }

    pub(in crate::telemetry) fn certificate(&self) -> Option<PathBuf> {
        self.first(self.signal.certificate).map(|(_, path)| path.into())
    }

    pub(in crate::telemetry) fn timeout(&self, problems: &mut Vec<SettingProblem>) -> Option<Duration> {
        let (name, value) = self.first(self.signal.timeout)?;
        milliseconds(name, &value, problems)
    }

    pub(super) fn sampling(&self, problems: &mut Vec<SettingProblem>) -> Sampling {
        let name = self.get(SAMPLER);
        let name = name.as_deref().unwrap_or("parentbased_always_on");
        let (parent_based, kind) = match name.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, name),
        };
        let root = match kind {
            "always_on" => Root::Always,
            "always_off" => Root::Never,
            "traceidratio" => Root::Ratio(self.ratio(problems)),
            _ => {
                let problem = format!("unknown sampler {name:?}");
                let allowed =
                    "always_on, always_off, traceidratio, each optionally prefixed with parentbased_";
                problems.push(SettingProblem::new(SettingSource::Variable(SAMPLER), problem, allowed));
                Root::Never
            }
        };
        Sampling { parent_based, root }
    }

    fn ratio(&self, problems: &mut Vec<SettingProblem>) -> f64 {
        let Some(value) = self.get(SAMPLER_ARGUMENT) else { return 1.0 };
        let ratio = value.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.unwrap_or_else(|| {
            let problem = format!("{value:?} is not a ratio");
            problems.push(SettingProblem::new(SettingSource::Variable(SAMPLER_ARGUMENT), problem, "0 to 1"));
            0.0
        })
    }

    pub(super) fn batching(&self, problems: &mut Vec<SettingProblem>) -> Batching {
        let mut batching = Batching::default();
        for (name, into) in [
            ("OTEL_BSP_MAX_QUEUE_SIZE", &mut batching.queue),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", &mut batching.batch),
        ] {
            let Some(value) = self.get(name) else { continue };
            if let Ok(count @ 1..=MOST_QUEUED) = value.parse() {
                *into = count;
            } else {
                let problem = format!("{value:?} is not a number of spans");
                let allowed = format!("1 to {MOST_QUEUED}");
                problems.push(SettingProblem::new(SettingSource::Variable(name), problem, allowed));
            }
        }
        batching.batch = batching.batch.min(batching.queue);
        let delay = "OTEL_BSP_SCHEDULE_DELAY";
        if let Some(delay) = self.get(delay).and_then(|value| milliseconds(delay, &value, problems)) {
            batching.delay = delay;
        }
        batching
    }

    /// The service's name: its own variable's, or that among the resource's attributes.
    pub(in crate::telemetry) fn service_name(&self, attributes: &[(String, String)]) -> Option<String> {
        let named = || attributes.iter().find(|(name, _)| name == "service.name");
        self.get("OTEL_SERVICE_NAME").or_else(|| named().map(|(_, name)| name.clone()))
    }

    pub(in crate::telemetry) fn attributes(
        &self,
        problems: &mut Vec<SettingProblem>,
    ) -> Vec<(String, String)> {
        let Some(value) = self.get(ATTRIBUTES) else { return Vec::new() };
        let pairs = value.split(',').filter(|pair| !pair.trim().is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let decoded = |text: &str| Some(percent_decode_str(text.trim()).decode_utf8().ok()?.into_owned());
            Some((decoded(key).filter(|key| !key.is_empty())?, decoded(value)?))
        });
        pairs.collect::<Option<Vec<_>>>().unwrap_or_else(|| {
            let problem = format!("{value:?} cannot be parsed");
            problems.push(SettingProblem::new(
                SettingSource::Variable(ATTRIBUTES),
                problem,
                "NAME=VALUE,NAME=VALUE",
            ));
            Vec::new()
        })
    }
}

impl Variables<'_> {
    /// A number of milliseconds.
    pub(in crate::telemetry) fn milliseconds(
        &self,
        name: &'static str,
        problems: &mut Vec<SettingProblem>,
    ) -> Option<Duration> {
        milliseconds(name, &self.get(name)?, problems)
    }
}

fn milliseconds(name: &'static str, value: &str, problems: &mut Vec<SettingProblem>) -> Option<Duration> {
    let parsed = value.parse::<u64>().ok().filter(|milliseconds| (1..=3_600_000).contains(milliseconds));
    if parsed.is_none() {
        let problem = format!("{value:?} is not a number of milliseconds");
        problems.push(SettingProblem::new(SettingSource::Variable(name), problem, "1 to 3600000"));
    }
    parsed.map(Duration::from_millis)
}

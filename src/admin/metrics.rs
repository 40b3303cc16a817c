//! What the admin API counts of its calls.
//!
//! Labels are the names of the services that there are: a call of anything else is counted as `unknown`, so that no caller
//! can add a series.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use prost::Message as _;
use prost_types::FileDescriptorSet;

use super::overrides::{Entry, Order, OverrideSet};
use super::proto;
use coxswain_machinery::telemetry::{
    MetricsError, Registrar, Registry, TracedHistogramVec, exponential_buckets,
};

/// Metrics of calls, streams and events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AdminMetrics {
    methods: Arc<BTreeMap<String, Method>>,
    requests: IntCounterVec,
    duration: TracedHistogramVec,
    streams: IntGauge,
    events_dropped: IntCounter,
    overrides: IntGaugeVec,
    override_ends: GaugeVec,
    /// Controllers and orders that `override_ends` has.
    with_ends: Arc<Mutex<BTreeSet<(String, &'static str)>>>,
    hand_edits: IntCounter,
}

/// A method as labels name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Method {
    service: String,
    method: String,
}

impl Method {
    /// The service's and its own.
    pub(super) fn names(&self) -> (&str, &str) {
        (&self.service, &self.method)
    }
}

const UNKNOWN: &str = "unknown";
/// Those of which there is no description among ours.
const REFLECTION: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

impl AdminMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let registrar = Registrar::new(registry);
        let streams = "coxswain_admin_open_streams";
        let open = IntGauge::new(streams, "Open streams of the admin API.");
        let open = open.map_err(|error| MetricsError::new(streams, error))?;
        registrar.collector(streams, Box::new(open.clone()))?;
        Ok(Self {
            methods: Arc::new(methods()),
            requests: registrar.counters(
                "coxswain_admin_requests_total",
                "Completed calls of the admin API, by service, method and gRPC status.",
                &["service", "method", "code"],
            )?,
            duration: registrar.traced_histograms(
                "coxswain_admin_request_duration_seconds",
                "Time to the response of an admin API call, or to the start of a stream, by service and method.",
                &["service", "method"],
                exponential_buckets(0.001, 4.0, 8),
            )?,
            streams: open,
            events_dropped: registrar.counter(
                "coxswain_admin_events_dropped_total",
                "Events evicted from the log before a stream read them, counted once per stream.",
            )?,
            overrides: registrar.int_gauges(
                "coxswain_overrides",
                "Overrides known to this replica, by desired state (enabled, disabled) or problem (invalid, unknown controller).",
                &["order"],
            )?,
            override_ends: registrar.gauges(
                "coxswain_override_end_timestamp_seconds",
                "Expiry of each active override known to this replica, in seconds since 1970; +Inf without expiry.",
                &["controller", "order"],
            )?,
            with_ends: Arc::default(),
            hand_edits: registrar.counter(
                "coxswain_override_hand_edits_total",
                "Changes of overrides made outside the admin API, as observed by this replica.",
            )?,
        })
    }

    /// The method at this path.
    pub(super) fn method(&self, path: &str) -> Method {
        let known = self.methods.get(path).cloned();
        known.unwrap_or_else(|| Method { service: UNKNOWN.to_owned(), method: UNKNOWN.to_owned() })
    }

    /// A call has ended.
    pub(super) fn ended(&self, of: &Method, code: tonic::Code) {
        // As gRPC's own documentation spells it.
        let code = if code == tonic::Code::Ok { "OK".to_owned() } else { format!("{code:?}") };
        self.requests.with_label_values(&[&of.service, &of.method, &code]).inc();
    }

    /// A call was answered, or the answer has begun, after so many seconds.
    pub(super) fn answered(&self, of: &Method, seconds: f64) {
        self.duration.observe(&[&of.service, &of.method], seconds);
    }

    /// A stream is open for as long as what is returned is there.
    pub(super) fn stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }

    /// The overrides are these at this time.
    pub fn overrides(&self, set: &OverrideSet, now: Timestamp) {
        // An order to run a controller that never outranks the flags changes nothing.
        let counts = |entry: &Entry| entry.order == Order::Disabled || entry.outranks_flags();
        let in_force: Vec<(&str, &Entry)> =
            set.entries().filter(|(_, entry)| entry.is_in_force(now) && counts(entry)).collect();
        let of = |order: Order| in_force.iter().filter(|(_, entry)| entry.order == order).count();
        let counts = [
            ("enabled", of(Order::Enabled)),
            ("disabled", of(Order::Disabled)),
            ("invalid", set.problems().len()),
            ("unknown", set.unknown().filter(|(_, entry)| entry.is_in_force(now)).count()),
        ];
        for (order, count) in counts {
            self.overrides.with_label_values(&[order]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let mut shown = BTreeSet::new();
        for (name, entry) in in_force {
            let order = if entry.order == Order::Disabled { "disabled" } else { "enabled" };
            let end = entry.until.map_or(f64::INFINITY, |until| until.as_second() as f64);
            self.override_ends.with_label_values(&[name, order]).set(end);
            shown.insert((name.to_owned(), order));
        }
        let mut before = self.with_ends.lock();
        for (name, order) in before.difference(&shown) {
            // The series may be gone already.
            drop(self.override_ends.remove_label_values(&[name.as_str(), order]));
        }
        *before = shown;
    }

    /// Counts changes of overrides that were made by hand.
    pub fn edited_by_hand(&self, count: usize) {
        self.hand_edits.inc_by(count as u64);
    }

    /// A reader has missed so many events.
    pub(super) fn events_dropped(&self, count: u64) {
        self.events_dropped.inc_by(count);
    }
}

/// A stream that is open.
#[derive(Debug)]
pub(super) struct OpenStream(IntGauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// All methods by their paths.
fn methods() -> BTreeMap<String, Method> {
    let mut methods = BTreeMap::new();
    let mut add = |service: &str, method: &str| {
        let of = Method { service: service.to_owned(), method: method.to_owned() };
        methods.insert(format!("/{service}/{method}"), of);
    };
    for set in [proto::FILE_DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET] {
        // They are made by the build; what can't be read is unknown.
        let files = FileDescriptorSet::decode(set).unwrap_or_default();
        for file in &files.file {
            for service in &file.service {
                let name = format!("{}.{}", file.package(), service.name());
                service.method.iter().for_each(|method| add(&name, method.name()));
            }
        }
    }
    for service in REFLECTION {
        add(service, "ServerReflectionInfo");
    }
    methods
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::overrides::ANNOTATION_PREFIX;
    use coxswain_machinery::telemetry::encode_text;

    #[test]
    fn overrides_in_force_are_counted_by_what_they_order() {
        let registry = Registry::new();
        let metrics = AdminMetrics::register(&registry).unwrap();
        let entry = |order: &str, until: &str| {
            format!(r#"{{"desired":"{order}","time":"2026-11-01T00:00:00Z","until":"{until}"}}"#)
        };
        let (later, earlier) = ("2026-11-03T00:00:00Z", "2026-11-01T12:00:00Z");
        let entries = [
            ("a", entry("disabled", later)),
            ("b", entry("disabled", later)),
            ("c", entry("enabled", earlier)),
            ("d", entry("default", later)),
            ("e", "rubbish".to_owned()),
            ("newer-controller", entry("disabled", later).replace('}', r#","replica":"node-a_1"}"#)),
        ]
        .map(|(name, value)| (format!("{ANNOTATION_PREFIX}{name}"), value));
        let set = OverrideSet::parse(entries.iter().map(|(key, value)| (&**key, &**value)), &|name| {
            name.len() == 1
        });
        metrics.overrides(&set, "2026-11-02T00:00:00Z".parse().unwrap());
        let page = encode_text(&registry);
        for (order, count) in [("disabled", 2), ("enabled", 0), ("invalid", 1), ("unknown", 1)] {
            let series = format!("coxswain_overrides{{order=\"{order}\"}} {count}\n");
            assert!(page.contains(&series), "{series} in {page}");
        }
    }

    #[test]
    fn each_override_in_force_has_a_series_with_its_end_until_it_ends() {
        let registry = Registry::new();
        let metrics = AdminMetrics::register(&registry).unwrap();
        let entries = [
            ("a", r#"{"desired":"disabled","time":"2026-11-01T00:00:00Z","until":"2026-11-03T00:00:00Z"}"#),
            ("b", r#"{"desired":"disabled","time":"2026-11-01T00:00:00Z"}"#),
            ("c", r#"{"desired":"enabled","time":"2026-11-01T00:00:00Z","force":true}"#),
            ("d", r#"{"desired":"default","time":"2026-11-01T00:00:00Z"}"#),
        ];
        let entries = entries.map(|(name, value)| (format!("{ANNOTATION_PREFIX}{name}"), value));
        let set = OverrideSet::parse(entries.iter().map(|(key, value)| (&**key, *value)), &|_| true);
        let shown = |now: &str| {
            metrics.overrides(&set, now.parse().unwrap());
            let page = encode_text(&registry);
            let series =
                page.lines().filter_map(|line| line.strip_prefix("coxswain_override_end_timestamp_seconds"));
            series.map(str::to_owned).collect::<Vec<_>>()
        };
        let endless = [
            r#"{controller="b",order="disabled"} +Inf"#.to_owned(),
            r#"{controller="c",order="enabled"} +Inf"#.to_owned(),
        ];
        let timed = r#"{controller="a",order="disabled"} 1.793664e+09"#.to_owned();
        assert_eq!(shown("2026-11-02T00:00:00Z"), [&[timed][..], &endless].concat());
        assert_eq!(shown("2026-11-04T00:00:00Z"), endless);
        metrics.edited_by_hand(2);
        assert!(encode_text(&registry).contains("coxswain_override_hand_edits_total 2\n"));
    }
}

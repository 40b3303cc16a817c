//! From what a registry gathers to OTLP's messages: counters are monotonic sums, histograms have explicit bounds, and all
//! sums count from the process' start.

use jiff::Timestamp;
use opentelemetry::{KeyValue as Attribute, Value};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, exemplar, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus::proto::{self, LabelPair, MetricFamily, MetricType};

use crate::telemetry::{Exemplar as Held, Registry};
use crate::wire::text::lossy_text;

/// What the metrics are of.
const SCOPE: &str = "coxswain";
const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// When counting began, and now, in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct Times {
    start: u64,
    now: u64,
}

/// A push of all that the registry has.
pub(super) fn request(
    registry: &Registry,
    resource: &Resource,
    (started, now): (Timestamp, Timestamp),
) -> ExportMetricsServiceRequest {
    let times = Times { start: nanoseconds(started), now: nanoseconds(now) };
    let families = registry.gather();
    let metrics = families.iter().filter_map(|family| of_family(family, registry, times)).collect();
    let scope = InstrumentationScope { name: SCOPE.to_owned(), ..Default::default() };
    let scope = ScopeMetrics { scope: Some(scope), metrics, ..Default::default() };
    let resource = Some(resource.clone());
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource,
            scope_metrics: vec![scope],
            ..Default::default()
        }],
    }
}

/// The attributes of a resource.
pub(super) fn attributes(attributes: Vec<Attribute>) -> Vec<KeyValue> {
    let value = |value: Value| match value {
        Value::I64(number) => any_value::Value::IntValue(number),
        other => any_value::Value::StringValue(other.to_string()),
    };
    attributes.into_iter().map(|each| pair(each.key.to_string(), value(each.value))).collect()
}

fn pair(key: String, value: any_value::Value) -> KeyValue {
    let value = match value {
        any_value::Value::StringValue(text) => any_value::Value::StringValue(lossy_text(&text).into_owned()),
        other => other,
    };
    KeyValue { key, value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}

fn of_family(family: &MetricFamily, registry: &Registry, times: Times) -> Option<Metric> {
    let metrics = family.get_metric();
    let data = match family.get_field_type() {
        MetricType::COUNTER => metric::Data::Sum(Sum {
            data_points: metrics
                .iter()
                .map(|metric| number(metric, metric.get_counter().get_value(), times))
                .collect(),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        MetricType::GAUGE => metric::Data::Gauge(Gauge {
            data_points: metrics
                .iter()
                .map(|metric| number(metric, metric.get_gauge().get_value(), Times { start: 0, ..times }))
                .collect(),
        }),
        MetricType::HISTOGRAM => {
            let traced = registry.exemplars().of(family.name());
            let exemplars = |labels: &[LabelPair]| {
                traced.as_ref().map(|traced| traced.exemplars(labels)).unwrap_or_default()
            };
            metric::Data::Histogram(Histogram {
                data_points: metrics
                    .iter()
                    .map(|metric| histogram(metric, exemplars(metric.get_label()), times))
                    .collect(),
                aggregation_temporality: CUMULATIVE,
            })
        }
        // No metric of ours has these types.
        MetricType::SUMMARY | MetricType::UNTYPED => return None,
    };
    Some(Metric {
        name: family.name().to_owned(),
        description: family.help().to_owned(),
        unit: unit(family.name()).to_owned(),
        data: Some(data),
        ..Default::default()
    })
}

/// In UCUM's words, as the specification wants them; from the name, which says it.
fn unit(name: &str) -> &'static str {
    match name.strip_suffix("_total").unwrap_or(name) {
        stem if stem.ends_with("_seconds") => "s",
        stem if stem.ends_with("_bytes") => "By",
        _ => "",
    }
}

fn labels(metric: &proto::Metric) -> Vec<KeyValue> {
    let string = |text: &str| any_value::Value::StringValue(text.to_owned());
    metric.get_label().iter().map(|label| pair(label.name().to_owned(), string(label.value()))).collect()
}

fn number(metric: &proto::Metric, value: f64, times: Times) -> NumberDataPoint {
    NumberDataPoint {
        attributes: labels(metric),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..Default::default()
    }
}

/// Prometheus counts up to each bound, OTLP between two.
fn histogram(metric: &proto::Metric, exemplars: Vec<Option<Held>>, times: Times) -> HistogramDataPoint {
    let held = metric.get_histogram();
    let buckets = held.get_bucket();
    let mut below = 0;
    let counts = buckets.iter().map(proto::Bucket::cumulative_count).chain([held.get_sample_count()]);
    let counts = counts.map(|count| {
        let within = count.saturating_sub(below);
        below = count;
        within
    });
    HistogramDataPoint {
        attributes: labels(metric),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        count: held.get_sample_count(),
        sum: Some(held.get_sample_sum()),
        bucket_counts: counts.collect(),
        explicit_bounds: buckets.iter().map(proto::Bucket::upper_bound).collect(),
        exemplars: exemplars.into_iter().flatten().map(of_exemplar).collect(),
        ..Default::default()
    }
}

fn of_exemplar(held: Held) -> Exemplar {
    Exemplar {
        time_unix_nano: nanoseconds(held.at),
        trace_id: held.ids.trace.to_vec(),
        span_id: held.ids.span.to_vec(),
        value: Some(exemplar::Value::AsDouble(held.value)),
        ..Default::default()
    }
}

fn nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or_default()
}

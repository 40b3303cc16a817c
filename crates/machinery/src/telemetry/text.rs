//! The Prometheus text format, version 0.0.4.
//!
//! Why not the library's encoder: it writes the bound of a bucket as `0.00000001` where the original writes `1e-08`,
//! and a bound is a label value. A dashboard made for the original would then find two series where there is one.
//! Differs: no.

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

use super::registry::Registry;
use crate::wire::text::lossy_text;

/// The content type of [`encode_text`]'s result.
pub const TEXT_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// All metrics of `registry`, by name and then by label values.
pub fn encode_text(registry: &Registry) -> String {
    let mut out = String::with_capacity(16 * 1024);
    for family in registry.gather() {
        encode_family(&family, &mut out);
    }
    out
}

fn encode_family(family: &MetricFamily, out: &mut String) {
    let name = family.name();
    let kind = match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    };
    out.push_str("# HELP ");
    out.push_str(name);
    out.push(' ');
    escape(family.help(), false, out);
    out.push_str("\n# TYPE ");
    out.push_str(name);
    out.push(' ');
    out.push_str(kind);
    out.push('\n');
    for metric in family.get_metric() {
        match family.get_field_type() {
            MetricType::COUNTER => plain(name, metric, metric.get_counter().get_value(), out),
            MetricType::GAUGE => plain(name, metric, metric.get_gauge().get_value(), out),
            MetricType::HISTOGRAM => histogram(name, metric, |_, _| {}, out),
            // No metric of ours has these types.
            MetricType::SUMMARY | MetricType::UNTYPED => {}
        }
    }
}

fn plain(name: &str, metric: &Metric, value: f64, out: &mut String) {
    sample(name, "", metric.get_label(), &number(value), out);
}

/// A histogram; `append` adds what belongs to a bucket, by its place, to the end of its line.
pub(super) fn histogram(name: &str, metric: &Metric, append: impl Fn(usize, &mut String), out: &mut String) {
    let (histogram, labels) = (metric.get_histogram(), metric.get_label());
    let buckets = histogram.get_bucket();
    let finite = buckets.iter().map(|bucket| (number(bucket.upper_bound()), bucket.cumulative_count()));
    let count = histogram.get_sample_count();
    for (at, (bound, count)) in finite.chain([("+Inf".to_owned(), count)]).enumerate() {
        series(name, "_bucket", labels, Some(&bound), out);
        out.push(' ');
        out.push_str(&count.to_string());
        append(at, out);
        out.push('\n');
    }
    sample(name, "_sum", labels, &number(histogram.get_sample_sum()), out);
    sample(name, "_count", labels, &count.to_string(), out);
}

/// A line with a value.
pub(super) fn sample(name: &str, suffix: &str, labels: &[LabelPair], value: &str, out: &mut String) {
    series(name, suffix, labels, None, out);
    out.push(' ');
    out.push_str(value);
    out.push('\n');
}

/// The name and labels of a sample.
fn series(name: &str, suffix: &str, labels: &[LabelPair], bound: Option<&str>, out: &mut String) {
    out.push_str(name);
    out.push_str(suffix);
    let mut before = '{';
    let bound = bound.map(|bound| ("le", bound));
    for (label, value) in labels.iter().map(|label| (label.name(), label.value())).chain(bound) {
        out.push(before);
        before = ',';
        out.push_str(label);
        out.push_str("=\"");
        escape(value, true, out);
        out.push('"');
    }
    if before == ',' {
        out.push('}');
    }
}

/// Writes `text` as a help text or, with `quotes`, as a label value.
pub(super) fn escape(text: &str, quotes: bool, out: &mut String) {
    for c in lossy_text(text).chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

/// The shortest form that reads back as the same number, with an exponent below 1e-4 and from 1e6 on, as the original
/// writes it.
pub(super) fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    match scientific.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>())) {
        Some((digits, Ok(exponent))) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}

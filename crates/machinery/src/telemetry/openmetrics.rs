//! OpenMetrics 1.0.0: the format in which exemplars travel.
//!
//! A series has the same name and the same label values here as in the text format, so that it does not matter to what is
//! stored, and to who reads it, in which of them a page was fetched. Two things follow. A counter must end in `_total`
//! here; the few of the original's that do not are given out as what OpenMetrics calls `unknown`, for to rename them would
//! break whoever reads them. And the bound of a bucket is written as the text format writes it, `1` and not `1.0`, which
//! OpenMetrics merely recommends: a bound is a label value.

use std::fmt::Write as _;

use prometheus::proto::{MetricFamily, MetricType};

use super::exemplars::{Exemplar, Exemplars};
use super::registry::Registry;
use super::text::{escape, histogram, number, sample};

const TOTAL: &str = "_total";

/// All metrics of `registry`, by name and then by label values.
pub(super) fn encode(registry: &Registry) -> String {
    let mut out = String::with_capacity(16 * 1024);
    for family in registry.gather() {
        encode_family(&family, registry.exemplars(), &mut out);
    }
    out.push_str("# EOF\n");
    out
}

fn encode_family(family: &MetricFamily, exemplars: &Exemplars, out: &mut String) {
    let name = family.name();
    let (shown, kind) = match family.get_field_type() {
        MetricType::COUNTER => match name.strip_suffix(TOTAL) {
            Some(stem) => (stem, "counter"),
            None => (name, "unknown"),
        },
        MetricType::GAUGE => (name, "gauge"),
        MetricType::HISTOGRAM => (name, "histogram"),
        // No metric of ours has these types.
        MetricType::SUMMARY | MetricType::UNTYPED => return,
    };
    let _infallible = write!(out, "# HELP {shown} ");
    escape(family.help(), true, out);
    let _infallible = write!(out, "\n# TYPE {shown} {kind}\n");
    let traced = exemplars.of(name);
    for metric in family.get_metric() {
        let labels = metric.get_label();
        match family.get_field_type() {
            MetricType::COUNTER => {
                sample(name, "", labels, &number(metric.get_counter().get_value()), out);
            }
            MetricType::HISTOGRAM => {
                let held = traced.as_ref().map(|traced| traced.exemplars(labels)).unwrap_or_default();
                let exemplar = |at: usize, out: &mut String| {
                    if let Some(exemplar) = held.get(at).and_then(Option::as_ref) {
                        append(exemplar, out);
                    }
                };
                histogram(name, metric, exemplar, out);
            }
            _ => sample(name, "", labels, &number(metric.get_gauge().get_value()), out),
        }
    }
}

/// Ids and names are 63 characters together, of the 128 that a set of labels may have.
fn append(exemplar: &Exemplar, out: &mut String) {
    let (trace, span) = (exemplar.ids.trace_hex(), exemplar.ids.span_hex());
    let at = exemplar.at;
    let _infallible = write!(
        out,
        " # {{trace_id=\"{trace}\",span_id=\"{span}\"}} {} {}.{:03}",
        number(exemplar.value),
        at.as_second(),
        at.subsec_millisecond()
    );
}

#[cfg(test)]
mod tests {
    use prometheus::proto::MetricType;

    use super::*;
    use crate::telemetry::{Registrar, encode_text};

    #[test]
    fn series_are_those_of_the_text_format() {
        let registry = Registry::new();
        let registrar = Registrar::new(&registry);
        registrar.counters("a_total", "Says \"a\".", &["l"]).unwrap().with_label_values(&["x\"\\\n"]).inc();
        registrar.counter("b_requests", "Old.").unwrap().inc();
        registrar.gauge("c", "A gauge.").unwrap().set(f64::INFINITY);
        registrar.histogram("d", "A histogram.", vec![1e-8, 1.0, 1e6]).unwrap().observe(1.5);
        let page = encode(&registry);
        let expected = "\
# HELP a Says \\\"a\\\".
# TYPE a counter
a_total{l=\"x\\\"\\\\\\n\"} 1
# HELP b_requests Old.
# TYPE b_requests unknown
b_requests 1
# HELP c A gauge.
# TYPE c gauge
c +Inf
# HELP d A histogram.
# TYPE d histogram
d_bucket{le=\"1e-08\"} 0
d_bucket{le=\"1\"} 0
d_bucket{le=\"1e+06\"} 1
d_bucket{le=\"+Inf\"} 1
d_sum 1.5
d_count 1
# EOF
";
        assert_eq!(page, expected);
        let series = |page: &str| -> Vec<String> {
            page.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(series(&page), series(&encode_text(&registry)));
        assert!(registry.declared().iter().all(|metric| metric.kind != MetricType::UNTYPED));
    }
}

//! What of the metrics is shown: whole ones can be left out (`--disabled-metrics`), and the values that a label may take can be
//! listed (`--allow-metric-labels`), others being counted together.
//!
//! It changes what is shown, to whoever asks, and never what is counted. So every metric can be left out, where the original keeps
//! those that it registers before it reads its flags.
//! Differs: disabled-metrics.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, Metric, MetricFamily, MetricType};

/// What stands for each value that is not listed, as in the original.
const UNEXPECTED: &str = "unexpected";

/// See the module. Nothing is limited by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricLimits {
    disabled: BTreeSet<String>,
    /// By metric, then by label: its values.
    allowed: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl MetricLimits {
    /// Leaves out the metrics of these names, and of labels named `METRIC,LABEL` the values that are not in a list `VALUE,VALUE`.
    pub fn new(disabled: &[String], labels: &BTreeMap<String, String>) -> Self {
        let mut allowed: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (key, values) in labels {
            // The flag's own check refuses what is not written so.
            if let Some((metric, label)) = key.split_once(',') {
                let values = values.split(',').map(str::to_owned).collect();
                allowed.entry(metric.to_owned()).or_default().insert(label.to_owned(), values);
            }
        }
        Self { disabled: disabled.iter().cloned().collect(), allowed }
    }

    /// How many names of metrics are to be left out, whether there are such metrics or not.
    pub fn disabled(&self) -> usize {
        self.disabled.len()
    }

    /// What is left.
    pub(super) fn apply(&self, mut families: Vec<MetricFamily>) -> Vec<MetricFamily> {
        families.retain(|family| !self.disabled.contains(family.name()));
        for family in &mut families {
            if let Some(labels) = self.allowed.get(family.name()) {
                merge(family, labels);
            }
        }
        families
    }
}

/// Counts together what only values that are not allowed tell apart.
fn merge(family: &mut MetricFamily, allowed: &BTreeMap<String, BTreeSet<String>>) {
    let kind = family.get_field_type();
    let mut merged: Vec<Metric> = Vec::new();
    // By label values, which are in the same order in each.
    let mut places: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for mut metric in family.take_metric() {
        for label in metric.mut_label() {
            if allowed.get(label.name()).is_some_and(|values| !values.contains(label.value())) {
                label.set_value(UNEXPECTED.to_owned());
            }
        }
        let key = metric.get_label().iter().map(|label| label.value().to_owned()).collect();
        if let Some(sum) = places.get(&key).and_then(|at| merged.get_mut(*at)) {
            add(sum, &metric, kind);
        } else {
            places.insert(key, merged.len());
            merged.push(metric);
        }
    }
    family.set_metric(merged);
}

fn add(sum: &mut Metric, more: &Metric, kind: MetricType) {
    match kind {
        MetricType::COUNTER => {
            let mut counter = Counter::default();
            counter.set_value(sum.get_counter().get_value() + more.get_counter().get_value());
            sum.set_counter(counter);
        }
        MetricType::GAUGE => {
            let mut gauge = Gauge::default();
            gauge.set_value(sum.get_gauge().get_value() + more.get_gauge().get_value());
            sum.set_gauge(gauge);
        }
        MetricType::HISTOGRAM => {
            let (one, other) = (sum.get_histogram(), more.get_histogram());
            let mut histogram = Histogram::default();
            histogram.set_sample_count(one.get_sample_count() + other.get_sample_count());
            histogram.set_sample_sum(one.get_sample_sum() + other.get_sample_sum());
            let buckets = one.get_bucket().iter().zip(other.get_bucket()).map(|(one, other)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(one.upper_bound());
                bucket.set_cumulative_count(one.cumulative_count() + other.cumulative_count());
                bucket
            });
            histogram.set_bucket(buckets.collect());
            sum.set_histogram(histogram);
        }
        // There are none.
        MetricType::SUMMARY | MetricType::UNTYPED => {}
    }
}

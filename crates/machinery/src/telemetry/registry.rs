//! The registry of all metrics of a process: the library's, with what that does not keep.
//!
//! Beside the metrics themselves it knows what is declared, seen or not yet (tests compare this with the original's
//! metrics and with the documentation), and it holds the exemplars of histograms. It has no globals and opens no port.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, MetricFamily, MetricType};

use super::exemplars::Exemplars;
use super::limits::MetricLimits;

/// All metrics of a process. Cheap to clone; all clones are one registry.
#[derive(Clone, Default)]
pub struct Registry(Arc<Inner>);

#[derive(Default)]
struct Inner {
    metrics: prometheus::Registry,
    collectors: Mutex<Vec<Arc<dyn Collector>>>,
    /// Upper bounds of histograms by name, as they were declared: one by labels shows none before it is first observed.
    bounds: Mutex<BTreeMap<String, Vec<f64>>>,
    exemplars: Exemplars,
    limits: OnceLock<MetricLimits>,
}

/// A metric as it was declared.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// What is said of it.
    pub help: String,
    /// Its type.
    pub kind: MetricType,
    /// The names of its labels, in order.
    pub labels: Vec<String>,
    /// Upper bounds of a histogram's buckets, ascending, `+Inf` left out; empty for others.
    pub bounds: Vec<f64>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows only what these limits leave, from now on. They are set once; later ones are not heard.
    pub fn limit(&self, limits: MetricLimits) {
        let _ = self.0.limits.set(limits);
    }

    /// Takes a metric in.
    ///
    /// # Errors
    /// Its name is taken.
    pub fn register(&self, collector: Box<dyn Collector>) -> Result<(), prometheus::Error> {
        let collector: Arc<dyn Collector> = Arc::from(collector);
        self.0.metrics.register(Box::new(Shared(Arc::clone(&collector))))?;
        self.0.collectors.lock().push(collector);
        Ok(())
    }

    /// All metrics that have values and are to be shown, by name and then by label values.
    pub fn gather(&self) -> Vec<MetricFamily> {
        let families = self.0.metrics.gather();
        match self.0.limits.get() {
            Some(limits) => limits.apply(families),
            None => families,
        }
    }

    /// The exemplars of its histograms.
    pub fn exemplars(&self) -> &Exemplars {
        &self.0.exemplars
    }

    /// Remembers the bounds of a histogram.
    pub(crate) fn declare_bounds(&self, name: &str, bounds: &[f64]) {
        self.0.bounds.lock().insert(name.to_owned(), bounds.to_vec());
    }

    /// Everything that is declared, whether it has values or not, by name. For tests and documentation: it asks every
    /// collector.
    pub fn declared(&self) -> Vec<Declared> {
        let bounds = self.0.bounds.lock().clone();
        let mut declared = BTreeMap::new();
        for collector in self.0.collectors.lock().iter() {
            let families = collector.collect();
            for desc in collector.desc() {
                let family = families.iter().find(|family| family.name() == desc.fq_name);
                let mut labels = desc.variable_labels.clone();
                labels.extend(desc.const_label_pairs.iter().map(|pair| pair.name().to_owned()));
                labels.sort_unstable();
                let seen = family.and_then(|family| family.get_metric().first());
                let seen = seen.map(|metric| {
                    metric.get_histogram().get_bucket().iter().map(Bucket::upper_bound).collect()
                });
                declared.insert(
                    desc.fq_name.clone(),
                    Declared {
                        name: desc.fq_name.clone(),
                        help: desc.help.clone(),
                        kind: family.map_or(MetricType::UNTYPED, MetricFamily::get_field_type),
                        labels,
                        bounds: bounds.get(&desc.fq_name).cloned().or(seen).unwrap_or_default(),
                    },
                );
            }
        }
        declared.into_values().collect()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("collectors", &self.0.collectors.lock().len())
            .finish_non_exhaustive()
    }
}

/// A collector that the library and this registry share.
struct Shared(Arc<dyn Collector>);

impl Collector for Shared {
    fn desc(&self) -> Vec<&Desc> {
        self.0.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.0.collect()
    }
}

//! Series whose labels hold names that users choose.

use std::fmt;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc, MetricVec, MetricVecBuilder};
use prometheus::proto::MetricFamily;

use crate::random::HashSeed;

/// Maximum number of series of one metric with such labels.
pub const MOST_SERIES: usize = 1024;

/// The label values of the series, in the order of their use.
type Recency = LruCache<Box<[String]>, (), HashSeed>;

/// A metric with labels that hold names that users choose (namespaces, zones, drivers). It keeps the [`MOST_SERIES`] series that were used
/// last, so that names that come and go cannot grow it. A series that was removed begins again at zero, which Prometheus treats as a restart.
/// Cheap to clone.
#[derive(Clone)]
pub struct BoundedSeries<V> {
    vector: V,
    used: Arc<Mutex<Recency>>,
}

impl<V> BoundedSeries<V> {
    /// The series of this vector, which has none yet.
    pub fn new(vector: V) -> Self {
        // Not `with_hasher`, which allocates the whole capacity: most metrics have few series.
        Self { vector, used: Arc::new(Mutex::new(LruCache::unbounded_with_hasher(HashSeed::default()))) }
    }
}

impl<T: MetricVecBuilder> BoundedSeries<MetricVec<T>> {
    /// The series of these label values. Beyond [`MOST_SERIES`] the least recently used series is removed.
    pub fn with_label_values(&self, values: &[&str]) -> T::M {
        let mut used = self.used.lock();
        let labels: Box<[String]> = values.iter().map(|value| (*value).to_owned()).collect();
        if used.len() >= MOST_SERIES
            && !used.contains(&labels)
            && let Some((removed, ())) = used.pop_lru()
        {
            // An error means that there is no such series.
            let _ = self.vector.remove_label_values(&removed);
        }
        used.put(labels, ());
        self.vector.with_label_values(values)
    }
}

impl<V: Collector> Collector for BoundedSeries<V> {
    fn desc(&self) -> Vec<&Desc> {
        self.vector.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.vector.collect()
    }
}

impl<V> fmt::Debug for BoundedSeries<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} series", self.used.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounterVec, Opts};

    use super::*;

    #[test]
    fn bounded_series_keep_those_that_were_used_last() {
        let vector = IntCounterVec::new(Opts::new("pods_total", "Pods."), &["namespace"]).unwrap();
        let series = BoundedSeries::new(vector);
        let shown = || series.collect().iter().map(|family| family.get_metric().len()).sum::<usize>();
        for number in 0..3 * MOST_SERIES {
            series.with_label_values(&["used"]).inc();
            series.clone().with_label_values(&[&number.to_string()]).inc();
            assert_eq!(shown(), (number + 2).min(MOST_SERIES));
        }
        assert_eq!(series.with_label_values(&["used"]).get(), 3 * MOST_SERIES as u64);
        assert_eq!(series.with_label_values(&["0"]).get(), 0, "removed, and begun again");
    }
}

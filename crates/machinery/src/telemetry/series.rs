//! Series whose labels hold names that users choose.

use std::fmt;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc, MetricVec, MetricVecBuilder};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, IntCounter};

use crate::bounds::memory_size;
use crate::random::{HashSeed, HashSet};

/// Maximum number of series of one metric with such labels.
pub const MOST_SERIES: usize = 1024;

/// The label values of a series.
type Labels = Box<[String]>;

/// The series of a metric.
struct Recency {
    /// In the order of their use, each with its sum at the last scrape.
    series: LruCache<Labels, u64, HashSeed>,
    /// The series that were scraped last time and have been removed since: at most the maximum number of series.
    removed: HashSet<Labels>,
}

/// The name in place of users' names in the series that takes over sums of removed ones.
const OTHER: &str = "other";

/// A metric that can take over a part of the sum of a series that is removed.
pub trait Sum {
    /// Returns the sum; `None` for a kind of metric that cannot take over sums.
    fn sum(&self) -> Option<u64>;

    /// Adds a part of the sum of a removed series.
    fn take_over(&self, part: u64);
}

impl Sum for IntCounter {
    fn sum(&self) -> Option<u64> {
        Some(self.get())
    }

    fn take_over(&self, part: u64) {
        self.inc_by(part);
    }
}

/// A histogram takes over nothing: the library cannot add to buckets.
impl Sum for Histogram {
    fn sum(&self) -> Option<u64> {
        None
    }

    fn take_over(&self, _: u64) {}
}

/// A metric with labels that hold names that users choose (namespaces, zones, drivers). It keeps the [`MOST_SERIES`] series that were used
/// last, so that names that come and go cannot grow it. A series that was removed begins again at zero, which Prometheus treats as a restart.
///
/// A counter that is removed between two scrapes would lose its counts since the first one. Those counts are added to the series with `other`
/// in place of users' names. Earlier counts are not added: they were scraped already, and `sum(rate(…))` would contain them twice. Until the
/// next scrape, counts for a name whose series was scraped and removed are added to `other` as well, because a new series with a higher sum
/// would hide the restart.
/// Cheap to clone.
#[derive(Clone)]
pub struct BoundedSeries<V> {
    vector: V,
    /// The positions of labels with users' names, at least one.
    named: Arc<[usize]>,
    used: Arc<Mutex<Recency>>,
}

impl<V: Collector> BoundedSeries<V> {
    /// Creates the series of a vector, which has none yet. `named` are the labels with users' names.
    ///
    /// # Errors
    /// `named` is empty, or one of its names is not a label of the vector.
    pub fn new(vector: V, named: &[&str]) -> Result<Self, prometheus::Error> {
        let labels = vector.desc().first().map(|desc| desc.variable_labels.clone()).unwrap_or_default();
        let position = |name: &&str| labels.iter().position(|label| label == name);
        let Some(positions) = named.iter().map(position).collect::<Option<Vec<usize>>>() else {
            return Err(prometheus::Error::Msg(format!(
                "not all of {named:?} are labels of the metric; its labels: {labels:?}"
            )));
        };
        if positions.is_empty() {
            return Err(prometheus::Error::Msg(format!(
                "no label with user-defined values is given; labels of the metric: {labels:?}"
            )));
        }
        // Not `with_hasher`, which allocates the whole capacity: most metrics have few series.
        let series = LruCache::unbounded_with_hasher(HashSeed::default());
        let used = Recency { series, removed: HashSet::default() };
        Ok(Self { vector, named: positions.into(), used: Arc::new(Mutex::new(used)) })
    }
}

impl<T: MetricVecBuilder> BoundedSeries<MetricVec<T>>
where
    T::M: Sum,
{
    /// Returns the series of these label values. Beyond [`MOST_SERIES`] the least recently used series is removed.
    pub fn with_label_values(&self, values: &[&str]) -> T::M {
        if self.named.iter().all(|at| values.get(*at) == Some(&OTHER)) {
            // The series for sums is never removed. The other labels have a fixed number of values.
            return self.vector.with_label_values(values);
        }
        let mut used = self.used.lock();
        let labels: Labels = values.iter().map(|value| (*value).to_owned()).collect();
        if used.removed.contains(&labels) {
            return self.other(&labels);
        }
        if used.series.get(&labels).is_none() {
            if used.series.len() >= memory_size(MOST_SERIES)
                && let Some((removed, collected)) = used.series.pop_lru()
            {
                self.remove(&removed, collected);
                if collected > 0 {
                    used.removed.insert(removed);
                }
            }
            used.series.put(labels, 0);
        }
        self.vector.with_label_values(values)
    }

    fn remove(&self, labels: &[String], collected: u64) {
        let metric = self.vector.with_label_values(labels);
        // An error means that there is no such series.
        let _ = self.vector.remove_label_values(labels);
        let part = metric.sum().map_or(0, |sum| sum.saturating_sub(collected));
        if part > 0 {
            self.other(labels).take_over(part);
        }
    }

    /// Returns the series with `other` in place of the users' names among these labels.
    fn other(&self, labels: &[String]) -> T::M {
        let mut others: Vec<&str> = labels.iter().map(String::as_str).collect();
        for &at in &*self.named {
            others[at] = OTHER;
        }
        self.vector.with_label_values(&others)
    }
}

impl<T: MetricVecBuilder> Collector for BoundedSeries<MetricVec<T>>
where
    T::M: Sum,
{
    fn desc(&self) -> Vec<&Desc> {
        self.vector.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // The lock keeps series from being removed. A count during the scrape may be scraped and added to `other` later, but it is not lost.
        let mut used = self.used.lock();
        used.removed.clear();
        for (labels, collected) in &mut used.series {
            if let Some(sum) = self.vector.with_label_values(&labels[..]).sum() {
                *collected = sum;
            }
        }
        self.vector.collect()
    }
}

impl<V> fmt::Debug for BoundedSeries<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} series", self.used.lock().series.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prometheus::proto::Metric;
    use prometheus::{IntCounterVec, Opts};

    use super::*;

    /// Counters by namespace and reason.
    fn counters() -> BoundedSeries<IntCounterVec> {
        let vector = IntCounterVec::new(Opts::new("pods_total", "Pods."), &["namespace", "reason"]).unwrap();
        BoundedSeries::new(vector, &["namespace"]).unwrap()
    }

    /// Scrapes the counters, and returns the value of each series by its namespace and reason.
    fn scrape(series: &BoundedSeries<IntCounterVec>) -> BTreeMap<[String; 2], u64> {
        let families = series.collect();
        let metrics = families.iter().flat_map(MetricFamily::get_metric);
        let value = |metric: &Metric| {
            let labels = [0, 1].map(|at| metric.get_label()[at].value().to_owned());
            (labels, metric.get_counter().get_value() as u64)
        };
        metrics.map(value).collect()
    }

    #[test]
    fn bounded_series_keep_those_that_were_used_last() {
        let series = counters();
        for number in 0..3 * MOST_SERIES {
            series.with_label_values(&["used", "any"]).inc();
            series.clone().with_label_values(&[&number.to_string(), "any"]).inc();
            // Each series is scraped before it is removed, so the series for sums is not created.
            if number.is_multiple_of(50) {
                assert_eq!(scrape(&series).len(), (number + 2).min(MOST_SERIES));
            }
        }
        assert_eq!(series.with_label_values(&["used", "any"]).get(), 3 * MOST_SERIES as u64);
        assert_eq!(series.with_label_values(&["0", "any"]).get(), 0, "removed and started again at zero");
    }

    /// The increases between scrapes, as Prometheus sums them up, are what was counted.
    #[test]
    fn counts_of_removed_series_are_scraped_once() {
        let series = counters();
        let mut last: BTreeMap<[String; 2], u64> = BTreeMap::new();
        let (mut increase, mut counted) = ([0; 2], [0; 2]);
        let mut check = |counted: [u64; 2]| {
            let now = scrape(&series);
            for (labels, value) in &now {
                let before = last.get(labels).copied().filter(|before| before <= value).unwrap_or(0);
                increase[usize::from(labels[1] == "terminated")] += value - before;
            }
            assert_eq!(increase, counted);
            last = now;
        };
        // One of the namespaces has the name of the series for sums.
        series.with_label_values(&[OTHER, "orphaned"]).inc();
        counted[0] += 1;
        for number in 0..9 * MOST_SERIES {
            // Names return after their series were removed, some before the next scrape and with a higher count.
            let name = (number % (MOST_SERIES * 3 / 4)).to_string();
            let count = 1 + number as u64 / 100;
            series.with_label_values(&[&name, "orphaned"]).inc_by(2 * count);
            series.with_label_values(&[&name, "terminated"]).inc_by(count);
            counted = [counted[0] + 2 * count, counted[1] + count];
            // Some names are scraped before their series are removed, others are not.
            if number.is_multiple_of(700) {
                check(counted);
            }
        }
        check(counted);
        assert!(series.with_label_values(&[OTHER, "orphaned"]).get() > 1, "some were never scraped");
        assert!(scrape(&series).len() <= MOST_SERIES + 2);
        assert!(series.used.lock().removed.len() <= MOST_SERIES);
    }

    #[test]
    fn bounded_series_without_labels_of_users_are_refused() {
        let vector = || IntCounterVec::new(Opts::new("pods_total", "Pods."), &["namespace"]).unwrap();
        for named in [&[][..], &["namespaces"], &["namespace", "name"]] {
            assert!(BoundedSeries::new(vector(), named).is_err(), "{named:?}");
        }
    }
}

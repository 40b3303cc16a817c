//! Exemplars: of each bucket of a latency histogram, the recorded trace that fell into it last.
//!
//! As many are held as there are buckets, whatever is observed. Where there are no traces an observation costs one look
//! at a flag more; where there are, the present span is looked at, and if it is recorded its ids replace those that the
//! bucket has. Nothing waits: where two threads meet at one bucket, one of them gives way.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use prometheus::core::Collector;
use prometheus::proto::LabelPair;
use prometheus::{Histogram, HistogramOpts, HistogramVec};

use super::metrics::MetricsError;
use super::registry::Registry;
use super::tracing::{Ids, present};
use crate::model::clock::SharedClock;

/// Sets of label values of one histogram that exemplars are kept of; further ones have none.
const MOST_SERIES: usize = 1024;

/// The exemplars of one registry's histograms.
#[derive(Clone, Default)]
pub struct Exemplars(Arc<Inner>);

#[derive(Default)]
struct Inner {
    switch: Arc<Switch>,
    families: Mutex<BTreeMap<String, Arc<Family>>>,
}

/// Whether there are traces: then it holds the clock.
type Switch = OnceLock<SharedClock>;

/// A trace that was observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// The span.
    pub ids: Ids,
    /// What was observed in it.
    pub value: f64,
    /// When.
    pub at: Timestamp,
}

impl Exemplars {
    /// Begins to keep exemplars: there are traces.
    pub fn enable(&self, clock: SharedClock) {
        // They are kept already if this fails.
        let _ = self.0.switch.set(clock);
    }

    /// Those of one histogram, if it has any.
    pub(super) fn of(&self, name: &str) -> Option<Arc<Family>> {
        self.0.switch.get()?;
        self.0.families.lock().get(name).cloned()
    }
}

impl fmt::Debug for Exemplars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exemplars").field("on", &self.0.switch.get().is_some()).finish_non_exhaustive()
    }
}

/// The exemplars of a histogram.
pub(super) struct Family {
    switch: Arc<Switch>,
    bounds: Vec<f64>,
    /// Where each label, by name, stands among the values that observers give.
    order: Vec<usize>,
    series: RwLock<Vec<Arc<Series>>>,
}

struct Series {
    /// In the order that the family was declared with.
    labels: Vec<String>,
    /// By bucket, the one without a bound at the end.
    cells: Box<[Mutex<Option<Exemplar>>]>,
}

impl Family {
    fn keep(&self, labels: &[&str], value: f64, span: Ids, clock: &SharedClock) {
        let Some(series) = self.series(labels) else { return };
        self.put(&series, value, span, clock);
    }

    fn put(&self, series: &Series, value: f64, ids: Ids, clock: &SharedClock) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(mut cell) = series.cells.get(bucket).and_then(Mutex::try_lock) {
            *cell = Some(Exemplar { ids, value, at: clock.now() });
        }
    }

    /// The series of these label values, made when it is asked for first; `None` if there are too many, or where it would
    /// have to be waited for.
    fn series(&self, labels: &[&str]) -> Option<Arc<Series>> {
        let find = |all: &[Arc<Series>]| all.iter().find(|series| series.labels == labels).map(Arc::clone);
        if let Some(found) = find(&self.series.try_read()?) {
            return Some(found);
        }
        let mut all = self.series.try_write()?;
        if let Some(found) = find(&all) {
            return Some(found);
        }
        if all.len() == MOST_SERIES {
            return None;
        }
        let made = Arc::new(Series {
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            cells: (0..=self.bounds.len()).map(|_| Mutex::default()).collect(),
        });
        all.push(Arc::clone(&made));
        Some(made)
    }

    /// The exemplars of the metric with these labels, by bucket; empty if it has none.
    pub(super) fn exemplars(&self, labels: &[LabelPair]) -> Vec<Option<Exemplar>> {
        let is_it = |series: &&Arc<Series>| {
            labels.len() == self.order.len()
                && labels.iter().zip(&self.order).all(|(label, &at)| series.labels[at] == label.value())
        };
        let found = self.series.read().iter().find(is_it).map(Arc::clone);
        found.map(|series| series.cells.iter().map(|cell| *cell.lock()).collect()).unwrap_or_default()
    }
}

/// Histograms by label values, with exemplars. Cheap to clone.
#[derive(Clone)]
pub struct TracedHistogramVec {
    histograms: HistogramVec,
    exemplars: Arc<Family>,
}

impl TracedHistogramVec {
    /// Declares it with these upper bounds, ascending, `+Inf` left out.
    pub(super) fn register(
        registry: &Registry,
        (name, help): (&str, &str),
        labels: &[&str],
        bounds: Vec<f64>,
    ) -> Result<Self, MetricsError> {
        let failed = |error| MetricsError::new(name, error);
        registry.declare_bounds(name, &bounds);
        let opts = HistogramOpts::new(name, help).buckets(bounds.clone());
        let histograms = HistogramVec::new(opts, labels).map_err(failed)?;
        let collector: Box<dyn Collector> = Box::new(histograms.clone());
        registry.register(collector).map_err(failed)?;
        let mut order: Vec<usize> = (0..labels.len()).collect();
        order.sort_by_key(|&at| labels[at]);
        let held = &registry.exemplars().0;
        let exemplars =
            Arc::new(Family { switch: Arc::clone(&held.switch), bounds, order, series: RwLock::default() });
        held.families.lock().insert(name.to_owned(), Arc::clone(&exemplars));
        Ok(Self { histograms, exemplars })
    }

    /// Observes a value in the present span.
    pub fn observe(&self, labels: &[&str], value: f64) {
        self.observe_in(labels, value, present);
    }

    /// Observes a value in a span, which is asked for only where there are traces; `None` if it is not recorded.
    pub fn observe_in(&self, labels: &[&str], value: f64, span: impl FnOnce() -> Option<Ids>) {
        self.histograms.with_label_values(labels).observe(value);
        if let Some(clock) = self.exemplars.switch.get()
            && let Some(span) = span()
        {
            self.exemplars.keep(labels, value, span, clock);
        }
    }

    /// The histogram of these label values.
    pub fn with_label_values(&self, labels: &[&str]) -> TracedHistogram {
        TracedHistogram {
            histogram: self.histograms.with_label_values(labels),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            exemplars: Arc::clone(&self.exemplars),
        }
    }

    /// Whether exemplars are kept.
    pub fn is_traced(&self) -> bool {
        self.exemplars.switch.get().is_some()
    }
}

impl fmt::Debug for TracedHistogramVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TracedHistogramVec").field(&self.histograms).finish()
    }
}

/// One histogram with exemplars. Cheap to clone.
#[derive(Clone)]
pub struct TracedHistogram {
    histogram: Histogram,
    labels: Vec<String>,
    exemplars: Arc<Family>,
}

impl TracedHistogram {
    /// Observes a value in a span, which is asked for only where there are traces; `None` if it is not recorded.
    pub fn observe_in(&self, value: f64, span: impl FnOnce() -> Option<Ids>) {
        self.histogram.observe(value);
        if let Some(clock) = self.exemplars.switch.get()
            && let Some(span) = span()
        {
            let labels: Vec<&str> = self.labels.iter().map(String::as_str).collect();
            self.exemplars.keep(&labels, value, span, clock);
        }
    }

    /// Observes a value in the present span.
    pub fn observe(&self, value: f64) {
        self.observe_in(value, present);
    }
}

impl fmt::Debug for TracedHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TracedHistogram").field(&self.labels).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clock::ManualClock;
    use crate::telemetry::{ExpositionFormat, Registrar};

    fn ids(of: u8) -> Ids {
        Ids { trace: [of; 16], span: [of; 8] }
    }

    fn registry() -> (Registry, TracedHistogramVec) {
        let registry = Registry::new();
        let bounds = vec![1.0, 10.0];
        let histograms =
            Registrar::new(&registry).traced_histograms("t_seconds", "Times.", &["b", "a"], bounds);
        (registry, histograms.unwrap())
    }

    #[test]
    fn without_traces_no_span_is_asked_for() {
        let (registry, histograms) = registry();
        histograms.observe_in(&["x", "y"], 0.5, || panic!("it is not to be asked for"));
        assert!(!histograms.is_traced());
        let page = ExpositionFormat::OpenMetrics.encode(&registry);
        assert!(page.contains("t_seconds_bucket{a=\"y\",b=\"x\",le=\"1\"} 1\n"), "{page}");
        assert!(!page.contains(" # {"), "{page}");
    }

    #[test]
    fn each_bucket_keeps_the_trace_that_fell_into_it_last() {
        let (registry, histograms) = registry();
        let clock = ManualClock::new(Timestamp::from_millisecond(1_700_000_000_250).unwrap());
        registry.exemplars().enable(Arc::new(clock));
        assert!(histograms.is_traced());
        for (of, value) in [(1, 0.25), (2, 1.0), (3, 1.5), (4, 11.0)] {
            histograms.observe_in(&["x", "y"], value, || Some(ids(of)));
        }
        histograms.observe_in(&["x", "y"], 2.0, || None);
        histograms.observe_in(&["other", "y"], 2.0, || None);
        let page = ExpositionFormat::OpenMetrics.encode(&registry);
        let of = |of: u8, value: &str| {
            let (trace, span) = (ids(of).trace_hex(), ids(of).span_hex());
            format!("# {{trace_id=\"{trace}\",span_id=\"{span}\"}} {value} 1700000000.250\n")
        };
        for (bound, line) in [
            ("1", format!("2 {}", of(2, "1"))),
            ("10", format!("4 {}", of(3, "1.5"))),
            ("+Inf", format!("5 {}", of(4, "11"))),
        ] {
            let line = format!("t_seconds_bucket{{a=\"y\",b=\"x\",le=\"{bound}\"}} {line}");
            assert!(page.contains(&line), "{line} in {page}");
        }
        assert!(page.contains("t_seconds_bucket{a=\"y\",b=\"other\",le=\"10\"} 1\n"), "{page}");
        assert!(page.ends_with("t_seconds_count{a=\"y\",b=\"x\"} 5\n# EOF\n"), "{page}");
        assert!(!ExpositionFormat::Text.encode(&registry).contains("trace_id"));
    }

    #[test]
    fn their_number_is_bounded_by_that_of_buckets_and_series() {
        let (registry, histograms) = registry();
        registry.exemplars().enable(Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH)));
        for label in 0..MOST_SERIES + 5 {
            for value in [0.5, 0.6, 20.0] {
                histograms.observe_in(&[&label.to_string(), ""], value, || Some(ids(1)));
            }
        }
        let family = registry.exemplars().of("t_seconds").unwrap();
        let series = family.series.read();
        assert_eq!(series.len(), MOST_SERIES);
        assert!(series.iter().all(|series| series.cells.len() == 3));
    }

    #[test]
    fn nobody_waits_for_a_cell_that_is_taken() {
        let (registry, histograms) = registry();
        registry.exemplars().enable(Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH)));
        histograms.observe_in(&["x", "y"], 0.5, || Some(ids(1)));
        let family = registry.exemplars().of("t_seconds").unwrap();
        let held = family.series(&["x", "y"]).unwrap();
        let cell = held.cells[0].lock();
        histograms.observe_in(&["x", "y"], 0.5, || Some(ids(2)));
        assert_eq!(cell.map(|exemplar| exemplar.ids), Some(ids(1)));
        drop(cell);
        let all = family.series.write();
        histograms.observe_in(&["x", "y"], 0.5, || Some(ids(3)));
        drop(all);
        assert_eq!(held.cells[0].lock().map(|exemplar| exemplar.ids), Some(ids(1)));
    }
}

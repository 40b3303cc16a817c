//! What informers tell a metrics registry: the original's two metrics, and `coxswain_informer_*`.
//!
//! Counters are counted where things happen; gauges are read off the informers when somebody scrapes, so an informer
//! that has stopped leaves none behind. The counters of a custom kind are removed with its last informer.

use std::sync::Weak;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts,
};

use super::set::Shared;
use super::stats::InformerStats;
use crate::api::{Kind, kinds};
use crate::telemetry::Registry;
use crate::wire::EventType;

/// The original's buckets for the time from an event's arrival to the end of its handlers.
const LATENCY_BUCKETS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const KIND_LABELS: &[&str] = &["group", "version", "resource"];
/// The types of watch events, as label values.
const EVENTS: [&str; 5] = ["added", "modified", "deleted", "bookmark", "error"];
const INFORMER_LABELS: &[&str] = &["group", "version", "resource", "field_selector"];

/// Metrics that are counted as things happen.
pub(super) struct Metrics {
    name: String,
    latency: HistogramVec,
    events: IntCounterVec,
    unreadable: IntCounterVec,
}

/// The same for one kind.
pub(super) struct KindMetrics {
    /// Seconds from the arrival of an event until all handlers were told.
    pub(super) latency: Histogram,
    /// Objects that could not be decoded.
    pub(super) unreadable: IntCounter,
    added: IntCounter,
    modified: IntCounter,
    deleted: IntCounter,
    bookmark: IntCounter,
    error: IntCounter,
}

impl Metrics {
    /// Registers all but the gauges. `name` is the `name` label of the original's metrics.
    pub(super) fn register(registry: &Registry, name: &str) -> Result<Self, prometheus::Error> {
        let latency = HistogramVec::new(
            HistogramOpts::new(
                "informer_processing_latency_seconds",
                "Time from the arrival of a watch event to its delivery to all handlers in seconds.",
            )
            .buckets(LATENCY_BUCKETS.to_vec()),
            &["group", "name", "resource", "version"],
        )?;
        registry.declare_bounds("informer_processing_latency_seconds", LATENCY_BUCKETS);
        let events = IntCounterVec::new(
            Opts::new("coxswain_informer_events_total", "Watch events received, by type."),
            &["group", "version", "resource", "type"],
        )?;
        let unreadable = IntCounterVec::new(
            Opts::new("coxswain_informer_unreadable_total", "Received objects that could not be decoded."),
            KIND_LABELS,
        )?;
        registry.register(Box::new(latency.clone()))?;
        registry.register(Box::new(events.clone()))?;
        registry.register(Box::new(unreadable.clone()))?;
        Ok(Self { name: name.to_owned(), latency, events, unreadable })
    }

    pub(super) fn of(&self, kind: &Kind) -> KindMetrics {
        let labels = [kind.group, kind.version, kind.resource];
        let [added, modified, deleted, bookmark, error] =
            EVENTS.map(|of| self.events.with_label_values(&[kind.group, kind.version, kind.resource, of]));
        KindMetrics {
            latency: self.latency.with_label_values(&[
                kind.group,
                self.name.as_str(),
                kind.resource,
                kind.version,
            ]),
            unreadable: self.unreadable.with_label_values(&labels),
            added,
            modified,
            deleted,
            bookmark,
            error,
        }
    }

    /// Removes the series of a custom kind that has no informer left. The series of built-in kinds stay: their number is fixed, and their
    /// counters continue when a controller is started again.
    pub(super) fn forget(&self, kind: &Kind) {
        let labels = [kind.group, kind.version, kind.resource];
        if kinds::ALL.iter().any(|row| [row.group, row.version, row.resource] == labels) {
            return;
        }
        let [group, version, resource] = labels;
        // An error means that there is no such series.
        let _ = self.latency.remove_label_values(&[group, self.name.as_str(), resource, version]);
        let _ = self.unreadable.remove_label_values(&labels);
        for of in EVENTS {
            let _ = self.events.remove_label_values(&[group, version, resource, of]);
        }
    }
}

impl KindMetrics {
    /// Counts an event.
    pub(super) fn count(&self, kind: EventType) {
        match kind {
            EventType::Added => self.added.inc(),
            EventType::Modified => self.modified.inc(),
            EventType::Deleted => self.deleted.inc(),
            EventType::Bookmark => self.bookmark.inc(),
            EventType::Error | EventType::Unknown => self.error.inc(),
        }
    }
}

/// Gauges, read off the informers at every scrape.
pub(super) struct Gauges {
    informers: Weak<Shared>,
    name: String,
    vectors: Mutex<Vectors>,
    descriptions: Vec<Desc>,
}

struct Vectors {
    queued: IntGaugeVec,
    objects: IntGaugeVec,
    bytes: IntGaugeVec,
    unreadable: IntGaugeVec,
    watch_age: GaugeVec,
    restarts: IntCounterVec,
    relists: IntCounterVec,
    reconnects: IntCounterVec,
    handler_panics: IntCounterVec,
}

impl Vectors {
    fn new() -> Result<Self, prometheus::Error> {
        let of = |name: &str, help: &str| IntGaugeVec::new(Opts::new(name, help), INFORMER_LABELS);
        let counter = |name: &str, help: &str| IntCounterVec::new(Opts::new(name, help), INFORMER_LABELS);
        Ok(Self {
            queued: IntGaugeVec::new(
                Opts::new(
                    "informer_queued_items",
                    "Number of received objects not yet delivered to the handlers.",
                ),
                &["group", "name", "resource", "version"],
            )?,
            objects: of("coxswain_informer_objects", "Number of cached objects.")?,
            bytes: of(
                "coxswain_informer_object_bytes",
                "Encoded size of the cached objects in bytes, estimated from a sample; the objects use \
                 several times as much memory.",
            )?,
            unreadable: of(
                "coxswain_informer_unreadable_objects",
                "Number of objects whose cached version is outdated because the latest one cannot be decoded.",
            )?,
            watch_age: GaugeVec::new(
                Opts::new(
                    "coxswain_informer_watch_age_seconds",
                    "Age of the open watch in seconds; absent without an open watch.",
                ),
                INFORMER_LABELS,
            )?,
            restarts: counter("coxswain_informer_restarts_total", "Restarts of an informer after a panic.")?,
            relists: counter(
                "coxswain_informer_relists_total",
                "Full lists of a resource after its initial list.",
            )?,
            reconnects: counter(
                "coxswain_informer_reconnects_total",
                "Watches resumed from the last resource version of the previous watch.",
            )?,
            handler_panics: counter(
                "coxswain_informer_handler_panics_total",
                "Panics in registered handlers.",
            )?,
        })
    }

    fn gauges(&self) -> [&IntGaugeVec; 4] {
        [&self.queued, &self.objects, &self.bytes, &self.unreadable]
    }

    fn counters(&self) -> [&IntCounterVec; 4] {
        [&self.restarts, &self.relists, &self.reconnects, &self.handler_panics]
    }

    fn collectors(&self) -> [&dyn Collector; 9] {
        let [queued, objects, bytes, unreadable] = self.gauges();
        let [restarts, relists, reconnects, panics] = self.counters();
        [queued, objects, bytes, unreadable, &self.watch_age, restarts, relists, reconnects, panics]
    }

    fn reset(&self) {
        self.gauges().iter().for_each(|vector| vector.reset());
        self.counters().iter().for_each(|vector| vector.reset());
        self.watch_age.reset();
    }

    fn set(&self, name: &str, stats: &InformerStats, bytes: usize) {
        let kind = stats.kind;
        let selector = stats.field_selector.as_deref().unwrap_or_default();
        let labels = [kind.group, kind.version, kind.resource, selector];
        // Informers of one kind that differ in their selectors add up.
        self.queued
            .with_label_values(&[kind.group, name, kind.resource, kind.version])
            .add(stats.collecting as i64);
        self.objects.with_label_values(&labels).set(stats.objects as i64);
        self.bytes.with_label_values(&labels).add(bytes as i64);
        self.unreadable.with_label_values(&labels).set(stats.unreadable as i64);
        self.restarts.with_label_values(&labels).inc_by(stats.restarts);
        self.relists.with_label_values(&labels).inc_by(stats.relists);
        self.reconnects.with_label_values(&labels).inc_by(stats.reconnects);
        let panics = stats.handler_panics.iter().map(|panics| panics.count).sum();
        self.handler_panics.with_label_values(&labels).inc_by(panics);
        if let Some(age) = stats.watch_age {
            self.watch_age.with_label_values(&labels).set(age.as_secs_f64());
        }
    }
}

impl Gauges {
    pub(super) fn new(informers: Weak<Shared>, name: &str) -> Result<Self, prometheus::Error> {
        let vectors = Vectors::new()?;
        let descriptions = vectors.collectors().iter().flat_map(|vector| vector.desc()).cloned().collect();
        Ok(Self { informers, name: name.to_owned(), vectors: Mutex::new(vectors), descriptions })
    }
}

impl Collector for Gauges {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(informers) = self.informers.upgrade() else { return Vec::new() };
        let stats = informers.measured();
        let vectors = self.vectors.lock();
        vectors.reset();
        for (stats, bytes) in &stats {
            vectors.set(&self.name, stats, *bytes);
        }
        vectors.collectors().iter().flat_map(|vector| vector.collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kinds::ENDPOINTS;

    /// kube-controller-manager makes `endpointss` of this kind.
    #[test]
    fn resources_have_the_plural_names_of_the_api() {
        let registry = Registry::new();
        let _ = Metrics::register(&registry, "test").unwrap().of(&ENDPOINTS);
        let families = registry.gather();
        let mut families = families.iter();
        let family = families.find(|family| family.name() == "informer_processing_latency_seconds").unwrap();
        let labels: Vec<&str> =
            family.get_metric()[0].get_label().iter().map(prometheus::proto::LabelPair::value).collect();
        assert_eq!(labels, ["", "test", "endpoints", "v1"]);
    }
}

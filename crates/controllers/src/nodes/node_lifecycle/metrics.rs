//! What the controller counts of its work, under the original's names. Decides nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus::{GaugeVec, Histogram, IntCounterVec, Opts, exponential_buckets};

use super::zones::{Zone, ZoneSize};
use coxswain_machinery::framework::RoomMetrics;
use coxswain_machinery::wire::Str;

/// The metrics.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    size: GaugeVec,
    health: GaugeVec,
    unhealthy: GaugeVec,
    evictions: IntCounterVec,
    one: Histogram,
    all: Histogram,
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let gauge = |name: &'static str, help: &str| {
            metrics.own(name, || GaugeVec::new(Opts::new(name, help), &["zone"]))
        };
        Ok(Self {
            size: gauge("node_collector_zone_size", "Number of registered nodes, by zone.")?,
            health: gauge("node_collector_zone_health", "Percentage of ready nodes, by zone.")?,
            unhealthy: gauge(
                "node_collector_unhealthy_nodes_in_zone",
                "Number of nodes that are not ready, by zone.",
            )?,
            evictions: metrics.counters(
                "node_collector_evictions_total",
                "Nodes whose pods were evicted because of node health, by zone.",
                &["zone"],
            )?,
            one: metrics.histogram(
                "node_collector_update_node_health_duration_seconds",
                "Duration of a health update of one node in seconds.",
                exponential_buckets(0.001, 4.0, 8)?,
            )?,
            all: metrics.histogram(
                "node_collector_update_all_nodes_health_duration_seconds",
                "Duration of a health update of all nodes in seconds.",
                exponential_buckets(0.01, 4.0, 8)?,
            )?,
        })
    }

    /// Zones were looked at; those that are there no more are empty and well.
    pub(super) fn looked(&self, before: &BTreeMap<Str, Zone>, now: &BTreeMap<Str, Zone>) {
        let gone =
            before.keys().filter(|name| !now.contains_key(*name)).map(|name| (name, ZoneSize::default()));
        for (name, size) in now.iter().map(|(name, zone)| (name, zone.size)).chain(gone) {
            let labels = [name.as_str()];
            let ready = if size.all() == 0 { 100.0 } else { 100.0 * size.ready as f64 / size.all() as f64 };
            self.size.with_label_values(&labels).set(size.all() as f64);
            self.health.with_label_values(&labels).set(ready);
            self.unhealthy.with_label_values(&labels).set(size.unready as f64);
            self.evictions.with_label_values(&labels).inc_by(0);
        }
    }

    /// A node was tainted.
    pub(super) fn tainted(&self, zone: &str) {
        self.evictions.with_label_values(&[zone]).inc();
    }

    /// A look at so many nodes has ended.
    pub(super) fn ended(&self, nodes: usize, took: Duration) {
        let took = took.as_secs_f64();
        self.all.observe(took);
        for _ in 0..nodes {
            self.one.observe(took / nodes as f64);
        }
    }
}

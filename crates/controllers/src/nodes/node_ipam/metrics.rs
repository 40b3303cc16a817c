//! What the controller counts of its ranges, under the original's names, one of which is misspelt. Decides nothing.

use ipnet::IpNet;
use prometheus::{GaugeVec, HistogramVec, IntCounterVec, Opts};

use coxswain_machinery::framework::RoomMetrics;

/// The metrics.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    allocations: IntCounterVec,
    releases: IntCounterVec,
    most: GaugeVec,
    usage: GaugeVec,
    tries: HistogramVec,
}

const LABELS: &[&str] = &["clusterCIDR"];

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let gauge = |name: &'static str, help: &str| {
            metrics.own(name, || GaugeVec::new(Opts::new(name, help), LABELS))
        };
        Ok(Self {
            allocations: metrics.counters(
                "node_ipam_controller_cidrset_cidrs_allocations_total",
                "Allocations of CIDR blocks, by cluster CIDR.",
                LABELS,
            )?,
            releases: metrics.counters(
                "node_ipam_controller_cidrset_cidrs_releases_total",
                "Releases of CIDR blocks, by cluster CIDR.",
                LABELS,
            )?,
            most: gauge(
                "node_ipam_controller_cirdset_max_cidrs",
                "Number of CIDR blocks in the cluster CIDR.",
            )?,
            usage: gauge(
                "node_ipam_controller_cidrset_usage_cidrs",
                "Fraction of allocated CIDR blocks, from 0 to 1, by cluster CIDR.",
            )?,
            tries: metrics.histograms(
                "node_ipam_controller_cidrset_allocation_tries_per_request",
                "Allocated CIDR blocks skipped before a free one was found, by cluster CIDR.",
                LABELS,
                vec![1.0, 5.0, 25.0, 125.0, 625.0],
            )?,
        })
    }

    /// There is this range.
    pub(super) fn begins(&self, range: IpNet, count: u64, used: u64) {
        self.most.with_label_values(&[range.to_string()]).set(count as f64);
        self.changed(range, 0, used, count);
    }

    /// So many of its blocks are taken now.
    pub(super) fn changed(&self, range: IpNet, before: u64, now: u64, count: u64) {
        let labels = [range.to_string()];
        self.allocations.with_label_values(&labels).inc_by(now.saturating_sub(before));
        self.releases.with_label_values(&labels).inc_by(before.saturating_sub(now));
        self.usage.with_label_values(&labels).set(now as f64 / count as f64);
    }

    /// One was given, after so many tries.
    pub(super) fn given(&self, range: IpNet, tries: u64) {
        self.tries.with_label_values(&[range.to_string()]).observe(tries as f64);
    }
}

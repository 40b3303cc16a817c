//! What the controller counts of its work, under the original's names. Decides nothing.
//!
//! A plan is counted when it is made ([`Metrics::planned`]) and told of when its reconcile has ended
//! ([`Metrics::ended`]). Gauges are sums over all mirrored Endpoints; those that are gone are taken out of them.

use parking_lot::Mutex;
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, exponential_buckets};

use super::plan::Count;
use coxswain_machinery::api::kinds::ENDPOINT_SLICES;
use coxswain_machinery::framework::{Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;

/// The metrics, and what is in the gauges.
#[derive(Debug)]
pub(super) struct Metrics {
    /// Slices that there would be if all were full.
    ideal: IntGauge,
    slices: IntGauge,
    endpoints: IntGauge,
    added: Histogram,
    updated: Histogram,
    removed: Histogram,
    skipped: Histogram,
    /// How long reconciles take. (The original's is cut to whole seconds, and so nearly always nothing.)
    /// Differs: sync-duration-fractions.
    took: Histogram,
    /// Slices written, by how.
    changes: IntCounterVec,
    mirrors: Mutex<HashMap<Key, Counted>>,
}

/// A mirror as it was looked at last.
#[derive(Debug)]
struct Counted {
    count: Count,
    /// Whether what the plan comes to is still to be told of.
    is_under_way: bool,
}

impl Metrics {
    /// The metrics, registered. The gauges begin anew: nothing has been looked at.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let gauge = |name: &'static str, help| metrics.own(name, || IntGauge::new(name, help));
        let sizes = |name: &'static str, help: &'static str| {
            let make = || {
                Histogram::with_opts(
                    HistogramOpts::new(name, help).buckets(exponential_buckets(2.0, 2.0, 15)?),
                )
            };
            metrics.own(name, make)
        };
        let changes = "endpoint_slice_mirroring_controller_changes";
        let registered = Self {
            ideal: gauge(
                "endpoint_slice_mirroring_controller_desired_endpoint_slices",
                "Number of EndpointSlices with optimal distribution of endpoints.",
            )?,
            slices: gauge("endpoint_slice_mirroring_controller_num_endpoint_slices", "EndpointSlices.")?,
            endpoints: gauge(
                "endpoint_slice_mirroring_controller_endpoints_desired",
                "Number of desired endpoints.",
            )?,
            added: sizes(
                "endpoint_slice_mirroring_controller_endpoints_added_per_sync",
                "Endpoints added by each reconcile of mirrored Endpoints.",
            )?,
            updated: sizes(
                "endpoint_slice_mirroring_controller_endpoints_updated_per_sync",
                "Endpoints updated by each reconcile of mirrored Endpoints.",
            )?,
            removed: sizes(
                "endpoint_slice_mirroring_controller_endpoints_removed_per_sync",
                "Endpoints removed by each reconcile of mirrored Endpoints.",
            )?,
            skipped: sizes(
                "endpoint_slice_mirroring_controller_addresses_skipped_per_sync",
                "Addresses skipped by each reconcile of mirrored Endpoints because they are invalid or exceed the \
                 limit.",
            )?,
            changes: metrics.own(changes, || {
                IntCounterVec::new(Opts::new(changes, "EndpointSlice writes, by operation."), &["operation"])
            })?,
            took: metrics.histogram(
                "endpoint_slice_mirroring_controller_endpoints_sync_duration",
                "Duration of reconciles of mirrored Endpoints in seconds.",
                exponential_buckets(0.001, 2.0, 15)?,
            )?,
            mirrors: Mutex::default(),
        };
        for gauge in [&registered.ideal, &registered.slices, &registered.endpoints] {
            gauge.set(0);
        }
        Ok(registered)
    }

    fn enter(&self, count: &Count, sign: i64) {
        self.ideal.add(sign * count.ideal as i64);
        self.slices.add(sign * count.slices as i64);
        self.endpoints.add(sign * count.endpoints as i64);
    }
}

impl Meter<Count> for Metrics {
    fn planned(&self, key: &Key, note: &Count) {
        let count = *note;
        self.enter(&count, 1);
        let before = self.mirrors.lock().insert(key.clone(), Counted { count, is_under_way: true });
        if let Some(before) = before {
            self.enter(&before.count, -1);
        }
    }

    fn ended(&self, key: &Key, ReconcileEnd { outcome, actions, took }: ReconcileEnd<'_>) {
        for operation in actions.iter().filter_map(|action| action.changed(&ENDPOINT_SLICES)) {
            self.changes.with_label_values(&[operation]).inc();
        }
        if matches!(outcome, Outcome::Waiting(_)) {
            // Nothing was planned.
            return;
        }
        self.took.observe(took.as_secs_f64());
        let mut mirrors = self.mirrors.lock();
        if *outcome == Outcome::Absent {
            if let Some(gone) = mirrors.remove(key) {
                self.enter(&gone.count, -1);
            }
            return;
        }
        let Some(counted) = mirrors.get_mut(key).filter(|counted| counted.is_under_way) else { return };
        counted.is_under_way = false;
        let count = &counted.count;
        for (histogram, size) in [
            (&self.added, count.added),
            (&self.updated, count.updated),
            (&self.removed, count.removed),
            (&self.skipped, count.skipped),
        ] {
            histogram.observe(size as f64);
        }
    }
}

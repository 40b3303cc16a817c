//! What the controller counts of its work, under the original's names. Decides nothing.
//!
//! A plan is counted when it is made ([`Metrics::planned`]) and told of when its reconcile has ended
//! ([`Metrics::ended`]). Gauges are sums over all Services; a Service that is gone is taken out of them. Where the original
//! lets the last address family of a Service stand for all of them, these count every family.
//! Differs: gauges-of-families.

use parking_lot::Mutex;
use prometheus::{
    DEFAULT_BUCKETS, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    exponential_buckets,
};

use super::plan::{Count, distribution_in_force};
use super::topology::Mode;
use super::view::View;
use coxswain_machinery::api::kinds::ENDPOINT_SLICES;
use coxswain_machinery::framework::{Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

/// The metrics, and what is in the gauges.
#[derive(Debug)]
pub(super) struct Metrics {
    /// Slices that there would be if all were full.
    ideal: IntGauge,
    slices: IntGauge,
    endpoints: IntGauge,
    added: Histogram,
    removed: Histogram,
    /// Slices written in a reconcile, by what the Service asks for.
    changed: HistogramVec,
    /// Slices written, by how.
    changes: IntCounterVec,
    /// Reconciles, by how they ended.
    syncs: IntCounterVec,
    /// Services that say where their traffic is to go, by what they say.
    preferring: IntGaugeVec,
    services: Mutex<HashMap<Key, Counted>>,
}

/// A Service as it was looked at last.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    ideal: i64,
    slices: i64,
    endpoints: i64,
    /// The Service's `trafficDistribution`.
    traffic: Option<Str>,
    /// The same, if it is in force.
    preferring: Option<Str>,
    is_auto: bool,
    /// What the plan under way comes to, by family.
    under_way: Vec<Count>,
}

impl Counted {
    /// Returns the counts of a plan for the Service of this view.
    pub(super) fn of(view: &View, counts: Vec<Count>) -> Self {
        let service = &view.service;
        let sum = |of: fn(&Count) -> usize| counts.iter().map(of).sum::<usize>() as i64;
        Self {
            ideal: sum(|count| count.ideal),
            slices: sum(|count| count.slices),
            endpoints: sum(|count| count.endpoints),
            traffic: service.spec.traffic_distribution.clone().filter(|traffic| !traffic.is_empty()),
            preferring: distribution_in_force(view).cloned(),
            is_auto: Mode::of(service) == Mode::Auto,
            under_way: counts,
        }
    }
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
        let counters = |name: &'static str, help: &'static str, label| {
            metrics.own(name, || IntCounterVec::new(Opts::new(name, help), &[label]))
        };
        let changed = "endpoint_slice_controller_endpointslices_changed_per_sync";
        let preferring = "endpoint_slice_controller_services_count_by_traffic_distribution";
        let registered = Self {
            ideal: gauge(
                "endpoint_slice_controller_desired_endpoint_slices",
                "Number of EndpointSlices with optimal distribution of endpoints.",
            )?,
            slices: gauge("endpoint_slice_controller_num_endpoint_slices", "EndpointSlices.")?,
            endpoints: gauge("endpoint_slice_controller_endpoints_desired", "Number of desired endpoints.")?,
            added: sizes(
                "endpoint_slice_controller_endpoints_added_per_sync",
                "Endpoints added by each reconcile of a Service, observed once for each address family.",
            )?,
            removed: sizes(
                "endpoint_slice_controller_endpoints_removed_per_sync",
                "Endpoints removed by each reconcile of a Service, observed once for each address family.",
            )?,
            changed: metrics.histograms(
                changed,
                "EndpointSlices written by each reconcile of a Service, observed once for each address family.",
                &["topology", "traffic_distribution"],
                DEFAULT_BUCKETS.to_vec(),
            )?,
            changes: counters(
                "endpoint_slice_controller_changes",
                "EndpointSlice writes, by operation.",
                "operation",
            )?,
            syncs: counters(
                "endpoint_slice_controller_syncs",
                "Reconciles of the EndpointSlices of Services, by result.",
                "result",
            )?,
            preferring: metrics.own(preferring, || {
                let help = "Number of Services, by traffic distribution.";
                IntGaugeVec::new(Opts::new(preferring, help), &["traffic_distribution"])
            })?,
            services: Mutex::default(),
        };
        for gauge in [&registered.ideal, &registered.slices, &registered.endpoints] {
            gauge.set(0);
        }
        registered.preferring.reset();
        Ok(registered)
    }

    fn enter(&self, counted: &Counted) {
        self.ideal.add(counted.ideal);
        self.slices.add(counted.slices);
        self.endpoints.add(counted.endpoints);
        if let Some(traffic) = &counted.preferring {
            self.preferring.with_label_values(&[traffic]).inc();
        }
    }

    fn leave(&self, counted: &Counted) {
        self.ideal.sub(counted.ideal);
        self.slices.sub(counted.slices);
        self.endpoints.sub(counted.endpoints);
        if let Some(traffic) = &counted.preferring {
            self.preferring.with_label_values(&[traffic]).dec();
        }
    }
}

impl Meter<Option<Counted>> for Metrics {
    fn planned(&self, key: &Key, note: &Option<Counted>) {
        let Some(now) = note else { return };
        self.enter(now);
        if let Some(before) = self.services.lock().insert(key.clone(), now.clone()) {
            self.leave(&before);
        }
    }

    fn ended(&self, key: &Key, ReconcileEnd { outcome, actions, .. }: ReconcileEnd<'_>) {
        let result = match outcome {
            Outcome::Done { .. } | Outcome::Absent => "success",
            Outcome::Waiting(_) => "stale",
            Outcome::Failed { .. } => "error",
        };
        self.syncs.with_label_values(&[result]).inc();
        for operation in actions.iter().filter_map(|action| action.changed(&ENDPOINT_SLICES)) {
            self.changes.with_label_values(&[operation]).inc();
        }
        if matches!(outcome, Outcome::Waiting(_)) {
            // Nothing was planned.
            return;
        }
        let mut services = self.services.lock();
        if *outcome == Outcome::Absent {
            if let Some(gone) = services.remove(key) {
                self.leave(&gone);
            }
            return;
        }
        let Some(counted) = services.get_mut(key) else { return };
        let topology = if counted.is_auto { "Auto" } else { "Disabled" };
        let changed =
            self.changed.with_label_values(&[topology, counted.traffic.as_deref().unwrap_or_default()]);
        for count in counted.under_way.drain(..) {
            self.added.observe(count.added as f64);
            self.removed.observe(count.removed as f64);
            if matches!(outcome, Outcome::Done { .. }) {
                changed.observe(count.written as f64);
            }
        }
    }
}

//! What the controller counts of its work, under the original's names. Decides nothing.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts};

use super::facts::{class_of_claim, mode};
use super::memory::Ledger;
use super::note::{Counted, Note, Operation};
use super::provisioning::{HOST_PATH, NFS};
use crate::storage::metrics::{BOUNDS, Operations};
use coxswain_machinery::api::storage::{PersistentVolume, PersistentVolumeClaim};
use coxswain_machinery::framework::{KeyMap, Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::telemetry::BoundedSeries;
use coxswain_machinery::wire::{Str, Uid};

/// The metrics, and what is under way.
#[derive(Debug)]
pub(super) struct Metrics {
    durations: BoundedSeries<HistogramVec>,
    errors: BoundedSeries<IntCounterVec>,
    defaulted: IntCounter,
    default_errors: IntCounter,
    directories: Operations,
    volumes: IntGaugeVec,
    bound_volumes: IntGaugeVec,
    unbound_volumes: IntGaugeVec,
    bound_claims: IntGaugeVec,
    unbound_claims: IntGaugeVec,
    clocks: Mutex<HashMap<(Key, Operation), Clock>>,
    planned: Mutex<HashMap<Key, Vec<Counted>>>,
}

/// How long an operation on the object with this UID takes.
#[derive(Debug)]
struct Clock {
    uid: Uid,
    plugin: Str,
    began: Timestamp,
}

const OPERATION: [&str; 2] = ["plugin_name", "operation_name"];
const CLAIM: [&str; 3] = ["namespace", "storage_class", "volume_attributes_class"];

impl Metrics {
    /// The metrics, registered. What an earlier instance has counted of the caches is forgotten.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let gauges = |name: &'static str, help: &str, labels: &[&str]| {
            let gauges = metrics.own(name, || IntGaugeVec::new(Opts::new(name, help), labels))?;
            gauges.reset();
            Ok::<_, prometheus::Error>(gauges)
        };
        Ok(Self {
            durations: metrics.bounded_histograms(
                "volume_operation_total_seconds",
                "Time from the start of provisioning or deletion of a volume to its end, in seconds.",
                &OPERATION,
                BOUNDS.to_vec(),
            )?,
            errors: metrics.bounded_counters(
                "volume_operation_errors_total",
                "Failed attempts to provision or delete a volume.",
                &OPERATION,
                &["plugin_name"],
            )?,
            defaulted: metrics.counter(
                "retroactive_storageclass_total",
                "Attempts to assign a default StorageClass retroactively, including failed ones.",
            )?,
            default_errors: metrics.counter(
                "retroactive_storageclass_errors_total",
                "Failed attempts to assign a default StorageClass retroactively.",
            )?,
            directories: Operations::register(metrics)?,
            volumes: gauges(
                "pv_collector_total_pv_count",
                "Number of PersistentVolumes, by plugin and volume mode.",
                &["plugin_name", "volume_mode"],
            )?,
            bound_volumes: gauges(
                "pv_collector_bound_pv_count",
                "Number of bound PersistentVolumes, by StorageClass.",
                &["storage_class"],
            )?,
            unbound_volumes: gauges(
                "pv_collector_unbound_pv_count",
                "Number of unbound PersistentVolumes, by StorageClass.",
                &["storage_class"],
            )?,
            bound_claims: gauges(
                "pv_collector_bound_pvc_count",
                "Number of bound PersistentVolumeClaims.",
                &CLAIM,
            )?,
            unbound_claims: gauges(
                "pv_collector_unbound_pvc_count",
                "Number of unbound PersistentVolumeClaims.",
                &CLAIM,
            )?,
            clocks: Mutex::default(),
            planned: Mutex::default(),
        })
    }

    /// Whether a volume of this key is being reclaimed.
    pub(super) fn is_reclaiming(&self, key: &Key) -> bool {
        self.clocks.lock().contains_key(&(key.clone(), Operation::Delete))
    }

    fn take(&self, key: &Key, of: Operation) -> Option<Clock> {
        self.clocks.lock().remove(&(key.clone(), of))
    }

    fn finished(&self, clock: &Clock, of: Operation, at: Timestamp) {
        let took = at.duration_since(clock.began).as_secs_f64().max(0.0);
        self.durations.with_label_values(&[clock.plugin.as_str(), of.name()]).observe(took);
    }

    fn count(&self, key: &Key, counted: &Counted, has_failed: bool, took: Duration) {
        match counted {
            Counted::Began(of, uid, plugin, at) => {
                let mut clocks = self.clocks.lock();
                let at_key = (key.clone(), *of);
                if clocks.get(&at_key).is_none_or(|clock| clock.uid != *uid) {
                    clocks.insert(at_key, Clock { uid: uid.clone(), plugin: plugin.clone(), began: *at });
                }
            }
            Counted::Bound(uid, _) if has_failed => {
                let of = Operation::Provision;
                let clocks = self.clocks.lock();
                if let Some(clock) = clocks.get(&(key.clone(), of)).filter(|clock| clock.uid == *uid) {
                    self.errors.with_label_values(&[clock.plugin.as_str(), of.name()]).inc();
                }
            }
            Counted::Bound(uid, at) => {
                let clock = self.take(key, Operation::Provision);
                if let Some(clock) = clock.filter(|clock| clock.uid == *uid) {
                    self.finished(&clock, Operation::Provision, *at);
                }
            }
            Counted::Gone(_) if has_failed => {}
            Counted::Gone(at) => {
                if let Some(clock) = self.take(key, Operation::Delete) {
                    self.finished(&clock, Operation::Delete, *at);
                }
            }
            Counted::Failed(of, plugin) => {
                self.errors.with_label_values(&[plugin.as_str(), of.name()]).inc();
            }
            Counted::DefaultClass => {
                self.defaulted.inc();
                if has_failed {
                    self.default_errors.inc();
                }
            }
            Counted::Refused(of) => {
                self.directories.ended(HOST_PATH, of.of_plugin(), true, took);
                self.errors.with_label_values(&[HOST_PATH, of.name()]).inc();
            }
            Counted::Directory(of) => {
                self.directories.ended(HOST_PATH, of.of_plugin(), has_failed, took);
                if has_failed {
                    self.errors.with_label_values(&[HOST_PATH, of.name()]).inc();
                }
            }
        }
    }
}

/// Counts what plans tell, and lets the memory know which volumes they take.
pub(super) struct Counter {
    pub(super) metrics: Arc<Metrics>,
    pub(super) ledger: Arc<Ledger>,
}

impl Meter<Note> for Counter {
    fn planned(&self, key: &Key, note: &Note) {
        self.ledger.planned(key, note);
        if !note.counted.is_empty() {
            self.metrics.planned.lock().entry(key.clone()).or_default().extend(note.counted.iter().cloned());
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        if matches!(ended.outcome, Outcome::Waiting(_)) {
            return;
        }
        let has_failed = matches!(ended.outcome, Outcome::Failed { .. });
        self.ledger.ended(key, has_failed);
        if matches!(ended.outcome, Outcome::Absent) {
            self.metrics.take(key, Operation::Provision);
        }
        let counted = self.metrics.planned.lock().remove(key);
        for counted in counted.iter().flatten() {
            self.metrics.count(key, counted, has_failed, ended.took);
        }
    }
}

/// Counts the volumes that there are. Wakes nobody.
pub(super) fn count_volumes(metrics: Arc<Metrics>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, _: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<PersistentVolume>();
        if delta.resync {
            return;
        }
        let count = |volume: &PersistentVolume, by: i64| {
            let source = &volume.spec.persistent_volume_source;
            let plugin = if source.host_path.is_some() {
                HOST_PATH
            } else if source.nfs.is_some() {
                NFS
            } else {
                "N/A"
            };
            add(&metrics.volumes, &[plugin, mode(volume.spec.volume_mode.as_ref())], by);
            let is_bound = volume.status.phase == "Bound";
            let gauges = if is_bound { &metrics.bound_volumes } else { &metrics.unbound_volumes };
            add(gauges, &[&volume.spec.storage_class_name], by);
        };
        // The new one first: what stays is never away.
        if let Some(volume) = new {
            count(volume, 1);
        }
        if let Some(volume) = old {
            count(volume, -1);
        }
    })
}

/// Counts the claims that there are. Wakes nobody.
pub(super) fn count_claims(metrics: Arc<Metrics>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, _: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<PersistentVolumeClaim>();
        if delta.resync {
            return;
        }
        let count = |claim: &PersistentVolumeClaim, by: i64| {
            let class = class_of_claim(claim);
            let labels = [
                claim.metadata.namespace.as_str(),
                class.as_str(),
                claim.spec.volume_attributes_class_name.as_str(),
            ];
            let is_bound = claim.status.phase == "Bound";
            add(if is_bound { &metrics.bound_claims } else { &metrics.unbound_claims }, &labels, by);
        };
        if let Some(claim) = new {
            count(claim, 1);
        }
        if let Some(claim) = old {
            count(claim, -1);
        }
    })
}

fn add(gauges: &IntGaugeVec, labels: &[&str], by: i64) {
    let gauge = gauges.with_label_values(labels);
    gauge.add(by);
    if gauge.get() == 0 {
        // What cannot be removed is not there.
        let _ = gauges.remove_label_values(labels);
    }
}

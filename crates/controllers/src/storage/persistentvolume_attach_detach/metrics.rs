//! What the controller counts of its work, under the original's names. Decides nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

use super::book::{State, Task};
use super::note::Note;
use super::source::{CSI, Source};
use super::wanted::all_sources;
use super::world::World;
use crate::storage::metrics::Operations;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{Meter, RoomMetrics};
use coxswain_machinery::model::Key;

const IN_USE: &str = "storage_count_attachable_volumes_in_use";
const TOTAL: &str = "attachdetach_controller_total_volumes";

/// What is counted as it happens.
#[derive(Debug)]
pub(super) struct Metrics {
    operations: Operations,
    forced: IntCounterVec,
}

impl Metrics {
    /// The metrics, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        Ok(Self {
            operations: Operations::register(metrics)?,
            forced: metrics.counters(
                "attach_detach_controller_attachdetach_controller_forced_detaches",
                "Volumes detached by force, by reason.",
                &["reason"],
            )?,
        })
    }
}

impl Meter<Note> for Metrics {
    fn planned(&self, _: &Key, note: &Note) {
        for ended in &note.ended {
            let operation = match ended.task {
                Task::Attach => "volume_attach",
                Task::Detach => "volume_detach",
            };
            self.operations.observe(
                &ended.plugin,
                operation,
                ended.has_failed,
                ended.is_migrated,
                ended.took,
            );
        }
        for reason in &note.forced {
            self.forced.with_label_values(&[*reason]).inc();
        }
    }
}

/// What is counted when somebody asks: of what there is at that moment, in the present instance of the controller.
#[derive(Clone)]
pub(super) struct Census(Arc<Counts>);

struct Counts {
    in_use: IntGaugeVec,
    total: IntGaugeVec,
    /// One at a time.
    world: Mutex<Weak<World>>,
}

impl Census {
    /// The gauges, registered.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        metrics.own(IN_USE, || {
            let help = "Number of volumes in use by pods, by node and plugin.";
            let in_use = IntGaugeVec::new(Opts::new(IN_USE, help), &["node", "volume_plugin"])?;
            let help = "Number of volumes in the desired and in the actual state, by plugin.";
            let total = IntGaugeVec::new(Opts::new(TOTAL, help), &["plugin_name", "state"])?;
            Ok(Self(Arc::new(Counts { in_use, total, world: Mutex::default() })))
        })
    }

    /// Counts what is in this world from here on.
    pub(super) fn follow(&self, world: &Arc<World>) {
        *self.0.world.lock() = Arc::downgrade(world);
    }
}

impl Collector for Census {
    fn desc(&self) -> Vec<&Desc> {
        self.0.in_use.desc().into_iter().chain(self.0.total.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Counts { in_use, total, world } = &*self.0;
        let world = world.lock();
        in_use.reset();
        total.reset();
        if let Some(world) = world.upgrade() {
            for pod in world.all_pods.list().iter().filter(|pod| !pod.spec.node_name.is_empty()) {
                for plugin in plugins(&world, pod) {
                    in_use.with_label_values(&[pod.spec.node_name.as_str(), &plugin]).inc();
                }
            }
            for ((plugin, state), number) in totals(&world) {
                total.with_label_values(&[plugin.as_str(), state]).set(number);
            }
        }
        in_use.collect().into_iter().chain(total.collect()).collect()
    }
}

/// The plugins of a pod's volumes, one for each; volumes that a CSI driver makes for the pod count, too.
fn plugins(world: &World, pod: &Pod) -> Vec<String> {
    let found = all_sources(world, pod).into_iter().map(|source| source.plugin());
    let own = pod.shape.inline_volumes.iter().filter_map(|volume| volume.source().ok()?.csi);
    found.chain(own.map(|csi| format!("{CSI}:{}", csi.driver))).collect()
}

fn totals(world: &World) -> BTreeMap<(String, &'static str), i64> {
    let mut totals = BTreeMap::new();
    let mut count = |source: &Source, state| *totals.entry((source.plugin(), state)).or_default() += 1;
    for (_, book) in world.books.all() {
        for want in book.wants.values() {
            count(&want.source, "desired_state_of_world");
        }
        let held = book.held.values().filter(|held| held.state != State::Absent);
        for source in held.filter_map(|held| held.source.as_ref()).filter(|source| source.is_known()) {
            count(source, "actual_state_of_world");
        }
    }
    totals
}

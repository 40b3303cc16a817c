//! The conflicts that there are, under the original's name: a series for each, in each direction. Decides nothing.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use prometheus::{IntGaugeVec, Opts};

use super::conflict::Property;
use coxswain_machinery::framework::RoomMetrics;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

const NAME: &str = "selinux_warning_controller_selinux_volume_conflict";

/// The most conflicts that have series. Half of 1,000 pods on one volume with another label than the rest are 500,000 conflicts, and a series
/// takes some 1,000 bytes. Further conflicts cause events and no series.
const MOST: usize = 10_000;

/// Two pods that cannot mount one volume on one node, as the first of them sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Conflict {
    pub(super) property: Property,
    /// A pod, and what it has.
    pub(super) one: (Key, Str),
    /// The other, and what that has.
    pub(super) other: (Key, Str),
}

impl Conflict {
    /// As the other sees it.
    pub(super) fn turned(&self) -> Self {
        Self { property: self.property, one: self.other.clone(), other: self.one.clone() }
    }

    fn labels(&self) -> [&str; 7] {
        let ((one, mine), (other, theirs)) = (&self.one, &self.other);
        [self.property.name(), &one.namespace, &one.name, mine, &other.namespace, &other.name, theirs]
    }
}

/// The conflicts that have series.
#[derive(Debug)]
pub(super) struct Series {
    gauge: IntGaugeVec,
    shown: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    conflicts: BTreeSet<Conflict>,
    /// Whether a conflict got no series, because [`MOST`] had one.
    is_short: bool,
}

impl Series {
    /// The metric, registered, without series: what an earlier instance of the controller saw is not there any more.
    pub(super) fn register(metrics: &RoomMetrics) -> Result<Self, prometheus::Error> {
        let labels = [
            "property",
            "pod1_namespace",
            "pod1_name",
            "pod1_value",
            "pod2_namespace",
            "pod2_name",
            "pod2_value",
        ];
        let help = "Number of conflicting SELinux mounts of a volume by two pods.";
        let gauge = metrics.own(NAME, || IntGaugeVec::new(Opts::new(NAME, help), &labels))?;
        gauge.reset();
        Ok(Self { gauge, shown: Mutex::default() })
    }

    /// Adds the series of a conflict, unless it has one.
    pub(super) fn begin(&self, conflict: Conflict) {
        let mut shown = self.shown.lock();
        if shown.conflicts.contains(&conflict) {
            return;
        }
        if shown.conflicts.len() < MOST {
            self.gauge.with_label_values(&conflict.labels()).set(1);
            shown.conflicts.insert(conflict);
        } else {
            shown.is_short = true;
        }
    }

    /// Removes the series of a conflict that is on no volume any longer.
    pub(super) fn end(&self, conflict: &Conflict) {
        if self.shown.lock().conflicts.remove(conflict) {
            // It fails only if the series is not there, which is as well.
            drop(self.gauge.remove_label_values(&conflict.labels()));
        }
    }

    /// Adds series of conflicts that have none, if conflicts got none and a tenth of the series is free by now. `all` are the conflicts that
    /// there are, of which some have series.
    pub(super) fn fill(&self, all: impl Iterator<Item = Conflict>) {
        {
            let mut shown = self.shown.lock();
            if !shown.is_short || shown.conflicts.len() > MOST - MOST / 10 {
                return;
            }
            shown.is_short = false;
        }
        for conflict in all {
            self.begin(conflict);
            if self.shown.lock().is_short {
                break;
            }
        }
    }
}

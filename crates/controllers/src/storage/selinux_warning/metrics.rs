//! The conflicts that there are, under the original's name: a series for each, in each direction. Decides nothing.

use std::collections::BTreeMap;

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

/// The series, and on how many volumes each conflict is.
#[derive(Debug)]
pub(super) struct Series {
    gauge: IntGaugeVec,
    volumes: Mutex<BTreeMap<Conflict, usize>>,
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
        Ok(Self { gauge, volumes: Mutex::default() })
    }

    /// A conflict has come up on a volume.
    pub(super) fn begin(&self, conflict: Conflict) {
        let mut volumes = self.volumes.lock();
        if let Some(number) = volumes.get_mut(&conflict) {
            *number += 1;
        } else if volumes.len() < MOST {
            self.gauge.with_label_values(&conflict.labels()).set(1);
            volumes.insert(conflict, 1);
        }
    }

    /// A conflict has ended on a volume. A conflict without a series changes nothing.
    pub(super) fn end(&self, conflict: &Conflict) {
        let mut volumes = self.volumes.lock();
        let Some(number) = volumes.get_mut(conflict) else { return };
        *number -= 1;
        if *number == 0 {
            volumes.remove(conflict);
            // It fails only if the series is not there, which is as well.
            drop(self.gauge.remove_label_values(&conflict.labels()));
        }
    }
}

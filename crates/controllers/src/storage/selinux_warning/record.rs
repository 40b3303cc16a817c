//! What was seen of pods' volumes, and so what was told of them. It is the memory of the room, and the source of its metric.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::Mutex;

use super::conflict::{Mounted, conflicts};
use super::metrics::{Conflict, Series};
use super::mounts::Mount;
use coxswain_machinery::framework::Memory;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Str, Uid};

/// What a look adds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Note {
    /// The pod has ended, or is gone.
    Forget,
    /// The pod of this UID mounts these volumes.
    Seen(Uid, Vec<Mount>),
}

/// What was seen of pods' volumes, by the volumes' unique names.
#[derive(Debug)]
pub(super) struct Record {
    held: Mutex<Held>,
    series: Series,
}

#[derive(Debug, Default)]
struct Held {
    volumes: HashMap<Str, Volume>,
    pods: HashMap<Key, SeenPod>,
}

/// A volume that pods mount.
#[derive(Debug, Default)]
struct Volume {
    /// The CSI driver that the first of them said.
    driver: Option<Str>,
    pods: BTreeMap<Key, Mounted>,
}

#[derive(Debug)]
struct SeenPod {
    uid: Uid,
    volumes: Vec<Str>,
}

impl Record {
    /// Nothing was seen yet.
    pub(super) fn new(series: Series) -> Self {
        Self { held: Mutex::default(), series }
    }

    /// How a pod was seen to mount a volume; `None` if it was not, or was another pod.
    pub(super) fn seen(&self, pod: &Key, uid: &Uid, volume: &Str) -> Option<Mounted> {
        let held = self.held.lock();
        held.pods.get(pod).filter(|seen| seen.uid == *uid)?;
        held.volumes.get(volume)?.pods.get(pod).cloned()
    }

    /// How other pods mount a volume, by name.
    pub(super) fn others(&self, pod: &Key, volume: &Str) -> Vec<(Key, Mounted)> {
        let held = self.held.lock();
        let all = held.volumes.get(volume).into_iter().flat_map(|volume| &volume.pods);
        all.filter(|(other, _)| *other != pod)
            .map(|(other, mounted)| (other.clone(), mounted.clone()))
            .collect()
    }

    /// The pods with volumes of a CSI driver.
    pub(super) fn with_driver(&self, driver: &str) -> Vec<Key> {
        let held = self.held.lock();
        let of_it = |volume: &&Volume| volume.driver.as_ref().is_some_and(|held| held == driver);
        let mut pods: Vec<Key> =
            held.volumes.values().filter(of_it).flat_map(|volume| volume.pods.keys().cloned()).collect();
        pods.sort_unstable();
        pods.dedup();
        pods
    }

    fn forget(&self, held: &mut Held, pod: &Key) {
        let Some(seen) = held.pods.remove(pod) else { return };
        for name in &seen.volumes {
            let Some(volume) = held.volumes.get_mut(name) else { continue };
            if let Some(mounted) = volume.pods.remove(pod) {
                let ended = between(pod, &mounted, &volume.pods);
                self.end(&held.volumes, &seen.volumes, &ended);
            }
            if held.volumes.get(name).is_some_and(|volume| volume.pods.is_empty()) {
                held.volumes.remove(name);
            }
        }
    }

    fn see(&self, held: &mut Held, pod: &Key, uid: &Uid, mount: Mount) {
        let Mount { unique, driver, mounted } = mount;
        let Held { volumes, pods } = held;
        let seen =
            pods.entry(pod.clone()).or_insert_with(|| SeenPod { uid: uid.clone(), volumes: Vec::new() });
        if !seen.volumes.contains(&unique) {
            seen.volumes.push(unique.clone());
        }
        let volume =
            volumes.entry(unique.clone()).or_insert_with(|| Volume { driver, pods: BTreeMap::new() });
        if volume.pods.get(pod) == Some(&mounted) {
            return;
        }
        if let Some(before) = volume.pods.remove(pod) {
            let ended = between(pod, &before, &volume.pods);
            self.end(volumes, &seen.volumes, &ended);
        }
        let Some(volume) = volumes.get_mut(&unique) else { return };
        for conflict in between(pod, &mounted, &volume.pods) {
            self.series.begin(conflict);
        }
        volume.pods.insert(pod.clone(), mounted);
    }

    /// Removes the series of conflicts of a pod that have ended on a volume, except those that are on another one of its volumes.
    fn end(&self, volumes: &HashMap<Str, Volume>, of_pod: &[Str], ended: &[Conflict]) {
        let lasts = |conflict: &Conflict| {
            // Linear: a pod has few volumes.
            of_pod.iter().any(|name| volumes.get(name).is_some_and(|volume| volume.shows(conflict)))
        };
        ended.iter().filter(|conflict| !lasts(conflict)).for_each(|conflict| self.series.end(conflict));
    }
}

impl Volume {
    /// Whether two pods are in this conflict on the volume.
    fn shows(&self, conflict: &Conflict) -> bool {
        let (Some(one), Some(other)) = (self.pods.get(&conflict.one.0), self.pods.get(&conflict.other.0))
        else {
            return false;
        };
        let property = conflict.property;
        let is_same = *property.of(one) == conflict.one.1 && *property.of(other) == conflict.other.1;
        is_same && conflicts(one, other).any(|found| found == property)
    }

    /// All conflicts on the volume.
    fn conflicts(&self) -> impl Iterator<Item = Conflict> {
        self.pods.iter().flat_map(|(pod, mounted)| {
            let later = self.pods.range::<Key, _>((Bound::Excluded(pod), Bound::Unbounded));
            between(pod, mounted, later)
        })
    }
}

/// The conflicts of a pod with others on a volume, in both directions.
fn between<'a>(
    pod: &Key,
    mounted: &Mounted,
    others: impl IntoIterator<Item = (&'a Key, &'a Mounted)>,
) -> Vec<Conflict> {
    let mut all = Vec::new();
    for (other, of_other) in others {
        for property in conflicts(mounted, of_other) {
            let [mine, theirs] = [mounted, of_other].map(|mounted| property.of(mounted).clone());
            let forth = Conflict { property, one: (pod.clone(), mine), other: (other.clone(), theirs) };
            all.push(forth.turned());
            all.push(forth);
        }
    }
    all
}

impl Memory<Note> for Record {
    fn commit(&self, pod: &Key, note: Note) {
        let held = &mut *self.held.lock();
        match note {
            Note::Forget => self.forget(held, pod),
            Note::Seen(uid, mounts) => {
                if held.pods.get(pod).is_some_and(|seen| seen.uid != uid) {
                    self.forget(held, pod);
                }
                for mount in mounts {
                    self.see(held, pod, &uid, mount);
                }
            }
        }
        self.series.fill(held.volumes.values().flat_map(Volume::conflicts));
    }
}

//! Volumes that no claim has, by class and access modes and in the order of their sizes: the search for a claim ends at the first one
//! that suits it.
//!
//! It follows the cache by a handler of its own, so it is as new as the cache. What is found in it is looked up again where it
//! matters: a volume may have been written a moment ago.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

use super::facts::{class_of_volume, size};
use super::matching::{AccessModes, Wish};
use coxswain_machinery::api::storage::PersistentVolume;
use coxswain_machinery::framework::KeyMap;
use coxswain_machinery::informer::{Delta, downcast};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FreeVolumes {
    classes: Mutex<BTreeMap<Str, Class>>,
    #[cfg(test)]
    touched: std::sync::atomic::AtomicUsize,
}

/// The volumes of one class, by access modes.
type Class = BTreeMap<AccessModes, BTreeMap<Rank, Arc<PersistentVolume>>>;

/// A volume's size in billionths, and its name.
type Rank = (i128, Str);

impl FreeVolumes {
    /// The handler by which it follows the cache. It calls no keys.
    pub(super) fn follow(self: &Arc<Self>) -> KeyMap {
        let free = Arc::clone(self);
        Arc::new(move |delta: Delta<'_>, _: &mut dyn FnMut(Key)| {
            if let (Some(old), _) = delta.typed::<PersistentVolume>() {
                free.remove(old);
            }
            let new = delta.new.cloned().and_then(downcast::<PersistentVolume>);
            if let Some(new) = new.filter(|new| new.spec.claim_ref.is_none()) {
                free.add(new);
            }
        })
    }

    fn add(&self, volume: Arc<PersistentVolume>) {
        let mut classes = self.classes.lock();
        let shelves = classes.entry(class_of_volume(&volume).clone()).or_default();
        shelves.entry(AccessModes::of(&volume)).or_default().insert(rank(&volume), volume);
    }

    fn remove(&self, volume: &PersistentVolume) {
        let (mut classes, class, modes) =
            (self.classes.lock(), class_of_volume(volume), AccessModes::of(volume));
        let Some(shelves) = classes.get_mut(class) else { return };
        if let Some(shelf) = shelves.get_mut(&modes) {
            shelf.remove(&rank(volume));
            if shelf.is_empty() {
                shelves.remove(&modes);
            }
        }
        if shelves.is_empty() {
            classes.remove(class);
        }
    }

    /// How many volumes of a class are free.
    pub(super) fn count(&self, class: &str) -> usize {
        self.classes.lock().get(class).map_or(0, |shelves| shelves.values().map(BTreeMap::len).sum())
    }

    /// The first volume that `confirm` confirms among those that a claim may wish for: of the fewest access modes, then the smallest, then the
    /// first by name. The lock is not held while a volume is confirmed.
    pub(super) fn first(
        &self,
        wish: &Wish<'_>,
        mut confirm: impl FnMut(Arc<PersistentVolume>) -> Option<Arc<PersistentVolume>>,
    ) -> Option<Arc<PersistentVolume>> {
        let mut after = None;
        while let Some((place, volume)) = self.next(wish, after.as_ref()) {
            if let Some(volume) = confirm(volume) {
                return Some(volume);
            }
            after = Some(place);
        }
        None
    }

    /// The next volume that suits by what nobody but its author writes.
    fn next(
        &self,
        wish: &Wish<'_>,
        after: Option<&(AccessModes, Rank)>,
    ) -> Option<((AccessModes, Rank), Arc<PersistentVolume>)> {
        let classes = self.classes.lock();
        let shelves = classes.get(wish.class())?;
        let from = after.map_or(Bound::Unbounded, |(modes, _)| Bound::Included(modes));
        for (modes, shelf) in shelves.range::<AccessModes, _>((from, Bound::Unbounded)) {
            if !modes.offer(wish.claim()) {
                continue;
            }
            let smallest = Bound::Included((wish.size().billionths(), Str::EMPTY));
            let from = match after {
                Some((last, rank)) if last == modes => Bound::Excluded(rank.clone()),
                _ => smallest,
            };
            for (rank, volume) in shelf.range((from, Bound::Unbounded)) {
                #[cfg(test)]
                self.touched.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if wish.may_be(volume) {
                    return Some(((modes.clone(), rank.clone()), Arc::clone(volume)));
                }
            }
        }
        None
    }

    /// How many volumes were looked at since the last call.
    #[cfg(test)]
    pub(super) fn touched(&self) -> usize {
        self.touched.swap(0, std::sync::atomic::Ordering::Relaxed)
    }
}

fn rank(volume: &PersistentVolume) -> Rank {
    (size(volume).billionths(), volume.metadata.name.clone())
}

//! What a controller watches: the only way to a cache.
//!
//! [`Build::watch`](super::Build::watch) gives a [`Watch`]: the lister by which a room reads the kind, and the wake-ups by which
//! its changes queue keys. There is no other way to a lister, and a loop's expectations cover every cache that its controller
//! watches: so no loop can read a kind and then plan again before that cache has seen what the loop wrote. Kinds that come and
//! go ([`DynamicWatches`](super::DynamicWatches)) are the exception; who reads those writes none of them from what it read.

use std::sync::Arc;
use std::time::Duration;

use crate::api::meta::ObjectMeta;
use crate::api::{Index, Kind, Object};
use crate::informer::{Deliveries, Delta, Dependents, Indexed, Labeled, Lister, Store};
use crate::model::Key;
use crate::model::selects::{Selects, filed_under, looked_up_under};

/// The caches of a controller under construction, see [`Build::watch`](super::Build::watch).
#[derive(Clone, Copy)]
pub struct CacheSource<'a>(&'a OpenCache<'a>);

/// Gives the store of a kind, of the objects whose fields match or of all.
type OpenCache<'a> = dyn Fn(&'static Kind, Option<&'static str>) -> Arc<Store> + 'a;

impl<'a> CacheSource<'a> {
    /// The caches that `open` gives.
    pub fn new(open: &'a OpenCache<'a>) -> Self {
        Self(open)
    }

    pub(super) fn watch<T: Object>(
        self,
        kind: &'static Kind,
        field_selector: Option<&'static str>,
    ) -> Watch<T> {
        Watch { kind, field_selector, lister: Lister::new((self.0)(kind, field_selector)) }
    }
}

/// A kind that a controller watches for as long as it lives, as objects of type `T`.
pub struct Watch<T> {
    kind: &'static Kind,
    field_selector: Option<&'static str>,
    lister: Lister<T>,
}

impl<T: Object> Watch<T> {
    /// Reads the cache.
    pub fn lister(&self) -> Lister<T> {
        self.lister.clone()
    }

    /// Files the objects under an index. Its table is there, and is paid for, as long as somebody uses it.
    pub fn index(&self, index: &'static Index) -> Indexed<T> {
        Indexed::new(self.lister.store(), index)
    }

    /// Files the objects by the controllers that they name. The table is there, and is paid for, as long as somebody uses it.
    pub fn dependents(&self) -> Dependents<T> {
        Dependents::new(self.lister.store())
    }

    /// Files the objects by their labels. The table is there, and is paid for, as long as somebody uses it.
    pub fn labeled(&self) -> Labeled<T> {
        Labeled::new(self.lister.store())
    }

    /// Tells of everything that is delivered, see [`Deliveries`].
    pub fn tells(&self, deliveries: &Arc<Deliveries>) {
        self.lister.store().tell(deliveries);
    }

    /// Queues the keys that a change concerns, in the loop that is given this. [`wake`](super::wake) has the usual ones.
    pub fn wakes(&self, keys: KeyMap) -> WakeUp {
        WakeUp { kind: self.kind, field_selector: self.field_selector, keys, debounce: Debounce::None }
    }
}

impl<T: Selects> Watch<T> {
    /// Files the objects by what they select.
    pub fn selecting(&self) -> Selecting<T> {
        Selecting::new(self.lister.store())
    }
}

/// Objects that select others by labels, filed so that those that select one are found without looking at all.
pub struct Selecting<T>(Indexed<T>);

impl<T: Selects> Selecting<T> {
    const INDEX: Index = Index { name: "selector", keys: filed_under::<T> };

    /// The objects of `store`.
    pub fn new(store: &Arc<Store>) -> Self {
        Self(Indexed::new(store, &Self::INDEX))
    }

    /// Hands over the key of each that selects an object with this metadata.
    pub fn keys(&self, meta: &ObjectMeta, add: &mut dyn FnMut(Key)) {
        for value in looked_up_under(meta) {
            let filed = self.0.filed(&value);
            for found in filed.iter().filter(|found| found.selects(&meta.labels)) {
                add(Key::of(found.meta()));
            }
        }
    }
}

/// Says which keys a change concerns, by handing each to its second argument. It must not block.
pub type KeyMap = Arc<dyn Fn(Delta<'_>, &mut dyn FnMut(Key)) + Send + Sync>;

/// A watch whose changes queue keys of a loop.
pub struct WakeUp {
    /// What is watched.
    pub kind: &'static Kind,
    /// Restricts it to the objects whose fields match; `None` for all.
    pub field_selector: Option<&'static str>,
    /// Says which keys a change concerns.
    pub keys: KeyMap,
    /// How long changes are debounced.
    pub debounce: Debounce,
}

impl WakeUp {
    /// The same, with changes debounced for so long.
    #[must_use]
    pub fn debounced(self, duration: Duration) -> Self {
        Self { debounce: Debounce::For(duration), ..self }
    }

    /// The same, with each change debounced for as long as `duration` says.
    #[must_use]
    pub fn debounced_by(self, duration: fn(&Delta<'_>) -> Duration) -> Self {
        Self { debounce: Debounce::By(duration), ..self }
    }
}

/// How long a change is debounced: further changes of its keys are collected meanwhile. A key is taken up when the first of
/// its changes is that old, or at once when another change asks for it.
#[derive(Clone, Copy, Debug)]
pub enum Debounce {
    /// Not at all.
    None,
    /// This long.
    For(Duration),
    /// This long, by what has changed.
    By(fn(&Delta<'_>) -> Duration),
}

impl Debounce {
    /// How long this change is debounced.
    pub fn of(self, delta: &Delta<'_>) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::For(duration) => duration,
            Self::By(duration) => duration(delta),
        }
    }
}

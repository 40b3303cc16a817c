//! Owners that are known not to exist, which spares a live read for each of a lost owner's dependents; and APIs that nobody serves.
//!
//! A UID is never given out twice, so what is known here stays true; the bound only costs another live read. What was
//! found absent is the object *at the coordinates of a reference*: the UID may well exist elsewhere, and references with
//! its true coordinates are not concerned.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;

use super::super::Uid;
use super::node::{Coordinates, Edge, Node};
use coxswain_machinery::bounds::memory_size;
use coxswain_machinery::model::clock::Stopwatch;
use coxswain_machinery::random::HashSeed;
use coxswain_machinery::wire::Str;

/// How many absent owners are remembered.
const REMEMBERED: usize = 1024;

/// Minimum time without any API server that serves a resource before its objects count as deleted. A reinstalled API or an API server
/// that restarts with other flags is absent for less.
pub(super) const FOR_GOOD: Duration = Duration::from_mins(10);
/// Longest time between two reads of which both count. Owners look for their dependents every 30 seconds, so in a longer time without
/// a read the API may have come and gone.
const LONGEST_BREAK: Duration = Duration::from_mins(2);

/// The absence of an API that reads, or discovery, have found.
#[derive(Debug)]
pub(super) struct AbsentApi {
    since: Stopwatch,
    last_read: Stopwatch,
}

impl AbsentApi {
    pub(super) fn start() -> Self {
        Self { since: Stopwatch::start(), last_read: Stopwatch::start() }
    }

    /// Notes another read, or another answer of discovery, that did not find the API, and returns whether it is gone for good.
    pub(super) fn is_for_good(&mut self) -> bool {
        if self.last_read.elapsed() > LONGEST_BREAK {
            *self = Self::start();
        }
        self.last_read = Stopwatch::start();
        self.since.elapsed() >= FOR_GOOD
    }
}

/// What a reference points at: coordinates, in a namespace (empty for a cluster-scoped kind).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// UID in the reference.
    pub uid: Uid,
    /// Kind and name in the reference.
    pub coordinates: Arc<Coordinates>,
    /// Namespace in which the reference is resolved; empty when the owner's kind is cluster-scoped.
    pub namespace: Str,
}

impl Place {
    /// Where the dependent's reference to the owner points.
    pub(super) fn of(owner: &Node, edge: &Edge, dependent: &Node) -> Self {
        Self {
            uid: owner.uid.clone(),
            coordinates: Arc::clone(&edge.coordinates),
            namespace: dependent.namespace.clone(),
        }
    }
}

/// The absent owners last learned of or asked for.
pub(super) struct Absence(LruCache<Place, (), HashSeed>);

impl Default for Absence {
    fn default() -> Self {
        let size = NonZeroUsize::MIN.saturating_add(memory_size(REMEMBERED) - 1);
        Self(LruCache::with_hasher(size, HashSeed::default()))
    }
}

impl Absence {
    pub(super) fn learn(&mut self, place: Place) {
        self.0.put(place, ());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn unlearn(&mut self, place: &Place) {
        self.0.pop(place);
    }

    /// Whether a dependent in `place.namespace` refers to nobody, be the owner's kind namespaced or cluster-scoped.
    pub(super) fn knows(&self, place: &Place) -> bool {
        self.0.contains(place) || {
            let namespace = Str::EMPTY;
            self.0.contains(&Place {
                uid: place.uid.clone(),
                coordinates: Arc::clone(&place.coordinates),
                namespace,
            })
        }
    }
}

impl fmt::Debug for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} absent owners", self.0.len())
    }
}

//! Searches for owners to which references point at more places than one reconcile reads.
//!
//! Users choose the references, so one object can make a search as long as they like. Each reconcile of a search reads a few objects and
//! requeues its key, so that other keys are reconciled in between. The graph holds the findings of the earlier reconciles. The dependents are
//! affected when the search ends, as after a search in one reconcile: each attempt to delete a dependent reads all its owners that
//! are not known to be absent.
//!
//! A search has the places to which references pointed when it began, so it ends however often users change references. Later references
//! mark the search as outdated, and another search follows. A search holds the coordinates of references weakly and forgets those that are
//! gone, so its size is bounded by the references that the graph holds.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::super::Uid;
use super::absence::Place;
use super::node::{Coordinates, Node, NodeId};
use super::{AffectedObjects, Graph};
use coxswain_machinery::api::Kind;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::Str;

/// Maximum number of objects that one reconcile of a search reads. Equals the number of live reads of a reconcile that run in parallel.
pub const READS_PER_TURN: usize = 8;
/// Minimum number of references that are removed between two scans for places without references.
const MIN_LOSSES: usize = 8;
/// Maximum length in bytes of the reason that a search holds: it contains text of users.
const LONGEST_REASON: usize = 512;

/// An object to read, and the places to which its read is the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerTarget {
    /// Kind of the object.
    pub kind: &'static Kind,
    /// Namespace and name of the object.
    pub key: Key,
    /// Places of references, at least one.
    pub places: Vec<Place>,
}

/// Results of the live reads of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerFindings {
    /// Places without the owner.
    pub absent: Vec<Place>,
    /// Whether the owner was found.
    pub there: bool,
    /// The reason why a place could not be read.
    pub unknown: Option<String>,
}

impl OwnerFindings {
    /// Adds later results. The first reason stays.
    pub fn add(&mut self, later: Self) {
        self.absent.extend(later.absent);
        self.there |= later.there;
        self.unknown = self.unknown.take().or(later.unknown);
    }
}

/// The result of one reconcile of a search, after which another reconcile follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchTurn {
    /// Places to which references pointed, if the search begins with this reconcile.
    pub listed: Option<Vec<Place>>,
    /// ID of the last target that the reconcile took from the search.
    pub through: u64,
    /// Objects that the reconcile took or found, and that are still to be read.
    pub left: Vec<OwnerTarget>,
    /// Findings of this reconcile.
    pub findings: OwnerFindings,
}

/// A place in a search. The edges of the graph own the coordinates.
#[derive(Debug)]
struct HeldPlace {
    coordinates: Weak<Coordinates>,
    namespace: Str,
}

impl HeldPlace {
    fn of(place: &Place) -> Self {
        Self { coordinates: Arc::downgrade(&place.coordinates), namespace: place.namespace.clone() }
    }

    fn is_referenced(&self) -> bool {
        self.coordinates.strong_count() > 0
    }

    fn place(&self, uid: &Uid) -> Option<Place> {
        let coordinates = self.coordinates.upgrade()?;
        Some(Place { uid: uid.clone(), coordinates, namespace: self.namespace.clone() })
    }
}

/// An object that is still to be read.
#[derive(Debug)]
struct HeldTarget {
    /// Ascending in the order of the search.
    id: u64,
    kind: &'static Kind,
    places: Vec<HeldPlace>,
}

impl HeldTarget {
    fn target(&self, uid: &Uid) -> Option<OwnerTarget> {
        let places: Vec<Place> = self.places.iter().filter_map(|held| held.place(uid)).collect();
        let first = places.first()?;
        let key = Key::new(first.namespace.clone(), first.coordinates.name.clone());
        Some(OwnerTarget { kind: self.kind, key, places })
    }
}

/// A search between two of its reconciles.
#[derive(Debug, Default)]
pub struct OwnerSearch {
    targets: VecDeque<HeldTarget>,
    last_id: u64,
    absent: Vec<HeldPlace>,
    there: bool,
    unknown: Option<String>,
    is_outdated: bool,
    /// Number of places in `targets` and `absent`.
    size: usize,
    /// Number of references to the owner that were removed since the last scan for places without references.
    losses: usize,
}

impl OwnerSearch {
    /// Returns the targets of the next reconcile, and the ID of the last target that it takes. Places to which no reference points any
    /// longer are skipped.
    pub fn next_targets(&self, uid: &Uid) -> (Vec<OwnerTarget>, u64) {
        let (mut targets, mut through) = (Vec::new(), 0);
        for held in &self.targets {
            if targets.len() == READS_PER_TURN {
                break;
            }
            through = held.id;
            targets.extend(held.target(uid));
        }
        (targets, through)
    }

    /// Whether no target follows the target with this ID.
    pub fn ends_with(&self, through: u64) -> bool {
        self.targets.back().is_none_or(|last| last.id <= through)
    }

    /// Returns the findings of the earlier reconciles at places to which references still point.
    pub fn findings(&self, uid: &Uid) -> OwnerFindings {
        OwnerFindings {
            absent: self.absent.iter().filter_map(|held| held.place(uid)).collect(),
            there: self.there,
            unknown: self.unknown.clone(),
        }
    }

    /// Whether references were added after the search had begun, so that another search must follow.
    pub fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// Returns the number of places that the search holds.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.size
    }

    fn add(&mut self, turn: SearchTurn) {
        let SearchTurn { through, left, findings, .. } = turn;
        while let Some(taken) = self.targets.pop_front_if(|target| target.id <= through) {
            self.size = self.size.saturating_sub(taken.places.len());
        }
        for OwnerTarget { kind, places, .. } in left {
            self.last_id += 1;
            self.size += places.len();
            let places = places.iter().map(HeldPlace::of).collect();
            self.targets.push_back(HeldTarget { id: self.last_id, kind, places });
        }
        self.size += findings.absent.len();
        self.absent.extend(findings.absent.iter().map(HeldPlace::of));
        self.there |= findings.there;
        if self.unknown.is_none() {
            self.unknown = findings.unknown.map(shortened);
        }
    }

    /// Counts a reference to the owner that was removed. Scans for places without references are so rare that their total time is
    /// proportional to the number of removed references.
    pub(super) fn count_loss(&mut self) {
        self.losses += 1;
        if self.losses > MIN_LOSSES.max(self.size / 2) {
            self.forget_unreferenced();
        }
    }

    fn forget_unreferenced(&mut self) {
        for target in &mut self.targets {
            target.places.retain(HeldPlace::is_referenced);
        }
        self.targets.retain(|target| !target.places.is_empty());
        self.targets.shrink_to_fit();
        self.absent.retain(HeldPlace::is_referenced);
        self.absent.shrink_to_fit();
        self.size = self.absent.len() + self.targets.iter().map(|target| target.places.len()).sum::<usize>();
        self.losses = 0;
    }
}

fn shortened(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
    reason.shrink_to_fit();
    reason
}

impl Graph {
    /// Returns the search for a UID that no observed object has, if one has begun and objects refer to the UID.
    pub fn search(&self, uid: &Uid) -> Option<&OwnerSearch> {
        let search = self.searches.get(uid)?;
        let node = self.nodes.find(uid).and_then(|id| self.nodes.get(id))?;
        (node.is_virtual() && !node.dependents().is_empty()).then_some(search)
    }

    /// Records a reconcile of a search, unless an object of the UID was observed since the search began.
    pub fn record_turn(&mut self, uid: &Uid, turn: SearchTurn) {
        let node = self.nodes.find(uid).and_then(|id| self.nodes.get(id));
        if let Some(listed) = &turn.listed
            && let Some(node) = node.filter(|node| node.is_virtual())
        {
            // A reference that was added after the observation has queued the key, but the next reconcile lists no places.
            let is_outdated = self.has_places_beside(node, listed);
            self.searches.insert(uid.clone(), OwnerSearch { is_outdated, ..OwnerSearch::default() });
        }
        if let Some(search) = self.searches.get_mut(uid) {
            search.add(turn);
        }
    }

    /// Whether a reference to the owner points to a place that is not in this list.
    fn has_places_beside(&self, owner: &Node, listed: &[Place]) -> bool {
        let known: HashSet<(*const Coordinates, &Str)> =
            listed.iter().map(|place| (Arc::as_ptr(&place.coordinates), &place.namespace)).collect();
        let is_new = |place: &Place| !known.contains(&(Arc::as_ptr(&place.coordinates), &place.namespace));
        self.places(owner).iter().any(is_new)
    }

    /// Marks the searches for the owners of a node as outdated: its references are new.
    pub(super) fn outdate_searches(&mut self, id: NodeId) {
        if self.searches.is_empty() {
            return;
        }
        let edges = self.nodes.get(id).into_iter().flat_map(|node| &node.owners);
        for owner in edges.filter_map(|edge| self.nodes.get(edge.owner)) {
            if let Some(search) = self.searches.get_mut(&owner.uid) {
                search.is_outdated = true;
            }
        }
    }

    /// Forgets the search for a UID.
    pub fn end_search(&mut self, uid: &Uid) {
        self.searches.remove(uid);
    }

    /// Live reads found nothing at these places, or objects of other UIDs: references to them mean nobody. Takes time in proportion to the
    /// places and to the dependents of their owners.
    pub fn record_absences(&mut self, places: Vec<Place>, affected: &mut AffectedObjects) {
        let mut by_owner: HashMap<Uid, HashSet<(Arc<Coordinates>, Str)>> = HashMap::default();
        for Place { uid, coordinates, namespace } in &places {
            let of_owner = by_owner.entry(uid.clone()).or_default();
            of_owner.insert((Arc::clone(coordinates), namespace.clone()));
        }
        for place in places {
            if let Some(absent) = by_owner.remove(&place.uid)
                && let Some(id) = self.nodes.find(&place.uid)
            {
                self.tell_dependents(id, affected, |dependent, edge| {
                    // The place of a cluster-scoped owner has no namespace.
                    let is_absent =
                        |namespace: Str| absent.contains(&(Arc::clone(&edge.coordinates), namespace));
                    is_absent(Str::EMPTY) || is_absent(dependent.namespace.clone())
                });
            }
            self.absence.learn(place);
        }
    }
}

//! Searches for owners to which references point at more places than one reconcile reads.
//!
//! Users choose the references, so one object can make a search as long as they like. Each reconcile of a search reads a few objects and
//! requeues its key, so that other keys are reconciled in between. The graph holds the findings of the earlier reconciles. The dependents are
//! affected when the search ends, as after a search in one reconcile: each attempt to delete a dependent reads all its owners that
//! are not known to be absent.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::Uid;
use super::absence::Place;
use super::node::{Coordinates, Node};
use super::{AffectedObjects, Graph};
use coxswain_machinery::api::Kind;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::Str;

/// Maximum number of objects that one reconcile of a search reads. Equals the number of live reads of a reconcile that run in parallel.
pub const READS_PER_TURN: usize = 8;

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
    /// Whether the search begins with this reconcile.
    pub is_first: bool,
    /// Number of targets that the reconcile took from the search.
    pub taken: usize,
    /// Places that the search did not know.
    pub listed: Vec<Place>,
    /// Objects that are still to be read, in addition to those of the search.
    pub left: Vec<OwnerTarget>,
    /// Findings of this reconcile.
    pub findings: OwnerFindings,
}

/// A search between two of its reconciles.
#[derive(Debug, Default)]
pub struct OwnerSearch {
    known: HashSet<Place>,
    targets: VecDeque<OwnerTarget>,
    findings: OwnerFindings,
}

impl OwnerSearch {
    /// Whether the next reconcile cannot be the last one.
    pub fn is_long(&self) -> bool {
        self.targets.len() > READS_PER_TURN
    }

    /// Returns the targets of the next reconcile.
    pub fn next_targets(&self) -> impl Iterator<Item = &OwnerTarget> {
        self.targets.iter().take(READS_PER_TURN)
    }

    /// Whether a place is part of the search.
    pub fn knows(&self, place: &Place) -> bool {
        self.known.contains(place)
    }

    /// Returns the findings of the earlier reconciles.
    pub fn findings(&self) -> &OwnerFindings {
        &self.findings
    }

    fn add(&mut self, turn: SearchTurn) {
        self.targets.drain(..turn.taken.min(self.targets.len()));
        self.targets.extend(turn.left);
        self.known.extend(turn.listed);
        self.findings.add(turn.findings);
    }
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
        if turn.is_first && node.is_some_and(Node::is_virtual) {
            self.searches.insert(uid.clone(), OwnerSearch::default());
        }
        if let Some(search) = self.searches.get_mut(uid) {
            search.add(turn);
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

//! What the graph answers when an object is looked at.

use std::sync::Arc;

use super::absence::Place;
use super::node::{Node, NodeId, State};
use super::{Coordinates, Graph};
use crate::api::garbage_collector::Uid;
use coxswain_machinery::api::Kind;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::Str;

/// An object, as requests name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectIdentity {
    /// Its kind.
    pub kind: &'static Kind,
    /// Its namespace and name.
    pub key: Key,
    /// Its UID.
    pub uid: Uid,
}

/// What a UID stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeFacts {
    /// Nothing that the graph knows of.
    Unknown,
    /// No object has been observed that has it; these are the places where references to it point.
    Virtual(Vec<Place>),
    /// An object.
    Object(ObjectFacts),
}

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    /// Which object it is.
    pub identity: ObjectIdentity,
    /// The resource version last observed, to which all of this belongs; 0 if it was not a number.
    pub version: u64,
    /// How far its deletion has come.
    pub state: State,
    /// Whether there is nothing to find out about its owners: each has been observed where the object's reference
    /// points, and does not wait for its dependents to go. So it is for an object without owners.
    pub settled: bool,
    /// Whether other objects refer to it as an owner.
    pub has_dependents: bool,
    /// How many references of other objects block its foreground deletion.
    pub blocking: u32,
    /// It and its owners wait for each other: it blocks one that is deleted in the foreground, which blocks another …
    /// which blocks it.
    pub deadlocked: bool,
}

/// A dependent as the graph knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldDependent {
    /// The dependent.
    pub identity: ObjectIdentity,
    /// The positions of the references to the owner among its owner references, ascending.
    pub positions: Vec<usize>,
    /// Whether no watch shows it any longer.
    pub is_unseen: bool,
}

impl Graph {
    /// What is known of a UID.
    pub fn subject(&self, uid: &Uid) -> NodeFacts {
        let Some(id) = self.nodes.find(uid) else { return NodeFacts::Unknown };
        let Some(node) = self.nodes.get(id) else { return NodeFacts::Unknown };
        match identity(node).filter(|_| !node.is_unseen) {
            None if node.is_unseen && node.dependents().is_empty() => NodeFacts::Unknown,
            None => NodeFacts::Virtual(self.places(node)),
            Some(identity) => NodeFacts::Object(ObjectFacts {
                identity,
                version: node.version,
                state: node.state,
                settled: node.owners.iter().all(|edge| {
                    let owner = self.nodes.get(edge.owner);
                    owner.is_some_and(|owner| {
                        owner.is_at(&edge.coordinates, &node.namespace) && !owner.state.foreground_deleting
                    })
                }),
                has_dependents: node.dependents().iter().any(|held| held.node != id),
                blocking: node.blocking(),
                deadlocked: node.state.foreground_deleting
                    && node.blocking() > 0
                    && self.is_deadlocked(id, node),
            }),
        }
    }

    /// Where the references of an observed object point, in their order, as of the version last observed; empty unless
    /// that is known of each.
    pub fn owners(&self, uid: &Uid) -> Vec<Place> {
        let node = self.nodes.find(uid).and_then(|id| self.nodes.get(id));
        let Some(node) = node else { return Vec::new() };
        let places = node.owners.iter().map(|edge| Some(Place::of(self.nodes.get(edge.owner)?, edge, node)));
        places.collect::<Option<_>>().unwrap_or_default()
    }

    /// The observed dependents of a UID, each once; unseen ones by the row by which they were observed.
    pub fn dependents(&self, uid: &Uid) -> Vec<HeldDependent> {
        let Some(id) = self.nodes.find(uid) else { return Vec::new() };
        let Some(owner) = self.nodes.get(id) else { return Vec::new() };
        let mut edges: Vec<_> = owner.dependents().iter().map(|held| (held.node, held.edge)).collect();
        edges.sort_unstable();
        let mut all: Vec<HeldDependent> = Vec::new();
        for group in edges.chunk_by(|one, other| one.0 == other.0) {
            let node = group.first().filter(|first| first.0 != id).and_then(|first| self.nodes.get(first.0));
            if let Some((node, identity)) = node.and_then(|node| Some((node, identity(node)?))) {
                let positions = group.iter().map(|(_, edge)| *edge as usize).collect();
                all.push(HeldDependent { identity, positions, is_unseen: node.is_unseen });
            }
        }
        all
    }

    /// Returns the places of references to this owner. Equal places are in the list once for each copy of their coordinates.
    pub(super) fn places(&self, owner: &Node) -> Vec<Place> {
        // By address: a search forgets coordinates with the last edge that has them, so each must be in the list.
        let mut seen: HashSet<(*const Coordinates, &Str)> = HashSet::default();
        let mut places = Vec::new();
        for held in owner.dependents() {
            let Some(dependent) = self.nodes.get(held.node) else { continue };
            let Some(edge) = dependent.owners.get(held.edge as usize) else { continue };
            if seen.insert((Arc::as_ptr(&edge.coordinates), &dependent.namespace)) {
                places.push(Place::of(owner, edge, dependent));
            }
        }
        places
    }

    /// Looks upwards: owners are few, dependents may be many.
    fn is_deadlocked(&self, id: NodeId, node: &Node) -> bool {
        let waiting = |node: &Node| {
            let blocked = node.owners.iter().filter(|edge| edge.counts).map(|edge| edge.owner);
            let waits =
                |owner: &NodeId| self.nodes.get(*owner).is_some_and(|owner| owner.state.foreground_deleting);
            blocked.filter(waits).collect::<Vec<_>>()
        };
        let mut seen = HashSet::default();
        let mut next: Vec<NodeId> = waiting(node).into_iter().collect();
        while let Some(owner) = next.pop() {
            if owner == id {
                return true;
            }
            if seen.insert(owner)
                && let Some(node) = self.nodes.get(owner)
            {
                next.extend(waiting(node));
            }
        }
        false
    }
}

pub(super) fn identity(node: &Node) -> Option<ObjectIdentity> {
    Some(ObjectIdentity {
        kind: node.row?,
        key: Key::new(node.namespace.clone(), node.name.clone()),
        uid: node.uid.clone(),
    })
}

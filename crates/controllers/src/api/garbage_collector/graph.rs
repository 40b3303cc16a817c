//! The graph of owners: every object by UID, who owns it, whom it owns, and how far its deletion has come.
//!
//! It is fed with what watches tell and with what live reads found absent, in any order, and says which objects each
//! change makes worth looking at. It is a hint, never a proof: whoever acts on it reads the objects concerned live, or has
//! the API server act on the very version that was observed.
//! It does no I/O, knows no clock, and decides nothing.
//!
//! A reference names its owner by UID *and* by kind, name and (implied) namespace. An object that has the UID but not
//! these is not the owner; a UID that no observed object has is a *virtual* node, which stands for whatever the
//! references to it turn out to mean.

mod absence;
mod dot;
mod facts;
mod hidden;
mod node;
mod search;
mod unseen;

use std::sync::Arc;

pub use absence::Place;
pub use facts::{HeldDependent, NodeFacts, ObjectFacts, ObjectIdentity};
pub use node::{Coordinates, State};
pub use search::{OwnerFindings, OwnerSearch, OwnerTarget, READS_PER_TURN, SearchTurn};
pub use unseen::Blocker;

use self::absence::Absence;
use self::hidden::Unseen;
use self::node::{Dependent, Edge, Node, NodeId, Nodes};
use super::Uid;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ObjectMeta, OwnerReference};
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::Str;

/// What a change makes worth looking at. UIDs may be there more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffectedObjects {
    /// Objects that may have to go, or may be done with waiting for their dependents, and UIDs that may be nobody's.
    pub delete: Vec<Uid>,
    /// Objects being deleted whose dependents are to be kept.
    pub orphan: Vec<Uid>,
}

/// How an object went out of sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// A watch said that it was deleted: it is gone for good.
    Deleted,
    /// It was missing from a list, or its kind is no longer served. It is probably gone.
    Missed,
}

/// How much a graph holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphStats {
    /// Nodes, virtual ones included.
    pub nodes: usize,
    /// Virtual nodes.
    pub virtual_nodes: usize,
    /// Owner references.
    pub edges: usize,
}

/// The owners and dependents of all observed objects.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: Nodes,
    absence: Absence,
    unseen: Unseen,
    /// Searches for virtual nodes that take several reconciles, by UID. Each ends with its node, or when the node becomes an object.
    searches: HashMap<Uid, OwnerSearch>,
}

impl State {
    /// What metadata says. With both finalizers dependents are kept first: that can't be made up for.
    pub fn of(meta: &ObjectMeta) -> Self {
        let find = |finalizer: &str| meta.finalizers.iter().position(|held| held == finalizer);
        let deleting = meta.is_deleting();
        let (orphan, foreground) = (find(ORPHAN_FINALIZER).is_some(), find(FOREGROUND_FINALIZER));
        Self {
            deleting,
            foreground_deleting: deleting && foreground.is_some() && !orphan,
            orphan_deleting: deleting && orphan,
            cascades: orphan || foreground.is_some(),
            foreground_at: foreground.and_then(|at| u8::try_from(at).ok()),
        }
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of nodes, virtual ones included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing has been observed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much it holds; counts all nodes.
    pub fn stats(&self) -> GraphStats {
        let nodes = self.nodes.iter().map(|(_, node)| node);
        nodes.fold(GraphStats::default(), |sum, node| GraphStats {
            nodes: sum.nodes + 1,
            virtual_nodes: sum.virtual_nodes + usize::from(node.is_virtual()),
            edges: sum.edges + node.owners.len(),
        })
    }

    /// An object was seen: new, changed, or the same as before. What is older than what is known is ignored.
    pub fn observe(&mut self, kind: &'static Kind, meta: &ObjectMeta, affected: &mut AffectedObjects) {
        let version = meta.version().unwrap_or(0);
        let id = self.find_or_insert(&meta.uid);
        let Some(node) = self.nodes.get_mut(id) else { return };
        let (appeared, another) = (node.is_virtual(), node.kind() != Some(kind));
        if !appeared && version != 0 && version <= node.version {
            return;
        }
        let was_unseen = std::mem::take(&mut node.is_unseen);
        node.version = version;
        let row = node.row.replace(kind);
        let before = std::mem::replace(&mut node.state, State::of(meta));
        if appeared {
            node.namespace = meta.namespace.clone();
            node.name = meta.name.clone();
        }
        if was_unseen {
            self.unseen.remove(id, row);
            self.unseen.found(kind);
        }
        if another {
            self.searches.remove(&meta.uid);
            self.recount(id);
            self.appeared(id, affected);
        }
        self.relink(id, &meta.owner_references, was_unseen, affected);
        self.tell_transitions(id, before, affected);
    }

    /// The next version of an object that is seen counts, also if it is older than the known one: versions have gone back.
    pub fn forget_version(&mut self, uid: &Uid) {
        if let Some(node) = self.nodes.find(uid).and_then(|id| self.nodes.get_mut(id)) {
            node.version = 0;
        }
    }

    /// An object of `kind` is gone. Told of another kind's object or of an unknown one, it does nothing.
    pub fn remove(
        &mut self,
        kind: &'static Kind,
        uid: &Uid,
        removal: Removal,
        affected: &mut AffectedObjects,
    ) {
        let Some(id) = self.nodes.find(uid) else { return };
        if self.nodes.get(id).is_some_and(|node| node.kind() == Some(kind)) {
            self.take_out(id, removal, affected);
        }
    }

    fn take_out(&mut self, id: NodeId, removal: Removal, affected: &mut AffectedObjects) {
        let place = self.place_of(id);
        let lost = self.unlink(id);
        self.tell_owners(&lost, affected);
        self.drop_unreferenced(lost.into_vec());
        let Some(node) = self.nodes.get_mut(id) else { return };
        if std::mem::take(&mut node.is_unseen) {
            self.unseen.remove(id, node.row);
        }
        if node.dependents().is_empty() {
            self.nodes.remove(id);
            self.searches.remove(&place.uid);
            return;
        }
        node.row = None;
        node.version = 0;
        node.state = State::default();
        node.namespace = Str::EMPTY;
        node.name = Str::EMPTY;
        self.recount(id);
        // Dependents that were told of its absence while it was in sight yet took it for a live owner.
        if removal == Removal::Deleted || self.absence.knows(&place) {
            self.absence.learn(place);
            self.tell_dependents(id, affected, |_, _| true);
        } else {
            affected.delete.push(place.uid);
        }
    }

    /// An object of `kind` went out of sight, and this is the last that is known of it. A watch that tells of a deletion
    /// tells the version at which it took place, which is newer than what was known; a list just lacks the object.
    pub fn gone(&mut self, kind: &'static Kind, last: &ObjectMeta, affected: &mut AffectedObjects) {
        let known =
            self.nodes.find(&last.uid).and_then(|id| self.nodes.get(id)).map_or(0, |node| node.version);
        let watched = known != 0 && last.version().is_some_and(|version| version > known);
        self.remove(kind, &last.uid, if watched { Removal::Deleted } else { Removal::Missed }, affected);
    }

    /// These are all objects of `kind` that there are now, as a list gave them.
    pub fn replace<'a>(
        &mut self,
        kind: &'static Kind,
        objects: impl IntoIterator<Item = &'a ObjectMeta>,
        affected: &mut AffectedObjects,
    ) {
        let mut present = HashSet::default();
        for meta in objects {
            present.insert(meta.uid.clone());
            self.observe(kind, meta, affected);
        }
        self.remove_all(kind, |uid| !present.contains(uid), affected);
        self.shown(kind, affected);
    }

    /// A live read found nothing at `place`, or an object of another UID: references to it mean nobody.
    pub fn absent(&mut self, place: Place, affected: &mut AffectedObjects) {
        self.record_absences(vec![place], affected);
    }

    /// Whether it is known that a reference with these coordinates, from an object in `place.namespace`, means nobody.
    pub fn is_absent(&self, place: &Place) -> bool {
        self.absence.knows(place)
    }

    /// Whether the UID in a reference from an object in `place.namespace` is known to be that of an object in another
    /// namespace, which can't be its owner.
    pub fn is_elsewhere(&self, place: &Place) -> bool {
        let node = self.nodes.find(&place.uid).and_then(|id| self.nodes.get(id));
        node.is_some_and(|node| {
            !node.is_virtual() && !node.namespace.is_empty() && node.namespace != place.namespace
        })
    }

    /// Whether an object refers to this UID as to an object of `kind`, and no watch shows one.
    pub fn is_missing(&self, uid: &Uid, kind: &Kind) -> bool {
        let Some(node) = self.nodes.find(uid).and_then(|id| self.nodes.get(id)) else { return false };
        node.is_virtual()
            && node.dependents().iter().any(|held| {
                let dependent = self.nodes.get(held.node);
                let edge = dependent.and_then(|dependent| dependent.owners.get(held.edge as usize));
                edge.is_some_and(|edge| edge.coordinates.are_of_kind(kind))
            })
    }

    fn find_or_insert(&mut self, uid: &Uid) -> NodeId {
        self.nodes.find(uid).unwrap_or_else(|| self.nodes.insert(uid.clone()))
    }

    fn remove_all(
        &mut self,
        kind: &'static Kind,
        which: impl Fn(&Uid) -> bool,
        affected: &mut AffectedObjects,
    ) {
        let of_kind = self.nodes.iter().filter(|(_, node)| node.kind() == Some(kind) && which(&node.uid));
        let gone: Vec<Uid> = of_kind.map(|(_, node)| node.uid.clone()).collect();
        for uid in gone {
            self.remove(kind, &uid, Removal::Missed, affected);
        }
    }

    /// Where references must point to mean this object.
    fn place_of(&self, id: NodeId) -> Place {
        let node = self.nodes.get(id);
        let kind = node.and_then(|node| node.row);
        Place {
            uid: node.map_or_else(|| Uid::from(""), |node| node.uid.clone()),
            coordinates: Arc::new(Coordinates {
                api_version: kind.map(|kind| Str::from(kind.api_version())).unwrap_or_default(),
                kind: kind.map(|kind| Str::from(kind.kind)).unwrap_or_default(),
                name: node.map(|node| node.name.clone()).unwrap_or_default(),
            }),
            namespace: node.map(|node| node.namespace.clone()).unwrap_or_default(),
        }
    }

    /// A virtual node became an object: references that point elsewhere do not mean it.
    fn appeared(&mut self, id: NodeId, affected: &mut AffectedObjects) {
        // Also without dependents: those of an import that keeps UIDs, or of a restore, may come later.
        if !self.absence.is_empty() {
            let place = self.place_of(id);
            self.absence.unlearn(&place);
        }
        if self.nodes.get(id).is_none_or(|node| node.dependents().is_empty()) {
            return;
        }
        let Some(owner) = self.nodes.get(id) else { return };
        self.tell_dependents(id, affected, |dependent, edge| {
            !owner.is_at(&edge.coordinates, &dependent.namespace)
        });
    }

    fn tell_dependents(
        &self,
        id: NodeId,
        affected: &mut AffectedObjects,
        which: impl Fn(&Node, &Edge) -> bool,
    ) {
        let Some(owner) = self.nodes.get(id) else { return };
        for held in owner.dependents() {
            if let Some(dependent) = self.nodes.get(held.node)
                && let Some(edge) = dependent.owners.get(held.edge as usize)
                && held.node != id
                && which(dependent, edge)
            {
                affected.delete.push(dependent.uid.clone());
            }
        }
    }

    /// Tells the owners that waited for a dependent which blocked them, once no other does.
    fn tell_owners(&self, lost: &[Edge], affected: &mut AffectedObjects) {
        for owner in lost.iter().filter(|edge| edge.counts).filter_map(|edge| self.nodes.get(edge.owner)) {
            if owner.state.foreground_deleting && owner.blocking() == 0 {
                affected.delete.push(owner.uid.clone());
            }
        }
    }

    fn tell_transitions(&self, id: NodeId, before: State, affected: &mut AffectedObjects) {
        let Some(node) = self.nodes.get(id) else { return };
        if node.state.orphan_deleting && !before.orphan_deleting {
            affected.orphan.push(node.uid.clone());
        }
        if node.state.foreground_deleting && !before.foreground_deleting {
            affected.delete.push(node.uid.clone());
            self.tell_dependents(id, affected, |_, _| true);
        }
    }

    /// Says what a reference that was not there before makes worth looking at.
    fn tell_reference(&self, id: NodeId, edge: &Edge, affected: &mut AffectedObjects) {
        let (Some(node), Some(owner)) = (self.nodes.get(id), self.nodes.get(edge.owner)) else { return };
        if owner.is_virtual() {
            let is_absent = self.absence.knows(&Place::of(owner, edge, node));
            let worthy = if is_absent { node } else { owner };
            affected.delete.push(worthy.uid.clone());
        } else if !owner.is_at(&edge.coordinates, &node.namespace)
            || (owner.state.foreground_deleting && edge.owner != id)
        {
            affected.delete.push(node.uid.clone());
        }
    }

    /// Makes the node's edges those of `references`, and tells of each if they are new or the object was out of sight (`afresh`).
    fn relink(
        &mut self,
        id: NodeId,
        references: &[OwnerReference],
        afresh: bool,
        affected: &mut AffectedObjects,
    ) {
        if !afresh && self.is_linked(id, references) {
            return;
        }
        let lost = self.unlink(id);
        self.link(id, references);
        self.outdate_searches(id);
        self.tell_owners(&lost, affected);
        let Some(node) = self.nodes.get(id) else { return };
        // Those that were there before too: one may have been taken out by an attempt and put back by a user in between.
        for edge in &node.owners {
            self.tell_reference(id, edge, affected);
        }
        if node.state.foreground_deleting {
            // It may be part of another cycle now.
            affected.delete.push(node.uid.clone());
        }
        self.drop_unreferenced(lost.into_vec());
    }

    fn is_linked(&self, id: NodeId, references: &[OwnerReference]) -> bool {
        let Some(node) = self.nodes.get(id) else { return true };
        node.owners.len() == references.len()
            && node.owners.iter().zip(references).all(|(edge, reference)| {
                edge.coordinates.are_of(reference)
                    && edge.blocks == blocks(reference)
                    && self.nodes.get(edge.owner).is_some_and(|owner| owner.uid == reference.uid)
            })
    }

    /// Adds the edges of a node that has none.
    fn link(&mut self, id: NodeId, references: &[OwnerReference]) {
        let Some(namespace) = self.nodes.get(id).map(|node| node.namespace.clone()) else { return };
        let mut edges = Vec::with_capacity(references.len());
        for (position, reference) in references.iter().enumerate() {
            let owner = self.find_or_insert(&reference.uid);
            let coordinates = self.shared_coordinates(owner, reference);
            let blocks = blocks(reference);
            let Some(node) = self.nodes.get_mut(owner) else { continue };
            let counts = blocks && owner != id && node.is_at(&coordinates, &namespace);
            let at = node.add_dependent(Dependent { node: id, edge: position as u32 }, counts);
            edges.push(Edge { coordinates, owner, at, blocks, counts });
        }
        if let Some(node) = self.nodes.get_mut(id) {
            node.owners = edges.into();
        }
    }

    /// Coordinates as another dependent of the owner has them already: all but always the same.
    fn shared_coordinates(&self, owner: NodeId, reference: &OwnerReference) -> Arc<Coordinates> {
        let sibling = self.nodes.get(owner).and_then(|owner| owner.dependents().last());
        let edge = sibling.and_then(|held| self.nodes.get(held.node)?.owners.get(held.edge as usize));
        match edge.filter(|edge| edge.coordinates.are_of(reference)) {
            Some(edge) => Arc::clone(&edge.coordinates),
            None => Arc::new(Coordinates::of(reference)),
        }
    }

    /// Finds out anew which dependents' edges count, after the node has become another.
    fn recount(&mut self, id: NodeId) {
        let held = self.nodes.get(id).map(|node| node.dependents().to_vec()).unwrap_or_default();
        let mut blocking = 0;
        for held in held {
            let edge =
                self.nodes.get(held.node).and_then(|node| Some((node, node.owners.get(held.edge as usize)?)));
            let counts = edge.zip(self.nodes.get(id)).is_some_and(|((dependent, edge), owner)| {
                edge.blocks && held.node != id && owner.is_at(&edge.coordinates, &dependent.namespace)
            });
            blocking += u32::from(counts);
            if let Some(edge) =
                self.nodes.get_mut(held.node).and_then(|node| node.owners.get_mut(held.edge as usize))
            {
                edge.counts = counts;
            }
        }
        if let Some(node) = self.nodes.get_mut(id) {
            node.set_blocking(blocking);
        }
    }

    /// Takes the node's edges to its owners out and returns them.
    fn unlink(&mut self, id: NodeId) -> Box<[Edge]> {
        let count = self.nodes.get(id).map_or(0, |node| node.owners.len());
        for position in 0..count {
            let edge = self.nodes.get(id).and_then(|node| node.owners.get(position));
            let Some((owner, at, counts)) = edge.map(|edge| (edge.owner, edge.at, edge.counts)) else {
                continue;
            };
            let Some(node) = self.nodes.get_mut(owner) else { continue };
            if let Some(moved) = node.remove_dependent(at, counts)
                && let Some(dependent) = self.nodes.get_mut(moved.node)
                && let Some(edge) = dependent.owners.get_mut(moved.edge as usize)
            {
                edge.at = at;
            }
        }
        self.nodes.get_mut(id).map(|node| std::mem::take(&mut node.owners)).unwrap_or_default()
    }

    /// Drops these edges, virtual nodes to which nobody refers any more, and the places to which only these edges pointed.
    fn drop_unreferenced(&mut self, lost: Vec<Edge>) {
        for Edge { coordinates, owner, .. } in lost {
            // Searches hold coordinates as long as an edge does.
            drop(coordinates);
            let Some(node) = self.nodes.get(owner) else { continue };
            if node.is_virtual() && !node.is_unseen && node.dependents().is_empty() {
                self.searches.remove(&node.uid);
                self.nodes.remove(owner);
            } else if !self.searches.is_empty()
                && let Some(search) = self.searches.get_mut(&node.uid)
            {
                search.count_loss();
            }
        }
    }
}

fn blocks(reference: &OwnerReference) -> bool {
    reference.block_owner_deletion == Some(true)
}

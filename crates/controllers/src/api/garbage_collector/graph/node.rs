//! What the graph holds of one object, and the table of all of them.
//!
//! Nodes live in chunks and are named by a 32-bit index, so that an edge costs twelve bytes at its dependent and eight at
//! its owner, the graph grows without copying, and cycles are nothing special. An edge knows its place in its owner's
//! list and the list knows the edge: taking one out is constant time however many dependents an owner has.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;

use super::super::Uid;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::OwnerReference;
use coxswain_machinery::random::HashSeed;
use coxswain_machinery::wire::Str;

/// What an owner reference says of its owner beside the UID. The dependents of one owner share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coordinates {
    /// `v1` or `group/version`.
    pub api_version: Str,
    /// Kind of the owner.
    pub kind: Str,
    /// Name of the owner.
    pub name: Str,
}

impl Coordinates {
    /// The coordinates in a reference.
    pub fn of(reference: &OwnerReference) -> Self {
        Self {
            api_version: reference.api_version.clone(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
        }
    }

    /// Whether they name an object of this kind. The version is not compared: an object is the same in all of its group's.
    pub(super) fn are_of_kind(&self, kind: &Kind) -> bool {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        kind.kind == self.kind.as_str() && kind.group == group
    }

    pub(super) fn are_of(&self, reference: &OwnerReference) -> bool {
        self.name == reference.name
            && self.kind == reference.kind
            && self.api_version == reference.api_version
    }
}

/// Names a node for as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeId(u32);

/// A reference to an owner, held by the dependent.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) coordinates: Arc<Coordinates>,
    pub(super) owner: NodeId,
    /// Where the owner's list of dependents has this edge.
    pub(super) at: u32,
    /// Whether the reference says that the owner's foreground deletion waits for the dependent.
    pub(super) blocks: bool,
    /// Whether it does: the reference is to an object that is observed where it points.
    pub(super) counts: bool,
}

/// An edge as its owner sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dependent {
    pub(super) node: NodeId,
    /// Which of the dependent's edges it is: its position among the object's owner references.
    pub(super) edge: u32,
}

/// An object, or the UID in somebody's owner reference.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) uid: Uid,
    /// The row by which the object was last observed. `None`: it is known from owner references alone.
    pub(super) row: Option<&'static Kind>,
    /// Whether no watch shows the object any longer although nobody has seen it go. To its dependents it is a virtual node. To
    /// its owners it is what it was.
    pub(super) is_unseen: bool,
    pub(super) namespace: Str,
    pub(super) name: Str,
    /// The resource version last observed; 0 if it was not a number.
    pub(super) version: u64,
    /// In the order of the object's owner references.
    pub(super) owners: Box<[Edge]>,
    /// Most objects own nothing, and pay a pointer for it.
    owned: Option<Box<Owned>>,
    pub(super) state: State,
}

/// What an owner knows of its dependents.
#[derive(Debug, Default)]
struct Owned {
    dependents: Vec<Dependent>,
    /// How many of their edges count.
    blocking: u32,
}

/// How far an object's deletion has come.
#[expect(
    clippy::struct_excessive_bools,
    reason = "what metadata says and what follows from it, asked for one by one"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// It is being deleted and waits for its blocking dependents (finalizer `foregroundDeletion`).
    pub foreground_deleting: bool,
    /// It is being deleted and its dependents are to be kept (finalizer `orphan`).
    pub orphan_deleting: bool,
    /// It has one of these two finalizers, be it deleted or not: they say what becomes of its dependents.
    pub cascades: bool,
    /// Where among its finalizers `foregroundDeletion` is, unless it has more before it than anyone has.
    pub foreground_at: Option<u8>,
}

impl Node {
    fn new(uid: Uid) -> Self {
        Self {
            uid,
            row: None,
            is_unseen: false,
            namespace: Str::EMPTY,
            name: Str::EMPTY,
            version: 0,
            owners: Box::default(),
            owned: None,
            state: State::default(),
        }
    }

    /// The kind of an object that a watch shows.
    pub(super) fn kind(&self) -> Option<&'static Kind> {
        self.row.filter(|_| !self.is_unseen)
    }

    pub(super) fn is_virtual(&self) -> bool {
        self.kind().is_none()
    }

    pub(super) fn dependents(&self) -> &[Dependent] {
        self.owned.as_ref().map_or(&[], |owned| &owned.dependents)
    }

    /// How many of the dependents' edges count.
    pub(super) fn blocking(&self) -> u32 {
        self.owned.as_ref().map_or(0, |owned| owned.blocking)
    }

    /// Sets how many of the dependents' edges count.
    pub(super) fn set_blocking(&mut self, blocking: u32) {
        if let Some(owned) = &mut self.owned {
            owned.blocking = blocking;
        }
    }

    /// Adds an edge of a dependent: its place in the list.
    pub(super) fn add_dependent(&mut self, dependent: Dependent, counts: bool) -> u32 {
        let owned = self.owned.get_or_insert_default();
        owned.dependents.push(dependent);
        owned.blocking += u32::from(counts);
        owned.dependents.len() as u32 - 1
    }

    /// Takes out the edge at this place of the list: the one that has the place now.
    pub(super) fn remove_dependent(&mut self, at: u32, counts: bool) -> Option<Dependent> {
        let owned = self.owned.as_mut()?;
        let Owned { dependents, blocking } = owned.as_mut();
        dependents.swap_remove(at as usize);
        *blocking -= u32::from(counts);
        let moved = dependents.get(at as usize).copied();
        if dependents.is_empty() {
            self.owned = None;
        } else if dependents.capacity() > 16 && dependents.len() < dependents.capacity() / 4 {
            dependents.shrink_to(dependents.len() * 2);
        }
        moved
    }

    /// Whether a dependent in `namespace` that refers to these coordinates means this object. A virtual node matches nothing.
    pub(super) fn is_at(&self, coordinates: &Coordinates, namespace: &str) -> bool {
        self.kind().is_some_and(|kind| coordinates.are_of_kind(kind))
            && self.name == coordinates.name
            && (self.namespace.is_empty() || self.namespace == *namespace)
    }
}

/// Nodes per chunk.
const CHUNK: usize = 512;

/// All nodes, by index and by UID.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    chunks: Vec<Vec<Option<Node>>>,
    free: Vec<u32>,
    by_uid: HashTable<NodeId>,
    hasher: HashSeed,
}

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// The node of a UID. It takes no coordinates: of one UID there is one node, be it an object or the subject of references with
    /// different coordinates. Each edge has the coordinates of its own reference, and [`Node::is_at`] compares them with the object.
    pub(super) fn find(&self, uid: &Uid) -> Option<NodeId> {
        let is_it = |id: &NodeId| self.get(*id).is_some_and(|node| node.uid == *uid);
        self.by_uid.find(self.hasher.hash_one(uid), is_it).copied()
    }

    pub(super) fn get(&self, NodeId(at): NodeId) -> Option<&Node> {
        self.chunks.get(at as usize / CHUNK)?.get(at as usize % CHUNK)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, NodeId(at): NodeId) -> Option<&mut Node> {
        self.chunks.get_mut(at as usize / CHUNK)?.get_mut(at as usize % CHUNK)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let slots = self.chunks.iter().enumerate().flat_map(|(chunk, slots)| {
            slots.iter().enumerate().map(move |(slot, node)| (NodeId((chunk * CHUNK + slot) as u32), node))
        });
        slots.filter_map(|(id, node)| Some((id, node.as_ref()?)))
    }

    /// Adds a virtual node; there is none of this UID.
    pub(super) fn insert(&mut self, uid: Uid) -> NodeId {
        let hash = self.hasher.hash_one(&uid);
        let id = self.put(Node::new(uid));
        let Self { chunks, by_uid, hasher, .. } = self;
        let rehash = |NodeId(at): &NodeId| {
            let node = chunks.get(*at as usize / CHUNK).and_then(|slots| slots.get(*at as usize % CHUNK));
            node.and_then(Option::as_ref).map_or(0, |node| hasher.hash_one(&node.uid))
        };
        by_uid.insert_unique(hash, id, rehash);
        id
    }

    /// Takes a node out that has no edges any more.
    pub(super) fn remove(&mut self, id: NodeId) {
        let Some(uid) = self.get(id).map(|node| node.uid.clone()) else { return };
        let hash = self.hasher.hash_one(&uid);
        if let Ok(entry) = self.by_uid.find_entry(hash, |held| *held == id) {
            entry.remove();
        }
        let NodeId(at) = id;
        if let Some(slot) =
            self.chunks.get_mut(at as usize / CHUNK).and_then(|slots| slots.get_mut(at as usize % CHUNK))
        {
            *slot = None;
            self.free.push(at);
        }
        self.shrink();
    }

    fn put(&mut self, node: Node) -> NodeId {
        if let Some(at) = self.free.pop()
            && let Some(slot) =
                self.chunks.get_mut(at as usize / CHUNK).and_then(|slots| slots.get_mut(at as usize % CHUNK))
        {
            *slot = Some(node);
            return NodeId(at);
        }
        if self.chunks.last().is_none_or(|slots| slots.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk = self.chunks.len() - 1;
        let slots = &mut self.chunks[chunk];
        slots.push(Some(node));
        NodeId((chunk * CHUNK + slots.len() - 1) as u32)
    }

    /// Gives back what a passing peak has taken, as far as it can be had without moving nodes.
    fn shrink(&mut self) {
        if self.by_uid.is_empty() {
            self.chunks = Vec::new();
            self.free = Vec::new();
        }
        if self.by_uid.capacity() > CHUNK && self.by_uid.len() < self.by_uid.capacity() / 4 {
            let Self { chunks, by_uid, hasher, .. } = self;
            let target = by_uid.len() * 2;
            by_uid.shrink_to(target, |NodeId(at)| {
                let node = chunks.get(*at as usize / CHUNK).and_then(|slots| slots.get(*at as usize % CHUNK));
                node.and_then(Option::as_ref).map_or(0, |node| hasher.hash_one(&node.uid))
            });
        }
    }
}

//! Objects that no watch shows any longer although nobody has seen them go.
//!
//! As an owner such an object is a virtual node, which its dependents have looked up. As a dependent it stays what it was: an owner
//! that waits for it goes on waiting. It ends when a watch shows it again or shows all objects of its resource without it, and
//! when a live read does not find it. Objects of a resource that never returns are removed, unless other objects depend on them.

use std::collections::BTreeSet;

use super::absence::AbsentApi;
use super::facts::identity;
#[cfg(test)]
use super::hidden::Resource;
use super::hidden::resource_of;
use super::node::{Edge, Node, NodeId, State};
use super::{AffectedObjects, Graph, ObjectIdentity, Removal};
use crate::api::garbage_collector::Uid;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::OwnerReference;

/// How an unseen object was found by a live read.
#[derive(Clone, Debug, PartialEq)]
pub enum Blocker {
    /// It is there, with these owner references.
    There(Vec<OwnerReference>),
    /// It is gone, or its name is another object's.
    Gone,
    /// Discovery lacks the resource and the API server answers 404 for its path.
    NotServed,
    /// The API exists, and the read failed with this error: discovery has the resource, or its backend is down.
    Unreadable(String),
    /// The read failed with this error, which is no evidence about the API.
    Unknown(String),
}

impl Graph {
    /// Objects of `kind` are not watched any more. That is no proof that they are gone: the server may prefer another version, or
    /// discovery may lack a group for a moment. So objects with owners stay known to these, as unseen ones.
    pub fn forget_kind(&mut self, kind: &'static Kind, affected: &mut AffectedObjects) {
        let of_kind = self.nodes.iter().filter(|(_, node)| node.kind() == Some(kind));
        let all: Vec<(NodeId, bool)> = of_kind.map(|(id, node)| (id, node.owners.is_empty())).collect();
        for (id, is_free) in all {
            if is_free {
                self.take_out(id, Removal::Missed, affected);
            } else {
                self.hide(id, kind, affected);
            }
        }
    }

    /// All objects of `kind` that there are have been observed: unseen ones of its resource are gone.
    pub fn shown(&mut self, kind: &'static Kind, affected: &mut AffectedObjects) {
        self.unseen.found(kind);
        for id in self.unseen.of(kind) {
            self.take_out(id, Removal::Missed, affected);
        }
    }

    /// An unseen object was looked for.
    pub fn looked_for(&mut self, uid: &Uid, found: &Blocker, affected: &mut AffectedObjects) {
        let Some(id) = self.nodes.find(uid) else { return };
        let node = self.nodes.get(id).filter(|node| node.is_unseen);
        let Some(kind) = node.and_then(|node| node.row) else { return };
        if matches!(found, Blocker::There(_) | Blocker::Gone | Blocker::Unreadable(_)) {
            self.unseen.found(kind);
        }
        let (removal, gone) = match found {
            Blocker::There(references) => return self.relink(id, references, false, affected),
            Blocker::Unreadable(_) | Blocker::Unknown(_) => return,
            Blocker::Gone => (Removal::Deleted, vec![id]),
            Blocker::NotServed => {
                let absent = self.unseen.not_served.entry(resource_of(kind)).or_insert_with(AbsentApi::start);
                if !absent.is_for_good() {
                    return;
                }
                // All of them: a read for each would take 40 minutes for 100,000 objects.
                self.unseen.found(kind);
                let mut all = self.unseen.of(kind);
                all.retain(|id| !self.nodes.get(*id).is_some_and(|node| self.is_orphaned(node)));
                (Removal::Missed, all)
            }
        };
        for id in gone {
            // They may wait for others that are unseen.
            self.tell_waiting_owners(id, affected);
            self.take_out(id, removal, affected);
        }
    }

    /// Removes unseen objects of resources that no API server has served for ten minutes, so that resources that come and go under ever
    /// new names leave nothing behind. `served` is discovery's answer for a resource; an error is no answer.
    ///
    /// Objects to which a remaining object refers stay. Objects for which an owner waits stay too: [`Graph::looked_for`] decides about those
    /// that a foreground deletion waits for, and an orphaning owner waits until the API returns.
    /// References among the removed objects, including circles and references to itself, keep none of them.
    pub fn sweep_unseen(
        &mut self,
        served: impl Fn(&'static Kind) -> Result<Option<&'static Kind>, String>,
        affected: &mut AffectedObjects,
    ) {
        let candidates = self.unseen.of_gone(served);
        let removed = self.unreferenced(candidates);
        let lost: Vec<Edge> = removed.iter().flat_map(|id| self.unlink(*id)).collect();
        for id in removed {
            self.take_out(id, Removal::Missed, affected);
        }
        self.drop_unreferenced(lost);
    }

    /// Returns the largest subset of these nodes for which no owner waits and to which no node outside the subset refers.
    fn unreferenced(&self, mut nodes: BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let mut staying: Vec<NodeId> =
            nodes.iter().copied().filter(|id| self.is_needed(*id, &nodes)).collect();
        // Each node is removed once, so this takes the time of the edges of all nodes.
        while let Some(id) = staying.pop() {
            if nodes.remove(&id) {
                // The owners of a node that stays have a dependent that stays.
                let edges = self.nodes.get(id).into_iter().flat_map(|node| &node.owners);
                staying.extend(edges.map(|edge| edge.owner));
            }
        }
        nodes
    }

    /// Whether an owner waits for this node, or a node outside `among` refers to it.
    fn is_needed(&self, id: NodeId, among: &BTreeSet<NodeId>) -> bool {
        self.nodes.get(id).is_some_and(|node| {
            self.is_waited_for(node) || node.dependents().iter().any(|held| !among.contains(&held.node))
        })
    }

    /// Whether the index holds exactly the unseen nodes.
    #[cfg(test)]
    pub(in super::super) fn index_of_unseen_is_exact(&self) -> bool {
        let listed = |id: NodeId, node: &Node| {
            let held = node.row.and_then(|kind| self.unseen.hidden.get(&resource_of(kind)));
            held.is_some_and(|held| held.nodes.contains(&id))
        };
        let count: usize = self.unseen.hidden.values().map(|held| held.nodes.len()).sum();
        let unseen: Vec<_> = self.nodes.iter().filter(|(_, node)| node.is_unseen).collect();
        let has_hidden = |resource: &Resource| self.unseen.hidden.contains_key(resource);
        unseen.len() == count
            && unseen.into_iter().all(|(id, node)| listed(id, node))
            && self.unseen.not_served.keys().all(has_hidden)
    }

    /// Whether an owner that is being deleted waits for this dependent. A foreground deletion waits for the deletion of the dependent, an
    /// orphaning one for the removal of the reference. An orphaning owner waits for all its dependents: if one were forgotten and its API
    /// returned after the owner is gone, the dependent would be deleted.
    fn is_waited_for(&self, node: &Node) -> bool {
        self.is_orphaned(node)
            || node.owners.iter().any(|edge| edge.counts && self.state_of(edge.owner).foreground_deleting)
    }

    /// Whether the deletion of an owner with `orphan` waits for this dependent.
    fn is_orphaned(&self, node: &Node) -> bool {
        node.owners.iter().any(|edge| self.state_of(edge.owner).orphan_deleting)
    }

    fn state_of(&self, id: NodeId) -> State {
        self.nodes.get(id).map(|node| node.state).unwrap_or_default()
    }

    /// The watch of an object has ended. As an owner it has to be looked for, as a dependent it stays what it was.
    fn hide(&mut self, id: NodeId, kind: &'static Kind, affected: &mut AffectedObjects) {
        let place = self.place_of(id);
        let Some(node) = self.nodes.get_mut(id) else { return };
        node.is_unseen = true;
        node.version = 0;
        node.state = State::default();
        let owns = !node.dependents().is_empty();
        self.unseen.add(id, kind);
        self.recount(id);
        if self.absence.knows(&place) {
            self.tell_dependents(id, affected, |_, _| true);
        } else if owns {
            affected.delete.push(place.uid);
        }
        self.tell_waiting_owners(id, affected);
    }

    /// Tells the owners that wait for this dependent and no longer hear of it.
    fn tell_waiting_owners(&self, id: NodeId, affected: &mut AffectedObjects) {
        let edges = self.nodes.get(id).into_iter().flat_map(|node| &node.owners);
        let owners = edges.filter(|edge| edge.counts).filter_map(|edge| self.nodes.get(edge.owner));
        let waiting = owners.filter(|owner| owner.state.foreground_deleting);
        affected.delete.extend(waiting.map(|owner| owner.uid.clone()));
    }

    /// A dependent that blocks the deletion of this UID's object and that no watch shows any longer.
    pub fn unseen_blocker(&self, uid: &Uid) -> Option<ObjectIdentity> {
        if self.unseen.is_empty() {
            return None;
        }
        let owner = self.nodes.find(uid).and_then(|id| self.nodes.get(id))?;
        owner.dependents().iter().find_map(|held| {
            let node = self.nodes.get(held.node).filter(|node| node.is_unseen)?;
            node.owners.get(held.edge as usize).filter(|edge| edge.counts).and_then(|_| identity(node))
        })
    }
}

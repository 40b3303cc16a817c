//! Objects that no watch shows any longer although nobody has seen them go.
//!
//! As an owner such an object is a virtual node, which its dependents have looked up. As a dependent it stays what it was: an owner
//! that waits for it goes on waiting. It ends when a watch shows it again or shows all objects of its resource without it, and
//! when a live read does not find it. Objects of a resource that never returns are removed, unless other objects depend on them.

use super::absence::AbsentApi;
use super::facts::identity;
use super::node::{Node, NodeId, State};
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
        if all.iter().any(|(_, is_free)| !is_free) {
            self.hidden.insert((kind.group, kind.resource), (kind, None));
        }
        for (id, is_free) in all {
            if is_free {
                self.take_out(id, Removal::Missed, affected);
            } else {
                self.hide(id, affected);
            }
        }
    }

    /// All objects of `kind` that there are have been observed: unseen ones of its resource are gone.
    pub fn shown(&mut self, kind: &'static Kind, affected: &mut AffectedObjects) {
        self.not_served.remove(&(kind.group, kind.resource));
        self.hidden.remove(&(kind.group, kind.resource));
        for id in self.unseen_of(kind) {
            self.take_out(id, Removal::Missed, affected);
        }
    }

    /// An unseen object was looked for.
    pub fn looked_for(&mut self, uid: &Uid, found: &Blocker, affected: &mut AffectedObjects) {
        let Some(id) = self.nodes.find(uid) else { return };
        let node = self.nodes.get(id).filter(|node| node.is_unseen);
        let Some(kind) = node.and_then(|node| node.row) else { return };
        let resource = (kind.group, kind.resource);
        if matches!(found, Blocker::There(_) | Blocker::Gone | Blocker::Unreadable(_)) {
            self.not_served.remove(&resource);
        }
        let (removal, gone) = match found {
            Blocker::There(references) => return self.relink(id, references, false, affected),
            Blocker::Unreadable(_) | Blocker::Unknown(_) => return,
            Blocker::Gone => (Removal::Deleted, vec![id]),
            Blocker::NotServed => {
                let absent = self.not_served.entry(resource).or_insert_with(AbsentApi::start);
                if !absent.is_for_good() {
                    return;
                }
                // All of them: a read for each would take 40 minutes for 100,000 objects.
                self.not_served.remove(&resource);
                (Removal::Missed, self.unseen_of(kind))
            }
        };
        for id in gone {
            // They may wait for others that are unseen.
            self.tell_waiting_owners(id, affected);
            self.take_out(id, removal, affected);
        }
    }

    /// Removes unseen objects of resources that no API server has served for ten minutes, so that resources that come and go under ever
    /// new names leave nothing behind. `served` is discovery's answer for a resource; an error is no answer. Objects that others refer to
    /// stay, and so do objects that an owner waits for: [`Graph::looked_for`] decides about the latter.
    pub fn sweep_unseen(
        &mut self,
        served: impl Fn(&'static Kind) -> Result<Option<&'static Kind>, String>,
        affected: &mut AffectedObjects,
    ) {
        let mut gone: Vec<&'static Kind> = Vec::new();
        for (kind, absent) in self.hidden.values_mut() {
            if served(kind) != Ok(None) {
                *absent = None;
            } else if absent.get_or_insert_with(AbsentApi::start).is_for_good() {
                *absent = None;
                gone.push(*kind);
            }
        }
        for kind in gone {
            self.remove_hidden(kind, affected);
        }
    }

    /// Removes the unseen objects of a resource that nothing refers to, then those that only these referred to.
    fn remove_hidden(&mut self, kind: &'static Kind, affected: &mut AffectedObjects) {
        let mut left = self.unseen_of(kind);
        while let Some(id) = left.pop() {
            let is_free = |node: &Node| {
                is_unseen_of(node, kind) && node.dependents().is_empty() && !self.is_waited_for(node)
            };
            let Some(node) = self.nodes.get(id).filter(|node| is_free(node)) else { continue };
            left.extend(node.owners.iter().map(|edge| edge.owner));
            self.take_out(id, Removal::Missed, affected);
        }
        if self.unseen_of(kind).is_empty() {
            self.hidden.remove(&(kind.group, kind.resource));
            self.not_served.remove(&(kind.group, kind.resource));
        }
    }

    /// Whether the foreground deletion of an owner waits for this dependent.
    fn is_waited_for(&self, node: &Node) -> bool {
        let mut owners =
            node.owners.iter().filter(|edge| edge.counts).filter_map(|edge| self.nodes.get(edge.owner));
        owners.any(|owner| owner.state.foreground_deleting)
    }

    /// Returns the unseen objects of the resource of `kind`, whatever their version.
    fn unseen_of(&self, kind: &'static Kind) -> Vec<NodeId> {
        if self.unseen == 0 {
            return Vec::new();
        }
        self.nodes.iter().filter(|(_, node)| is_unseen_of(node, kind)).map(|(id, _)| id).collect()
    }

    /// The watch of an object has ended. As an owner it has to be looked for, as a dependent it stays what it was.
    fn hide(&mut self, id: NodeId, affected: &mut AffectedObjects) {
        let place = self.place_of(id);
        let Some(node) = self.nodes.get_mut(id) else { return };
        node.is_unseen = true;
        node.version = 0;
        node.state = State::default();
        let owns = !node.dependents().is_empty();
        self.unseen += 1;
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
        if self.unseen == 0 {
            return None;
        }
        let owner = self.nodes.find(uid).and_then(|id| self.nodes.get(id))?;
        owner.dependents().iter().find_map(|held| {
            let node = self.nodes.get(held.node).filter(|node| node.is_unseen)?;
            node.owners.get(held.edge as usize).filter(|edge| edge.counts).and_then(|_| identity(node))
        })
    }
}

/// Whether a node is an unseen object of this kind's resource, in whatever version.
fn is_unseen_of(node: &Node, kind: &'static Kind) -> bool {
    node.is_unseen && node.row.is_some_and(|row| row.group == kind.group && row.resource == kind.resource)
}

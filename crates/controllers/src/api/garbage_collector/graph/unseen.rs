//! Objects that no watch shows any longer although nobody has seen them go.
//!
//! As an owner such an object is a virtual node, which its dependents have looked up. As a dependent it stays what it was: an owner
//! that waits for it goes on waiting. It ends when a watch shows it again or shows all objects of its resource without it, and
//! when a live read does not find it.

use std::time::Duration;

use super::facts::identity;
use super::node::{Node, NodeId, State};
use super::{AffectedObjects, Graph, ObjectIdentity, Removal};
use crate::api::garbage_collector::Uid;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::OwnerReference;
use coxswain_machinery::model::clock::Stopwatch;

/// How an unseen object was found by a live read.
#[derive(Clone, Debug, PartialEq)]
pub enum Blocker {
    /// It is there, with these owner references.
    There(Vec<OwnerReference>),
    /// It is gone, or its name is another object's.
    Gone,
    /// Discovery lacks the resource and the API server answers 404 for its path.
    NotServed,
    /// The read failed with this error. An API with a failing backend still exists.
    Unknown(String),
}

/// Minimum time without any API server that serves a resource before its objects count as deleted. A reinstalled API or an API server
/// that restarts with other flags is absent for less.
const FOR_GOOD: Duration = Duration::from_mins(10);

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
                self.hide(id, affected);
            }
        }
    }

    /// All objects of `kind` that there are have been observed: unseen ones of its resource are gone.
    pub fn shown(&mut self, kind: &'static Kind, affected: &mut AffectedObjects) {
        self.not_served.remove(&(kind.group, kind.resource));
        if self.unseen == 0 {
            return;
        }
        let is_of = |node: &Node| {
            node.is_unseen
                && node.row.is_some_and(|row| row.group == kind.group && row.resource == kind.resource)
        };
        let gone: Vec<NodeId> = self.nodes.iter().filter(|(_, node)| is_of(node)).map(|(id, _)| id).collect();
        for id in gone {
            self.take_out(id, Removal::Missed, affected);
        }
    }

    /// An unseen object was looked for.
    pub fn looked_for(&mut self, uid: &Uid, found: &Blocker, affected: &mut AffectedObjects) {
        let Some(id) = self.nodes.find(uid) else { return };
        let node = self.nodes.get(id).filter(|node| node.is_unseen);
        let Some(kind) = node.and_then(|node| node.row) else { return };
        let resource = (kind.group, kind.resource);
        if *found != Blocker::NotServed {
            self.not_served.remove(&resource);
        }
        let removal = match found {
            Blocker::There(references) => return self.relink(id, references, false, affected),
            Blocker::Unknown(_) => return,
            Blocker::Gone => Removal::Deleted,
            Blocker::NotServed => {
                let since = self.not_served.entry(resource).or_insert_with(Stopwatch::start);
                if since.elapsed() < FOR_GOOD {
                    return;
                }
                Removal::Missed
            }
        };
        // They may wait for others that are unseen.
        self.tell_waiting_owners(id, affected);
        self.take_out(id, removal, affected);
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

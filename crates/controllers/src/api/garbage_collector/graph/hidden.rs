//! Index of the unseen nodes of the graph by resource. It decides when the nodes of resources that are gone are removed.

use std::collections::BTreeSet;
use std::time::Duration;

use super::absence::{AbsentApi, FOR_GOOD};
use super::node::NodeId;
use coxswain_machinery::api::Kind;
use coxswain_machinery::model::clock::Stopwatch;
use coxswain_machinery::random::HashMap;

/// Minimum time between two sweeps. A sweep takes time in proportion to the unseen nodes, and users may define and remove a kind at any time.
const SWEEP_PAUSE: Duration = Duration::from_mins(2);

/// A resource of any version: its group and its plural name.
pub(super) type Resource = (&'static str, &'static str);

/// The unseen nodes by resource, so that the cost of a lookup does not depend on the other nodes of the graph.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// Resources that live reads have found absent; each of them is in `hidden`.
    pub(super) not_served: HashMap<Resource, AbsentApi>,
    /// Resources with at least one unseen node.
    pub(super) hidden: HashMap<Resource, Hidden>,
    /// Time since [`Unseen::of_gone`] last returned nodes.
    swept: Option<Stopwatch>,
}

/// The unseen nodes of one resource.
#[derive(Debug)]
pub(super) struct Hidden {
    /// The row of the watch that ended last.
    kind: &'static Kind,
    /// Ordered as in the graph, so that removals have the same order in each run.
    pub(super) nodes: BTreeSet<NodeId>,
    /// Time for which discovery has lacked the resource without a break.
    absent: Option<AbsentApi>,
    /// Time since [`Unseen::of_gone`] last returned the nodes.
    swept: Option<Stopwatch>,
}

pub(super) fn resource_of(kind: &'static Kind) -> Resource {
    (kind.group, kind.resource)
}

impl Unseen {
    pub(super) fn is_empty(&self) -> bool {
        self.hidden.is_empty()
    }

    /// Adds a node of `kind` that has become unseen.
    pub(super) fn add(&mut self, id: NodeId, kind: &'static Kind) {
        let new = || Hidden { kind, nodes: BTreeSet::new(), absent: None, swept: None };
        let held = self.hidden.entry(resource_of(kind)).or_insert_with(new);
        held.kind = kind;
        held.absent = None;
        held.nodes.insert(id);
    }

    /// Removes a node that has left the graph or is watched again. `row` is the row under which the node was unseen.
    pub(super) fn remove(&mut self, id: NodeId, row: Option<&'static Kind>) {
        let Some(resource) = row.map(resource_of) else { return };
        let Some(held) = self.hidden.get_mut(&resource) else { return };
        held.nodes.remove(&id);
        if held.nodes.is_empty() {
            self.hidden.remove(&resource);
            self.not_served.remove(&resource);
        }
    }

    /// Records that the API serves the resource of `kind`.
    pub(super) fn found(&mut self, kind: &'static Kind) {
        self.not_served.remove(&resource_of(kind));
    }

    /// Returns the unseen nodes of the resource of `kind` in all versions.
    pub(super) fn of(&self, kind: &'static Kind) -> Vec<NodeId> {
        self.hidden
            .get(&resource_of(kind))
            .map(|held| held.nodes.iter().copied().collect())
            .unwrap_or_default()
    }

    /// Records the answer of discovery and returns the unseen nodes of all resources that are gone for good, because nodes of several resources
    /// may refer to each other. Returns none as long as the nodes of each of these resources were returned within ten minutes, and for two
    /// minutes after it returned some, so that nodes that stay cost little.
    pub(super) fn of_gone(
        &mut self,
        served: impl Fn(&'static Kind) -> Result<Option<&'static Kind>, String>,
    ) -> BTreeSet<NodeId> {
        let (mut gone, mut is_due) = (Vec::new(), false);
        for held in self.hidden.values_mut() {
            if served(held.kind) != Ok(None) {
                held.absent = None;
            } else if held.absent.get_or_insert_with(AbsentApi::start).is_for_good() {
                is_due |= held.swept.is_none_or(|at| at.elapsed() >= FOR_GOOD);
                gone.push(held);
            }
        }
        if !is_due || self.swept.is_some_and(|at| at.elapsed() < SWEEP_PAUSE) {
            return BTreeSet::new();
        }
        self.swept = Some(Stopwatch::start());
        let mut nodes = BTreeSet::new();
        for held in gone {
            held.swept = Some(Stopwatch::start());
            nodes.extend(held.nodes.iter().copied());
        }
        nodes
    }
}

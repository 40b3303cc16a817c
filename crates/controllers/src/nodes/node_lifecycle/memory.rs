//! What the controller remembers of nodes and zones, shared by its loops: no object tells when a node gave its last sign of life.
//! Decides nothing.

use std::sync::Arc;

use parking_lot::Mutex;

use super::fleet::{Fleet, Look, Task};
use super::metrics::Metrics;
use coxswain_machinery::framework::{Memory, ReconcileEnd};
use coxswain_machinery::informer::Deliveries;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// What a plan tells beside its steps.
#[derive(Clone, Debug)]
pub(super) enum Note {
    /// It has looked at nodes, or not even that.
    Looked(Option<Look>),
    /// Its writes are these tasks, by their places.
    Acted(Vec<Task>),
}

/// What is remembered.
#[derive(Debug)]
pub(super) struct FleetMemory {
    /// Whose time counts.
    pub(super) deliveries: Arc<Deliveries>,
    held: Mutex<Held>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Held {
    fleet: Arc<Fleet>,
    /// What the last look found, until it was seen to.
    look: Option<Look>,
}

impl FleetMemory {
    pub(super) fn new(deliveries: Arc<Deliveries>, metrics: Metrics) -> Self {
        Self { deliveries, held: Mutex::default(), metrics }
    }

    /// Nodes and zones as of the last look.
    pub(super) fn fleet(&self) -> Arc<Fleet> {
        Arc::clone(&self.held.lock().fleet)
    }

    /// What the look of this reconcile has found.
    pub(super) fn found(&self) -> Option<Look> {
        self.held.lock().look.clone()
    }

    /// Whether a node was looked at.
    pub(super) fn knows(&self, node: &Str) -> bool {
        self.held.lock().fleet.nodes.contains_key(node)
    }
}

impl Memory<Note> for FleetMemory {
    fn commit(&self, _: &Key, note: Note) {
        let Note::Looked(Some(mut look)) = note else { return };
        let mut held = self.held.lock();
        self.metrics.looked(&held.fleet.zones, &look.fleet.zones);
        held.fleet = Arc::new(std::mem::take(&mut look.fleet));
        held.look = (!look.tasks.is_empty()).then_some(look);
    }

    fn commit_item(&self, _: &Key, note: &Note, item: usize) {
        let Note::Acted(tasks) = note else { return };
        let mut held = self.held.lock();
        let fleet = Arc::make_mut(&mut held.fleet);
        match tasks.get(item) {
            Some(Task::MarkUnknown(node)) => {
                if let Some((known, _)) = fleet.nodes.get_mut(&node.metadata.name) {
                    known.is_marked(node);
                }
            }
            Some(Task::Untaint(node)) => {
                if let Some((known, _)) = fleet.nodes.get_mut(&node.metadata.name) {
                    known.is_to_be_freed = false;
                }
            }
            Some(Task::Taint(node, _, zone)) => {
                if let Some((known, _)) = fleet.nodes.get_mut(&node.metadata.name) {
                    known.is_ours = true;
                }
                self.metrics.tainted(zone);
            }
            _ => {}
        }
    }

    fn ended(&self, _: &Key, ended: ReconcileEnd<'_>) {
        let mut held = self.held.lock();
        held.look = None;
        self.metrics.ended(held.fleet.nodes.len(), ended.took);
    }
}

//! What the controller remembers of nodes and zones, shared by its loops: no object tells when a node gave its last sign of life.
//! Decides nothing.

use std::sync::Arc;

use parking_lot::Mutex;

use super::fleet::{Basis, Fleet, Look, Task};
use super::metrics::Metrics;
use super::zones::ZoneRules;
use coxswain_machinery::executor::{Effect, WriteEffect};
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
    /// The writes of these tasks are not sent.
    Skipped(Vec<Task>, ZoneRules),
    /// The writes of some tasks have met a conflict.
    Conflicted {
        /// These tasks.
        tasks: Vec<Task>,
        rules: ZoneRules,
        /// Whether the next round comes soon, because of that.
        is_soon: bool,
    },
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
    /// The number of rounds in a row in which a write met a conflict, and whether the present one is among them.
    conflicts: u32,
    is_conflicted: bool,
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

    /// The number of rounds in a row in which a write met a conflict.
    pub(super) fn conflicts(&self) -> u32 {
        self.held.lock().conflicts
    }

    /// Whether a node was looked at.
    pub(super) fn knows(&self, node: &Str) -> bool {
        self.held.lock().fleet.nodes.contains_key(node)
    }
}

impl Held {
    /// Gives back the tokens that were taken for these tasks.
    fn give_back(&mut self, tasks: &[Task], rules: &ZoneRules) {
        let fleet = Arc::make_mut(&mut self.fleet);
        for task in tasks {
            if let Task::Taint(_, _, zone) = task
                && let Some(zone) = fleet.zones.get_mut(zone)
            {
                zone.give_back(rules);
            }
        }
    }

    /// Has the nodes of these tasks read live in the next look.
    fn conflicted(&mut self, tasks: &[Task]) {
        let fleet = Arc::make_mut(&mut self.fleet);
        for node in tasks.iter().filter_map(Task::written) {
            if let Some((known, _)) = fleet.nodes.get_mut(&node.metadata.name) {
                known.conflicted();
            }
        }
    }
}

impl Memory<Note> for FleetMemory {
    fn commit(&self, _: &Key, note: Note) {
        let mut held = self.held.lock();
        let mut look = match note {
            Note::Looked(Some(look)) => look,
            Note::Skipped(tasks, rules) => return held.give_back(&tasks, &rules),
            Note::Conflicted { tasks, rules, is_soon } => {
                held.is_conflicted = is_soon;
                held.give_back(&tasks, &rules);
                return held.conflicted(&tasks);
            }
            Note::Looked(None) | Note::Acted(_) => return,
        };
        self.metrics.looked(&held.fleet.zones, &look.fleet.zones);
        held.fleet = Arc::new(std::mem::take(&mut look.fleet));
        held.look = (!look.tasks.is_empty()).then_some(look);
    }

    fn record_effects(&self, _: &Key, effects: &[Effect]) {
        if effects.is_empty() {
            return;
        }
        let mut held = self.held.lock();
        let fleet = Arc::make_mut(&mut held.fleet);
        for effect in effects {
            if let WriteEffect::Stored(version) = &effect.change
                && let Ok(version) = version.parse::<u64>()
                && let Some((known, _)) = fleet.nodes.get_mut(&effect.key.name)
            {
                known.newest = version;
                known.basis = Basis::Cache;
            }
        }
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
        held.conflicts = if std::mem::take(&mut held.is_conflicted) { held.conflicts + 1 } else { 0 };
        self.metrics.ended(held.fleet.nodes.len(), ended.took);
    }
}

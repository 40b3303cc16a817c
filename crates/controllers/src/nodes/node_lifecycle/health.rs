//! The loop that looks at the health of all nodes, in rounds. A round is a look, which remembers who gave a sign of life and finds
//! what is to be done, and the writes that do it.
//!
//! While the watch of Leases delivers nothing, no round looks at anything.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fleet::{Fleet, Look, Renewal, Rules, Task};
use super::memory::{FleetMemory, Note};
use super::taints::{SILENT, driving, keeping};
use coxswain_machinery::api::coordination::Heartbeat;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::framework::{Observation, ObserveError, Reads, Room};
use coxswain_machinery::informer::{Covered, Lister};
use coxswain_machinery::model::plan::{EventSpec, Patch, Regarding, Tolerate, Verb};
use coxswain_machinery::model::words::{count, time, verb};
use coxswain_machinery::model::{Failure, Key, Plan, Step, Write};
use coxswain_machinery::wire::{Str, Time};

/// Where nodes renew Leases of their names.
const LEASES_NAMESPACE: &str = "kube-node-lease";
/// Conditions of a silent node that nobody knows any more.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Time from a conflict about the taint of a node that is well to the next round.
const AFTER_CONFLICT: Duration = Duration::from_millis(100);
/// Number of such rounds in a row, as often as kube-controller-manager repeats an update.
const MOST_CONFLICTS: u32 = 5;
/// Time to the next round while further nodes are to be marked unknown.
const WITH_MORE: Duration = Duration::from_millis(100);

/// The room.
pub(super) struct Health {
    pub(super) nodes: Lister<Node>,
    pub(super) heartbeats: Lister<Heartbeat>,
    pub(super) memory: Arc<FleetMemory>,
    pub(super) rules: Rules,
    pub(super) period: Duration,
}

/// What a round rests on.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) covered: Covered,
    pub(super) rules: Rules,
    pub(super) period: Duration,
    pub(super) stage: Stage,
    /// What has failed in this round.
    pub(super) failures: Vec<Failure>,
    /// The number of rounds in a row before this one in which a taint met a conflict.
    pub(super) conflicts: u32,
}

/// How far a round has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// It begins.
    Look { fleet: Arc<Fleet>, nodes: Vec<(Arc<Node>, Option<Renewal>)> },
    /// The look has found this.
    Act(Look),
}

impl Room<Note> for Health {
    const HEEDS_FAILURES: bool = true;

    type View = Round;

    fn observe(&self, _: &Key, failures: &[Failure], _: &Reads) -> Result<Observation<Round>, ObserveError> {
        let stage = self.memory.found().map_or_else(|| self.begin(), Stage::Act);
        Ok(Observation::View(Round {
            covered: self.memory.deliveries.covered(),
            rules: self.rules,
            period: self.period,
            stage,
            failures: failures.to_vec(),
            conflicts: self.memory.conflicts(),
        }))
    }

    fn plan(view: &Round, now: Timestamp) -> Plan<Note> {
        // What fails is judged anew in the next round.
        let plan = Plan { requeue_after: Some(view.period), end: true, ..Plan::default() };
        if !view.failures.is_empty() {
            return view.after_failures(plan);
        }
        if view.covered.silent_for.is_some() {
            return match &view.stage {
                Stage::Look { .. } => plan.with_note(Note::Looked(None)),
                // The memory has these nodes already, so no later round finds them new or gone.
                Stage::Act(look) => Plan { steps: events(&look.tasks), ..plan }
                    .with_note(Note::Skipped(look.tasks.clone(), view.rules.zones)),
            };
        }
        let look = view.look();
        let plan = Plan { requeue_after: Some(view.next(&look)), ..plan };
        match &view.stage {
            Stage::Look { .. } => {
                let plan = Plan { look_again: !look.tasks.is_empty(), ..plan };
                plan.with_note(Note::Looked(Some(look)))
            }
            Stage::Act(_) => {
                Plan { steps: steps(&look.tasks, now), ..plan }.with_note(Note::Acted(look.tasks))
            }
        }
    }

    fn reasons(view: &Round, _: Timestamp) -> Vec<String> {
        if let Some(silent) = view.covered.silent_for {
            let silent = time(silent);
            return vec![format!(
                "The Lease watch has delivered no event for {silent}; cached node health may be stale, so no node is \
                 evaluated."
            )];
        }
        let look = match &view.stage {
            Stage::Look { .. } => &view.look(),
            Stage::Act(look) => look,
        };
        let mut reasons = Vec::new();
        if look.fleet.is_stopped {
            reasons.push("No node in any zone is ready; evictions are stopped in all zones.".to_owned());
        }
        let nodes = look.tasks.len();
        reasons.push(format!("{} {} an update.", count(nodes, "node"), verb(nodes, "needs", "need")));
        reasons
    }
}

impl Health {
    /// What a look rests on.
    fn begin(&self) -> Stage {
        let renewal = |node: &Node| {
            let lease = self.heartbeats.get(&Key::new(LEASES_NAMESPACE, node.metadata.name.clone()))?;
            let renewed = &lease.spec.renew_time;
            Some((renewed.seconds, renewed.nanos))
        };
        let nodes = self.nodes.list().into_iter().map(|node| {
            let renewal = renewal(&node);
            (node, renewal)
        });
        Stage::Look { fleet: self.memory.fleet(), nodes: nodes.collect() }
    }
}

impl Round {
    /// Returns the plan after writes have failed. The next round comes soon if the taint of a node that is well met a conflict, because the
    /// taint evicts the node's pods.
    fn after_failures(&self, plan: Plan) -> Plan<Note> {
        let Stage::Act(look) = &self.stage else { return plan.with_note(Note::Looked(None)) };
        // Linear: a round writes few nodes, at the rate of their zones, and hardly a write meets a conflict.
        let is_urgent = |name: &Str| {
            look.tasks.iter().any(|task| match task {
                Task::Untaint(node) | Task::Swap(node, _) => node.metadata.name == *name,
                _ => false,
            })
        };
        let mut conflicts = self.failures.iter().filter(|failure| failure.is_conflict());
        if self.conflicts >= MOST_CONFLICTS || !conflicts.any(|failure| is_urgent(&failure.key.name)) {
            return Plan { requeue_after: Some(self.next(look)), ..plan }.with_note(Note::Looked(None));
        }
        Plan { requeue_after: Some(AFTER_CONFLICT.min(self.period)), ..plan }.with_note(Note::Conflicted)
    }

    /// Returns the time to the next round.
    fn next(&self, look: &Look) -> Duration {
        let more = look.has_more.then_some(WITH_MORE);
        look.next_token.into_iter().chain(more).fold(self.period, Duration::min)
    }

    fn look(&self) -> Look {
        match &self.stage {
            Stage::Look { fleet, nodes } => fleet.look(nodes.clone(), &self.rules, self.covered.time),
            Stage::Act(look) => look.clone(),
        }
    }
}

/// Returns the events about nodes that are new or gone.
fn events(tasks: &[Task]) -> Vec<Step> {
    let told = tasks.iter().filter_map(|task| match task {
        Task::Register(node) => Some(event(node, "RegisteredNode", "Registered Node", "in Controller")),
        Task::Remove(node) => Some(event(node, "RemovingNode", "Removing Node", "from Controller")),
        Task::MarkUnknown(_) | Task::Swap(..) | Task::Taint(..) | Task::Untaint(_) => None,
    });
    told.map(Step::Emit).collect()
}

/// Events first, then the writes, each for itself.
fn steps(tasks: &[Task], now: Timestamp) -> Vec<Step> {
    let mut steps = events(tasks);
    let mut writes = Vec::new();
    for (item, task) in tasks.iter().enumerate() {
        let write = match task {
            Task::Register(_) | Task::Remove(_) => continue,
            Task::MarkUnknown(node) => unknown(node, now),
            Task::Swap(node, key) | Task::Taint(node, key, _) => driving(key).write(node, now),
            Task::Untaint(node) => keeping().write(node, now),
        };
        let tolerate = Tolerate { absent: true, ..Tolerate::default() };
        writes.push(Write { item: Some(item), keep_going: true, tolerate, ..write });
    }
    if !writes.is_empty() {
        steps.push(Step::Each(writes));
    }
    steps
}

fn event(node: &Node, reason: &'static str, what: &str, whence: &str) -> EventSpec {
    let name = &node.metadata.name;
    EventSpec {
        regarding: Regarding::of(&NODES, &node.metadata),
        warning: false,
        reason,
        message: format!("Node {name} event: {what} {name} {whence}"),
    }
}

/// Says of a silent node that nothing is known of it, at the resource version that was judged.
fn unknown(node: &Node, now: Timestamp) -> Write {
    let metadata = &node.metadata;
    let now = Time::from(now).to_string();
    let conditions: Vec<Value> = CONDITIONS
        .iter()
        // Linear: four kinds are looked for.
        .filter_map(|kind| match node.status.conditions.iter().find(|held| held.r#type == **kind) {
            None => Some(json!({
                "type": kind,
                "status": "Unknown",
                "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
                "lastHeartbeatTime": metadata.creation_timestamp.map(|time| time.to_string()),
                "lastTransitionTime": now,
            })),
            Some(held) if held.status != "Unknown" => Some(json!({
                "type": kind,
                "status": "Unknown",
                "reason": SILENT,
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": now,
            })),
            Some(_) => None,
        })
        .collect();
    let patch = json!({
        "metadata": { "uid": metadata.uid, "resourceVersion": metadata.resource_version },
        "status": { "conditions": conditions },
    });
    let told = EventSpec {
        regarding: Regarding::of(&NODES, metadata),
        warning: false,
        reason: "NodeNotReady",
        message: format!("Node {} status is now: NodeNotReady", metadata.name),
    };
    let patch = Verb::Patch(Patch::Strategic(patch));
    Write {
        on_success: node.is_ready().then_some(told),
        ..Write::new(&NODES, Key::of(metadata), patch).on("status")
    }
}

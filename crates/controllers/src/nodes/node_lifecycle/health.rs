//! The loop that looks at the health of all nodes, in rounds. A round is a look, which remembers who gave a sign of life and finds
//! what is to be done, and the writes that do it.
//!
//! While the watch of Leases delivers nothing, no round looks at anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fleet::{Fleet, Look, Rules, Sighting, Task, version};
use super::memory::{FleetMemory, Note};
use super::taints::{SILENT, driving, keeping};
use crate::live_reads::HEALTH_NODE;
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

/// Time from a conflict to the next round, which reads the node live.
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
    /// The number of rounds in a row before this one in which a write met a conflict.
    pub(super) conflicts: u32,
}

/// How far a round has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// It begins.
    Look { fleet: Arc<Fleet>, nodes: Vec<Sighting> },
    /// The look has found this.
    Act(Look),
}

impl Room<Note> for Health {
    const HEEDS_FAILURES: bool = true;

    type View = Round;

    fn observe(
        &self,
        _: &Key,
        failures: &[Failure],
        reads: &Reads,
    ) -> Result<Observation<Round>, ObserveError> {
        let covered = self.memory.deliveries.covered();
        let stage = match self.memory.found() {
            Some(look) => Observation::View(Stage::Act(look)),
            None => self.begin(covered, reads),
        };
        let round = |stage| Round {
            covered,
            rules: self.rules,
            period: self.period,
            stage,
            failures: failures.to_vec(),
            conflicts: self.memory.conflicts(),
        };
        Ok(stage.and_then(|stage| Some(round(stage))))
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
    /// Returns the nodes and Leases for a look, with live nodes in place of outdated ones, or the reads that are needed first.
    fn begin(&self, covered: Covered, reads: &Reads) -> Observation<Stage> {
        let (fleet, cached) = (self.memory.fleet(), self.nodes.list());
        // Nothing is judged in silence.
        let outdated = if covered.silent_for.is_none() { fleet.outdated(&cached) } else { Vec::new() };
        let mut live = BTreeMap::new();
        let mut needs = Vec::new();
        for node in outdated {
            match reads.live(&HEALTH_NODE, &NODES, node) {
                Ok(Observation::Needs(lacking)) => needs.extend(lacking),
                Ok(Observation::View(found)) => _ = live.insert(node.metadata.name.clone(), found),
                // The watch reports a node that is gone. A failed read must not delay all other nodes.
                Ok(Observation::Nothing) | Err(_) => {}
            }
        }
        if !needs.is_empty() {
            return Observation::Needs(needs);
        }
        let renewal = |node: &Node| {
            let lease = self.heartbeats.get(&Key::new(LEASES_NAMESPACE, node.metadata.name.clone()))?;
            let renewed = &lease.spec.renew_time;
            Some((renewed.seconds, renewed.nanos))
        };
        let nodes = cached.into_iter().map(|cached| {
            let renewal = renewal(&cached);
            let live = live.remove(&cached.metadata.name);
            // The watch may have been faster than the read.
            let live = live.filter(|live: &Arc<Node>| version(live) >= version(&cached));
            Sighting { is_live: live.is_some(), renewal, node: live.unwrap_or(cached) }
        });
        Observation::View(Stage::Look { fleet, nodes: nodes.collect() })
    }
}

impl Round {
    /// Returns the plan after writes have failed. After a conflict the next round comes soon and reads the node live, as
    /// kube-controller-manager repeats an update. The tokens of taints that met a conflict are given back.
    fn after_failures(&self, plan: Plan) -> Plan<Note> {
        let Stage::Act(look) = &self.stage else { return plan.with_note(Note::Looked(None)) };
        let conflicts = self.failures.iter().filter(|failure| failure.is_conflict());
        let conflicts: BTreeSet<&Str> = conflicts.map(|failure| &failure.key.name).collect();
        let is_conflicted =
            |task: &&Task| task.written().is_some_and(|node| conflicts.contains(&node.metadata.name));
        let tasks: Vec<Task> = look.tasks.iter().filter(is_conflicted).cloned().collect();
        if tasks.is_empty() {
            return Plan { requeue_after: Some(self.next(look)), ..plan }.with_note(Note::Looked(None));
        }
        let is_soon = self.conflicts < MOST_CONFLICTS;
        let wait = if is_soon { AFTER_CONFLICT.min(self.period) } else { self.next(look) };
        let note = Note::Conflicted { tasks, rules: self.rules.zones, is_soon };
        Plan { requeue_after: Some(wait), ..plan }.with_note(note)
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

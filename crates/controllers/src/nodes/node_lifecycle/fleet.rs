//! What is remembered of all nodes, and what a look at them makes of it. Pure.
//!
//! Times are those that deliveries of the watch of Leases cover: while that hears nothing no time passes here. A node's own
//! times are compared for being others, never for their age.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::taints::{NO_EXECUTE, NOT_READY, UNREACHABLE, condition, has, is_driven};
use super::zones::{Zone, ZoneRules, ZoneSize, ZoneState, counts, zone_of};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Str, Time, Uid};

/// What the flags say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// After so long without a sign of life a node is not known to be ready.
    pub(super) grace: Duration,
    /// The same for one that never said whether it is.
    pub(super) startup_grace: Duration,
    pub(super) zones: ZoneRules,
}

/// When a Lease was renewed, by its holder's clock.
pub(super) type Renewal = (i64, i32);

/// What a node has said of its readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Posted {
    /// It has never said anything.
    Never,
    /// It said something, at this time by its own clock, if it told one.
    At(Option<Time>),
}

/// What is remembered of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KnownNode {
    pub(super) uid: Uid,
    /// Where it is, see [`zone_of`].
    pub(super) zone: Str,
    /// Its last heartbeat by status.
    pub(super) heartbeat: Posted,
    pub(super) renewal: Option<Renewal>,
    /// When it gave its last sign of life, or when that begins to count.
    pub(super) alive_at: Duration,
    /// Whether the taint that drives its pods away is ours.
    pub(super) is_ours: bool,
    /// Whether such taints, from before, are to be taken off, which has not succeeded yet.
    pub(super) is_to_be_freed: bool,
    /// When it was to be tainted last: others come before it.
    pub(super) tried_at: Duration,
    /// The resource version at which the health loop has stored the node, or has read it live, last; 0 before the first.
    pub(super) newest: u64,
    pub(super) basis: Basis,
}

/// The object by which a node is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// The cached node.
    Cache,
    /// The live node in the next look, because a write of the node met a conflict.
    Conflict,
    /// The live node, which a look has read at this time, until the cache shows that version.
    Live(Duration),
}

/// A node as a look gets it.
#[derive(Clone, Debug)]
pub(super) struct Sighting {
    pub(super) node: Arc<Node>,
    /// The renewal of its Lease.
    pub(super) renewal: Option<Renewal>,
    /// Whether the node was read live.
    pub(super) is_live: bool,
}

/// All nodes and zones.
#[derive(Clone, Debug, Default)]
pub(super) struct Fleet {
    pub(super) nodes: HashMap<Str, (KnownNode, Arc<Node>)>,
    pub(super) zones: BTreeMap<Str, Zone>,
    /// All zones are fully disrupted: nothing is tainted.
    pub(super) is_stopped: bool,
}

/// Nodes that are marked unknown in one round at most. A round waits for its writes, which take five seconds at 20 requests per second; no
/// Lease is judged and no other node is tainted meanwhile.
pub(super) const MOST_MARKED: usize = 100;

/// Nodes that are read live in one round at most. A round waits for its reads, which take one second at 20 requests per second.
pub(super) const MOST_READ: usize = 20;

/// What is to be done about a node.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// It was seen for the first time.
    Register(Arc<Node>),
    /// It is gone.
    Remove(Arc<Node>),
    /// It has been silent for too long.
    MarkUnknown(Arc<Node>),
    /// Its pods are driven away for another reason than before.
    Swap(Arc<Node>, &'static str),
    /// Its pods are driven away; a token of its zone was taken for that.
    Taint(Arc<Node>, &'static str, Str),
    /// Its pods are not driven away any more.
    Untaint(Arc<Node>),
}

impl Task {
    /// Who comes and goes, by name, then what is to be done about who is there, by name, then who is driven away, as they are.
    fn order(&self) -> (u8, &str) {
        match self {
            Self::Register(node) => (0, &node.metadata.name),
            Self::Remove(node) => (1, &node.metadata.name),
            Self::MarkUnknown(node) | Self::Swap(node, _) | Self::Untaint(node) => (2, &node.metadata.name),
            Self::Taint(..) => (3, ""),
        }
    }

    /// Returns the node that the task writes.
    pub(super) fn written(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Register(_) | Self::Remove(_) => None,
            Self::MarkUnknown(node) | Self::Swap(node, _) | Self::Taint(node, ..) | Self::Untaint(node) => {
                Some(node)
            }
        }
    }
}

/// What a look found.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) fleet: Fleet,
    pub(super) tasks: Vec<Task>,
    /// When a token comes that a node waits for.
    pub(super) next_token: Option<Duration>,
    /// Whether further nodes are to be marked unknown.
    pub(super) has_more: bool,
}

impl KnownNode {
    /// What is known of a node once it was looked at.
    fn seen(before: Option<&(Self, Arc<Node>)>, sighting: &Sighting, now: Duration) -> Self {
        let Sighting { node, renewal, is_live } = sighting;
        let (renewal, is_live) = (*renewal, *is_live);
        // While tokens are waited for, a large cluster is looked at several times a second, and hardly a node has changed.
        let (before, zone) = match before {
            Some((known, held)) if Arc::ptr_eq(held, node) => (Some(known), known.zone.clone()),
            before => (before.map(|(known, _)| known), zone_of(node)),
        };
        let Some(before) = before.filter(|before| before.uid == node.metadata.uid) else {
            return Self {
                uid: node.metadata.uid.clone(),
                zone,
                heartbeat: heartbeat(node),
                renewal,
                alive_at: now,
                is_ours: false,
                is_to_be_freed: is_driven(node),
                tried_at: Duration::ZERO,
                newest: 0,
                basis: Basis::Cache,
            };
        };
        // The cached node is older than the one that was written or read live.
        let is_behind = !is_live && before.is_behind(node);
        let heartbeat = if is_behind { before.heartbeat } else { heartbeat(node) };
        let has_posted = heartbeat != Posted::Never && heartbeat != before.heartbeat;
        let has_renewed = renewal.is_some_and(|renewal| before.renewal.is_none_or(|held| renewal > held));
        let mut seen = Self { zone, heartbeat, ..before.clone() };
        if has_posted || has_renewed {
            seen.alive_at = now;
        }
        if has_renewed {
            seen.renewal = renewal;
        } else if has_posted {
            // As in the original: a Lease that is there counts once more at the next look.
            seen.renewal = None;
        }
        if !is_behind {
            seen.is_ours &= is_driven(node);
            seen.is_to_be_freed &= is_driven(node);
            seen.basis = Basis::Cache;
        }
        if is_live {
            seen.basis = Basis::Live(now);
            seen.newest = version(node).unwrap_or(seen.newest);
        }
        seen
    }

    /// Returns whether the cached node does not show the last write or the last live read of the health loop. Such a node is not judged:
    /// the write would be refused.
    fn is_behind(&self, node: &Node) -> bool {
        self.newest > 0 && version(node).is_some_and(|cached| cached < self.newest)
    }

    /// A write of the node met a conflict. A node that was judged as cached is tainted before others in the next round, which reads the
    /// node live. After a conflict of a live node the others are first, so that no node uses up all tries of its zone.
    pub(super) fn conflicted(&mut self) {
        if self.basis == Basis::Cache {
            self.tried_at = Duration::ZERO;
        }
        self.basis = Basis::Conflict;
    }

    /// This controller says of it that it is not known to be ready: that is no sign of life, though it tells of a time.
    pub(super) fn is_marked(&mut self, node: &Node) {
        if self.heartbeat == Posted::Never {
            self.heartbeat = Posted::At(node.metadata.creation_timestamp);
        }
    }

    /// Whether it has been silent for longer than its grace.
    pub(super) fn is_silent(&self, rules: &Rules, now: Duration) -> bool {
        now.saturating_sub(self.alive_at) > self.grace(rules)
    }

    /// How long it may be silent.
    pub(super) fn grace(&self, rules: &Rules) -> Duration {
        if self.heartbeat == Posted::Never { rules.startup_grace } else { rules.grace }
    }
}

/// Returns the resource version as a number. KEP-5504: versions are comparable integers.
pub(super) fn version(node: &Node) -> Option<u64> {
    node.metadata.resource_version.parse().ok()
}

/// What a node says of its readiness.
fn heartbeat(node: &Node) -> Posted {
    let ready = node.status.conditions.iter().find(|held| held.r#type == "Ready");
    ready.map_or(Posted::Never, |ready| Posted::At(ready.last_heartbeat_time))
}

/// The taint that belongs to what a node says of itself; `None` if it is ready, or has never said anything.
fn wanted(node: &Node) -> Option<&'static str> {
    match condition(node, "Ready") {
        Some("False") => Some(NOT_READY),
        Some("Unknown") => Some(UNREACHABLE),
        _ => None,
    }
}

impl Fleet {
    /// Returns the cached nodes to read live, [`MOST_READ`] at most: first those whose last write met a conflict, then those that the
    /// cache still shows at an older version than was read, the one that was read longest ago first.
    pub(super) fn outdated<'n>(&self, cached: &'n [Arc<Node>]) -> Vec<&'n Arc<Node>> {
        let mut outdated: Vec<(Duration, &'n Str, &'n Arc<Node>)> = Vec::new();
        for node in cached {
            let known = self.nodes.get(&node.metadata.name).map(|(known, _)| known);
            let Some(known) = known.filter(|known| known.uid == node.metadata.uid) else { continue };
            let read_at = match known.basis {
                Basis::Conflict => Duration::ZERO,
                Basis::Live(read_at) if known.is_behind(node) => read_at,
                Basis::Cache | Basis::Live(_) => continue,
            };
            outdated.push((read_at, &node.metadata.name, node));
        }
        outdated.sort_unstable_by_key(|(read_at, name, _)| (*read_at, *name));
        outdated.into_iter().take(MOST_READ).map(|(.., node)| node).collect()
    }

    /// Looks at all nodes at a time that counts.
    pub(super) fn look(&self, nodes: Vec<Sighting>, rules: &Rules, now: Duration) -> Look {
        let mut look = Look::default();
        look.fleet.nodes.reserve(nodes.len());
        let mut sizes: BTreeMap<Str, ZoneSize> = BTreeMap::new();
        for sighting in nodes {
            let before = self.nodes.get(&sighting.node.metadata.name);
            let known = KnownNode::seen(before, &sighting, now);
            let node = sighting.node;
            if !look.fleet.zones.contains_key(&known.zone) {
                let zone = self.zones.get(&known.zone).cloned().unwrap_or_default();
                look.fleet.zones.insert(known.zone.clone(), zone);
            }
            if counts(&node) {
                let is_ready = node.is_ready() && !known.is_silent(rules, now);
                let size = sizes.entry(known.zone.clone()).or_default();
                *(if is_ready { &mut size.ready } else { &mut size.unready }) += 1;
            }
            if before.is_none() {
                look.tasks.push(Task::Register(Arc::clone(&node)));
            }
            look.fleet.nodes.insert(node.metadata.name.clone(), (known, node));
        }
        let gone = self.nodes.iter().filter(|(name, _)| !look.fleet.nodes.contains_key(*name));
        let gone: Vec<Task> = gone.map(|(_, (_, node))| Task::Remove(Arc::clone(node))).collect();
        look.tasks.extend(gone);
        look.judge_zones(self.is_stopped, &sizes, rules, now);
        look.judge_nodes(rules, now);
        // In an order that does not hang on how they are kept; taints are in that of their zones' queues.
        look.tasks.sort_by(|one, other| one.order().cmp(&other.order()));
        look
    }
}

impl Look {
    /// Judges the zones.
    fn judge_zones(
        &mut self,
        was_stopped: bool,
        sizes: &BTreeMap<Str, ZoneSize>,
        rules: &Rules,
        now: Duration,
    ) {
        let fleet = &mut self.fleet;
        for (name, zone) in &mut fleet.zones {
            zone.size = sizes.get(name).copied().unwrap_or_default();
        }
        let is_full = |size: &ZoneSize| size.state(&rules.zones) == ZoneState::Full;
        fleet.is_stopped = !sizes.is_empty() && sizes.values().all(is_full);
        if fleet.is_stopped {
            fleet.zones.values_mut().for_each(Zone::stop);
            for (known, node) in fleet.nodes.values_mut().filter(|_| !was_stopped) {
                // The cache may not show a taint yet, which is removed once it is shown.
                known.is_to_be_freed = is_driven(node) || known.is_behind(node);
            }
            return;
        }
        if was_stopped && !sizes.is_empty() {
            for (known, _) in fleet.nodes.values_mut() {
                known.alive_at = now;
            }
        }
        for (name, size) in sizes {
            if let Some(zone) = fleet.zones.get_mut(name) {
                zone.enter(size.state(&rules.zones), &rules.zones, was_stopped, now);
            }
        }
    }

    /// What is to be done about each node.
    fn judge_nodes(&mut self, rules: &Rules, now: Duration) {
        let mut waiting: BTreeMap<Str, Vec<(Duration, Str, &'static str)>> = BTreeMap::new();
        let mut silent: Vec<(Duration, &Str, &Arc<Node>)> = Vec::new();
        let tasks = &mut self.tasks;
        for (name, (known, node)) in &self.fleet.nodes {
            if known.is_behind(node) {
                continue;
            }
            if known.is_to_be_freed {
                tasks.push(Task::Untaint(Arc::clone(node)));
                continue;
            }
            if known.is_silent(rules, now) && condition(node, "Ready") != Some("Unknown") {
                silent.push((known.alive_at, name, node));
                continue;
            }
            match wanted(node) {
                None if node.is_ready() && is_driven(node) => tasks.push(Task::Untaint(Arc::clone(node))),
                None => {}
                Some(key) => {
                    let other = if key == NOT_READY { UNREACHABLE } else { NOT_READY };
                    if has(node, other, NO_EXECUTE) {
                        tasks.push(Task::Swap(Arc::clone(node), key));
                    } else if !(known.is_ours && has(node, key, NO_EXECUTE)) {
                        waiting.entry(known.zone.clone()).or_default().push((
                            known.tried_at,
                            name.clone(),
                            key,
                        ));
                    }
                }
            }
        }
        // The nodes that have been silent longest are first.
        silent.sort_unstable_by_key(|(alive_at, name, _)| (*alive_at, *name));
        self.has_more |= silent.len() > MOST_MARKED;
        tasks.extend(silent.iter().take(MOST_MARKED).map(|(.., node)| Task::MarkUnknown(Arc::clone(node))));
        for (zone, mut nodes) in waiting {
            nodes.sort();
            self.taint(&zone, nodes, rules, now);
        }
    }

    /// Taints as many of a zone's nodes as there are tokens, those that were not tried for longest first.
    fn taint(&mut self, name: &Str, nodes: Vec<(Duration, Str, &'static str)>, rules: &Rules, now: Duration) {
        let Some(zone) = self.fleet.zones.get_mut(name) else { return };
        for (_, node, key) in nodes {
            if !zone.take(&rules.zones, now) {
                if let Some(wait) = zone.wait(&rules.zones, now) {
                    self.next_token = Some(self.next_token.map_or(wait, |earlier| earlier.min(wait)));
                }
                return;
            }
            if let Some((known, node)) = self.fleet.nodes.get_mut(&node) {
                known.tried_at = now;
                self.tasks.push(Task::Taint(Arc::clone(node), key, name.clone()));
            }
        }
    }
}

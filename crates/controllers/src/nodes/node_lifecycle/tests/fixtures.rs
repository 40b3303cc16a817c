//! Nodes that are played, and rounds that are carried out on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::fleet::{Fleet, Renewal, Rules, Sighting, Task};
use super::super::taints::{NO_EXECUTE, NOT_READY, UNREACHABLE};
use super::super::zones::ZoneRules;
use coxswain_machinery::api::core::{Node, NodeCondition, Taint};
use coxswain_machinery::wire::Time;

pub(super) const RULES: Rules = Rules {
    grace: Duration::from_secs(50),
    startup_grace: Duration::from_mins(1),
    zones: ZoneRules { primary: 0.1, secondary: 0.01, large: 50, threshold: 0.55 },
};

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn set(node: &mut Node, kind: &str, status: &str) {
    node.status.conditions.retain(|held| held.r#type != kind);
    node.status.conditions.push(NodeCondition {
        r#type: kind.into(),
        status: status.into(),
        last_heartbeat_time: Time::from_seconds(1000),
        ..NodeCondition::default()
    });
}

pub(super) fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.into(), effect: effect.into(), ..Taint::default() }
}

/// A node of a zone that says that it is ready.
pub(super) fn node(name: &str, zone: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = name.into();
    node.metadata.uid = format!("{name}-uid").into();
    node.metadata.resource_version = "7".into();
    node.metadata.creation_timestamp = Time::from_seconds(900);
    node.metadata.labels = [("topology.kubernetes.io/zone", zone)].into_iter().collect();
    set(&mut node, "Ready", "True");
    node
}

/// A cluster, and what is remembered of it.
#[derive(Default)]
pub(super) struct World {
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) renewals: BTreeMap<String, Renewal>,
    pub(super) fleet: Fleet,
    pub(super) now: Duration,
    pub(super) next_token: Option<Duration>,
    /// Nodes that were tainted with a token.
    pub(super) tainted: usize,
}

impl World {
    pub(super) fn of(nodes: impl IntoIterator<Item = Node>) -> Self {
        let nodes = nodes.into_iter().map(|node| (node.metadata.name.to_string(), node));
        Self { nodes: nodes.collect(), ..Self::default() }
    }

    /// `count` nodes in each zone, named after it: `a0`, `a1`, `b0` …
    pub(super) fn zones(zones: &[&str], count: usize) -> Self {
        let names = zones.iter().flat_map(|zone| (0..count).map(move |at| (format!("{zone}{at}"), *zone)));
        Self::of(names.map(|(name, zone)| node(&name, zone)))
    }

    pub(super) fn renew(&mut self, is_renewed: impl Fn(&str) -> bool) {
        for name in self.nodes.keys().filter(|name| is_renewed(name)) {
            self.renewals.entry(name.clone()).or_default().0 += 1;
        }
    }

    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        change(self.nodes.get_mut(name).expect("the node"));
    }

    /// A round whose writes all succeed: what was done, as `VERB NODE`.
    pub(super) fn round(&mut self) -> Vec<String> {
        let tasks = self.look();
        tasks.iter().map(|task| self.carry_out(task)).collect()
    }

    /// One whose writes are all refused: what was tried.
    pub(super) fn refused_round(&mut self) -> Vec<String> {
        let tasks = self.look();
        let before = (self.nodes.clone(), self.fleet.clone(), self.tainted);
        let tried = tasks.iter().map(|task| self.carry_out(task)).collect();
        (self.nodes, self.fleet, self.tainted) = before;
        tried
    }

    fn look(&mut self) -> Vec<Task> {
        let nodes = self.nodes.iter().map(|(name, node)| Sighting {
            node: Arc::new(node.clone()),
            renewal: self.renewals.get(name).copied(),
            is_live: false,
        });
        let look = self.fleet.look(nodes.collect(), &RULES, self.now);
        (self.fleet, self.next_token) = (look.fleet, look.next_token);
        look.tasks
    }

    fn carry_out(&mut self, task: &Task) -> String {
        let name = |node: &Arc<Node>| node.metadata.name.to_string();
        let mut drive = |node: &Arc<Node>, key: Option<&str>| {
            let held = self.nodes.get_mut(node.metadata.name.as_str()).expect("the node");
            let driving = |taint: &Taint| taint.key == NOT_READY || taint.key == UNREACHABLE;
            held.spec.taints.retain(|taint| !(taint.effect == NO_EXECUTE && driving(taint)));
            held.spec.taints.extend(key.map(|key| taint(key, NO_EXECUTE)));
        };
        match task {
            Task::Register(node) => format!("register {}", name(node)),
            Task::Remove(node) => format!("remove {}", name(node)),
            Task::Untaint(node) => {
                drive(node, None);
                format!("untaint {}", name(node))
            }
            Task::Swap(node, key) => {
                drive(node, Some(*key));
                format!("swap {}", name(node))
            }
            Task::Taint(node, key, _) => {
                drive(node, Some(*key));
                self.tainted += 1;
                let (known, _) = self.fleet.nodes.get_mut(&node.metadata.name).expect("known");
                known.is_ours = true;
                format!("taint {}", name(node))
            }
            Task::MarkUnknown(node) => {
                let held = self.nodes.get_mut(node.metadata.name.as_str()).expect("the node");
                let heartbeat = held.status.conditions.first().and_then(|ready| ready.last_heartbeat_time);
                set(held, "Ready", "Unknown");
                let heartbeat = heartbeat.or(node.metadata.creation_timestamp);
                held.status.conditions[0].last_heartbeat_time = heartbeat;
                let (known, _) = self.fleet.nodes.get_mut(&node.metadata.name).expect("known");
                known.is_marked(node);
                format!("mark {}", name(node))
            }
        }
    }

    /// Rounds for so many seconds, one each; nodes that are renewed renew each second. What was done, without who came.
    pub(super) fn pass(&mut self, time: u64, is_renewed: impl Fn(&str) -> bool) -> Vec<String> {
        let mut done = Vec::new();
        for _ in 0..time {
            self.now += seconds(1);
            self.renew(&is_renewed);
            done.extend(self.round());
        }
        done
    }
}

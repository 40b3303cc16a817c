//! The taints of a node that this controller has a say in, and the patch that makes them what they should be. Pure: others'
//! taints, their order and their values stay as they are.

use jiff::Timestamp;
use serde_json::{Value, json};

use coxswain_machinery::api::core::{Node, Taint};
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::model::plan::{Patch, Verb};
use coxswain_machinery::model::{Key, Write};
use coxswain_machinery::wire::Time;

pub(super) const NO_SCHEDULE: &str = "NoSchedule";
pub(super) const NO_EXECUTE: &str = "NoExecute";
pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Which condition with which status makes which `NoSchedule` taint.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// Keys of taints that are to be there, and of those that are not, with one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaintChange {
    effect: &'static str,
    add: Vec<&'static str>,
    remove: Vec<&'static str>,
    /// Whether one that is there gets a new time.
    anew: bool,
}

/// The status of a condition.
pub(super) fn condition<'n>(node: &'n Node, kind: &str) -> Option<&'n str> {
    node.status.conditions.iter().find(|held| held.r#type == kind).map(|held| held.status.as_str())
}

/// The reason of conditions of a node that was heard of before and is silent now.
pub(super) const SILENT: &str = "NodeStatusUnknown";

/// Whether this controller has said of a node that it is not known to be ready.
pub(super) fn is_marked(node: &Node) -> bool {
    let mut ready = node.status.conditions.iter().filter(|held| held.r#type == "Ready");
    ready.any(|held| held.status == "Unknown" && held.reason == SILENT)
}

/// Whether a node has this taint.
pub(super) fn has(node: &Node, key: &str, effect: &str) -> bool {
    node.spec.taints.iter().any(|held| held.key == key && held.effect == effect)
}

/// Whether it has one of the taints that drive pods away for its health.
pub(super) fn is_driven(node: &Node) -> bool {
    [NOT_READY, UNREACHABLE].iter().any(|key| has(node, key, NO_EXECUTE))
}

/// What a node's conditions, and that somebody cordoned it, ask for; `None` if it is so.
pub(super) fn by_conditions(node: &Node) -> Option<TaintChange> {
    let is_wanted = |(kind, status, _): &(&str, &str, &str)| condition(node, kind) == Some(*status);
    let mut wanted: Vec<&'static str> =
        BY_CONDITION.iter().filter(|row| is_wanted(row)).map(|(.., key)| *key).collect();
    if node.spec.unschedulable {
        wanted.push(UNSCHEDULABLE);
    }
    let owned = BY_CONDITION.iter().map(|(.., key)| *key).chain([UNSCHEDULABLE]);
    let is_there = |key: &&str| has(node, key, NO_SCHEDULE);
    let remove: Vec<_> = owned.filter(|key| !wanted.contains(key)).filter(is_there).collect();
    let add: Vec<_> = wanted.into_iter().filter(|key| !is_there(key)).collect();
    let is_so = add.is_empty() && remove.is_empty();
    (!is_so).then_some(TaintChange { effect: NO_SCHEDULE, add, remove, anew: false })
}

/// One of the two taints that drive pods away, and not the other.
pub(super) fn driving(key: &'static str) -> TaintChange {
    let other = if key == NOT_READY { UNREACHABLE } else { NOT_READY };
    TaintChange { effect: NO_EXECUTE, add: vec![key], remove: vec![other], anew: true }
}

/// Neither of them.
pub(super) fn keeping() -> TaintChange {
    TaintChange { effect: NO_EXECUTE, add: Vec::new(), remove: vec![UNREACHABLE, NOT_READY], anew: false }
}

impl TaintChange {
    /// The write that makes it so, at the resource version that was judged.
    pub(super) fn write(&self, node: &Node, now: Timestamp) -> Write {
        let time = Time::from(now).to_string();
        let added = |key: &str| json!({ "key": key, "effect": self.effect, "timeAdded": time });
        let mut missing = self.add.clone();
        let held = node.spec.taints.iter().filter_map(|taint| {
            let is_ours = taint.effect == self.effect;
            // Linear: the controller has seven taints of its own.
            if is_ours && self.remove.iter().any(|key| taint.key == **key) {
                return None;
            }
            match missing.iter().position(|key| is_ours && taint.key == **key) {
                Some(at) => {
                    let key = missing.remove(at);
                    Some(if self.anew { added(key) } else { as_json(taint) })
                }
                None => Some(as_json(taint)),
            }
        });
        let mut taints: Vec<Value> = held.collect();
        taints.extend(missing.iter().map(|key| added(key)));
        let taints = if taints.is_empty() { Value::Null } else { taints.into() };
        let metadata = &node.metadata;
        let patch = json!({
            "metadata": { "uid": metadata.uid, "resourceVersion": metadata.resource_version },
            "spec": { "taints": taints },
        });
        Write::new(&NODES, Key::of(metadata), Verb::Patch(Patch::Strategic(patch)))
    }
}

fn as_json(taint: &Taint) -> Value {
    let mut json = json!({ "key": taint.key, "effect": taint.effect });
    if !taint.value.is_empty() {
        json["value"] = taint.value.as_str().into();
    }
    if let Some(time) = taint.time_added {
        json["timeAdded"] = time.to_string().into();
    }
    json
}

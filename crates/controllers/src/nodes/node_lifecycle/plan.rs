//! What a node's own words make of it: `NoSchedule` taints, and two old labels that follow new ones; and why, in words.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::taints::{NOT_READY, UNREACHABLE, by_conditions, condition, has, is_driven};
use super::view::View;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::model::plan::{Patch, Tolerate, Verb};
use coxswain_machinery::model::words::{count, time, verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};

/// Labels, and the old ones that follow them.
const LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

pub(super) fn plan(view: &View, now: Timestamp) -> Plan {
    let taints = by_conditions(&view.node).map(|change| change.write(&view.node, now));
    let tolerate = Tolerate { absent: true, ..Tolerate::default() };
    // Either is tried whatever becomes of the other.
    let writes: Vec<Write> = taints
        .into_iter()
        .chain(labels(&view.node))
        .map(|write| Write { tolerate, keep_going: true, ..write })
        .collect();
    let steps = writes.into_iter().map(Step::Write).collect();
    Plan { steps, ..Plan::default() }
}

/// The old labels, where they do not say what the new ones do.
fn labels(node: &Node) -> Option<Write> {
    let labels = &node.metadata.labels;
    let missing: Map<String, Value> = LABELS
        .iter()
        .filter_map(|(of, to)| {
            labels.get(of).filter(|wanted| labels.get(to) != Some(wanted)).map(|wanted| (to, wanted))
        })
        .map(|(to, wanted)| ((*to).to_owned(), Value::from(wanted.as_str())))
        .collect();
    (!missing.is_empty()).then(|| {
        let patch = json!({ "metadata": { "uid": node.metadata.uid, "labels": missing } });
        Write::new(&NODES, Key::of(&node.metadata), Verb::Patch(Patch::Strategic(patch)))
    })
}

pub(super) fn reasons(view: &View) -> Vec<String> {
    let node = &view.node;
    let mut reasons = Vec::new();
    if let Some(silent) = view.covered.silent_for {
        let silent = time(silent);
        reasons.push(format!(
            "The Lease watch has delivered no event for {silent}; this time does not count toward the grace \
             period of a node."
        ));
    }
    let ready = condition(node, "Ready").unwrap_or("absent");
    let silence = match &view.known {
        None => "its health has not been evaluated yet".to_owned(),
        Some(known) => {
            let silence = time(view.covered.time.saturating_sub(known.alive_at));
            format!(
                "its last heartbeat was {silence} ago, and the grace period is {}",
                time(known.grace(&view.rules))
            )
        }
    };
    reasons.push(format!("The condition Ready is {ready}; {silence}."));
    if let Some(zone) = &view.zone {
        let (unready, all) = (zone.size.unready, zone.size.all());
        let is = verb(unready, "is", "are");
        let what = match zone.interval(&view.rules.zones) {
            _ if view.is_stopped => {
                "and no other zone has a ready node, so no node is tainted for eviction".to_owned()
            }
            None => "too many for a small zone, so none of them is tainted for eviction".to_owned(),
            Some(interval) => format!("so one of them is tainted for eviction every {}", time(interval)),
        };
        reasons.push(format!("In its zone, {unready} of {} {is} not ready, {what}.", count(all, "node")));
    }
    if is_driven(node) {
        let keys =
            [NOT_READY, UNREACHABLE].into_iter().filter(|key| has(node, key, super::taints::NO_EXECUTE));
        let keys: Vec<_> = keys.collect();
        reasons.push(format!(
            "The node has the taint {}; pods that do not tolerate it are evicted.",
            keys.join(" and ")
        ));
    }
    reasons
}

//! What becomes of a node: it has its ranges, it gets them, or it is said why not.

use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::json;

use super::blocks::Free;
use super::pool::{Note, Standing};
use super::view::View;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::model::plan::{EventSpec, Patch, Regarding, Tolerate, Verb};
use coxswain_machinery::model::{Key, Plan, Step, Write};

/// Number of failed patches in a row after which `CIDRAssignmentFailed` is emitted, as by kube-controller-manager.
const TRIES: u32 = 3;

pub(super) fn plan(view: &View, _: Timestamp) -> Plan<Note> {
    let plan = Plan::default();
    if view.failures > 0 {
        let is_told = view.failures.is_multiple_of(TRIES);
        let told = is_told.then(|| Step::Emit(event(&view.node, "CIDRAssignmentFailed")));
        let note = Note { failures: view.failures, failed: view.failed.clone(), ..Note::default() };
        return Plan { steps: told.into_iter().collect(), ..plan }.with_note(note);
    }
    if !view.failed.is_empty() {
        // These nodes have keys of their own.
        return Plan { end: true, ..plan }.with_note(Note { failed: view.failed.clone(), ..Note::default() });
    }
    let waits = Note { waits: true, ..Note::default() };
    match &view.standing {
        Standing::Fits => plan.with_note(Note::default()),
        Standing::Misfits(why) => {
            let error = format!("node {} {why}", view.node.metadata.name);
            Plan { retry: Some(error), ..plan }.with_note(Note::default())
        }
        // kube-controller-manager does not start then, which every alert on restarts sees.
        // Differs: nodes-outside-the-ranges.
        Standing::Held(why) => Plan {
            steps: vec![Step::Emit(event(&view.node, "CIDRNotAvailable"))],
            retry: Some(format!("allocation of Pod CIDRs is suspended: {why}")),
            ..plan
        }
        .with_note(waits),
        Standing::Full(range) => Plan {
            steps: vec![Step::Emit(event(&view.node, "CIDRNotAvailable"))],
            retry: Some(format!("no free block in {range}")),
            ..plan
        }
        .with_note(waits),
        Standing::Gets(blocks) => {
            let others = view.others.iter().map(|(node, blocks)| (node, blocks));
            let all: Vec<_> = std::iter::once((&view.node, blocks)).chain(others).collect();
            let writes = all.iter().enumerate().map(|(item, (node, blocks))| write(node, blocks, item));
            let given = all.iter().map(|(node, blocks)| {
                (Key::of(&node.metadata), blocks.iter().map(|(free, _)| *free).collect())
            });
            let note = Note { given: given.collect(), ..Note::default() };
            Plan { steps: vec![Step::Each(writes.collect())], ..plan }.with_note(note)
        }
    }
}

/// The patch that gives a node its blocks; `item` is that of the note.
fn write(node: &Node, blocks: &[(Free, IpNet)], item: usize) -> Write {
    let ranges: Vec<String> = blocks.iter().map(|(_, range)| range.to_string()).collect();
    let metadata = &node.metadata;
    // The API server takes ranges once; so what was not seen yet is not undone.
    let patch = json!({
        "metadata": { "uid": metadata.uid },
        "spec": { "podCIDR": ranges.first(), "podCIDRs": ranges },
    });
    Write {
        tolerate: Tolerate { absent: true, ..Tolerate::default() },
        item: Some(item),
        ..Write::new(&NODES, Key::of(metadata), Verb::Patch(Patch::Strategic(patch)))
    }
}

fn event(node: &Node, reason: &'static str) -> EventSpec {
    EventSpec {
        regarding: Regarding::of(&NODES, &node.metadata),
        warning: false,
        reason,
        message: format!("Node {} status is now: {reason}", node.metadata.name),
    }
}

pub(super) fn reasons(view: &View) -> Vec<String> {
    let ranges = view.node.spec.pod_cidrs.join(" and ");
    vec![match &view.standing {
        Standing::Fits => format!("The node has the Pod CIDRs {ranges}."),
        Standing::Misfits(why) => format!("The node {why}; it is not changed."),
        Standing::Held(why) => format!("Allocation of Pod CIDRs is suspended: {why}."),
        Standing::Full(range) => {
            format!("The range {range} has no free block; the node waits until another node is deleted.")
        }
        Standing::Gets(_) => "The node has no Pod CIDR yet; a free block is allocated.".to_owned(),
    }]
}

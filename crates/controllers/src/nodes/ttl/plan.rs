//! The annotation, where it is not there or says another number; and why, in words.

use std::time::Duration;

use serde_json::json;

use super::view::View;
use coxswain_machinery::api::kinds::NODES;
use coxswain_machinery::model::plan::{Patch, Tolerate, Verb};
use coxswain_machinery::model::words::{count, time};
use coxswain_machinery::model::{Key, Plan, Step, Write};

/// The annotation.
const TTL: &str = "node.alpha.kubernetes.io/ttl";

pub(super) fn plan(view: &View) -> Plan {
    let mut plan = Plan::default();
    if !is_said(view) {
        let metadata = &view.node.metadata;
        let patch = json!({
            "metadata": { "uid": metadata.uid, "annotations": { TTL: view.seconds.to_string() } },
        });
        let patch = Verb::Patch(Patch::Strategic(patch));
        plan.steps.push(Step::Write(Write {
            tolerate: Tolerate { absent: true, ..Tolerate::default() },
            ..Write::new(&NODES, Key::of(metadata), patch)
        }));
    }
    plan
}

/// Whether the number is there, however it is written.
fn is_said(view: &View) -> bool {
    let held = view.node.metadata.annotations.get(TTL);
    held.and_then(|text| text.parse::<i64>().ok()) == Some(i64::from(view.seconds))
}

pub(super) fn reasons(view: &View) -> Vec<String> {
    let nodes = count(view.count, "node");
    let cached = match view.seconds {
        0 => "the node's kubelet does not cache Secrets and ConfigMaps".to_owned(),
        seconds => {
            let seconds = time(Duration::from_secs(u64::from(seconds)));
            format!("the node's kubelet may cache Secrets and ConfigMaps for {seconds}")
        }
    };
    let what =
        if is_said(view) { "and the annotation is up to date" } else { "and the annotation is updated" };
    vec![format!("The cluster has {nodes}; {cached}, {what}.")]
}

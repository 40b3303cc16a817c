//! Taints by conditions, labels, and the bodies of writes.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::taints::{
    NO_EXECUTE, NO_SCHEDULE, NOT_READY, UNREACHABLE, by_conditions, driving, keeping,
};
use super::super::view::View;
use super::super::{Controller, plan};
use super::fixtures::{RULES, node, set, taint};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::framework::Room;
use coxswain_machinery::informer::Covered;
use coxswain_machinery::model::Write;
use coxswain_machinery::model::plan::{Patch, Verb};

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn body(write: &Write) -> Value {
    let Verb::Patch(Patch::Strategic(patch)) = &write.verb else { panic!("{write}") };
    patch.clone()
}

/// The keys that conditions leave on a node, in order.
fn keys(change: impl FnOnce(&mut Node)) -> Option<Vec<String>> {
    let mut node = node("n", "");
    change(&mut node);
    let patch = body(&by_conditions(&node)?.write(&node, now()));
    let taints = patch["spec"]["taints"].as_array().cloned().unwrap_or_default();
    Some(taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect())
}

#[test]
fn conditions_become_taints_and_what_others_have_set_stays() {
    assert_eq!(keys(|_| {}), None);
    let expected = |names: &[&str]| {
        Some(names.iter().map(|name| format!("node.kubernetes.io/{name}")).collect::<Vec<_>>())
    };
    assert_eq!(keys(|node| set(node, "Ready", "False")), expected(&["not-ready"]));
    assert_eq!(keys(|node| set(node, "Ready", "Unknown")), expected(&["unreachable"]));
    assert_eq!(keys(|node| node.spec.unschedulable = true), expected(&["unschedulable"]));
    let all = |node: &mut Node| {
        node.spec.unschedulable = true;
        for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"] {
            set(node, kind, "True");
        }
    };
    assert_eq!(
        keys(all),
        expected(&[
            "memory-pressure",
            "disk-pressure",
            "pid-pressure",
            "network-unavailable",
            "unschedulable"
        ])
    );
    assert_eq!(keys(|node| set(node, "MemoryPressure", "Unknown")), None);
    // Admission gives every new node a taint, which a node that says nothing of itself does not want.
    let bare = |node: &mut Node| {
        node.status.conditions.clear();
        node.spec.taints = vec![taint(NOT_READY, NO_SCHEDULE), taint("example.com/own", NO_SCHEDULE)];
    };
    assert_eq!(keys(bare), Some(vec!["example.com/own".to_owned()]));
    let others = |node: &mut Node| {
        set(node, "Ready", "False");
        let mut valued = taint(NOT_READY, NO_SCHEDULE);
        valued.value = "by hand".into();
        node.spec.taints = vec![valued, taint(UNREACHABLE, NO_EXECUTE)];
    };
    assert_eq!(keys(others), None, "a value that somebody gave is left alone, and so are other effects");
}

#[test]
fn a_write_holds_all_taints_and_the_version_that_was_judged() {
    let mut tainted = node("n", "");
    let mut held = taint(UNREACHABLE, NO_EXECUTE);
    held.time_added = coxswain_machinery::wire::Time::from_seconds(60);
    tainted.spec.taints = vec![taint("example.com/own", "NoSchedule"), held];
    let time = "2023-11-14T22:13:20Z";
    assert_eq!(
        body(&driving(NOT_READY).write(&tainted, now())),
        json!({
            "metadata": { "uid": "n-uid", "resourceVersion": "7" },
            "spec": { "taints": [
                { "key": "example.com/own", "effect": "NoSchedule" },
                { "key": NOT_READY, "effect": "NoExecute", "timeAdded": time },
            ] },
        })
    );
    let anew = body(&driving(UNREACHABLE).write(&tainted, now()));
    assert_eq!(anew["spec"]["taints"][1]["timeAdded"], time, "set anew, in its place");
    let kept = body(&keeping().write(&tainted, now()));
    assert_eq!(kept["spec"]["taints"], json!([{ "key": "example.com/own", "effect": "NoSchedule" }]));
    tainted.spec.taints.remove(0);
    assert_eq!(body(&keeping().write(&tainted, now()))["spec"]["taints"], Value::Null);
}

fn view(node: Node) -> View {
    View {
        node: Arc::new(node),
        known: None,
        zone: None,
        is_stopped: false,
        covered: Covered::default(),
        rules: RULES,
    }
}

#[test]
fn old_labels_follow_the_new_ones_beside_the_taints() {
    let mut labeled = node("n", "");
    set(&mut labeled, "Ready", "False");
    labeled.metadata.labels = [
        ("kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/os", "plan9"),
        ("beta.kubernetes.io/arch", "arm"),
    ]
    .into_iter()
    .collect();
    let plan = plan::plan(&view(labeled), now());
    let writes: Vec<&Write> = plan.writes().collect();
    assert_eq!(writes.len(), 2);
    assert!(writes.iter().all(|write| write.keep_going));
    assert_eq!(
        body(writes[1]),
        json!({ "metadata": { "uid": "n-uid", "labels": { "beta.kubernetes.io/os": "linux" } } })
    );
}

#[test]
fn reasons_tell_of_silence_and_of_a_view_that_is_not_known_to_be_current() {
    let mut view = view(node("n", ""));
    let told = |view: &View| Controller::reasons(view, now()).join(" ");
    assert_eq!(told(&view), "The condition Ready is True; its health has not been evaluated yet.");
    view.covered.silent_for = Some(std::time::Duration::from_secs(90));
    assert!(told(&view).starts_with("The Lease watch has delivered no event for 1m 30s"));
}

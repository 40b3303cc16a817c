//! Why volumes come and go, and what they wait for, in words.

use super::book::{Held, PATIENCE, State, Task, lists};
use super::go::{Leave, leave};
use super::source::Source;
use super::view::View;
use coxswain_machinery::api::core::Node;
use coxswain_machinery::model::words::{names, time};

pub(super) fn reasons(view: &View) -> Vec<String> {
    let mut said = Vec::new();
    if view.node.is_none() {
        said.push("The node does not exist.".to_owned());
    } else if !view.book.is_managed {
        said.push("The kubelet of this node attaches volumes; the controller attaches none.".to_owned());
    }
    for (volume, held) in &view.book.held {
        let name = name(volume, held);
        let told = match (&held.under_way, view.book.wants.contains_key(volume)) {
            (Some(operation), _) => {
                let left = time(PATIENCE.saturating_sub(view.at.saturating_sub(operation.since)));
                match operation.task {
                    Task::Attach => {
                        format!(
                            "{name} is being attached; the controller waits for the CSI attacher for at most {left}."
                        )
                    }
                    Task::Detach => format!(
                        "{name} is being detached; the controller waits for the CSI attacher for at most {left}, \
                         then retries."
                    ),
                }
            }
            (None, false) => unwanted(view, volume, &name, held),
            (None, true) => continue,
        };
        said.push(told);
    }
    for (volume, want) in &view.book.wants {
        let held = view.book.held.get(volume);
        if held.is_none_or(|held| held.under_way.is_none()) {
            said.push(wanted(view, volume, &format!("Volume {}", want.source.name), held));
        }
    }
    if said.is_empty() {
        said.push("No volume is attached to this node, and no pod needs one.".to_owned());
    }
    said
}

fn name(volume: &str, held: &Held) -> String {
    let known = held.source.as_ref().filter(|source| source.is_known());
    format!("Volume {}", known.map_or(volume, |source: &std::sync::Arc<Source>| source.name.as_str()))
}

fn unwanted(view: &View, volume: &str, name: &str, held: &Held) -> String {
    if held.source.is_none() {
        return format!("{name} has an unknown plugin; the volume is not detached.");
    }
    let is_ready = view.node.as_deref().is_some_and(Node::is_ready);
    let ready = if is_ready { "ready" } else { "not ready" };
    let mounted = if view.book.in_use.contains(volume) {
        "reports the volume as mounted"
    } else {
        "has not reported whether the volume is mounted"
    };
    match leave(view, volume, held) {
        Leave::BacksOff(left) => {
            format!("{name} could not be detached; the detach is retried in {}.", time(left))
        }
        Leave::Mounted if is_ready => {
            format!(
                "{name} is used by no pod. The node is {ready} and {mounted}; the detach waits for the node."
            )
        }
        Leave::Mounted => format!(
            "{name} is used by no pod. The node is {ready} and {mounted}; --disable-force-detach-on-timeout prevents a forced \
             detach."
        ),
        Leave::Forced(left) => format!(
            "{name} is used by no pod. The node is {ready} and {mounted}; the volume is detached by force in {}, or immediately with \
             the taint node.kubernetes.io/out-of-service.",
            time(left)
        ),
        Leave::Go if view.node.as_deref().is_some_and(|node| lists(node, volume)) => {
            format!(
                "{name} is used by no pod; the volume is removed from the node's status.volumesAttached and then \
                 detached."
            )
        }
        Leave::Go => format!("{name} is used by no pod; the volume is detached."),
    }
}

fn wanted(view: &View, volume: &str, name: &str, held: Option<&Held>) -> String {
    if held.is_some_and(|held| held.state == State::Attached) {
        return format!("{name} is attached.");
    }
    if let Some(left) = held.and_then(|held| held.backs_off(Task::Attach, view.at)) {
        return format!("{name} could not be attached; the attach is retried in {}.", time(left));
    }
    let others = view.elsewhere.get(volume).map(Vec::as_slice).unwrap_or_default();
    let others: Vec<&str> = others
        .iter()
        .filter(|other| other.is_attached || other.is_under_way)
        .map(|other| other.node.as_str())
        .collect();
    if others.is_empty() {
        format!("{name} is needed by a pod and is attached next.")
    } else {
        format!(
            "{name} can be attached to one node only; the attach waits until the volume is detached from {}.",
            names(others)
        )
    }
}

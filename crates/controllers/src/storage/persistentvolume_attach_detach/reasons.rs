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
        said.push("There is no such node.".to_owned());
    } else if !view.book.is_managed {
        said.push(
            "Volumes are attached to this node by its kubelet: what pods want is not looked at.".to_owned(),
        );
    }
    for (volume, held) in &view.book.held {
        let name = name(volume, held);
        let told = match (&held.under_way, view.book.wants.contains_key(volume)) {
            (Some(operation), _) => {
                let left = time(PATIENCE.saturating_sub(view.at.saturating_sub(operation.since)));
                match operation.task {
                    Task::Attach => {
                        format!("{name} is being attached: its attacher is waited for, for {left} at most.")
                    }
                    Task::Detach => format!(
                        "{name} is being detached: its attacher is waited for, for {left} at most. Then it is asked again."
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
        said.push("No volume is attached to this node, and none is wanted.".to_owned());
    }
    said
}

fn name(volume: &str, held: &Held) -> String {
    let known = held.source.as_ref().filter(|source| source.is_known());
    format!("Volume {}", known.map_or(volume, |source: &std::sync::Arc<Source>| source.name.as_str()))
}

fn unwanted(view: &View, volume: &str, name: &str, held: &Held) -> String {
    if held.source.is_none() {
        return format!("{name} is of no known plugin: it is left as it is.");
    }
    let is_ready = view.node.as_deref().is_some_and(Node::is_ready);
    let ready = if is_ready { "ready" } else { "not ready" };
    let mounted = if view.book.in_use.contains(volume) {
        "The node says that it is mounted, and"
    } else {
        "The node has yet to say whether it is mounted, and"
    };
    match leave(view, volume, held) {
        Leave::BacksOff(left) => {
            format!("{name} could not be detached: it is tried again in {}.", time(left))
        }
        Leave::Mounted if is_ready => {
            format!("{name} is wanted by no pod. {mounted} is {ready}: it is waited for.")
        }
        Leave::Mounted => format!(
            "{name} is wanted by no pod. {mounted} is {ready}: \
             it is not detached by force, as --disable-force-detach-on-timeout says."
        ),
        Leave::Forced(left) => format!(
            "{name} is wanted by no pod. {mounted} is {ready}: \
             it is detached by force in {}, or at once with the taint node.kubernetes.io/out-of-service.",
            time(left)
        ),
        Leave::Go if view.node.as_deref().is_some_and(|node| lists(node, volume)) => {
            format!("{name} is wanted by no pod: it leaves the node's list, and is detached then.")
        }
        Leave::Go => format!("{name} is wanted by no pod: it is detached."),
    }
}

fn wanted(view: &View, volume: &str, name: &str, held: Option<&Held>) -> String {
    if held.is_some_and(|held| held.state == State::Attached) {
        return format!("{name} is attached.");
    }
    if let Some(left) = held.and_then(|held| held.backs_off(Task::Attach, view.at)) {
        return format!("{name} could not be attached: it is tried again in {}.", time(left));
    }
    let others = view.elsewhere.get(volume).map(Vec::as_slice).unwrap_or_default();
    let others: Vec<&str> = others
        .iter()
        .filter(|other| other.is_attached || other.is_under_way)
        .map(|other| other.node.as_str())
        .collect();
    if others.is_empty() {
        format!("{name} is wanted, and is about to be attached.")
    } else {
        format!("{name} is for one node, and {} has it: that is waited for.", names(others))
    }
}

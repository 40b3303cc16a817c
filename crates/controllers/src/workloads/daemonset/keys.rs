//! Which DaemonSets a change concerns.

use std::sync::Arc;

use super::view::{Gates, node_of};
use coxswain_machinery::api::apps::{ControllerRevision, DaemonSet};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{KeyMap, Selecting, wake};
use coxswain_machinery::informer::{Delta, Lister};
use coxswain_machinery::model::fitting::Fit;
use coxswain_machinery::model::{Key, pods};

/// A pod concerns the DaemonSet that manages it; one that nobody manages those that select it.
pub(super) fn of_pods(daemon_sets: Lister<DaemonSet>, selecting: Selecting<DaemonSet>) -> KeyMap {
    wake::claiming(daemon_sets, selecting, |before: &Pod, now: &Pod| {
        // That it was bound to the node it was meant for says nothing new.
        pods::counts_alike(before, now) && node_of(before) == node_of(now)
    })
}

/// A revision that appears was made by who is told of it, or says nothing about anybody's pods.
pub(super) fn of_revisions(daemon_sets: Lister<DaemonSet>, selecting: Selecting<DaemonSet>) -> KeyMap {
    let claiming = wake::claiming(daemon_sets, selecting, |_: &ControllerRevision, _| false);
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let is_new_and_owned = delta.old.is_none()
            && delta.new.is_some_and(|new| new.meta().controller().is_some() && !new.meta().is_deleting());
        if !is_new_and_owned {
            claiming(delta, add);
        }
    })
}

/// Queues the DaemonSets that a node fits otherwise than before. A deleted node fits none. Pods that wait for it were never bound, so
/// no other controller deletes them. kube-controller-manager leaves them until the next change of the DaemonSet.
/// Differs: pods-of-deleted-nodes.
pub(super) fn of_nodes(daemon_sets: Lister<DaemonSet>, gates: Gates) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        // What is there at the start is told of the DaemonSets, whose keys it would wake.
        if !delta.is_news() {
            return;
        }
        let (old, new) = delta.typed::<Node>();
        if old.zip(new).is_some_and(|(old, new)| is_same(old, new)) {
            return;
        }
        for daemon_set in daemon_sets.list() {
            let fit = |node: Option<&Node>| node.map_or(Fit::Excluded, |node| gates.fit(&daemon_set, node));
            if fit(old) != fit(new) {
                add(Key::of(&daemon_set.metadata));
            }
        }
    })
}

/// Whether nothing has changed that DaemonSets ask of nodes: heartbeats cost nothing.
fn is_same(old: &Node, new: &Node) -> bool {
    old.metadata.labels == new.metadata.labels && old.spec.taints == new.spec.taints
}

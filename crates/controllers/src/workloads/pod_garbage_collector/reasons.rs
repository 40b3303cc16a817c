//! Why a round ends the pods that it does, in words. Decides nothing.

use super::plan::{Note, Reason};
use super::view::{NodeView, RoundView};
use coxswain_machinery::model::words::{count, names, verb};

pub(super) fn of_round(view: &RoundView, note: &Note) -> Vec<String> {
    let mut reasons = Vec::new();
    if view.keep == usize::MAX {
        reasons.push("--terminated-pod-gc-threshold sets no limit; all finished pods are kept.".to_owned());
    } else {
        let finished = count(view.finished.len(), "pod");
        let (has, may) = (verb(view.finished.len(), "has", "have"), view.keep);
        let surplus = view.finished.len().saturating_sub(view.keep);
        let goes = match surplus {
            0 => "none is deleted".to_owned(),
            _ => format!(
                "{surplus} {} deleted, evicted pods first, then the oldest",
                verb(surplus, "is", "are")
            ),
        };
        reasons.push(format!(
            "{finished} in all namespaces {has} finished, and the threshold is {may}: {goes}."
        ));
    }
    for (why, what) in [
        (Reason::OutOfService, "on a node that is out of service and not ready"),
        (Reason::Unscheduled, "without being bound to a node"),
    ] {
        let mut pods: Vec<_> =
            note.pods.iter().filter(|(_, reason)| **reason == why).map(|(pod, _)| pod).collect();
        pods.sort();
        if !pods.is_empty() {
            let (is, it) = (verb(pods.len(), "is", "are"), verb(pods.len(), "it is", "they are"));
            reasons.push(format!(
                "{} {is} being deleted {what}, so no kubelet completes the deletion; {it} deleted by force.",
                names(pods)
            ));
        }
    }
    reasons
}

pub(super) fn of_node(view: &NodeView) -> Vec<String> {
    let pods = count(view.pods.len(), "pod");
    let (is, goes) = (
        verb(view.pods.len(), "is", "are"),
        verb(view.pods.len(), "it is marked Failed and deleted", "they are marked Failed and deleted"),
    );
    vec![format!(
        "{pods} {is} bound to the node {}, which no longer exists; once confirmed with the API server, {goes}.",
        view.node
    )]
}

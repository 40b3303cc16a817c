//! The pods that each node should have.
//!
//! | node | pods there | what is done |
//! |---|---|---|
//! | should run one | none | one is created |
//! | keeps its pods | failed or succeeded | deleted, a failed one once its backoff is over |
//! | keeps its pods | several, no surge | all but the first are deleted |
//! | keeps its pods, surge | none that is alive | one is created if the node should run one |
//! | keeps its pods, surge | several | the first new and the first old one stay, and the old one only while it is needed |
//! | is excluded | any | deleted |

use std::time::Duration;

use jiff::Timestamp;

use super::super::memory::Note;
use super::super::view::{View, node_of};
use super::bounds::Bounds;
use super::daemons::Daemons;
use super::writes::{self, Cause};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::fitting::Fit;
use coxswain_machinery::model::{Step, pods};
use coxswain_machinery::wire::{Str, WireError};

/// Pods that are made, and pods that are deleted, in one go; the rest follows when these have been seen.
const BURST: usize = 250;

/// What is to become of pods.
#[derive(Default)]
pub(super) struct Changes<'a> {
    /// Nodes that get a pod.
    pub(super) create: Vec<&'a Str>,
    /// Pods that go.
    pub(super) delete: Vec<(&'a Pod, Cause)>,
    /// When the first backoff is over.
    pub(super) look_again: Option<Duration>,
}

impl<'a> Changes<'a> {
    /// Whether no pod comes or goes.
    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty()
    }

    pub(super) fn unwanted(&mut self, pod: &'a Pod) {
        self.delete.push((pod, Cause::Unwanted));
    }

    /// One that goes for not serving, which may have changed.
    pub(super) fn unavailable(&mut self, pod: &'a Pod) {
        self.delete.push((pod, Cause::Unavailable));
    }

    /// The creates, by one burst at most.
    pub(super) fn creates(&self, view: &View, hash: &str) -> Result<Option<Step>, WireError> {
        let nodes = &self.create[..self.create.len().min(BURST)];
        writes::create_pods(view, hash, nodes)
    }

    /// The deletes, by one burst at most, and what is told of them.
    pub(super) fn deletes(&self, view: &View, note: &mut Note) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut deletes = Vec::new();
        for (pod, cause) in self.delete.iter().take(BURST) {
            let mut write = writes::delete_pod(view, pod, *cause);
            steps.extend(writes::end_notice(view, pod, *cause).map(Step::Emit));
            if let (Cause::Failed, Some(node)) = (cause, node_of(pod)) {
                write.item = Some(note.failed.len());
                note.failed.push(view.place(node));
            }
            deletes.push(write);
        }
        steps.extend((!deletes.is_empty()).then_some(Step::Each(deletes)));
        steps
    }
}

pub(super) fn place<'a>(view: &View, daemons: &Daemons<'a>, hash: &str, now: Timestamp) -> Changes<'a> {
    // Two pods are allowed on a node if maxSurge allows them on one node, also where no node should run a pod.
    let surges = Bounds::of(&view.daemon_set.spec.update_strategy, 1).surges();
    let mut changes = Changes::default();
    for (node, fit) in &daemons.nodes {
        let pods = daemons.on(node);
        match fit {
            Fit::Runs if pods.is_empty() => changes.create.push(node),
            Fit::Runs | Fit::Keeps => {
                clear_out(view, node, pods, &mut changes);
                let alive: Vec<&Pod> = pods.iter().copied().filter(|pod| pods::is_active(pod)).collect();
                if !surges {
                    alive.iter().skip(1).for_each(|pod| changes.unwanted(pod));
                } else if !alive.is_empty() {
                    thin_out(view, &alive, hash, now, &mut changes);
                } else if fit.runs() {
                    changes.create.push(node);
                }
            }
            Fit::Excluded => {
                let staying = pods.iter().filter(|pod| !pod.metadata.is_deleting());
                staying.for_each(|pod| changes.unwanted(pod));
            }
        }
    }
    // Pods that wait for a node that is gone would wait for ever. Those that were bound to it are deleted by others.
    for (_, pods) in daemons.with_pods().filter(|(node, _)| !daemons.nodes.contains_key(node)) {
        let waiting = |pod: &&&Pod| pod.spec.node_name.is_empty() && !pod.metadata.is_deleting();
        pods.iter().filter(waiting).for_each(|pod| changes.unwanted(pod));
    }
    changes
}

/// Pods that have run to their end make room for others.
fn clear_out<'a>(view: &View, node: &Str, pods: &[&'a Pod], changes: &mut Changes<'a>) {
    for pod in pods.iter().filter(|pod| !pod.metadata.is_deleting()) {
        match pod.status.phase.as_str() {
            "Succeeded" => changes.delete.push((pod, Cause::Succeeded)),
            "Failed" => match view.backoffs.get(node).copied() {
                None => changes.delete.push((pod, Cause::Failed)),
                Some(wait) => {
                    let first = changes.look_again.map_or(wait, |earlier| earlier.min(wait));
                    changes.look_again = Some(first);
                }
            },
            _ => {}
        }
    }
}

/// With surge: one new pod and one old one are enough, and the old one only as long as it serves and the new one does not.
fn thin_out<'a>(view: &View, alive: &[&'a Pod], hash: &str, now: Timestamp, changes: &mut Changes<'a>) {
    if alive.len() < 2 {
        return;
    }
    let (new, old): (Vec<&Pod>, Vec<&Pod>) = alive.iter().partition(|pod| writes::has_hash(pod, hash));
    let surplus = new.iter().skip(1).chain(old.iter().skip(1));
    surplus.for_each(|pod| changes.unwanted(pod));
    if let (Some(new), Some(old)) = (new.first(), old.first()) {
        let min_ready = view.daemon_set.spec.min_ready_seconds;
        if pods::is_available(new, min_ready, now) {
            changes.unwanted(old);
        } else if !old.is_ready() {
            changes.unavailable(old);
        }
    }
}

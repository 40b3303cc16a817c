//! The nodes, how they fit, and the DaemonSet's pods on them. Decides nothing.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::super::view::{View, node_of};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::fitting::Fit;
use coxswain_machinery::wire::Str;

/// Nodes and pods, by the names of nodes.
pub(super) struct Daemons<'a> {
    /// The nodes of the cluster.
    pub(super) nodes: BTreeMap<&'a Str, Fit>,
    /// Pods, the first of each node first: bound ones before others, then by age, then by name. Those that have run to their
    /// end and are being deleted are there no more.
    pods: BTreeMap<&'a Str, Vec<&'a Pod>>,
    /// How many nodes should run a pod.
    pub(super) desired: usize,
}

impl<'a> Daemons<'a> {
    pub(super) fn of(view: &'a View, kept: &[&'a Pod]) -> Self {
        let fit = |node| view.gates.fit(&view.daemon_set, node);
        let nodes: BTreeMap<&Str, Fit> =
            view.nodes.iter().map(|node| (&node.metadata.name, fit(node))).collect();
        let mut pods: BTreeMap<&Str, Vec<&Pod>> = BTreeMap::new();
        let is_there = |pod: &&&Pod| !(pod.is_finished() && pod.metadata.is_deleting());
        for pod in kept.iter().filter(is_there) {
            if let Some(node) = node_of(pod) {
                pods.entry(node).or_default().push(pod);
            }
        }
        for pods in pods.values_mut() {
            pods.sort_by(|a, b| first(a, b));
        }
        let desired = nodes.values().filter(|fit| fit.runs()).count();
        Self { nodes, pods, desired }
    }

    /// The pods on a node, or meant for it.
    pub(super) fn on(&self, node: &Str) -> &[&'a Pod] {
        self.pods.get(node).map_or(&[], Vec::as_slice)
    }

    /// Nodes that have pods, with these; nodes that are gone among them.
    pub(super) fn with_pods(&self) -> impl Iterator<Item = (&'a Str, &[&'a Pod])> {
        self.pods.iter().map(|(node, pods)| (*node, pods.as_slice()))
    }
}

fn first(a: &Pod, b: &Pod) -> Ordering {
    let rank = |pod: &Pod| (pod.spec.node_name.is_empty(), pod.metadata.creation_timestamp);
    rank(a).cmp(&rank(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

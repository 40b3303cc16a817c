//! Which pods give way to the present template, while enough nodes have an available one. With `OnDelete` none do.
//!
//! Without surge an old pod is deleted, and placing makes a new one when it is gone; with surge the new one comes first, and
//! the old one goes when that is available. Pods that are not ready are replaced at once: nothing is lost with them, as
//! long as they are as they were seen. Those that are ready go node by node, in an order that differs from rollout to rollout
//! ([`Rollout::spread`]), those first that are not yet available. kube-controller-manager replaces these at once as well: all pods of a
//! DaemonSet whose template changes twice within `minReadySeconds`.
//! Differs: available-within-min-ready. Differs: node-order.

use jiff::Timestamp;

use super::super::view::View;
use super::bounds::{Bounds, ROLLING_UPDATE};
use super::daemons::Daemons;
use super::placing::Changes;
use super::writes;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::fitting::Fit;
use coxswain_machinery::model::hash::fnv1a;
use coxswain_machinery::model::pods;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

pub(super) fn roll<'a>(
    view: &View,
    daemons: &Daemons<'a>,
    hash: &str,
    now: Timestamp,
    changes: &mut Changes<'a>,
) {
    let strategy = &view.daemon_set.spec.update_strategy;
    if strategy.r#type != ROLLING_UPDATE {
        return;
    }
    let bounds = Bounds::of(strategy, daemons.desired);
    let rollout = Rollout { view, daemons, hash, now };
    if bounds.surges() {
        rollout.with_surge(bounds.surge, changes);
    } else {
        rollout.without_surge(bounds.unavailable, changes);
    }
}

struct Rollout<'a, 'd> {
    view: &'d View,
    daemons: &'d Daemons<'a>,
    hash: &'d str,
    now: Timestamp,
}

/// The pods of a node that stay, by template.
struct Pair<'a> {
    old: Vec<&'a Pod>,
    new: Vec<&'a Pod>,
}

impl<'a> Rollout<'a, '_> {
    fn pair(&self, pods: &[&'a Pod]) -> Pair<'a> {
        let staying = pods.iter().copied().filter(|pod| !pod.metadata.is_deleting());
        let (new, old) = staying.partition(|pod| writes::is_new(self.view, pod, self.hash));
        Pair { old, new }
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.view.daemon_set.spec.min_ready_seconds, self.now)
    }

    fn without_surge(&self, most_unavailable: usize, changes: &mut Changes<'a>) {
        let should_run = self.daemons.nodes.iter().filter(|(_, fit)| fit.runs()).map(|(node, _)| *node);
        let waiting = should_run.filter(|node| self.daemons.on(node).is_empty()).count();
        let mut unavailable = waiting;
        let (mut settling, mut candidates) = (Vec::new(), Vec::new());
        for (node, pods) in self.daemons.with_pods() {
            let pair = self.pair(pods);
            match (pair.old.as_slice(), pair.new.as_slice()) {
                ([], [new]) if self.is_available(new) => {}
                ([old], []) if self.is_available(old) => candidates.push((node, *old)),
                ([old], []) if old.is_ready() => settling.push((node, *old)),
                ([old], []) => {
                    unavailable += 1;
                    changes.unavailable(old);
                }
                // None that stays, or several of which placing takes some away.
                _ => unavailable += 1,
            }
        }
        // A pod that serves is not to be missed, although it is not available yet. That one of them goes makes no more nodes
        // unavailable than there are.
        let room = most_unavailable.saturating_sub(unavailable);
        unavailable += settling.len();
        self.spread(settling).take(room).for_each(|old| changes.unwanted(old));
        let room = most_unavailable.saturating_sub(unavailable);
        self.spread(candidates).take(room).for_each(|old| changes.unwanted(old));
    }

    /// Orders what is done about nodes by a hash of each node's UID and the revision. Names of nodes carry the zone or the pool nearly
    /// everywhere, so by their order one zone would go after the other, and the same machines always first.
    fn spread<T>(&self, mut by_node: Vec<(&'a Str, T)>) -> impl Iterator<Item = T> {
        if by_node.len() > 1 {
            let uids: HashMap<&Str, Str> = self
                .view
                .nodes
                .iter()
                .map(|node| (&node.metadata.name, node.metadata.uid.to_str()))
                .collect();
            by_node.sort_by_cached_key(|(node, _)| {
                let uid = uids.get(node).map_or("", |uid| uid.as_str());
                fnv1a([uid.as_bytes(), self.hash.as_bytes()])
            });
        }
        by_node.into_iter().map(|(_, what)| what)
    }

    fn with_surge(&self, most_surging: usize, changes: &mut Changes<'a>) {
        let (mut surging, mut available) = (0_usize, 0_usize);
        let (mut to_create, mut to_delete) = (Vec::new(), Vec::new());
        for (node, pods) in self.daemons.with_pods() {
            let pair = self.pair(pods);
            let (old, new) = match (pair.old.as_slice(), pair.new.as_slice()) {
                ([], []) => continue,
                ([], [new]) => (None, Some(*new)),
                ([old], []) => (Some(*old), None),
                ([old], [new]) => (Some(*old), Some(*new)),
                _ => {
                    surging += 1;
                    continue;
                }
            };
            if old.or(new).is_some_and(|speaking| self.is_available(speaking)) {
                available += 1;
            }
            let Some(old) = old else { continue };
            match (new, self.daemons.nodes.get(node)) {
                (Some(new), _) if self.is_available(new) => changes.unwanted(old),
                (Some(_), _) => surging += 1,
                // Its pods are about to go with it.
                (None, None) => {}
                (None, Some(Fit::Runs)) if self.is_available(old) => to_create.push((node, node)),
                (None, Some(Fit::Runs)) => changes.create.push(node),
                (None, Some(_)) if self.is_available(old) => to_delete.push((node, old)),
                (None, Some(_)) => changes.unavailable(old),
            }
        }
        let room = most_surging.saturating_sub(surging);
        changes.create.extend(self.spread(to_create).take(room));
        let spare = available.saturating_sub(self.daemons.desired);
        self.spread(to_delete).take(spare).for_each(|old| changes.unwanted(old));
    }
}

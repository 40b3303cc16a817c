//! Decides whether the release can be uninstalled, and which Leases are deleted afterwards. Pure: objects are handed in.
//!
//! Coxswain as a Deployment creates its own pods. Without another controller manager, nothing deletes these pods after an uninstall
//! and nothing reconciles the cluster.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;

use super::discover::{MainLease, holder, is_of_group};
use crate::admin::Group;

/// Namespace of everything that is read and deleted.
pub(super) const NAMESPACE: &str = "kube-system";

/// Selects the pods of all controller managers, by the label that kubeadm gives them.
pub(super) const MANAGERS: &str = "component=kube-controller-manager";
/// Labels that only pods of the release have.
const RELEASE: [(&str, &str); 2] =
    [("app.kubernetes.io/name", "coxswain"), ("app.kubernetes.io/component", "controller-manager")];

/// The state of the cluster at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Observation {
    /// The pods that [`MANAGERS`] selects.
    pub(super) pods: Vec<Pod>,
    /// The Leases of replicas.
    pub(super) replicas: Vec<Lease>,
    /// The Lease `kube-system/kube-controller-manager`, if it exists.
    pub(super) main: Option<Lease>,
}

impl Observation {
    /// The names of the release's pods, terminating ones included.
    pub(super) fn release_pods(&self) -> Vec<&str> {
        self.pods.iter().filter(|pod| is_of_release(pod)).map(name).collect()
    }
}

/// Observes the cluster until another manager takes over. The Lease counts as held once its holder has renewed it under
/// observation, and after the last pod of the release has ended.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    before: Option<Observation>,
}

impl Takeover {
    /// Returns the manager that runs the cluster after an uninstall, or the reason why there is none yet.
    pub(super) fn observe(&mut self, now: &Observation) -> Result<String, String> {
        let is_comparable = |before: &Observation| {
            let has_ended = now.release_pods().is_empty() && !before.release_pods().is_empty();
            !has_ended && before.main.as_ref().and_then(holder) == now.main.as_ref().and_then(holder)
        };
        let before = self.before.take().filter(is_comparable).unwrap_or_else(|| now.clone());
        let found = successor(&before, now);
        self.before = Some(before);
        found
    }
}

fn successor(before: &Observation, now: &Observation) -> Result<String, String> {
    if let Some(pod) = now.pods.iter().find(|pod| !is_of_release(pod) && is_ready(pod)) {
        return Ok(name(pod).to_owned());
    }
    let Some(held_by) = now.main.as_ref().and_then(holder) else {
        return Err("no controller manager holds the Lease kube-system/kube-controller-manager".to_owned());
    };
    let host = held_by.rsplit_once('_').map_or(held_by, |(host, _)| host);
    let is_of_release = |seen: &Observation| {
        let is_replica = seen.replicas.iter().any(|lease| holder(lease) == Some(held_by));
        let own = seen.release_pods();
        own.contains(&host) || is_replica
    };
    if is_of_release(before) || is_of_release(now) {
        return Err(format!(
            "{held_by} holds the Lease kube-system/kube-controller-manager, and no other controller manager is ready"
        ));
    }
    if before.main.as_ref().and_then(renewed) != now.main.as_ref().and_then(renewed) {
        return Ok(held_by.to_owned());
    }
    Err(format!("{held_by} does not renew the Lease kube-system/kube-controller-manager"))
}

/// The Leases of a group's replicas.
#[derive(Debug, Default)]
pub(super) struct Remains<'a> {
    /// Leases of replicas that have ended.
    pub(super) ended: Vec<&'a Lease>,
    /// Identities of replicas that still renew their Leases.
    pub(super) live: Vec<&'a str>,
}

/// A Lease to delete.
#[derive(Debug, PartialEq)]
pub(super) enum Deletion<'a> {
    /// The Lease of this namespace and name, if it exists.
    Named(String, String),
    /// Exactly this version of a Lease.
    Seen(&'a Lease),
}

impl<'a> Remains<'a> {
    /// Returns the Leases to delete, in this order. An uninstall may be cut off at any step, and the overrides would take effect at the next
    /// install, so their Lease is the first. While a replica of the group still runs, neither the Lease of the overrides nor that of the
    /// election is deleted.
    pub(super) fn deletions(&self, main: &MainLease) -> Vec<Deletion<'a>> {
        let group = Group::new(&main.namespace, &main.name);
        let mut all = Vec::new();
        if self.live.is_empty() {
            all.push(Deletion::Named(NAMESPACE.to_owned(), group.overrides_lease()));
            if !group.is_default() {
                all.push(Deletion::Named(main.namespace.clone(), main.name.clone()));
            }
        }
        all.extend(self.ended.iter().map(|lease| Deletion::Seen(lease)));
        all
    }
}

/// Sorts the Leases of the group that leads by `main`. A replica has ended if it released its Lease or did not renew it
/// after `before` was listed.
pub(super) fn remains<'a>(before: &[Lease], now: &'a [Lease], main: &MainLease) -> Remains<'a> {
    let mut remains = Remains::default();
    let (mut released, mut has_other_group) = (Vec::new(), false);
    for lease in now {
        let Some(identity) = holder(lease) else {
            released.push(lease);
            continue;
        };
        if !is_of_group(lease, identity, main) {
            has_other_group = true;
            continue;
        }
        // Linear: a cluster has a few replicas.
        let known = before.iter().find(|before| before.metadata.uid == lease.metadata.uid);
        if known.is_some_and(|known| holder(known) == Some(identity) && renewed(known) == renewed(lease)) {
            remains.ended.push(lease);
        } else {
            remains.live.push(identity);
        }
    }
    // A released Lease names no group, and the next replica of any group takes it.
    if !has_other_group {
        remains.ended.extend(released);
    }
    remains
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Whether a pod is Coxswain's, by the labels of the Deployment and the chart.
pub(super) fn is_of_release(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    RELEASE
        .iter()
        .all(|(key, value)| labels.and_then(|labels| labels.get(*key)).is_some_and(|held| held == value))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|each| each.type_ == "Ready" && each.status == "True")
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

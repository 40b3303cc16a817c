//! [`Group`]: the replicas that lead by one Lease.

use coxswain_machinery::model::Key;

use super::manager::ReplicaState;
use super::overrides::{LEASE_NAME, LEASE_NAMESPACE};

/// Namespace and name of the Lease by which a manager leads unless it is told otherwise.
const DEFAULT_LEASE: (&str, &str) = ("kube-system", "kube-controller-manager");

/// The replicas that lead by one Lease (`--leader-elect-resource-name`). Groups share neither overrides nor successors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    lease: Key,
}

impl Default for Group {
    fn default() -> Self {
        Self::new(DEFAULT_LEASE.0, DEFAULT_LEASE.1)
    }
}

impl Group {
    /// The group of a Lease.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { lease: Key::new(namespace, name) }
    }

    /// The Lease as `NAMESPACE/NAME`.
    pub fn lease(&self) -> String {
        self.lease.to_string()
    }

    /// Whether the Lease is `kube-system/kube-controller-manager`.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Name of the Lease of this group's overrides. Two groups never have the same one: a namespace contains no dot.
    pub fn overrides_lease(&self) -> String {
        let Key { namespace, name, .. } = &self.lease;
        if self.is_default() {
            LEASE_NAME.to_owned()
        } else if *namespace == *LEASE_NAMESPACE {
            format!("{LEASE_NAME}-{name}")
        } else {
            format!("{LEASE_NAME}.{namespace}.{name}")
        }
    }

    /// Whether a replica belongs to this group, whose Lease `holder` holds. A replica of an older version does not announce
    /// its group: it belongs to the group that it leads, and else to the default group.
    pub fn includes(&self, replica: &ReplicaState, holder: &str) -> bool {
        match replica.lease.as_str() {
            "" => self.is_default() || (!holder.is_empty() && replica.identity == holder),
            lease => *lease == self.lease(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn overrides_of_each_group_are_in_a_lease_of_its_own() {
        let groups = [
            ("kube-system", "kube-controller-manager", "coxswain-overrides"),
            ("kube-system", "coxswain-b", "coxswain-overrides-coxswain-b"),
            ("managers", "kube-controller-manager", "coxswain-overrides.managers.kube-controller-manager"),
            ("managers", "b", "coxswain-overrides.managers.b"),
            ("kube-system", "managers.b", "coxswain-overrides-managers.b"),
            ("kube-system", "managers-b", "coxswain-overrides-managers-b"),
        ];
        let names: BTreeSet<_> = groups
            .iter()
            .map(|(namespace, name, overrides)| {
                assert_eq!(Group::new(namespace, name).overrides_lease(), *overrides);
                overrides
            })
            .collect();
        assert_eq!(names.len(), groups.len());
    }
}

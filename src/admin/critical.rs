//! Controllers that the cluster depends on: disabling one for more than [`WITHOUT_FORCE`] needs `force`.

use std::time::Duration;

/// The longest time for which a critical controller is disabled without `force`.
pub const WITHOUT_FORCE: Duration = Duration::from_hours(1);

/// Every controller of the registry, with the effect of a longer stop where it is critical.
const CONTROLLERS: &[(&str, Option<&str>)] = &[
    ("bootstrap-signer-controller", None),
    ("certificatesigningrequest-approving-controller", Some("kubelets cannot renew their certificates")),
    ("certificatesigningrequest-cleaner-controller", None),
    ("certificatesigningrequest-signing-controller", Some("kubelets cannot renew their certificates")),
    ("cloud-node-lifecycle-controller", None),
    ("clusterrole-aggregation-controller", None),
    ("cronjob-controller", None),
    ("daemonset-controller", None),
    ("deployment-controller", None),
    ("device-taint-eviction-controller", None),
    ("disruption-controller", None),
    ("endpoints-controller", Some("Endpoints are not updated")),
    ("endpointslice-controller", Some("EndpointSlices are not updated")),
    ("endpointslice-mirroring-controller", None),
    ("ephemeral-volume-controller", None),
    ("garbage-collector-controller", Some("dependents of deleted objects are not deleted")),
    ("horizontal-pod-autoscaler-controller", None),
    ("job-controller", None),
    ("kube-apiserver-serving-clustertrustbundle-publisher-controller", None),
    ("legacy-serviceaccount-token-cleaner-controller", None),
    ("namespace-controller", Some("deleted namespaces stay Terminating")),
    ("node-ipam-controller", Some("new nodes get no podCIDR")),
    ("node-lifecycle-controller", Some("failed nodes are not detected")),
    ("node-route-controller", None),
    ("persistentvolume-attach-detach-controller", Some("volumes are neither attached nor detached")),
    ("persistentvolume-binder-controller", None),
    ("persistentvolume-expander-controller", None),
    ("persistentvolume-protection-controller", None),
    ("persistentvolumeclaim-protection-controller", None),
    ("pod-garbage-collector-controller", None),
    ("podcertificaterequest-cleaner-controller", None),
    ("podgroup-protection-controller", None),
    ("replicaset-controller", None),
    ("replicationcontroller-controller", None),
    ("resourceclaim-controller", None),
    ("resourcepoolstatusrequest-controller", None),
    ("resourcequota-controller", Some("quota usage is not updated")),
    ("root-ca-certificate-publisher-controller", Some("pods in new namespaces do not start")),
    ("selinux-warning-controller", None),
    ("service-cidr-controller", None),
    ("service-lb-controller", None),
    ("serviceaccount-controller", Some("pods in new namespaces are rejected")),
    ("serviceaccount-token-controller", Some("token Secrets stay empty")),
    ("statefulset-controller", None),
    ("storage-version-migrator-controller", None),
    ("storageversion-garbage-collector-controller", None),
    ("taint-eviction-controller", Some("pods on failed nodes are not evicted")),
    ("token-cleaner-controller", None),
    ("ttl-after-finished-controller", None),
    ("ttl-controller", None),
    ("validatingadmissionpolicy-status-controller", None),
    ("volumeattributesclass-protection-controller", None),
];

/// The effect of stopping a controller, if it is critical.
pub fn effect(controller: &str) -> Option<&'static str> {
    CONTROLLERS.iter().find(|(name, _)| *name == controller).and_then(|(_, effect)| *effect)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use coxswain_controllers::registry::REGISTRY;

    use super::*;

    #[test]
    fn critical_is_decided_for_each_controller_of_the_registry() {
        let decided: BTreeSet<_> = CONTROLLERS.iter().map(|(name, _)| *name).collect();
        let registry: BTreeSet<_> = REGISTRY.iter().map(|row| row.name).collect();
        assert_eq!(decided, registry);
        assert_eq!(decided.len(), CONTROLLERS.len(), "a controller is decided twice");
        assert!(REGISTRY.iter().all(|row| !row.special || effect(row.name).is_some()));
    }

    #[test]
    fn docs_name_each_critical_controller() {
        let docs = include_str!("../../docs/admin-api.md");
        for (name, effect) in CONTROLLERS.iter().filter_map(|(name, effect)| Some((name, (*effect)?))) {
            let row = format!("| `{name}` | {effect} |");
            assert!(docs.contains(&row), "docs/admin-api.md lacks {row}");
        }
        let rows =
            docs.lines().filter(|line| line.starts_with("| `") && line.contains("-controller` | ")).count();
        assert_eq!(rows, CONTROLLERS.iter().filter(|(_, effect)| effect.is_some()).count());
    }
}

//! The one table of controllers. A row is what there is to know about a controller without running it; the row of one
//! that is built is its room's own `DESCRIPTOR`.
//!
//! Names, aliases, gates and defaults are those of Kubernetes 1.36's manager, and a name is for ever: command lines,
//! health checks, metrics and leader migration all speak it. The table is an explicit slice: what it says is what
//! there is.

mod check;
#[cfg(test)]
mod tests;

pub use check::{RegistryError, validate};

use crate::api::{
    clusterrole_aggregation, garbage_collector, namespace, resourcequota, storage_version_migrator,
    storageversion_garbage_collector, validatingadmissionpolicy_status,
};
use crate::devices::{device_taint_eviction, resourceclaim, resourcepoolstatusrequest};
use crate::identity::{
    bootstrap_signer, certificatesigningrequest_approving, certificatesigningrequest_cleaner,
    certificatesigningrequest_signing, kube_apiserver_serving_clustertrustbundle_publisher,
    legacy_serviceaccount_token_cleaner, podcertificaterequest_cleaner, root_ca_certificate_publisher,
    serviceaccount, serviceaccount_token, token_cleaner,
};
use crate::network::{endpoints, endpointslice, endpointslice_mirroring, service_cidr};
use crate::nodes::{node_ipam, node_lifecycle, taint_eviction, ttl};
use crate::storage::{
    ephemeral_volume, persistentvolume_attach_detach, persistentvolume_binder, persistentvolume_expander,
    persistentvolume_protection, persistentvolumeclaim_protection, selinux_warning,
    volumeattributesclass_protection,
};
use crate::workloads::{
    cronjob, daemonset, deployment, disruption, horizontal_pod_autoscaler, job, pod_garbage_collector,
    podgroup_protection, replicaset, replicationcontroller, statefulset, ttl_after_finished,
};
use coxswain_machinery::framework::{DefaultState, Descriptor};

/// Every controller, by name. When a room is built, its row here becomes `crate::AREA::NAME::DESCRIPTOR`.
pub static REGISTRY: &[Descriptor] = &[
    bootstrap_signer::DESCRIPTOR,
    certificatesigningrequest_approving::DESCRIPTOR,
    certificatesigningrequest_cleaner::DESCRIPTOR,
    certificatesigningrequest_signing::DESCRIPTOR,
    Descriptor {
        cloud: true,
        ..not_built(
            "cloud-node-lifecycle-controller",
            &["cloud-node-lifecycle"],
            Some("node-controller"),
            "Deletes Nodes whose cloud instances no longer exist.",
        )
    },
    clusterrole_aggregation::DESCRIPTOR,
    cronjob::DESCRIPTOR,
    daemonset::DESCRIPTOR,
    deployment::DESCRIPTOR,
    device_taint_eviction::DESCRIPTOR,
    disruption::DESCRIPTOR,
    endpoints::DESCRIPTOR,
    endpointslice::DESCRIPTOR,
    endpointslice_mirroring::DESCRIPTOR,
    ephemeral_volume::DESCRIPTOR,
    garbage_collector::DESCRIPTOR,
    horizontal_pod_autoscaler::DESCRIPTOR,
    job::DESCRIPTOR,
    kube_apiserver_serving_clustertrustbundle_publisher::DESCRIPTOR,
    legacy_serviceaccount_token_cleaner::DESCRIPTOR,
    namespace::DESCRIPTOR,
    node_ipam::DESCRIPTOR,
    node_lifecycle::DESCRIPTOR,
    Descriptor {
        cloud: true,
        ..not_built(
            "node-route-controller",
            &["route"],
            Some("route-controller"),
            "Creates cloud routes to the Pods of each Node.",
        )
    },
    persistentvolume_attach_detach::DESCRIPTOR,
    persistentvolume_binder::DESCRIPTOR,
    persistentvolume_expander::DESCRIPTOR,
    persistentvolume_protection::DESCRIPTOR,
    persistentvolumeclaim_protection::DESCRIPTOR,
    pod_garbage_collector::DESCRIPTOR,
    podcertificaterequest_cleaner::DESCRIPTOR,
    podgroup_protection::DESCRIPTOR,
    replicaset::DESCRIPTOR,
    replicationcontroller::DESCRIPTOR,
    resourceclaim::DESCRIPTOR,
    resourcepoolstatusrequest::DESCRIPTOR,
    resourcequota::DESCRIPTOR,
    root_ca_certificate_publisher::DESCRIPTOR,
    selinux_warning::DESCRIPTOR,
    service_cidr::DESCRIPTOR,
    Descriptor {
        cloud: true,
        ..not_built(
            "service-lb-controller",
            &["service"],
            Some("service-controller"),
            "Creates cloud load balancers for Services.",
        )
    },
    serviceaccount::DESCRIPTOR,
    serviceaccount_token::DESCRIPTOR,
    statefulset::DESCRIPTOR,
    storage_version_migrator::DESCRIPTOR,
    storageversion_garbage_collector::DESCRIPTOR,
    taint_eviction::DESCRIPTOR,
    token_cleaner::DESCRIPTOR,
    ttl_after_finished::DESCRIPTOR,
    ttl::DESCRIPTOR,
    validatingadmissionpolicy_status::DESCRIPTOR,
    volumeattributesclass_protection::DESCRIPTOR,
];

/// A controller that is known and not built yet: on by default, needing no gate and no cloud. Its permissions are
/// declared by its room, with it.
const fn not_built(
    name: &'static str,
    aliases: &'static [&'static str],
    service_account: Option<&'static str>,
    description: &'static str,
) -> Descriptor {
    Descriptor {
        name,
        aliases,
        description,
        gates: &[],
        default: DefaultState::On,
        cloud: false,
        special: false,
        service_account,
        event_source: None,
        writes: &[],
        build: None,
    }
}

/// The controller of a name or an alias.
pub fn find(name: &str) -> Option<&'static Descriptor> {
    REGISTRY.iter().find(|descriptor| descriptor.name == name || descriptor.aliases.contains(&name))
}

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

use crate::api::{clusterrole_aggregation, garbage_collector, namespace, resourcequota};
use crate::devices::resourcepoolstatusrequest;
use crate::identity::{
    bootstrap_signer, certificatesigningrequest_cleaner, root_ca_certificate_publisher, serviceaccount,
    serviceaccount_token, token_cleaner,
};
use crate::network::{endpoints, endpointslice, endpointslice_mirroring, service_cidr};
use crate::nodes::{taint_eviction, ttl};
use crate::storage::{
    ephemeral_volume, persistentvolume_protection, persistentvolumeclaim_protection,
    volumeattributesclass_protection,
};
use crate::workloads::{
    cronjob, daemonset, deployment, disruption, job, pod_garbage_collector, podgroup_protection, replicaset,
    replicationcontroller, statefulset, ttl_after_finished,
};
use coxswain_machinery::framework::{DefaultState, Descriptor};

/// Every controller, by name. When a room is built, its row here becomes `crate::AREA::NAME::DESCRIPTOR`.
pub static REGISTRY: &[Descriptor] = &[
    bootstrap_signer::DESCRIPTOR,
    not_built(
        "certificatesigningrequest-approving-controller",
        &["csrapproving"],
        Some("certificate-controller"),
        "Approves the certificate requests of kubelets that are allowed to make them.",
    ),
    certificatesigningrequest_cleaner::DESCRIPTOR,
    not_built(
        "certificatesigningrequest-signing-controller",
        &["csrsigning"],
        Some("certificate-controller"),
        "Signs approved certificate requests for the built-in signers.",
    ),
    Descriptor {
        cloud: true,
        ..not_built(
            "cloud-node-lifecycle-controller",
            &["cloud-node-lifecycle"],
            Some("node-controller"),
            "Removes Nodes whose machines are gone from the cloud.",
        )
    },
    clusterrole_aggregation::DESCRIPTOR,
    cronjob::DESCRIPTOR,
    daemonset::DESCRIPTOR,
    deployment::DESCRIPTOR,
    Descriptor {
        gates: &["DynamicResourceAllocation", "DRADeviceTaints"],
        ..not_built(
            "device-taint-eviction-controller",
            &[],
            Some("device-taint-eviction-controller"),
            "Evicts Pods that use a device whose taint they do not tolerate.",
        )
    },
    disruption::DESCRIPTOR,
    endpoints::DESCRIPTOR,
    endpointslice::DESCRIPTOR,
    endpointslice_mirroring::DESCRIPTOR,
    ephemeral_volume::DESCRIPTOR,
    garbage_collector::DESCRIPTOR,
    not_built(
        "horizontal-pod-autoscaler-controller",
        &["horizontalpodautoscaling"],
        Some("horizontal-pod-autoscaler"),
        "Scales workloads by the metrics of their HorizontalPodAutoscaler.",
    ),
    job::DESCRIPTOR,
    Descriptor {
        gates: &["ClusterTrustBundle"],
        ..not_built(
            "kube-apiserver-serving-clustertrustbundle-publisher-controller",
            &[],
            Some("kube-apiserver-serving-clustertrustbundle-publisher"),
            "Publishes the authorities of the API server as a ClusterTrustBundle.",
        )
    },
    not_built(
        "legacy-serviceaccount-token-cleaner-controller",
        &["legacy-service-account-token-cleaner"],
        Some("legacy-service-account-token-cleaner"),
        "Invalidates, and then deletes, unused service account token Secrets.",
    ),
    namespace::DESCRIPTOR,
    not_built(
        "node-ipam-controller",
        &["nodeipam"],
        Some("node-controller"),
        "Gives each Node its ranges of Pod addresses.",
    ),
    not_built(
        "node-lifecycle-controller",
        &["nodelifecycle"],
        Some("node-controller"),
        "Marks silent Nodes as unhealthy and taints them.",
    ),
    Descriptor {
        cloud: true,
        ..not_built(
            "node-route-controller",
            &["route"],
            Some("route-controller"),
            "Makes routes in the cloud to the Pods of each Node.",
        )
    },
    not_built(
        "persistentvolume-attach-detach-controller",
        &["attachdetach"],
        Some("attachdetach-controller"),
        "Attaches volumes to the Nodes that need them and detaches them afterwards.",
    ),
    not_built(
        "persistentvolume-binder-controller",
        &["persistentvolume-binder"],
        Some("persistent-volume-binder"),
        "Binds PersistentVolumeClaims to PersistentVolumes and has volumes provisioned.",
    ),
    not_built(
        "persistentvolume-expander-controller",
        &["persistentvolume-expander"],
        Some("expand-controller"),
        "Grows volumes whose claims ask for more.",
    ),
    persistentvolume_protection::DESCRIPTOR,
    persistentvolumeclaim_protection::DESCRIPTOR,
    pod_garbage_collector::DESCRIPTOR,
    Descriptor {
        gates: &["PodCertificateRequest"],
        ..not_built(
            "podcertificaterequest-cleaner-controller",
            &[],
            Some("podcertificaterequestcleaner"),
            "Deletes PodCertificateRequests that have outlived their use.",
        )
    },
    podgroup_protection::DESCRIPTOR,
    replicaset::DESCRIPTOR,
    replicationcontroller::DESCRIPTOR,
    Descriptor {
        gates: &["DynamicResourceAllocation"],
        ..not_built(
            "resourceclaim-controller",
            &["resource-claim-controller"],
            Some("resource-claim-controller"),
            "Makes the ResourceClaims of Pods and frees those that no Pod uses any more.",
        )
    },
    resourcepoolstatusrequest::DESCRIPTOR,
    resourcequota::DESCRIPTOR,
    root_ca_certificate_publisher::DESCRIPTOR,
    Descriptor {
        gates: &["SELinuxChangePolicy"],
        default: DefaultState::Off,
        ..not_built(
            "selinux-warning-controller",
            &[],
            Some("selinux-warning-controller"),
            "Warns of Pods that would mount a volume with different SELinux labels.",
        )
    },
    service_cidr::DESCRIPTOR,
    Descriptor {
        cloud: true,
        ..not_built(
            "service-lb-controller",
            &["service"],
            Some("service-controller"),
            "Makes load balancers in the cloud for Services.",
        )
    },
    serviceaccount::DESCRIPTOR,
    serviceaccount_token::DESCRIPTOR,
    statefulset::DESCRIPTOR,
    Descriptor {
        gates: &["StorageVersionMigrator"],
        ..not_built(
            "storage-version-migrator-controller",
            &["svm"],
            Some("storage-version-migrator-controller"),
            "Rewrites stored objects in the current storage version on request.",
        )
    },
    Descriptor {
        gates: &["APIServerIdentity", "StorageVersionAPI"],
        ..not_built(
            "storageversion-garbage-collector-controller",
            &["storage-version-gc"],
            Some("storage-version-garbage-collector"),
            "Removes storage versions of API servers that are gone.",
        )
    },
    taint_eviction::DESCRIPTOR,
    token_cleaner::DESCRIPTOR,
    ttl_after_finished::DESCRIPTOR,
    ttl::DESCRIPTOR,
    not_built(
        "validatingadmissionpolicy-status-controller",
        &[],
        Some("validatingadmissionpolicy-status-controller"),
        "Type-checks ValidatingAdmissionPolicies and reports what it finds in their status.",
    ),
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

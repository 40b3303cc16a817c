//! The live reads of all controllers. `make docs` writes this table to `docs/live-reads.md`.
//!
//! The number is the maximum for one object in an hour in which nothing changes and no request fails. A failed read is retried with the
//! backoff of its queue. Zero means that only a change makes the controller read.

use coxswain_machinery::live_reads;

live_reads! {
    "certificatesigningrequest-approving-controller" {
        CSR_ACCESS = ("access", "POST subjectaccessreviews", 42,
            "A pending CertificateSigningRequest asks for a kubelet client certificate. If the \
             SubjectAccessReview denies the request, the review is repeated with backoff.");
    }
    "cronjob-controller" {
        CRON_JOB_ITSELF = ("cronjob", "GET cronjobs", 0,
            "The status of the cached CronJob lacks an unfinished Job, so the cached CronJob may be \
             outdated.");
        CRON_JOB_MISSING_JOB = ("job", "GET jobs", 0,
            "The status of a CronJob lists a Job that is not in the cache.");
    }
    "daemonset-controller" {
        DAEMON_SET_ADOPTION = ("adoption", "GET daemonsets", 0,
            "Before pods or revisions are adopted, because a deleted DaemonSet must not adopt objects.");
    }
    "deployment-controller" {
        DEPLOYMENT_ADOPTION = ("adoption", "GET deployments", 0,
            "Before ReplicaSets are adopted, because a deleted Deployment must not adopt objects.");
    }
    "device-taint-eviction-controller" {
        EVICTION_EVIDENCE = ("evidence", "GET pods, resourceclaims, resourceslices, devicetaintrules", 0,
            "Before a pod is evicted. The reads cover the pod and the objects that cause the eviction.");
    }
    "disruption-controller" {
        BUDGET_DISCOVERY = ("discovery", "GET /api, /apis", 0,
            "A PodDisruptionBudget selects pods whose controller is a custom resource, and the cached API \
             discovery is older than 30 seconds or lacks the kind of the controller.");
        BUDGET_SCALE = ("scale", "GET scales", 0,
            "A PodDisruptionBudget selects pods whose controller is a custom resource.");
    }
    "endpoints-controller" {
        ENDPOINTS_SERVICE = ("service", "GET services", 0,
            "Before the Endpoints of a deleted Service are deleted, because a new Service may have the same \
             name.");
    }
    "garbage-collector-controller" {
        COLLECTOR_OBJECT = ("object", "GET any resource", 0,
            "An owner of an object was deleted or is not watched, an object that is being deleted waits for \
             its dependents or orphans them, or an object changed between a decision and its write. If a 404 \
             response does not contain the object's name, a LIST with the name as field selector follows.");
        COLLECTOR_UNSEEN = ("unseen", "GET any resource", 121,
            "An owner waits for a dependent whose watch has ended. One dependent is read every 30 seconds.");
    }
    "horizontal-pod-autoscaler-controller" {
        AUTOSCALER_DISCOVERY = ("discovery", "GET /api, /apis", 720,
            "A HorizontalPodAutoscaler is evaluated, and the cached API discovery is older than 30 seconds \
             or lacks a kind. One fetch serves all controllers.");
        AUTOSCALER_SCALE = ("scale", "GET scales", 241,
            "A HorizontalPodAutoscaler is evaluated (--horizontal-pod-autoscaler-sync-period), or its last \
             write of a scale failed with a conflict.");
        AUTOSCALER_METRICS = ("metrics", "GET metrics.k8s.io, custom.metrics.k8s.io, external.metrics.k8s.io", 241,
            "A HorizontalPodAutoscaler is evaluated. Each of its metrics is read once.");
    }
    "job-controller" {
        JOB_ADOPTION = ("adoption", "GET jobs", 0,
            "Before pods are adopted, because a deleted Job must not adopt objects.");
    }
    "legacy-serviceaccount-token-cleaner-controller" {
        TOKEN_TRACKING = ("tracking", "GET configmaps", 1,
            "Once a day, to read the date since which the use of tokens is tracked.");
    }
    "namespace-controller" {
        NAMESPACE_ITSELF = ("namespace", "GET namespaces", 451,
            "A namespace is being deleted and is not empty. As in kube-controller-manager, the namespace is \
             read every 8 seconds while a finalizer of another controller delays the deletion of an object \
             in the namespace.");
        NAMESPACE_DISCOVERY = ("discovery", "GET /api, /apis", 451,
            "A namespace is being deleted. Discovery returns the resources to delete.");
        NAMESPACE_CONTENT = ("content", "LIST any resource", 451,
            "A namespace is being deleted. Each resource is listed once.");
        NAMESPACE_STILL_THERE = ("still-there", "GET namespaces", 0,
            "Before the contents of a namespace are deleted, because a new namespace may have the same \
             name.");
    }
    "node-lifecycle-controller" {
        CONDITIONED_NODE = ("node", "GET nodes", 0,
            "The last three writes of the taints of a node failed with a conflict.");
        HEALTH_NODE = ("health", "GET nodes", 0,
            "The last write of the health or of the NoExecute taints of a node failed with a conflict. \
             Repeated in each round until the cache contains the version that was read. A round reads at \
             most 20 nodes.");
        STRANDED_POD = ("pod", "GET pods", 0,
            "The last three writes of the condition of a pod failed with a conflict.");
    }
    "persistentvolume-attach-detach-controller" {
        ATTACHMENT_NODE = ("node", "GET nodes", 60,
            "Before a volume is detached, because the node may still use the volume.");
        ATTACHMENT_COMPARED = ("compared", "GET volumeattachments", 61,
            "The cache contains no VolumeAttachment of an attached volume. Repeated once per \
             --attach-detach-reconcile-sync-period.");
        ATTACHMENT_UNHEARD = ("unheard", "GET volumeattachments", 60,
            "A volume is about to be detached, and its VolumeAttachment is not in the cache. Repeated with \
             backoff while the API server has the VolumeAttachment.");
    }
    "persistentvolume-binder-controller" {
        BINDER_VOLUME = ("volume", "GET persistentvolumes", 241,
            "The volume of a bound claim is not in the cache, a host path directory is about to be created, \
             or the data of a released volume is about to be deleted. Repeated every 15 seconds \
             (--pvclaimbinder-sync-period) until the data is deleted.");
        BINDER_CLAIM = ("claim", "GET persistentvolumeclaims", 241,
            "The claim of a bound volume is not in the cache, or the data of a released volume is about to \
             be deleted.");
        BINDER_RECYCLER = ("recycler", "GET pods", 241,
            "A recycler pod failed, and the controller reads the message in the status of the pod. Or a \
             recycler pod succeeded, and its delete failed with a conflict or the pod is not in the cache; a \
             new pod may then have the same name.");
    }
    "persistentvolume-expander-controller" {
        EXPANDER_VOLUME = ("volume", "GET persistentvolumes", 0,
            "The volume of a bound claim is not in the cache.");
    }
    "persistentvolumeclaim-protection-controller" {
        CLAIM_USERS = ("pods", "LIST pods in a namespace", 13,
            "No pod in the cache uses a claim, and the claim is being deleted or is about to get the \
             condition Unused. Repeated with backoff while the API server has a pod that uses the claim. One \
             list serves all claims of the namespace.");
    }
    "pod-garbage-collector-controller" {
        OUT_OF_SERVICE_NODE = ("node", "GET nodes", 181,
            "Every 20 seconds while a node is out of service and has pods that are being deleted.");
        GONE_NODE = ("gone-node", "GET nodes", 0,
            "Before pods are deleted because their node is not in the cache.");
    }
    "podgroup-protection-controller" {
        GROUP_USERS = ("pods", "LIST pods in a namespace", 13,
            "A PodGroup is being deleted, and no pod in the cache belongs to the PodGroup. Repeated with \
             backoff while the API server has such a pod. One list serves all PodGroups of the namespace.");
    }
    "replicaset-controller" {
        REPLICA_SET_ADOPTION = ("adoption", "GET replicasets", 0,
            "Before pods are adopted, because a deleted ReplicaSet must not adopt objects. The same applies \
             to replicationcontroller-controller.");
    }
    "resourceclaim-controller" {
        DEVICE_CLAIM = ("claim", "GET resourceclaims", 0,
            "The status of a pod names a ResourceClaim that is not in the cache.");
        DEVICE_CONSUMER = ("consumer", "GET pods, podgroups", 0,
            "A ResourceClaim is reserved for a pod or PodGroup that is not in the cache, and no watch has \
             reported the deletion of the pod or PodGroup.");
    }
    "service-cidr-controller" {
        SERVICE_ADDRESSES = ("addresses", "LIST ipaddresses", 0,
            "A ServiceCIDR is being deleted, and the cache has no IPAddress that only this ServiceCIDR \
             contains.");
        SERVICE_HEIR = ("heir", "GET servicecidrs", 0,
            "Before the finalizer of a ServiceCIDR is removed. The reads cover each ServiceCIDR that takes \
             over its addresses.");
    }
    "serviceaccount-token-controller" {
        TOKEN_OWNER = ("owner", "GET serviceaccounts", 0,
            "A token Secret was deleted, and the cached ServiceAccount does not list the Secret.");
        TOKEN_SECRET = ("secret", "GET secrets", 0,
            "Before the reference of a ServiceAccount to a deleted Secret is removed.");
        TOKEN_ACCOUNT = ("account", "GET serviceaccounts", 0,
            "Before a token is signed, and before a token Secret of a deleted ServiceAccount is deleted.");
    }
    "statefulset-controller" {
        STATEFUL_SET_ADOPTION = ("adoption", "GET statefulsets", 0,
            "Before pods or revisions are adopted, because a deleted StatefulSet must not adopt objects.");
        STATEFUL_SET_TAKEN = ("taken", "GET controllerrevisions", 0,
            "The name of a new ControllerRevision is already in use.");
        STATEFUL_SET_DOCUMENT = ("document", "GET controllerrevisions", 0,
            "The template has changed, and the newest ControllerRevision may have an equal template. Or a \
             pod of the current revision is about to be created during a rollout.");
    }
    "storage-version-migrator-controller" {
        MIGRATION_DISCOVERY = ("discovery", "GET /api, /apis", 0,
            "A StorageVersionMigration begins, and the cached API discovery is older than 30 seconds or \
             lacks the resource to migrate.");
        MIGRATION_DEFINITION = ("definition", "GET customresourcedefinitions", 0,
            "A StorageVersionMigration of custom resources starts or finishes.");
        MIGRATION_PAGE = ("page", "LIST any resource, 500 objects", 0,
            "A StorageVersionMigration processes the objects of its resource.");
    }
    "storageversion-garbage-collector-controller" {
        SERVER_LEASE = ("lease", "GET leases", 0,
            "The identity Lease of an API server was deleted, or a StorageVersion names an API server \
             without a Lease.");
        SERVER_VERSIONS = ("versions", "LIST storageversions", 0,
            "The identity Lease of an API server was deleted.");
        SERVER_VERSION = ("version", "GET storageversions", 0,
            "A StorageVersion names an API server without a Lease.");
    }
    "taint-eviction-controller" {
        TAINTED_NODE = ("node", "GET nodes", 0,
            "Before pods of a node are deleted because of its taints. One read serves all pods of the node \
             that are due.");
        TAINTED_POD = ("pod", "GET pods", 0,
            "Before a pod is deleted if the last three writes of the pod failed with a conflict.");
    }
    "ttl-after-finished-controller" {
        FINISHED_JOB = ("job", "GET jobs", 0,
            "The delete of an expired Job failed with a conflict.");
    }
    "validatingadmissionpolicy-status-controller" {
        POLICY_DISCOVERY = ("discovery", "GET /api, /apis", 0,
            "A ValidatingAdmissionPolicy is type-checked, and the cached API discovery is older than 30 \
             seconds or lacks a kind.");
        POLICY_INDEX = ("index", "GET /openapi/v3", 0,
            "A ValidatingAdmissionPolicy is type-checked. The index is read once for each generation of the \
             policy.");
        POLICY_DOCUMENT = ("document", "GET /openapi/v3/…", 0,
            "A ValidatingAdmissionPolicy is type-checked, and the OpenAPI document of a group version is not \
             cached or has changed.");
    }
    "volumeattributesclass-protection-controller" {
        CLASS_USERS = ("users", "LIST persistentvolumeclaims, persistentvolumes", 13,
            "A VolumeAttributesClass is being deleted, and no claim or volume in the cache uses the class. \
             Repeated with backoff while the API server has such a claim or volume.");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::registry::REGISTRY;

    #[test]
    fn each_live_read_belongs_to_a_controller_and_has_a_name_of_its_own() {
        let mut seen = BTreeSet::new();
        for row in ALL {
            assert!(REGISTRY.iter().any(|descriptor| descriptor.name == row.controller), "{row}");
            assert!(seen.insert((row.controller, row.name)), "{row} is there twice");
            assert!(row.when.ends_with('.') && !row.when.contains('|') && !row.request.is_empty(), "{row}");
        }
        let names: Vec<_> = ALL.iter().map(|row| row.controller).collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}

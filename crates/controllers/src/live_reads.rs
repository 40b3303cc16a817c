//! The live reads of all controllers. `make docs` writes this table to `docs/live-reads.md`.
//!
//! The number is the maximum for one object in an hour in which nothing changes and no request fails. A failed read is retried with the
//! backoff of its queue. Zero means that only a change makes the controller read.

use coxswain_machinery::live_reads;

live_reads! {
    "certificatesigningrequest-approving-controller" {
        CSR_ACCESS = ("access", "POST subjectaccessreviews", 42,
            "An undecided request is for a kubelet client certificate. The review of a refused request is repeated \
             with backoff.");
    }
    "cronjob-controller" {
        CRON_JOB_ITSELF = ("cronjob", "GET cronjobs", 0,
            "A Job that has not ended is not in the status of the cached CronJob, which may be old.");
        CRON_JOB_MISSING_JOB = ("job", "GET jobs", 0,
            "The status lists a Job that the cache lacks.");
    }
    "daemonset-controller" {
        DAEMON_SET_ADOPTION = ("adoption", "GET daemonsets", 0,
            "Before pods or revisions are adopted: a deleted DaemonSet adopts nothing.");
    }
    "deployment-controller" {
        DEPLOYMENT_ADOPTION = ("adoption", "GET deployments", 0,
            "Before ReplicaSets are adopted: a deleted Deployment adopts nothing.");
    }
    "device-taint-eviction-controller" {
        EVICTION_EVIDENCE = ("evidence", "GET pods, resourceclaims, resourceslices, devicetaintrules", 0,
            "Before a pod is evicted: the pod and the objects that are the reason.");
    }
    "disruption-controller" {
        BUDGET_DISCOVERY = ("discovery", "GET /api, /apis", 0,
            "A budget selects pods of a controller that is not built in, and the resources of the API are older than 30 seconds, or lack its kind.");
        BUDGET_SCALE = ("scale", "GET scales", 0,
            "A budget selects pods of a controller that is not built in.");
    }
    "endpoints-controller" {
        ENDPOINTS_SERVICE = ("service", "GET services", 0,
            "Before the Endpoints of a deleted Service are deleted: another Service may have the name.");
    }
    "garbage-collector-controller" {
        COLLECTOR_OBJECT = ("object", "GET any resource", 0,
            "An object depends on an owner without a watch, or the object changed between a decision and its write. \
             A 404 without the object's name is followed by a LIST with its name as field selector.");
        COLLECTOR_UNSEEN = ("unseen", "GET any resource", 121,
            "An owner waits for a dependent whose watch has ended. One dependent is read every 30 seconds.");
    }
    "horizontal-pod-autoscaler-controller" {
        AUTOSCALER_DISCOVERY = ("discovery", "GET /api, /apis", 720,
            "An autoscaler is evaluated, and the resources of the API are older than 30 seconds, or lack a kind. One fetch serves all controllers.");
        AUTOSCALER_SCALE = ("scale", "GET scales", 241,
            "An autoscaler is evaluated (--horizontal-pod-autoscaler-sync-period), and again after a conflict.");
        AUTOSCALER_METRICS = ("metrics", "GET metrics.k8s.io, custom.metrics.k8s.io, external.metrics.k8s.io", 241,
            "An autoscaler is evaluated: once for each of its metrics.");
    }
    "job-controller" {
        JOB_ADOPTION = ("adoption", "GET jobs", 0,
            "Before pods are adopted: a deleted Job adopts nothing.");
    }
    "legacy-serviceaccount-token-cleaner-controller" {
        TOKEN_TRACKING = ("tracking", "GET configmaps", 1,
            "Once a day: the date since which the use of tokens is tracked.");
    }
    "namespace-controller" {
        NAMESPACE_ITSELF = ("namespace", "GET namespaces", 451,
            "A namespace is being deleted and not empty. It is read every 8 seconds while a finalizer of another controller holds an object in it, as \
             kube-controller-manager does.");
        NAMESPACE_DISCOVERY = ("discovery", "GET /api, /apis", 451,
            "A namespace is being deleted: the resources to delete.");
        NAMESPACE_CONTENT = ("content", "LIST any resource", 451,
            "A namespace is being deleted: once for each resource.");
        NAMESPACE_STILL_THERE = ("still-there", "GET namespaces", 0,
            "Before the contents are deleted: another namespace may have the name.");
    }
    "node-lifecycle-controller" {
        CONDITIONED_NODE = ("node", "GET nodes", 0,
            "The last three writes of the taints of a node were refused because the node had changed.");
        STRANDED_POD = ("pod", "GET pods", 0,
            "The last three writes of the condition of a pod were refused because the pod had changed.");
    }
    "persistentvolume-attach-detach-controller" {
        ATTACHMENT_NODE = ("node", "GET nodes", 60,
            "Before a volume is detached: the node may still use it.");
        ATTACHMENT_COMPARED = ("compared", "GET volumeattachments", 61,
            "The cache shows no VolumeAttachment of an attached volume: once in --attach-detach-reconcile-sync-period.");
        ATTACHMENT_UNHEARD = ("unheard", "GET volumeattachments", 60,
            "A volume is to be detached, and the cache lacks its VolumeAttachment. Repeated with backoff while the API server has the object.");
    }
    "persistentvolume-binder-controller" {
        BINDER_VOLUME = ("volume", "GET persistentvolumes", 241,
            "A bound claim lacks its volume in the cache, a directory is to be created, or a released volume is to \
             be emptied or its directory deleted. Repeated every 15 seconds (--pvclaimbinder-sync-period) until the \
             data is deleted.");
        BINDER_CLAIM = ("claim", "GET persistentvolumeclaims", 241,
            "A bound volume lacks its claim in the cache, or a released volume is to be emptied or its directory deleted.");
        BINDER_RECYCLER = ("recycler", "GET pods", 241,
            "The pod that empties a volume has failed: its message. Or another pod may have its name, which had succeeded: it could not be deleted, or the cache lacks it.");
    }
    "persistentvolume-expander-controller" {
        EXPANDER_VOLUME = ("volume", "GET persistentvolumes", 0,
            "The cache lacks the volume of a bound claim.");
    }
    "persistentvolumeclaim-protection-controller" {
        CLAIM_USERS = ("pods", "LIST pods in a namespace", 13,
            "The cache shows no pod that uses a claim that is being deleted, or that is to be called unused. Repeated with backoff while the API server has \
             such a pod. One list serves all claims of the namespace.");
    }
    "pod-garbage-collector-controller" {
        OUT_OF_SERVICE_NODE = ("node", "GET nodes", 181,
            "Every 20 seconds while a node is out of service and has pods that are being deleted.");
        GONE_NODE = ("gone-node", "GET nodes", 0,
            "Before pods of a node that the cache lacks are deleted.");
    }
    "podgroup-protection-controller" {
        GROUP_USERS = ("pods", "LIST pods in a namespace", 13,
            "The cache shows no pod of a PodGroup that is being deleted. Repeated with backoff while the API server has such a pod. One list serves all \
             groups of the namespace.");
    }
    "replicaset-controller" {
        REPLICA_SET_ADOPTION = ("adoption", "GET replicasets", 0,
            "Before pods are adopted: a deleted ReplicaSet adopts nothing. The same for replicationcontroller-controller.");
    }
    "resourceclaim-controller" {
        DEVICE_CLAIM = ("claim", "GET resourceclaims", 0,
            "The status of a pod names a claim that the cache lacks.");
        DEVICE_CONSUMER = ("consumer", "GET pods, podgroups", 0,
            "A claim is reserved for a pod or PodGroup that the cache lacks and whose deletion no watch has shown.");
    }
    "service-cidr-controller" {
        SERVICE_ADDRESSES = ("addresses", "LIST ipaddresses", 0,
            "A ServiceCIDR is being deleted, and the cache shows no address that only it contains.");
        SERVICE_HEIR = ("heir", "GET servicecidrs", 0,
            "Before the finalizer of a ServiceCIDR is removed: each range that takes over its addresses.");
    }
    "serviceaccount-token-controller" {
        TOKEN_OWNER = ("owner", "GET serviceaccounts", 0,
            "A token Secret was deleted, and the cached account does not list it.");
        TOKEN_SECRET = ("secret", "GET secrets", 0,
            "Before the reference of an account to a deleted Secret is removed.");
        TOKEN_ACCOUNT = ("account", "GET serviceaccounts", 0,
            "Before a token is signed, and before a token Secret of a deleted account is deleted.");
    }
    "statefulset-controller" {
        STATEFUL_SET_ADOPTION = ("adoption", "GET statefulsets", 0,
            "Before pods or revisions are adopted: a deleted StatefulSet adopts nothing.");
        STATEFUL_SET_TAKEN = ("taken", "GET controllerrevisions", 0,
            "The name of a new revision is already in use.");
        STATEFUL_SET_DOCUMENT = ("document", "GET controllerrevisions", 0,
            "The newest revision may be equal to a changed template, or pods of the current revision are created.");
    }
    "storage-version-migrator-controller" {
        MIGRATION_DISCOVERY = ("discovery", "GET /api, /apis", 0,
            "A migration begins, and the resources of the API are older than 30 seconds, or lack its resource.");
        MIGRATION_DEFINITION = ("definition", "GET customresourcedefinitions", 0,
            "A migration of custom resources starts or finishes.");
        MIGRATION_PAGE = ("page", "LIST any resource, 500 objects", 0,
            "A migration processes the objects of its resource.");
    }
    "storageversion-garbage-collector-controller" {
        SERVER_LEASE = ("lease", "GET leases", 0,
            "The identity Lease of an API server was deleted, or a StorageVersion names an API server without a Lease.");
        SERVER_VERSIONS = ("versions", "LIST storageversions", 0,
            "The Lease of an API server was deleted.");
        SERVER_VERSION = ("version", "GET storageversions", 0,
            "A StorageVersion names an API server without a Lease.");
    }
    "taint-eviction-controller" {
        TAINTED_NODE = ("node", "GET nodes", 0,
            "Before pods of a node are deleted because of its taints. One read serves all pods of the node that are \
             due.");
        TAINTED_POD = ("pod", "GET pods", 0,
            "Before a pod is deleted whose last three writes were refused because the pod had changed.");
    }
    "ttl-after-finished-controller" {
        FINISHED_JOB = ("job", "GET jobs", 0,
            "The delete of an expired Job failed with a conflict.");
    }
    "validatingadmissionpolicy-status-controller" {
        POLICY_DISCOVERY = ("discovery", "GET /api, /apis", 0,
            "A policy is checked, and the resources of the API are older than 30 seconds, or lack a kind.");
        POLICY_INDEX = ("index", "GET /openapi/v3", 0,
            "A policy is checked: once for each generation.");
        POLICY_DOCUMENT = ("document", "GET /openapi/v3/…", 0,
            "A policy is checked, and the document of a group version is not cached or has changed.");
    }
    "volumeattributesclass-protection-controller" {
        CLASS_USERS = ("users", "LIST persistentvolumeclaims, persistentvolumes", 13,
            "The cache shows no user of a class that is being deleted. Repeated with backoff while the API server has one.");
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

//! Declared writes that are never sent, so that they have no row.

/// A declared write that is never sent.
pub(in crate::matrix) struct Never {
    pub(in crate::matrix) controller: &'static str,
    pub(in crate::matrix) write: &'static str,
    pub(in crate::matrix) reason: &'static str,
}

const fn never(controller: &'static str, write: &'static str, reason: &'static str) -> Never {
    Never { controller, write, reason }
}

/// Admission (`OwnerReferencesPermissionEnforcement`) checks this right when an owner waits for its dependents.
const BLOCKS: &str = "a right that admission checks, not a request";
/// kube-controller-manager's role has this right.
const UNUSED: &str = "granted by the bootstrap role, and not used";

pub(in crate::matrix) static NEVER_SENT: &[Never] = &[
    never("replicaset-controller", "update replicasets.apps/finalizers", BLOCKS),
    never("replicationcontroller-controller", "update replicationcontrollers/finalizers", BLOCKS),
    never("deployment-controller", "update deployments.apps/finalizers", BLOCKS),
    never("deployment-controller", "update pods", UNUSED),
    never("daemonset-controller", "update daemonsets.apps/finalizers", BLOCKS),
    never("statefulset-controller", "update statefulsets.apps/finalizers", BLOCKS),
    never("statefulset-controller", "update pods/finalizers", BLOCKS),
    never("statefulset-controller", "delete persistentvolumeclaims", BLOCKS),
    never("job-controller", "update jobs.batch/finalizers", BLOCKS),
    never("cronjob-controller", "update cronjobs.batch/finalizers", BLOCKS),
    never("disruption-controller", "update pods/status", UNUSED),
    never("endpoints-controller", "create endpoints/restricted", BLOCKS),
    never("endpointslice-controller", "update services/finalizers", BLOCKS),
    never("endpointslice-mirroring-controller", "update endpoints/finalizers", BLOCKS),
    never("ephemeral-volume-controller", "update pods/finalizers", BLOCKS),
    never("resourceclaim-controller", "update pods/finalizers", BLOCKS),
    never("resourceclaim-controller", "update resourceclaims.resource.k8s.io/binding", BLOCKS),
    never("garbage-collector-controller", "update *.*", UNUSED),
    never(
        "persistentvolume-binder-controller",
        "create persistentvolumes",
        "sent with --enable-hostpath-provisioner only, which creates directories on the host; unit tests replace the disk",
    ),
    never(
        "podcertificaterequest-cleaner-controller",
        "delete podcertificaterequests.certificates.k8s.io",
        "the model of the API server stores no PodCertificateRequests; unit tests plan the delete",
    ),
    never(
        "storage-version-migrator-controller",
        "create *.*",
        "asked for by an apply, which names a UID and creates nothing",
    ),
];

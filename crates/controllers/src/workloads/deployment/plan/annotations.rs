//! The annotations by which Deployments and their ReplicaSets keep count of revisions and sizes, as clients know them.

/// The revision of a ReplicaSet, and at a Deployment that of its present template.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Revisions that a ReplicaSet had before.
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// `spec.replicas` of the Deployment when the ReplicaSet was scaled last.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The same with the surge allowed.
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// The hash of a ReplicaSet's template, if admission changed that when the ReplicaSet was created.
pub(super) const ADMITTED_TEMPLATE: &str = "coxswain.dev/admitted-template";
/// At a Deployment: the revision that it is to be rolled back to, 0 for the last one. It is how `rollbackTo` of older
/// versions of the API is kept.
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

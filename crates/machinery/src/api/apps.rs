//! `apps/v1`, trimmed. Most are rewritten, so their bytes are kept in `raw`.

use std::sync::Arc;

use bytes::Bytes;

use super::core::PodTemplateSpec;
use super::kind::{AnyObject, ApiVersion, decode_kept, kinds, objects};
use super::meta::{LabelSelector, ObjectMeta};
use super::storage::PersistentVolumeClaim;
use crate::model::fitting::NodeConstraints;
use crate::model::hash;
use crate::wire::{Contents, IntOrString, Keep, Message, Raw, Str, Time, WireError, message};

const APPS: ApiVersion = ApiVersion { group: "apps", version: "v1" };

kinds! {
    /// ReplicaSets.
    REPLICA_SETS = APPS.namespaced::<ReplicaSet>("ReplicaSet", "replicasets");
    /// Deployments.
    DEPLOYMENTS = APPS.namespaced::<Deployment>("Deployment", "deployments");
    /// StatefulSets.
    STATEFUL_SETS = APPS.namespaced::<StatefulSet>("StatefulSet", "statefulsets");
    /// DaemonSets.
    DAEMON_SETS = APPS.namespaced::<DaemonSet>("DaemonSet", "daemonsets").decoded_by(decode_daemon_set);
    /// ControllerRevisions, without what they are revisions of.
    CONTROLLER_REVISIONS = APPS
        .namespaced::<ControllerRevision>("ControllerRevision", "controllerrevisions")
        .decoded_by(decode_revision);
    /// ControllerRevisions with what they are revisions of, to be read live.
    CONTROLLER_REVISION_DOCUMENTS = APPS
        .namespaced::<RevisionDocument>("ControllerRevision", "controllerrevisions");
}

objects! {
    ReplicaSet + raw;
    Deployment + raw;
    StatefulSet + raw;
    DaemonSet + raw;
    ControllerRevision keeps Keep::LABELS;
    RevisionDocument + raw;
}

/// What its template asks of nodes is read once, not for each node that is looked at.
fn decode_daemon_set(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let mut set = decode_kept::<DaemonSet>(bytes)?;
    set.constraints = NodeConstraints::of_template(&set.spec.template)?;
    Ok(Arc::new(set))
}

/// Two revisions of the same are told by 128 bits: their documents are large, and there are ten of each template.
fn decode_revision(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let mut revision = ControllerRevision::decode_with(bytes, Keep::LABELS)?;
    let document = RevisionDocument::decode(bytes)?.data.raw;
    revision.digest = (!document.is_empty()).then(|| hash::digest(&document));
    Ok(Arc::new(revision))
}

message! {
    schema SCHEMA;

    /// A deployment.
    pub struct Deployment + raw = "k8s.io.api.apps.v1.Deployment" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: DeploymentSpec,
        /// Observed state.
        3 => status: DeploymentStatus,
    }

    /// Desired state of a deployment.
    pub struct DeploymentSpec = "k8s.io.api.apps.v1.DeploymentSpec" {
        /// Number of pods.
        1 => replicas: Option<i32>,
        /// Which pods belong to it.
        2 => selector: LabelSelector,
        /// The pods' template, unparsed.
        3 => template: Raw as PodTemplateSpec,
        /// How new pods replace old ones.
        4 => strategy: DeploymentStrategy,
        /// Seconds for which a pod must be ready to count as available.
        5 => min_ready_seconds: i32,
        /// Old replica sets to keep.
        6 => revision_history_limit: Option<i32>,
        /// Whether rolling out is suspended.
        7 => paused: bool,
        /// Seconds without progress after which it is reported as failed.
        9 => progress_deadline_seconds: Option<i32>,
    }

    /// How new pods replace old ones.
    pub struct DeploymentStrategy = "k8s.io.api.apps.v1.DeploymentStrategy" {
        /// `Recreate` or `RollingUpdate`.
        1 => r#type: Str [interned],
        /// For `RollingUpdate`.
        2 => rolling_update: Option<Box<RollingUpdateDeployment>>,
    }

    /// Bounds of a rolling update.
    pub struct RollingUpdateDeployment = "k8s.io.api.apps.v1.RollingUpdateDeployment" {
        /// Pods that may be missing.
        1 => max_unavailable: Option<IntOrString>,
        /// Pods that may be too many.
        2 => max_surge: Option<IntOrString>,
    }

    /// Observed state of a deployment.
    pub struct DeploymentStatus = "k8s.io.api.apps.v1.DeploymentStatus" {
        /// Generation that this status speaks of.
        1 => observed_generation: i64,
        /// Pods that are not terminating.
        2 => replicas: i32,
        /// Pods with the present template.
        3 => updated_replicas: i32,
        /// Pods ready for `minReadySeconds`.
        4 => available_replicas: i32,
        /// Pods still wanting.
        5 => unavailable_replicas: i32,
        /// Conditions.
        6 => conditions: Vec<DeploymentCondition>,
        /// Ready pods.
        7 => ready_replicas: i32,
        /// Hash collisions of replica set names so far.
        8 => collision_count: Option<i32>,
        /// Terminating pods (KEP-3973).
        9 => terminating_replicas: Option<i32>,
    }

    /// A condition of a deployment.
    pub struct DeploymentCondition = "k8s.io.api.apps.v1.DeploymentCondition" {
        /// `Available`, `Progressing` or `ReplicaFailure`.
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
        /// For machines.
        4 => reason: Str [interned],
        /// For people.
        5 => message: Str,
        /// When it was looked at last.
        6 => last_update_time: Option<Time>,
        /// When `status` changed last.
        7 => last_transition_time: Option<Time>,
    }

    /// A replica set.
    pub struct ReplicaSet + raw = "k8s.io.api.apps.v1.ReplicaSet" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: ReplicaSetSpec,
        /// Observed state.
        3 => status: ReplicaSetStatus,
    }

    /// Desired state of a replica set.
    pub struct ReplicaSetSpec = "k8s.io.api.apps.v1.ReplicaSetSpec" {
        /// Number of pods.
        1 => replicas: Option<i32>,
        /// Which pods belong to it.
        2 => selector: LabelSelector,
        /// The pods' template, unparsed.
        3 => template: Raw as PodTemplateSpec,
        /// Seconds for which a pod must be ready to count as available.
        4 => min_ready_seconds: i32,
    }

    /// Observed state of a replica set.
    pub struct ReplicaSetStatus = "k8s.io.api.apps.v1.ReplicaSetStatus" {
        /// Pods that are not terminating.
        1 => replicas: i32,
        /// Pods with all labels of the template.
        2 => fully_labeled_replicas: i32,
        /// Generation that this status speaks of.
        3 => observed_generation: i64,
        /// Ready pods.
        4 => ready_replicas: i32,
        /// Pods ready for `minReadySeconds`.
        5 => available_replicas: i32,
        /// Conditions.
        6 => conditions: Vec<ReplicaSetCondition>,
        /// Terminating pods (KEP-3973).
        7 => terminating_replicas: Option<i32>,
    }

    /// A condition of a replica set.
    pub struct ReplicaSetCondition = "k8s.io.api.apps.v1.ReplicaSetCondition" {
        /// `ReplicaFailure`.
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
        /// When `status` changed last.
        3 => last_transition_time: Option<Time>,
        /// For machines.
        4 => reason: Str [interned],
        /// For people.
        5 => message: Str,
    }

    /// A StatefulSet.
    pub struct StatefulSet + raw = "k8s.io.api.apps.v1.StatefulSet" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: StatefulSetSpec,
        /// Observed state.
        3 => status: StatefulSetStatus,
    }

    /// Desired state of a StatefulSet.
    pub struct StatefulSetSpec = "k8s.io.api.apps.v1.StatefulSetSpec" {
        /// Number of pods.
        1 => replicas: Option<i32>,
        /// Which pods belong to it.
        2 => selector: LabelSelector,
        /// The pods' template, unparsed.
        3 => template: Raw as PodTemplateSpec,
        /// Templates of the claims that each pod has, unparsed.
        4 => volume_claim_templates: Vec<Raw> as PersistentVolumeClaim,
        /// The service under whose name DNS knows the pods.
        5 => service_name: Str,
        /// `OrderedReady` or `Parallel`.
        6 => pod_management_policy: Str [interned],
        /// How new pods replace old ones.
        7 => update_strategy: StatefulSetUpdateStrategy,
        /// Old revisions to keep.
        8 => revision_history_limit: Option<i32>,
        /// Seconds for which a pod must be ready to count as available.
        9 => min_ready_seconds: i32,
        /// What becomes of claims.
        10 => persistent_volume_claim_retention_policy: Option<Box<ClaimRetentionPolicy>>,
        /// Where ordinals begin.
        11 => ordinals: Option<Box<StatefulSetOrdinals>>,
    }

    /// How new pods of a StatefulSet replace old ones.
    pub struct StatefulSetUpdateStrategy = "k8s.io.api.apps.v1.StatefulSetUpdateStrategy" {
        /// `RollingUpdate` or `OnDelete`.
        1 => r#type: Str [interned],
        /// For `RollingUpdate`.
        2 => rolling_update: Option<Box<RollingUpdateStatefulSet>>,
    }

    /// Bounds of a rolling update of a StatefulSet.
    pub struct RollingUpdateStatefulSet = "k8s.io.api.apps.v1.RollingUpdateStatefulSetStrategy" {
        /// Pods with lower ordinals stay.
        1 => partition: Option<i32>,
        /// Pods that may be missing.
        2 => max_unavailable: Option<IntOrString>,
    }

    /// What becomes of the claims of a StatefulSet's pods.
    pub struct ClaimRetentionPolicy = "k8s.io.api.apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy" {
        /// When the set goes: `Retain` or `Delete`.
        1 => when_deleted: Str [interned],
        /// When a pod is one too many: `Retain` or `Delete`.
        2 => when_scaled: Str [interned],
    }

    /// Where ordinals begin.
    pub struct StatefulSetOrdinals = "k8s.io.api.apps.v1.StatefulSetOrdinals" {
        /// The first.
        1 => start: i32,
    }

    /// Observed state of a StatefulSet.
    pub struct StatefulSetStatus = "k8s.io.api.apps.v1.StatefulSetStatus" {
        /// Generation that this status speaks of.
        1 => observed_generation: i64,
        /// Pods.
        2 => replicas: i32,
        /// Ready pods.
        3 => ready_replicas: i32,
        /// Pods of the current revision.
        4 => current_replicas: i32,
        /// Pods of the update revision.
        5 => updated_replicas: i32,
        /// The revision that pods had before the update.
        6 => current_revision: Str,
        /// The revision that pods get.
        7 => update_revision: Str,
        /// Hash collisions of revision names so far.
        9 => collision_count: Option<i32>,
        /// Pods ready for `minReadySeconds`.
        11 => available_replicas: i32,
    } + named {
        10 => conditions,
    }

    /// A DaemonSet, with what its template asks of nodes.
    pub struct DaemonSet + raw, constraints: NodeConstraints = "k8s.io.api.apps.v1.DaemonSet" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: DaemonSetSpec,
        /// Observed state.
        3 => status: DaemonSetStatus,
    }

    /// Desired state of a DaemonSet.
    pub struct DaemonSetSpec = "k8s.io.api.apps.v1.DaemonSetSpec" {
        /// Which pods belong to it.
        1 => selector: LabelSelector,
        /// The pods' template, unparsed.
        2 => template: Raw as PodTemplateSpec,
        /// How new pods replace old ones.
        3 => update_strategy: DaemonSetUpdateStrategy,
        /// Seconds for which a pod must be ready to count as available.
        4 => min_ready_seconds: i32,
        /// Old revisions to keep.
        6 => revision_history_limit: Option<i32>,
    }

    /// How new pods of a DaemonSet replace old ones.
    pub struct DaemonSetUpdateStrategy = "k8s.io.api.apps.v1.DaemonSetUpdateStrategy" {
        /// `RollingUpdate` or `OnDelete`.
        1 => r#type: Str [interned],
        /// For `RollingUpdate`.
        2 => rolling_update: Option<Box<RollingUpdateDaemonSet>>,
    }

    /// Bounds of a rolling update of a DaemonSet.
    pub struct RollingUpdateDaemonSet = "k8s.io.api.apps.v1.RollingUpdateDaemonSet" {
        /// Nodes on which the pod may be missing.
        1 => max_unavailable: Option<IntOrString>,
        /// Nodes on which there may be two.
        2 => max_surge: Option<IntOrString>,
    }

    /// Observed state of a DaemonSet.
    pub struct DaemonSetStatus = "k8s.io.api.apps.v1.DaemonSetStatus" {
        /// Nodes that should run the pod and have one.
        1 => current_number_scheduled: i32,
        /// Nodes that should not run the pod and have one.
        2 => number_misscheduled: i32,
        /// Nodes that should run the pod.
        3 => desired_number_scheduled: i32,
        /// Nodes of which the pod is ready.
        4 => number_ready: i32,
        /// Generation that this status speaks of.
        5 => observed_generation: i64,
        /// Nodes of which the pod has the present template.
        6 => updated_number_scheduled: i32,
        /// Nodes of which the pod is available.
        7 => number_available: i32,
        /// Nodes of which the pod is not available.
        8 => number_unavailable: i32,
        /// Hash collisions of revision names so far.
        9 => collision_count: Option<i32>,
    } + named {
        10 => conditions,
    }

    /// A copy of a pod template, as far as it is cached. What it is a copy of is in its `digest` alone.
    pub struct ControllerRevision + digest: Option<u128> = "k8s.io.api.apps.v1.ControllerRevision" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Its number among those of its owner.
        3 => revision: i64,
    }

    /// A copy of a pod template, in full.
    pub struct RevisionDocument + raw = "k8s.io.api.apps.v1.ControllerRevision" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// The copy.
        2 => data: RawExtension,
        /// Its number among those of its owner.
        3 => revision: i64,
    }

    /// Any JSON.
    pub struct RawExtension = "k8s.io.apimachinery.pkg.runtime.RawExtension" {
        /// The JSON.
        1 => raw: Contents,
    }
}

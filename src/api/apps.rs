//! `apps/v1`, trimmed. Deployments and ReplicaSets are rewritten, so their bytes are kept in `raw`.

use super::meta::{LabelSelector, ObjectMeta};
use crate::wire::{IntOrString, Raw, Str, Time, message};

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
        3 => template: Raw,
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
        3 => template: Raw,
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
}

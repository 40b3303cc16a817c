//! `rbac.authorization.k8s.io/v1`, trimmed. Rules are written by server-side apply, so no bytes are kept.

use super::kind::{ApiVersion, kinds, objects};
use super::meta::{LabelSelector, ObjectMeta};
use crate::wire::{Keep, Str, message};

const RBAC: ApiVersion = ApiVersion { group: "rbac.authorization.k8s.io", version: "v1" };

kinds! {
    /// ClusterRoles.
    CLUSTER_ROLES = RBAC.cluster_wide::<ClusterRole>("ClusterRole", "clusterroles");
}

objects! {
    ClusterRole keeps Keep::LABELS;
}

message! {
    schema SCHEMA;

    /// A role.
    pub struct ClusterRole = "k8s.io.api.rbac.v1.ClusterRole" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// What it permits.
        2 => rules: Vec<PolicyRule>,
        /// Whose rules it gathers, if it does.
        3 => aggregation_rule: Option<Box<AggregationRule>>,
    }

    /// Verbs on resources or on paths.
    pub struct PolicyRule = "k8s.io.api.rbac.v1.PolicyRule" {
        /// Verbs.
        1 => verbs: Vec<Str> [interned],
        /// API groups.
        2 => api_groups: Vec<Str> [interned],
        /// Resources and subresources.
        3 => resources: Vec<Str> [interned],
        /// Names of objects; any if empty.
        4 => resource_names: Vec<Str> [interned],
        /// Paths that are no resources.
        5 => non_resource_urls: Vec<Str> [interned],
    }

    /// Whose rules a role gathers.
    pub struct AggregationRule = "k8s.io.api.rbac.v1.AggregationRule" {
        /// Roles that any of these selects.
        1 => cluster_role_selectors: Vec<LabelSelector>,
    }
}

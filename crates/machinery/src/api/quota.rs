//! Resource quotas of `core/v1`, trimmed. They are rewritten, so their bytes are kept in `raw`.

use super::kind::{ApiVersion, kinds, objects};
use super::meta::ObjectMeta;
use crate::wire::{Quantities, Str, message};

kinds! {
    /// ResourceQuotas.
    RESOURCE_QUOTAS = ApiVersion::CORE.namespaced::<ResourceQuota>("ResourceQuota", "resourcequotas");
}

objects! {
    ResourceQuota + raw;
}

message! {
    schema SCHEMA;

    /// A quota of a namespace.
    pub struct ResourceQuota + raw = "k8s.io.api.core.v1.ResourceQuota" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// What is limited.
        2 => spec: ResourceQuotaSpec,
        /// What is used.
        3 => status: ResourceQuotaStatus,
    }

    /// What a quota limits.
    pub struct ResourceQuotaSpec = "k8s.io.api.core.v1.ResourceQuotaSpec" {
        /// How much there may be, by resource.
        1 => hard: Quantities,
        /// What objects must be to count: all of these.
        2 => scopes: Vec<Str> [interned],
        /// What else they must be.
        3 => scope_selector: Option<Box<ScopeSelector>>,
    }

    /// Further conditions on what counts.
    pub struct ScopeSelector = "k8s.io.api.core.v1.ScopeSelector" {
        /// All of which must hold.
        1 => match_expressions: Vec<ScopeRequirement>,
    }

    /// One condition on what counts.
    pub struct ScopeRequirement = "k8s.io.api.core.v1.ScopedResourceSelectorRequirement" {
        /// The scope.
        1 => scope_name: Str [interned],
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        2 => operator: Str [interned],
        /// Values for `In` and `NotIn`.
        3 => values: Vec<Str> [interned],
    }

    /// How much is used.
    pub struct ResourceQuotaStatus = "k8s.io.api.core.v1.ResourceQuotaStatus" {
        /// The limits that are in force.
        1 => hard: Quantities,
        /// What is used of them.
        2 => used: Quantities,
    }
}

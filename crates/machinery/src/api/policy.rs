//! `policy/v1`, trimmed.

use super::kind::{ApiVersion, kinds, objects};
use super::meta::{Condition, LabelSelector, ObjectMeta};
use crate::wire::{IntOrString, Map, Time, message};

const POLICY: ApiVersion = ApiVersion { group: "policy", version: "v1" };

kinds! {
    /// PodDisruptionBudgets.
    POD_DISRUPTION_BUDGETS = POLICY.namespaced::<PodDisruptionBudget>("PodDisruptionBudget", "poddisruptionbudgets");
}

objects! {
    PodDisruptionBudget + raw;
}

message! {
    schema SCHEMA;

    /// How many of some pods must stay.
    pub struct PodDisruptionBudget + raw = "k8s.io.api.policy.v1.PodDisruptionBudget" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: PodDisruptionBudgetSpec,
        /// Observed state.
        3 => status: PodDisruptionBudgetStatus,
    }

    /// Which pods, and how many.
    pub struct PodDisruptionBudgetSpec = "k8s.io.api.policy.v1.PodDisruptionBudgetSpec" {
        /// At least this many must be available.
        1 => min_available: Option<IntOrString>,
        /// The pods; none if absent, all if empty.
        2 => selector: Option<Box<LabelSelector>>,
        /// At most this many may be unavailable.
        3 => max_unavailable: Option<IntOrString>,
    }

    /// How many may be evicted now.
    pub struct PodDisruptionBudgetStatus = "k8s.io.api.policy.v1.PodDisruptionBudgetStatus" {
        /// Generation that this status speaks of.
        1 => observed_generation: i64,
        /// Pods about to be evicted, and since when.
        2 => disrupted_pods: Map<Option<Time>>,
        /// How many may be evicted.
        3 => disruptions_allowed: i32,
        /// How many are healthy.
        4 => current_healthy: i32,
        /// How many must be.
        5 => desired_healthy: i32,
        /// How many there should be.
        6 => expected_pods: i32,
        /// Conditions.
        7 => conditions: Vec<Condition>,
    }
}

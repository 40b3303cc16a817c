//! What a pod is charged with: the resources that it asks for, summed up while it is decoded, and what else quotas tell
//! pods apart by. See "Resource Quotas", "Pod Overhead", "Sidecar Containers" and KEP-1287 (in-place resize).
//!
//! Thousands of pods of one template are charged the same, so they share one [`PodCharge`]: a cached pod pays one pointer, and
//! of most pods nothing is decoded for it ([`super::shape`]).
//! Decides nothing: what counts when is the quota controller's.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use super::kind::FEW;
use super::meta::LabelSelector;
use crate::model::quantity::Quantity;
use crate::random::HashMap;
use crate::wire::{Interner, Keep, Message, Quantities, Str, WireError, message};

message! {
    schema SCHEMA;

    /// A pod, as far as it is charged.
    struct ChargedPod = "k8s.io.api.core.v1.Pod" {
        2 => spec: ChargedSpec,
        3 => status: ChargedStatus,
    }

    struct ChargedSpec = "k8s.io.api.core.v1.PodSpec" {
        2 => containers: Vec<ChargedContainer>,
        5 => active_deadline_seconds: Option<i64>,
        18 => affinity: Affinity,
        20 => init_containers: Vec<ChargedContainer>,
        24 => priority_class_name: Str [interned],
        32 => overhead: Quantities,
        40 => resources: Resources,
    }

    struct ChargedContainer = "k8s.io.api.core.v1.Container" {
        1 => name: Str [interned],
        8 => resources: Resources,
        24 => restart_policy: Str [interned],
    }

    struct Resources = "k8s.io.api.core.v1.ResourceRequirements" {
        1 => limits: Quantities,
        2 => requests: Quantities,
    }

    struct Affinity = "k8s.io.api.core.v1.Affinity" {
        2 => pod_affinity: PodAffinity,
        3 => pod_anti_affinity: PodAffinity,
    }

    struct PodAffinity = "k8s.io.api.core.v1.PodAffinity" {
        1 => required_during_scheduling_ignored_during_execution: Vec<AffinityTerm>,
        2 => preferred_during_scheduling_ignored_during_execution: Vec<WeightedTerm>,
    }

    struct WeightedTerm = "k8s.io.api.core.v1.WeightedPodAffinityTerm" {
        2 => pod_affinity_term: AffinityTerm,
    }

    struct AffinityTerm = "k8s.io.api.core.v1.PodAffinityTerm" {
        2 => namespaces: Vec<Str> [interned],
        4 => namespace_selector: Option<Box<LabelSelector>>,
    }

    struct ChargedStatus = "k8s.io.api.core.v1.PodStatus" {
        2 => conditions: Vec<Condition> [conditions],
        8 => container_statuses: Vec<Status>,
        9 => qos_class: Str [interned],
        10 => init_container_statuses: Vec<Status>,
    }

    struct Condition = "k8s.io.api.core.v1.PodCondition" {
        1 => r#type: Str [interned],
        5 => reason: Str [interned],
    }

    struct Status = "k8s.io.api.core.v1.ContainerStatus" {
        1 => name: Str [interned],
        10 => allocated_resources: Quantities,
        11 => resources: Option<Box<Resources>>,
    }
}

/// What pods of one sort are charged with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodCharge {
    /// What is asked for, overhead included, by resource.
    pub requests: Amounts,
    /// What is allowed of CPU, memory and ephemeral storage, overhead included.
    pub limits: Amounts,
    /// Name of its priority class, or empty.
    pub priority_class: Str,
    /// Whether it is to end by itself after some time.
    pub terminating: bool,
    /// Whether it asks for CPU or memory: its quality of service is not `BestEffort`.
    pub asks: bool,
    /// Whether it wants to be near to, or far from, pods of other namespaces.
    pub crosses_namespaces: bool,
    /// What is asked for and allowed where features are off, if that is something else.
    pub without: Option<Box<Without>>,
}

/// What is asked for by other rules than all: of most pods the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Without([Sums; 3]);

/// What is asked for and what is allowed, of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Sums {
    requests: Amounts,
    limits: Amounts,
}

#[cfg(any(test, feature = "testing"))]
impl From<[(Amounts, Amounts); 3]> for Without {
    fn from(sums: [(Amounts, Amounts); 3]) -> Self {
        Self(sums.map(|(requests, limits)| Sums { requests, limits }))
    }
}

/// Which features decide about what a pod is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeRules {
    /// `PodLevelResources`: what is said of the pod as a whole counts.
    pub pod_level: bool,
    /// `InPlacePodVerticalScaling`: what containers have counts, beside what they should have.
    pub in_place: bool,
}

impl ChargeRules {
    /// All of them.
    pub const ALL: Self = Self { pod_level: true, in_place: true };
    /// The others, in the order of [`Without`].
    const OTHERS: [Self; 3] = [
        Self { pod_level: false, in_place: true },
        Self { pod_level: true, in_place: false },
        Self { pod_level: false, in_place: false },
    ];
}

impl Default for ChargeRules {
    fn default() -> Self {
        Self::ALL
    }
}

impl PodCharge {
    /// What is asked for by these rules.
    pub fn requests(&self, rules: ChargeRules) -> &Amounts {
        self.without(rules).map_or(&self.requests, |sums| &sums.requests)
    }

    /// What is allowed by these rules.
    pub fn limits(&self, rules: ChargeRules) -> &Amounts {
        self.without(rules).map_or(&self.limits, |sums| &sums.limits)
    }

    fn without(&self, rules: ChargeRules) -> Option<&Sums> {
        let at = ChargeRules::OTHERS.iter().position(|other| *other == rules)?;
        self.without.as_ref().map(|without| &without.0[at])
    }
}

/// Amounts by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts(Vec<(Str, Quantity)>);

/// A pod's [`PodCharge`]; a pod made by hand is charged nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Charge(Option<Arc<PodCharge>>);

static CHARGES: LazyLock<Interner<PodCharge>> = LazyLock::new(Interner::new);
/// Type of the condition of a pod whose containers are to have other resources.
const RESIZE_PENDING: &str = "PodResizePending";
/// What is read of a pod.
const READ: Keep = Keep { conditions: Some(&[RESIZE_PENDING]), ..Keep::BARE };

static NOTHING: LazyLock<PodCharge> = LazyLock::new(PodCharge::default);

impl Charge {
    /// Appends to `out` all of an encoded pod that decides about its charge.
    pub(super) fn copy_read(pod: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
        ChargedPod::copy_read(pod, out)
    }

    /// Reads what an encoded pod is charged with.
    pub(super) fn work_out(pod: &Bytes) -> Result<Self, WireError> {
        Ok(Self::from(ChargedPod::decode_with(pod, READ)?.charge()))
    }

    /// Whether both are the same copy, so that there is nothing to compare.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(held), Some(other)) => Arc::ptr_eq(held, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl From<PodCharge> for Charge {
    fn from(charge: PodCharge) -> Self {
        Self(Some(CHARGES.share(charge)))
    }
}

impl Deref for Charge {
    type Target = PodCharge;

    fn deref(&self) -> &PodCharge {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl Amounts {
    /// The amount of a resource; nothing if it is not there.
    pub fn of(&self, resource: &str) -> Quantity {
        let place = self.0.binary_search_by(|(held, _)| held.as_str().cmp(resource));
        place.map_or(Quantity::ZERO, |at| self.0[at].1)
    }

    /// All amounts.
    pub fn iter(&self) -> impl Iterator<Item = (&Str, Quantity)> {
        self.0.iter().map(|(resource, amount)| (resource, *amount))
    }

    /// Sets each amount to what `choose` makes of it (if it is there) and the other's.
    fn merge(&mut self, other: &Self, choose: impl Fn(Option<Quantity>, Quantity) -> Option<Quantity>) {
        for (resource, amount) in &other.0 {
            match self.0.binary_search_by(|(held, _)| held.cmp(resource)) {
                Ok(at) => {
                    if let Some(chosen) = choose(Some(self.0[at].1), *amount) {
                        self.0[at].1 = chosen;
                    }
                }
                Err(at) => {
                    if let Some(chosen) = choose(None, *amount) {
                        self.0.insert(at, (resource.clone(), chosen));
                    }
                }
            }
        }
    }

    fn add(&mut self, other: &Self) {
        self.merge(other, |held, amount| Some(held.map_or(amount, |held| held.plus(amount))));
    }

    /// Raises each amount to the other's.
    fn raise(&mut self, other: &Self) {
        self.merge(other, |held, amount| Some(held.map_or(amount, |held| held.or_more(amount))));
    }

    /// Adds to what is there already, and is something.
    fn add_to_held(&mut self, other: &Self) {
        self.merge(other, |held, amount| {
            held.filter(|held| held.is_positive()).map(|held| held.plus(amount))
        });
    }

    /// Replaces what may be set for a pod as a whole (KEP-2837).
    fn replace_at_pod_level(&mut self, other: &Self) {
        let mut other = other.clone();
        other.0.retain(|(resource, _)| {
            *resource == "cpu" || *resource == "memory" || resource.starts_with("hugepages-")
        });
        self.merge(&other, |_, amount| Some(amount));
    }

    fn finished(mut self) -> Self {
        self.0.shrink_to_fit();
        self
    }
}

impl From<&Quantities> for Amounts {
    /// What is not an amount, which the API server lets nobody write, counts nothing.
    fn from(written: &Quantities) -> Self {
        let read = |(resource, amount): (&Str, &Str)| Some((resource.clone(), amount.parse().ok()?));
        Self(written.iter().filter_map(read).collect())
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Amounts {
    /// For tests: as [`Quantities`] of the same.
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(amounts: I) -> Self {
        Self::from(&amounts.into_iter().collect::<Quantities>())
    }
}

/// Requests or limits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Requests,
    Limits,
}

impl Resources {
    fn side(&self, side: Side) -> &Quantities {
        match side {
            Side::Requests => &self.requests,
            Side::Limits => &self.limits,
        }
    }

    fn asks(&self) -> bool {
        let is_something = |amounts: &Quantities| {
            Amounts::from(amounts).iter().any(|(resource, amount)| {
                (*resource == "cpu" || *resource == "memory") && amount.is_positive()
            })
        };
        is_something(&self.requests) || is_something(&self.limits)
    }
}

/// Container statuses by name. The first status of a name counts.
enum Statuses<'a> {
    /// At most [`FEW`] statuses, compared one by one. Nearly all pods have fewer.
    Few(&'a [Status]),
    Many(HashMap<&'a Str, &'a Status>),
}

impl<'a> Statuses<'a> {
    fn of(statuses: &'a [Status]) -> Self {
        if statuses.len() <= FEW {
            return Self::Few(statuses);
        }
        Self::Many(statuses.iter().rev().map(|status| (&status.name, status)).collect())
    }

    fn get(&self, name: &Str) -> Option<&'a Status> {
        match self {
            Self::Few(statuses) => statuses.iter().find(|status| status.name == *name),
            Self::Many(statuses) => statuses.get(name).copied(),
        }
    }
}

impl ChargedPod {
    fn charge(&self) -> PodCharge {
        let spec = &self.spec;
        let Sums { requests, limits } = self.sums(ChargeRules::ALL);
        PodCharge {
            without: self.without(&requests, &limits),
            requests,
            limits,
            priority_class: spec.priority_class_name.clone(),
            terminating: spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0),
            asks: self.asks(),
            crosses_namespaces: spec.affinity.pod_affinity.crosses_namespaces()
                || spec.affinity.pod_anti_affinity.crosses_namespaces(),
        }
    }

    fn sums(&self, rules: ChargeRules) -> Sums {
        let mut limits = self.sum(Side::Limits, rules);
        limits.0.retain(|(resource, _)| matches!(resource.as_str(), "cpu" | "memory" | "ephemeral-storage"));
        Sums { requests: self.sum(Side::Requests, rules).finished(), limits: limits.finished() }
    }

    /// What comes of the other rules, unless these are the same.
    fn without(&self, requests: &Amounts, limits: &Amounts) -> Option<Box<Without>> {
        let is_whole = !self.spec.resources.requests.is_empty() || !self.spec.resources.limits.is_empty();
        if !is_whole && !self.is_resized() {
            return None;
        }
        let others = ChargeRules::OTHERS.map(|rules| self.sums(rules));
        let differs = |sums: &Sums| (&sums.requests, &sums.limits) != (requests, limits);
        others.iter().any(differs).then(|| Box::new(Without(others)))
    }

    /// Whether some container has, or was given, other resources than it should have. Kubelets tell of all containers what
    /// they have; nearly always it is the same.
    fn is_resized(&self) -> bool {
        let (spec, status) = (&self.spec, &self.status);
        let all = [
            (&spec.containers, &status.container_statuses),
            (&spec.init_containers, &status.init_container_statuses),
        ];
        all.into_iter().any(|(containers, statuses)| {
            let statuses = Statuses::of(statuses);
            containers.iter().any(|container| {
                let status = statuses.get(&container.name);
                status.is_some_and(|status| status.differs_from(&container.resources))
            })
        })
    }

    /// Containers run together, and beside the sidecars; an init container runs alone, beside the sidecars before it.
    fn sum(&self, side: Side, rules: ChargeRules) -> Amounts {
        let spec = &self.spec;
        let mut total = Amounts::default();
        let statuses = Statuses::of(&self.status.container_statuses);
        for container in &spec.containers {
            total.add(&self.amounts(container, &statuses, side, rules));
        }
        let statuses = Statuses::of(&self.status.init_container_statuses);
        let (mut sidecars, mut starting) = (Amounts::default(), Amounts::default());
        for container in &spec.init_containers {
            if container.restart_policy == "Always" {
                let amounts = self.amounts(container, &statuses, side, rules);
                total.add(&amounts);
                sidecars.add(&amounts);
                starting.raise(&sidecars);
            } else {
                let mut amounts = Amounts::from(container.resources.side(side));
                amounts.add(&sidecars);
                starting.raise(&amounts);
            }
        }
        total.raise(&starting);
        if rules.pod_level {
            total.replace_at_pod_level(&Amounts::from(spec.resources.side(side)));
        }
        let overhead = Amounts::from(&spec.overhead);
        match side {
            Side::Requests => total.add(&overhead),
            // What is not limited stays so; a limit of zero is none.
            Side::Limits => total.add_to_held(&overhead),
        }
        total
    }

    /// While a container is being resized, the most of what it should have, has and was given; what it should have does
    /// not count if that can't be.
    fn amounts(
        &self,
        container: &ChargedContainer,
        statuses: &Statuses<'_>,
        side: Side,
        rules: ChargeRules,
    ) -> Amounts {
        let wanted = Amounts::from(container.resources.side(side));
        if !rules.in_place {
            return wanted;
        }
        let status = statuses.get(&container.name);
        let Some((status, resources)) = status.and_then(|held| Some((held, held.resources.as_ref()?))) else {
            return wanted;
        };
        let mut amounts = if self.is_resize_infeasible() { Amounts::default() } else { wanted };
        amounts.raise(&Amounts::from(resources.side(side)));
        if side == Side::Requests {
            amounts.raise(&Amounts::from(&status.allocated_resources));
        }
        amounts
    }

    fn is_resize_infeasible(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|held| held.r#type == RESIZE_PENDING && held.reason == "Infeasible")
    }

    /// As the API server wrote it into the status, which it does for every pod, or as it would.
    fn asks(&self) -> bool {
        let (spec, class) = (&self.spec, &self.status.qos_class);
        if !class.is_empty() {
            return *class != "BestEffort";
        }
        let mut containers = spec.containers.iter().chain(&spec.init_containers);
        spec.resources.asks() || containers.any(|container| container.resources.asks())
    }
}

impl Status {
    /// Whether this tells of resources, and of others than these.
    fn differs_from(&self, wanted: &Resources) -> bool {
        let Some(held) = &self.resources else { return false };
        let is_given = self.allocated_resources.is_empty() || self.allocated_resources == wanted.requests;
        !is_given || held.requests != wanted.requests || held.limits != wanted.limits
    }
}

impl PodAffinity {
    fn crosses_namespaces(&self) -> bool {
        let preferred = &self.preferred_during_scheduling_ignored_during_execution;
        let terms = preferred.iter().map(|weighted| &weighted.pod_affinity_term);
        let mut all = terms.chain(&self.required_during_scheduling_ignored_during_execution);
        all.any(|term| !term.namespaces.is_empty() || term.namespace_selector.is_some())
    }
}

#[cfg(test)]
mod tests;

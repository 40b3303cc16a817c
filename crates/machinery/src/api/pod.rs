//! Pods of `core/v1`, trimmed to what controllers read while they run.
//!
//! A message here has what its name says: nothing is left out of a list that stands in it but conditions of other types
//! ([`READ_CONDITIONS`]). What is made of the rest of a pod has names of its own: [`Pod::charge`], [`Pod::shape`], which pods
//! of one template share, and [`Pod::claims`].

use std::sync::Arc;

use bytes::Bytes;

use super::charge::Charge;
use super::kind::{AnyObject, ApiVersion, kinds, objects};
use super::meta::ObjectMeta;
use super::shape::{self, Shape};
use crate::wire::splice::get;
use crate::wire::{
    Few, Keep, Message, Path, Present, Raw, Reader, Str, Time, Value, WireError, field, message, path,
};

pub mod environment;
pub mod selinux;
#[cfg(test)]
mod tests;

kinds! {
    /// Pods.
    PODS = ApiVersion::CORE.namespaced::<Pod>("Pod", "pods").decoded_by(decode_pod);
}

objects! {
    Pod keeps POD;
}

/// Types of the conditions that controllers read of every pod. Of one that has failed they read all, and of one that a Job controls all but
/// those of [`KUBELET_CONDITIONS`] that are not `False`.
pub const READ_CONDITIONS: &[&str] = &["Ready", "DisruptionTarget"];

/// Types of the conditions that each pod has, and that are `True` for most of its life. A rule of a Job's failure policy that asks for one of
/// these to be `True` does not match before the pod has failed, unlike with kube-controller-manager.
const KUBELET_CONDITIONS: &[&str] =
    &["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"];

/// What controllers read of pods' annotations and conditions.
const POD: Keep = Keep {
    annotations: Some(&[
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-index-failure-count",
        "batch.kubernetes.io/job-index-ignored-failure-count",
        "controller.kubernetes.io/pod-deletion-cost",
    ]),
    conditions: Some(READ_CONDITIONS),
    ..Keep::ALL
};

fn decode_pod(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let mut pod = Pod::decode_with(bytes, POD)?;
    if pod.status.phase == "Failed" {
        pod.status.conditions = Conditions::decode(bytes)?.status.conditions;
    } else if pod.metadata.controller().is_some_and(|owner| owner.kind == "Job") {
        let mut conditions = Conditions::decode(bytes)?.status.conditions;
        conditions
            .retain(|held| held.status == "False" || !KUBELET_CONDITIONS.contains(&held.r#type.as_str()));
        conditions.shrink_to_fit();
        pod.status.conditions = conditions;
    }
    if !pod.spec.node_name.is_empty() {
        // Where it was meant to go matters no more.
        pod.spec.affinity = None;
    }
    (pod.charge, pod.shape) = shape::decode(bytes)?;
    pod.claims = PodClaims::read(bytes)?;
    Ok(Arc::new(pod))
}

message! {
    schema SCHEMA;

    /// A pod, and what is made of the rest of it.
    pub struct Pod + charge: Charge, shape: Shape, claims: PodClaims = "k8s.io.api.core.v1.Pod" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: PodSpec,
        /// Observed state.
        3 => status: PodStatus,
    }

    /// What controllers read of a pod's spec, and has no name of its own in [`Shape`].
    pub struct PodSpec = "k8s.io.api.core.v1.PodSpec" {
        /// Node it is bound to; empty until scheduled.
        10 => node_name: Str [interned],
        /// Its hostname, where it has one of its own.
        16 => hostname: Str,
        /// The service under whose name DNS knows it.
        17 => subdomain: Str [interned],
        /// Where it is meant to go; of a cached pod only as long as it is not bound.
        18 => affinity: Option<Box<PlacedBy>>,
    } + named {
        1 => volumes,
        2 => containers,
        3 => restart_policy,
        20 => init_containers,
        22 => tolerations,
        43 => scheduling_group,
    }

    /// Together with which pods a pod is scheduled.
    pub struct PodSchedulingGroup = "k8s.io.api.core.v1.PodSchedulingGroup" {
        /// Name of the PodGroup.
        1 => pod_group_name: Str,
    }

    /// Where a pod is meant to go.
    pub struct PlacedBy = "k8s.io.api.core.v1.Affinity" {
        /// To which nodes.
        1 => node_affinity: Option<Box<NodeAffinity>>,
    }

    /// To which nodes a pod is meant to go.
    pub struct NodeAffinity = "k8s.io.api.core.v1.NodeAffinity" {
        /// To no others than these.
        1 => required_during_scheduling_ignored_during_execution: Option<Box<NodeSelector>>,
    }

    /// Selects nodes.
    pub struct NodeSelector = "k8s.io.api.core.v1.NodeSelector" {
        /// Any of these suffices.
        1 => node_selector_terms: Vec<NodeSelectorTerm>,
    }

    /// Selects nodes for which all holds.
    pub struct NodeSelectorTerm = "k8s.io.api.core.v1.NodeSelectorTerm" {
        /// Of their labels.
        1 => match_expressions: Vec<NodeSelectorRequirement>,
        /// Of their fields.
        2 => match_fields: Vec<NodeSelectorRequirement>,
    }

    /// Something that must hold of a node.
    pub struct NodeSelectorRequirement = "k8s.io.api.core.v1.NodeSelectorRequirement" {
        /// The label or field.
        1 => key: Str [interned],
        /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
        2 => operator: Str [interned],
        /// Values.
        3 => values: Vec<Str> [interned],
    }

    /// What controllers read of a pod's status.
    pub struct PodStatus = "k8s.io.api.core.v1.PodStatus" {
        /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        1 => phase: Str [interned],
        /// Conditions; of a cached pod those of [`READ_CONDITIONS`], or all if it has failed, or nearly all if it is a Job's.
        2 => conditions: Vec<PodCondition> [conditions],
        /// Why it is in this phase: `Evicted` …
        4 => reason: Str [interned],
        /// When its node took it up.
        7 => start_time: Option<Time>,
        /// Statuses of its containers.
        8 => container_statuses: Vec<ContainerStatus>,
        /// Statuses of its init containers.
        10 => init_container_statuses: Few<ContainerStatus>,
        /// Addresses, at most one of each IP family.
        12 => pod_ips: Vec<PodIp>,
        /// Statuses of its ephemeral containers.
        13 => ephemeral_container_statuses: Few<ContainerStatus>,
        /// The resource claims that were made for it.
        15 => resource_claim_statuses: Few<PodResourceClaimStatus>,
        /// The resource claim that was made for its extended resources.
        18 => extended_resource_claim_status: Option<Box<PodExtendedResourceClaimStatus>>,
    }

    /// An address of a pod.
    pub struct PodIp = "k8s.io.api.core.v1.PodIP" {
        /// The address.
        1 => ip: Str,
    }

    /// A condition of a pod.
    pub struct PodCondition = "k8s.io.api.core.v1.PodCondition" {
        /// `Ready`, `PodScheduled` …
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
        /// When `status` changed last.
        4 => last_transition_time: Option<Time>,
        /// For machines.
        5 => reason: Str [interned],
    } + named {
        3 => last_probe_time,
        6 => message,
        7 => observed_generation,
    }

    /// What controllers read of a container's status.
    pub struct ContainerStatus = "k8s.io.api.core.v1.ContainerStatus" {
        /// Name of the container.
        1 => name: Str [interned],
        /// What it does.
        2 => state: ContainerState,
        /// How often it was restarted.
        5 => restart_count: i32,
    }

    /// What a container does: it runs, if it does neither of these.
    pub struct ContainerState = "k8s.io.api.core.v1.ContainerState" {
        /// Whether it waits.
        1 => waiting: Present,
        /// How it ended, if it did.
        3 => terminated: Option<Box<ContainerStateTerminated>>,
    }

    /// How a container ended.
    pub struct ContainerStateTerminated = "k8s.io.api.core.v1.ContainerStateTerminated" {
        /// Its exit code.
        1 => exit_code: i32,
        /// When it ended.
        6 => finished_at: Option<Time>,
    }

    /// A resource claim that was made for a pod.
    pub struct PodResourceClaimStatus = "k8s.io.api.core.v1.PodResourceClaimStatus" {
        /// Name of the pod's entry.
        1 => name: Str [interned],
        /// Name of the claim; absent if none is needed.
        2 => resource_claim_name: Option<Str>,
    }

    /// The resource claim that was made for a pod's extended resources.
    pub struct PodExtendedResourceClaimStatus = "k8s.io.api.core.v1.PodExtendedResourceClaimStatus" {
        /// Name of the claim.
        2 => resource_claim_name: Str,
    }

    /// All conditions of a pod.
    struct Conditions = "k8s.io.api.core.v1.Pod" {
        3 => status: ConditionsStatus,
    }

    struct ConditionsStatus = "k8s.io.api.core.v1.PodStatus" {
        2 => conditions: Vec<PodCondition>,
    }

    /// A volume of a pod, as far as it tells of a claim.
    struct ClaimVolume = "k8s.io.api.core.v1.Volume" {
        1 => name: Str [interned],
        2 => volume_source: ClaimSource,
    }

    struct ClaimSource = "k8s.io.api.core.v1.VolumeSource" {
        10 => persistent_volume_claim: ClaimReference,
        29 => ephemeral: Ephemeral,
    }

    struct ClaimReference = "k8s.io.api.core.v1.PersistentVolumeClaimVolumeSource" {
        1 => claim_name: Str,
    }

    struct Ephemeral = "k8s.io.api.core.v1.EphemeralVolumeSource" {
        1 => volume_claim_template: Raw,
    }
}

/// The volumes of a pod that are claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodClaims(Option<Box<[PodClaim]>>);

/// A volume of a pod that is a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct PodClaim {
    /// Name of the volume.
    pub volume: Str,
    /// Where the claim comes from.
    pub source: PodClaimSource,
}

/// Where a pod's claim comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum PodClaimSource {
    /// It is there, under this name.
    Named(Str),
    /// It is made for the pod, from this encoded template, and named after pod and volume.
    Ephemeral(Raw),
}

impl PodClaims {
    /// Those of an encoded pod. Other volumes are passed over without being decoded: each pod has one with a random name.
    fn read(pod: &Bytes) -> Result<Self, WireError> {
        const VOLUMES: u32 = field!(PodSpec, volumes);
        let spec = get(pod, path!(Pod, spec))?.map(Value::bytes).transpose()?.unwrap_or_default();
        let mut claims = Vec::new();
        let mut fields = Reader::new(spec);
        while let Some((number, value)) = fields.next_field()? {
            if number == VOLUMES && is_claim(value.bytes()?)? {
                let volume = ClaimVolume::decode(&Bytes::copy_from_slice(value.bytes()?))?;
                let ClaimSource { persistent_volume_claim: named, ephemeral } = volume.volume_source;
                let source = if named.claim_name.is_empty() {
                    PodClaimSource::Ephemeral(ephemeral.volume_claim_template)
                } else {
                    PodClaimSource::Named(named.claim_name)
                };
                claims.push(PodClaim { volume: volume.name, source });
            }
        }
        Ok(Self((!claims.is_empty()).then(|| claims.into_boxed_slice())))
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &PodClaim> {
        self.0.iter().flatten()
    }
}

impl FromIterator<PodClaim> for PodClaims {
    fn from_iter<I: IntoIterator<Item = PodClaim>>(claims: I) -> Self {
        let claims: Box<[PodClaim]> = claims.into_iter().collect();
        Self((!claims.is_empty()).then_some(claims))
    }
}

impl PodClaim {
    /// Name of the claim of a pod of this name.
    pub fn claim_name(&self, pod: &str) -> Str {
        match &self.source {
            PodClaimSource::Named(name) => name.clone(),
            PodClaimSource::Ephemeral(_) => Str::from(format!("{pod}-{}", self.volume)),
        }
    }
}

/// Where an encoded volume has its name.
pub const VOLUME_NAME: Path = path!(ClaimVolume, name);

/// An encoded volume of this name that is the claim of that name.
pub fn claim_volume(name: &str, claim: &str) -> Vec<u8> {
    let persistent_volume_claim = ClaimReference { claim_name: claim.into() };
    let volume_source = ClaimSource { persistent_volume_claim, ..ClaimSource::default() };
    ClaimVolume { name: name.into(), volume_source }.to_bytes()
}

/// Whether an encoded volume is a claim.
fn is_claim(volume: &[u8]) -> Result<bool, WireError> {
    const NAMED: u32 = field!(ClaimSource, persistentVolumeClaim);
    const EPHEMERAL: u32 = field!(ClaimSource, ephemeral);
    let source = get(volume, path!(ClaimVolume, volumeSource))?.map(Value::bytes).transpose()?;
    let mut fields = Reader::new(source.unwrap_or_default());
    while let Some((number, _)) = fields.next_field()? {
        if number == NAMED || number == EPHEMERAL {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Pod {
    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|condition| condition.r#type == kind)
    }

    /// Whether the `Ready` condition is `True`.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|ready| ready.status == "True")
    }

    /// Whether it has run to its end, well or not.
    pub fn is_finished(&self) -> bool {
        self.status.phase == "Succeeded" || self.status.phase == "Failed"
    }

    /// Whether nothing of it runs any more: it is finished, or being deleted and no container runs.
    pub fn has_ended(&self) -> bool {
        self.is_finished()
            || self.metadata.is_deleting() && !self.all_statuses().any(ContainerStatus::is_running)
    }

    /// Statuses of all its containers: regular ones, init containers, ephemeral ones.
    pub fn all_statuses(&self) -> impl Iterator<Item = &ContainerStatus> {
        let status = &self.status;
        let others = status.init_container_statuses.iter().chain(status.ephemeral_container_statuses.iter());
        status.container_statuses.iter().chain(others)
    }

    /// The one node that an unbound pod is meant for: the first node that its required affinity names.
    pub fn target_node(&self) -> Option<&Str> {
        let affinity = self.spec.affinity.as_ref()?.node_affinity.as_ref()?;
        let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        let mut fields = required.node_selector_terms.iter().flat_map(|term| &term.match_fields);
        let named = fields.find(|held| held.key == "metadata.name" && held.operator == "In")?;
        if let [node] = named.values.as_slice() { Some(node) } else { None }
    }
}

impl ContainerStatus {
    /// Whether the container runs.
    pub fn is_running(&self) -> bool {
        !self.state.waiting.0 && self.state.terminated.is_none()
    }
}

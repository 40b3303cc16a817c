//! What pods of one template have in common, read once for all of them: a cached pod pays a pointer.
//!
//! Little of a pod's spec is its own: its node, its hostname, its claims. The rest is the template's, and much of what
//! controllers read of it is long: tolerations, what each container requests, Secrets that are named in forty places. So it
//! is made into a [`PodShape`], which pods share that have the same, together with what they are charged
//! ([`super::charge`]). What was read lately is remembered by the bytes that were read: of most pods these are compared, not
//! decoded. Decides nothing.

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;

use super::charge::{Amounts, Charge};
use super::core::LocalObjectReference;
use super::volumes::InlineSource;
use crate::bounds::memory_size;
use crate::random::HashSeed;
use crate::wire::text::held_text;
use crate::wire::{
    Field, Interner, Keep, Message, Quantities, RawField, Reader, Source, Str, Value, WireError, field,
    message, splice,
};

#[cfg(test)]
mod tests;

/// What pods of one template have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodShape {
    /// Ports with names, of containers and sidecars, in their order.
    pub named_ports: Vec<NamedPort>,
    /// Names of its sidecars: init containers that go on running.
    pub sidecars: Vec<Str>,
    /// Names of its other init containers.
    pub init_containers: Vec<Str>,
    /// Taints that it tolerates.
    pub tolerations: Vec<Toleration>,
    /// Names of the Secrets that it names anywhere, sorted.
    pub secrets: Vec<Str>,
    /// What each container and sidecar requests.
    pub requests: Vec<ContainerRequests>,
    /// What it requests as a whole (KEP-2837).
    pub pod_requests: Amounts,
    /// What it costs to run it at all.
    pub overhead: Amounts,
    /// Its claims on devices.
    pub resource_claims: Vec<PodResourceClaim>,
    /// The PodGroup that it is scheduled with, or empty.
    pub pod_group: Str,
    /// Its volumes whose sources can be attached, or mounted with an SELinux context, encoded.
    pub inline_volumes: Vec<InlineVolume>,
}

/// A port with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NamedPort {
    /// The name, unique in its container.
    pub name: Str,
    /// Number.
    pub number: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Str,
}

/// A taint that is tolerated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// Key; any if empty.
    pub key: Str,
    /// `Exists`, `Equal`, `Lt` or `Gt`; `Equal` if empty.
    pub operator: Str,
    /// Value.
    pub value: Str,
    /// Effect; any if empty.
    pub effect: Str,
    /// For how many seconds; for ever if absent.
    pub seconds: Option<i64>,
}

/// What a container requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContainerRequests {
    /// Name of the container.
    pub container: Str,
    /// Whether it is an init container that ends before the others begin.
    pub starts_only: bool,
    /// How much, by resource.
    pub amounts: Amounts,
}

/// A pod's claim on devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodResourceClaim {
    /// Name of the entry.
    pub name: Str,
    /// Name of the claim, if it is there already.
    pub claim: Option<Str>,
    /// What the claim is made from.
    pub template: Option<Str>,
}

/// A volume whose source can be attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct InlineVolume {
    /// Name of the volume.
    pub name: Str,
    source: Bytes,
}

impl InlineVolume {
    /// Its source.
    ///
    /// # Errors
    /// It is malformed, which a cached one is not.
    pub fn source(&self) -> Result<InlineSource, WireError> {
        InlineSource::decode(&self.source)
    }
}

/// A pod's [`PodShape`]; a pod made by hand has the empty one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape(Option<Arc<PodShape>>);

impl Shape {
    /// Whether both are the same copy, so that there is nothing to compare.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(held), Some(other)) => Arc::ptr_eq(held, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl From<PodShape> for Shape {
    fn from(shape: PodShape) -> Self {
        Self(Some(SHAPES.share(shape)))
    }
}

impl Deref for Shape {
    type Target = PodShape;

    fn deref(&self) -> &PodShape {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

static SHAPES: LazyLock<Interner<PodShape>> = LazyLock::new(Interner::new);
static NOTHING: LazyLock<PodShape> = LazyLock::new(PodShape::default);

/// How many charges and shapes are remembered by what they were made of.
const REMEMBERED: usize = 256;
/// The longest such bytes that are worth keeping: a pod of dozens of containers.
const MEMORABLE: usize = 16 << 10;

/// Charges and shapes by what was read of pods for them.
struct Memory {
    known: LruCache<Box<[u8]>, (Charge, Shape), HashSeed>,
    /// For the pod at hand; used again and again.
    read: Vec<u8>,
}

static MEMORY: LazyLock<Mutex<Memory>> = LazyLock::new(|| {
    let size = NonZeroUsize::MIN.saturating_add(memory_size(REMEMBERED) - 1);
    let known = LruCache::with_hasher(size, HashSeed::of_process());
    Mutex::new(Memory { known, read: Vec::new() })
});

/// What an encoded pod is charged with, and its shape.
pub(super) fn decode(pod: &Bytes) -> Result<(Charge, Shape), WireError> {
    let mut memory = MEMORY.lock();
    let Memory { known, read } = &mut *memory;
    read.clear();
    if Charge::copy_read(pod, read).and_then(|()| ShapedPod::copy_read(pod, read)).is_err() {
        // What is malformed is told by decoding, which names the field.
        return work_out(pod);
    }
    if let Some(held) = known.get(read.as_slice()) {
        return Ok(held.clone());
    }
    let made = work_out(pod)?;
    if read.len() <= MEMORABLE {
        known.put(read.as_slice().into(), made.clone());
    } else {
        *read = Vec::new();
    }
    Ok(made)
}

fn work_out(pod: &Bytes) -> Result<(Charge, Shape), WireError> {
    Ok((Charge::work_out(pod)?, Shape::from(ShapedPod::decode_with(pod, Keep::BARE)?.shape())))
}

message! {
    schema SCHEMA;

    struct ShapedPod = "k8s.io.api.core.v1.Pod" {
        2 => spec: ShapedSpec,
    }

    struct ShapedSpec = "k8s.io.api.core.v1.PodSpec" {
        1 => volumes: ShapedVolumes,
        2 => containers: Vec<ShapedContainer>,
        15 => image_pull_secrets: Vec<LocalObjectReference>,
        20 => init_containers: Vec<ShapedContainer>,
        22 => tolerations: Vec<ShapedToleration>,
        32 => overhead: Quantities,
        34 => ephemeral_containers: Vec<ShapedEphemeral>,
        39 => resource_claims: Vec<ShapedClaim>,
        40 => resources: ShapedResources,
        43 => scheduling_group: ShapedGroup,
    }

    struct ShapedContainer = "k8s.io.api.core.v1.Container" {
        1 => name: Str [interned],
        6 => ports: Vec<ShapedPort>,
        7 => env: Vec<ShapedEnv>,
        8 => resources: ShapedResources,
        19 => env_from: Vec<ShapedEnvFrom>,
        24 => restart_policy: Str [interned],
    }

    struct ShapedEphemeral = "k8s.io.api.core.v1.EphemeralContainer" {
        1 => ephemeral_container_common: ShapedEphemeralCommon,
    }

    struct ShapedEphemeralCommon = "k8s.io.api.core.v1.EphemeralContainerCommon" {
        7 => env: Vec<ShapedEnv>,
        19 => env_from: Vec<ShapedEnvFrom>,
    }

    struct ShapedPort = "k8s.io.api.core.v1.ContainerPort" {
        1 => name: Str [interned],
        3 => container_port: i32,
        4 => protocol: Str [interned],
    }

    struct ShapedEnv = "k8s.io.api.core.v1.EnvVar" {
        3 => value_from: ShapedEnvSource,
    }

    struct ShapedEnvSource = "k8s.io.api.core.v1.EnvVarSource" {
        4 => secret_key_ref: ShapedSecretKey,
    }

    struct ShapedSecretKey = "k8s.io.api.core.v1.SecretKeySelector" {
        1 => local_object_reference: LocalObjectReference,
    }

    struct ShapedEnvFrom = "k8s.io.api.core.v1.EnvFromSource" {
        3 => secret_ref: ShapedSecretEnv,
    }

    struct ShapedSecretEnv = "k8s.io.api.core.v1.SecretEnvSource" {
        1 => local_object_reference: LocalObjectReference,
    }

    struct ShapedResources = "k8s.io.api.core.v1.ResourceRequirements" {
        2 => requests: Quantities,
    }

    pub(crate) struct ShapedToleration = "k8s.io.api.core.v1.Toleration" {
        1 => key: Str [interned],
        2 => operator: Str [interned],
        3 => value: Str [interned],
        4 => effect: Str [interned],
        5 => toleration_seconds: Option<i64>,
    }

    struct ShapedClaim = "k8s.io.api.core.v1.PodResourceClaim" {
        1 => name: Str [interned],
        3 => resource_claim_name: Option<Str>,
        4 => resource_claim_template_name: Option<Str> [interned],
    }

    struct ShapedGroup = "k8s.io.api.core.v1.PodSchedulingGroup" {
        1 => pod_group_name: Str [interned],
    }

    struct ShapedVolume = "k8s.io.api.core.v1.Volume" {
        1 => name: Str [interned],
    } + named {
        2 => volume_source as SecretSource,
    }

    /// The Secrets that a volume names.
    struct SecretSource = "k8s.io.api.core.v1.VolumeSource" {
        6 => secret: SecretVolume,
        8 => iscsi: IscsiSecret,
        11 => rbd: RbdSecret,
        12 => flex_volume: FlexSecret,
        13 => cinder: CinderSecret,
        14 => cephfs: CephFsSecret,
        18 => azure_file: AzureFileSecret,
        25 => scale_io: ScaleIoSecret,
        26 => projected: ProjectedSecrets,
        27 => storageos: StorageOsSecret,
        28 => csi: CsiSecret,
    }

    struct SecretVolume = "k8s.io.api.core.v1.SecretVolumeSource" {
        1 => secret_name: Str [interned],
    }

    struct IscsiSecret = "k8s.io.api.core.v1.ISCSIVolumeSource" {
        10 => secret_ref: LocalObjectReference,
    }

    struct RbdSecret = "k8s.io.api.core.v1.RBDVolumeSource" {
        7 => secret_ref: LocalObjectReference,
    }

    struct FlexSecret = "k8s.io.api.core.v1.FlexVolumeSource" {
        3 => secret_ref: LocalObjectReference,
    }

    struct CinderSecret = "k8s.io.api.core.v1.CinderVolumeSource" {
        4 => secret_ref: LocalObjectReference,
    }

    struct CephFsSecret = "k8s.io.api.core.v1.CephFSVolumeSource" {
        5 => secret_ref: LocalObjectReference,
    }

    struct AzureFileSecret = "k8s.io.api.core.v1.AzureFileVolumeSource" {
        1 => secret_name: Str [interned],
    }

    struct ScaleIoSecret = "k8s.io.api.core.v1.ScaleIOVolumeSource" {
        3 => secret_ref: LocalObjectReference,
    }

    struct StorageOsSecret = "k8s.io.api.core.v1.StorageOSVolumeSource" {
        5 => secret_ref: LocalObjectReference,
    }

    struct CsiSecret = "k8s.io.api.core.v1.CSIVolumeSource" {
        5 => node_publish_secret_ref: LocalObjectReference,
    }

    struct ProjectedSecrets = "k8s.io.api.core.v1.ProjectedVolumeSource" {
        1 => sources: Vec<ProjectedSecret>,
    }

    struct ProjectedSecret = "k8s.io.api.core.v1.VolumeProjection" {
        1 => secret: SecretProjection,
    }

    struct SecretProjection = "k8s.io.api.core.v1.SecretProjection" {
        1 => local_object_reference: LocalObjectReference,
    }
}

/// The volumes of a pod as far as others of its template have the same: names and sources of those that can be attached,
/// and Secrets. Names of other volumes, of which one of each pod is random, are not even read.
#[derive(Clone, Debug, Default, PartialEq)]
struct ShapedVolumes {
    inline: Vec<InlineVolume>,
    secrets: Vec<Str>,
}

const VOLUME_NAME: u32 = field!(ShapedVolume, name);
const VOLUME_SOURCE: u32 = field!(ShapedVolume, volumeSource);

/// Name, source, and whether the source is one that can be attached.
fn read_volume(volume: &[u8]) -> Result<(&[u8], &[u8], bool), WireError> {
    let (mut name, mut source): (&[u8], &[u8]) = (&[], &[]);
    let mut fields = Reader::new(volume);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            VOLUME_NAME => name = value.bytes()?,
            // Go merges both.
            VOLUME_SOURCE if !source.is_empty() => {
                return Err(WireError::new("the source field of a volume occurs twice"));
            }
            VOLUME_SOURCE => source = value.bytes()?,
            _ => {}
        }
    }
    let mut sources = Reader::new(source);
    let mut is_inline = false;
    while let Some((number, _)) = sources.next_field()? {
        is_inline |= InlineSource::ROW.fields.iter().any(|field| field.number == number);
    }
    Ok((name, source, is_inline))
}

impl Field for ShapedVolumes {
    fn merge(&mut self, value: Value<'_>, _: Source<'_>) -> Result<(), WireError> {
        let (name, source, is_inline) = read_volume(value.bytes()?)?;
        let source = Bytes::copy_from_slice(source);
        self.secrets.extend(SecretSource::decode(&source)?.secrets());
        if is_inline {
            InlineSource::decode(&source)?;
            self.inline.push(InlineVolume { name: Str::interned(&held_text(name)), source });
        }
        Ok(())
    }

    fn copy_value((number, value, _): RawField<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
        let (name, source, is_inline) = read_volume(value.bytes()?)?;
        if is_inline {
            splice::put_bytes(out, number, name);
            splice::put_bytes(out, number, source);
        } else {
            SecretSource::copy_read(source, out)?;
        }
        Ok(())
    }

    /// Never: it is read of pods, not written.
    fn encode(&self, _: u32, _: &mut Vec<u8>) {}
}

impl SecretSource {
    fn secrets(self) -> impl Iterator<Item = Str> {
        let projected =
            self.projected.sources.into_iter().map(|source| source.secret.local_object_reference.name);
        [
            self.secret.secret_name,
            self.iscsi.secret_ref.name,
            self.rbd.secret_ref.name,
            self.flex_volume.secret_ref.name,
            self.cinder.secret_ref.name,
            self.cephfs.secret_ref.name,
            self.azure_file.secret_name,
            self.scale_io.secret_ref.name,
            self.storageos.secret_ref.name,
            self.csi.node_publish_secret_ref.name,
        ]
        .into_iter()
        .chain(projected)
    }
}

fn env_secrets(env: &[ShapedEnv], env_from: &[ShapedEnvFrom]) -> impl Iterator<Item = Str> {
    let keys = env.iter().map(|each| each.value_from.secret_key_ref.local_object_reference.name.clone());
    keys.chain(env_from.iter().map(|each| each.secret_ref.local_object_reference.name.clone()))
}

impl ShapedContainer {
    fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }

    fn requests(&self, starts_only: bool) -> ContainerRequests {
        let amounts = Amounts::from(&self.resources.requests);
        ContainerRequests { container: self.name.clone(), starts_only, amounts }
    }

    fn named_ports(&self) -> impl Iterator<Item = NamedPort> {
        let named = self.ports.iter().filter(|port| !port.name.is_empty());
        named.map(|port| NamedPort {
            name: port.name.clone(),
            number: port.container_port,
            protocol: port.protocol.clone(),
        })
    }
}

impl ShapedPod {
    fn shape(self) -> PodShape {
        let spec = self.spec;
        let (sidecars, starting): (Vec<_>, Vec<_>) =
            spec.init_containers.iter().partition(|container| container.is_sidecar());
        let running = spec.containers.iter().chain(sidecars.iter().copied());
        let names =
            |containers: &[&ShapedContainer]| containers.iter().map(|held| held.name.clone()).collect();
        let mut secrets: Vec<Str> = spec.image_pull_secrets.iter().map(|held| held.name.clone()).collect();
        for container in spec.containers.iter().chain(&spec.init_containers) {
            secrets.extend(env_secrets(&container.env, &container.env_from));
        }
        for container in &spec.ephemeral_containers {
            let common = &container.ephemeral_container_common;
            secrets.extend(env_secrets(&common.env, &common.env_from));
        }
        secrets.extend(spec.volumes.secrets);
        secrets.retain(|name| !name.is_empty());
        secrets.sort_unstable();
        secrets.dedup();
        secrets.shrink_to_fit();
        PodShape {
            named_ports: running.clone().flat_map(ShapedContainer::named_ports).collect(),
            requests: running
                .map(|container| container.requests(false))
                .chain(starting.iter().map(|container| container.requests(true)))
                .collect(),
            sidecars: names(&sidecars),
            init_containers: names(&starting),
            tolerations: spec.tolerations.into_iter().map(Toleration::from).collect(),
            secrets,
            pod_requests: Amounts::from(&spec.resources.requests),
            overhead: Amounts::from(&spec.overhead),
            resource_claims: spec.resource_claims.into_iter().map(PodResourceClaim::from).collect(),
            pod_group: spec.scheduling_group.pod_group_name,
            inline_volumes: spec.volumes.inline,
        }
    }
}

impl From<ShapedToleration> for Toleration {
    fn from(held: ShapedToleration) -> Self {
        let ShapedToleration { key, operator, value, effect, toleration_seconds: seconds } = held;
        Self { key, operator, value, effect, seconds }
    }
}

impl From<ShapedClaim> for PodResourceClaim {
    fn from(held: ShapedClaim) -> Self {
        let ShapedClaim { name, resource_claim_name: claim, resource_claim_template_name: template } = held;
        Self { name, claim, template }
    }
}

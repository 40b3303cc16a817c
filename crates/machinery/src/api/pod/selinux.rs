//! Pods as the controller sees them that warns of SELinux labels: which volumes they mount, and with which labels. A row of
//! its own, so that all others pay nothing for it; watched only while that controller runs.

use std::sync::Arc;

use bytes::Bytes;

use super::PodClaims;
use crate::api::kind::{AnyObject, ApiVersion, kinds, objects};
use crate::api::meta::ObjectMeta;
use crate::api::shape::{self, Shape};
use crate::wire::{Keep, Message, Str, WireError, message};

kinds! {
    /// Pods with the labels of their mounts.
    SELINUX_PODS = ApiVersion::CORE.namespaced::<SelinuxPod>("Pod", "pods").decoded_by(decode_pod);
}

objects! {
    SelinuxPod keeps Keep::BARE;
}

/// The volumes that a pod mounts, and with which labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// `MountOption`, `Recursive`, or empty.
    pub change_policy: Str,
    /// Each mounted volume, by name.
    pub volumes: Vec<(Str, MountLabel)>,
}

/// The SELinux label with which the containers of a pod mount a volume: `USER:ROLE:TYPE:LEVEL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountLabel {
    /// No container says one.
    Unsaid,
    /// Those that say one say this.
    One(Str),
    /// They differ.
    Several,
}

fn decode_pod(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let mut pod = SelinuxPod::decode_with(bytes, Keep::BARE)?;
    pod.mounts = MountingPod::decode_with(bytes, Keep::BARE)?.spec.mounts();
    pod.shape = shape::decode(bytes)?.1;
    pod.claims = PodClaims::read(bytes)?;
    Ok(Arc::new(pod))
}

message! {
    schema SCHEMA;

    /// A pod, and what is made of the rest of it.
    pub struct SelinuxPod + mounts: Mounts, shape: Shape, claims: PodClaims = "k8s.io.api.core.v1.Pod" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Observed state.
        3 => status: SelinuxPodStatus,
    }

    /// What is read of its status.
    pub struct SelinuxPodStatus = "k8s.io.api.core.v1.PodStatus" {
        /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        1 => phase: Str [interned],
    }

    struct MountingPod = "k8s.io.api.core.v1.Pod" {
        2 => spec: MountingSpec,
    }

    struct MountingSpec = "k8s.io.api.core.v1.PodSpec" {
        2 => containers: Vec<MountingContainer>,
        14 => security_context: PodContext,
        20 => init_containers: Vec<MountingContainer>,
        34 => ephemeral_containers: Vec<EphemeralMounting>,
    }

    struct PodContext = "k8s.io.api.core.v1.PodSecurityContext" {
        1 => se_linux_options: Option<Box<SelinuxOptions>>,
        13 => se_linux_change_policy: Str [interned],
    }

    struct EphemeralMounting = "k8s.io.api.core.v1.EphemeralContainer" {
        1 => ephemeral_container_common: EphemeralMountingCommon,
    }

    struct EphemeralMountingCommon = "k8s.io.api.core.v1.EphemeralContainerCommon" {
        9 => volume_mounts: Vec<Mount>,
        15 => security_context: ContainerContext,
    }

    struct MountingContainer = "k8s.io.api.core.v1.Container" {
        9 => volume_mounts: Vec<Mount>,
        15 => security_context: ContainerContext,
    }

    struct Mount = "k8s.io.api.core.v1.VolumeMount" {
        1 => name: Str [interned],
    }

    struct ContainerContext = "k8s.io.api.core.v1.SecurityContext" {
        3 => se_linux_options: Option<Box<SelinuxOptions>>,
    }

    struct SelinuxOptions = "k8s.io.api.core.v1.SELinuxOptions" {
        1 => user: Str [interned],
        2 => role: Str [interned],
        3 => r#type: Str [interned],
        4 => level: Str [interned],
    }
}

impl SelinuxOptions {
    /// `:::` is the empty label.
    fn label(&self) -> Str {
        let label = format!("{}:{}:{}:{}", self.user, self.role, self.r#type, self.level);
        if label == ":::" { Str::EMPTY } else { Str::interned(&label) }
    }
}

impl MountingSpec {
    fn mounts(&self) -> Mounts {
        let plain = self.containers.iter().chain(&self.init_containers);
        let plain = plain.map(|container| (&container.volume_mounts, &container.security_context));
        let ephemeral =
            self.ephemeral_containers.iter().map(|container| &container.ephemeral_container_common);
        let all = plain.chain(ephemeral.map(|common| (&common.volume_mounts, &common.security_context)));
        let pods_own = self.security_context.se_linux_options.as_deref().map(SelinuxOptions::label);
        let mut volumes: Vec<(Str, MountLabel)> = Vec::new();
        for (mounts, context) in all {
            // A container's options stand for the pod's as a whole.
            let own = context.se_linux_options.as_deref().map(SelinuxOptions::label);
            let label = own.or_else(|| pods_own.clone());
            for mount in mounts {
                let at = volumes.binary_search_by(|(held, _)| held.cmp(&mount.name)).unwrap_or_else(|at| {
                    volumes.insert(at, (mount.name.clone(), MountLabel::Unsaid));
                    at
                });
                volumes[at].1.hear(label.as_ref());
            }
        }
        volumes.shrink_to_fit();
        Mounts { change_policy: self.security_context.se_linux_change_policy.clone(), volumes }
    }
}

impl MountLabel {
    fn hear(&mut self, said: Option<&Str>) {
        let Some(said) = said else { return };
        match self {
            Self::Unsaid => *self = Self::One(said.clone()),
            Self::One(held) if held != said => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(level: &str) -> SelinuxOptions {
        SelinuxOptions { level: level.into(), ..SelinuxOptions::default() }
    }

    fn container(volumes: &[&str], level: Option<&str>) -> MountingContainer {
        MountingContainer {
            volume_mounts: volumes.iter().map(|name| Mount { name: (*name).into() }).collect(),
            security_context: ContainerContext { se_linux_options: level.map(options).map(Box::new) },
        }
    }

    fn cached(spec: MountingSpec) -> Mounts {
        let pod = MountingPod { spec };
        let object = (SELINUX_PODS.decode)(&pod.to_bytes().into()).unwrap();
        crate::informer::downcast::<SelinuxPod>(object).unwrap().mounts.clone()
    }

    #[test]
    fn containers_that_mount_a_volume_say_its_label() {
        let spec = MountingSpec {
            containers: vec![
                container(&["a", "b", "c"], Some("s0")),
                container(&["b", "c", "d"], Some("s1")),
            ],
            init_containers: vec![container(&["a", "c"], Some("s0")), container(&["e"], Some(""))],
            ephemeral_containers: vec![EphemeralMounting {
                ephemeral_container_common: EphemeralMountingCommon {
                    volume_mounts: vec![Mount { name: "f".into() }],
                    ..EphemeralMountingCommon::default()
                },
            }],
            ..MountingSpec::default()
        };
        let one = |label: &str| MountLabel::One(label.into());
        let said = |f: MountLabel| -> Vec<(Str, MountLabel)> {
            [
                ("a", one(":::s0")),
                ("b", MountLabel::Several),
                ("c", MountLabel::Several),
                ("d", one(":::s1")),
                ("e", one("")),
                ("f", f),
            ]
            .map(|(name, label)| (Str::from(name), label))
            .to_vec()
        };
        assert_eq!(cached(spec.clone()).volumes, said(MountLabel::Unsaid));
        // The pod's options are those of containers that have none.
        let security_context = PodContext {
            se_linux_options: Some(Box::new(options("s9"))),
            se_linux_change_policy: "Recursive".into(),
        };
        let mounts = cached(MountingSpec { security_context, ..spec });
        assert_eq!((mounts.volumes, mounts.change_policy.as_str()), (said(one(":::s9")), "Recursive"));
    }
}

//! `core/v1`, trimmed.

use super::meta::ObjectMeta;
use crate::wire::{Labels, Reader, Str, Time, message};

message! {
    schema SCHEMA;

    /// A pod.
    pub struct Pod = "k8s.io.api.core.v1.Pod" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: PodSpec,
        /// Observed state.
        3 => status: PodStatus,
    }

    /// What controllers read of a pod's spec.
    pub struct PodSpec = "k8s.io.api.core.v1.PodSpec" {
        /// Node it is bound to; empty until scheduled.
        10 => node_name: Str [interned],
        /// Init containers; of a cached pod only those that go on running, the sidecars.
        20 => init_containers: Vec<InitContainer>,
    }

    /// What controllers read of an init container.
    pub struct InitContainer = "k8s.io.api.core.v1.Container" {
        /// Name, unique in its pod.
        1 => name: Str [interned],
        /// `Always` for a sidecar; otherwise empty.
        24 => restart_policy: Str [interned],
    }

    /// What controllers read of a pod's status.
    pub struct PodStatus = "k8s.io.api.core.v1.PodStatus" {
        /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        1 => phase: Str [interned],
        /// Conditions.
        2 => conditions: Vec<PodCondition>,
        /// Container statuses.
        8 => container_statuses: Vec<ContainerStatus>,
        /// Statuses of init containers; of a cached pod only those of sidecars.
        10 => init_container_statuses: Vec<InitContainerStatus>,
    }

    /// A condition of a pod.
    pub struct PodCondition = "k8s.io.api.core.v1.PodCondition" {
        /// `Ready`, `PodScheduled` …
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
        /// When `status` changed last.
        4 => last_transition_time: Option<Time>,
    }

    /// What controllers read of a container's status.
    pub struct ContainerStatus = "k8s.io.api.core.v1.ContainerStatus" {
        /// How often it was restarted.
        5 => restart_count: i32,
    }

    /// What controllers read of an init container's status.
    pub struct InitContainerStatus = "k8s.io.api.core.v1.ContainerStatus" {
        /// Name of the container.
        1 => name: Str [interned],
        /// How often it was restarted.
        5 => restart_count: i32,
    }

    /// A service account.
    pub struct ServiceAccount + raw = "k8s.io.api.core.v1.ServiceAccount" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Secrets that pods of this account may use.
        2 => secrets: Vec<ObjectReference>,
    }

    /// A reference to an object.
    pub struct ObjectReference = "k8s.io.api.core.v1.ObjectReference" {
        /// Kind.
        1 => kind: Str [interned],
        /// Namespace.
        2 => namespace: Str [interned],
        /// Name.
        3 => name: Str,
        /// UID.
        4 => uid: Str,
        /// API version.
        5 => api_version: Str [interned],
        /// Resource version.
        6 => resource_version: Str,
        /// The part of the object that is meant.
        7 => field_path: Str,
    }

    /// A secret. Its content is only in its kept bytes, see [`Secret::data`].
    pub struct Secret + raw = "k8s.io.api.core.v1.Secret" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// What it is for.
        3 => r#type: Str [interned],
    }

    /// A config map. Its kept bytes are without `data`, which is decoded and shared: a write sets it as a whole.
    pub struct ConfigMap + raw = "k8s.io.api.core.v1.ConfigMap" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Content, shared by all maps that hold the same.
        2 => data: Labels,
    }

    /// A namespace.
    pub struct Namespace = "k8s.io.api.core.v1.Namespace" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Observed state.
        3 => status: NamespaceStatus,
    }

    /// What controllers read of a namespace's status.
    pub struct NamespaceStatus = "k8s.io.api.core.v1.NamespaceStatus" {
        /// `Active` or `Terminating`.
        1 => phase: Str [interned],
    }
}

impl Secret {
    /// The value of a data key, read from the kept bytes; `None` when it is not there or the bytes are malformed.
    pub fn data(&self, key: &str) -> Option<&[u8]> {
        let mut fields = Reader::new(&self.raw);
        while let Ok(Some((number, value))) = fields.next_field() {
            if number != 2 {
                continue;
            }
            let (mut found, mut content): (&[u8], &[u8]) = (&[], &[]);
            let mut entry = Reader::new(value.bytes().ok()?);
            while let Ok(Some((number, value))) = entry.next_field() {
                match number {
                    1 => found = value.bytes().ok()?,
                    2 => content = value.bytes().ok()?,
                    _ => {}
                }
            }
            if found == key.as_bytes() {
                return Some(content);
            }
        }
        None
    }
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
}

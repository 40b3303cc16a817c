//! `core/v1`, trimmed.

use super::charge::Charge;
use super::meta::ObjectMeta;
use crate::wire::{IntOrString, Labels, Quantities, Reader, Str, Time, message};

message! {
    schema SCHEMA;

    /// A pod, and what it is charged with.
    pub struct Pod + charge: Charge = "k8s.io.api.core.v1.Pod" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: PodSpec,
        /// Observed state.
        3 => status: PodStatus,
    }

    /// What controllers read of a pod's spec.
    pub struct PodSpec = "k8s.io.api.core.v1.PodSpec" {
        /// Containers; of a cached pod only those with named ports, which services may refer to.
        2 => containers: Vec<Container>,
        /// Node it is bound to; empty until scheduled.
        10 => node_name: Str [interned],
        /// Its hostname, where it has one of its own.
        16 => hostname: Str,
        /// The service under whose name DNS knows it.
        17 => subdomain: Str [interned],
        /// Init containers; of a cached pod only those that go on running, the sidecars.
        20 => init_containers: Vec<InitContainer>,
    }

    /// What controllers read of a container.
    pub struct Container = "k8s.io.api.core.v1.Container" {
        /// Ports; of a cached pod only those with names.
        6 => ports: Vec<ContainerPort>,
    }

    /// A port of a container.
    pub struct ContainerPort = "k8s.io.api.core.v1.ContainerPort" {
        /// Name, unique in its pod, or empty.
        1 => name: Str [interned],
        /// Number.
        3 => container_port: i32,
        /// `TCP`, `UDP` or `SCTP`.
        4 => protocol: Str [interned],
    }

    /// What controllers read of an init container.
    pub struct InitContainer = "k8s.io.api.core.v1.Container" {
        /// Name, unique in its pod.
        1 => name: Str [interned],
        /// Ports; of a cached pod only those with names.
        6 => ports: Vec<ContainerPort>,
        /// `Always` for a sidecar; otherwise empty.
        24 => restart_policy: Str [interned],
    }

    /// What controllers read of a pod's status.
    pub struct PodStatus = "k8s.io.api.core.v1.PodStatus" {
        /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        1 => phase: Str [interned],
        /// Conditions; of a cached pod only those that some controller reads.
        2 => conditions: Vec<PodCondition> [conditions],
        /// Container statuses.
        8 => container_statuses: Vec<ContainerStatus>,
        /// Statuses of init containers; of a cached pod only those of sidecars.
        10 => init_container_statuses: Vec<InitContainerStatus>,
        /// Addresses, at most one of each IP family.
        12 => pod_ips: Vec<PodIp>,
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

    /// A service.
    pub struct Service = "k8s.io.api.core.v1.Service" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: ServiceSpec,
    }

    /// What controllers read of a service's spec.
    pub struct ServiceSpec = "k8s.io.api.core.v1.ServiceSpec" {
        /// Ports.
        1 => ports: Vec<ServicePort>,
        /// Which pods serve it; empty if somebody else says where it is served.
        2 => selector: Labels,
        /// Its address; `None` for a headless service.
        3 => cluster_ip: Str,
        /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
        4 => r#type: Str [interned],
        /// Whether pods are endpoints before they are ready.
        13 => publish_not_ready_addresses: bool,
        /// `IPv4`, `IPv6` or both.
        19 => ip_families: Vec<Str> [interned],
        /// Whether a load balancer's ports get ports of the nodes; they do if it is not said.
        20 => allocate_load_balancer_node_ports: Option<bool>,
        /// Which endpoints clients should prefer (KEP-4444).
        23 => traffic_distribution: Option<Str> [interned],
    }

    /// A port of a service.
    pub struct ServicePort = "k8s.io.api.core.v1.ServicePort" {
        /// Name; empty only for the port of a service that has one.
        1 => name: Str [interned],
        /// `TCP`, `UDP` or `SCTP`.
        2 => protocol: Str [interned],
        /// Number.
        3 => port: i32,
        /// Number or name of the pods' port.
        4 => target_port: Option<IntOrString>,
        /// The port of the nodes, or 0.
        5 => node_port: i32,
        /// What is spoken there.
        6 => app_protocol: Option<Str> [interned],
    }

    /// A node.
    pub struct Node = "k8s.io.api.core.v1.Node" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Observed state.
        3 => status: NodeStatus,
    }

    /// What controllers read of a node's status.
    pub struct NodeStatus = "k8s.io.api.core.v1.NodeStatus" {
        /// What pods may use of it; of a cached node only the CPU.
        2 => allocatable: Quantities,
        /// Conditions.
        4 => conditions: Vec<NodeCondition>,
    }

    /// A condition of a node.
    pub struct NodeCondition = "k8s.io.api.core.v1.NodeCondition" {
        /// `Ready`, `MemoryPressure` …
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
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

    /// A namespace as it is read by who ends it, with all that is written then.
    pub struct EndingNamespace + raw = "k8s.io.api.core.v1.Namespace" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: NamespaceSpec,
        /// Observed state.
        3 => status: EndingNamespaceStatus,
    }

    /// What is to become of a namespace.
    pub struct NamespaceSpec = "k8s.io.api.core.v1.NamespaceSpec" {
        /// What must be done before it may go: `kubernetes` for its content, others of others.
        1 => finalizers: Vec<Str> [interned],
    }

    /// How far the end of a namespace has come.
    pub struct EndingNamespaceStatus = "k8s.io.api.core.v1.NamespaceStatus" {
        /// `Active` or `Terminating`.
        1 => phase: Str [interned],
        /// Conditions.
        2 => conditions: Vec<NamespaceCondition>,
    }

    /// A condition of a namespace.
    pub struct NamespaceCondition = "k8s.io.api.core.v1.NamespaceCondition" {
        /// What it is about.
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
        /// When `status` changed last.
        4 => last_transition_time: Option<Time>,
        /// For machines.
        5 => reason: Str [interned],
        /// For people.
        6 => message: Str,
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

impl Node {
    /// Whether the `Ready` condition is `True`.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|held| held.r#type == "Ready" && held.status == "True")
    }
}

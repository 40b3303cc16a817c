//! `core/v1` but for pods, quotas, volumes and Endpoints, trimmed. What is rewritten keeps its bytes in `raw`.

use std::sync::Arc;

use bytes::Bytes;

use super::kind::{AnyObject, ApiVersion, kinds, objects, own_bytes};
use super::meta::ObjectMeta;
use crate::wire::splice::{Edit, edit};
use crate::wire::{
    IntOrString, Keep, Labels, Message, Quantities, Raw, Reader, Str, Time, WireError, field, message, path,
};

const CORE: ApiVersion = ApiVersion::CORE;

kinds! {
    /// Namespaces.
    NAMESPACES = CORE.cluster_wide::<Namespace>("Namespace", "namespaces");
    /// Namespaces with their bytes: read live, to be written. The cached ones are [`NAMESPACES`].
    ENDING_NAMESPACES = CORE.cluster_wide::<EndingNamespace>("Namespace", "namespaces");
    /// Nodes.
    NODES = CORE.cluster_wide::<Node>("Node", "nodes").decoded_by(decode_node);
    /// Services.
    SERVICES = CORE
        .namespaced::<Service>("Service", "services");
    /// ServiceAccounts.
    SERVICE_ACCOUNTS = CORE.namespaced::<ServiceAccount>("ServiceAccount", "serviceaccounts");
    /// Secrets, with their data.
    SECRETS = CORE.namespaced::<Secret>("Secret", "secrets");
    /// ConfigMaps, with their data.
    CONFIG_MAPS = CORE.namespaced::<ConfigMap>("ConfigMap", "configmaps").decoded_by(decode_config_map);
    /// ReplicationControllers.
    REPLICATION_CONTROLLERS = CORE
        .namespaced::<ReplicationController>("ReplicationController", "replicationcontrollers");
}

/// What controllers read of services' annotations.
const SERVICE: Keep = Keep {
    annotations: Some(&["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"]),
    ..Keep::ALL
};

/// What controllers read of nodes' annotations.
const NODE: Keep = Keep {
    annotations: Some(&[
        "alpha.kubernetes.io/provided-node-ip",
        "node.alpha.kubernetes.io/ttl",
        "volumes.kubernetes.io/controller-managed-attach-detach",
    ]),
    ..Keep::ALL
};

objects! {
    Namespace;
    EndingNamespace + raw;
    Node keeps NODE;
    Service keeps SERVICE;
    ServiceAccount + raw;
    Secret + raw;
    ConfigMap + raw;
    ReplicationController + raw;
}

/// Nobody reads how much of anything but CPU a node has.
fn decode_node(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let mut node = Node::decode_with(bytes, NODE)?;
    node.status.allocatable.retain(|resource| resource == "cpu");
    Ok(Arc::new(node))
}

/// A config map's data are shared by all that hold the same, and set as a whole.
fn decode_config_map(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let mut config_map = ConfigMap::decode(bytes)?;
    let kept = edit(&own_bytes(bytes)?, &[Edit::Clear(path!(ConfigMap, data))])?;
    config_map.raw = Bytes::from(kept.into_boxed_slice()).into();
    Ok(Arc::new(config_map))
}

message! {
    schema SCHEMA;

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
        /// Desired state.
        2 => spec: NodeSpec,
        /// Observed state.
        3 => status: NodeStatus,
    }

    /// What controllers read of a node's spec.
    pub struct NodeSpec = "k8s.io.api.core.v1.NodeSpec" {
        /// How a cloud calls it.
        3 => provider_id: Str,
        /// Whether no pods are to be bound to it.
        4 => unschedulable: bool,
        /// What keeps pods away.
        5 => taints: Vec<Taint>,
        /// Its blocks of pod addresses.
        7 => pod_cidrs: Vec<Str>,
    }

    /// What keeps pods away from a node.
    pub struct Taint = "k8s.io.api.core.v1.Taint" {
        /// Key.
        1 => key: Str [interned],
        /// Value.
        2 => value: Str [interned],
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        3 => effect: Str [interned],
        /// Since when.
        4 => time_added: Option<Time>,
    }

    /// What controllers read of a node's status.
    pub struct NodeStatus = "k8s.io.api.core.v1.NodeStatus" {
        /// What pods may use of it; of a cached node only the CPU.
        2 => allocatable: Quantities,
        /// Conditions.
        4 => conditions: Vec<NodeCondition>,
        /// Addresses.
        5 => addresses: Vec<NodeAddress>,
        /// Volumes that its pods use, by unique name.
        9 => volumes_in_use: Vec<Str> [interned],
        /// Volumes that it may use.
        10 => volumes_attached: Vec<AttachedVolume>,
    }

    /// An address of a node.
    pub struct NodeAddress = "k8s.io.api.core.v1.NodeAddress" {
        /// `InternalIP`, `Hostname` …
        1 => r#type: Str [interned],
        /// The address.
        2 => address: Str,
    }

    /// A volume that a node may use.
    pub struct AttachedVolume = "k8s.io.api.core.v1.AttachedVolume" {
        /// Its unique name.
        1 => name: Str [interned],
        /// Where it is.
        2 => device_path: Str,
    }

    /// A condition of a node.
    pub struct NodeCondition = "k8s.io.api.core.v1.NodeCondition" {
        /// `Ready`, `MemoryPressure` …
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
        /// When the node said so last.
        3 => last_heartbeat_time: Option<Time>,
        /// When `status` changed last.
        4 => last_transition_time: Option<Time>,
        /// For machines.
        5 => reason: Str [interned],
    } + named {
        6 => message,
    }

    /// A service account.
    pub struct ServiceAccount + raw = "k8s.io.api.core.v1.ServiceAccount" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Secrets that pods of this account may use.
        2 => secrets: Vec<ObjectReference>,
    }

    /// A reference to an object of the same namespace.
    pub struct LocalObjectReference = "k8s.io.api.core.v1.LocalObjectReference" {
        /// Its name.
        1 => name: Str [interned],
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
    } + named {
        2 => data,
    }

    /// A config map. Its kept bytes are without `data`, which is decoded and shared: a write sets it as a whole.
    pub struct ConfigMap + raw = "k8s.io.api.core.v1.ConfigMap" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Content, shared by all maps that hold the same.
        2 => data: Labels,
    }

    /// What pods are made from.
    pub struct PodTemplateSpec = "k8s.io.api.core.v1.PodTemplateSpec" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// The pods' spec, unparsed.
        2 => spec: Raw as super::pod::PodSpec,
    }

    /// A ReplicationController.
    pub struct ReplicationController + raw = "k8s.io.api.core.v1.ReplicationController" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: ReplicationControllerSpec,
        /// Observed state.
        3 => status: ReplicationControllerStatus,
    }

    /// Desired state of a ReplicationController.
    pub struct ReplicationControllerSpec = "k8s.io.api.core.v1.ReplicationControllerSpec" {
        /// Number of pods.
        1 => replicas: Option<i32>,
        /// Labels of the pods that belong to it.
        2 => selector: Labels,
        /// The pods' template, unparsed.
        3 => template: Raw as PodTemplateSpec,
        /// Seconds for which a pod must be ready to count as available.
        4 => min_ready_seconds: i32,
    }

    /// Observed state of a ReplicationController.
    pub struct ReplicationControllerStatus = "k8s.io.api.core.v1.ReplicationControllerStatus" {
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
        6 => conditions: Vec<ReplicationControllerCondition>,
    }

    /// A condition of a ReplicationController.
    pub struct ReplicationControllerCondition = "k8s.io.api.core.v1.ReplicationControllerCondition" {
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
        const DATA: u32 = field!(Secret, data);
        let mut fields = Reader::new(&self.raw);
        while let Ok(Some((number, value))) = fields.next_field() {
            if number != DATA {
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

impl Node {
    /// Whether the `Ready` condition is `True`.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|held| held.r#type == "Ready" && held.status == "True")
    }

    /// Whether somebody has said, by a taint of any value or effect, that it is dead. See "Non-graceful node shutdown" in the
    /// Kubernetes documentation.
    pub fn is_out_of_service(&self) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service")
    }
}

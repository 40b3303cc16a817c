//! The kinds that some controller watches or writes.

use std::sync::Arc;

use bytes::Bytes;

use super::apps::{Deployment, ReplicaSet};
use super::charge::Charge;
use super::coordination::Lease;
use super::core::{
    ConfigMap, ContainerPort, EndingNamespace, Namespace, Node, Pod, Secret, Service, ServiceAccount,
};
use super::discovery::EndpointSlice;
use super::endpoints::Endpoints;
use super::kind::{AnyObject, Kind, Object};
use super::meta::{ObjectMeta, PartialObjectMetadata};
use super::networking::ServiceCidr;
use super::quota::{DeviceClass, PersistentVolumeClaim, ResourceClaim, ResourceQuota};
use crate::wire::splice::{Edit, edit, without};
use crate::wire::{Keep, Message, Str, WireError};

/// What some controller reads of pods.
const POD: Keep = Keep {
    annotations: Some(&["controller.kubernetes.io/pod-deletion-cost"]),
    // Of the five or so that a pod has.
    conditions: Some(&["Ready"]),
    ..Keep::ALL
};

/// What some controller reads of services.
const SERVICE: Keep = Keep {
    annotations: Some(&["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"]),
    ..Keep::ALL
};

/// What some controller reads of volume claims.
const CLAIM: Keep = Keep { annotations: Some(&["volume.beta.kubernetes.io/storage-class"]), ..Keep::ALL };

/// What some controller reads of resource claims.
const RESOURCE_CLAIM: Keep =
    Keep { annotations: Some(&["resource.kubernetes.io/extended-resource-claim"]), ..Keep::ALL };

macro_rules! object {
    ($($ty:ty $(, $raw:ident)?;)*) => {$(
        impl Object for $ty {
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            $(fn raw(&self) -> Bytes {
                self.$raw.0.clone()
            })?

            fn size(&self) -> usize {
                self.to_bytes().len() + self.raw().len()
            }
        }

        $(impl Kept for $ty {
            fn keep(&mut self, bytes: Bytes) {
                self.$raw = bytes.into();
            }
        })?
    )*};
}

object! {
    Pod;
    Namespace;
    Node;
    Service;
    PartialObjectMetadata;
    ConfigMap, raw;
    Secret, raw;
    ServiceAccount, raw;
    Deployment, raw;
    ReplicaSet, raw;
    Lease, raw;
    EndpointSlice, raw;
    Endpoints, raw;
    ServiceCidr, raw;
    EndingNamespace, raw;
    ResourceQuota, raw;
    PersistentVolumeClaim;
    ResourceClaim;
    DeviceClass;
}

fn decode<T: Message + Object>(bytes: &Bytes) -> Result<AnyObject, WireError> {
    Ok(Arc::new(T::decode(bytes)?))
}

fn decode_pod(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let mut pod = Pod::decode_with(bytes, POD)?;
    pod.charge = Charge::decode(bytes)?;
    keep_sidecars(&mut pod);
    keep_named_ports(&mut pod);
    Ok(Arc::new(pod))
}

/// Ports are looked up by name only, and most containers have none with a name.
fn keep_named_ports(pod: &mut Pod) {
    let keep = |ports: &mut Vec<ContainerPort>| {
        ports.retain(|port| !port.name.is_empty());
        ports.shrink_to_fit();
    };
    for container in &mut pod.spec.containers {
        keep(&mut container.ports);
    }
    pod.spec.containers.retain(|container| !container.ports.is_empty());
    pod.spec.containers.shrink_to_fit();
    for container in &mut pod.spec.init_containers {
        keep(&mut container.ports);
    }
}

fn decode_service(bytes: &Bytes) -> Result<AnyObject, WireError> {
    Ok(Arc::new(Service::decode_with(bytes, SERVICE)?))
}

fn decode_volume_claim(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let mut claim = PersistentVolumeClaim::decode_with(bytes, CLAIM)?;
    claim.spec.resources.requests.retain(|resource| resource == "storage");
    claim.status.allocated_resources.retain(|resource| resource == "storage");
    Ok(Arc::new(claim))
}

fn decode_resource_claim(bytes: &Bytes) -> Result<AnyObject, WireError> {
    Ok(Arc::new(ResourceClaim::decode_with(bytes, RESOURCE_CLAIM)?))
}

fn decode_device_class(bytes: &Bytes) -> Result<AnyObject, WireError> {
    Ok(Arc::new(DeviceClass::decode_with(bytes, Keep::LABELS)?))
}

fn decode_node(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let mut node = Node::decode_with(bytes, Keep::LABELS)?;
    node.status.allocatable.retain(|resource| resource == "cpu");
    Ok(Arc::new(node))
}

/// Init containers that have run to their end concern nobody.
fn keep_sidecars(pod: &mut Pod) {
    let Pod { spec, status, .. } = pod;
    spec.init_containers.retain(|container| container.restart_policy == "Always");
    spec.init_containers.shrink_to_fit();
    let is_sidecar = |name: &Str| spec.init_containers.iter().any(|container| container.name == *name);
    status.init_container_statuses.retain(|held| is_sidecar(&held.name));
    status.init_container_statuses.shrink_to_fit();
}

/// `metadata.managedFields`: dropped from what is kept. A write without them leaves the server's as they are.
const MANAGED_FIELDS: (u32, u32) = (1, 17);

/// The object's own buffer, free of the response that it came in.
fn own_bytes(bytes: &Bytes) -> Result<Bytes, WireError> {
    without(bytes, MANAGED_FIELDS.0, MANAGED_FIELDS.1).map(Bytes::from)
}

/// A message that keeps the bytes it was decoded from.
trait Kept: Message + Object {
    fn keep(&mut self, bytes: Bytes);
}

fn decode_kept<T: Kept>(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let kept = own_bytes(bytes)?;
    let mut object = T::decode(&kept)?;
    object.keep(kept);
    Ok(Arc::new(object))
}

/// `ConfigMap.data`.
const CONFIG_MAP_DATA: [u32; 1] = [2];

fn decode_config_map(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let mut config_map = ConfigMap::decode(bytes)?;
    let kept = edit(&own_bytes(bytes)?, &[Edit::Clear(CONFIG_MAP_DATA.to_vec())])?;
    config_map.keep(Bytes::from(kept.into_boxed_slice()));
    Ok(Arc::new(config_map))
}

/// Pods.
pub static PODS: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Pod",
    resource: "pods",
    namespaced: true,
    metadata_only: false,
    decode: decode_pod,
};

/// ReplicaSets.
pub static REPLICA_SETS: Kind = Kind {
    group: "apps",
    version: "v1",
    kind: "ReplicaSet",
    resource: "replicasets",
    namespaced: true,
    metadata_only: false,
    decode: decode_kept::<ReplicaSet>,
};

/// Deployments.
pub static DEPLOYMENTS: Kind = Kind {
    group: "apps",
    version: "v1",
    kind: "Deployment",
    resource: "deployments",
    namespaced: true,
    metadata_only: false,
    decode: decode_kept::<Deployment>,
};

/// ServiceAccounts.
pub static SERVICE_ACCOUNTS: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ServiceAccount",
    resource: "serviceaccounts",
    namespaced: true,
    metadata_only: false,
    decode: decode_kept::<ServiceAccount>,
};

/// Secrets, with their data.
pub static SECRETS: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Secret",
    resource: "secrets",
    namespaced: true,
    metadata_only: false,
    decode: decode_kept::<Secret>,
};

/// ConfigMaps, with their data.
pub static CONFIG_MAPS: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    resource: "configmaps",
    namespaced: true,
    metadata_only: false,
    decode: decode_config_map,
};

/// Namespaces.
pub static NAMESPACES: Kind = NAMESPACES_ROW;

/// Namespaces with their bytes: read live, to be written. The cached ones are [`NAMESPACES`].
pub static ENDING_NAMESPACES: Kind = Kind { decode: decode_kept::<EndingNamespace>, ..NAMESPACES_ROW };

const NAMESPACES_ROW: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Namespace",
    resource: "namespaces",
    namespaced: false,
    metadata_only: false,
    decode: decode::<Namespace>,
};

/// Leases.
pub static LEASES: Kind = Kind {
    group: "coordination.k8s.io",
    version: "v1",
    kind: "Lease",
    resource: "leases",
    namespaced: true,
    metadata_only: false,
    decode: decode_kept::<Lease>,
};

/// Services.
pub static SERVICES: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Service",
    resource: "services",
    namespaced: true,
    metadata_only: false,
    decode: decode_service,
};

/// Nodes.
pub static NODES: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Node",
    resource: "nodes",
    namespaced: false,
    metadata_only: false,
    decode: decode_node,
};

/// EndpointSlices.
pub static ENDPOINT_SLICES: Kind = Kind {
    group: "discovery.k8s.io",
    version: "v1",
    kind: "EndpointSlice",
    resource: "endpointslices",
    namespaced: true,
    metadata_only: false,
    decode: decode_kept::<EndpointSlice>,
};

/// Endpoints.
pub static ENDPOINTS: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Endpoints",
    resource: "endpoints",
    namespaced: true,
    metadata_only: false,
    decode: decode_kept::<Endpoints>,
};

/// ResourceQuotas.
pub static RESOURCE_QUOTAS: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ResourceQuota",
    resource: "resourcequotas",
    namespaced: true,
    metadata_only: false,
    decode: decode_kept::<ResourceQuota>,
};

/// PersistentVolumeClaims.
pub static PERSISTENT_VOLUME_CLAIMS: Kind = Kind {
    group: "",
    version: "v1",
    kind: "PersistentVolumeClaim",
    resource: "persistentvolumeclaims",
    namespaced: true,
    metadata_only: false,
    decode: decode_volume_claim,
};

/// ResourceClaims.
pub static RESOURCE_CLAIMS: Kind = Kind {
    group: "resource.k8s.io",
    version: "v1",
    kind: "ResourceClaim",
    resource: "resourceclaims",
    namespaced: true,
    metadata_only: false,
    decode: decode_resource_claim,
};

/// DeviceClasses.
pub static DEVICE_CLASSES: Kind = Kind {
    group: "resource.k8s.io",
    version: "v1",
    kind: "DeviceClass",
    resource: "deviceclasses",
    namespaced: false,
    metadata_only: false,
    decode: decode_device_class,
};

/// ServiceCIDRs.
pub static SERVICE_CIDRS: Kind = Kind {
    group: "networking.k8s.io",
    version: "v1",
    kind: "ServiceCIDR",
    resource: "servicecidrs",
    namespaced: false,
    metadata_only: false,
    decode: decode_kept::<ServiceCidr>,
};

/// IPAddresses, of which the metadata says everything but whose they are.
pub static IP_ADDRESSES: Kind = Kind {
    group: "networking.k8s.io",
    version: "v1",
    kind: "IPAddress",
    resource: "ipaddresses",
    namespaced: false,
    metadata_only: true,
    decode: decode::<PartialObjectMetadata>,
};

/// All kinds, for tests that hold for each.
pub static ALL: &[&Kind] = &[
    &PODS,
    &REPLICA_SETS,
    &DEPLOYMENTS,
    &SERVICE_ACCOUNTS,
    &SECRETS,
    &CONFIG_MAPS,
    &NAMESPACES,
    &LEASES,
    &SERVICES,
    &NODES,
    &ENDPOINT_SLICES,
    &ENDPOINTS,
    &SERVICE_CIDRS,
    &IP_ADDRESSES,
    &RESOURCE_QUOTAS,
    &PERSISTENT_VOLUME_CLAIMS,
    &RESOURCE_CLAIMS,
    &DEVICE_CLASSES,
];

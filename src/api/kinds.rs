//! The kinds that some controller watches or writes.

use std::sync::Arc;

use bytes::Bytes;

use super::apps::{Deployment, ReplicaSet};
use super::core::{ConfigMap, Namespace, Pod, Secret, ServiceAccount};
use super::kind::{AnyObject, Index, IndexKeys, Kind, Object};
use super::meta::{ObjectMeta, PartialObjectMetadata};
use crate::wire::splice::without;
use crate::wire::{Message, Str, WireError};

/// Index of objects by the UID of their managing controller; objects without one are filed by
/// [`orphan_key`].
pub const BY_CONTROLLER: &str = "controller";

/// The value under which [`BY_CONTROLLER`] files the objects of a namespace that nobody manages.
pub fn orphan_key(namespace: &str) -> Str {
    Str::from(format!("orphan/{namespace}"))
}

fn controller_keys(object: &dyn Object) -> IndexKeys {
    let meta = object.meta();
    let key = meta.controller().map_or_else(|| orphan_key(&meta.namespace), |owner| owner.uid.clone());
    IndexKeys::from_elem(key, 1)
}

const CONTROLLER_INDEX: &[Index] = &[Index { name: BY_CONTROLLER, keys: controller_keys }];

/// Annotations of pods that some controller reads; the others are not kept.
const POD_ANNOTATIONS: &[&str] = &["controller.kubernetes.io/pod-deletion-cost"];

macro_rules! object {
    ($($ty:ty $(, $raw:ident)?;)*) => {$(
        impl Object for $ty {
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            $(fn raw(&self) -> Bytes {
                self.$raw.clone()
            })?
        }
    )*};
}

object! {
    Pod;
    Secret;
    ConfigMap;
    Namespace;
    ServiceAccount;
    PartialObjectMetadata;
    Deployment, raw;
    ReplicaSet, raw;
}

fn decode<T: Message + Object>(bytes: &Bytes) -> Result<AnyObject, WireError> {
    Ok(Arc::new(T::decode(bytes)?))
}

fn decode_pod(bytes: &Bytes) -> Result<AnyObject, WireError> {
    Ok(Arc::new(Pod::decode_with_annotations(bytes, POD_ANNOTATIONS)?))
}

/// `metadata.managedFields`: dropped from what is kept. A write without them leaves the server's as they are.
const MANAGED_FIELDS: (u32, u32) = (1, 17);

/// The object's own buffer, free of the response that it came in.
fn own_bytes(bytes: &Bytes) -> Result<Bytes, WireError> {
    without(bytes, MANAGED_FIELDS.0, MANAGED_FIELDS.1).map(Bytes::from)
}

fn decode_deployment(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let kept = own_bytes(bytes)?;
    let mut deployment = Deployment::decode(&kept)?;
    deployment.raw = kept;
    Ok(Arc::new(deployment))
}

fn decode_replica_set(bytes: &Bytes) -> Result<AnyObject, WireError> {
    let kept = own_bytes(bytes)?;
    let mut replica_set = ReplicaSet::decode(&kept)?;
    replica_set.raw = kept;
    Ok(Arc::new(replica_set))
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
    indexes: CONTROLLER_INDEX,
};

/// ReplicaSets.
pub static REPLICA_SETS: Kind = Kind {
    group: "apps",
    version: "v1",
    kind: "ReplicaSet",
    resource: "replicasets",
    namespaced: true,
    metadata_only: false,
    decode: decode_replica_set,
    indexes: CONTROLLER_INDEX,
};

/// Deployments.
pub static DEPLOYMENTS: Kind = Kind {
    group: "apps",
    version: "v1",
    kind: "Deployment",
    resource: "deployments",
    namespaced: true,
    metadata_only: false,
    decode: decode_deployment,
    indexes: &[],
};

/// ServiceAccounts.
pub static SERVICE_ACCOUNTS: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ServiceAccount",
    resource: "serviceaccounts",
    namespaced: true,
    metadata_only: false,
    decode: decode::<ServiceAccount>,
    indexes: &[],
};

/// Secrets, with their data.
pub static SECRETS: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Secret",
    resource: "secrets",
    namespaced: true,
    metadata_only: false,
    decode: decode::<Secret>,
    indexes: &[],
};

/// ConfigMaps, with their data.
pub static CONFIG_MAPS: Kind = Kind {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    resource: "configmaps",
    namespaced: true,
    metadata_only: false,
    decode: decode::<ConfigMap>,
    indexes: &[],
};

/// Namespaces.
pub static NAMESPACES: Kind = Kind {
    group: "",
    version: "v1",
    kind: "Namespace",
    resource: "namespaces",
    namespaced: false,
    metadata_only: false,
    decode: decode::<Namespace>,
    indexes: &[],
};

/// All kinds, for tests that hold for each.
pub static ALL: &[&Kind] =
    &[&PODS, &REPLICA_SETS, &DEPLOYMENTS, &SERVICE_ACCOUNTS, &SECRETS, &CONFIG_MAPS, &NAMESPACES];

//! The format of a scenario. `docs/contributing/parity.md` shows how to write one.

use std::collections::BTreeMap;

use kube::api::{ApiResource, GroupVersionKind};
use serde::Deserialize;
use serde_json::Value;

use crate::harness::Numbers;

/// The kinds that scenarios write or look at, with their groups and versions.
const KINDS: &[(&str, &str, &str)] = &[
    ("APIService", "apiregistration.k8s.io", "v1"),
    ("CSIDriver", "storage.k8s.io", "v1"),
    ("CertificateSigningRequest", "certificates.k8s.io", "v1"),
    ("ClusterRole", "rbac.authorization.k8s.io", "v1"),
    ("ClusterRoleBinding", "rbac.authorization.k8s.io", "v1"),
    ("ClusterTrustBundle", "certificates.k8s.io", "v1beta1"),
    ("ConfigMap", "", "v1"),
    ("ControllerRevision", "apps", "v1"),
    ("CronJob", "batch", "v1"),
    ("CustomResourceDefinition", "apiextensions.k8s.io", "v1"),
    ("DaemonSet", "apps", "v1"),
    ("Deployment", "apps", "v1"),
    ("EndpointSlice", "discovery.k8s.io", "v1"),
    ("DeviceTaintRule", "resource.k8s.io", "v1beta2"),
    ("Endpoints", "", "v1"),
    ("Event", "", "v1"),
    ("HorizontalPodAutoscaler", "autoscaling", "v2"),
    ("IPAddress", "networking.k8s.io", "v1"),
    ("Job", "batch", "v1"),
    ("Lease", "coordination.k8s.io", "v1"),
    ("Namespace", "", "v1"),
    ("Node", "", "v1"),
    ("Pod", "", "v1"),
    ("PersistentVolume", "", "v1"),
    ("PersistentVolumeClaim", "", "v1"),
    ("PodCertificateRequest", "certificates.k8s.io", "v1beta1"),
    ("PodDisruptionBudget", "policy", "v1"),
    ("PodGroup", "scheduling.k8s.io", "v1alpha2"),
    ("Realm", "parity.example.com", "v1"),
    ("ReplicaSet", "apps", "v1"),
    ("ReplicationController", "", "v1"),
    ("ResourceClaim", "resource.k8s.io", "v1"),
    ("ResourceClaimTemplate", "resource.k8s.io", "v1"),
    ("ResourcePoolStatusRequest", "resource.k8s.io", "v1alpha3"),
    ("ResourceQuota", "", "v1"),
    ("ResourceSlice", "resource.k8s.io", "v1"),
    ("Role", "rbac.authorization.k8s.io", "v1"),
    ("Secret", "", "v1"),
    ("Service", "", "v1"),
    ("ServiceAccount", "", "v1"),
    ("ServiceCIDR", "networking.k8s.io", "v1"),
    ("StatefulSet", "apps", "v1"),
    ("StorageClass", "storage.k8s.io", "v1"),
    ("StorageVersion", "internal.apiserver.k8s.io", "v1alpha1"),
    ("StorageVersionMigration", "storagemigration.k8s.io", "v1beta1"),
    ("Thing", "parity.example.com", "v1"),
    ("ValidatingAdmissionPolicy", "admissionregistration.k8s.io", "v1"),
    ("ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io", "v1"),
    ("VolumeAttachment", "storage.k8s.io", "v1"),
    ("VolumeAttributesClass", "storage.k8s.io", "v1"),
    ("Workload", "scheduling.k8s.io", "v1alpha2"),
];
/// Those of them that live in no namespace. Scenarios write them under names with NAMESPACE in them.
const CLUSTER_SCOPED: &[&str] = &[
    "APIService",
    "CSIDriver",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterTrustBundle",
    "CustomResourceDefinition",
    "DeviceTaintRule",
    "IPAddress",
    "Namespace",
    "Node",
    "PersistentVolume",
    "Realm",
    "ResourcePoolStatusRequest",
    "ResourceSlice",
    "ServiceCIDR",
    "StorageClass",
    "StorageVersion",
    "StorageVersionMigration",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "VolumeAttachment",
    "VolumeAttributesClass",
];

/// A scenario: what happens in a namespace, and when to look.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    /// What it shows, for people.
    #[expect(dead_code, reason = "for people; required of every scenario")]
    about: String,
    /// It must not play beside others than those that say the same.
    #[serde(default)]
    pub(super) apart: String,
    /// The kinds that are looked at.
    #[serde(default = "workloads")]
    pub(super) kinds: Vec<Seen>,
    pub(super) steps: Vec<Step>,
    /// Differences that are kept on purpose. Each must be there.
    #[serde(default)]
    pub(super) differences: Vec<Kept>,
}

fn workloads() -> Vec<Seen> {
    let seen = |kind: &str| Seen { kind: kind.to_owned(), place: None, prefix: None };
    ["Deployment", "ReplicaSet", "Pod"].map(seen).to_vec()
}

/// A kind that is looked at, written `KIND`: the objects in the scenario's namespace, or those in none that are named after it.
/// `NAMESPACE/KIND` is for those in another namespace that are named after it; `KIND/PREFIX` and `NAMESPACE/KIND/PREFIX` for those
/// whose names begin so.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Seen {
    pub(super) kind: String,
    /// Another namespace than the scenario's.
    pub(super) place: Option<String>,
    /// How the names begin; with the scenario's own if it is not said.
    pub(super) prefix: Option<String>,
}

impl TryFrom<String> for Seen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (place, rest) = in_place(&text);
        let (kind, prefix) = match rest.split_once('/') {
            Some((kind, prefix)) => (kind, Some(prefix.to_owned())),
            None => (rest, None),
        };
        resource(kind)?;
        Ok(Self { kind: kind.to_owned(), place, prefix })
    }
}

impl Seen {
    /// Whether this is a change of such objects, by its place in the audit log.
    pub(super) fn concerns(&self, place: &str) -> bool {
        let Some(prefix) = &self.prefix else { return false };
        let begin = self.place.as_ref().map_or_else(|| prefix.clone(), |place| format!("{place}/{prefix}"));
        place.starts_with(&begin)
    }
}

/// The namespace that a text begins with, if it does, and the rest: kinds begin with a capital.
fn in_place(text: &str) -> (Option<String>, &str) {
    match text.split_once('/') {
        Some((place, rest)) if place.starts_with(|c: char| c.is_ascii_lowercase()) => {
            (Some(place.to_owned()), rest)
        }
        _ => (None, text),
    }
}

/// One step.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Step {
    /// Server-side apply of an object.
    Apply(Value),
    /// An object that is written past the API server, which would not take its age or its author.
    Store(Value),
    /// Server-side apply of an object with strings that are not valid UTF-8: two such bytes for each `ÿ`.
    Wire(Value),
    /// A patch of one object: strategic merge.
    Patch(Change),
    /// A write of the subresource `scale`.
    Scale { target: Target, replicas: i32 },
    /// A delete.
    Delete {
        target: Target,
        #[serde(default)]
        propagation: Propagation,
    },
    /// What a kubelet would do: pods go on in their lives.
    Advance(Advance),
    /// Evictions of pods, one after the other.
    Evict(Evict),
    /// What metrics APIs say of the namespace from here on.
    Metrics(Numbers),
    /// A patch of some pods that are not being deleted; of statuses, those of pods that have not ended.
    Mark {
        pods: String,
        take: usize,
        with: Value,
        #[serde(default)]
        status: bool,
    },
    /// From here on the Leases of these nodes are renewed, and of no others of the scenario.
    Renew(Vec<String>),
    /// Ends the manager and starts it anew.
    Restart,
    /// Waits until the OpenAPI document of a group version says something, as it does some time after its definition.
    Published(Published),
    /// Waits until fields have these values (`null` for absent), by their paths in what is looked at.
    Wait(BTreeMap<String, Value>),
    /// Looks at everything, once it is quiet.
    Observe(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    pub(super) target: Target,
    pub(super) with: Value,
    /// Of the subresource `status`.
    #[serde(default)]
    pub(super) status: bool,
    /// A JSON merge patch instead.
    #[serde(default)]
    pub(super) merge: bool,
}

/// `take` pods of the label selector `pods` that have not come as far as `to`. Waits until there are so many.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Advance {
    pub(super) pods: String,
    pub(super) take: usize,
    pub(super) to: Fate,
}

/// Evictions of `take` pods of the label selector `pods` that are ready.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Evict {
    pub(super) pods: String,
    pub(super) take: usize,
    /// Each is refused; otherwise each is granted, if not at once.
    #[serde(default)]
    pub(super) refused: bool,
    /// Whether they are such as are not ready.
    #[serde(default)]
    pub(super) unready: bool,
}

/// A text in the OpenAPI document of a group version.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    /// `GROUP/VERSION`.
    pub(super) version: String,
    /// The text.
    pub(super) with: String,
}

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fate {
    /// It runs, and its containers pass their probes.
    Ready,
    /// It runs and is not ready any more.
    Unready,
    /// It has failed.
    Failed,
    /// It has succeeded.
    Succeeded,
    /// Somebody deletes it. It ends at its own pace.
    Deleted,
    /// It is being deleted, and has ended.
    Gone,
}

/// What becomes of a deleted object's dependents.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Propagation {
    #[default]
    Background,
    Foreground,
    Orphan,
}

/// A difference kept on purpose, exactly as the test reports it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    /// The look after which it is there.
    pub(super) after: String,
    pub(super) path: String,
    /// What the Go manager makes of it; `null` for nothing.
    #[serde(default)]
    pub(super) recorded: Value,
    /// What Coxswain makes of it.
    #[serde(default)]
    pub(super) ours: Value,
    /// Why it is kept.
    pub(super) reason: String,
}

/// An object, written `KIND/NAME`, or `NAMESPACE/KIND/NAME` in another namespace than the scenario's.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Target {
    pub(super) kind: ApiResource,
    pub(super) name: String,
    pub(super) place: Option<String>,
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (place, rest) = in_place(&text);
        let (kind, name) = rest.split_once('/').ok_or_else(|| format!("{text:?} is not KIND/NAME"))?;
        Ok(Self { kind: resource(kind)?, name: name.to_owned(), place })
    }
}

/// A kind by its name.
pub(super) fn resource(kind: &str) -> Result<ApiResource, String> {
    let row = KINDS.iter().find(|(name, _, _)| *name == kind);
    let (_, group, version) = row.ok_or_else(|| format!("{kind:?} is not among the kinds of scenarios"))?;
    Ok(ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
}

/// Whether objects of a kind live in a namespace.
pub(super) fn is_namespaced(kind: &ApiResource) -> bool {
    !CLUSTER_SCOPED.contains(&kind.kind.as_str())
}

impl Scenario {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        // By way of JSON, which writes a step as a map with one key and not as a YAML tag.
        let value: Value = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
        let scenario: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        if scenario.differences.iter().any(|kept| kept.reason.trim().is_empty()) {
            return Err("a difference is kept without a reason".to_owned());
        }
        Ok(scenario)
    }

    /// The names of its looks, in order.
    pub(super) fn looks(&self) -> Vec<&str> {
        let looks = self.steps.iter().filter_map(|step| match step {
            Step::Observe(name) => Some(name.as_str()),
            _ => None,
        });
        looks.collect()
    }
}

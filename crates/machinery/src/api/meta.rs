//! `meta/v1`: what every object carries, selectors, and the API server's `Status`.

pub use super::expressions::Expressions;
use crate::wire::{Labels, Str, Time, Uid, message};

/// Finalizer of an object that is deleted in the foreground. The garbage collector removes it when no dependent blocks the deletion.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// Finalizer of an object whose dependents are kept. The garbage collector removes it when no dependent refers to the object.
pub const ORPHAN_FINALIZER: &str = "orphan";

message! {
    schema SCHEMA;

    /// Metadata of an object. `managedFields` are never decoded.
    pub struct ObjectMeta = "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta" {
        /// Name, unique in its namespace.
        1 => name: Str,
        /// Prefix from which the server made the name.
        2 => generate_name: Str [interned],
        /// Namespace; empty for cluster-scoped objects.
        3 => namespace: Str [interned],
        /// Unique in time and space.
        5 => uid: Uid,
        /// Version of the object in storage.
        6 => resource_version: Str,
        /// Counts changes of the desired state.
        7 => generation: i64,
        /// When the server stored it first.
        8 => creation_timestamp: Option<Time>,
        /// When it is to be gone; set when deletion has begun.
        9 => deletion_timestamp: Option<Time>,
        /// Seconds granted to terminate.
        10 => deletion_grace_period_seconds: Option<i64>,
        /// Labels.
        11 => labels: Labels [labels],
        /// Annotations.
        12 => annotations: Labels [selected],
        /// Owners; at most one of them is the controller.
        13 => owner_references: Vec<OwnerReference>,
        /// What must be done before it may go.
        14 => finalizers: Vec<Str> [interned],
    } + named {
        4 => self_link,
        17 => managed_fields,
    }

    /// An owner of an object.
    pub struct OwnerReference = "k8s.io.apimachinery.pkg.apis.meta.v1.OwnerReference" {
        /// Kind of the owner.
        1 => kind: Str [interned],
        /// Name of the owner.
        3 => name: Str [interned],
        /// UID of the owner.
        4 => uid: Uid,
        /// API version of the owner.
        5 => api_version: Str [interned],
        /// Whether this owner is the managing controller.
        6 => controller: Option<bool>,
        /// Whether foreground deletion of the owner waits for this object.
        7 => block_owner_deletion: Option<bool>,
    }

    /// A label query.
    pub struct LabelSelector = "k8s.io.apimachinery.pkg.apis.meta.v1.LabelSelector" {
        /// Exact matches.
        1 => match_labels: Labels,
        /// Set expressions, all of which must hold.
        2 => match_expressions: Expressions,
    }

    /// One expression of a label query.
    pub struct LabelSelectorRequirement = "k8s.io.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement" {
        /// Label key.
        1 => key: Str [interned],
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        2 => operator: Str [interned],
        /// Values for `In` and `NotIn`.
        3 => values: Vec<Str> [interned],
    }

    /// A condition, as newer kinds have them.
    pub struct Condition = "k8s.io.apimachinery.pkg.apis.meta.v1.Condition" {
        /// What it is about.
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
        /// Generation that it speaks of.
        3 => observed_generation: i64,
        /// When `status` changed last.
        4 => last_transition_time: Option<Time>,
        /// For machines.
        5 => reason: Str [interned],
        /// For people.
        6 => message: Str,
    }

    /// An amount, as it is written.
    pub struct QuantityText = "k8s.io.apimachinery.pkg.api.resource.Quantity" {
        /// The text: `500m`, `64Gi`.
        1 => string: Str [interned],
    }

    /// An object of which only metadata was asked.
    pub struct PartialObjectMetadata = "k8s.io.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata" {
        /// Metadata.
        1 => metadata: ObjectMeta,
    }

    /// How a delete is asked for.
    pub struct DeleteRequest = "k8s.io.apimachinery.pkg.apis.meta.v1.DeleteOptions" {
        /// Seconds granted to terminate.
        1 => grace_period_seconds: Option<i64>,
        /// Which object is meant.
        2 => preconditions: Preconditions,
        /// `Background`, `Foreground` or `Orphan`.
        4 => propagation_policy: Str,
    }

    /// What must be true of an object that is deleted.
    pub struct Preconditions = "k8s.io.apimachinery.pkg.apis.meta.v1.Preconditions" {
        /// Its UID.
        1 => uid: Str,
        /// Its resource version.
        2 => resource_version: Str,
    }

    /// How the API server reports an error.
    pub struct Status = "k8s.io.apimachinery.pkg.apis.meta.v1.Status" {
        /// What it says of a list that could not go on.
        1 => metadata: StatusMetadata,
        /// `Success` or `Failure`.
        2 => status: Str,
        /// For people.
        3 => message: Str,
        /// For machines: `NotFound`, `Conflict`, `AlreadyExists` …
        4 => reason: Str,
        /// More of it.
        5 => details: Option<Box<StatusDetails>>,
        /// HTTP status code.
        6 => code: i32,
    }

    /// What an error says of a list.
    pub struct StatusMetadata = "k8s.io.apimachinery.pkg.apis.meta.v1.ListMeta" {
        /// Where it can go on all the same.
        3 => r#continue: Str,
    }

    /// Details of an error.
    pub struct StatusDetails = "k8s.io.apimachinery.pkg.apis.meta.v1.StatusDetails" {
        /// Name of the object concerned.
        1 => name: Str,
        /// Its group.
        2 => group: Str,
        /// Its kind or resource.
        3 => kind: Str,
        /// The single causes.
        4 => causes: Vec<StatusCause>,
        /// Seconds after which a retry may succeed.
        5 => retry_after_seconds: i32,
        /// Its UID.
        6 => uid: Str,
    }

    /// One cause of an error.
    pub struct StatusCause = "k8s.io.apimachinery.pkg.apis.meta.v1.StatusCause" {
        /// For machines: `FieldValueInvalid`, `NamespaceTerminating` …
        1 => reason: Str,
        /// For people.
        2 => message: Str,
        /// The field at fault.
        3 => field: Str,
    }
}

impl ObjectMeta {
    /// The owner that manages the object, if there is one.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// Whether `owner` can own the object: it is in no namespace or in the object's.
    pub fn is_in_reach_of(&self, owner: &Self) -> bool {
        owner.namespace.is_empty() || owner.namespace == self.namespace
    }

    /// Whether the managing controller is `owner`, by its UID. A reference from another namespace does not count.
    pub fn is_controlled_by(&self, owner: &Self) -> bool {
        self.is_in_reach_of(owner) && self.controller().is_some_and(|named| named.uid == owner.uid)
    }

    /// Whether deletion has begun.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The resource version as a number, by KEP-5504 (comparable resource versions); `None` when it is not one.
    pub fn version(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }
}

//! Groups of which one kind each is read, trimmed: `admissionregistration.k8s.io/v1`, `apiextensions.k8s.io/v1`,
//! `storagemigration.k8s.io/v1beta1`, `internal.apiserver.k8s.io/v1alpha1`.

use super::kind::{ApiVersion, kinds, objects};
use super::meta::{Condition, ObjectMeta};
use crate::wire::{Keep, Str, Time, message};

const ADMISSION: ApiVersion = ApiVersion { group: "admissionregistration.k8s.io", version: "v1" };
const EXTENSIONS: ApiVersion = ApiVersion { group: "apiextensions.k8s.io", version: "v1" };
const MIGRATION: ApiVersion = ApiVersion { group: "storagemigration.k8s.io", version: "v1beta1" };
const INTERNAL: ApiVersion = ApiVersion { group: "internal.apiserver.k8s.io", version: "v1alpha1" };

kinds! {
    /// ValidatingAdmissionPolicies.
    VALIDATING_ADMISSION_POLICIES =
        ADMISSION.cluster_wide::<ValidatingAdmissionPolicy>("ValidatingAdmissionPolicy", "validatingadmissionpolicies");
    /// CustomResourceDefinitions.
    CUSTOM_RESOURCE_DEFINITIONS =
        EXTENSIONS.cluster_wide::<CustomResourceDefinition>("CustomResourceDefinition", "customresourcedefinitions");
    /// StorageVersionMigrations.
    STORAGE_VERSION_MIGRATIONS =
        MIGRATION.cluster_wide::<StorageVersionMigration>("StorageVersionMigration", "storageversionmigrations");
    /// StorageVersions.
    STORAGE_VERSIONS = INTERNAL.cluster_wide::<StorageVersion>("StorageVersion", "storageversions");
}

objects! {
    ValidatingAdmissionPolicy keeps Keep::LABELS;
    CustomResourceDefinition keeps Keep::LABELS;
    StorageVersionMigration + raw;
    StorageVersion + raw;
}

message! {
    schema SCHEMA;

    /// A policy of admission.
    pub struct ValidatingAdmissionPolicy = "k8s.io.api.admissionregistration.v1.ValidatingAdmissionPolicy" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: ValidatingAdmissionPolicySpec,
        /// Observed state.
        3 => status: ValidatingAdmissionPolicyStatus,
    }

    /// What controllers read of a policy's spec.
    pub struct ValidatingAdmissionPolicySpec = "k8s.io.api.admissionregistration.v1.ValidatingAdmissionPolicySpec" {
        /// Kind of its parameters.
        1 => param_kind: Option<Box<ParamKind>>,
        /// What it is about.
        2 => match_constraints: Option<Box<MatchResources>>,
        /// What must hold.
        3 => validations: Vec<Validation>,
        /// Expressions that the others may use.
        7 => variables: Vec<Variable>,
    }

    /// Kind of a policy's parameters.
    pub struct ParamKind = "k8s.io.api.admissionregistration.v1.ParamKind" {
        /// API version.
        1 => api_version: Str [interned],
        /// Kind.
        2 => kind: Str [interned],
    }

    /// What a policy is about.
    pub struct MatchResources = "k8s.io.api.admissionregistration.v1.MatchResources" {
        /// Any of these.
        3 => resource_rules: Vec<NamedRuleWithOperations>,
    }

    /// Resources that a policy is about.
    pub struct NamedRuleWithOperations = "k8s.io.api.admissionregistration.v1.NamedRuleWithOperations" {
        /// The resources.
        2 => rule_with_operations: RuleWithOperations,
    }

    /// Resources that a policy is about.
    pub struct RuleWithOperations = "k8s.io.api.admissionregistration.v1.RuleWithOperations" {
        /// The resources.
        2 => rule: AdmissionRule,
    }

    /// Resources, by group, version and name.
    pub struct AdmissionRule = "k8s.io.api.admissionregistration.v1.Rule" {
        /// API groups, or `*`.
        1 => api_groups: Vec<Str> [interned],
        /// API versions, or `*`.
        2 => api_versions: Vec<Str> [interned],
        /// Resources and subresources.
        3 => resources: Vec<Str> [interned],
    }

    /// Something that must hold.
    pub struct Validation = "k8s.io.api.admissionregistration.v1.Validation" {
        /// The CEL expression.
        1 => expression: Str,
        /// The CEL expression of the message.
        4 => message_expression: Str,
    }

    /// A CEL expression with a name.
    pub struct Variable = "k8s.io.api.admissionregistration.v1.Variable" {
        /// The name.
        1 => name: Str,
        /// The expression.
        2 => expression: Str,
    }

    /// What controllers read of a policy's status.
    pub struct ValidatingAdmissionPolicyStatus = "k8s.io.api.admissionregistration.v1.ValidatingAdmissionPolicyStatus" {
        /// Generation that this status speaks of.
        1 => observed_generation: i64,
    }

    /// The definition of a custom resource.
    pub struct CustomResourceDefinition = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: CustomResourceDefinitionSpec,
        /// Observed state.
        3 => status: CustomResourceDefinitionStatus,
    }

    /// What controllers read of a definition's spec.
    pub struct CustomResourceDefinitionSpec =
        "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec" {
        /// Versions.
        7 => versions: Vec<CustomResourceDefinitionVersion>,
    }

    /// A version of a custom resource.
    pub struct CustomResourceDefinitionVersion =
        "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion" {
        /// Its name.
        1 => name: Str [interned],
        /// Whether objects are stored in it.
        3 => storage: bool,
    }

    /// What controllers read of a definition's status.
    pub struct CustomResourceDefinitionStatus =
        "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus" {
        /// Conditions.
        1 => conditions: Vec<CustomResourceDefinitionCondition>,
        /// Versions in which objects may be stored.
        3 => stored_versions: Vec<Str> [interned],
    }

    /// A condition of a definition.
    pub struct CustomResourceDefinitionCondition =
        "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionCondition" {
        /// `Established`, `StorageMigrating` …
        1 => r#type: Str [interned],
        /// `True`, `False` or `Unknown`.
        2 => status: Str [interned],
        /// When `status` changed last.
        3 => last_transition_time: Option<Time>,
        /// For machines.
        4 => reason: Str [interned],
        /// For people.
        5 => message: Str,
        /// Generation that it speaks of.
        6 => observed_generation: i64,
    }

    /// The rewriting of all stored objects of a resource.
    pub struct StorageVersionMigration + raw = "k8s.io.api.storagemigration.v1beta1.StorageVersionMigration" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Of what.
        2 => spec: StorageVersionMigrationSpec,
        /// How far it has come.
        3 => status: StorageVersionMigrationStatus,
    }

    /// What is rewritten.
    pub struct StorageVersionMigrationSpec = "k8s.io.api.storagemigration.v1beta1.StorageVersionMigrationSpec" {
        /// The resource.
        1 => resource: GroupResource,
    }

    /// A resource in any version.
    pub struct GroupResource = "k8s.io.apimachinery.pkg.apis.meta.v1.GroupResource" {
        /// API group.
        1 => group: Str [interned],
        /// Resource.
        2 => resource: Str [interned],
    }

    /// How far a migration has come.
    pub struct StorageVersionMigrationStatus = "k8s.io.api.storagemigration.v1beta1.StorageVersionMigrationStatus" {
        /// Conditions.
        1 => conditions: Vec<Condition>,
        /// Objects that were written later need no rewriting.
        2 => resource_version: Str,
    }

    /// In which versions API servers store a resource.
    pub struct StorageVersion + raw = "k8s.io.api.apiserverinternal.v1alpha1.StorageVersion" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Observed state.
        3 => status: StorageVersionStatus,
    }

    /// In which versions API servers store a resource.
    pub struct StorageVersionStatus = "k8s.io.api.apiserverinternal.v1alpha1.StorageVersionStatus" {
        /// Each API server's.
        1 => storage_versions: Vec<ServerStorageVersion>,
        /// The version that all use, if they agree.
        2 => common_encoding_version: Option<Str> [interned],
        /// Conditions.
        3 => conditions: Vec<StorageVersionCondition>,
    }

    /// In which version an API server stores a resource.
    pub struct ServerStorageVersion = "k8s.io.api.apiserverinternal.v1alpha1.ServerStorageVersion" {
        /// The API server.
        1 => api_server_id: Str [interned],
        /// The version.
        2 => encoding_version: Str [interned],
    }

    /// A condition of a storage version.
    pub struct StorageVersionCondition = "k8s.io.api.apiserverinternal.v1alpha1.StorageVersionCondition" {
        /// `AllEncodingVersionsEqual`.
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
}

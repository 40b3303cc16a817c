//! `scheduling.k8s.io/v1alpha2`, trimmed: the Workload API. PodGroups are rewritten, so their bytes are kept in `raw`.

use std::sync::Arc;

use bytes::Bytes;

use super::kind::{AnyObject, ApiVersion, kinds, objects, own_bytes};
use super::meta::ObjectMeta;
use crate::wire::{Keep, Message, Raw, Str, WireError, message};

const SCHEDULING: ApiVersion = ApiVersion { group: "scheduling.k8s.io", version: "v1alpha2" };

kinds! {
    /// PodGroups.
    POD_GROUPS = SCHEDULING.namespaced::<PodGroup>("PodGroup", "podgroups");
    /// Workloads.
    WORKLOADS = SCHEDULING.namespaced::<Workload>("Workload", "workloads").decoded_by(decode_workload);
}

objects! {
    PodGroup + raw;
    Workload keeps Keep::LABELS;
}

/// The policies of a Workload refer to the buffer that it is decoded from. In a buffer of its own it keeps no page of a list in memory.
fn decode_workload(bytes: &Bytes) -> Result<AnyObject, WireError> {
    Ok(Arc::new(Workload::decode_with(&own_bytes(bytes)?, Keep::LABELS)?))
}

message! {
    schema SCHEMA;

    /// Pods that are scheduled together.
    pub struct PodGroup + raw = "k8s.io.api.scheduling.v1alpha2.PodGroup" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: PodGroupSpec,
        /// Observed state.
        3 => status: PodGroupStatus,
    }

    /// What controllers read of a PodGroup's spec.
    pub struct PodGroupSpec = "k8s.io.api.scheduling.v1alpha2.PodGroupSpec" {
        /// What it was made from.
        1 => pod_group_template_ref: Option<Box<PodGroupTemplateReference>>,
        /// Claims that its pods share.
        4 => resource_claims: Vec<PodGroupResourceClaim>,
    } + named {
        2 => scheduling_policy,
    }

    /// What a PodGroup was made from.
    pub struct PodGroupTemplateReference = "k8s.io.api.scheduling.v1alpha2.PodGroupTemplateReference" {
        /// A Workload's template.
        1 => workload: Option<Box<WorkloadPodGroupTemplateReference>>,
    }

    /// A Workload's template.
    pub struct WorkloadPodGroupTemplateReference = "k8s.io.api.scheduling.v1alpha2.WorkloadPodGroupTemplateReference" {
        /// Name of the Workload.
        1 => workload_name: Str,
        /// Name of the template in it.
        2 => pod_group_template_name: Str [interned],
    }

    /// A claim that pods of a group share.
    pub struct PodGroupResourceClaim = "k8s.io.api.scheduling.v1alpha2.PodGroupResourceClaim" {
        /// Name of the entry.
        1 => name: Str [interned],
        /// Name of the claim, if it is there already.
        2 => resource_claim_name: Option<Str>,
        /// What the claim is made from.
        3 => resource_claim_template_name: Option<Str> [interned],
    }

    /// What controllers read of a PodGroup's status.
    pub struct PodGroupStatus = "k8s.io.api.scheduling.v1alpha2.PodGroupStatus" {
        /// The claims that were made.
        2 => resource_claim_statuses: Vec<PodGroupResourceClaimStatus>,
    }

    /// A claim that was made for a group.
    pub struct PodGroupResourceClaimStatus = "k8s.io.api.scheduling.v1alpha2.PodGroupResourceClaimStatus" {
        /// Name of the entry.
        1 => name: Str [interned],
        /// Name of the claim; absent if none is needed.
        2 => resource_claim_name: Option<Str>,
    }

    /// Templates of PodGroups.
    pub struct Workload = "k8s.io.api.scheduling.v1alpha2.Workload" {
        /// Metadata.
        1 => metadata: ObjectMeta,
        /// Desired state.
        2 => spec: WorkloadSpec,
    }

    /// Whose, and which.
    pub struct WorkloadSpec = "k8s.io.api.scheduling.v1alpha2.WorkloadSpec" {
        /// The object whose pods they are.
        1 => controller_ref: Option<Box<WorkloadController>>,
        /// The templates.
        2 => pod_group_templates: Vec<PodGroupTemplate>,
    }

    /// The object whose pods a Workload schedules.
    pub struct WorkloadController = "k8s.io.api.scheduling.v1alpha2.TypedLocalObjectReference" {
        /// API group.
        1 => api_group: Str [interned],
        /// Kind.
        2 => kind: Str [interned],
        /// Name.
        3 => name: Str,
    }

    /// A template of PodGroups.
    pub struct PodGroupTemplate = "k8s.io.api.scheduling.v1alpha2.PodGroupTemplate" {
        /// Name of the template.
        1 => name: Str [interned],
        /// How its pods are scheduled.
        2 => scheduling_policy: Raw as PodGroupSchedulingPolicy,
    }

    /// How pods of a group are scheduled.
    pub struct PodGroupSchedulingPolicy = "k8s.io.api.scheduling.v1alpha2.PodGroupSchedulingPolicy" {
        /// All or none of some number.
        2 => gang: Option<Box<GangSchedulingPolicy>>,
    }

    /// How many pods must be schedulable together.
    pub struct GangSchedulingPolicy = "k8s.io.api.scheduling.v1alpha2.GangSchedulingPolicy" {
        /// The number.
        1 => min_count: i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_workload_does_not_keep_the_page_of_a_list_in_memory() {
        let policy = PodGroupSchedulingPolicy { gang: Some(Box::new(GangSchedulingPolicy { min_count: 3 })) };
        let template =
            PodGroupTemplate { name: "workers".into(), scheduling_policy: Raw(policy.to_bytes().into()) };
        let spec = WorkloadSpec { controller_ref: None, pod_group_templates: vec![template.clone()] };
        let metadata = ObjectMeta { name: "w".into(), ..ObjectMeta::default() };
        let workload = Workload { metadata, spec }.to_bytes();
        let page = Bytes::from([vec![0; 4096], workload].concat());
        let object = (WORKLOADS.decode)(&page.slice(4096..)).unwrap();
        assert!(page.is_unique());
        let any: &dyn std::any::Any = &*object;
        assert_eq!(any.downcast_ref::<Workload>().unwrap().spec.pod_group_templates, [template]);
    }
}

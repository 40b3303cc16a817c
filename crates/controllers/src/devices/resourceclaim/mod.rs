//! ResourceClaims: makes those that pods ask for by template, records their names, reserves allocated ones for pods that no
//! scheduler has placed, and frees and deletes those that nobody uses any more. See "Dynamic Resource Allocation" in the Kubernetes
//! documentation, KEP-4381, and KEP-5729 for groups of pods.
//!
//! | loop | key | a change of | concerns |
//! |---|---|---|---|
//! | `resource_claim` | a pod | a pod with claims, as long as it is there and not done | its own key |
//! | | | a claim; a template that is new or changed; a PodGroup | the pods that name it |
//! | `resource_claim_podgroup` | a PodGroup | the same as for a pod | |
//! | `resource_claim_consumers` | a claim | a claim that is there | its own key |
//! | | | a pod that is done or gone, a PodGroup that is gone | the claims that it names |
//!
//! The loops over pods and PodGroups are one room ([`rooms`]): what differs is read into a [`view::Owner`]. The loop over claims is
//! the other ([`claim`]). The third loop runs while `DRAWorkloadResourceClaims` is on.
//!
//! What it rests on: a claim is found by who controls it and by the annotation that names the entry, so one that was made and not
//! recorded is found again, whoever made it. Names are recorded by server-side apply, all of them each time. Who uses a claim is
//! told by UID; of a consumer that the cache has not, or has with another UID, the API server is asked before the claim is freed or
//! deleted, unless a watch has shown the deletion of the consumer.
//!
//! It never allocates devices: that is the scheduler's. It never deletes a claim that somebody else made.

use std::sync::Arc;

use coxswain_machinery::api::kinds::{POD_GROUPS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::resource::{ResourceClaim, ResourceClaimTemplate};
use coxswain_machinery::api::scheduling::PodGroup;
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, EVENTS_GRANT, Grant, Loop, LoopSettings, RoomAdapter,
    Watch, wake,
};

mod by_entry;
mod claim;
mod departed;
mod keys;
mod metrics;
mod names;
mod plan;
mod rooms;
#[cfg(test)]
mod tests;
mod view;

use departed::Departed;
use metrics::Metrics;

/// Annotation of a claim: the entry of its owner that it was made for.
const ENTRY: &str = "resource.kubernetes.io/pod-claim-name";

/// The registry's row.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "resourceclaim-controller",
    aliases: &["resource-claim-controller"],
    description: "Creates the ResourceClaims of Pods and deallocates unused ResourceClaims.",
    gates: &["DynamicResourceAllocation"],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("resource-claim-controller"),
    event_source: Some("resource_claim"),
    writes: &[
        Grant { group: "", resource: "pods", verbs: &["get", "list", "watch"] },
        Grant { group: "", resource: "pods/status", verbs: &["patch"] },
        // Asked for by admission (OwnerReferencesPermissionEnforcement), were claims to block their owner's deletion.
        Grant { group: "", resource: "pods/finalizers", verbs: &["update"] },
        Grant {
            group: "resource.k8s.io",
            resource: "resourceclaims",
            verbs: &["create", "delete", "get", "list", "update", "watch"],
        },
        Grant { group: "resource.k8s.io", resource: "resourceclaims/status", verbs: &["update"] },
        Grant { group: "scheduling.k8s.io", resource: "podgroups", verbs: &["get", "list", "watch"] },
        Grant { group: "scheduling.k8s.io", resource: "podgroups/status", verbs: &["patch"] },
        // Asked for by admission where a status says who may use the claim.
        Grant { group: "resource.k8s.io", resource: "resourceclaims/binding", verbs: &["update"] },
        EVENTS_GRANT,
    ],
    build: Some(build),
};

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let groups = (build.gate)("DRAWorkloadResourceClaims").then(|| build.watch::<PodGroup>(&POD_GROUPS));
    let pods = build.watch::<Pod>(&PODS);
    let claims = build.watch::<ResourceClaim>(&RESOURCE_CLAIMS);
    let templates = build.watch::<ResourceClaimTemplate>(&RESOURCE_CLAIM_TEMPLATES);
    let metrics = Metrics::register(build.metrics).map_err(|error| BuildError::Invalid(error.to_string()))?;
    let metrics = Arc::new(metrics);
    let settings = LoopSettings::with_workers(build.config.flags.concurrent_resourceclaim_syncs);
    let room = view::Rooms {
        pods: pods.lister(),
        groups: groups.as_ref().map(Watch::lister),
        claims: claims.lister(),
        by_controller: claims.dependents(),
        templates: templates.lister(),
        prioritized_lists: (build.gate)("DRAPrioritizedList"),
        admin_access: (build.gate)("DRAAdminAccess"),
    };
    let room = Arc::new(room);
    let mut of_pods = vec![
        pods.wakes(keys::own_pod()),
        claims.wakes(wake::by_index(pods.index(&keys::PODS_BY_CLAIM), keys::of_claim)),
        templates.wakes(keys::of_templates(pods.index(&keys::PODS_BY_TEMPLATE))),
    ];
    let departed = Arc::new(Departed::default());
    let mut of_consumers = vec![
        claims.wakes(wake::existing()),
        claims.wakes(metrics::count_claims(Arc::clone(&metrics))),
        pods.wakes(keys::left_by_pods(Arc::clone(&departed))),
    ];
    if let Some(groups) = &groups {
        of_pods.push(groups.wakes(wake::by_index(pods.index(&keys::PODS_BY_GROUP), keys::of_group)));
        of_consumers.push(groups.wakes(keys::left_by_groups(Arc::clone(&departed))));
    }
    let mut loops = vec![
        Loop {
            queue: "resource_claim",
            kind: Some(&PODS),
            settings: settings.clone(),
            wake_ups: of_pods,
            reconcile: Arc::new(
                RoomAdapter::new(rooms::PodRoom(Arc::clone(&room))).counted_by(Arc::clone(&metrics)),
            ),
        },
        Loop {
            queue: "resource_claim_consumers",
            kind: Some(&RESOURCE_CLAIMS),
            settings: settings.clone(),
            wake_ups: of_consumers,
            reconcile: Arc::new(RoomAdapter::new(claim::Controller {
                claims: claims.lister(),
                pods: pods.lister(),
                groups: groups.as_ref().map(Watch::lister),
                departed,
            })),
        },
    ];
    if let Some(groups) = groups {
        loops.push(Loop {
            queue: "resource_claim_podgroup",
            kind: Some(&POD_GROUPS),
            settings,
            wake_ups: vec![
                groups.wakes(keys::own_group()),
                claims.wakes(wake::by_index(groups.index(&keys::GROUPS_BY_CLAIM), keys::of_claim)),
                templates.wakes(keys::of_templates(groups.index(&keys::GROUPS_BY_TEMPLATE))),
            ],
            reconcile: Arc::new(RoomAdapter::new(rooms::GroupRoom(room)).counted_by(metrics)),
        });
    }
    Ok(Built { loops })
}

//! Those who do what is asked for: a provisioner, an attacher, a resizer, and the file systems on nodes. Each looks again and again at all
//! that there is, for there is one driver.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{DRIVER, POLL};
use crate::harness::object;

pub(super) fn volume(name: &str, class: &str, policy: &str, claim: Option<&Value>) -> Value {
    let made_by = claim.is_some().then(|| json!({ "pv.kubernetes.io/provisioned-by": DRIVER }));
    json!({ "metadata": { "name": name, "annotations": made_by }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "persistentVolumeReclaimPolicy": policy, "csi": { "driver": DRIVER, "volumeHandle": name },
        "claimRef": claim,
    } })
}

/// Makes volumes for the claims that ask for them, and deletes those that are released.
pub(super) async fn provision(client: Client) {
    let (claims, volumes) =
        (Api::<PersistentVolumeClaim>::all(client.clone()), Api::<PersistentVolume>::all(client));
    let (every, params) = (ListParams::default(), PostParams::default());
    loop {
        let asked = claims.list(&every).await.map(|list| list.items).unwrap_or_default().into_iter();
        for claim in asked.filter(|claim| claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_none()))
        {
            let notes = claim.metadata.annotations.unwrap_or_default();
            let class = claim.spec.and_then(|spec| spec.storage_class_name).unwrap_or_default();
            let is_bound_for = class == "now" || notes.contains_key("volume.kubernetes.io/selected-node");
            let (Some(uid), true) = (claim.metadata.uid, is_bound_for) else { continue };
            if notes.get("volume.kubernetes.io/storage-provisioner").is_some_and(|name| name == DRIVER) {
                let of = json!({ "kind": "PersistentVolumeClaim", "apiVersion": "v1", "uid": uid,
                    "namespace": claim.metadata.namespace, "name": claim.metadata.name });
                let made = object(volume(&format!("pvc-{uid}"), &class, "Delete", Some(&of)));
                // It may be there since the last look.
                drop(volumes.create(&params, &made).await);
            }
        }
        let released = volumes.list(&every).await.map(|list| list.items).unwrap_or_default().into_iter();
        for volume in released {
            let is_released = volume.status.is_some_and(|status| status.phase.as_deref() == Some("Released"));
            let policy = volume.spec.and_then(|spec| spec.persistent_volume_reclaim_policy);
            if is_released && policy.as_deref() == Some("Delete") {
                let name = volume.metadata.name.unwrap_or_default();
                drop(volumes.delete(&name, &DeleteParams::default()).await);
            }
        }
        sleep(POLL).await;
    }
}

/// Attaches what is asked for, with a finalizer of its own, and lets go of what is deleted.
pub(super) async fn attach(client: Client) {
    let attachments: Api<VolumeAttachment> = Api::all(client);
    let params = PatchParams::default();
    loop {
        let all = attachments.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        for found in all {
            let name = found.metadata.name.unwrap_or_default();
            let is_ours = found.metadata.finalizers.is_some_and(|held| !held.is_empty());
            let patch = |finalizers: Value| Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
            if found.metadata.deletion_timestamp.is_some() {
                drop(attachments.patch(&name, &params, &patch(Value::Null)).await);
            } else if !is_ours {
                drop(attachments.patch(&name, &params, &patch(json!(["example.com/attacher"]))).await);
                let attached = Patch::Merge(json!({ "status": { "attached": true } }));
                drop(attachments.patch_status(&name, &params, &attached).await);
            }
        }
        sleep(POLL).await;
    }
}

/// Of how many Gi of storage these speak.
fn gibibytes(quantities: Option<&BTreeMap<String, Quantity>>) -> u32 {
    let size = quantities.and_then(|all| all.get("storage")).and_then(|size| size.0.strip_suffix("Gi"));
    size.and_then(|size| size.parse().ok()).unwrap_or(0)
}

fn stage_of(status: &PersistentVolumeClaimStatus) -> &str {
    let stages = status.allocated_resource_statuses.as_ref();
    stages.and_then(|stages| stages.get("storage")).map_or("", String::as_str)
}

/// Grows the volumes of claims that ask for more, up to this many Gi, and leaves file systems to nodes; says of what is larger that it
/// cannot be. Each step is a write of its own, as the real one's are.
pub(super) async fn resize(client: Client, most: u32) {
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let params = PatchParams::default();
    loop {
        for claim in bound(&client).await {
            let (spec, status) =
                (claim.spec.clone().unwrap_or_default(), claim.status.clone().unwrap_or_default());
            let asks = gibibytes(spec.resources.as_ref().and_then(|all| all.requests.as_ref()));
            let allocated = gibibytes(status.allocated_resources.as_ref());
            let size = json!({ "storage": format!("{asks}Gi") });
            let stage = stage_of(&status);
            // A size that was found to be infeasible is not tried again.
            let is_new = asks > gibibytes(status.capacity.as_ref()) && asks != allocated;
            let next = if is_new {
                json!({ "allocatedResources": size, "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
                    "conditions": [{ "type": "Resizing", "status": "True" }] })
            } else if stage == "ControllerResizeInProgress" && allocated > most {
                json!({ "allocatedResourceStatuses": { "storage": "ControllerResizeInfeasible" },
                    "conditions": [{ "type": "ControllerResizeError", "status": "True", "message": "there is no room" }] })
            } else if stage == "ControllerResizeInProgress" {
                let larger = Patch::Merge(json!({ "spec": { "capacity": size } }));
                let name = spec.volume_name.unwrap_or_default();
                drop(volumes.patch(&name, &params, &larger).await.expect("the volume grows"));
                json!({ "allocatedResourceStatuses": { "storage": "NodeResizePending" },
                    "conditions": [{ "type": "FileSystemResizePending", "status": "True" }] })
            } else {
                continue;
            };
            become_so(&client, &claim, next).await;
        }
        sleep(POLL).await;
    }
}

/// Grows the file systems that wait for that, as the kubelet of a pod's node would.
pub(super) async fn grow_file_systems(client: Client) {
    loop {
        for claim in bound(&client).await {
            let status = claim.status.clone().unwrap_or_default();
            if stage_of(&status) == "NodeResizePending" {
                let has = json!({ "capacity": status.allocated_resources, "allocatedResourceStatuses": null, "conditions": null });
                become_so(&client, &claim, has).await;
            }
        }
        sleep(POLL).await;
    }
}

/// The claims that are bound.
async fn bound(client: &Client) -> Vec<PersistentVolumeClaim> {
    let all = Api::<PersistentVolumeClaim>::all(client.clone()).list(&ListParams::default()).await;
    let all = all.map(|list| list.items).unwrap_or_default().into_iter();
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    };
    all.filter(is_bound).collect()
}

/// A claim's status is changed, unless the claim has changed since it was read.
async fn become_so(client: &Client, claim: &PersistentVolumeClaim, status: Value) {
    let metadata = &claim.metadata;
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(client.clone(), metadata.namespace.as_deref().unwrap_or_default());
    let patch = json!({ "metadata": { "resourceVersion": metadata.resource_version }, "status": status });
    let name = metadata.name.as_deref().unwrap_or_default();
    drop(claims.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await);
}

//! Rows about volumes, claims, classes, devices, PodGroups and stored versions, with the gates that are off by default.

use std::sync::Arc;

use kube::api::PropagationPolicy::{Background, Foreground};
use serde_json::{Value, json};

use super::scene::{Scene, controller};
use super::{Area, Case, Played, Taken, nothing};
use crate::harness::ControlPlane;

pub(super) const AREA: Area = Area {
    cases: &[
        Case { id: "classes-read-live", prepare: nothing, play: class, taken: Taken::Unchanged },
        Case { id: "podgroups-read-live", prepare: nothing, play: group, taken: Taken::Unchanged },
        Case {
            id: "claims-of-ended-pods",
            prepare: nothing,
            play: ended_pod,
            taken: Taken::Mended(has_no_claim),
        },
        Case { id: "workload-with-job", prepare: deleted_job, play: workloads, taken: Taken::Unchanged },
        Case { id: "evidence-read-live", prepare: nothing, play: broken_device, taken: Taken::Unchanged },
        Case {
            id: "extended-resources-of-broken-devices",
            prepare: nothing,
            play: extended,
            taken: Taken::Mended(is_evicted),
        },
    ],
    plane: ControlPlane::GATED_ARGS,
    args: &[
        "--controllers=persistentvolume-binder-controller,persistentvolume-protection-controller,\
         persistentvolumeclaim-protection-controller,volumeattributesclass-protection-controller,\
         podgroup-protection-controller,storageversion-garbage-collector-controller,resourceclaim-controller,\
         device-taint-eviction-controller,job-controller,\
         resourcepoolstatusrequest-controller",
        "--pvclaimbinder-sync-period=1h",
    ],
    has_metrics_apis: false,
    is_recorded: true,
};

async fn claim(scene: &Scene, name: &str, volume: &str) {
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "volumeName": volume,
        "resources": { "requests": { "storage": "1Gi" } } });
    scene.create("PersistentVolumeClaim", json!({ "metadata": { "name": name }, "spec": spec })).await;
}

/// Lists of a resource that are no beginning of a watch.
fn lists(scene: &Scene, resource: &str, namespace: &str) -> usize {
    let all = scene.all_requests();
    let lists = all.iter().filter(|event| {
        event.verb == "list" && event.resource() == resource && event.object_ref.namespace == namespace
    });
    lists.count()
}

/// Differs: classes-read-live.
fn class(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let name = scene.own("gold");
        let body =
            json!({ "metadata": { "name": name }, "driverName": "example.com", "parameters": { "a": "b" } });
        scene.create("VolumeAttributesClass", body).await;
        let finalizer = async || {
            let class = scene.get("VolumeAttributesClass", &name).await;
            class["metadata"]["finalizers"].as_array().map_or(0, Vec::len).into()
        };
        scene.waits("the finalizer", finalizer, 1.into()).await?;
        let before = lists(&scene, "persistentvolumeclaims", "");
        scene.delete("VolumeAttributesClass", &name, Background).await;
        scene
            .waits("the class", async || scene.get("VolumeAttributesClass", &name).await, Value::Null)
            .await?;
        let listed = async || (lists(&scene, "persistentvolumeclaims", "") > before).into();
        scene.sees("LISTs of claims", listed, false.into(), true.into()).await
    })
}

/// Differs: podgroups-read-live.
fn group(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let spec = json!({ "schedulingPolicy": { "basic": {} } });
        scene.create("PodGroup", json!({ "metadata": { "name": "gang" }, "spec": spec })).await;
        let finalizer = async || {
            let group = scene.get("PodGroup", "gang").await;
            group["metadata"]["finalizers"].as_array().map_or(0, Vec::len).into()
        };
        scene.waits("the finalizer", finalizer, 1.into()).await?;
        scene.delete("PodGroup", "gang", Background).await;
        scene.waits("the group", async || scene.get("PodGroup", "gang").await, Value::Null).await?;
        let listed = async || (lists(&scene, "pods", &scene.name) > 0).into();
        scene.sees("LISTs of pods", listed, false.into(), true.into()).await
    })
}

fn device_request() -> Value {
    json!({ "devices": { "requests": [{ "name": "gpu", "exactly": { "deviceClassName": "gpu" } }] } })
}

async fn claims(scene: &Scene) -> Value {
    scene.count("PersistentVolumeClaim").await.into()
}

/// Differs: claims-of-ended-pods.
fn ended_pod(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let volume = json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data" } });
        let spec = json!({ "nodeName": "nowhere", "terminationGracePeriodSeconds": 0, "volumes": [volume],
            "containers": [{ "name": "main", "image": "image:1" }] });
        let pod = scene.create("Pod", json!({ "metadata": { "name": "a" }, "spec": spec })).await;
        let owners = controller("v1", "Pod", "a", &pod["metadata"]["uid"]);
        let spec = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "resources": { "requests": { "storage": "1Gi" } } });
        let body = json!({ "metadata": { "name": "data", "ownerReferences": owners }, "spec": spec });
        scene.create("PersistentVolumeClaim", body).await;
        // Nobody ends the foreground deletion: the garbage collector would wait for the claim.
        scene.delete("Pod", "a", Foreground).await;
        scene.delete("PersistentVolumeClaim", "data", Background).await;
        claim(&scene, "marker", "none").await;
        scene.delete("PersistentVolumeClaim", "marker", Background).await;
        let marker = async || scene.get("PersistentVolumeClaim", "marker").await;
        scene.waits("another claim", marker, Value::Null).await?;
        scene.sees("claims", || claims(&scene), 1.into(), 0.into()).await
    })
}

fn has_no_claim(scene: Arc<Scene>) -> Played {
    Box::pin(async move { scene.waits("claims", || claims(&scene), 0.into()).await })
}

/// A claim with a device of a driver that is named after the scene, reserved for a pod.
async fn allocated(scene: &Scene, name: &str, pod: &Value, metadata: Value) {
    let mut metadata = metadata;
    metadata["name"] = name.into();
    scene.create("ResourceClaim", json!({ "metadata": metadata, "spec": device_request() })).await;
    let result = json!({ "request": "gpu", "driver": scene.name, "pool": "gpus", "device": name });
    let user = json!({ "resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"] });
    let status = json!({ "allocation": { "devices": { "results": [result] } }, "reservedFor": [user] });
    scene.patch_status("ResourceClaim", name, status).await;
}

/// Breaks the devices of the scene.
async fn break_devices(scene: &Scene) {
    let taint = json!({ "key": "broken", "effect": "NoExecute" });
    let spec = json!({ "deviceSelector": { "driver": scene.name }, "taint": taint });
    scene.create("DeviceTaintRule", json!({ "metadata": { "name": scene.own("rule") }, "spec": spec })).await;
}

/// A pod on a node that uses a device.
async fn user_of_a_device(scene: &Scene) {
    let spec = json!({ "nodeName": "nowhere", "terminationGracePeriodSeconds": 0,
        "resourceClaims": [{ "name": "gpu", "resourceClaimName": "direct" }],
        "containers": [{ "name": "main", "image": "image:1" }] });
    let pod = scene.create("Pod", json!({ "metadata": { "name": "direct" }, "spec": spec })).await;
    allocated(scene, "direct", &pod, json!({})).await;
}

async fn direct(scene: &Scene) -> Value {
    scene.get("Pod", "direct").await
}

/// Differs: evidence-read-live.
fn broken_device(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        user_of_a_device(&scene).await;
        break_devices(&scene).await;
        scene.waits("the pod is evicted", || direct(&scene), Value::Null).await?;
        let reads = async || (scene.sent("get", "resourceclaims") > 0).into();
        scene.sees("GETs of the claim", reads, false.into(), true.into()).await
    })
}

async fn pods(scene: &Scene) -> Value {
    scene.count("Pod").await.into()
}

/// Differs: extended-resources-of-broken-devices.
fn extended(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        user_of_a_device(&scene).await;
        let amount = json!({ "example.com/gpu": "1" });
        let container = json!({ "name": "main", "image": "image:1", "resources": { "limits": amount, "requests": amount } });
        let spec =
            json!({ "nodeName": "nowhere", "terminationGracePeriodSeconds": 0, "containers": [container] });
        let pod = scene.create("Pod", json!({ "metadata": { "name": "extended" }, "spec": spec })).await;
        let mapping =
            json!({ "containerName": "main", "resourceName": "example.com/gpu", "requestName": "gpu" });
        let status = json!({ "resourceClaimName": "extended", "requestMappings": [mapping] });
        scene.patch_status("Pod", "extended", json!({ "extendedResourceClaimStatus": status })).await;
        let owners = controller("v1", "Pod", "extended", &pod["metadata"]["uid"]);
        let metadata = json!({ "annotations": { "resource.kubernetes.io/extended-resource-claim": "true" },
            "ownerReferences": owners });
        allocated(&scene, "extended", &pod, metadata).await;
        break_devices(&scene).await;
        scene.waits("another pod is evicted", || direct(&scene), Value::Null).await?;
        scene.sees("pods", || pods(&scene), 1.into(), 0.into()).await
    })
}

fn is_evicted(scene: Arc<Scene>) -> Played {
    Box::pin(async move { scene.waits("pods", || pods(&scene), 0.into()).await })
}

/// A Job that is held while it is deleted, and one that is not deleted.
fn deleted_job(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        for (name, finalizers) in [("deleted", json!(["example.com/held"])), ("marker", json!([]))] {
            let container = json!({ "name": "main", "image": "image:1" });
            let pod = json!({ "spec": { "schedulerName": "nobody", "restartPolicy": "Never", "containers": [container] } });
            let spec =
                json!({ "completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": pod });
            let metadata = json!({ "name": name, "finalizers": finalizers });
            scene.create("Job", json!({ "metadata": metadata, "spec": spec })).await;
        }
        scene.delete("Job", "deleted", Background).await;
        Ok(())
    })
}

/// Differs: workload-with-job.
fn workloads(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let jobs = async || {
            let workloads = scene.list("Workload").await.into_iter();
            let mut jobs: Vec<String> = workloads
                .filter_map(|workload| Some(workload["spec"]["controllerRef"]["name"].as_str()?.to_owned()))
                .collect();
            jobs.sort();
            json!(jobs)
        };
        scene.sees("Jobs with a Workload", jobs, json!(["deleted", "marker"]), json!(["marker"])).await
    })
}

//! Rows about volumes, claims, classes, devices, PodGroups and stored versions, with the gates that are off by default.

use std::sync::Arc;

use kube::api::PropagationPolicy::{Background, Foreground};
use serde_json::{Value, json};

use super::recorder::UNREADABLE;
use super::scene::{Outcome, Scene, controller};
use super::{Area, Case, Played, Taken, nothing};
use crate::harness::ControlPlane;

pub(super) const AREA: Area = Area {
    cases: &[
        Case {
            id: "named-volumes-at-once",
            prepare: nothing,
            play: named_volume,
            taken: Taken::Mended(is_bound),
        },
        Case { id: "live-before-data-loss", prepare: nothing, play: lost_claim, taken: Taken::Unchanged },
        Case { id: "classes-read-live", prepare: nothing, play: class, taken: Taken::Unchanged },
        Case { id: "podgroups-read-live", prepare: nothing, play: group, taken: Taken::Unchanged },
        Case { id: "live-leases", prepare: nothing, play: unreadable_lease, taken: Taken::Unchanged },
        Case {
            id: "finished-pods-get-none",
            prepare: finished_pod,
            play: claims_of_pods,
            taken: Taken::Unchanged,
        },
        Case { id: "consumers-read-live", prepare: nothing, play: ended_consumer, taken: Taken::Unchanged },
        Case { id: "inline-csi-volumes", prepare: nothing, play: inline_volume, taken: Taken::Unchanged },
        Case { id: "live-decisions", prepare: nothing, play: counted_reads, taken: Taken::Unchanged },
        Case {
            id: "claims-of-ended-pods",
            prepare: nothing,
            play: ended_pod,
            taken: Taken::Mended(has_no_claim),
        },
        Case { id: "workload-with-job", prepare: deleted_job, play: workloads, taken: Taken::Unchanged },
        Case { id: "whole-pools", prepare: nothing, play: pool, taken: Taken::Unchanged },
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
         selinux-warning-controller,device-taint-eviction-controller,job-controller,\
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

async fn volume(scene: &Scene, name: &str) {
    let spec = json!({ "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": "example.com", "volumeHandle": name } });
    scene.create("PersistentVolume", json!({ "metadata": { "name": name }, "spec": spec })).await;
}

async fn phase(scene: &Scene, claim: &str) -> Value {
    scene.get("PersistentVolumeClaim", claim).await["status"]["phase"].clone()
}

/// A claim that is bound to a volume which was there before.
async fn bound(scene: &Scene, name: &str) -> Outcome {
    volume(scene, &scene.own(name)).await;
    claim(scene, name, &scene.own(name)).await;
    scene.waits("a bound claim", || phase(scene, name), "Bound".into()).await
}

/// Differs: named-volumes-at-once.
fn named_volume(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        claim(&scene, "early", &scene.own("late")).await;
        bound(&scene, "marker-one").await?;
        volume(&scene, &scene.own("late")).await;
        bound(&scene, "marker-two").await?;
        scene
            .sees("the claim of a late volume", || phase(&scene, "early"), "Pending".into(), "Bound".into())
            .await
    })
}

fn is_bound(scene: Arc<Scene>) -> Played {
    Box::pin(async move { scene.waits("the claim", || phase(&scene, "early"), "Bound".into()).await })
}

/// Differs: live-before-data-loss.
fn lost_claim(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        bound(&scene, "data").await?;
        let name = scene.own("data");
        scene.delete("PersistentVolume", &name, Background).await;
        scene.patch("PersistentVolume", &name, json!({ "metadata": { "finalizers": null } })).await;
        scene.waits("the claim is lost", || phase(&scene, "data"), "Lost".into()).await?;
        let reads = async || (scene.sent("get", "persistentvolumes") > 0).into();
        scene.sees("GETs of the volume", reads, false.into(), true.into()).await
    })
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

/// A StorageVersion with an entry for each of these API servers.
async fn stored_version(scene: &Scene, name: &str, servers: &[&str]) {
    scene.create("StorageVersion", json!({ "metadata": { "name": name }, "spec": {} })).await;
    let entries = servers.iter().map(|server| {
        json!({ "apiServerID": server, "encodingVersion": "v1", "decodableVersions": ["v1"], "servedVersions": ["v1"] })
    });
    let entries: Vec<Value> = entries.collect();
    scene.patch_status("StorageVersion", name, json!({ "storageVersions": entries })).await;
}

async fn has_entry(scene: &Scene, name: &str, server: &str) -> Value {
    let version = scene.get("StorageVersion", name).await;
    let entries = version["status"]["storageVersions"].as_array();
    entries.is_some_and(|all| all.iter().any(|entry| entry["apiServerID"] == server)).into()
}

/// Differs: live-leases.
fn unreadable_lease(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        // The proxy answers each GET of a Lease with this end of its name with 503.
        let (lives, unreadable) = (scene.own("lives"), scene.own(UNREADABLE));
        for name in [&lives, &unreadable] {
            let labels = json!({ "apiserver.kubernetes.io/identity": "kube-apiserver" });
            let lease = json!({ "metadata": { "name": name, "labels": labels } });
            scene.create_in("Lease", "kube-system", lease).await;
        }
        let [first, marker] = [scene.own("fake.things"), scene.own("marker.things")];
        stored_version(&scene, &first, &[&lives, &unreadable, "gone"]).await;
        stored_version(&scene, &marker, &[&lives, "gone"]).await;
        scene
            .waits("the entry of a server that is gone", || has_entry(&scene, &marker, "gone"), false.into())
            .await?;
        let kept = || has_entry(&scene, &first, &unreadable);
        scene.sees("the entry whose Lease cannot be read", kept, false.into(), true.into()).await
    })
}

fn device_request() -> Value {
    json!({ "devices": { "requests": [{ "name": "gpu", "exactly": { "deviceClassName": "gpu" } }] } })
}

async fn pod_with_claim(scene: &Scene, name: &str, claim: Value) -> Value {
    let spec = json!({ "schedulerName": "nobody", "terminationGracePeriodSeconds": 0, "resourceClaims": [claim],
        "containers": [{ "name": "main", "image": "image:1" }] });
    scene.create("Pod", json!({ "metadata": { "name": name }, "spec": spec })).await
}

/// A pod that has ended, and one that has not, before a manager sees either.
fn finished_pod(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let template = json!({ "metadata": { "name": "gpu" }, "spec": { "spec": device_request() } });
        scene.create("ResourceClaimTemplate", template).await;
        let claim = json!({ "name": "a", "resourceClaimTemplateName": "gpu" });
        for name in ["ended", "waiting"] {
            pod_with_claim(&scene, name, claim.clone()).await;
        }
        scene.patch_status("Pod", "ended", json!({ "phase": "Succeeded" })).await;
        Ok(())
    })
}

/// Differs: finished-pods-get-none.
fn claims_of_pods(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let owners = async || {
            let claims = scene.list("ResourceClaim").await.into_iter();
            let mut owners: Vec<String> =
                claims.map(|claim| claim["metadata"]["ownerReferences"][0]["name"].to_string()).collect();
            owners.sort();
            json!(owners)
        };
        let (theirs, ours) = (json!(["\"ended\"", "\"waiting\""]), json!(["\"waiting\""]));
        scene.sees("pods with claims", owners, theirs, ours).await
    })
}

/// Differs: consumers-read-live.
fn ended_consumer(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let finalizers = json!(["resource.kubernetes.io/delete-protection"]);
        let metadata = json!({ "name": "shared", "finalizers": finalizers });
        scene.create("ResourceClaim", json!({ "metadata": metadata, "spec": device_request() })).await;
        let claim = json!({ "name": "a", "resourceClaimName": "shared" });
        let pod = pod_with_claim(&scene, &scene.own("user"), claim).await;
        let result =
            json!({ "request": "gpu", "driver": "gpu.example.com", "pool": "by-hand", "device": "gpu-0" });
        let user = json!({ "resource": "pods", "name": scene.own("user"), "uid": pod["metadata"]["uid"] });
        let status = json!({ "allocation": { "devices": { "results": [result] } }, "reservedFor": [user] });
        scene.patch_status("ResourceClaim", "shared", status).await;
        scene.delete("Pod", &scene.own("user"), Background).await;
        let reserved = async || {
            let claim = scene.get("ResourceClaim", "shared").await;
            claim["status"]["reservedFor"].as_array().map_or(0, Vec::len).into()
        };
        scene.waits("the reservation", reserved, 0.into()).await?;
        let reads = async || (scene.sent("get", "pods") > 0).into();
        scene.sees("GETs of the pod", reads, false.into(), true.into()).await
    })
}

/// Differs: inline-csi-volumes.
fn inline_volume(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        let container = json!({ "name": "main", "image": "image:1", "volumeMounts": [{ "name": "disk", "mountPath": "/x" }],
            "securityContext": { "seLinuxOptions": { "level": "s0:c1" } } });
        let volume = json!({ "name": "disk", "csi": { "driver": "inline.example.com" } });
        let spec = json!({ "nodeName": "nowhere", "terminationGracePeriodSeconds": 0, "containers": [container],
            "volumes": [volume] });
        scene.create("Pod", json!({ "metadata": { "name": "a" }, "spec": spec })).await;
        let queue = "name=\"selinux_warning\"";
        let added = async || (scene.metric("workqueue_adds_total", queue).await > 0.0).into();
        scene.waits("the pod is looked at", added, true.into()).await?;
        bound(&scene, "marker").await?;
        let retries = async || (scene.metric("workqueue_retries_total", queue).await > 0.0).into();
        scene.sees("retries", retries, true.into(), false.into()).await
    })
}

/// Differs: live-decisions.
fn counted_reads(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        bound(&scene, "data").await?;
        scene.delete("PersistentVolumeClaim", "data", Background).await;
        let there = async || scene.get("PersistentVolumeClaim", "data").await;
        scene.waits("the claim", there, Value::Null).await?;
        let listed = async || (lists(&scene, "pods", &scene.name) > 0).into();
        scene.waits("a LIST of the pods that could use the claim", listed, true.into()).await?;
        let counted = async || {
            let labels = "controller=\"persistentvolumeclaim-protection-controller\"";
            (scene.metric("coxswain_live_reads_total", labels).await > 0.0).into()
        };
        scene.sees("the reads are counted", counted, false.into(), true.into()).await?;
        Ok(())
    })
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

async fn is_answered(scene: &Scene, name: &str) -> Value {
    let request = scene.get("ResourcePoolStatusRequest", &scene.own(name)).await;
    request["status"].is_object().into()
}

/// Differs: whole-pools.
fn pool(scene: Arc<Scene>) -> Played {
    Box::pin(async move {
        for (name, slices) in [("whole", 1), ("partial", 2)] {
            let name = scene.own(name);
            let pool = json!({ "name": "gpus", "generation": 1, "resourceSliceCount": slices });
            let spec =
                json!({ "driver": name, "pool": pool, "allNodes": true, "devices": [{ "name": "gpu-0" }] });
            scene.create("ResourceSlice", json!({ "metadata": { "name": name }, "spec": spec })).await;
            let request = json!({ "metadata": { "name": name }, "spec": { "driver": name } });
            scene.create("ResourcePoolStatusRequest", request).await;
        }
        scene.waits("the answer about a whole pool", || is_answered(&scene, "whole"), true.into()).await?;
        scene
            .sees("the answer about a part", || is_answered(&scene, "partial"), true.into(), false.into())
            .await
    })
}

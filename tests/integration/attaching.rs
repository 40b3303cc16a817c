//! Volumes that follow their pods: a node dies under a StatefulSet, and its volume goes to another one. And volumes half attached change
//! hands, there and back.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{Cluster, ControlPlane, Manager, Namespace, Options, object, until};

const LIMIT: Duration = Duration::from_mins(3);
const DRIVER: &str = "csi.example.com";
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Leadership is to move without a long wait.
const ELECTION: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];

/// A cluster in which the test plays nodes and attacher.
struct Stage {
    cluster: Cluster,
    namespace: Namespace,
}

impl Stage {
    fn all<K: kube::Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.cluster.client.clone())
    }

    /// A node that is managed and ready.
    async fn node(&self, name: &str) {
        let node = object(json!({ "metadata": { "name": name, "annotations": { MANAGED: "true" } } }));
        self.all::<Node>().create(&PostParams::default(), &node).await.expect("a node");
        self.says(name, json!({ "conditions": [{ "type": "Ready", "status": "True" }], "allocatable": { "pods": "110", "cpu": "8" } }))
            .await;
    }

    /// A node says something of itself.
    async fn says(&self, node: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        drop(
            self.all::<Node>().patch_status(node, &PatchParams::default(), &patch).await.expect("its status"),
        );
    }

    /// A volume of this name for the claim of that name, bound both ways.
    async fn bind(&self, claim: &str, volume: &str) {
        let claims = self.namespace.api::<PersistentVolumeClaim>();
        let get = || async { claims.get_opt(claim).await.expect("claims") };
        let found =
            until(&format!("claim {claim}"), LIMIT, get, Option::is_some).await.expect("it was there");
        let made = object(json!({ "metadata": { "name": volume }, "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": DRIVER, "volumeHandle": volume },
            "claimRef": { "namespace": self.namespace.name, "name": claim, "uid": found.metadata.uid },
        } }));
        self.all::<PersistentVolume>().create(&PostParams::default(), &made).await.expect("a volume");
        let named = Patch::Merge(json!({ "spec": { "volumeName": volume } }));
        drop(claims.patch(claim, &PatchParams::default(), &named).await.expect("it names its volume"));
        let bound = Patch::Merge(json!({ "status": { "phase": "Bound" } }));
        drop(claims.patch_status(claim, &PatchParams::default(), &bound).await.expect("it is bound"));
        let volumes = self.all::<PersistentVolume>();
        drop(volumes.patch_status(volume, &PatchParams::default(), &bound).await.expect("it is bound, too"));
    }

    /// The VolumeAttachments of a volume: the node of each, and whether it is being deleted.
    async fn attachments(&self, volume: &str) -> Vec<(String, VolumeAttachment)> {
        let all = self.all::<VolumeAttachment>().list(&ListParams::default()).await.expect("attachments");
        let of = all.items.into_iter();
        let of = of.filter(|each| each.spec.source.persistent_volume_name.as_deref() == Some(volume));
        of.map(|each| (each.spec.node_name.clone(), each)).collect()
    }

    /// Waits until a volume has a VolumeAttachment on a node, and none elsewhere; its name.
    async fn is_asked_for(&self, volume: &str, node: &str) -> String {
        let look = || self.attachments(volume);
        let found = until(&format!("{volume} on {node}"), LIMIT, look, |found| {
            matches!(&found[..], [(on, each)] if on == node && each.metadata.deletion_timestamp.is_none())
        })
        .await;
        found[0].1.metadata.name.clone().expect("a name")
    }

    /// The attacher does its work.
    async fn attach(&self, name: &str) {
        let attachments = self.all::<VolumeAttachment>();
        let (params, finalizers) =
            (PatchParams::default(), json!({ "metadata": { "finalizers": ["example.com/attacher"] } }));
        drop(attachments.patch(name, &params, &Patch::Merge(finalizers)).await.expect("it has a finalizer"));
        let attached = Patch::Merge(json!({ "status": { "attached": true } }));
        drop(attachments.patch_status(name, &params, &attached).await.expect("it is attached"));
    }

    /// The attacher lets go.
    async fn detach(&self, name: &str) {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let freed = self.all::<VolumeAttachment>().patch(name, &PatchParams::default(), &patch).await;
        drop(freed.expect("its finalizer is gone"));
    }

    /// What a node may mount.
    async fn listed(&self, node: &str) -> Vec<String> {
        let status = self.all::<Node>().get(node).await.expect("the node").status;
        let listed = status.and_then(|status| status.volumes_attached).unwrap_or_default();
        listed.into_iter().map(|each| each.name).collect()
    }

    async fn lists(&self, node: &str, volumes: &[&str]) {
        let names: Vec<String> = volumes.iter().map(|volume| unique(volume)).collect();
        until(&format!("what {node} lists"), LIMIT, || self.listed(node), |listed| *listed == names).await;
    }

    /// A pod is at work on a node.
    async fn runs(&self, pod: &str) {
        let status = json!({ "status": { "phase": "Running",
            "containerStatuses": [{ "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": { "running": {} } }],
            "conditions": [{ "type": "Ready", "status": "True" }] } });
        let pods = self.namespace.api::<Pod>();
        drop(pods.patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await.expect("it runs"));
    }

    async fn pod(&self, name: &str, node: &str, claim: &str) {
        let _: Pod = self
            .namespace
            .create(json!({ "metadata": { "name": name }, "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }],
                "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }] } }))
            .await;
    }

    async fn delete_pod(&self, name: &str) {
        let params = DeleteParams::default().grace_period(0);
        drop(self.namespace.api::<Pod>().delete(name, &params).await.expect("it is deleted"));
    }

    async fn claim(&self, name: &str) {
        let _: PersistentVolumeClaim = self
            .namespace
            .create(json!({ "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none", "resources": { "requests": { "storage": "1Gi" } } } }))
            .await;
    }
}

fn unique(volume: &str) -> String {
    format!("kubernetes.io/csi/{DRIVER}^{volume}")
}

async fn leads(manager: &Manager<'_>) {
    let log = || async { manager.log() };
    until(&format!("{} leads", manager.name), LIMIT, log, |text| {
        text.contains("Caches are synced") || text.contains("\"started\" controller=")
    })
    .await;
}

/// What a manager wrote to nodes and VolumeAttachments, from this many requests on.
fn written(plane: &ControlPlane, since: usize, user_agent: &str) -> Vec<String> {
    let audit = plane.audit();
    let own = audit.iter().skip(since).filter(|event| event.user_agent.starts_with(user_agent));
    let own = own.filter(|event| {
        let resource = event.object_ref.resource.as_str();
        event.is_write() && (resource == "volumeattachments" || resource == "nodes")
    });
    own.map(|event| format!("{} {}", event.verb, event.uri)).collect()
}

fn forbidden(plane: &ControlPlane) -> Vec<String> {
    let audit = plane.audit();
    let refused = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    refused.map(|event| format!("{} {}", event.verb, event.uri)).collect()
}

#[tokio::test]
async fn a_node_dies_under_a_stateful_set_and_its_volume_goes_to_another_one() {
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: vec!["--audit", "--scheduler=false", "--kwok=false"],
    });
    let controllers = "--controllers=statefulset-controller,persistentvolume-attach-detach-controller,\
        pod-garbage-collector-controller,serviceaccount-controller";
    let manager = plane.coxswain("coxswain", &["--use-service-account-credentials", controllers]);
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("attaching").await;
    namespace.default_account().await;
    let stage = Stage { cluster, namespace };
    for node in ["first", "second"] {
        stage.node(node).await;
    }
    let _: k8s_openapi::api::apps::v1::StatefulSet = stage
        .namespace
        .create(json!({ "metadata": { "name": "db" }, "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": "db" } },
            "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none", "resources": { "requests": { "storage": "1Gi" } } } }] } }))
        .await;
    stage.bind("data-db-0", "disk").await;
    schedule(&stage, "first").await;
    let on_first = stage.is_asked_for("disk", "first").await;
    stage.attach(&on_first).await;
    stage.lists("first", &["disk"]).await;
    stage.runs("db-0").await;
    stage.says("first", json!({ "volumesInUse": [unique("disk")] })).await;

    // The node dies. Its pod cannot end, and nothing is taken away.
    stage.says("first", json!({ "conditions": [{ "type": "Ready", "status": "Unknown" }] })).await;
    let pods = stage.namespace.api::<Pod>();
    drop(pods.delete("db-0", &DeleteParams::default()).await.expect("it is to go"));
    let explained = || async {
        plane.kubectl(&[
            "get",
            "pods",
            "-n",
            &stage.namespace.name,
            "-o",
            "jsonpath={.items[*].metadata.deletionTimestamp}",
        ])
    };
    until("the pod is going", LIMIT, explained, |text| !text.is_empty()).await;
    assert_eq!(stage.is_asked_for("disk", "first").await, on_first);
    assert_eq!(stage.listed("first").await, [unique("disk")]);

    // Somebody says that it is dead: the pod goes, the volume is detached, and attached to the other node.
    let taint = json!({ "spec": { "taints": [{ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" }] } });
    let patched = stage.all::<Node>().patch("first", &PatchParams::default(), &Patch::Strategic(taint)).await;
    drop(patched.expect("the taint"));
    let leaving = || stage.attachments("disk");
    until("it is being detached", LIMIT, leaving, |found| {
        found.iter().any(|(node, each)| node == "first" && each.metadata.deletion_timestamp.is_some())
    })
    .await;
    assert_eq!(stage.listed("first").await, Vec::<String>::new(), "it left the list first");
    schedule(&stage, "second").await;
    stage.detach(&on_first).await;
    let on_second = stage.is_asked_for("disk", "second").await;
    stage.attach(&on_second).await;
    stage.lists("second", &["disk"]).await;
    stage.runs("db-0").await;

    let audit = plane.audit();
    let attached: Vec<&str> = audit
        .iter()
        .filter(|event| event.object_ref.resource == "volumeattachments" && event.coxswain().is_some())
        .filter(|event| event.is_write() && event.succeeded())
        .map(|event| event.verb.as_str())
        .collect();
    assert_eq!(attached, ["create", "delete", "create"], "each once, and in this order");
    assert_eq!(forbidden(&plane), Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

/// The pod of the set is there, not going, and is bound to a node.
async fn schedule(stage: &Stage, node: &str) {
    let pods = stage.namespace.api::<Pod>();
    let get = || async { pods.get_opt("db-0").await.expect("pods") };
    until("a pod to bind", LIMIT, get, |pod| {
        pod.as_ref().is_some_and(|pod| {
            let is_free = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
            is_free && pod.metadata.deletion_timestamp.is_none()
        })
    })
    .await;
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "db-0" },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node } });
    let params = PostParams::default();
    let bound: Result<Value, _> = pods.create_subresource("binding", "db-0", &params, &binding).await;
    drop(bound.expect("it is bound"));
}

#[tokio::test]
async fn volumes_half_attached_change_hands_twice() {
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: vec!["--audit", "--scheduler=false", "--kwok=false"],
    });
    let controllers = "--controllers=persistentvolume-attach-detach-controller,serviceaccount-controller";
    let args = [&[controllers, "--use-service-account-credentials"][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let cluster = plane.cluster().await;
    let namespace = cluster.namespace("attaching").await;
    namespace.default_account().await;
    let stage = Stage { cluster, namespace };
    stage.node("n").await;
    stage.node("m").await;
    for name in ["used", "coming", "unused", "going"] {
        stage.claim(name).await;
        stage.bind(name, name).await;
    }
    // Attached and used; attached, used, and its pod gone; attached, and asked for.
    for name in ["used", "unused", "going"] {
        stage.pod(name, "n", name).await;
        let attachment = stage.is_asked_for(name, "n").await;
        stage.attach(&attachment).await;
    }
    let names = ["used", "unused", "going"];
    until("they are listed", LIMIT, || stage.listed("n"), |listed| listed.len() == names.len()).await;
    stage.says("n", json!({ "volumesInUse": [unique("used"), unique("unused")] })).await;
    stage.pod("coming", "n", "coming").await;
    let coming = stage.is_asked_for("coming", "n").await;
    stage.delete_pod("unused").await;
    stage.delete_pod("going").await;
    let going = || stage.attachments("going");
    until("it is going", LIMIT, going, |found| {
        found.iter().any(|(_, each)| each.metadata.deletion_timestamp.is_some())
    })
    .await;
    until("two are listed", LIMIT, || stage.listed("n"), |listed| listed.len() == 2).await;

    let since = plane.audit().len();
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    let explained = || async {
        let client = std::process::Command::new(env!("CARGO_BIN_EXE_coxswain"))
            .args(["explain", "node", "n", "--controller", "persistentvolume-attach-detach-controller"])
            .env("KUBECONFIG", &plane.report.kubeconfigs["admin"])
            .output();
        String::from_utf8(client.expect("the program").stdout).expect("text")
    };
    until("it is said what is waited for", LIMIT, explained, |told| {
        let waits =
            "^unused is wanted by no pod. The node says that it is mounted, and is ready: it is waited for.";
        told.contains(waits) && told.contains("Volume coming is being attached")
    })
    .await;
    let ours_wrote = || written(&plane, since, "coxswain/");
    assert_eq!(ours_wrote(), Vec::<String>::new(), "nothing is done that was done");

    // Half of it is gone on with: what was asked for is attached, and what goes is gone.
    stage.attach(&coming).await;
    let is_listed = |listed: &Vec<String>| listed.contains(&unique("coming")) && listed.len() == 3;
    until("it is listed", LIMIT, || stage.listed("n"), is_listed).await;
    let (_, attachment) = stage.attachments("going").await.remove(0);
    stage.detach(&attachment.metadata.name.expect("a name")).await;
    assert_eq!(ours_wrote(), ["patch /api/v1/nodes/n/status"]);
    assert_eq!(ours.errors(), Vec::<String>::new());

    // And back: the Go manager ends what is left.
    let since = plane.audit().len();
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    stage.says("n", json!({ "volumesInUse": [unique("used")] })).await;
    let unused = || stage.attachments("unused");
    until("it goes", LIMIT, unused, |found| {
        found.iter().all(|(_, each)| each.metadata.deletion_timestamp.is_some())
    })
    .await;
    until("the list", LIMIT, || stage.listed("n"), |listed| listed.len() == 2).await;
    let theirs = written(&plane, since, "kube-controller-manager/");
    let theirs: Vec<&String> =
        theirs.iter().filter(|line| !line.starts_with("patch /api/v1/nodes/")).collect();
    assert_eq!(theirs.len(), 1, "one is deleted, and none is made: {theirs:?}");
    go.stop();
    assert_eq!(forbidden(&plane), Vec::<String>::new(), "forbidden by the bootstrap roles");
}

//! A node dies under a StatefulSet, and somebody says that it is dead: its pod goes, its volume is attached to another node, and is the
//! same volume. At no moment have two nodes it.

use std::collections::{BTreeMap, BTreeSet};

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt as _;
use kube::api::{WatchEvent, WatchParams};

use super::*;
use crate::harness::Heartbeats;

/// Nodes are found to be dead soon, and pods leave them at once.
const ARGS: [&str; 4] = [
    "--use-service-account-credentials",
    "--node-monitor-period=1s",
    "--node-monitor-grace-period=8s",
    "--controllers=statefulset-controller,persistentvolume-attach-detach-controller,persistentvolume-binder-controller,\
        persistentvolumeclaim-protection-controller,persistentvolume-protection-controller,node-lifecycle-controller,\
        taint-eviction-controller,pod-garbage-collector-controller,serviceaccount-controller",
];
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";

/// Who had the volume at one moment.
#[derive(Clone, Debug, Default)]
struct Holders {
    /// Nodes for which there was a VolumeAttachment, and whether it said that the volume was attached.
    asked: BTreeMap<String, bool>,
    /// Nodes that were told that they may mount it.
    listed: BTreeSet<String>,
}

/// What one change makes of that.
type Step = Box<dyn Fn(&mut Holders)>;

/// What a watch tells: the object of each change, and whether it is gone.
async fn changes<K>(events: impl Stream<Item = kube::Result<WatchEvent<K>>>) -> Vec<(K, bool)> {
    let mut found = Vec::new();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event.expect("a watch that was not cut") {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => found.push((object, false)),
            WatchEvent::Deleted(object) => found.push((object, true)),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => panic!("the watch ends: {error:?}"),
        }
    }
    found
}

fn version<K: kube::Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).expect("a version")
}

/// Who had the volume at every moment since this version, by what watches tell of it.
async fn holders(stage: &Stage, since: &str, volume: &str) -> Vec<Holders> {
    let soon = WatchParams::default().timeout(2);
    let attachments = stage.all::<VolumeAttachment>();
    let attachments = changes(attachments.watch(&soon, since).await.expect("a watch")).await;
    let nodes = stage.all::<Node>();
    let nodes = changes(nodes.watch(&soon, since).await.expect("a watch")).await;
    let mut steps: BTreeMap<u64, Step> = BTreeMap::new();
    for (each, is_gone) in attachments {
        if each.spec.source.persistent_volume_name.as_deref() != Some(volume) {
            continue;
        }
        let (at, node) = (version(&each), each.spec.node_name.clone());
        let is_attached = each.status.is_some_and(|status| status.attached);
        steps.insert(
            at,
            Box::new(move |holders| {
                holders.asked.remove(&node);
                if !is_gone {
                    holders.asked.insert(node.clone(), is_attached);
                }
            }),
        );
    }
    for (each, _) in nodes {
        let (at, node) = (version(&each), each.name_any());
        let listed = each.status.and_then(|status| status.volumes_attached).unwrap_or_default();
        let is_listed = listed.iter().any(|listed| listed.name == unique(volume));
        steps.insert(
            at,
            Box::new(move |holders| {
                holders.listed.remove(&node);
                if is_listed {
                    holders.listed.insert(node.clone());
                }
            }),
        );
    }
    let moments = steps.values().scan(Holders::default(), |holders, step| {
        step(holders);
        Some(holders.clone())
    });
    moments.collect()
}

/// What must be the same in the end: the claim's and the volume's UIDs, what the claim has, and all of the volume's spec.
async fn kept(stage: &Stage) -> Value {
    let claim = stage.namespace.api::<PersistentVolumeClaim>().get("data-db-0").await.expect("the claim");
    let volume = stage.all::<PersistentVolume>().get("disk").await.expect("the volume");
    let phase = |status: &Value| status["phase"].clone();
    let (of_claim, of_volume) = (json!(claim.status), json!(volume.status));
    json!({
        "claim": claim.metadata.uid, "has": claim.spec.and_then(|spec| spec.volume_name), "is": phase(&of_claim),
        "volume": volume.metadata.uid, "spec": volume.spec, "and": phase(&of_volume),
        "going": [claim.metadata.deletion_timestamp, volume.metadata.deletion_timestamp],
    })
}

/// A volume that would be deleted with its claim.
async fn disk(stage: &Stage) {
    let disk = object(json!({ "metadata": { "name": "disk" }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
        "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": DRIVER, "volumeHandle": "disk" },
    } }));
    stage.all::<PersistentVolume>().create(&PostParams::default(), &disk).await.expect("a volume");
}

async fn stateful_set(stage: &Stage) {
    let tolerated = ["not-ready", "unreachable"]
        .map(|taint| json!({ "key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0 }));
    let _: StatefulSet = stage
        .namespace
        .create(json!({ "metadata": { "name": "db" }, "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": "db" } },
            "template": { "metadata": { "labels": { "app": "db" } },
                "spec": { "tolerations": tolerated, "containers": [{ "name": "c", "image": "i" }] } },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none", "resources": { "requests": { "storage": "1Gi" } } } }] } }))
        .await;
}

/// The pod of the set, if it is there.
async fn pod(stage: &Stage) -> Option<Pod> {
    stage.namespace.api::<Pod>().get_opt("db-0").await.expect("pods")
}

/// The pod of the set is there, not going, and is bound to a node.
async fn schedule(stage: &Stage, node: &str) {
    until(
        "a pod to bind",
        LIMIT,
        || pod(stage),
        |pod| {
            pod.as_ref().is_some_and(|pod| {
                let is_free = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
                is_free && pod.metadata.deletion_timestamp.is_none()
            })
        },
    )
    .await;
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "db-0" },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node } });
    let (pods, params) = (stage.namespace.api::<Pod>(), PostParams::default());
    let bound: Result<Value, _> = pods.create_subresource("binding", "db-0", &params, &binding).await;
    drop(bound.expect("it is bound"));
}

#[tokio::test]
async fn a_node_dies_under_a_stateful_set_and_its_volume_goes_to_another_one() {
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: vec!["--audit", "--scheduler=false", "--kwok=false"],
    });
    let manager = plane.coxswain("coxswain", &ARGS);
    let cluster = plane.cluster().await;
    let beats = Heartbeats::start(cluster.client.clone());
    let namespace = cluster.namespace("attaching").await;
    namespace.default_account().await;
    let stage = Stage { cluster, namespace };
    let lives = |nodes: &[&str]| nodes.iter().map(|node| (*node).to_owned()).collect::<BTreeSet<_>>();
    beats.renew("test", lives(&["first", "second"])).await;
    let none = stage.all::<VolumeAttachment>().list(&ListParams::default()).await.expect("attachments");
    let since = none.metadata.resource_version.expect("a version");
    for node in ["first", "second"] {
        stage.node(node).await;
    }
    disk(&stage).await;
    stateful_set(&stage).await;
    let is_bound = |kept: &Value| kept["is"] == "Bound" && kept["and"] == "Bound";
    until("the claim", LIMIT, || pod(&stage), Option::is_some).await;
    let before = until("the claim to be bound", LIMIT, || kept(&stage), is_bound).await;
    schedule(&stage, "first").await;
    let on_first = stage.is_asked_for("disk", "first").await;
    stage.attach(&on_first).await;
    stage.lists("first", &["disk"]).await;
    stage.runs("db-0").await;
    stage.says("first", json!({ "volumesInUse": [unique("disk")] })).await;
    let uid = pod(&stage).await.and_then(|pod| pod.metadata.uid).expect("the pod");

    // The node dies. Its pod is to go and cannot end, and nothing is taken away.
    beats.renew("test", lives(&["second"])).await;
    until(
        "the pod is going",
        LIMIT,
        || pod(&stage),
        |pod| pod.as_ref().is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()),
    )
    .await;
    assert_eq!(stage.is_asked_for("disk", "first").await, on_first);
    assert_eq!(stage.listed("first").await, [unique("disk")]);

    // Somebody says that it is dead: the pod goes, the volume is detached, and attached to the other node.
    plane.kubectl(&["taint", "nodes", "first", OUT_OF_SERVICE]);
    until(
        "another pod",
        LIMIT,
        || pod(&stage),
        |pod| pod.as_ref().is_some_and(|pod| pod.metadata.uid.as_deref() != Some(uid.as_str())),
    )
    .await;
    schedule(&stage, "second").await;
    let leaving = || stage.attachments("disk");
    until("it is being detached", LIMIT, leaving, |found| {
        found.iter().any(|(node, each)| node == "first" && each.metadata.deletion_timestamp.is_some())
    })
    .await;
    assert_eq!(stage.listed("first").await, Vec::<String>::new(), "it left the list first");
    stage.detach(&on_first).await;
    let on_second = stage.is_asked_for("disk", "second").await;
    stage.attach(&on_second).await;
    stage.lists("second", &["disk"]).await;
    stage.runs("db-0").await;

    // Nothing is lost, and nothing was had twice.
    assert_eq!(kept(&stage).await, before, "it is the same volume of the same claim");
    let moments = holders(&stage, &since, "disk").await;
    for Holders { asked, listed } in &moments {
        assert!(asked.len() <= 1 && listed.len() <= 1, "two nodes had it: {moments:?}");
        assert!(
            listed.iter().all(|node| asked.get(node) == Some(&true)),
            "listed, not attached: {moments:?}"
        );
    }
    let mut had: Vec<&String> = moments.iter().flat_map(|moment| &moment.listed).collect();
    had.dedup();
    assert_eq!(had, ["first", "second"], "{moments:?}");

    let audit = plane.audit();
    let written = |resource: &str| -> Vec<&str> {
        let of = audit.iter().filter(|event| event.object_ref.resource == resource && event.succeeded());
        let of = of.filter(|event| event.is_write() && event.coxswain().is_some());
        of.map(|event| event.verb.as_str()).collect()
    };
    assert_eq!(written("volumeattachments"), ["create", "delete", "create"], "each once, and in this order");
    let is_deleted = |resource: &str| written(resource).contains(&"delete");
    assert!(!is_deleted("persistentvolumes") && !is_deleted("persistentvolumeclaims"));
    assert_eq!(forbidden(&plane), Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

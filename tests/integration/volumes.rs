//! Many pods with volumes of several classes, from their claims to the last of their volumes, under Coxswain with a provisioner and
//! an attacher that are played: everything is bound, attached, detached and released, and nothing is left over.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::players::{attach, provision, volume};
use crate::harness::{ControlPlane, Namespace, Options, by_depth, create, until};

mod growth;
mod players;

const LIMIT: Duration = Duration::from_mins(8);
const DRIVER: &str = "csi.example.com";
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Bound at once, bound when a pod is bound, and made by hand.
const CLASSES: [&str; 3] = ["now", "later", "by-hand"];
const NODES: usize = 5;
/// How often those who are played look, and the test.
const POLL: Duration = Duration::from_millis(200);

async fn add_pod(namespace: &Namespace, at: usize) {
    let (name, node) = (format!("pod-{at}"), format!("node-{}", at % NODES));
    let class = CLASSES[at % CLASSES.len()];
    // As the scheduler says it.
    let selected = (class == "later").then(|| json!({ "volume.kubernetes.io/selected-node": node }));
    let _: PersistentVolumeClaim = namespace
        .create(json!({ "metadata": { "name": name, "annotations": selected }, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": { "requests": { "storage": "1Gi" } },
        } }))
        .await;
    let _: Pod = namespace
        .create(json!({ "metadata": { "name": name }, "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "c", "image": "image:1" }],
            "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": name } }],
        } }))
        .await;
}

/// How many objects there are.
async fn count<K>(api: &Api<K>) -> usize
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    sleep(POLL).await;
    api.list_metadata(&ListParams::default()).await.expect("a list").items.len()
}

#[tokio::test]
async fn volumes_of_many_pods_come_and_go_and_nothing_is_left_over() {
    let pods = by_depth(60, 1000);
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: vec!["--audit", "--scheduler=false", "--kwok=false"],
    });
    // Nobody renews the Leases of these nodes.
    let controllers = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller";
    let args =
        ["--use-service-account-credentials", "--kube-api-qps=200", "--kube-api-burst=400", controllers];
    let manager = plane.coxswain("coxswain", &args);
    let cluster = plane.cluster().await;
    let client = &cluster.client;
    let namespace = cluster.namespace("volumes").await;
    namespace.default_account().await;
    for (class, mode) in [("now", "Immediate"), ("later", "WaitForFirstConsumer")] {
        create(
            Api::<StorageClass>::all(client.clone()),
            json!({ "metadata": { "name": class }, "provisioner": DRIVER, "volumeBindingMode": mode }),
        )
        .await;
    }
    let nodes: Api<Node> = Api::all(client.clone());
    for at in 0..NODES {
        let name = format!("node-{at}");
        create(
            Api::<Node>::all(client.clone()),
            json!({ "metadata": { "name": name, "annotations": { MANAGED: "true" } } }),
        )
        .await;
        let ready =
            Patch::Merge(json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }));
        nodes.patch_status(&name, &PatchParams::default(), &ready).await.expect("it is ready");
    }
    let mut played = JoinSet::new();
    played.spawn(provision(client.clone()));
    played.spawn(attach(client.clone()));

    for at in 0..pods {
        if CLASSES[at % CLASSES.len()] == "by-hand" {
            create(
                Api::<PersistentVolume>::all(client.clone()),
                volume(&format!("disk-{at}"), "by-hand", "Retain", None),
            )
            .await;
        }
        add_pod(&namespace, at).await;
    }
    let listed = || async {
        sleep(POLL).await;
        let all = nodes.list(&ListParams::default()).await.expect("nodes").items.into_iter();
        let listed = all.filter_map(|node| node.status?.volumes_attached);
        listed.map(|volumes| volumes.len()).sum::<usize>()
    };
    until("every pod's volume to be attached", LIMIT, listed, |count| *count == pods).await;

    // First the pods go, then their claims, and what was made by hand at last.
    let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
    namespace.api::<Pod>().delete_collection(&now, &all).await.expect("the pods go");
    let attachments: Api<VolumeAttachment> = Api::all(client.clone());
    until("no VolumeAttachment to be left", LIMIT, || count(&attachments), |count| *count == 0).await;
    until("no node to list a volume", LIMIT, listed, |count| *count == 0).await;
    let claims = namespace.api::<PersistentVolumeClaim>();
    claims.delete_collection(&DeleteParams::default(), &all).await.expect("the claims go");
    until("no claim to be left", LIMIT, || count(&claims), |count| *count == 0).await;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let by_hand = (0..pods).filter(|at| CLASSES[at % CLASSES.len()] == "by-hand").count();
    until(
        "the volumes to go that were made for claims",
        LIMIT,
        || count(&volumes),
        |count| *count == by_hand,
    )
    .await;
    let phases = || async {
        let all = volumes.list(&ListParams::default()).await.expect("volumes").items.into_iter();
        all.filter_map(|volume| volume.status?.phase).collect::<Vec<_>>()
    };
    until("the others to be kept", LIMIT, phases, |phases| phases.iter().all(|phase| phase == "Released"))
        .await;
    volumes.delete_collection(&DeleteParams::default(), &all).await.expect("they go by hand, too");
    until("no volume to be left", LIMIT, || count(&volumes), |count| *count == 0).await;

    let audit = plane.audit();
    let refused = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let refused: Vec<_> = refused.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(refused, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

//! A claim grows: others do the work, a resizer and a node that are played. Coxswain tells of it, and keeps its hands off.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use kube::api::{WatchEvent, WatchParams};

use super::players::{grow_file_systems, resize};
use super::*;

/// How many Gi there are to be had.
const MOST: u32 = 10;

/// How far a claim has come: what it has, what is done about it, and its condition.
type Stage = (String, String, String);

fn stage(claim: &PersistentVolumeClaim) -> Stage {
    let status = claim.status.clone().unwrap_or_default();
    let has = status.capacity.and_then(|all| all.get("storage").cloned()).map(|size| size.0);
    let done = status.allocated_resource_statuses.and_then(|all| all.get("storage").cloned());
    let conditions = status.conditions.unwrap_or_default();
    let conditions: Vec<String> = conditions.into_iter().map(|condition| condition.type_).collect();
    (has.unwrap_or_default(), done.unwrap_or_default(), conditions.join(" "))
}

/// The stages of a claim since this version, each once.
async fn stages(claims: &Api<PersistentVolumeClaim>, since: &str) -> Vec<Stage> {
    let events = claims.watch(&WatchParams::default().timeout(2), since).await.expect("a watch");
    let stages = events.map(|event| match event.expect("a watch that was not cut") {
        WatchEvent::Added(claim) | WatchEvent::Modified(claim) => stage(&claim),
        other => panic!("the claim is gone: {other:?}"),
    });
    let mut stages: Vec<Stage> = stages.collect().await;
    stages.dedup();
    stages
}

/// How often the claim was told what, by reasons.
async fn told(namespace: &Namespace) -> BTreeMap<String, i32> {
    let all = namespace.api::<Event>().list(&ListParams::default()).await.expect("events").items;
    let mut told = BTreeMap::new();
    for event in all.into_iter().filter(|event| event.involved_object.name.as_deref() == Some("data")) {
        *told.entry(event.reason.unwrap_or_default()).or_default() += event.count.unwrap_or(1);
    }
    told
}

async fn ask_for(claims: &Api<PersistentVolumeClaim>, size: &str) {
    let patch = Patch::Merge(json!({ "spec": { "resources": { "requests": { "storage": size } } } }));
    // Admission hears of the class a moment later, and the claim may change meanwhile.
    let asked = || async { claims.patch("data", &PatchParams::default(), &patch).await.is_ok() };
    until("another size to be asked for", LIMIT, asked, |asked| *asked).await;
}

async fn becomes(claims: &Api<PersistentVolumeClaim>, has: &str, done: &str) {
    let look = || async { stage(&claims.get("data").await.expect("the claim")) };
    until("the claim", LIMIT, look, |(size, stage, _)| (size.as_str(), stage.as_str()) == (has, done)).await;
}

#[tokio::test]
async fn a_claim_grows_by_others_hands_and_is_told_of_it_once() {
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: vec!["--audit", "--scheduler=false", "--kwok=false"],
    });
    let controllers = "--controllers=persistentvolume-binder-controller,persistentvolume-expander-controller,\
        persistentvolumeclaim-protection-controller,persistentvolume-protection-controller";
    let manager = plane.coxswain("coxswain", &["--use-service-account-credentials", controllers]);
    let cluster = plane.cluster().await;
    let client = &cluster.client;
    let namespace = cluster.namespace("growth").await;
    let class = json!({ "metadata": { "name": "now" }, "provisioner": DRIVER, "allowVolumeExpansion": true });
    create(Api::<StorageClass>::all(client.clone()), class).await;
    let mut played = JoinSet::new();
    played.spawn(provision(client.clone()));
    played.spawn(resize(client.clone(), MOST));
    let _: PersistentVolumeClaim = namespace
        .create(json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
            "storageClassName": "now", "resources": { "requests": { "storage": "1Gi" } } } }))
        .await;
    let claims = namespace.api::<PersistentVolumeClaim>();
    becomes(&claims, "1Gi", "").await;
    let began = claims.get("data").await.expect("the claim");
    let since = began.resource_version().expect("a version");
    let requests = plane.audit().len();

    // It grows, and its file system only when a node is at it.
    ask_for(&claims, "2Gi").await;
    becomes(&claims, "1Gi", "NodeResizePending").await;
    let nodes = played.spawn(grow_file_systems(client.clone()));
    becomes(&claims, "2Gi", "").await;
    // Too much is asked for, and then less than that.
    ask_for(&claims, "100Gi").await;
    becomes(&claims, "2Gi", "ControllerResizeInfeasible").await;
    nodes.abort();
    ask_for(&claims, "3Gi").await;
    becomes(&claims, "2Gi", "NodeResizePending").await;
    played.spawn(grow_file_systems(client.clone()));
    becomes(&claims, "3Gi", "").await;

    let expected = [
        ("1Gi", "", ""),
        ("1Gi", "ControllerResizeInProgress", "Resizing"),
        ("1Gi", "NodeResizePending", "FileSystemResizePending"),
        ("2Gi", "", ""),
        ("2Gi", "ControllerResizeInProgress", "Resizing"),
        ("2Gi", "ControllerResizeInfeasible", "ControllerResizeError"),
        ("2Gi", "ControllerResizeInProgress", "Resizing"),
        ("2Gi", "NodeResizePending", "FileSystemResizePending"),
        ("3Gi", "", ""),
    ]
    .map(|(has, done, condition)| (has.to_owned(), done.to_owned(), condition.to_owned()));
    assert_eq!(stages(&claims, &since).await, expected);
    let volume = began.spec.and_then(|spec| spec.volume_name).expect("its volume");
    let volume = Api::<PersistentVolume>::all(client.clone()).get(&volume).await.expect("the volume");
    assert_eq!(json!(volume.spec)["capacity"]["storage"], "3Gi");

    // Each growth is told of once, and less than before is none.
    let told = told(&namespace).await;
    assert_eq!(told.get("ExternalExpanding"), Some(&2), "{told:?}");
    let audit = plane.audit();
    let ours = audit.iter().skip(requests).filter(|event| event.coxswain().is_some() && event.is_write());
    let ours = ours.filter(|event| event.object_ref.resource.starts_with("persistentvolume"));
    let ours: Vec<String> = ours.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(ours, Vec::<String>::new(), "it is others' work");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

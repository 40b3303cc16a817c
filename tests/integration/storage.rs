//! Claims, volumes and their classes under Coxswain as the only manager, by the tools that people use.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Namespace, Options, until};

const LIMIT: Duration = Duration::from_mins(3);
/// Claims of one namespace that are deleted at once.
const MANY: usize = 150;

fn claim_spec(class: Option<&str>) -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "none",
        "volumeAttributesClassName": class,
        "resources": { "requests": { "storage": "1Gi" } },
    })
}

async fn claim(namespace: &Namespace, name: &str, class: Option<&str>) {
    let claim = json!({ "metadata": { "name": name }, "spec": claim_spec(class) });
    let _: PersistentVolumeClaim = namespace.create(claim).await;
}

async fn pod(namespace: &Namespace, name: &str, volume: Value) {
    let mut volume = volume;
    volume["name"] = "data".into();
    let spec = json!({
        "nodeName": "node-0", "containers": [{ "name": "c", "image": "image:1" }], "volumes": [volume],
    });
    let _: Pod = namespace.create(json!({ "metadata": { "name": name }, "spec": spec })).await;
}

/// Waits until these are all claims that there are.
async fn claims_are(namespace: &Namespace, wanted: &[&str]) {
    let look = || async {
        let claims = namespace.api::<PersistentVolumeClaim>().list(&ListParams::default()).await;
        let names = claims.expect("claims").items.into_iter().filter_map(|claim| claim.metadata.name);
        names.collect::<Vec<_>>()
    };
    until(&format!("the claims of {}", namespace.name), LIMIT, look, |names| names == wanted).await;
}

#[tokio::test]
async fn kubectl_deletes_what_is_used_and_it_goes_after_its_users() {
    let plane = ControlPlane::start(&Options { nodes: 1, args: vec!["--audit"] });
    let controllers = "--controllers=*,selinux-warning-controller";
    let manager = plane.coxswain("coxswain", &["--use-service-account-credentials", controllers]);
    let cluster = plane.cluster().await;
    let (here, there) = (cluster.namespace("storage").await, cluster.namespace("storage").await);
    for namespace in [&here, &there] {
        namespace.default_account().await;
    }
    let apply = |object: Value| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), object.to_string()).expect("its content");
        plane.kubectl(&["apply", "-f", file.path().to_str().expect("text")]);
    };
    apply(
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": { "name": "gold" },
        "driverName": "example.com", "parameters": { "a": "b" } }),
    );
    claim(&here, "data", Some("gold")).await;
    claim(&there, "data", None).await;
    pod(&here, "web", json!({ "persistentVolumeClaim": { "claimName": "data" } })).await;
    pod(&here, "own", json!({ "ephemeral": { "volumeClaimTemplate": { "spec": claim_spec(None) } } })).await;
    claims_are(&here, &["data", "own-data"]).await;

    // A claim of that name in another namespace has nothing to do with the pod.
    plane.kubectl(&["delete", "volumeattributesclass", "gold", "--wait=false"]);
    for namespace in [&here, &there] {
        plane.kubectl(&["-n", &namespace.name, "delete", "pvc", "data", "--wait=false"]);
    }
    claims_are(&there, &[]).await;
    claims_are(&here, &["data", "own-data"]).await;
    let told = plane.kubectl(&["-n", &here.name, "describe", "pvc", "data"]);
    assert!(told.contains("Terminating") && told.contains("kubernetes.io/pvc-protection"), "{told}");
    assert!(plane.kubectl(&["get", "volumeattributesclass", "-o", "name"]).contains("gold"));

    // They go with their pods, and the class after the claim; what was made for a pod is collected with it.
    plane.kubectl(&["-n", &here.name, "delete", "pod", "web", "own", "--timeout=170s"]);
    claims_are(&here, &[]).await;
    let classes = || async { plane.kubectl(&["get", "volumeattributesclass", "-o", "name"]) };
    until("the class is gone", LIMIT, classes, |names| !names.contains("gold")).await;

    volumes_grow_and_labels_are_compared(&plane, &here).await;
    many_claims_share_their_lists(&plane, &here).await;
    let forbidden: Vec<String> = plane
        .audit()
        .iter()
        .filter(|event| event.coxswain().is_some() && event.is_forbidden())
        .map(|event| format!("{} {}", event.verb, event.uri))
        .collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

/// What kubectl tells of a claim that is to grow, and of pods that could not share a node.
async fn volumes_grow_and_labels_are_compared(plane: &ControlPlane, namespace: &Namespace) {
    let apply = |object: Value| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), object.to_string()).expect("its content");
        plane.kubectl(&["apply", "-n", &namespace.name, "-f", file.path().to_str().expect("text")]);
    };
    apply(
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "grows" },
        "provisioner": "example.com", "allowVolumeExpansion": true }),
    );
    apply(
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "grows" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "grows", "volumeName": "grows",
        "resources": { "requests": { "storage": "1Gi" } } } }),
    );
    let uid = ["get", "pvc", "grows", "-o", "jsonpath={.metadata.uid}"];
    let uid = plane.kubectl(&[&["-n", namespace.name.as_str()][..], &uid].concat());
    apply(json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "grows" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "grows", "capacity": { "storage": "1Gi" },
        "awsElasticBlockStore": { "volumeID": "vol-1" },
        "claimRef": { "namespace": namespace.name, "name": "grows", "uid": uid } } }));
    let claims = namespace.api::<PersistentVolumeClaim>();
    let bound = Patch::Merge(json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } }));
    drop(claims.patch_status("grows", &PatchParams::default(), &bound).await.expect("it is bound"));
    let larger = Patch::Merge(json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } }));
    // Admission hears of the class a moment later.
    let asked = || async { claims.patch("grows", &PatchParams::default(), &larger).await.is_ok() };
    until("a larger request", LIMIT, asked, |asked| *asked).await;
    for (name, level) in [("one", "s0:c1"), ("other", "s0:c2")] {
        apply(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": {
            "nodeName": "by-hand",
            "securityContext": { "seLinuxOptions": { "level": level } },
            "containers": [{ "name": "c", "image": "image:1", "volumeMounts": [{ "name": "disk", "mountPath": "/x" }] }],
            "volumes": [{ "name": "disk", "iscsi": { "targetPortal": "192.0.2.7:3260", "iqn": "iqn.2026-11.com.example:disk", "lun": 0 } }],
        } }));
    }
    let told = |kind: &'static str, name: &'static str| async move {
        plane.kubectl(&["-n", &namespace.name, "describe", kind, name])
    };
    let waits =
        "CSI migration enabled for kubernetes.io/aws-ebs; waiting for external resizer to expand the pvc";
    let of_claim = || told("pvc", "grows");
    let is_named = |text: &String| text.contains("volume.kubernetes.io/storage-resizer: ebs.csi.aws.com");
    until("what is told of the claim", LIMIT, of_claim, |text| text.contains(waits) && is_named(text)).await;
    for (name, other) in [("one", "other"), ("other", "one")] {
        let conflicts = format!("conflicts with pod {other} that uses the same volume as this pod");
        until("a conflict", LIMIT, || told("pod", name), |text| text.contains(&conflicts)).await;
    }
    plane.kubectl(&["-n", &namespace.name, "delete", "pod", "one", "other", "--force", "--grace-period=0"]);
    drop(claims.delete("grows", &DeleteParams::default()).await.expect("it is deleted"));
    claims_are(namespace, &[]).await;
}

/// Claims that are deleted together do not cost a list of the namespace's pods each.
async fn many_claims_share_their_lists(plane: &ControlPlane, namespace: &Namespace) {
    let names: Vec<String> = (0..MANY).map(|at| format!("many-{at:03}")).collect();
    for name in &names {
        claim(namespace, name, None).await;
    }
    claims_are(namespace, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let lists = || {
        let audit = plane.audit();
        let ours = audit.iter().filter(|event| {
            let pods = format!("/api/v1/namespaces/{}/pods?", namespace.name);
            event.verb == "list"
                && event.uri.starts_with(&pods)
                && event.user.username.ends_with(":pvc-protection-controller")
        });
        ours.count()
    };
    let before = lists();
    assert!(before > 0, "the claim that went before was looked up live");
    let api = namespace.api::<PersistentVolumeClaim>();
    let deleted = api.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
    drop(deleted.expect("they are deleted"));
    claims_are(namespace, &[]).await;
    let made = lists() - before;
    assert!((1..=MANY / 2).contains(&made), "{made} lists for {MANY} claims");
}

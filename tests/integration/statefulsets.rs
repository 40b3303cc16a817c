//! StatefulSets and ReplicationControllers under Coxswain as the only manager, by the tools that people use.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{ControlPlane, Options, until};

const LIMIT: Duration = Duration::from_mins(2);

/// A template whose pods have this label.
fn template(app: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": { "containers": [{ "name": "c", "image": "image:1" }] },
    })
}

#[tokio::test]
async fn kubectl_rolls_undoes_restarts_scales_and_applies() {
    let plane = ControlPlane::start(&Options { nodes: 3, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &["--use-service-account-credentials"]);
    let namespace = plane.cluster().await.namespace("stateful").await;
    let kubectl = |args: &[&str]| plane.kubectl(&[&["-n", &namespace.name], args].concat());
    let apply = |object: Value| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), object.to_string()).expect("its content");
        kubectl(&["apply", "--server-side", "-f", file.path().to_str().expect("text")]);
    };
    let set = |name: &str, more: Value| {
        let mut spec = json!({
            "replicas": 3,
            "selector": { "matchLabels": { "app": name } },
            "template": template(name),
        });
        spec.as_object_mut().expect("a spec").extend(more.as_object().cloned().unwrap_or_default());
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name }, "spec": spec })
    };
    apply(set("web", json!({})));
    let rolled = |what: &str| {
        let told = kubectl(&["rollout", "status", "statefulset/web", "--timeout=120s"]);
        assert!(told.contains("rolling update complete") || told.contains("new pods"), "{what}: {told}");
    };
    let told = |field: &str| {
        let path = format!("jsonpath={{.items[*]{field}}}");
        kubectl(&["get", "pods", "-l", "app=web", "-o", &path])
    };
    rolled("created");
    assert_eq!(told(".metadata.name"), "web-0 web-1 web-2");

    kubectl(&["set", "image", "statefulset/web", "c=image:2"]);
    rolled("another image");
    assert_eq!(told(".spec.containers[0].image"), ["image:2"; 3].join(" "));
    let history = kubectl(&["rollout", "history", "statefulset/web"]);
    assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
    let first = kubectl(&["rollout", "history", "statefulset/web", "--revision=1"]);
    assert!(first.contains("image:1"), "{first}");
    kubectl(&["rollout", "undo", "statefulset/web"]);
    rolled("the first image again");
    assert_eq!(told(".spec.containers[0].image"), ["image:1"; 3].join(" "));
    let before = told(".metadata.uid");
    kubectl(&["rollout", "restart", "statefulset/web"]);
    rolled("restarted");
    let after = told(".metadata.uid");
    assert!(before.split(' ').all(|uid| !after.contains(uid)), "all pods are new");
    let revisions = kubectl(&["get", "controllerrevisions", "-o", "jsonpath={.items[*].revision}"]);
    let mut numbers: Vec<&str> = revisions.split_whitespace().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, ["2", "3", "4"]);

    kubectl(&["scale", "statefulset/web", "--replicas=1"]);
    let names = || async { told(".metadata.name") };
    until("one is left", LIMIT, names, |names| names == "web-0").await;

    // Claims that nobody binds are made, are the set's, and go with it.
    let claims = json!({
        "podManagementPolicy": "Parallel",
        "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Delete", "whenScaled": "Retain" },
        "volumeClaimTemplates": [{
            "metadata": { "name": "data" },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none",
                "resources": { "requests": { "storage": "1Gi" } },
            },
        }],
    });
    apply(set("claiming", claims));
    let owners =
        || async { kubectl(&["get", "pvc", "-o", "jsonpath={.items[*].metadata.ownerReferences[*].name}"]) };
    until("claims of the set", LIMIT, owners, |owners| owners == "claiming claiming claiming").await;
    let retain = r#"{ "spec": { "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Retain" } } }"#;
    kubectl(&["patch", "statefulset", "claiming", "-p", retain]);
    until("claims that are nobody's", LIMIT, owners, String::is_empty).await;

    apply(json!({
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": { "name": "older" },
        "spec": { "replicas": 1, "template": template("older") },
    }));
    kubectl(&["scale", "rc/older", "--replicas=2"]);
    let ready = || async { kubectl(&["get", "rc", "older", "-o", "jsonpath={.status.availableReplicas}"]) };
    until("two of a ReplicationController", LIMIT, ready, |ready| ready == "2").await;

    let audit = plane.audit();
    let forbidden = audit.iter().filter(|event| event.coxswain().is_some() && event.is_forbidden());
    let forbidden: Vec<_> = forbidden.map(|event| format!("{} {}", event.verb, event.uri)).collect();
    assert_eq!(forbidden, Vec::<String>::new(), "forbidden by the bootstrap roles");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

//! Namespaces on a real API server: many kinds, custom resources, a group that is down, a manager that dies meanwhile,
//! and another namespace of the same name.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{AuditEvent, ControlPlane, Options, eventually, turn, until};

const LIMIT: Duration = Duration::from_mins(2);

/// The group whose server goes down.
const DOWN: &str = "down.example.com";

fn apply(plane: &ControlPlane, objects: &[Value]) {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), list.to_string()).expect("it is written");
    plane.kubectl(&["apply", "--server-side", "-f", file.path().to_str().expect("text")]);
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str, rest: &Value) -> Value {
    let mut object = rest.clone();
    if object.is_null() {
        object = json!({});
    }
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object["metadata"] = json!({ "namespace": namespace, "name": name });
    object
}

fn definition(group: &str, kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let schema =
        json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
        },
    })
}

/// Whether custom resources of a kind are served.
fn serves(plane: &ControlPlane, kind: &str) -> bool {
    plane.kubectl(&["get", "crd", kind, "-o", "jsonpath={.status.conditions}"]).contains("Established")
        && plane.kubectl(&["api-resources", "-o", "name"]).lines().any(|line| line == kind)
}

/// One object or more of twenty kinds.
fn crowd(namespace: &str) -> Vec<Value> {
    let template = json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "web", "image": "web:1" }] },
    });
    let mut always = template.clone();
    always["spec"]["restartPolicy"] = "Always".into();
    let selector = json!({ "matchLabels": { "app": "web" } });
    let runs = json!({ "spec": { "replicas": 2, "selector": selector, "template": always } });
    let rule = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] });
    let kinds = [
        ("v1", "ConfigMap", Value::Null),
        ("v1", "Secret", Value::Null),
        ("v1", "ServiceAccount", Value::Null),
        ("v1", "LimitRange", json!({ "spec": { "limits": [] } })),
        ("v1", "PodTemplate", json!({ "template": always })),
        ("v1", "Service", json!({ "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } })),
        (
            "v1",
            "ReplicationController",
            json!({ "spec": { "replicas": 0, "selector": { "app": "rc" }, "template": { "metadata": { "labels": { "app": "rc" } }, "spec": always["spec"] } } }),
        ),
        ("apps/v1", "Deployment", runs.clone()),
        (
            "apps/v1",
            "StatefulSet",
            json!({ "spec": { "serviceName": "web", "selector": selector, "template": always } }),
        ),
        ("apps/v1", "DaemonSet", json!({ "spec": { "selector": selector, "template": always } })),
        ("apps/v1", "ControllerRevision", json!({ "revision": 1, "data": {} })),
        ("batch/v1", "Job", json!({ "spec": { "template": template } })),
        (
            "batch/v1",
            "CronJob",
            json!({ "spec": { "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": template } } } }),
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({ "spec": { "maxReplicas": 2, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } } }),
        ),
        ("policy/v1", "PodDisruptionBudget", json!({ "spec": { "minAvailable": 1, "selector": selector } })),
        ("networking.k8s.io/v1", "NetworkPolicy", json!({ "spec": { "podSelector": {} } })),
        (
            "networking.k8s.io/v1",
            "Ingress",
            json!({ "spec": { "defaultBackend": { "service": { "name": "web", "port": { "number": 80 } } } } }),
        ),
        ("rbac.authorization.k8s.io/v1", "Role", json!({ "rules": [rule] })),
        (
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({ "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "web" } }),
        ),
        ("coordination.k8s.io/v1", "Lease", Value::Null),
    ];
    let mut all: Vec<Value> =
        kinds.iter().map(|(version, kind, rest)| object(version, kind, namespace, "web", rest)).collect();
    all.extend(
        (0..50).map(|at| object("v1", "ConfigMap", namespace, &format!("settings-{at}"), &Value::Null)),
    );
    all
}

fn namespace(plane: &ControlPlane, name: &str) -> Option<Value> {
    let text = plane.kubectl(&["get", "namespace", name, "--ignore-not-found", "-o", "json"]);
    (!text.trim().is_empty()).then(|| serde_json::from_str(&text).expect("JSON"))
}

/// What a condition of a namespace says: its status and message.
fn condition(namespace: &Value, kind: &str) -> Option<(String, String)> {
    let all = namespace["status"]["conditions"].as_array()?;
    let found = all.iter().find(|held| held["type"] == kind)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("message")))
}

async fn gone(plane: &ControlPlane, name: &str) {
    until(&format!("the end of {name}"), LIMIT, || async { namespace(plane, name) }, Option::is_none).await;
}

/// Makes the server of [`DOWN`] one that nobody reaches. What is in etcd stays.
fn take_down(plane: &ControlPlane) {
    let patch = json!({
        "metadata": { "labels": { "kube-aggregator.kubernetes.io/automanaged": null } },
        "spec": { "insecureSkipTLSVerify": true, "service": { "namespace": "default", "name": "nowhere", "port": 443 } },
    });
    let service = format!("v1.{DOWN}");
    plane.kubectl(&["patch", "apiservice", &service, "--type=merge", "-p", &patch.to_string()]);
}

/// The API server makes its own entry for the definition again.
fn bring_up(plane: &ControlPlane) {
    plane.kubectl(&["delete", "apiservice", &format!("v1.{DOWN}")]);
}

#[tokio::test]
async fn a_crowd_goes_whatever_happens_meanwhile() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &["--leader-elect=false"]);
    for name in ["crowd", "bystander"] {
        plane.kubectl(&["create", "namespace", name]);
    }
    apply(&plane, &[definition("example.com", "Thing"), definition(DOWN, "Gadget")]);
    for kind in ["things.example.com".to_owned(), format!("gadgets.{DOWN}")] {
        eventually(&kind, LIMIT, || async { serves(&plane, &kind) }).await;
    }
    let custom = |namespace: &str| {
        [
            object("example.com/v1", "Thing", namespace, "web", &Value::Null),
            object(&format!("{DOWN}/v1"), "Gadget", namespace, "web", &Value::Null),
        ]
    };
    apply(&plane, &[crowd("crowd"), custom("crowd").to_vec(), custom("bystander").to_vec()].concat());
    let pods = || async { plane.kubectl(&["-n", "crowd", "get", "pods", "-o", "name"]).lines().count() };
    until("pods", LIMIT, pods, |count| *count >= 2).await;

    take_down(&plane);
    plane.kubectl(&["delete", "namespace", "crowd", "--wait=false"]);
    // All that is known goes; what is not known is said.
    let down = format!("down.example.com/v1: stale GroupVersion discovery: {DOWN}/v1");
    let held = until(
        "the condition",
        LIMIT,
        || async { namespace(&plane, "crowd").expect("it must stay") },
        |held| {
            condition(held, "NamespaceDeletionDiscoveryFailure")
                .is_some_and(|(status, message)| status == "True" && message.contains(&down))
                && condition(held, "NamespaceContentRemaining").is_some_and(|(status, _)| status == "False")
        },
    )
    .await;
    assert_eq!(held["spec"]["finalizers"], json!(["kubernetes"]));
    for kind in ["all", "configmaps,secrets,roles,rolebindings,leases,ingresses", "things.example.com"] {
        assert_eq!(plane.kubectl(&["-n", "crowd", "get", kind, "-o", "name"]), "", "{kind}");
    }

    // The manager dies, and a kind is deleted and made anew.
    manager.kill();
    plane.kubectl(&["delete", "crd", "things.example.com"]);
    apply(&plane, &[definition("example.com", "Thing")]);
    eventually("things", LIMIT, || async { serves(&plane, "things.example.com") }).await;
    apply(&plane, &custom("bystander")[..1]);
    manager.start_again();
    assert!(namespace(&plane, "crowd").is_some());
    bring_up(&plane);
    gone(&plane, "crowd").await;

    // Another one of that name finds nothing of it, and keeps what it has.
    plane.kubectl(&["create", "namespace", "crowd"]);
    assert_eq!(plane.kubectl(&["-n", "crowd", "get", &format!("gadgets.{DOWN}"), "-o", "name"]), "");
    apply(&plane, &[object("v1", "ConfigMap", "crowd", "mine", &Value::Null)]);
    plane.kubectl(&["create", "namespace", "later"]);
    plane.kubectl(&["delete", "namespace", "later", "--wait=false"]);
    gone(&plane, "later").await;
    plane.kubectl(&["-n", "crowd", "get", "configmap", "mine"]);
    for kind in ["things.example.com".to_owned(), format!("gadgets.{DOWN}")] {
        assert_eq!(plane.kubectl(&["-n", "bystander", "get", &kind, "-o", "name"]).lines().count(), 1);
    }
    judge(&plane.audit());
}

/// Nothing was refused, nothing written in vain, and pods were deleted before all else.
fn judge(audit: &[AuditEvent]) {
    let ours: Vec<&AuditEvent> =
        audit.iter().filter(|event| event.coxswain() == Some("namespace-controller")).collect();
    assert!(ours.iter().all(|event| !event.is_forbidden()));
    let sweeps: Vec<&AuditEvent> = ours
        .iter()
        .copied()
        .filter(|event| event.verb == "deletecollection" && event.object_ref.namespace == "crowd")
        .collect();
    let kinds: BTreeSet<(&str, &str)> = sweeps
        .iter()
        .map(|event| (event.object_ref.api_group.as_str(), event.object_ref.resource.as_str()))
        .collect();
    assert_eq!(kinds.len(), sweeps.len(), "each at most once: {sweeps:?}");
    assert!(kinds.contains(&(DOWN, "gadgets")) && kinds.contains(&("example.com", "things")));
    assert!(!kinds.contains(&("", "persistentvolumeclaims")), "there were none");
    assert_eq!(sweeps[0].object_ref.resource, "pods");
}

/// Leaves a config map behind as an API server does that ends between its two writes of a delete: it is being deleted, and
/// nothing holds it.
async fn interrupt_a_delete(plane: &ControlPlane, namespace: &str) {
    let mut left = object("v1", "ConfigMap", namespace, "left", &Value::Null);
    left["metadata"]["finalizers"] = json!(["tests.coxswain.dev/held"]);
    apply(plane, &[left]);
    plane.kubectl(&["-n", namespace, "delete", "configmap", "left", "--wait=false"]);
    let stored = plane.kubectl(&["-n", namespace, "get", "configmap", "left", "-o", "json"]);
    let mut stored: Value = serde_json::from_str(&stored).expect("JSON");
    let metadata = stored["metadata"].as_object_mut().expect("metadata");
    assert!(metadata.contains_key("deletionTimestamp"));
    metadata.retain(|field, _| !["finalizers", "resourceVersion", "managedFields"].contains(&field.as_str()));
    let key = STANDARD.encode(format!("/registry/configmaps/{namespace}/left"));
    plane.etcd("put", &json!({ "key": key, "value": STANDARD.encode(stored.to_string()) })).await;
}

/// With the Go manager, too, it goes with the namespace.
#[tokio::test]
async fn what_an_interrupted_delete_left_goes() {
    let plane = ControlPlane::shared();
    plane.kubectl(&["create", "namespace", "interrupted"]);
    interrupt_a_delete(plane, "interrupted").await;
    plane.kubectl(&["-n", "interrupted", "get", "configmap", "left"]);
    plane.kubectl(&["delete", "namespace", "interrupted", "--wait=false"]);
    gone(plane, "interrupted").await;
}

#[tokio::test]
async fn a_manager_that_dies_between_two_writes_is_no_matter() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 1, args: vec!["--audit"] });
    let manager = plane.coxswain("coxswain", &["--leader-elect=false"]);
    let sweeps = || async {
        let audit = plane.audit();
        let ours = audit.iter().filter(|event| event.coxswain() == Some("namespace-controller"));
        ours.filter(|event| event.verb == "deletecollection").count()
    };
    let names = ["one", "two", "three"];
    for name in names {
        plane.kubectl(&["create", "namespace", name]);
        apply(&plane, &crowd(name));
        plane.kubectl(&["delete", "namespace", name, "--wait=false"]);
        let before = sweeps().await;
        until("a write", LIMIT, sweeps, |count| *count > before).await;
        manager.kill();
        manager.start_again();
    }
    for name in names {
        gone(&plane, name).await;
    }
}

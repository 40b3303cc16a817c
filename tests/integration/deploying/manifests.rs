//! Manifests: taken by a real API server, without a warning, and what they say of themselves is true.

use std::fs;

use serde_json::{Value, json};

use super::{NAMESPACE, OVERLAYS, file, flags_from, overlay, policy, restrict, said, script, text};
use crate::harness::{ControlPlane, Options, kubectl_as, turn_beside_another};

pub(super) fn yaml(path: &str) -> Value {
    serde_yaml_ng::from_str(&fs::read_to_string(file(path)).expect("a file")).expect("YAML")
}

/// The definition of ServiceMonitors, as the Prometheus Operator has it.
pub(super) fn define_monitors(plane: &ControlPlane) {
    let dir = script("scripts/tool.sh", &["crds"]);
    let definition = format!("{}/monitoring.coreos.com_servicemonitors.yaml", dir.trim());
    plane.kubectl(&["apply", "--server-side", "-f", &definition]);
    let name = "crd/servicemonitors.monitoring.coreos.com";
    plane.kubectl(&["wait", "--for=condition=Established", name, "--timeout=1m"]);
}

fn apply(plane: &ControlPlane, flag: &str, path: &str) {
    plane.kubectl(&["apply", "--warnings-as-errors", "--dry-run=server", flag, path]);
    plane.kubectl(&["apply", "--warnings-as-errors", flag, path]);
}

/// The pods of an overlay's Deployment are taken where only restricted ones are, and one that asks for more is not.
fn assert_restricted(plane: &ControlPlane, name: &str) {
    let args = ["-n", NAMESPACE, "get", "deployment", "coxswain", "-o", "json"];
    let deployment: Value = serde_json::from_str(&plane.kubectl(&args)).expect("JSON");
    let template = &deployment["spec"]["template"];
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "pod", "namespace": NAMESPACE, "labels": template["metadata"]["labels"] },
        "spec": template["spec"],
    });
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("pod.json");
    let create = |pod: &Value| {
        fs::write(&path, pod.to_string()).expect("written");
        let admin = &plane.report.kubeconfigs["admin"];
        kubectl_as(admin, &["create", "--dry-run=server", "-f", text(&path)])
    };
    let output = create(&pod);
    assert!(output.status.success(), "{name}: {}", said(&output));
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    assert!(said(&create(&pod)).contains("violates PodSecurity"), "{name}");
}

#[tokio::test]
async fn every_manifest_is_taken_by_a_real_api_server() {
    let _turn = turn_beside_another().await;
    let options = vec!["--scheduler=false", "--kwok=false"];
    let plane = ControlPlane::start(&Options { nodes: 0, args: options });
    define_monitors(&plane);
    // Pods want an account, which nobody makes here.
    plane.kubectl(&["-n", NAMESPACE, "create", "serviceaccount", "default"]);
    let output = flags_from(&["--as=static-pod", "--image=registry.invalid/coxswain:0.1.0"]);
    let dir = tempfile::tempdir().expect("a directory");
    let pod = dir.path().join("pod.yaml");
    fs::write(&pod, output).expect("written");
    apply(&plane, "-f", text(&pod));
    plane.kubectl(&["-n", NAMESPACE, "delete", "pod", "kube-controller-manager", "--force"]);
    plane.kubectl(&["create", "namespace", "monitoring"]);
    let rbac = file("deploy/prometheus/rbac.yaml");
    apply(&plane, "-f", text(&rbac));
    plane.kubectl(&["delete", "-f", text(&rbac), "--wait=false"]);
    let deletion = ["get", "namespace", "monitoring", "-o", "jsonpath={.metadata.deletionTimestamp}"];
    assert_eq!(plane.kubectl(&deletion), "", "deleting the manifest deletes the namespace");
    for path in ["deploy/prometheus/rbac.yaml", "deploy/prometheus/servicemonitor.yaml"] {
        apply(&plane, "-f", text(&file(path)));
    }
    restrict(&plane);
    for name in OVERLAYS {
        apply(&plane, "-k", &overlay(name));
        assert_restricted(&plane, name);
    }
    policy::assert_reserves(&plane).await;
    policy::assert_reports(&plane).await;
}

#[test]
fn manifests_name_the_image_of_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let images = &yaml("deploy/kustomize/overlays/deployment/kustomization.yaml")["images"];
    let image = json!({ "name": "coxswain", "newName": "registry.invalid/coxswain", "newTag": version });
    assert_eq!(*images, json!([image]));
    let chart = yaml("deploy/helm/coxswain/Chart.yaml");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
}

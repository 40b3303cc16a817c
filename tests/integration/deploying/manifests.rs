//! Manifests: taken by a real API server, without a warning, and what they say of themselves is true.

use std::fs;

use serde_json::{Value, json};

use super::{NAMESPACE, OVERLAYS, file, overlay, policy, restrict, said, script, text};
use crate::harness::{ControlPlane, Options, kubectl_as, turn_beside_another};

/// What kubeadm 1.36.3 makes: `kubeadm init phase control-plane controller-manager --dry-run`.
const KUBEADM: &str = "tests/data/peer/kubeadm-controller-manager.yaml";

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
    apply(&plane, "-k", &overlay("static-pod"));
    plane.kubectl(&["-n", NAMESPACE, "delete", "pod", "kube-controller-manager", "--force"]);
    for path in ["deploy/prometheus/rbac.yaml", "deploy/prometheus/servicemonitor.yaml"] {
        // The first brings its namespace along, which a dry run does not make.
        plane.kubectl(&["apply", "--warnings-as-errors", "-f", text(&file(path))]);
    }
    restrict(&plane);
    for name in OVERLAYS {
        apply(&plane, "-k", &overlay(name));
        assert_restricted(&plane, name);
    }
    policy::assert_reserves(&plane).await;
}

#[test]
fn the_static_pod_is_the_originals() {
    let (ours, theirs) = (yaml("deploy/kustomize/overlays/static-pod/pod.yaml"), yaml(KUBEADM));
    let [our_container, their_container] = [&ours, &theirs].map(|pod| &pod["spec"]["containers"][0]);
    let flags = |container: &Value| container["command"].as_array().expect("a command")[1..].to_vec();
    assert_eq!(flags(our_container), flags(their_container));
    for field in ["name", "imagePullPolicy", "livenessProbe", "startupProbe", "ports", "volumeMounts"] {
        assert_eq!(our_container[field], their_container[field], "{field}");
    }
    for field in ["hostNetwork", "priorityClassName", "volumes"] {
        assert_eq!(ours["spec"][field], theirs["spec"][field], "{field}");
    }
    for (label, value) in theirs["metadata"]["labels"].as_object().expect("labels") {
        assert_eq!(ours["metadata"]["labels"][label], *value, "{label}");
    }
}

#[test]
fn manifests_name_the_image_of_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    for overlay in ["deployment", "static-pod"] {
        let images = &yaml(&format!("deploy/kustomize/overlays/{overlay}/kustomization.yaml"))["images"];
        assert_eq!(*images, json!([{ "name": "coxswain", "newTag": version }]), "{overlay}");
    }
    let chart = yaml("deploy/helm/coxswain/Chart.yaml");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
}

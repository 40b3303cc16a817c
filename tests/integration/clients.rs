//! The clients in Go, Python and TypeScript, each running the same scenario against the real manager: who leads, what
//! runs, where the leader is by its Lease, a controller disabled for a while and back by itself, the events of that.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::json;

use crate::harness::{ControlPlane, Options};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/clients.sh");
/// Of those who may operate, view, and find replicas.
const ROLES: [&str; 3] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize/roles/operator.yaml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize/roles/viewer.yaml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize/roles/discovery.yaml"),
];

#[tokio::test]
async fn every_language_runs_the_same_scenario() {
    let plane = ControlPlane::start(&Options { nodes: 1, args: Vec::new() });
    let manager = plane.coxswain("coxswain", &[]);
    let namespace = plane.cluster().await.namespace("operators").await;
    namespace.create::<ServiceAccount>(json!({ "metadata": { "name": "operator" } })).await;
    let subject = format!("--serviceaccount={}:operator", namespace.name);
    for file in ROLES {
        plane.kubectl(&["apply", "-f", file]);
    }
    for role in ["coxswain-admin-operator", "coxswain-admin-viewer"] {
        plane.kubectl(&["create", "clusterrolebinding", role, &format!("--clusterrole={role}"), &subject]);
    }
    let role = "coxswain-admin-discovery";
    plane.kubectl(&["-n", "kube-system", "create", "rolebinding", role, &format!("--role={role}"), &subject]);
    let directory = tempfile::tempdir().expect("a directory");
    let token = directory.path().join("token");
    fs::write(&token, plane.kubectl(&["-n", &namespace.name, "create", "token", "operator"]))
        .expect("a token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("permissions");

    let address = manager.url.trim_start_matches("https://");
    let mut command = Command::new(SCRIPT);
    command.args(["test", address]).arg(&plane.report.ca_file).arg(&token).arg("deployment-controller");
    command.arg(format!("https://{}", plane.server()));
    let run = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("bash");
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}\n{}", manager.log());
    for language in ["go", "python", "typescript"] {
        assert!(said.contains(&format!("{language} scenario: ok")), "{said}");
    }
    assert_eq!(manager.errors(), Vec::<String>::new());
}

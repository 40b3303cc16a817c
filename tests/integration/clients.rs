//! The clients in Go, Python and TypeScript, each running the same scenario against the real manager: who leads, what
//! runs, where the leader is by its Lease, a controller disabled for a while and back by itself, the events of that. The example
//! for pods, with a token and the cluster's CA, runs against a manager with the flags of the Deployment.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use coxswain::manager::{REPLICA_NAMESPACE, REPLICA_SELECTOR};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, ListParams};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{ControlPlane, Options, until};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/clients.sh");
/// Of those who may operate, view, and find replicas.
const ROLES: [&str; 3] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize/roles/operator.yaml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize/roles/viewer.yaml"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize/roles/discovery.yaml"),
];
/// How long a manager may take to lead.
const LIMIT: Duration = Duration::from_mins(1);

/// Creates an account that may operate, and a file with its token.
async fn operator(plane: &ControlPlane) -> (TempDir, PathBuf) {
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
    (directory, token)
}

/// Runs a command, and returns whether it succeeded and its output.
async fn run(mut command: Command) -> (bool, String) {
    let run =
        tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    (run.status.success(), said)
}

#[tokio::test]
async fn every_language_runs_the_same_scenario() {
    let plane = ControlPlane::start(&Options { nodes: 1, args: Vec::new() });
    let manager = plane.coxswain("coxswain", &[]);
    let (_directory, token) = operator(&plane).await;

    let address = manager.url.trim_start_matches("https://");
    let mut command = Command::new(SCRIPT);
    command.args(["test", address]).arg(&plane.report.ca_file).arg(&token).arg("deployment-controller");
    command.arg(format!("https://{}", plane.server()));
    let (succeeded, said) = run(command).await;
    assert!(succeeded, "{said}\n{}", manager.log());
    for language in ["go", "python", "typescript"] {
        assert!(said.contains(&format!("{language} scenario: ok")), "{said}");
    }
    assert_eq!(manager.errors(), Vec::<String>::new());
}

/// A replica with the CA's key signs a certificate for `coxswain.kube-system.svc`, so a token and the cluster's CA are enough.
#[tokio::test]
async fn examples_for_pods_work_with_the_flags_of_the_deployment() {
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--scheduler=false", "--kwok=false"] });
    let manager = plane.coxswain_unawaited("deployment", &["--tls-cert-file=", "--tls-private-key-file="]);
    let (_directory, token) = operator(&plane).await;
    let leases: Api<Lease> = Api::namespaced(plane.cluster().await.client.clone(), REPLICA_NAMESPACE);
    let leader = || async {
        let replicas =
            leases.list(&ListParams::default().labels(REPLICA_SELECTOR)).await.expect("leases").items;
        let main = leases.get_opt("kube-controller-manager").await.expect("an answer");
        let holder = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        main.as_ref()
            .and_then(holder)
            .filter(|leader| replicas.iter().any(|each| holder(each).as_ref() == Some(leader)))
    };
    let leader = until("a replica that leads", LIMIT, leader, Option::is_some).await.expect("just seen");

    let server = format!("https://{}", plane.server());
    let mut command = Command::new(SCRIPT);
    command.args(["pod", &server]).arg(&plane.report.ca_file).arg(&token);
    let (succeeded, said) = run(command).await;
    assert!(succeeded, "{said}\n{}", manager.log());
    for language in ["go", "python", "typescript"] {
        assert!(said.contains(&format!("{language} example: {leader}")), "{said}");
    }

    let mut command = Command::new(ControlPlane::coxswain_binary());
    command
        .arg("leader")
        .arg("--kubeconfig")
        .arg(&plane.report.kubeconfigs["admin"])
        .arg("--token-file")
        .arg(&token);
    let (succeeded, said) = run(command).await;
    assert!(succeeded && said.contains(&leader), "{said}\n{}", manager.log());
    assert_eq!(manager.errors(), Vec::<String>::new());
}

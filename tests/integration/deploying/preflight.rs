//! `coxswain preflight` on a real control plane: with a cluster that is ready, and with one fault after the other.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use super::{KUBEADM, file, said, text};
use crate::harness::{ControlPlane, Options, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(1);
const MANIFEST: &str = "etc/kubernetes/manifests/kube-controller-manager.yaml";

/// A control-plane node with the files of a control plane.
fn node(plane: &ControlPlane, root: &Path) {
    let kubernetes = root.join("etc/kubernetes");
    for dir in ["manifests", "pki"] {
        fs::create_dir_all(kubernetes.join(dir)).expect("a directory");
    }
    let pki = plane.report.ca_file.parent().expect("a directory");
    for name in ["ca.crt", "ca.key", "sa.key", "front-proxy-ca.crt"] {
        fs::copy(pki.join(name), kubernetes.join("pki").join(name)).expect("copied");
    }
    let config = &plane.report.kubeconfigs["controller-manager"];
    fs::copy(config, kubernetes.join("controller-manager.conf")).expect("copied");
    fs::copy(file(KUBEADM), root.join(MANIFEST)).expect("copied");
    symlink("/proc", root.join("proc")).expect("a link");
}

fn preflight(plane: &ControlPlane, root: &Path, args: &[&str]) -> Output {
    let mut coxswain = Command::new(ControlPlane::coxswain_binary());
    let root = format!("--node-root={}", text(root));
    coxswain.args(["preflight", &root]).args(args).env("KUBECONFIG", &plane.report.kubeconfigs["admin"]);
    coxswain.output().expect("it runs")
}

/// The exit code, and the names of the findings that block.
fn blocking(plane: &ControlPlane, root: &Path) -> (Option<i32>, Vec<String>) {
    let output = preflight(plane, root, &["-o", "json"]);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(&output)));
    let checks = report["checks"].as_array().expect("checks").iter();
    let findings = checks.flat_map(|check| check["findings"].as_array().expect("findings"));
    let blocking: Vec<String> = findings
        .filter(|finding| finding["blocks"] == true)
        .map(|finding| finding["name"].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(report["ready"], blocking.is_empty(), "{report}");
    (output.status.code(), blocking)
}

/// The flags of a pod that starts a script are not known, so the manifest counts.
fn script_hides_the_flags(plane: &ControlPlane, root: &Path, elsewhere: &Path) {
    const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: kcm, namespace: kube-system, labels: {component: kube-controller-manager}}
spec: {containers: [{name: kcm, image: kcm, command: [/start.sh]}], automountServiceAccountToken: false}
";
    let path = elsewhere.join("pod.yaml");
    // No manager has created it yet.
    plane.kubectl(&["-n", "kube-system", "create", "serviceaccount", "default"]);
    fs::write(&path, POD).expect("written");
    plane.kubectl(&["create", "-f", text(&path)]);
    let output = preflight(plane, elsewhere, &[]);
    let said_of = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said_of}");
    assert!(said_of.contains("kcm: starts /start.sh") && said_of.contains("--manifest"), "{said_of}");
    let output = preflight(plane, root, &[]);
    assert!(
        output.status.success() && said(&output).contains("warning flags-hidden: kcm: "),
        "{}",
        said(&output)
    );
    plane.kubectl(&["delete", "-n", "kube-system", "pod", "kcm", "--now"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_ready_until_something_is_wrong() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--scheduler=false", "--kwok=false"] });
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    node(&plane, root);
    assert_eq!(blocking(&plane, root), (Some(1), vec!["lease-free".to_owned()]), "nobody leads yet");

    plane.go_manager("go-1", &["--controllers=*,bootstrapsigner,tokencleaner"]);
    let ready = || async { blocking(&plane, root) };
    until("kube-controller-manager to lead", LIMIT, ready, |found| *found == (Some(0), Vec::new())).await;
    let output = preflight(&plane, root, &[]);
    assert!(output.status.success() && said(&output).contains("\nReady, with "), "{}", said(&output));
    assert!(!said(&output).contains("skipped"), "{}", said(&output));
    // Another machine has no manifest, and the cluster has no pod.
    let elsewhere = tempfile::tempdir().expect("a directory");
    assert_eq!(blocking(&plane, elsewhere.path()), (Some(1), vec!["manager-missing".to_owned()]));
    script_hides_the_flags(&plane, root, elsewhere.path());

    let expect = |expected: &[&str], what: &str| {
        let found = blocking(&plane, root);
        assert_eq!(
            (found.0, found.1.iter().map(String::as_str).collect::<Vec<_>>()),
            (Some(1), expected.to_vec()),
            "{what}"
        );
    };
    let manifest = fs::read_to_string(root.join(MANIFEST)).expect("a manifest");
    let unknown = manifest.replace("--cluster-name=", "--cluster-nam=");
    fs::write(root.join(MANIFEST), unknown).expect("written");
    expect(&["flag-unknown"], "a flag");
    fs::write(root.join(MANIFEST), &manifest).expect("written");
    let key = root.join("etc/kubernetes/pki/sa.key");
    fs::rename(&key, root.join("sa.key")).expect("moved");
    expect(&["file"], "a key");
    fs::rename(root.join("sa.key"), &key).expect("moved");

    let output = preflight(&plane, root, &["--user", "nobody"]);
    let refused = "manager-access: nobody may not ";
    assert!(output.status.code() == Some(1) && said(&output).contains(refused), "{}", said(&output));
    let binding = "system:controller:job-controller";
    let saved = plane.kubectl(&["get", "clusterrolebinding", binding, "-o", "yaml"]);
    plane.kubectl(&["delete", "clusterrolebinding", binding]);
    // The API server's caches take a moment.
    until("the binding to be gone", LIMIT, ready, |found| found.1 == ["controller-access"]).await;
    let path = root.join("binding.yaml");
    let is_kept =
        |line: &&str| !["resourceVersion:", "uid:"].iter().any(|field| line.trim().starts_with(field));
    fs::write(&path, saved.lines().filter(is_kept).collect::<Vec<_>>().join("\n")).expect("written");
    plane.kubectl(&["create", "-f", text(&path)]);
    until("the binding", LIMIT, ready, |found| found.1.is_empty()).await;

    plane.operate("kill", "go-1");
    let found = || async { blocking(&plane, root).1 };
    until("the Lease to be free", LIMIT, found, |found| found.iter().any(|name| name.starts_with("lease-")))
        .await;
}

//! Tests of the files in `deploy/` and of the commands of the manual on real API servers.
//!
//! No container engine runs here: `deploy/image/run.sh` runs the manager in the root filesystem of its image, as a user of a
//! user namespace, and `kubelet` sees to it that each pod of the manager has such a process.

mod beside;
mod chart;
mod commands;
mod flags;
mod grants;
mod image;
mod install;
mod kubelet;
mod linting;
mod manifests;
mod plugin;
mod policy;
mod preflight;
mod replicas;
mod root_ca;
mod run;
mod uninstall;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::harness::ControlPlane;

/// Where everything of the manager is.
const NAMESPACE: &str = "kube-system";
/// The overlays.
const OVERLAYS: [&str; 4] = ["deployment", "cluster", "beside", "monitored"];
/// The manifest of kubeadm 1.36.3: `kubeadm init phase control-plane controller-manager --dry-run`.
const KUBEADM: &str = "tests/data/peer/kubeadm-controller-manager.yaml";

/// A file of this project.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A path as an argument.
fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// The directory of an overlay, in a copy in which `cluster` has the flags of kubeadm's manifest.
fn overlay(name: &str) -> String {
    static COPY: LazyLock<TempDir> = LazyLock::new(|| {
        let dir = tempfile::tempdir().expect("a directory");
        copy_deploy(dir.path());
        let flags = dir.path().join("deploy/kustomize/overlays/cluster/flags.yaml");
        flags_from(&["--file", text(&flags)]);
        dir
    });
    text(&COPY.path().join("deploy/kustomize/overlays").join(name)).to_owned()
}

/// Copies `deploy/` into a directory.
fn copy_deploy(to: &Path) {
    let copied = Command::new("cp").arg("-r").arg(file("deploy")).arg(to).status().expect("cp runs");
    assert!(copied.success(), "{copied}");
}

/// The output of `coxswain flags-from` for kubeadm's manifest.
fn flags_from(args: &[&str]) -> String {
    let mut coxswain = Command::new(ControlPlane::coxswain_binary());
    let output = coxswain.arg("flags-from").arg(file(KUBEADM)).args(args).output().expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Everything that a program said.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What a script of this project prints; panics with its words when it fails.
pub(crate) fn script(path: &str, args: &[&str]) -> String {
    let output = Command::new(file(path)).args(args).output().expect("bash");
    assert!(output.status.success(), "{path} {args:?}: {}", said(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// The nodes are a control plane's, and its namespace takes none but restricted pods.
fn prepare(plane: &ControlPlane) {
    plane.kubectl(&["label", "nodes", "--all", "node-role.kubernetes.io/control-plane="]);
    restrict(plane);
}

fn restrict(plane: &ControlPlane) {
    let level = |mode: &str| format!("pod-security.kubernetes.io/{mode}=restricted");
    plane.kubectl(&["label", "namespace", NAMESPACE, &level("enforce"), &level("warn")]);
}

//! What is in `deploy/`, and the commands of `docs/install.md`, on real API servers.
//!
//! No container engine runs here: `deploy/image/run.sh` runs the manager in the root filesystem of its image, as a user of a
//! user namespace, and `kubelet` sees to it that each pod of the manager has such a process.

mod beside;
mod chart;
mod grants;
mod image;
mod install;
mod kubelet;
mod manifests;
mod plugin;
mod policy;
mod replicas;
mod run;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::ControlPlane;

/// Where everything of the manager is.
const NAMESPACE: &str = "kube-system";
/// Those that are applied to a cluster. The static pod is for a kubelet.
const OVERLAYS: [&str; 3] = ["deployment", "beside", "monitored"];

/// A file of this project.
fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A path as an argument.
fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// The directory of an overlay.
fn overlay(name: &str) -> String {
    text(&file(&format!("deploy/kustomize/overlays/{name}"))).to_owned()
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

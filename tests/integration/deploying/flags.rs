//! The flags of the cluster: what `docs/install.md` types keeps those of the node's manifest, and everything that is mounted. Takes no
//! control plane.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use coxswain_machinery::options;
use serde_json::Value;

use super::chart::objects;
use super::install::parts;
use super::{KUBEADM, copy_deploy, file, said, text};
use crate::harness::{ControlPlane, binaries};

/// Kubeadm's manifest in a cluster with other CIDRs, `extraArgs` and `extraVolumes`.
pub(super) fn custom_manifest() -> String {
    let text = fs::read_to_string(file(KUBEADM)).expect("a file");
    let mut changed = text.clone();
    for (before, after) in [
        ("10.244.0.0/16", "10.200.0.0/16"),
        ("10.96.0.0/12", "10.97.0.0/16"),
        (
            "    - --use-service",
            "    - --node-cidr-mask-size=25\n    - --terminated-pod-gc-threshold=500\n    - --use-service",
        ),
        (
            "    volumeMounts:\n",
            "    volumeMounts:\n    - mountPath: /etc/extra\n      name: extra\n      readOnly: true\n",
        ),
        (
            "  volumes:\n",
            "  volumes:\n  - hostPath:\n      path: /opt/extra\n      type: DirectoryOrCreate\n    name: extra\n",
        ),
    ] {
        assert!(changed.contains(before), "{before}");
        changed = changed.replace(before, after);
    }
    changed
}

/// Flags by name, with their values, as the manager reads them.
pub(super) fn flags(args: &Value) -> Vec<(String, String)> {
    let words = args.as_array().expect("a list").iter().map(|arg| arg.as_str().expect("text").to_owned());
    let split = options::split(&words.collect::<Vec<_>>()).expect("flags");
    split.into_iter().map(|written| (written.flag.name(), written.value)).collect()
}

/// The flags of a static pod.
pub(super) fn flags_of_pod(manifest: &str) -> Vec<(String, String)> {
    let pod: Value = serde_yaml_ng::from_str(manifest).expect("YAML");
    let mut command = pod["spec"]["containers"][0]["command"].clone();
    command.as_array_mut().expect("a command").remove(0);
    flags(&command)
}

/// Types the commands of a chapter that need no cluster, on a node whose `/etc/kubernetes` is in `host`.
fn type_chapter(chapter: &str, host: &Path) {
    let document = fs::read_to_string(file("docs/install.md")).expect("the document");
    let parts = parts(&document);
    let part = parts.iter().find(|part| part.headline == chapter).expect("the chapter");
    let is_local = |command: &&String| {
        !command.starts_with("kubectl ") && !command.starts_with("mv /etc/kubernetes/manifests/")
    };
    let commands: Vec<&String> = part.commands.iter().filter(is_local).collect();
    assert!(commands.iter().any(|command| command.contains("flags-from")), "{commands:?}");
    let programs = Path::new(&ControlPlane::coxswain_binary()).parent().expect("a directory").to_owned();
    for command in commands.iter().take_while(|command| !command.contains("kubectl ")) {
        let typed = command.replace("/etc/kubernetes", text(&host.join("etc/kubernetes")));
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        let mut bash = Command::new("bash");
        let output = bash.args(["-euc", &typed]).current_dir(host).env("PATH", path).output().expect("bash");
        assert!(output.status.success(), "{typed}: {}", said(&output));
        assert!(output.stderr.is_empty(), "{typed}: {}", said(&output));
    }
}

/// A node with kubeadm's files, which are readable for root alone, and a copy of `deploy/`.
fn node() -> tempfile::TempDir {
    let host = tempfile::tempdir().expect("a directory");
    let manifests = host.path().join("etc/kubernetes/manifests");
    fs::create_dir_all(&manifests).expect("a directory");
    let manifest = manifests.join("kube-controller-manager.yaml");
    fs::write(&manifest, custom_manifest()).expect("written");
    fs::set_permissions(&manifest, fs::Permissions::from_mode(0o600)).expect("root's alone");
    copy_deploy(host.path());
    host
}

#[test]
fn document_keeps_flags_and_mounts_of_a_static_pod() {
    let host = node();
    type_chapter("As a static pod", host.path());
    let path = host.path().join("etc/kubernetes/manifests/kube-controller-manager.yaml");
    let manifest = fs::read_to_string(&path).expect("a manifest");
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    assert_eq!(flags_of_pod(&manifest), flags_of_pod(&custom_manifest()));
    let [after, before] = [manifest, custom_manifest()]
        .map(|manifest| serde_yaml_ng::from_str::<Value>(&manifest).expect("YAML"));
    assert_eq!(after["spec"]["volumes"], before["spec"]["volumes"]);
    let [ours, theirs] = [&after, &before].map(|pod| &pod["spec"]["containers"][0]);
    assert_eq!(ours["volumeMounts"], theirs["volumeMounts"]);
    assert_eq!(ours["command"][0], "coxswain");
    // The keys are root's, and the image runs as another user.
    assert_eq!(after["spec"]["securityContext"]["runAsUser"], 0);
    // The way back is there, and nothing else lies in the kubelet's directory.
    let saved = host.path().join("etc/kubernetes/kube-controller-manager.yaml");
    assert_eq!(fs::read_to_string(saved).expect("a manifest"), custom_manifest());
    let manifests = fs::read_dir(path.parent().expect("a directory")).expect("a directory");
    assert_eq!(manifests.count(), 1);
}

#[test]
fn document_keeps_flags_of_the_cluster_in_a_deployment() {
    let host = node();
    type_chapter("As a Deployment", host.path());
    for overlay in ["cluster", "monitored"] {
        let mut kubectl = Command::new(binaries().join("kubectl"));
        let path = host.path().join("deploy/kustomize/overlays").join(overlay);
        let rendered = kubectl.args(["kustomize", text(&path)]).output().expect("kubectl runs");
        assert!(rendered.status.success(), "{overlay}: {}", said(&rendered));
        let rendered = objects(&String::from_utf8(rendered.stdout).expect("text"));
        let spec = &rendered[r#""Deployment"/"coxswain""#]["spec"]["template"]["spec"];
        let ours = flags(&spec["containers"][0]["args"]);
        for (name, value) in flags_of_pod(&custom_manifest()) {
            // Files, and what is about the node, are the Deployment's own.
            let is_own = value.starts_with("/etc/kubernetes/") || name == "bind-address";
            let found: Vec<&str> =
                ours.iter().filter(|(held, _)| *held == name).map(|(_, value)| value.as_str()).collect();
            assert!(is_own || found == [value.as_str()], "{overlay}: --{name}={value}: {found:?}");
        }
    }
}

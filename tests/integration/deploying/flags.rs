//! The flags of the cluster: what the manual types keeps those of the node's manifest, and everything that is mounted. Takes no
//! control plane.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use coxswain_machinery::options;
use serde_json::Value;

use super::chart::objects;
use super::install::{REGISTRY, install_crictl, page, parts};
use super::{KUBEADM, copy_deploy, file, flags_from, said, text};
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

/// Types the commands of a page that need no cluster, on a node whose `/etc/kubernetes` is in `host`, one after the other whatever
/// becomes of them; the errors.
fn type_page(name: &str, host: &Path) -> String {
    let commands: Vec<String> = parts(&page(name)).into_iter().flat_map(|part| part.commands).collect();
    let commands = commands.iter().filter(|command| !command.contains("kubectl "));
    install_crictl(host);
    let programs = Path::new(&ControlPlane::coxswain_binary()).parent().expect("a directory").to_owned();
    let (mut errors, mut typed_any) = (String::new(), false);
    for command in commands {
        typed_any |= command.contains("flags-from") || command.contains("install static-pod");
        let typed = command.replace("/etc/kubernetes", text(&host.join("etc/kubernetes")));
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{}:{path}", host.display(), programs.display());
        let mut bash = Command::new("bash");
        let output =
            bash.args(["-c", &typed]).current_dir(host).env("PATH", path).env("REGISTRY", REGISTRY).output();
        let output = output.expect("bash");
        errors.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    assert!(typed_any, "docs/{name}.md types neither flags-from nor install");
    errors
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
    assert_eq!(type_page("install/static-pod", host.path()), "");
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
    assert_eq!(type_page("install/deployment", host.path()), "");
    for overlay in ["cluster", "monitored"] {
        let mut kubectl = Command::new(binaries().join("kubectl"));
        let path = host.path().join("deploy/kustomize/overlays").join(overlay);
        let rendered = kubectl.args(["kustomize", text(&path)]).output().expect("kubectl runs");
        assert!(rendered.status.success(), "{overlay}: {}", said(&rendered));
        let rendered = objects(&String::from_utf8(rendered.stdout).expect("text"));
        let spec = &rendered[r#""Deployment"/"coxswain""#]["spec"]["template"]["spec"];
        let ours = flags(&spec["containers"][0]["args"]);
        let keys = &spec["volumes"][0];
        assert_eq!((&keys["name"], &keys["secret"]["secretName"]), (&"keys".into(), &"coxswain-keys".into()));
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["mountPath"], "/etc/coxswain/keys");
        for (name, value) in flags_of_pod(&custom_manifest()) {
            let found: Vec<&str> =
                ours.iter().filter(|(held, _)| *held == name).map(|(_, value)| value.as_str()).collect();
            let is_own =
                name.ends_with("kubeconfig") || name.ends_with("client-ca-file") || name == "bind-address";
            match value.rsplit_once("/etc/kubernetes/pki/") {
                _ if is_own => assert!(found.is_empty(), "{overlay}: --{name}: {found:?}"),
                Some((_, file)) => {
                    assert_eq!(found, [format!("/etc/coxswain/keys/{file}")], "{overlay}: --{name}");
                }
                None => assert_eq!(found, [value.as_str()], "{overlay}: --{name}"),
            }
        }
    }
}

/// A manifest that cannot be converted, and a second try: KCM runs on, and the way back stays.
#[test]
fn document_changes_no_static_pod_when_the_command_fails() {
    let host = node();
    let directory = host.path().join("etc/kubernetes");
    let path = directory.join("manifests/kube-controller-manager.yaml");
    let broken = custom_manifest().replace("--cluster-name=", "--cluster-nam=");
    fs::write(&path, &broken).expect("written");
    for _ in 0..2 {
        let errors = type_page("install/static-pod", host.path());
        assert!(errors.contains("unknown flag --cluster-nam"), "{errors}");
        assert_eq!(fs::read_to_string(&path).expect("a manifest"), broken);
    }
    fs::write(&path, custom_manifest()).expect("written");
    for _ in 0..2 {
        assert_eq!(type_page("install/static-pod", host.path()), "");
        assert!(fs::read_to_string(&path).expect("a manifest").contains("- coxswain\n"));
        let saved = fs::read_to_string(directory.join("kube-controller-manager.yaml")).expect("a manifest");
        assert_eq!(saved, custom_manifest(), "the way back is KCM's");
    }
    let manifests = fs::read_dir(directory.join("manifests")).expect("a directory");
    assert_eq!(manifests.count(), 1);
}

/// Without the flags of the cluster nothing can be applied.
#[test]
fn overlay_cluster_is_not_built_without_flags() {
    let host = node();
    let overlay = host.path().join("deploy/kustomize/overlays/cluster");
    let build = || {
        let mut kubectl = Command::new(binaries().join("kubectl"));
        kubectl.args(["kustomize", text(&overlay)]).output().expect("kubectl runs").status.success()
    };
    let flags = overlay.join("flags.yaml");
    assert!(!build(), "without the file");
    for content in ["", "# nothing\n", "[]\n"] {
        fs::write(&flags, content).expect("written");
        assert!(!build(), "{content:?}");
    }
    let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    flags_from(&["--file", text(&flags)]);
    assert!(build());
    assert_eq!(mode(&flags), 0o600, "it may hold the password of a proxy");
    // Made for another version of the Deployment.
    let deployment = host.path().join("deploy/kustomize/overlays/deployment/deployment.yaml");
    let changed = fs::read_to_string(&deployment)
        .expect("a file")
        .replace("--secure-port=10257", "--secure-port=10258");
    fs::write(&deployment, changed).expect("written");
    assert!(!build());
}

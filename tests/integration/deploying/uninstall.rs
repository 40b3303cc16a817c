//! The chart as the only controller manager: rolled out, and uninstalled by the commands of the manual.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::chart::{CLUSTER, Helm, IMAGE};
use super::flags::custom_manifest;
use super::install::page;
use super::kubelet::{Kubelet, Replica, create_mirror};
use super::replicas::{give_keys, leader, led};
use super::{NAMESPACE, file, prepare, said, text};
use crate::harness::{ControlPlane, Options, binaries, by_depth, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(5);

/// Returns the objects that name this project, in `kube-system` and outside of namespaces. Events expire by themselves.
fn objects_of_ours(plane: &ControlPlane) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for namespaced in ["--namespaced=true", "--namespaced=false"] {
        let resources = plane.kubectl(&["api-resources", "--verbs=list", "-o", "name", namespaced]);
        let is_kept = |resource: &&str| !resource.starts_with("events") && *resource != "componentstatuses";
        let resources: Vec<&str> = resources.lines().filter(is_kept).collect();
        assert!(resources.len() > 10, "{resources:?}");
        let all = plane.kubectl(&["-n", NAMESPACE, "get", &resources.join(","), "-o", "json"]);
        let all: Value = serde_json::from_str(&all).expect("JSON");
        for object in all["items"].as_array().expect("a list") {
            if object["metadata"].to_string().contains("coxswain") {
                found.insert(format!("{}/{}", object["kind"], object["metadata"]["name"]));
            }
        }
    }
    found
}

/// Waits until no object names this project: garbage collection takes a moment.
pub(super) async fn assert_nothing_left(plane: &ControlPlane) {
    let left = || async { objects_of_ours(plane) };
    until("objects of Coxswain to be gone", LIMIT, left, BTreeSet::is_empty).await;
}

/// Runs a command, and does meanwhile what a kubelet does.
async fn run(kubelet: &mut Kubelet<'_>, command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    until(
        "the command to end",
        LIMIT,
        || {
            kubelet.sync();
            let ended = child.try_wait().expect("a child").is_some();
            async move { ended }
        },
        |ended| *ended,
    )
    .await;
    child.wait_with_output().expect("its output")
}

/// A command of a shell that has helm and kubectl.
fn shell(plane: &ControlPlane, helm: &Helm<'_>, command: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut bash = Command::new("bash");
    bash.args(["-euc", command])
        .env("PATH", format!("{}:{}:{path}", helm.directory().display(), binaries().display()))
        .env("KUBECONFIG", &plane.report.kubeconfigs["admin"]);
    bash
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", said(output));
}

fn replicas(kubelet: &Kubelet<'_>) -> Vec<Replica> {
    kubelet.replicas.values().cloned().collect()
}

/// The commands of the manual that go back to kube-controller-manager from the chart. A command continues after a line that ends with
/// `\`, `&&` or `||`.
fn way_back() -> Vec<String> {
    let commands = |name: &str, headline: &str| -> Vec<String> {
        let page = page(name);
        let (_, section) = page.split_once(&format!("\n## {headline}\n")).expect("the section");
        let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
        let mut commands: Vec<String> = Vec::new();
        for line in section.lines().filter_map(|line| line.strip_prefix("    ")) {
            match commands.last_mut().filter(|begun| begun.ends_with(['\\', '&', '|'])) {
                Some(begun) => {
                    begun.push('\n');
                    begun.push_str(line);
                }
                None => commands.push(line.to_owned()),
            }
        }
        commands
    };
    [commands("install/roll-back", "From Helm"), commands("install/uninstall", "After Helm")].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_alone_rolls_out_and_is_uninstalled_only_when_another_manager_takes_over() {
    if !by_depth(false, true) {
        return;
    }
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 2, args: vec!["--with-go-manager"] });
    prepare(&plane);
    give_keys(&plane);
    let helm = Helm::new(&plane);
    let chart = file("deploy/helm/coxswain");
    let sets = ["--set", IMAGE, "--set", CLUSTER, "--set", "replicas=2"];
    helm.run(&[&["install", "coxswain", text(&chart)][..], &sets].concat());
    let mut kubelet = Kubelet::new(&plane);
    kubelet.run(2).await;
    plane.operate("stop", "kube-controller-manager");
    led(&plane, &replicas(&kubelet)).await;
    let before: BTreeSet<String> = kubelet.replicas.keys().cloned().collect();

    // Each replica is replaced, the leader by the one that leads after it.
    helm.run(&["upgrade", "coxswain", text(&chart), "--reuse-values", "--set", "podAnnotations.round=two"]);
    let status = format!("kubectl -n {NAMESPACE} rollout status deployment/coxswain --timeout=3m");
    succeeds(&run(&mut kubelet, &mut shell(&plane, &helm, &status)).await);
    kubelet.run(2).await;
    assert!(kubelet.replicas.keys().all(|uid| !before.contains(uid)), "a pod of the old template runs");
    led(&plane, &replicas(&kubelet)).await;

    let disable = format!("{} disable ttl", ControlPlane::coxswain_binary());
    succeeds(&run(&mut kubelet, &mut shell(&plane, &helm, &disable)).await);

    // The only manager stays.
    let uninstall = "helm uninstall coxswain --namespace kube-system";
    let output = run(&mut kubelet, &mut shell(&plane, &helm, uninstall)).await;
    assert!(!output.status.success(), "{}", said(&output));
    let [(hook, why)] = &kubelet.ended_hooks[..] else { panic!("{:?}", kubelet.ended_hooks) };
    assert_eq!(hook, "coxswain-uninstall-check");
    assert!(why.contains("no other controller manager is ready"), "{why}");
    plane.kubectl(&["-n", NAMESPACE, "get", "deployment", "coxswain"]);
    assert_eq!(kubelet.replicas.len(), 2);
    led(&plane, &replicas(&kubelet)).await;

    let commands = way_back();
    assert!(commands.iter().any(|command| command.contains(uninstall)), "{commands:?}");
    for command in &commands {
        if command.contains(" mv /etc/kubernetes/") {
            plane.operate("start", "kube-controller-manager");
            create_mirror(&plane, &serde_yaml_ng::from_str(&custom_manifest()).expect("a manifest"));
            continue;
        }
        let output = run(&mut kubelet, &mut shell(&plane, &helm, command)).await;
        assert!(output.status.success(), "{command}: {} {:?}", said(&output), kubelet.ended_hooks);
    }
    assert_eq!(leader(&plane), None, "kube-controller-manager leads");
    let hooks: Vec<&str> = kubelet.ended_hooks.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(hooks, ["coxswain-uninstall-check", "coxswain-uninstall-check", "coxswain-uninstall-clean"]);
    assert!(
        kubelet.ended_hooks[2].1.contains("lease coxswain-overrides deleted"),
        "{:?}",
        kubelet.ended_hooks
    );
    assert_nothing_left(&plane).await;
}

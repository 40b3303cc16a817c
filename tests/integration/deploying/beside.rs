//! Beside the Go manager: each has a Lease and controllers of its own. Leader migration does not do that with this Go manager.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use serde_json::json;

use super::chart::{deployment, render};
use super::flags::flags;
use super::install::page;
use super::kubelet::Kubelet;
use super::{NAMESPACE, file, overlay, prepare, text};
use crate::harness::{ControlPlane, LeaseHistory, Namespace, Options, Program, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(1);
/// Controllers' accounts.
const ACCOUNTS: &str = "system:serviceaccount:kube-system:";
/// The Lease that both would share.
const SHARED: &str = "jobs-migration";
/// The original's durations, halved.
const TIMING: [&str; 3] = [
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=5s",
    "--leader-elect-retry-period=1s",
];

fn start() -> ControlPlane {
    let args = vec!["--audit", "--scheduler=false", "--kwok=false"];
    ControlPlane::start(&Options { nodes: 0, args })
}

/// The flags that the manual gives a program in addition to all others.
fn flags_in_manual(program: &str) -> Vec<String> {
    let page = page("install/beside-kcm");
    let begins = format!("$ {program} … ");
    let mut lines = page.lines().filter_map(|line| line.strip_prefix(&begins));
    let flags = lines.next().unwrap_or_else(|| panic!("the page does not start {program}"));
    flags.split(' ').map(str::to_owned).collect()
}

/// The controllers' accounts in whose name the Go manager has written, and those in whose name Coxswain has.
pub(super) fn writers(plane: &ControlPlane) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut theirs, mut ours) = (BTreeSet::new(), BTreeSet::new());
    for event in plane.audit().iter().filter(|event| event.is_write() && event.succeeded()) {
        // What a replica does about its own Lease is no controller's work.
        let Some(account) =
            event.user.username.strip_prefix(ACCOUNTS).filter(|_| event.coxswain() != Some("replicas"))
        else {
            continue;
        };
        if event.coxswain().is_some() {
            ours.insert(account.to_owned());
        } else if event.is_from(Program::Go) {
            theirs.insert(account.to_owned());
        }
    }
    (theirs, ours)
}

/// Makes a Job, and waits until it has a pod.
pub(super) async fn run_job(plane: &ControlPlane, namespace: &str, name: &str) {
    plane.kubectl(&["-n", namespace, "create", "job", name, "--image=busybox"]);
    let active =
        || async { plane.kubectl(&["-n", namespace, "get", "job", name, "-o", "jsonpath={.status.active}"]) };
    until("the Job to have a pod", LIMIT, active, |active| active == "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_manager_runs_what_the_manual_gives_it() {
    let _turn = turn_beside_another().await;
    let plane = start();
    let cluster = plane.cluster().await;
    let given = ["kube-controller-manager", "coxswain"].map(flags_in_manual);
    let [theirs, ours] = given.each_ref().map(|flags| flags.iter().map(String::as_str).collect::<Vec<_>>());
    plane.go_manager("go", &theirs);
    plane.coxswain("coxswain", &ours);
    let namespace: Namespace = cluster.namespace("beside").await;
    namespace.deployment("web", 2, json!({})).await;
    until("the pods of both", LIMIT, || namespace.pods(), |pods| pods.len() == 2).await;
    run_job(&plane, &namespace.name, "once").await;

    let (theirs, ours) = writers(&plane);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(ours, names(&["job-controller"]));
    let pods = ["deployment-controller", "replicaset-controller", "service-account-controller"];
    assert!(theirs.is_superset(&names(&pods)), "{theirs:?}");
    assert!(theirs.is_disjoint(&ours), "{theirs:?}");
    for lease in ["kube-controller-manager", "coxswain-controller-manager"] {
        let holder = ["-n", NAMESPACE, "get", "lease", lease, "-o", "jsonpath={.spec.holderIdentity}"];
        assert_ne!(plane.kubectl(&holder), "", "{lease}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_beside_runs_in_a_cluster_without_the_secret_of_keys() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 1, args: vec!["--with-go-manager"] });
    prepare(&plane);
    plane.kubectl(&["apply", "-k", &overlay("beside")]);
    plane.kubectl(&["-n", NAMESPACE, "scale", "deployment/coxswain", "--replicas=1"]);
    plane.kubectl(&["-n", NAMESPACE, "rollout", "status", "deployment/coxswain", "--timeout=2m"]);
    // A volume of a Secret that does not exist holds up the container.
    Kubelet::new(&plane).run(1).await;
}

/// The reason why the manual splits controllers by flags: the Go manager of this version ends as soon as a second Lease comes to it.
/// Coxswain leads by both, and takes the second one up again.
#[tokio::test(flavor = "multi_thread")]
async fn the_go_manager_can_not_lead_by_the_second_lease() {
    let _turn = turn_beside_another().await;
    let plane = start();
    let cluster = plane.cluster().await;
    let history = LeaseHistory::follow(&cluster, SHARED).await;
    let configuration = json!({
        "apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration",
        "leaderName": SHARED, "controllerLeaders": [{ "name": "job-controller", "component": "*" }],
    });
    let path = plane.report.dir.join("migration.json");
    fs::write(&path, configuration.to_string()).expect("written");
    let configured = format!("--leader-migration-config={}", text(&path));
    let migrating = [&TIMING[..], &["--enable-leader-migration", &configured]].concat();
    let own = ["--controllers=job-controller", "--leader-elect-resource-name=coxswain-controller-manager"];

    let is_led = || async { history.last().map(|held| held.holder).unwrap_or_default() };
    let coxswain = plane.coxswain("coxswain", &[&migrating[..], &own].concat());
    let first = until("the second Lease to be taken", LIMIT, is_led, |holder| !holder.is_empty()).await;
    let go = plane.go_manager("go", &migrating);
    let namespace = cluster.namespace("beside").await;
    let account =
        || async { plane.kubectl(&["-n", &namespace.name, "get", "serviceaccounts", "-o", "name"]) };
    until("the account of pods", LIMIT, account, |names| !names.is_empty()).await;
    run_job(&plane, &namespace.name, "first").await;
    let (theirs, ours) = writers(&plane);
    assert!(ours.contains("job-controller") && !theirs.contains("job-controller"), "{theirs:?} {ours:?}");
    assert!(theirs.contains("service-account-controller"), "{theirs:?}");

    coxswain.stop();
    let exit = go.exited(LIMIT).await;
    assert!(exit.starts_with("exit status 1 "), "{exit}");
    assert!(plane.log("go").contains("is already registered"), "it ended for another reason");
    let taken = history.seen().into_iter().any(|held| !held.holder.is_empty() && held.holder != first);
    assert!(taken, "it ended before it led: {:?}", history.seen());

    coxswain.start_again();
    run_job(&plane, &namespace.name, "second").await;
    let (theirs, _) = writers(&plane);
    assert!(!theirs.contains("job-controller"), "{theirs:?}");
}

/// What Coxswain is given is what the Go manager is told to leave, in every place that says so.
#[test]
fn no_controller_is_in_both_lists() {
    let rendered = render("beside");
    let given = flags(&deployment(&rendered)["containers"][0]["args"]);
    let taken: Vec<&String> =
        given.iter().filter(|(name, _)| name == "controllers").map(|(_, value)| value).collect();
    let [taken] = taken[..] else { panic!("a repeated --controllers grows: {given:?}") };
    let left: String = taken.split(',').flat_map(|name| [",-", name]).collect();
    for (path, given) in [
        ("docs/install/beside-kcm.md", format!("s/--controllers=.*/&{left}/")),
        (
            "deploy/kustomize/overlays/beside/kustomization.yaml",
            format!("--controllers=*,bootstrapsigner,tokencleaner{left}"),
        ),
        ("docs/install/beside-kcm.md", format!("--controllers=*,bootstrapsigner,tokencleaner{left}")),
    ] {
        assert!(fs::read_to_string(file(path)).expect("a file").contains(&given), "{path}: {given}");
    }
}

/// A user who tries Coxswain with some controllers first gives it no key of the cluster.
#[test]
fn beside_needs_no_private_key() {
    let rendered = render("beside");
    let spec = deployment(&rendered);
    let tmp = json!([{ "name": "tmp", "emptyDir": { "medium": "Memory", "sizeLimit": "64Mi" } }]);
    let mounts = json!([{ "name": "tmp", "mountPath": "/tmp" }]);
    assert_eq!((&spec["volumes"], &spec["containers"][0]["volumeMounts"]), (&tmp, &mounts));
    let flags = flags(&spec["containers"][0]["args"]);
    assert!(flags.iter().all(|(_, value)| !value.starts_with('/')), "{flags:?}");
    let role = &rendered[r#""ClusterRole"/"coxswain""#]["rules"];
    let of_secrets =
        role.as_array().expect("rules").iter().filter(|rule| rule["resources"] == json!(["secrets"]));
    assert_eq!(of_secrets.count(), 0, "{role}");
    assert!(!page("install/beside-kcm").contains("create secret"));
}

//! Three replicas by the manifests: their arguments, accounts, image and probes, on a control plane whose Go manager has gone.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::grants::assert_exact;
use super::kubelet::{Kubelet, PROBES, Replica};
use super::{NAMESPACE, overlay, prepare, said, text};
use crate::deployments::settled;
use crate::harness::{ControlPlane, Namespace, Options, turn, until};

const LIMIT: Duration = Duration::from_mins(2);
const PODS: i32 = 6;
const ROLES: [&str; 2] = ["operator", "viewer"];

/// The Secret that the Deployment wants, from the files of this cluster.
pub(super) fn give_keys(plane: &ControlPlane) {
    let pki = plane.report.ca_file.parent().expect("a directory");
    let from = |name: &str| format!("--from-file={name}={}", pki.join(name).display());
    let files = ["sa.key", "ca.crt", "ca.key"].map(from);
    let files = files.each_ref().map(String::as_str);
    plane.kubectl(&[&["-n", NAMESPACE, "create", "secret", "generic", "coxswain-keys"], &files[..]].concat());
}

/// The address of the replica that holds the main Lease.
pub(super) fn leader(plane: &ControlPlane) -> Option<String> {
    let leases = plane.kubectl(&["-n", NAMESPACE, "get", "leases", "-o", "json"]);
    let leases: Value = serde_json::from_str(&leases).expect("JSON");
    let all = leases["items"].as_array().expect("a list");
    let main = all.iter().find(|lease| lease["metadata"]["name"] == "kube-controller-manager")?;
    let holder = main["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
    let address = |lease: &Value| {
        let address = lease["metadata"]["annotations"]["coxswain.dev/admin-address"].as_str()?;
        (lease["spec"]["holderIdentity"] == holder).then(|| address.to_owned())
    };
    all.iter().find_map(address)
}

/// Waits until one of the replicas leads, and says which.
pub(super) async fn led(plane: &ControlPlane, replicas: &[Replica]) -> Replica {
    let find = || async {
        let address = leader(plane)?;
        let leads = |each: &&Replica| address.split(':').next() == Some(&each.address.to_string());
        replicas.iter().find(leads).cloned()
    };
    until("a replica to lead", LIMIT, find, Option::is_some).await.expect("just seen")
}

async fn assert_probes(replica: &Replica, pass: bool) {
    for probe in PROBES {
        assert_eq!(replica.passes(probe).await, pass, "{probe} of {}", replica.name);
    }
}

/// Tries the probes of those that live while others are killed: far more often than a kubelet does.
struct Tries(Vec<(String, JoinHandle<Vec<Try>>)>, CancellationToken);

/// A probe, and whether it passed.
type Try = (&'static str, bool);

impl Tries {
    fn of<'a>(replicas: impl Iterator<Item = &'a Replica>) -> Self {
        const BETWEEN: Duration = Duration::from_millis(100);
        let stop = CancellationToken::new();
        let of = |replica: &Replica| {
            let (replica, stop) = (replica.clone(), stop.clone());
            let name = replica.name.clone();
            let tries = async move {
                let mut tries = Vec::new();
                loop {
                    for probe in PROBES {
                        tries.push((probe, replica.passes(probe).await));
                    }
                    if stop.run_until_cancelled(tokio::time::sleep(BETWEEN)).await.is_none() {
                        return tries;
                    }
                }
            };
            (name, tokio::spawn(tries))
        };
        Self(replicas.map(of).collect(), stop)
    }

    /// There was no moment at which one of them was not alive and ready.
    async fn assert_all_passed(self) {
        self.1.cancel();
        for (name, tries) in self.0 {
            let tries = tries.await.expect("tries");
            let failed: Vec<_> = tries.iter().filter(|(_, passed)| !passed).collect();
            assert!(failed.is_empty(), "{name}: {} of {} failed: {failed:?}", failed.len(), tries.len());
        }
    }
}

/// The client, as somebody.
fn client(kubeconfig: &Path, args: &[&str]) -> Output {
    let mut program = Command::new(ControlPlane::coxswain_binary());
    program.args(args).env("KUBECONFIG", kubeconfig).output().expect("the program")
}

/// The roles that ship, and somebody for each.
fn people(plane: &ControlPlane) -> [PathBuf; 2] {
    ROLES.map(|role| {
        let (named, group) = (format!("--clusterrole=coxswain-admin-{role}"), format!("--group={role}s"));
        plane.kubectl(&["create", "clusterrolebinding", role, &named, &group]);
        let finds = "--role=coxswain-admin-discovery";
        plane.kubectl(&["-n", NAMESPACE, "create", "rolebinding", role, finds, &group]);
        plane.identity(role, &[&format!("{role}s")])
    })
}

/// What the manager does for people, through its port, and as itself for service accounts.
async fn use_everything(plane: &ControlPlane, namespace: &Namespace) {
    let [operator, viewer] = people(plane);
    let works = |output: Output| assert!(output.status.success(), "{}", said(&output));
    let answers = || async { client(&viewer, &["leader"]) };
    until("the roles to be known", LIMIT, answers, |output| output.status.success()).await;
    works(client(&viewer, &["controllers"]));
    assert_eq!(client(&viewer, &["disable", "ttl"]).status.code(), Some(4), "a viewer changes nothing");
    // The same twice: an event that is there already is counted up.
    for _ in 0..2 {
        works(client(&operator, &["disable", "ttl", "--reason", "a test", "--wait"]));
        works(client(&operator, &["enable", "ttl", "--wait"]));
    }
    let token = tempfile::NamedTempFile::new().expect("a file");
    let name = &namespace.name;
    plane.kubectl(&["-n", name, "create", "serviceaccount", "robot"]);
    std::fs::write(token.path(), plane.kubectl(&["-n", name, "create", "token", "robot"])).expect("written");
    let with_token = ["leader", "--trust-announced-authority", "--token-file", text(token.path())];
    assert_eq!(client(&viewer, &with_token).status.code(), Some(4), "nobody lets the robot");
    let robot = format!("--serviceaccount={name}:robot");
    plane.kubectl(&["create", "clusterrolebinding", "robot", "--clusterrole=coxswain-admin-viewer", &robot]);
    let finds = ["create", "rolebinding", "robot", "--role=coxswain-admin-discovery", &robot];
    plane.kubectl(&[&["-n", NAMESPACE], &finds[..]].concat());
    let answers = || async { client(&viewer, &with_token) };
    until("the robot to be let", LIMIT, answers, |output| output.status.success()).await;

    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "builder" },
        "secrets": [{ "name": "one" }],
    });
    let secret = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": { "name": name, "annotations": { "kubernetes.io/service-account.name": "builder" } },
        })
    };
    let list =
        json!({ "apiVersion": "v1", "kind": "List", "items": [account, secret("one"), secret("two")] });
    let path = token.path().with_extension("json");
    std::fs::write(&path, list.to_string()).expect("written");
    plane.kubectl(&["-n", name, "apply", "-f", text(&path)]);
    std::fs::remove_file(&path).expect("removed");
    for secret in ["secret/one", "secret/two"] {
        plane.kubectl(&["-n", name, "wait", "--for=jsonpath={.data.token}", secret, "--timeout=1m"]);
    }
    plane.kubectl(&["-n", name, "delete", "secret", "one"]);
    let listed = || async {
        plane.kubectl(&["-n", name, "get", "serviceaccount", "builder", "-o", "jsonpath={.secrets}"])
    };
    until("the account to forget its secret", LIMIT, listed, |listed| !listed.contains("one")).await;
    plane.kubectl(&["-n", name, "delete", "serviceaccount", "builder"]);
    plane.kubectl(&["-n", name, "wait", "--for=delete", "secret/two", "--timeout=1m"]);

    // A controller without an account gets one when it has something to do.
    plane.kubectl(&["-n", NAMESPACE, "delete", "serviceaccount", "replication-controller"]);
    let controller = json!({
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": { "name": "old" },
        "spec": { "replicas": 1, "selector": { "app": "old" }, "template": {
            "metadata": { "labels": { "app": "old" } },
            "spec": { "containers": [{ "name": "c", "image": "nginx:1" }] },
        } },
    });
    std::fs::write(&path, controller.to_string()).expect("written");
    plane.kubectl(&["-n", name, "apply", "-f", text(&path)]);
    std::fs::remove_file(&path).expect("removed");
    let made = "--for=jsonpath={.status.readyReplicas}=1";
    plane.kubectl(&["-n", name, "wait", made, "replicationcontroller/old", "--timeout=1m"]);
}

/// How many pods of the Deployment are of its newest template.
async fn updated(namespace: &Namespace) -> i32 {
    let web: Deployment = namespace.get_deployment("web").await;
    let is_seen =
        web.status.as_ref().and_then(|status| status.observed_generation) == web.metadata.generation;
    web.status.and_then(|status| status.updated_replicas).filter(|_| is_seen).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_goes_on_while_each_replica_is_killed() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 3, args: vec!["--audit", "--with-go-manager"] });
    prepare(&plane);
    give_keys(&plane);
    plane.kubectl(&["apply", "-k", &overlay("deployment")]);
    let mut kubelet = Kubelet::new(&plane);
    kubelet.run(3).await;
    let replicas: Vec<Replica> = kubelet.replicas.values().cloned().collect();
    for replica in &replicas {
        assert_probes(replica, true).await;
    }
    plane.operate("stop", "kube-controller-manager");
    let leader = led(&plane, &replicas).await;

    let namespace = plane.cluster().await.namespace("shop").await;
    let spec = json!({
        "minReadySeconds": 1,
        "strategy": { "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
    });
    namespace.deployment("web", PODS, spec).await;
    settled(&namespace, "web", PODS).await;
    // The leader last: another one then goes on with what it has begun.
    let (mut turns, last): (Vec<_>, Vec<_>) =
        replicas.iter().partition(|replica| replica.name != leader.name);
    turns.extend(last);
    for (round, killed) in turns.into_iter().enumerate() {
        namespace.set_image("web", &format!("nginx:{}", round + 2)).await;
        let begun = || updated(&namespace);
        until("the rollout to begin", LIMIT, begun, |updated| *updated >= 1).await;
        let tries = Tries::of(replicas.iter().filter(|replica| replica.name != killed.name));
        plane.operate("kill", &killed.name);
        assert!(updated(&namespace).await < PODS, "it was killed in the middle of the rollout");
        for replica in &replicas {
            assert_probes(replica, replica.name != killed.name).await;
        }
        settled(&namespace, "web", PODS).await;
        tries.assert_all_passed().await;
        plane.operate("start", &killed.name);
        let ready = || killed.passes("readinessProbe");
        until("it to be ready again", LIMIT, ready, |ready| *ready).await;
        assert_probes(killed, true).await;
    }
    let next = led(&plane, &replicas).await;
    assert_ne!(next.name, leader.name, "another one leads");

    use_everything(&plane, &namespace).await;
    assert_exact(&plane);
}

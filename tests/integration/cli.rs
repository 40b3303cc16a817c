//! The client as people run it: the program itself, with kubeconfigs of those who may look and of those who may operate, by the
//! roles that ship, against two replicas.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Namespace, Options, until};

const LIMIT: Duration = Duration::from_secs(30);

const ROLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize/roles");
/// What viewers may not do.
const CHANGES: [&str; 4] = ["disable", "enable", "step-down", "sync"];

struct Client {
    operator: PathBuf,
    viewer: PathBuf,
}

impl Client {
    fn new(plane: &ControlPlane) -> Self {
        plane.kubectl(&["apply", "-k", ROLES]);
        let [operator, viewer] = ["operator", "viewer"].map(|role| {
            let (named, group) = (format!("--clusterrole=coxswain-admin-{role}"), format!("--group={role}s"));
            plane.kubectl(&["create", "clusterrolebinding", role, &named, &group]);
            let finds = "--role=coxswain-admin-discovery";
            plane.kubectl(&["-n", "kube-system", "create", "rolebinding", role, finds, &group]);
            plane.identity(role, &[&format!("{role}s")])
        });
        Self { operator, viewer }
    }

    /// As one who may no more than the command asks for.
    fn output(&self, args: &[&str]) -> Output {
        let kubeconfig = if CHANGES.contains(&args[0]) { &self.operator } else { &self.viewer };
        Command::new(env!("CARGO_BIN_EXE_coxswain"))
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            .output()
            .expect("the program")
    }

    /// What it prints when all is well.
    fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn json(&self, args: &[&str]) -> Value {
        let text = self.run(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    /// Its exit code and complaint.
    fn refused(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.output(args);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn phase(&self, controller: &str) -> String {
        self.json(&["controller", controller])["phase"].as_str().expect("a phase").to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_looks_disables_explains_and_hands_over() {
    let plane = ControlPlane::start(&Options { nodes: 1, args: Vec::new() });
    let client = Client::new(&plane);
    // Roles take a moment to be known.
    let code = || async { client.refused(&["controllers"]).0 };
    until("the answer that there is no replica yet", LIMIT, code, |code| *code == Some(3)).await;

    let [first, second] = ["first", "second"].map(|name| plane.coxswain(name, &[]));
    let ready = || async { client.output(&["leader"]).status.success() };
    until("replicas that answer", LIMIT, ready, |ready| *ready).await;
    let replicas = || async { client.json(&["leader"])["replicas"].as_array().expect("replicas").len() };
    until("both replicas to be known", LIMIT, replicas, |count| *count == 2).await;
    let phase = || async { client.phase("deployment") };
    until("the controller runs", LIMIT, phase, |phase| phase == "PHASE_RUNNING").await;

    let namespace = plane.cluster().await.namespace("cli").await;
    namespace.deployment("web", 2, json!({})).await;
    let object = format!("{}/web", namespace.name);
    let explained = || async { client.output(&["explain", "deploy", &object]).status.success() };
    until("the Deployment is known", LIMIT, explained, |known| *known).await;
    explanations_are_those_of_users(&plane, &client, &namespace).await;
    let synced = client.json(&["sync", "deployment", &object]);
    assert_eq!(synced["outcome"], "SYNC_OUTCOME_DONE", "{synced}");

    client.run(&["disable", "deployment", "--for", "30m", "--reason", "a test", "--wait"]);
    assert_eq!(client.phase("deployment"), "PHASE_DISABLED");
    let table = client.run(&["controllers", "--source", "override"]);
    assert!(table.contains("deployment-controller") && table.contains("Disabled"), "{table}");
    let (code, said) = client.refused(&["explain", "deploy", &object]);
    assert_eq!(code, Some(5), "{said}");
    let (code, said) = client.refused(&["disable", "deploymnt"]);
    assert!(code == Some(5) && said.contains("did you mean deployment-controller?"), "{said}");
    let (code, said) = client.refused(&["disable", "serviceaccount-token"]);
    assert!(code == Some(6) && said.contains("force"), "{said}");

    let holder = |leader: Value| leader["leader"]["holderIdentity"].as_str().expect("a holder").to_owned();
    let before = holder(client.json(&["leader"]));
    client.run(&["step-down", "--reason", "a test", "--wait"]);
    let after = holder(client.json(&["leader"]));
    assert_ne!(before, after, "the other one leads");
    assert_eq!((first.exit(), second.exit()), (String::new(), String::new()), "both processes go on");
    assert_eq!(client.phase("deployment"), "PHASE_DISABLED", "the override is in force on the next leader");
    client.run(&["enable", "deployment", "--wait"]);

    // Back to the one that stepped down: it leads again as if it never had.
    client.run(&["step-down", "--to", &before, "--wait"]);
    assert_eq!(holder(client.json(&["leader"])), before);
    until("the controller runs again", LIMIT, phase, |phase| phase == "PHASE_RUNNING").await;
    let events = client.run(&["events", "--tail", "1000"]);
    assert!(events.contains("this replica acquired kube-system/kube-controller-manager"), "{events}");
    bundle_has_no_secret(&plane, &client);
    for manager in [&first, &second] {
        assert_eq!(manager.errors(), Vec::<String>::new(), "{}", manager.name);
    }
}

/// A support bundle of an administrator is complete, and has no secret of the cluster in it.
fn bundle_has_no_secret(plane: &ControlPlane, client: &Client) {
    const PLANTED: &str = "planted-7c1e5b";
    let literal = format!("--from-literal=password={PLANTED}");
    plane.kubectl(&["create", "secret", "generic", "planted", &literal]);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("bundle.tar.gz");
    let dump = |kubeconfig: &Path| {
        let mut coxswain = Command::new(env!("CARGO_BIN_EXE_coxswain"));
        coxswain
            .args(["debug", "dump", "-o"])
            .arg(&path)
            .env("KUBECONFIG", kubeconfig)
            .output()
            .expect("the program")
    };
    let output = dump(Path::new(&plane.report.kubeconfigs["admin"]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut archive =
        tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(&path).expect("a bundle")));
    archive.unpack(dir.path()).expect("an archive");
    let folder = fs::read_dir(dir.path()).expect("a directory").flatten().find(|entry| entry.path().is_dir());
    let folder = folder.expect("a folder").path();
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a part");
    for (file, expected) in [
        ("leader.json", "holderIdentity"),
        ("leases.json", "kube-controller-manager"),
        ("controllers.json", "deployment-controller"),
        ("tasks.json", "inFlightKeys"),
        ("events.jsonl", "reconcileFinished"),
        ("flagz.txt", "leader-elect"),
        ("configz.json", "KubeControllerManagerConfiguration"),
        ("healthz.txt", "leaderElection"),
        ("metrics.txt", "leader_election_master_status"),
    ] {
        assert!(read(file).contains(expected), "{file} has no {expected}");
    }
    // Keys of the cluster and of the caller, and the Secret, line by line.
    let pki = plane.report.ca_file.parent().expect("a directory");
    let mut secrets = vec![PLANTED.to_owned(), BASE64_STANDARD.encode(PLANTED)];
    for path in [pki.join("ca.key"), pki.join("sa.key"), plane.report.kubeconfigs["admin"].clone()] {
        let text = fs::read_to_string(&path).expect("a file");
        let words = text
            .split_whitespace()
            .filter(|word| word.len() >= 40 && !text.contains(&format!("authority-data: {word}")));
        secrets.extend(words.map(str::to_owned));
    }
    assert!(secrets.len() > 10, "there are secrets to look for");
    for entry in fs::read_dir(&folder).expect("a directory").flatten() {
        let text = fs::read_to_string(entry.path()).expect("text");
        for secret in &secrets {
            assert!(!text.contains(secret.as_str()), "{} has {secret}", entry.path().display());
        }
    }
    fs::remove_file(&path).expect("removed");
    let output = dump(&client.viewer);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("not read: metrics.txt: GET /metrics: HTTP 403"), "{said}");
}

/// What viewers are told of objects that wait for somebody.
async fn explanations_are_those_of_users(plane: &ControlPlane, client: &Client, namespace: &Namespace) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    crate::certificates::request(plane, "explained", signer, &key, ["jane", "people"]).await;
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": {
            "storageClassName": "absent",
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    let _: PersistentVolumeClaim = namespace.create(claim).await;
    let claim = format!("{}/data", namespace.name);
    let signing = "certificatesigningrequest-signing-controller";
    let approving = "certificatesigningrequest-approving-controller";
    let binder = "persistentvolume-binder-controller";
    for (kind, object, controller, expected) in [
        ("csr", "explained", signing, "The request is not approved; it is not signed."),
        ("csr", "explained", approving, "It needs manual approval."),
        ("pvc", &claim, binder, "No volume matches the claim, and none can be provisioned"),
    ] {
        let said = || async {
            let output = client.output(&["explain", kind, object, "--controller", controller]);
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        until(&format!("{controller} explains {kind} {object}"), LIMIT, said, |said| said.contains(expected))
            .await;
    }
    plane.kubectl(&["certificate", "approve", "explained"]);
    let refused = || async {
        let output = client.output(&["explain", "csr", "explained", "--controller", signing]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Of a node's certificate it has not the names.
    until("the request fails", LIMIT, refused, |said| said.contains("The request has failed")).await;
}

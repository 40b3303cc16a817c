//! A node joins as kubeadm has it: by a cluster's description that a token signs, and by the token itself, up to the certificate of its
//! kubelet, which is all that is done without one.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certificates::{issued, logged_in, request_as};
use crate::deploying::{said, script};
use crate::harness::{Cluster, ControlPlane, Options, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(1);
const API: &str = "kubeadm.k8s.io/v1beta4";
const TOKEN: &str = "abcdef.0123456789abcdef";
/// The token's Secret, and the signature that it makes.
const SECRET: &str = "bootstrap-token-abcdef";
const SIGNATURE: &str = "jws-kubeconfig-abcdef";
const NODE: &str = "joiner";

/// kubeadm of the control plane's version, and the files that it is told to use.
struct Kubeadm {
    program: String,
    dir: TempDir,
}

impl Kubeadm {
    fn new() -> Self {
        let program = script("scripts/tool.sh", &["kubeadm"]).trim().to_owned();
        Self { program, dir: tempfile::tempdir().expect("a directory") }
    }

    /// Runs it with these documents as its configuration, whatever comes of it.
    fn run(&self, args: &[&str], documents: &[Value]) -> Output {
        let config = self.dir.path().join("config.yaml");
        let text: Vec<String> = documents.iter().map(Value::to_string).collect();
        std::fs::write(&config, text.join("\n---\n")).expect("its content");
        let mut kubeadm = Command::new(&self.program);
        kubeadm.args(args).arg("--config").arg(config).env("KUBEADM_JOIN_DRYRUN_DIR", self.dir.path());
        kubeadm.output().expect("kubeadm runs")
    }

    /// Does for the cluster what `kubeadm init` does for those that join it.
    fn prepare(&self, plane: &ControlPlane) {
        let documents = [
            json!({ "apiVersion": API, "kind": "InitConfiguration", "bootstrapTokens": [{ "token": TOKEN }] }),
            json!({ "apiVersion": API, "kind": "ClusterConfiguration", "kubernetesVersion": "v1.36.3" }),
        ];
        let kubeconfig = plane.report.kubeconfigs["admin"].to_str().expect("text");
        for phase in [&["upload-config", "all"][..], &["bootstrap-token"]] {
            let args = [&["init", "phase"], phase, &["--kubeconfig", kubeconfig]].concat();
            let output = self.run(&args, &documents);
            assert!(output.status.success(), "{phase:?}: {}", said(&output));
        }
    }

    /// Joins as far as a kubelet's configuration, by this token. It finds the cluster in earnest, and puts the files where they
    /// do no harm.
    fn join(&self, plane: &ControlPlane, token: &str) -> Output {
        let server = plane.server().to_string();
        let pins = [pin(&plane.report.ca_file)];
        let discovery = json!({ "apiServerEndpoint": server, "token": token, "caCertHashes": pins });
        let document = json!({ "apiVersion": API, "kind": "JoinConfiguration",
            "discovery": { "bootstrapToken": discovery }, "timeouts": { "discovery": "2s" },
            "nodeRegistration": { "name": NODE, "criSocket": "unix:///nowhere.sock" } });
        self.run(&["join", "phase", "kubelet-start", "--dry-run"], &[document])
    }
}

/// By what kubeadm knows an authority: the digest of its public key.
fn pin(authority: &Path) -> String {
    let script = "set -o pipefail; openssl x509 -pubkey -noout -in \"$0\" | openssl pkey -pubin -outform der | sha256sum";
    let output = Command::new("bash").args(["-c", script]).arg(authority).output().expect("bash");
    assert!(output.status.success(), "{}", said(&output));
    format!("sha256:{}", String::from_utf8_lossy(&output.stdout).split_whitespace().next().expect("a digest"))
}

/// Waits until the description of the cluster is signed by the token, or is not any more.
async fn signed(client: &Client, wanted: bool) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-public");
    let look = || async {
        let map = maps.get("cluster-info").await.expect("the ConfigMap");
        map.data.is_some_and(|data| data.contains_key(SIGNATURE))
    };
    until("the signature to come or go", LIMIT, look, |found| *found == wanted).await;
}

#[tokio::test]
async fn a_node_joins_by_kubeadm() {
    let _turn = turn_beside_another().await;
    let args = vec!["--apiserver-arg", "enable-bootstrap-token-auth=true"];
    let plane = ControlPlane::start(&Options { nodes: 0, args });
    let client = plane.cluster().await.client;
    let kubeadm = Kubeadm::new();
    kubeadm.prepare(&plane);
    let unsigned = kubeadm.join(&plane, TOKEN);
    assert!(!unsigned.status.success(), "nobody has signed yet: {}", said(&unsigned));

    let controllers = "--controllers=*,bootstrap-signer-controller,token-cleaner-controller";
    let manager = plane.coxswain("joined", &[controllers]);
    signed(&client, true).await;
    let another = kubeadm.join(&plane, "abcdef.fedcba9876543210");
    assert!(said(&another).contains("failed to verify JWS signature"), "{}", said(&another));
    let joined = kubeadm.join(&plane, TOKEN);
    assert!(joined.status.success(), "{}", said(&joined));

    // What its kubelet would do with the file.
    let kubeconfig = kubeadm.dir.path().join("bootstrap-kubelet.conf");
    let bootstrapped = Cluster::connect(&kubeconfig).await.client;
    let key = KeyPair::generate().expect("a key");
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let user = format!("system:node:{NODE}");
    request_as(bootstrapped, NODE, signer, &key, [&user, "system:nodes"]).await;
    let certificate = issued(&plane, NODE).await;
    let (name, groups) = logged_in(&plane, &certificate, &key).await;
    assert_eq!(name, user);
    assert!(groups.contains(&"system:nodes".to_owned()), "{groups:?}");

    // The token ends, and with it all that it is good for.
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let past = json!({ "stringData": { "expiration": "2020-01-01T00:00:00Z" } });
    secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(&past)).await.expect("it is patched");
    let left = || async { secrets.get_opt(SECRET).await.expect("an answer").is_some() };
    until("the token to be cleaned", LIMIT, left, |left| !left).await;
    signed(&client, false).await;
    let late = kubeadm.join(&plane, TOKEN);
    assert!(!late.status.success(), "the token is over: {}", said(&late));
    assert_eq!(manager.errors(), Vec::<String>::new());
}

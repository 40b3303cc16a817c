//! A kubelet serves with a certificate that was signed under Coxswain, to an API server that asks for one of that authority.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyUsagePurpose};
use serde_json::json;

use crate::certificates::issued;
use crate::deploying::said;
use crate::harness::{ControlPlane, KeyPair, Options, TlsServer, object, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(1);
const NODE: &str = "logging";
const LINE: &str = "a line of the container's";

/// Writes both into the directory, and says where they are.
fn write(dir: &Path, name: &str, certificate: &str, key: &str) -> KeyPair {
    let of = |ending: &str| dir.join(format!("{name}.{ending}"));
    let pair = KeyPair { cert_file: of("crt"), key_file: of("key") };
    fs::write(&pair.cert_file, certificate).expect("written");
    fs::write(&pair.key_file, key).expect("written");
    pair
}

/// An authority that is nothing else's.
fn authority(dir: &Path) -> KeyPair {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    write(dir, "authority", &certificate.pem(), &key.serialize_pem())
}

/// As much of a kubelet as `kubectl logs` needs.
async fn kubelet(pair: &KeyPair) -> TlsServer {
    let answer = async |request: Request<Incoming>| {
        let is_asked = request.uri().path().starts_with("/containerLogs/");
        let code = if is_asked { StatusCode::OK } else { StatusCode::NOT_FOUND };
        let mut response = Response::new(Full::new(Bytes::from_static(LINE.as_bytes())));
        *response.status_mut() = code;
        Ok::<_, Infallible>(response)
    };
    TlsServer::start(pair, answer).await
}

/// Asks for a certificate for serving on loopback, as the node itself.
fn request(plane: &ControlPlane, key: &rcgen::KeyPair) {
    let user = format!("system:node:{NODE}");
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, user.as_str());
    let pem = params.serialize_request(key).expect("a request").pem().expect("PEM");
    let request: CertificateSigningRequest = object(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "name": NODE },
        "spec": {
            "signerName": "kubernetes.io/kubelet-serving",
            "usages": ["digital signature", "server auth"],
            "request": ByteString(pem.into_bytes()),
        },
    }));
    let file = plane.report.dir.join("request.json");
    fs::write(&file, serde_json::to_vec(&request).expect("JSON")).expect("written");
    let file = file.to_str().expect("text");
    plane.kubectl(&["--as", &user, "--as-group", "system:nodes", "create", "-f", file]);
}

/// Says where the node's kubelet listens.
async fn listens(nodes: &Api<Node>, port: u16) {
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": port } },
    } });
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(&status)).await.expect("it is patched");
}

/// What `kubectl logs` says, and whether it succeeds.
fn logs(plane: &ControlPlane, namespace: &str) -> (bool, String) {
    let output = plane.try_kubectl(&["-n", namespace, "logs", "web"]);
    (output.status.success(), said(&output))
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_come_from_a_kubelet_with_a_signed_certificate() {
    let _turn = turn_beside_another().await;
    let dir = tempfile::tempdir().expect("a directory");
    let authority = authority(dir.path());
    let text = |path: &PathBuf| path.to_str().expect("text").to_owned();
    // The control plane takes what lives for as long as the tests.
    let trust = format!("kubelet-certificate-authority={}", text(&authority.cert_file)).leak();
    let args = vec!["--scheduler=false", "--kwok=false", "--apiserver-arg", trust];
    let plane = ControlPlane::start(&Options { nodes: 0, args });
    let cluster = plane.cluster().await;
    let signed_by = [
        "--controllers=certificatesigningrequest-signing-controller,serviceaccount-controller".to_owned(),
        // One file for all signers and one for each are not taken together.
        "--cluster-signing-cert-file=".to_owned(),
        "--cluster-signing-key-file=".to_owned(),
        format!("--cluster-signing-kubelet-serving-cert-file={}", text(&authority.cert_file)),
        format!("--cluster-signing-kubelet-serving-key-file={}", text(&authority.key_file)),
    ];
    let manager = plane.coxswain("coxswain", &signed_by.each_ref().map(String::as_str));

    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node: Node = object(json!({ "metadata": { "name": NODE } }));
    nodes.create(&PostParams::default(), &node).await.expect("it is created");
    let namespace = cluster.namespace("logs").await;
    let account =
        || async { plane.kubectl(&["-n", &namespace.name, "get", "serviceaccounts", "-o", "name"]) };
    until("the account of pods", LIMIT, account, |names| !names.is_empty()).await;
    let containers = json!([{ "name": "web", "image": "nginx:1" }]);
    let pod =
        json!({ "metadata": { "name": "web" }, "spec": { "nodeName": NODE, "containers": containers } });
    namespace.create::<Pod>(pod).await;

    // Anybody could serve with such a certificate.
    let key = rcgen::KeyPair::generate().expect("a key");
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address").self_signed(&key);
    let own = write(dir.path(), "own", &own.expect("a certificate").pem(), &key.serialize_pem());
    let stranger = kubelet(&own).await;
    listens(&nodes, stranger.port).await;
    let (succeeded, told) = logs(&plane, &namespace.name);
    assert!(!succeeded && told.contains("certificate"), "{told}");

    let may = ["clusterrolebinding", "nodes-ask", "--clusterrole=system:node-bootstrapper"];
    plane.kubectl(&[&["create"][..], &may, &["--group=system:nodes"]].concat());
    request(&plane, &key);
    plane.kubectl(&["certificate", "approve", NODE]);
    let certificate = String::from_utf8(issued(&plane, NODE).await).expect("PEM");
    let signed = write(dir.path(), "signed", &certificate, &key.serialize_pem());
    let kubelet = kubelet(&signed).await;
    listens(&nodes, kubelet.port).await;
    let (succeeded, told) = logs(&plane, &namespace.name);
    assert!(succeeded && told.contains(LINE), "{told}");

    // Nor does the manager tell the key that it signs with.
    let log = plane.log("coxswain");
    let secret = fs::read_to_string(&authority.key_file).expect("the key");
    let mut lines = secret.lines().filter(|line| !line.starts_with('-'));
    assert!(lines.all(|line| !log.contains(line)), "the authority's key is in the log");
    assert_eq!(manager.errors(), Vec::<String>::new());
}

//! Certificates that were signed under Coxswain, as people get them and as the API server and TLS libraries take them.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use serde_json::{Value, json};

use crate::harness::{Cluster, ControlPlane, Options, cpu_seconds, object, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(3);
/// Number of extensions of a request of 0.8 MB.
const EXTENSIONS: u64 = 60_000;
/// CPU seconds of Coxswain for four such requests, several times of what it needs. It does not depend on the load of the machine.
const CPU_SECONDS: f64 = 20.0;
/// Scenarios whose requests hold names that the API server does not see.
const UNSEEN: [&str; 2] = [
    include_str!("../parity/certificatesigningrequest-signing/signs-the-shown-block.yaml"),
    include_str!("../parity/certificatesigningrequest-signing/drops-what-is-not-seen.yaml"),
];
/// The unseen names.
const UNSEEN_NAMES: [&str; 2] = ["system:masters", "kubernetes.default.svc"];

/// Makes a request of a key; how the subject is called, and its group.
pub(crate) async fn request(plane: &ControlPlane, name: &str, signer: &str, key: &KeyPair, who: [&str; 2]) {
    request_as(plane.cluster().await.client, name, signer, key, who).await;
}

/// The same as whoever this client is.
pub(crate) async fn request_as(client: Client, name: &str, signer: &str, key: &KeyPair, who: [&str; 2]) {
    create(client, name, signer, key, &params(who)).await;
}

/// Returns a subject by its name and its group.
fn params(who: [&str; 2]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, who[1]);
    params.distinguished_name.push(DnType::CommonName, who[0]);
    params
}

async fn create(client: Client, name: &str, signer: &str, key: &KeyPair, params: &CertificateParams) {
    let pem = params.serialize_request(key).expect("a request").pem().expect("PEM");
    let request = object(json!({
        "metadata": { "name": name },
        "spec": {
            "signerName": signer,
            "usages": ["digital signature", "client auth"],
            "expirationSeconds": 3600,
            "request": ByteString(pem.into_bytes()),
        },
    }));
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    requests.create(&PostParams::default(), &request).await.expect("it is created");
}

/// The certificate that a request gets, in PEM.
pub(crate) async fn issued(plane: &ControlPlane, name: &str) -> Vec<u8> {
    let requests: Api<CertificateSigningRequest> = Api::all(plane.cluster().await.client);
    let certificate = || async {
        let request = requests.get(name).await.expect("the request");
        request.status.and_then(|status| status.certificate)
    };
    until("a certificate", LIMIT, certificate, Option::is_some).await.expect("it was waited for").0
}

/// Who the API server says that somebody with this certificate is, and in which groups.
pub(crate) async fn logged_in(
    plane: &ControlPlane,
    certificate: &[u8],
    key: &KeyPair,
) -> (String, Vec<String>) {
    let mut kubeconfig = Kubeconfig::read_from(&plane.report.kubeconfigs["admin"]).expect("the kubeconfig");
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().expect("a user");
    user.client_certificate_data = Some(STANDARD.encode(certificate));
    user.client_key_data = Some(STANDARD.encode(key.serialize_pem()).into());
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.expect("the kubeconfig is complete")).expect("a client");
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let info = review.expect("an answer").status.and_then(|status| status.user_info).expect("a user");
    (info.username.expect("a name"), info.groups.unwrap_or_default())
}

/// Whether rustls takes it from a client, by the authorities in a file.
fn rustls_takes(authorities: &Path, certificate: &[u8]) {
    let mut roots = rustls::RootCertStore::empty();
    let bundle = std::fs::read(authorities).expect("the authorities");
    for authority in CertificateDer::pem_slice_iter(&bundle) {
        roots.add(authority.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let certificate = CertificateDer::from_pem_slice(certificate).expect("a certificate");
    let verified =
        verifier.build().expect("a verifier").verify_client_cert(&certificate, &[], UnixTime::now());
    verified.expect("rustls takes it");
}

/// Whether openssl takes it from a client, by the authorities in a file, at its strictest.
fn openssl_takes(authorities: &Path, certificate: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), certificate).expect("its content");
    let verified = Command::new("openssl")
        .args(["verify", "-x509_strict", "-check_ss_sig", "-purpose", "sslclient", "-CAfile"])
        .args([authorities, file.path()])
        .output()
        .expect("openssl runs");
    let told = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success(), "openssl does not take it: {told}");
}

/// Whether Go takes it from a client, by the authorities in a file.
fn go_takes(authorities: &Path, certificate: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), certificate).expect("its content");
    let verified = Command::new("go")
        .args(["run", "./cmd/verify"])
        .args([authorities, file.path()])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/controlplane"))
        .output()
        .expect("go runs");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

#[tokio::test]
async fn verifiers_take_what_each_kind_of_authority_signs() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: Vec::new() });
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/authorities"));
    for kind in ["rsa", "p256", "p384", "p521", "ed25519"] {
        let file = |what: &str| folder.join(format!("{kind}.{what}"));
        let (authority, key_file) = (file("crt"), file("key"));
        let flags = [
            "--leader-elect=false",
            "--controllers=certificatesigningrequest-signing-controller",
            &format!("--cluster-signing-cert-file={}", authority.display()),
            &format!("--cluster-signing-key-file={}", key_file.display()),
        ];
        let manager = plane.coxswain(&format!("signs-with-{kind}"), &flags);
        let key = KeyPair::generate().expect("a key");
        request(&plane, kind, "kubernetes.io/kube-apiserver-client", &key, [kind, "certified"]).await;
        plane.kubectl(&["certificate", "approve", kind]);
        let certificate = issued(&plane, kind).await;
        openssl_takes(&authority, &certificate);
        go_takes(&authority, &certificate);
        // Its cryptography here knows no signatures by that curve.
        if kind != "p521" {
            rustls_takes(&authority, &certificate);
        }
        manager.stop();
    }
}

#[tokio::test]
async fn a_certificate_that_people_approve_logs_its_owner_in() {
    let plane = ControlPlane::shared();
    for (name, algorithm) in
        [("certified-p256", &rcgen::PKCS_ECDSA_P256_SHA256), ("certified-ed25519", &rcgen::PKCS_ED25519)]
    {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let signer = "kubernetes.io/kube-apiserver-client";
        request(plane, name, signer, &key, [name, "certified"]).await;
        plane.kubectl(&["certificate", "approve", name]);
        let certificate = issued(plane, name).await;
        rustls_takes(&plane.report.ca_file, &certificate);
        openssl_takes(&plane.report.ca_file, &certificate);
        let (user, groups) = logged_in(plane, &certificate, &key).await;
        assert_eq!(user, name);
        assert!(groups.contains(&"certified".to_owned()), "{groups:?}");
    }
}

#[tokio::test]
async fn a_node_that_may_join_logs_in_with_nobodys_help() {
    let plane = ControlPlane::shared();
    let key = KeyPair::generate().expect("a key");
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    // An administrator may make requests for any node.
    request(plane, "joining", signer, &key, ["system:node:joining", "system:nodes"]).await;
    let certificate = issued(plane, "joining").await;
    rustls_takes(&plane.report.ca_file, &certificate);
    openssl_takes(&plane.report.ca_file, &certificate);
    let (user, groups) = logged_in(plane, &certificate, &key).await;
    assert_eq!(user, "system:node:joining");
    assert!(groups.contains(&"system:nodes".to_owned()), "{groups:?}");
}

/// The requests pass validation and admission. Whether Coxswain signs one without the names or refuses it is the scenarios' concern.
#[tokio::test]
async fn certificate_has_no_name_that_the_api_server_did_not_see() {
    let plane = ControlPlane::shared();
    let requests: Api<CertificateSigningRequest> = Api::all(plane.cluster().await.client);
    let mut names = Vec::new();
    for scenario in UNSEEN {
        let scenario: Value = serde_yaml_ng::from_str(scenario).expect("a scenario");
        let steps = scenario["steps"].as_array().expect("steps");
        for request in steps.iter().filter_map(|step| step.get("apply")) {
            let text = request.to_string().replace("NAMESPACE", "unseen");
            let request: CertificateSigningRequest = serde_json::from_str(&text).expect("a request");
            let created = requests.create(&PostParams::default(), &request).await.expect("it is created");
            let name = created.metadata.name.expect("a name");
            plane.kubectl(&["certificate", "approve", &name]);
            names.push(name);
        }
    }
    assert!(names.len() >= UNSEEN.len(), "{names:?}");
    // An ordinary request is signed after them.
    let key = KeyPair::generate().expect("a key");
    request(plane, "seen", "kubernetes.io/kube-apiserver-client", &key, ["seen", "certified"]).await;
    plane.kubectl(&["certificate", "approve", "seen"]);
    issued(plane, "seen").await;
    for name in names {
        let request = requests.get(&name).await.expect("the request");
        let Some(certificate) = request.status.and_then(|status| status.certificate) else { continue };
        let certificate = CertificateDer::from_pem_slice(&certificate.0).expect("a certificate");
        for unseen in UNSEEN_NAMES {
            let is_there = certificate.windows(unseen.len()).any(|bytes| bytes == unseen.as_bytes());
            assert!(!is_there, "{name} has a certificate with {unseen}");
        }
    }
}

/// Waits until a new namespace has its CA bundle.
async fn has_bundle(cluster: &Cluster, name: &str) {
    let maps: Api<ConfigMap> = cluster.namespace(name).await.api();
    let bundle = || async { maps.get_opt("kube-root-ca.crt").await.expect("an answer").is_some() };
    until(&format!("the CA bundle of namespace {name}"), LIMIT, bundle, |has_bundle| *has_bundle).await;
}

/// Each client that may create requests can create these.
#[tokio::test]
async fn requests_with_many_extensions_take_little_cpu_time() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: Vec::new() });
    let manager = plane.coxswain("coxswain", &[]);
    let cluster = plane.cluster().await;
    has_bundle(&cluster, "before").await;
    let before = cpu_seconds(manager.pid);

    // The approver reads requests of kubelets too. There are more requests than threads that reconcile.
    let names = ["a", "b", "c", "d"];
    let key = KeyPair::generate().expect("a key");
    let extension = |number| CustomExtension::from_oid_content(&[1, 2, number], Vec::new());
    for name in names {
        let mut params = params([&format!("system:node:{name}"), "system:nodes"]);
        params.custom_extensions = (1..=EXTENSIONS).map(extension).collect();
        let signer = "kubernetes.io/kube-apiserver-client-kubelet";
        create(cluster.client.clone(), name, signer, &key, &params).await;
    }
    has_bundle(&cluster, "meanwhile").await;
    for name in names {
        issued(&plane, name).await;
    }
    let used = cpu_seconds(manager.pid) - before;
    assert!(used < CPU_SECONDS, "{used} CPU seconds for {} requests", names.len());
}

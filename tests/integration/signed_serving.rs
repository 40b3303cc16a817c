//! The certificate for `coxswain.kube-system.svc` that a replica signs with the cluster's CA, as TLS clients get it, and the command line,
//! which sends its token to no server with another certificate of that CA.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use coxswain_machinery::serve::COXSWAIN_NAME;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::harness::{ControlPlane, Manager, Options, TlsServer, turn_beside_another, until};

/// Longer than the time between two checks of the signing CA.
const LIMIT: Duration = Duration::from_secs(90);
/// Life of a CA in seconds: shorter than that of a certificate by a longer-lived CA.
const SHORT: u64 = 2 * 60 * 60;
const ADDRESS: &str = "127.0.0.1";

/// Accepts every certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The chain that a manager presents to a client that connects by a name; empty if there is no connection.
async fn chain(manager: &Manager<'_>, name: &'static str) -> Vec<CertificateDer<'static>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = AnyCertificate(Arc::clone(&provider));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let Ok(stream) = TcpStream::connect(manager.url.trim_start_matches("https://")).await else {
        return Vec::new();
    };
    let name = ServerName::try_from(name).expect("a name");
    let Ok(stream) = TlsConnector::from(Arc::new(config)).connect(name, stream).await else {
        return Vec::new();
    };
    stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec()
}

/// Certificate and key of a new intermediate CA that ends within two hours, and the certificate in DER.
fn intermediate() -> (String, String, CertificateDer<'static>) {
    let params = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let key = || KeyPair::generate().expect("a key");
    let root = CertifiedIssuer::self_signed(params("root"), key()).expect("a root");
    let mut params = params("intermediate");
    let now = u64::try_from(SystemClock.now().as_second()).expect("a time after 1970");
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(now + SHORT);
    let key = key();
    let certificate = params.signed_by(&key, &root).expect("a certificate");
    (certificate.pem(), key.serialize_pem(), certificate.der().clone())
}

/// The leaf is for one name, ends with its CA, and comes with its CA.
fn assert_signed_by(chain: &[CertificateDer<'_>], ca: &CertificateDer<'_>) {
    assert_eq!(chain.len(), 2, "a leaf and its CA");
    assert_eq!(&chain[1], ca);
    let [leaf, ca] = [&chain[0], ca].map(|der| X509Certificate::from_der(der).expect("a certificate").1);
    leaf.verify_signature(Some(ca.public_key())).expect("a signature of the CA");
    let names = leaf.subject_alternative_name().expect("an extension").expect("names");
    assert_eq!(names.value.general_names, [GeneralName::DNSName(COXSWAIN_NAME)]);
    assert_eq!(leaf.validity().not_after, ca.validity().not_after);
}

#[tokio::test]
async fn certificate_for_the_name_of_coxswain_is_signed_by_the_ca_in_the_files() {
    let plane = ControlPlane::shared();
    let dir = tempfile::tempdir().expect("a directory");
    let (cert_file, key_file) = (dir.path().join("ca.crt"), dir.path().join("ca.key"));
    let put = |cert: &str, key: &str| {
        fs::write(&cert_file, cert).expect("written");
        fs::write(&key_file, key).expect("written");
    };
    let (cert, key, first) = intermediate();
    put(&cert, &key);
    let files = [
        format!("--cluster-signing-cert-file={}", cert_file.display()),
        format!("--cluster-signing-key-file={}", key_file.display()),
    ];
    let args = ["--tls-cert-file=", "--tls-private-key-file=", &files[0], &files[1]];
    let manager = plane.coxswain_unawaited("signed", &args);
    let by_name = || chain(&manager, COXSWAIN_NAME);
    let signed = until("a certificate", LIMIT, by_name, |chain| !chain.is_empty()).await;
    assert_signed_by(&signed, &first);
    // Clients that connect by the address get the self-made certificate, whose CA the replica announces.
    let by_address = chain(&manager, ADDRESS).await;
    assert!(!by_address.is_empty(), "it serves");
    assert_ne!(by_address[0], signed[0]);

    let (cert, key, second) = intermediate();
    put(&cert, &key);
    let renewed =
        until("a certificate by the new CA", LIMIT, by_name, |chain| chain.get(1) == Some(&second)).await;
    assert_signed_by(&renewed, &second);
    manager.stop();

    // A certificate that flags name is the only one.
    let given = plane.running("coxswain");
    let by_name = chain(&given, COXSWAIN_NAME).await;
    assert!(!by_name.is_empty(), "it serves");
    assert_eq!(by_name, chain(&given, ADDRESS).await);
}

/// Writes a kubeconfig with the token of a service account that may do everything.
fn write_kubeconfig(plane: &ControlPlane, dir: &Path) -> PathBuf {
    plane.kubectl(&["-n", "kube-system", "create", "serviceaccount", "operator"]);
    let account = "--serviceaccount=kube-system:operator";
    plane.kubectl(&["create", "clusterrolebinding", "operator", "--clusterrole=cluster-admin", account]);
    let token = plane.kubectl(&["-n", "kube-system", "create", "token", "operator"]);
    let server = plane.kubectl(&["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"]);
    let cluster = json!({ "server": server, "certificate-authority": plane.report.ca_file });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": cluster }],
        "users": [{ "name": "a", "user": { "token": token.trim() } }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
    });
    let path = dir.join("kubeconfig");
    fs::write(&path, config.to_string()).expect("written");
    path
}

// The command line blocks the thread of the test while servers answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_line_sends_its_token_to_no_other_server_of_the_cluster_ca() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--scheduler=false", "--kwok=false"] });
    let manager = plane.coxswain_unawaited("signed", &["--tls-cert-file=", "--tls-private-key-file="]);
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = write_kubeconfig(&plane, dir.path());
    let run = || -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coxswain"));
        command.arg("controllers").env("KUBECONFIG", &kubeconfig).output().expect("the program")
    };
    let stderr = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let replica = ["-n", "kube-system", "lease", "-l", "coxswain.dev/component=replica"];
    let announced = || async {
        let field = r"jsonpath={.items[*].metadata.annotations.coxswain\.dev/admin-address}";
        plane.kubectl(&[&["get", "-o", field][..], &replica].concat())
    };
    let own = until("the address of the replica", LIMIT, announced, |address| !address.is_empty()).await;
    let announce = |address: &str| {
        let annotation = format!("coxswain.dev/admin-address={address}");
        plane.kubectl(&[&["annotate", "--overwrite"][..], &replica, &[annotation.as_str()]].concat());
    };

    // A server such as a kubelet: the CA of the cluster has signed its certificate for its address.
    let tokens = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&tokens);
    let answer = move |request: Request<Incoming>| {
        seen.fetch_add(usize::from(request.headers().contains_key(AUTHORIZATION)), Ordering::SeqCst);
        async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) }
    };
    let server = TlsServer::start(&plane.report.manager_serving, answer).await;
    let address = format!("{ADDRESS}:{}", server.port);
    // The replica may announce its own address again before the command line reads the Lease.
    let refused = || async {
        announce(&address);
        let output = run();
        (output.status.success(), stderr(&output))
    };
    let sent = || tokens.load(Ordering::SeqCst);
    until("the announced server to be refused", LIMIT, refused, |(is_shown, stderr)| {
        sent() > 0 || !is_shown && stderr.contains(&address)
    })
    .await;
    assert_eq!(sent(), 0, "a token was sent");

    announce(&own);
    let is_shown = || async {
        let output = run();
        (output.status.success(), stderr(&output))
    };
    until("the controllers of the leader", LIMIT, is_shown, |(is_shown, _)| *is_shown).await;
    manager.stop();
}

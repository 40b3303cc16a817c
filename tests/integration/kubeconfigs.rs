//! Kubeconfigs with which the Go manager runs, each under both managers: client keys of all kinds, a client certificate of X.509
//! version 1, base64 with line breaks, the API server's own certificate in the place of its authority, and no CA bundle.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coxswain_machinery::x509::fixtures::name_part;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::harness::{Caller, ControlPlane, Identity, Options, key_case, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(1);
/// Client keys, by their names among the cases. The signatures of larger ones take seconds without optimization.
const KEYS: [&str; 5] = [
    "RSA of 1024 bits",
    "RSA of 1536 bits",
    "RSA of 2048 bits with primes of unequal size",
    "P-256 without the public part",
    "P-521",
];

/// Base64 in lines, as `base64` without `-w0` prints it.
fn in_lines(text: &str) -> String {
    let text = STANDARD.encode(text);
    let lines = text.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line).into_owned() + "\n");
    lines.collect()
}

fn kubeconfig(
    plane: &ControlPlane,
    authority: &str,
    own: &Identity,
    encode: impl Fn(&str) -> String,
) -> String {
    let cluster = json!({ "certificate-authority-data": encode(authority) });
    kubeconfig_of(plane, cluster, own, encode)
}

fn kubeconfig_of(
    plane: &ControlPlane,
    mut cluster: Value,
    own: &Identity,
    encode: impl Fn(&str) -> String,
) -> String {
    cluster["server"] = json!(format!("https://{}", plane.server()));
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
        "clusters": [{ "name": "it", "cluster": cluster }],
        "users": [{ "name": "it", "user": {
            "client-certificate-data": encode(&own.cert), "client-key-data": encode(&own.key) } }],
    })
    .to_string()
}

#[tokio::test]
async fn managers_run_with_every_client_certificate_and_encoding_that_go_accepts() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: Vec::new() });
    let folder = tempfile::tempdir().expect("a directory");
    let subject = || name_part(3, 0x0c, b"system:kube-controller-manager");
    let identity = |name: &str, version| Identity::issue(&plane, key_case(name), subject(), version);
    let read = |file: &str| {
        let path = plane.report.ca_file.with_file_name(file);
        std::fs::read_to_string(path).expect("a certificate")
    };
    let (authority, usual) = (read("ca.crt"), |text: &str| STANDARD.encode(text));
    let mut all: Vec<(String, String)> = KEYS
        .iter()
        .map(|name| ((*name).to_owned(), kubeconfig(&plane, &authority, &identity(name, Some(2)), usual)))
        .collect();
    let own = identity("P-256", Some(2));
    all.extend([
        ("X.509 version 1".to_owned(), kubeconfig(&plane, &authority, &identity("P-256", None), usual)),
        ("base64 in lines".to_owned(), kubeconfig(&plane, &authority, &own, in_lines)),
        ("the server's own certificate".to_owned(), kubeconfig(&plane, &read("apiserver.crt"), &own, usual)),
    ]);
    for (at, (name, text)) in all.iter().enumerate() {
        println!("{name}");
        let file = folder.path().join(format!("{at}.kubeconfig"));
        std::fs::write(&file, text).expect("written");
        let args = [&format!("--kubeconfig={}", file.display())[..], "--controllers=ttl-controller"];
        for program in ["go", "coxswain"] {
            let called = format!("{program}-{at}");
            let manager = match program {
                "go" => plane.go_manager(&called, &args),
                _ => plane.coxswain(&called, &args),
            };
            manager.await_start(LIMIT).await;
            manager.stop();
        }
    }
}

#[tokio::test]
async fn managers_without_a_ca_bundle_publish_an_empty_one_and_are_healthy() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: Vec::new() });
    let folder = tempfile::tempdir().expect("a directory");
    let own = Identity::issue(
        &plane,
        key_case("P-256"),
        name_part(3, 0x0c, b"system:kube-controller-manager"),
        Some(2),
    );
    let insecure = json!({ "insecure-skip-tls-verify": true });
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig_of(&plane, insecure, &own, |text| STANDARD.encode(text)))
        .expect("written");
    let args = [
        &format!("--kubeconfig={}", file.display())[..],
        "--root-ca-file=",
        "--controllers=root-ca-certificate-publisher-controller",
    ];
    for program in ["go", "coxswain"] {
        let manager = match program {
            "go" => plane.go_manager(program, &args),
            _ => plane.coxswain(program, &args),
        };
        let namespace = plane.cluster().await.namespace(program).await;
        let maps = namespace.api::<ConfigMap>();
        let published = || async { maps.get_opt("kube-root-ca.crt").await.expect("an answer") };
        let published = until(&format!("the bundle of {program}"), LIMIT, published, Option::is_some).await;
        let data = published.expect("just seen").data.unwrap_or_default();
        assert_eq!(data, [("ca.crt".to_owned(), String::new())].into(), "{program}");
        let health = || async { manager.page(Caller::Admin, "/healthz").await.status };
        until(&format!("the health of {program}"), LIMIT, health, |status| *status == 200).await;
        manager.stop();
    }
}

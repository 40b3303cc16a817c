//! Certificate requests in every state change hands: who takes over writes nothing, and goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{ELECTION, LIMIT, end_of_log, leads, named, writes_of};
use crate::harness::{ControlPlane, Options, Program, object, until};

const CONTROLLERS: &str = "--controllers=certificatesigningrequest-approving-controller,\
    certificatesigningrequest-signing-controller,deployment-controller";
const KINDS: [&str; 1] = ["certificatesigningrequests"];
/// A node's certificate to log in with, somebody else's, and one that nobody here signs.
const SIGNERS: [&str; 3] = [
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kube-apiserver-client",
    "example.com/signer",
];

fn api(client: &Client) -> Api<CertificateSigningRequest> {
    Api::all(client.clone())
}

async fn state(client: &Client) -> BTreeMap<String, Value> {
    let all = api(client).list(&ListParams::default()).await.expect("requests");
    all.items.iter().map(|each| named(serde_json::to_value(each))).collect()
}

/// Waits until two looks, some time apart, see the same.
async fn quiet(client: &Client) -> BTreeMap<String, Value> {
    let look = || async {
        let before = state(client).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        (before == state(client).await).then_some(before)
    };
    until("the cluster is quiet", LIMIT, look, Option::is_some).await.expect("a state")
}

/// A request of a node's name.
async fn create(client: &Client, name: &str, signer: &str, usages: &[&str]) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n1");
    let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let request = object(json!({
        "metadata": { "name": name },
        "spec": { "signerName": signer, "usages": usages, "request": ByteString(request.into_bytes()) },
    }));
    api(client).create(&PostParams::default(), &request).await.expect("it is created");
}

async fn decide(client: &Client, name: &str, decision: &str) {
    let condition = json!({ "type": decision, "status": "True", "reason": "Test", "message": "by hand" });
    let decided = json!({ "status": { "conditions": [condition] } });
    let patch = Patch::Strategic(&decided);
    api(client).patch_approval(name, &PatchParams::default(), &patch).await.expect("it is decided");
}

fn is_issued(state: &BTreeMap<String, Value>, name: &str) -> bool {
    state[name]["status"]["certificate"].is_string()
}

#[tokio::test]
async fn certificate_requests_change_hands_twice() {
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--audit"] });
    let client = plane.cluster().await.client;
    let args = [&[CONTROLLERS][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    let usages = ["digital signature", "client auth"];
    // An administrator may have any node's certificate: this one is approved by a manager, the others are not.
    create(&client, "approved-0", SIGNERS[0], &usages).await;
    for (at, signer) in SIGNERS.iter().enumerate().skip(1) {
        for state in ["open", "denied", "approved"] {
            create(&client, &format!("{state}-{at}"), signer, &usages).await;
        }
        decide(&client, &format!("denied-{at}"), "Denied").await;
        decide(&client, &format!("approved-{at}"), "Approved").await;
    }
    create(&client, "fails", SIGNERS[1], &["server auth", "client auth"]).await;
    decide(&client, "fails", "Approved").await;
    let is_done = |state: &BTreeMap<String, Value>| {
        ["approved-0", "approved-1"].iter().all(|name| is_issued(state, name))
            && state["fails"]["status"]["conditions"][1]["type"] == "Failed"
    };
    until("all is signed", LIMIT, || state(&client), is_done).await;
    let before = quiet(&client).await;
    assert!(is_issued(&before, "approved-0"));
    assert!(!is_issued(&before, "open-1") && !is_issued(&before, "approved-2"));

    let end = end_of_log(&plane);
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    let taken = quiet(&client).await;
    let written = writes_of(&plane, end, Program::Coxswain, &KINDS);
    assert_eq!(written, Vec::<String>::new(), "Coxswain wrote when it took over");
    assert_eq!(taken, before, "Coxswain changed something");

    // It does its work meanwhile: what waited is approved by hand, and a node joins.
    decide(&client, "open-1", "Approved").await;
    create(&client, "joins", SIGNERS[0], &usages).await;
    let is_done = |state: &BTreeMap<String, Value>| is_issued(state, "open-1") && is_issued(state, "joins");
    until("both are signed", LIMIT, || state(&client), is_done).await;
    let worked = quiet(&client).await;

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    let back = quiet(&client).await;
    let written = writes_of(&plane, end, Program::Go, &KINDS);
    assert_eq!(written, Vec::<String>::new(), "the Go manager wrote when it got it back");
    assert_eq!(back, worked, "the Go manager changed something");
}

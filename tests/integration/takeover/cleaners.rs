//! What waits to be cleaned up changes hands: who takes over does what is due, and leaves all else as it is.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::{SignedDuration, Unit};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{ELECTION, LIMIT, end_of_log, leads, writes_of};
use crate::harness::{ControlPlane, Options, Program, until};

const CONTROLLERS: &str = "--controllers=certificatesigningrequest-cleaner-controller,\
    kube-apiserver-serving-clustertrustbundle-publisher-controller,\
    legacy-serviceaccount-token-cleaner-controller,podcertificaterequest-cleaner-controller,deployment-controller";
const PERIOD: &str = "--legacy-service-account-token-clean-up-period=24h";
const KINDS: [&str; 4] =
    ["certificatesigningrequests", "clustertrustbundles", "podcertificaterequests", "secrets"];
/// Where API servers say since when they note the use of tokens.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

/// The resource versions of all that there is, by kind and name.
fn state(plane: &ControlPlane) -> BTreeMap<String, String> {
    let all = plane.kubectl(&["get", &KINDS.join(","), "-A", "-o", "json"]);
    let all: Value = serde_json::from_str(&all).expect("JSON");
    let items = all["items"].as_array().expect("items").iter().map(|each| {
        let name = format!("{}/{}", each["kind"], each["metadata"]["name"]).replace('"', "");
        (name, each["metadata"]["resourceVersion"].to_string())
    });
    items.collect()
}

/// Waits until two looks, some time apart, see the same, without these.
async fn quiet(plane: &ControlPlane, gone: &[&str]) -> BTreeMap<String, String> {
    let look = || async {
        let before = state(plane);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        (before == state(plane) && !gone.iter().any(|name| before.contains_key(*name))).then_some(before)
    };
    until("the cluster is quiet", LIMIT, look, Option::is_some).await.expect("a state")
}

/// The time so many seconds ago.
fn ago(seconds: i64) -> String {
    let then = SystemClock.now().round(Unit::Second).expect("a second") - SignedDuration::from_secs(seconds);
    then.to_string()
}

/// Writes an object to etcd: the API server would not take its age.
async fn store(plane: &ControlPlane, place: &str, mut object: Value, age: i64) {
    object["metadata"]["uid"] = Uuid::new_v4().to_string().into();
    object["metadata"]["creationTimestamp"] = ago(age).into();
    let key = format!("/registry/{place}/{}", object["metadata"]["name"].as_str().expect("a name"));
    let [key, value] = [key, object.to_string()].map(|text| STANDARD.encode(text));
    plane.etcd("put", &json!({ "key": key, "value": value })).await;
}

/// Requests for certificates: each sort too young to go, and old enough.
async fn store_requests(plane: &ControlPlane) {
    for (name, age, since) in [("young", 36_000, 1800), ("old", 90_000, 7200)] {
        let said = |kind: &str, since| json!([{ "type": kind, "status": "True", "reason": "Test", "lastUpdateTime": ago(since) }]);
        for (what, conditions) in
            [("open", json!([])), ("denied", said("Denied", since)), ("approved", said("Approved", age))]
        {
            let request = json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                "metadata": { "name": format!("{what}-{name}") },
                "spec": { "signerName": "example.com/signer", "username": "someone", "usages": ["client auth"],
                    "request": STANDARD.encode("a request") },
                "status": { "conditions": conditions } });
            store(plane, "certificatesigningrequests", request, age).await;
        }
    }
    for (name, age) in [("young", 100), ("old", 1000)] {
        let request = json!({ "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "signerName": "example.com/signer", "podName": "p", "nodeName": "n",
                "serviceAccountName": "default", "maxExpirationSeconds": 3600 } });
        store(plane, "podcertificaterequests/default", request, age).await;
    }
}

/// Tokens of an account: used lately, unused, and marked, lately or long ago.
async fn store_tokens(plane: &ControlPlane) {
    let since = json!({ "data": { "since": "2020-01-01" } }).to_string();
    plane.kubectl(&["-n", "kube-system", "patch", "configmap", TRACKING, "--type=merge", "-p", &since]);
    plane.kubectl(&["create", "serviceaccount", "robot"]);
    let names = ["used", "unused", "marked", "forgotten"];
    let secrets: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    let patch = json!({ "secrets": secrets }).to_string();
    plane.kubectl(&["patch", "serviceaccount", "robot", "--type=merge", "-p", &patch]);
    let uid = plane.kubectl(&["get", "serviceaccount", "robot", "-o", "jsonpath={.metadata.uid}"]);
    for name in names {
        let labels = match name {
            "used" => json!({ "kubernetes.io/legacy-token-last-used": "2999-01-01" }),
            "marked" => json!({ "kubernetes.io/legacy-token-invalid-since": "2999-01-01" }),
            "forgotten" => json!({ "kubernetes.io/legacy-token-invalid-since": "2020-01-02" }),
            _ => json!({}),
        };
        let annotations = json!({ "kubernetes.io/service-account.name": "robot",
            "kubernetes.io/service-account.uid": uid });
        let secret = json!({ "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": name, "namespace": "default", "labels": labels, "annotations": annotations },
            "type": "kubernetes.io/service-account-token", "data": { "token": STANDARD.encode("x") } });
        store(plane, "secrets/default", secret, 100_000).await;
    }
}

/// The bundle of the API server's authorities.
fn bundle(state: &BTreeMap<String, String>) -> Option<&str> {
    let name = state.keys().find_map(|name| name.strip_prefix("ClusterTrustBundle/"));
    name.filter(|name| name.starts_with("kubernetes.io:kube-apiserver-serving:"))
}

#[tokio::test]
async fn what_waits_to_be_cleaned_up_changes_hands_twice() {
    let args = [&["--audit"][..], ControlPlane::GATED_ARGS].concat();
    let plane = ControlPlane::start(&Options { nodes: 0, args });
    let args = [&[CONTROLLERS, PERIOD][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    leads(&go).await;
    let published = async || bundle(&state(&plane)).map(str::to_owned);
    let bundle = until("a bundle", LIMIT, published, Option::is_some).await.expect("it was waited for");
    // It has looked when it started, and does so again in five minutes, an hour and a day.
    store_requests(&plane).await;
    store_tokens(&plane).await;
    let before = quiet(&plane, &[]).await;

    let end = end_of_log(&plane);
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    let due = [
        "CertificateSigningRequest/open-old",
        "CertificateSigningRequest/denied-old",
        "CertificateSigningRequest/approved-old",
        "PodCertificateRequest/old",
        "Secret/forgotten",
    ];
    let taken = quiet(&plane, &due).await;
    let mut written = writes_of(&plane, end, Program::Coxswain, &KINDS);
    written.sort_unstable();
    assert_eq!(written.len(), due.len() + 1, "what was due, and a mark: {written:#?}");
    let changed: Vec<&String> = before.keys().filter(|name| before.get(*name) != taken.get(*name)).collect();
    let mut expected = [&due[..], &["Secret/unused"]].concat();
    expected.sort_unstable();
    assert_eq!(changed, expected);

    // It does its work meanwhile: the bundle is put right.
    plane.kubectl(&["delete", "clustertrustbundle", &bundle]);
    until("the bundle", LIMIT, published, |found| found.as_ref() == Some(&bundle)).await;
    let worked = quiet(&plane, &[]).await;

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    let back = quiet(&plane, &[]).await;
    let written = writes_of(&plane, end, Program::Go, &KINDS);
    assert_eq!(written, Vec::<String>::new(), "the Go manager wrote when it got it back");
    assert_eq!(back, worked, "the Go manager changed something");
}

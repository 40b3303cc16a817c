//! No secret is ever told: not by the log at its most talkative, not by traces, not by any page or answer.
//!
//! Everything secret that passes through a manager is given a content that can be recognized, and then looked for.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coxswain::admin::proto::{self, EventType};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace as CoreNamespace, Pod, ResourceQuota, Secret, ServiceAccount,
};
use kube::api::{Api, DeleteParams, PostParams};
use rcgen::KeyPair;
use serde_json::json;

use crate::admin::{Admin, Who, files};
use crate::certificates::{issued, request};
use crate::harness::{
    Caller, Cluster, ControlPlane, Manager, Namespace, Options, eventually, object, turn, until,
};
use crate::profiling::profile;
use crate::tracing::Collector;

const LIMIT: Duration = Duration::from_mins(2);
/// What the marks in the contents have in common.
const MARK: &str = "hush-";

/// What must not be found, by what it is.
type Known = BTreeMap<String, String>;

fn learn(known: &mut Known, what: &str, secret: &str) {
    assert!(secret.len() >= 8, "{what} is too short to be looked for");
    known.insert(format!("{what}, in base64"), STANDARD.encode(secret));
    known.insert(what.to_owned(), secret.to_owned());
}

/// The lines of a private key, each enough to know it by.
fn learn_key(known: &mut Known, what: &str, pem: &str) {
    let lines = pem.lines().filter(|line| line.len() > 20 && !line.starts_with('-'));
    for (at, line) in lines.enumerate() {
        known.insert(format!("{what}, line {at}"), line.to_owned());
    }
}

/// Keys that the manager is given.
fn learn_files(known: &mut Known, plane: &ControlPlane) {
    let kubeconfig = plane.report.manager_args.iter().find_map(|arg| arg.strip_prefix("--kubeconfig="));
    let (_, key) = files(Path::new(kubeconfig.expect("the manager's kubeconfig")));
    learn_key(known, "the kubeconfig's key", &String::from_utf8(key.clone()).expect("PEM"));
    known.insert("the kubeconfig's key, in base64".to_owned(), STANDARD.encode(&key)[..60].to_owned());
    let serving = fs::read_to_string(&plane.report.manager_serving.key_file).expect("the serving key");
    learn_key(known, "the serving key", &serving);
    let mut signing = plane.report.manager_args.iter();
    let signing =
        signing.find_map(|arg| arg.strip_prefix("--service-account-private-key-file=")).expect("a key");
    learn_key(known, "the signing key", &fs::read_to_string(signing).expect("the signing key"));
    let authority = |arg: &String| arg.strip_prefix("--cluster-signing-key-file=").map(str::to_owned);
    let authority = plane.report.manager_args.iter().find_map(authority).expect("a key of an authority");
    learn_key(known, "the authority's key", &fs::read_to_string(authority).expect("the authority's key"));
    assert!(known.len() > 10, "{known:?}");
}

/// Makes the manager read, write, sign and delete what is secret; the namespace in which it does.
async fn secrets_pass(known: &mut Known, plane: &ControlPlane, cluster: &Cluster) -> Namespace {
    let namespace = cluster.namespace("quiet").await;
    let mark = |what: &str| format!("{MARK}{what}-{}", namespace.name);
    let (data, annotation, environment) = (mark("data"), mark("annotation"), mark("environment"));
    for (what, secret) in
        [("data", &data), ("an annotation", &annotation), ("a pod's environment", &environment)]
    {
        learn(known, &format!("{what} in {}", namespace.name), secret);
    }
    let last_applied = json!({ "kubectl.kubernetes.io/last-applied-configuration": annotation });
    let opaque =
        json!({ "metadata": { "name": "opaque", "annotations": last_applied }, "stringData": { "k": data } });
    namespace.create::<Secret>(opaque).await;
    let env = json!([{ "name": "PASSWORD", "value": environment }]);
    let containers = json!([{ "name": "web", "image": "nginx:1", "env": env }]);
    namespace.deployment("web", 2, json!({ "template": { "spec": { "containers": containers } } })).await;
    // Pods of this one are refused, with words about it.
    let containers = json!([{ "name": "web", "image": "nginx:1", "env": env,
        "resources": { "limits": { "cpu": "1" }, "requests": { "cpu": "1" } } }]);
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "requests.cpu": "0" } } });
    namespace.create::<ResourceQuota>(quota).await;
    // The API server knows a new quota by its watch, and admits what comes before.
    let probe =
        object::<Pod>(json!({ "metadata": { "name": "probe" }, "spec": { "containers": containers } }));
    let (pods, dry_run) = (namespace.api::<Pod>(), PostParams { dry_run: true, ..PostParams::default() });
    let refused = || async { pods.create(&dry_run, &probe).await.is_err() };
    eventually("the quota to be in force", LIMIT, refused).await;
    namespace.deployment("refused", 1, json!({ "template": { "spec": { "containers": containers } } })).await;

    let account = namespace.create::<ServiceAccount>(json!({ "metadata": { "name": "robot" } })).await;
    let of = json!({ "kubernetes.io/service-account.name": account.metadata.name });
    let legacy = json!({ "metadata": { "name": "robot-token", "annotations": of },
        "type": "kubernetes.io/service-account-token" });
    namespace.create::<Secret>(legacy).await;
    let secrets: Api<Secret> = namespace.api();
    let signed = || async {
        let data = secrets.get("robot-token").await.expect("the Secret").data?;
        Some(String::from_utf8(data.get("token")?.0.clone()).expect("text"))
    };
    let token = until("a signed token", LIMIT, signed, Option::is_some).await.expect("it was waited for");
    learn_token(known, &format!("the signed token in {}", namespace.name), &token);

    bootstrap_tokens_pass(known, cluster, &namespace).await;

    // A certificate is signed with the authority's key.
    let (node, key) = (namespace.name.as_str(), KeyPair::generate().expect("a key"));
    let who = [&*format!("system:node:{node}"), "system:nodes"];
    request(plane, node, "kubernetes.io/kube-apiserver-client-kubelet", &key, who).await;
    issued(plane, node).await;

    // What was told once goes again.
    secrets.delete("opaque", &DeleteParams::default()).await.expect("it is deleted");
    plane.kubectl(&["-n", &namespace.name, "delete", "deployment", "web", "--wait=false"]);
    namespace
}

/// A bootstrap token signs the description of the cluster, and another one is cleaned away.
async fn bootstrap_tokens_pass(known: &mut Known, cluster: &Cluster, namespace: &Namespace) {
    let system: Api<Secret> = Api::namespaced(cluster.client.clone(), "kube-system");
    let number = namespace.name.rsplit('-').next().expect("a number");
    let token = |kind: char, expiration: &str| {
        let (id, secret) = (format!("{kind}{number:0>5}"), format!("hush{kind}{number:0>11}"));
        let fields = json!({ "token-id": id, "token-secret": secret, "usage-bootstrap-signing": "true",
            "usage-bootstrap-authentication": "true", "expiration": expiration });
        let object = json!({ "metadata": { "name": format!("bootstrap-token-{id}") },
            "type": "bootstrap.kubernetes.io/token", "stringData": fields });
        (id, secret, object)
    };
    let described =
        json!({ "metadata": { "name": "cluster-info" }, "data": { "kubeconfig": "apiVersion: v1" } });
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "kube-public");
    if maps.get_opt("cluster-info").await.expect("an answer").is_none() {
        maps.create(&PostParams::default(), &object(described)).await.expect("it is created");
    }
    let (id, secret, signing) = token('s', "2100-01-01T00:00:00Z");
    learn(known, &format!("a bootstrap token ({id})"), &secret);
    system.create(&PostParams::default(), &object(signing)).await.expect("it is created");
    let signature = format!("jws-kubeconfig-{id}");
    let signed = || async {
        let map = maps.get("cluster-info").await.expect("the ConfigMap");
        map.data.is_some_and(|data| data.contains_key(&signature))
    };
    until("the description of the cluster to be signed", LIMIT, signed, |signed| *signed).await;
    let (id, secret, expired) = token('e', "2020-01-01T00:00:00Z");
    learn(known, &format!("an expired bootstrap token ({id})"), &secret);
    let name = expired["metadata"]["name"].as_str().expect("a name").to_owned();
    system.create(&PostParams::default(), &object(expired)).await.expect("it is created");
    let left = || async { system.get_opt(&name).await.expect("an answer").is_some() };
    until("the expired token to be cleaned", LIMIT, left, |left| !left).await;
}

/// What somebody is answered who may ask everything: controllers, queues, objects explained, and all that has happened.
async fn told_to_master(plane: &ControlPlane, manager: &Manager<'_>, namespace: &Namespace) -> Vec<String> {
    let master = Admin::master(plane, manager);
    let mut answers = vec![format!("{:?}", master.list(&[]).await)];
    let queues = master.queues().list_queues(proto::ListQueuesRequest::default()).await.expect("queues");
    answers.push(format!("{queues:?}"));
    for (controller, namespace, name) in [
        ("serviceaccount-token-controller", namespace.name.as_str(), "robot-token"),
        ("deployment-controller", namespace.name.as_str(), "refused"),
        ("certificatesigningrequest-signing-controller", "", namespace.name.as_str()),
    ] {
        let request = proto::ExplainObjectRequest {
            controller: controller.to_owned(),
            object: Some(proto::ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }),
            queue: String::new(),
        };
        // Some have more than one queue, and say so.
        answers.push(format!("{:?}", master.queues().explain_object(request).await));
    }
    for of in [EventType::PhaseChanged, EventType::ReconcileFailed, EventType::ApiWrite] {
        answers.push(format!("{:?}", master.past("", of).await));
    }
    answers
}

/// The names in profiles of CPU and memory.
async fn profiles(manager: &Manager<'_>) -> Vec<String> {
    let mut told = Vec::new();
    for path in ["/debug/pprof/profile?seconds=1", "/debug/pprof/heap?seconds=1"] {
        let answer = profile(manager, path).await;
        assert_eq!(answer.status(), 200, "{path}");
        let packed = tempfile::NamedTempFile::new().expect("a file");
        fs::write(packed.path(), answer.body()).expect("written");
        let unpacked = Command::new("gzip").arg("-dc").stdin(packed.reopen().expect("the file")).output();
        let unpacked = unpacked.expect("gzip is there");
        assert!(unpacked.status.success() && unpacked.stdout.len() > 100, "{path}: {:?}", unpacked.status);
        told.push(String::from_utf8_lossy(&unpacked.stdout).into_owned());
    }
    told
}

/// A token is known by its signature as well, which the rest would be useless without.
fn learn_token(known: &mut Known, what: &str, token: &str) {
    let signature = token.rsplit('.').next().expect("three parts");
    learn(known, &format!("{what}, its signature"), signature);
    learn(known, what, token);
}

/// Calls of everybody to everything, and all that they are answered.
async fn calls(
    known: &mut Known,
    plane: &ControlPlane,
    manager: &Manager<'_>,
    namespace: &Namespace,
) -> Vec<String> {
    let token = plane.kubectl(&["-n", &namespace.name, "create", "token", "robot"]).trim().to_owned();
    learn_token(known, &format!("a requested token in {}", namespace.name), &token);
    let unknown = format!("{MARK}bearer-{}", namespace.name);
    learn(known, &format!("a token of nobody in {}", namespace.name), &unknown);
    let mut answers = Vec::new();
    for caller in [Caller::Bearer(&token), Caller::Bearer(&unknown), Caller::Anonymous, Caller::Admin] {
        for path in [
            "/metrics",
            "/configz",
            "/flagz",
            "/statusz",
            "/debug/pprof/cmdline",
            "/healthz?verbose",
            "/nowhere",
        ] {
            let page = manager.page(caller, path).await;
            assert!(page.status < 500, "{path}: {page:?}");
            answers.push(page.text);
        }
    }
    for who in [Who::Token(&token), Who::Token(&unknown), Who::Nobody] {
        let request = proto::GetControllerRequest { name: "deployment".to_owned() };
        let refused = Admin::of(plane, manager, who).controllers().get_controller(request).await;
        answers.push(format!("{:?}", refused.expect_err("they may not")));
    }
    answers
}

fn assert_unknown(known: &Known, place: &str, text: &str) {
    for (what, secret) in known {
        if let Some(line) = text.lines().find(|line| line.contains(secret.as_str())) {
            let at = line.find(secret.as_str()).unwrap_or_default();
            let before: String =
                line[..at].chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
            panic!("{place} tells {what}; before it stands: {before}");
        }
    }
    let stray = text.lines().find(|line| line.contains(MARK));
    assert_eq!(stray, None, "{place} tells something secret");
}

#[tokio::test]
async fn nothing_that_a_manager_tells_is_secret() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&Options { nodes: 1, args: Vec::new() });
    let cluster = plane.cluster().await;
    let collector = Collector::new();
    collector.start_on(&plane);
    let mut known = Known::new();
    learn_files(&mut known, &plane);
    let header = format!("{MARK}otlp-header");
    learn(&mut known, "a header of OTLP", &header);
    let headers = format!("OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20{header}");
    let (endpoint, mut told) = (format!("--tracing-endpoint={}", collector.grpc), Vec::new());
    for format in ["text", "json"] {
        let controllers = "--controllers=*,bootstrap-signer-controller,token-cleaner-controller";
        let flags = [&format!("--logging-format={format}"), "--v=10", &*endpoint, controllers];
        let manager = plane.coxswain_with(format, &[&headers], &flags);
        let namespace = secrets_pass(&mut known, &plane, &cluster).await;
        let answers = calls(&mut known, &plane, &manager, &namespace).await;
        told.push((format!("an answer ({format})"), answers.join("\n")));
        let answers = told_to_master(&plane, &manager, &namespace).await;
        told.push((format!("an answer of the admin API ({format})"), answers.join("\n")));
        told.push((format!("a profile ({format})"), profiles(&manager).await.join("\n")));
        let events = || async { plane.kubectl(&["get", "events", "--all-namespaces", "-o", "json"]) };
        let told_of = |events: &String| events.contains("FailedCreate");
        let events = until("an Event of the refused pod", LIMIT, events, told_of).await;
        told.push((format!("an Event ({format})"), events));
        // Then all that is left of it goes.
        let namespaces: Api<CoreNamespace> = Api::all(cluster.client.clone());
        let deployments: Api<Deployment> = namespace.api();
        namespaces.delete(&namespace.name, &DeleteParams::default()).await.expect("it is deleted");
        let left = || async { deployments.get_opt("refused").await.expect("an answer").is_some() };
        until("the namespace to be emptied", LIMIT, left, |left| !left).await;
        manager.stop();
        assert!(manager.exit().starts_with("exit status 0"), "{}", manager.exit());
        let log = manager.log();
        // The launcher writes down the command lines that it is given.
        let log = log.lines().filter(|line| !line.starts_with("=== ")).collect::<Vec<_>>().join("\n");
        assert!(log.lines().count() > 500, "this log says too little to prove anything:\n{log}");
        assert!(log.contains("robot-token"), "it tells of Secrets by their names");
        told.push((format!("the log ({format})"), log));
    }
    let spans = fs::read_to_string(collector.file()).expect("spans");
    assert!(
        spans.contains("event secrets") && spans.contains("robot-token"),
        "spans tell of Secrets as well"
    );
    told.push(("a span".to_owned(), spans));
    for (place, text) in &told {
        assert_unknown(&known, place, text);
    }
}

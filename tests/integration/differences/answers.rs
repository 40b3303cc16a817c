//! Rows about answers of the API server: refusals that ask to wait, answers that come too late, a 404 of another program, and objects
//! that cannot be read.
//!
//! One manager with one worker plays all of them, through a proxy, in this order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, StatusCode, Uri};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{Api, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::{
    Caller, Cluster, ControlPlane, Fate, Namespace, Options, Program, Proxy, Tamper, create, eventually,
    object, turn_beside_another, until, webhook,
};

const LIMIT: Duration = Duration::from_mins(1);
/// Creates that are refused in a namespace whose name has this in it, with a second to wait after each.
const BUSY: &str = "busy";
const REFUSALS: usize = 4;
/// A ReplicaSet of this name cannot be decoded.
const BROKEN: &str = "broken";

/// An Event of this name exists, and a GET of it is answered with 404. The garbage collector watches no Events, so it reads them.
const HIDDEN: &str = "hidden";

/// The creates of pods, in order: the namespace, and whether it was admitted.
type Creates = Arc<Mutex<Vec<(String, bool)>>>;

fn judge(request: &Value, creates: &Creates) -> Value {
    let namespace = request["namespace"].as_str().unwrap_or_default();
    if request["dryRun"] == true {
        return json!({ "allowed": !namespace.contains("probe") });
    }
    let mut creates = creates.lock();
    let refused = creates.iter().filter(|(name, admitted)| name == namespace && !admitted).count();
    let is_admitted = !namespace.contains(BUSY) || refused >= REFUSALS;
    creates.push((namespace.to_owned(), is_admitted));
    if is_admitted {
        return json!({ "allowed": true });
    }
    let details = json!({ "retryAfterSeconds": 1 });
    let status = json!({ "code": 429, "reason": "TooManyRequests", "message": "busy", "details": details });
    json!({ "allowed": false, "status": status })
}

/// Carries out a create of a pod and answers that it timed out, once for each namespace; and damages the ReplicaSets of one name.
#[derive(Default)]
struct Line {
    /// Namespaces whose next create times out.
    late: Mutex<BTreeSet<String>>,
}

impl Line {
    fn damage(object: &mut Value) {
        // Items of a list have no kind.
        if object["metadata"]["name"] == BROKEN && object["spec"]["template"].is_object() {
            object["spec"]["replicas"] = "many".into();
        }
    }
}

impl Tamper for Line {
    fn json_answer(&self, mut body: Value) -> Value {
        for item in body.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
            Self::damage(item);
        }
        body
    }

    fn json_event(&self, mut event: Value) -> Value {
        if let Some(object) = event.get_mut("object") {
            Self::damage(object);
        }
        event
    }

    fn fate<'a>(&'a self, method: &'a Method, uri: &'a Uri) -> BoxFuture<'a, Fate> {
        // No proxy or aggregated API server names the object in such an answer.
        if *method == Method::GET && uri.path().ends_with(&format!("/events/{HIDDEN}")) {
            return Box::pin(std::future::ready(Fate::Refused(StatusCode::NOT_FOUND)));
        }
        let mut late = self.late.lock();
        // Linear: a test has few namespaces.
        let found =
            late.iter().find(|name| uri.path().ends_with(&format!("/namespaces/{name}/pods"))).cloned();
        let is_late = *method == Method::POST && found.is_some_and(|name| late.remove(&name));
        let fate = if is_late { Fate::Hidden(StatusCode::GATEWAY_TIMEOUT) } else { Fate::Passes };
        Box::pin(std::future::ready(fate))
    }
}

async fn replica_set(namespace: &Namespace, name: &str) {
    namespace.default_account().await;
    namespace.replica_set(name, 1).await;
}

async fn replicas(namespace: &Namespace, name: &str) -> i32 {
    let set = namespace.api::<ReplicaSet>().get(name).await.expect("the ReplicaSet");
    set.status.map_or(0, |status| status.replicas)
}

async fn await_pods(namespace: &Namespace, name: &str, count: i32) {
    let look = || replicas(namespace, name);
    until(&format!("{count} pods of {name}"), LIMIT, look, |seen| *seen == count).await;
}

/// The webhook refuses creates of pods in a namespace of its own, without a wait.
async fn webhook_is_in_force(cluster: &Cluster) {
    let probed = cluster.namespace("probe").await;
    probed.default_account().await;
    let probe = object::<Pod>(
        json!({ "metadata": { "name": "probe" }, "spec": { "containers": [{ "name": "main", "image": "image" }] } }),
    );
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let pods: Api<Pod> = Api::namespaced(cluster.once.clone(), &probed.name);
    eventually("the webhook is in force", LIMIT, async || pods.create(&dry, &probe).await.is_err()).await;
}

/// The order in which pods of a busy namespace and of another one are created, by one worker.
async fn order(cluster: &Cluster, creates: &Creates) -> Vec<&'static str> {
    let busy = cluster.namespace(BUSY).await;
    let other = cluster.namespace("other").await;
    replica_set(&busy, "web").await;
    let refused = async || creates.lock().iter().any(|(name, _)| *name == busy.name);
    eventually("a refusal", LIMIT, refused).await;
    replica_set(&other, "web").await;
    await_pods(&busy, "web", 1).await;
    await_pods(&other, "web", 1).await;
    let creates = creates.lock();
    let admitted =
        creates.iter().filter(|(name, admitted)| *admitted && [&busy.name, &other.name].contains(&name));
    admitted.map(|(name, _)| if *name == busy.name { "busy" } else { "other" }).collect()
}

/// The creates of pods of a ReplicaSet whose first create times out after it was carried out.
async fn creates_after_timeout(cluster: &Cluster, line: &Line, creates: &Creates) -> usize {
    let namespace = cluster.namespace("late").await;
    line.late.lock().insert(namespace.name.clone());
    replica_set(&namespace, "web").await;
    await_pods(&namespace, "web", 1).await;
    let more = Patch::Merge(json!({ "spec": { "replicas": 2 } }));
    let sets = namespace.api::<ReplicaSet>();
    sets.patch("web", &PatchParams::default(), &more).await.expect("it is scaled");
    await_pods(&namespace, "web", 2).await;
    creates.lock().iter().filter(|(name, _)| *name == namespace.name).count() - 1
}

/// Whether a ConfigMap is kept whose owner is answered with a 404 that does not name it.
async fn keeps_dependent(cluster: &Cluster) -> bool {
    let namespace = cluster.namespace("owned").await;
    let involved = json!({ "kind": "Namespace", "name": "owned", "namespace": namespace.name });
    let owner: Event =
        namespace.create(json!({ "metadata": { "name": HIDDEN }, "involvedObject": involved })).await;
    let map = async |name: &str, owner: &str, uid: &str| {
        let owners = json!([{ "apiVersion": "v1", "kind": "Event", "name": owner, "uid": uid }]);
        let _: ConfigMap =
            namespace.create(json!({ "metadata": { "name": name, "ownerReferences": owners } })).await;
    };
    map("owned", HIDDEN, &owner.metadata.uid.expect("a UID")).await;
    map("marker", "absent", "11111111-2222-3333-4444-555555555555").await;
    let maps = namespace.api::<ConfigMap>();
    let is_gone = async |name: &str| maps.get_opt(name).await.expect("an answer").is_none();
    eventually("an object of an absent owner is deleted", LIMIT, async || is_gone("marker").await).await;
    !is_gone("owned").await
}

/// Differs: unnamed-404. Differs: waits-hold-no-worker. Differs: timeout-not-repeated. Differs: undecodable-object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_read_as_recorded() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--kwok=false", "--scheduler=false"] });
    let cluster = plane.cluster().await;
    let creates = Creates::default();
    let seen = Arc::clone(&creates);
    let (_webhook, config) = webhook(&plane, move |request| judge(request, &seen)).await;
    let webhooks = json!({ "metadata": { "name": "busy" }, "webhooks": [{
        "name": "busy.coxswain.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "failurePolicy": "Fail", "clientConfig": config,
        "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods"], "scope": "Namespaced" }],
    }] });
    create::<ValidatingWebhookConfiguration>(Api::all(cluster.client.clone()), webhooks).await;
    webhook_is_in_force(&cluster).await;

    for program in [Program::Go, Program::Coxswain] {
        let line = Arc::new(Line::default());
        let proxy = Proxy::start(&plane, Arc::clone(&line) as _).await;
        let master = format!("--master={}", proxy.url);
        let args = [
            "--controllers=replicaset-controller,garbage-collector-controller",
            "--concurrent-replicaset-syncs=1",
            "--leader-elect=false",
            "--kube-api-content-type=application/json",
            &master,
        ];
        let manager = match program {
            Program::Go => plane.go_manager("go", &args),
            Program::Coxswain => plane.coxswain("coxswain", &args),
        };
        let order = order(&cluster, &creates).await;
        let created = creates_after_timeout(&cluster, &line, &creates).await;
        let is_kept = keeps_dependent(&cluster).await;

        let namespace = cluster.namespace("damaged").await;
        replica_set(&namespace, BROKEN).await;
        match program {
            Program::Go => {
                assert_eq!(order, ["busy", "other"], "the worker waits");
                assert_eq!(created, 2, "the create is repeated");
                assert!(!is_kept, "a dependent of a living owner is deleted");
                let failures = async || manager.log().matches("cannot unmarshal").count();
                let seen =
                    until("an object that cannot be decoded", LIMIT, failures, |count| *count > 0).await;
                replica_set(&namespace, "web").await;
                until("it is tried again", LIMIT, failures, |count| *count > seen).await;
                assert_eq!(replicas(&namespace, "web").await, 0, "no ReplicaSet is reconciled");
                assert!(namespace.pods().await.is_empty());
            }
            Program::Coxswain => {
                assert_eq!(order, ["other", "busy"], "the worker does not wait");
                assert_eq!(created, 1, "the create is not repeated");
                assert!(is_kept, "a dependent of a living owner is kept");
                replica_set(&namespace, "web").await;
                await_pods(&namespace, "web", 1).await;
                let unreadable = async || {
                    let page = manager.page(Caller::Admin, "/metrics").await.text;
                    let own =
                        page.lines().filter(|line| line.starts_with("coxswain_informer_unreadable_objects{"));
                    own.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>()
                };
                until("the object is counted", LIMIT, unreadable, |count| *count >= 1.0).await;
            }
        }
        manager.stop();
        for set in [BROKEN, "web"] {
            let api = namespace.api::<ReplicaSet>();
            drop(api.delete(set, &kube::api::DeleteParams::default()).await.expect("it is deleted"));
        }
    }
}

//! The simulation's API server against the real one: both are asked the same at random, and must answer the same.
//!
//! What differs for a reason is named here ([`UNTOLD`]): what the model leaves out since no controller reads it. A sequence follows
//! from its seed, which a failure names with all that was asked.

use std::collections::BTreeMap;

use bytes::Bytes;
use coxswain_machinery::api::kinds::CLUSTER_ROLES;
use coxswain_machinery::api::meta::{ObjectMeta, Status};
use coxswain_machinery::api::rbac::ClusterRole;
use coxswain_machinery::client::{DeleteOptions, Faults, FieldSelector, ListQuery};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::Patch;
use coxswain_machinery::wire::{Message as _, decode_list, envelope_kind, unwrap_envelope};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::{Value as Json, json};

use crate::harness::{ControlPlane, Options, by_depth, faulty_clients};
use apiserver_model::dice::Dice;
use apiserver_model::http::{Answer, Asked};
use apiserver_model::{Model, codec, items, text};

/// How much is asked by each seed.
const STEPS: usize = 150;
/// Names of each kind.
const NAMES: usize = 3;

/// Kinds that are asked about: where their objects are, the kind, and whether they have a status of their own.
const KINDS: &[(&str, &str, bool)] = &[
    ("api/v1/namespaces/NS/configmaps", "ConfigMap", false),
    ("api/v1/namespaces/NS/secrets", "Secret", false),
    ("api/v1/namespaces/NS/pods", "Pod", true),
    ("api/v1/namespaces/NS/persistentvolumeclaims", "PersistentVolumeClaim", true),
    ("api/v1/namespaces/NS/replicationcontrollers", "ReplicationController", true),
    ("apis/apps/v1/namespaces/NS/replicasets", "ReplicaSet", true),
    ("apis/apps/v1/namespaces/NS/deployments", "Deployment", true),
    ("apis/apps/v1/namespaces/NS/statefulsets", "StatefulSet", true),
    ("apis/apps/v1/namespaces/NS/daemonsets", "DaemonSet", true),
    ("apis/batch/v1/namespaces/NS/jobs", "Job", true),
    ("apis/coordination.k8s.io/v1/namespaces/NS/leases", "Lease", false),
    ("apis/policy/v1/namespaces/NS/poddisruptionbudgets", "PodDisruptionBudget", true),
    ("apis/storage.k8s.io/v1/volumeattachments", "VolumeAttachment", true),
    ("api/v1/nodes", "Node", true),
];

/// What only the real one says, by the end of its path: no controller of ours reads it.
const UNTOLD: &[&str] = &[
    // Of containers and pods: how kubelets run them.
    "/terminationMessagePath",
    "/terminationMessagePolicy",
    "/imagePullPolicy",
    "/enableServiceLinks",
    "/preemptionPolicy",
    "/priority",
    "/serviceAccount",
    "/serviceAccountName",
    // Conversions of old names.
    "/template/metadata/creationTimestamp",
    "/metadata/managedFields",
    "/metadata/selfLink",
];

/// What one of the two has said of an object.
#[derive(Clone, Debug, Default)]
struct Known {
    uid: String,
    /// All versions that were seen, the newest last.
    versions: Vec<String>,
}

/// What both said: `None` for a success, else the code and the reason.
type Refused = Option<(u16, String)>;

/// Both, and what is known of their objects.
struct Pair {
    real: Client,
    model: Model,
    namespace: String,
    known: BTreeMap<String, [Known; 2]>,
    asked: Vec<String>,
}

/// What is to be asked: with `UID` and `VERSION` in the place of what each has.
struct Question {
    method: Method,
    path: String,
    query: String,
    content_type: &'static str,
    body: Option<Json>,
}

impl Pair {
    async fn ask(&mut self, question: &Question, object: &str, stale: bool) -> [(Refused, Json); 2] {
        let known = self.known.get(object).cloned().unwrap_or_default();
        let stale = stale && known[0].versions.len() == known[1].versions.len();
        let written = |known: &Known| {
            let version = if stale { known.versions.first() } else { known.versions.last() };
            let body = question.body.as_ref().map(ToString::to_string).unwrap_or_default();
            body.replace("UID-OF-IT", &known.uid).replace("VERSION-OF-IT", version.map_or("", String::as_str))
        };
        let query = if question.query.is_empty() { String::new() } else { format!("?{}", question.query) };
        let uri = format!("/{}{query}", question.path.replace("NS", &self.namespace));
        let request = |body: String| {
            let request = Request::builder().method(question.method.clone()).uri(&uri);
            request
                .header("content-type", question.content_type)
                .header("accept", "application/json")
                .body(body)
        };
        self.asked.push(format!(
            "{} {uri} {}, of the model {}",
            question.method,
            written(&known[0]),
            written(&known[1])
        ));
        let real = self.ask_real(request(written(&known[0])).expect("a request")).await;
        [real, self.ask_model(request(written(&known[1])).expect("a request"))]
    }

    async fn ask_real(&self, request: Request<String>) -> (Refused, Json) {
        let (parts, body) = request.into_parts();
        let request = Request::from_parts(parts, Body::from(body.into_bytes()));
        let answer = self.real.send(request).await.expect("an answer");
        let code = answer.status();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        let json: Json = serde_json::from_slice(&body).unwrap_or(Json::Null);
        let refused = (!code.is_success()).then(|| (code.as_u16(), text(&json, "/reason").to_owned()));
        (refused, json)
    }

    fn ask_model(&mut self, request: Request<String>) -> (Refused, Json) {
        let (parts, body) = request.into_parts();
        let asked = Asked::new(&parts, Bytes::from(body));
        match self.model.answer("user", &asked) {
            Err(refusal) => (Some((refusal.code, refusal.reason.to_owned())), Json::Null),
            Ok(Answer::Body(body, true)) => (None, serde_json::from_slice(&body).expect("JSON")),
            Ok(Answer::Body(body, false)) => (None, shown(&asked, &body.into())),
            Ok(Answer::Frames(_)) => panic!("nobody watches"),
        }
    }

    /// Takes in what an object is now, and compares it.
    async fn look(&mut self, path: &str, name: &str) -> Result<(), String> {
        let question = Question {
            method: Method::GET,
            path: format!("{path}/{name}"),
            query: String::new(),
            content_type: "application/json",
            body: None,
        };
        let [(real_refused, real), (model_refused, model)] = self.ask(&question, "", false).await;
        if real_refused != model_refused {
            return Err(format!("{name}: the real one says {real_refused:?}, the model {model_refused:?}"));
        }
        let key = format!("{path}/{name}");
        if real_refused.is_some() {
            self.known.remove(&key);
            return Ok(());
        }
        let known = self.known.entry(key).or_default();
        for (known, object) in known.iter_mut().zip([&real, &model]) {
            let uid = text(object, "/metadata/uid");
            if known.uid != uid {
                *known = Known { uid: uid.to_owned(), versions: Vec::new() };
            }
            let version = text(object, "/metadata/resourceVersion").to_owned();
            if known.versions.last() != Some(&version) {
                known.versions.push(version);
            }
        }
        // A write that changes nothing makes no version; but the real one stores a claim anew by the first.
        let [first, second] = known.each_ref().map(|known| known.versions.len());
        let mut differences = Vec::new();
        if first != second && !path.ends_with("/persistentvolumeclaims") {
            differences.push(format!("the real one has had {first} versions, the model {second}"));
        }
        compare("", &real, &model, &mut differences);
        if differences.is_empty() { Ok(()) } else { Err(format!("{name}: {}", differences.join("; "))) }
    }
}

/// What an answer in protobuf shows: an object, the names in a list, or nothing.
fn shown(asked: &Asked, body: &Bytes) -> Json {
    let kind = asked.kind.expect("a kind");
    let object = unwrap_envelope(body).expect("an envelope");
    if envelope_kind(body).as_deref() == Some("Status") {
        return json!({ "status": Status::decode(&object).expect("a status").status.as_str() });
    }
    let message = apiserver_model::message(kind).expect("it is stored");
    if asked.method == Method::GET && asked.name.is_empty() {
        let page = decode_list(&object).expect("a list");
        let items = page.items.iter().map(|item| codec::decode(message, item).expect("an item"));
        return json!({
            "items": items.collect::<Vec<_>>(),
            "metadata": { "continue": page.continue_token },
        });
    }
    codec::decode(message, &object).expect("an object")
}

/// Where two objects differ.
fn compare(path: &str, real: &Json, model: &Json, found: &mut Vec<String>) {
    let differs = matches!(
        path,
        "/metadata/uid"
            | "/metadata/resourceVersion"
            | "/metadata/creationTimestamp"
            | "/apiVersion"
            | "/kind"
    );
    // They are made at different times.
    let is_time = path.ends_with("/deletionTimestamp") || path.ends_with("/timeAdded");
    // Jobs have a label, and a selector, of their UID, which differs.
    let is_of_uid = path.contains("controller-uid");
    if differs || is_of_uid || UNTOLD.iter().any(|untold| path.ends_with(untold)) {
        return;
    }
    match (real, model) {
        (Json::Object(ours), Json::Object(theirs)) => {
            for name in ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name))) {
                compare(&format!("{path}/{name}"), &real[name], &model[name], found);
            }
        }
        (Json::Array(ours), Json::Array(theirs)) if ours.len() == theirs.len() => {
            for (at, (real, model)) in ours.iter().zip(theirs).enumerate() {
                compare(&format!("{path}/{at}"), real, model, found);
            }
        }
        _ if is_time && real.is_string() && model.is_string() => {}
        _ if is_empty(real) && is_empty(model) => {}
        _ if real == model => {}
        _ => found.push(format!("{path} is {real}, in the model {model}")),
    }
}

/// Whether a member says nothing: protobuf does not tell it from one that is not there.
fn is_empty(json: &Json) -> bool {
    match json {
        Json::Null => true,
        Json::Bool(value) => !value,
        Json::Number(number) => number.as_f64() == Some(0.0),
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Object(members) => members.values().all(is_empty),
    }
}

fn template(dice: &mut Dice, restart: &str) -> Json {
    let image = format!("image:{}", dice.below(3));
    json!({
        "metadata": { "labels": { "app": "it" } },
        "spec": {
            "restartPolicy": restart,
            "schedulerName": "nobody",
            "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": image }],
        },
    })
}

/// A new object of a kind.
fn object(kind: &str, name: &str, dice: &mut Dice) -> Json {
    let mut metadata = json!({ "name": name, "labels": { "app": "it", "n": dice.below(2).to_string() } });
    if dice.permille(300) {
        metadata["finalizers"] = json!(["example.com/a", "example.com/b"]);
    }
    let selector = json!({ "matchLabels": { "app": "it" } });
    let replicas = dice.within(0, 3);
    let mut made = match kind {
        "ConfigMap" => json!({ "data": { "k": dice.below(3).to_string() } }),
        "Secret" => json!({ "stringData": {}, "data": { "k": "AAE=" } }),
        "Pod" => {
            let restart = if dice.permille(500) { "Always" } else { "Never" };
            let pod = template(dice, restart);
            json!({ "spec": pod["spec"] })
        }
        "PersistentVolumeClaim" => json!({ "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "resources": { "requests": { "storage": "1Gi" } },
        } }),
        "ReplicationController" => json!({ "spec": {
            "replicas": replicas, "selector": { "app": "it" }, "template": template(dice, "Always"),
        } }),
        "Job" => json!({ "spec": { "parallelism": replicas, "template": template(dice, "Never") } }),
        "Lease" => json!({ "spec": { "holderIdentity": "a", "leaseDurationSeconds": 15 } }),
        "PodDisruptionBudget" => json!({ "spec": { "minAvailable": replicas, "selector": selector } }),
        "VolumeAttachment" => json!({ "spec": {
            "attacher": "csi.example.com", "nodeName": "node", "source": { "persistentVolumeName": "volume" },
        } }),
        "Node" => json!({ "spec": {} }),
        "DaemonSet" => json!({ "spec": { "selector": selector, "template": template(dice, "Always") } }),
        "StatefulSet" => json!({ "spec": {
            "replicas": replicas, "serviceName": "it", "selector": selector, "template": template(dice, "Always"),
        } }),
        _ => {
            json!({ "spec": { "replicas": replicas, "selector": selector, "template": template(dice, "Always") } })
        }
    };
    if kind == "Pod" && dice.permille(500) {
        made["spec"]["nodeName"] = json!("node");
    }
    made["metadata"] = metadata;
    made
}

/// A change of what may be changed.
fn change(kind: &str, dice: &mut Dice) -> Json {
    let replicas = dice.within(0, 3);
    match dice.below(3) {
        0 => json!({ "metadata": { "labels": { "n": dice.below(2).to_string(), "more": "x" } } }),
        1 => json!({ "metadata": { "annotations": { "note": dice.below(2).to_string() } } }),
        _ => match kind {
            "ConfigMap" => json!({ "data": { "k": dice.below(3).to_string() } }),
            "Pod" => json!({ "metadata": { "labels": { "more": "y" } } }),
            "ReplicaSet" | "Deployment" | "StatefulSet" | "ReplicationController" => {
                json!({ "spec": { "replicas": replicas } })
            }
            "Job" => json!({ "spec": { "parallelism": replicas } }),
            "Lease" => json!({ "spec": { "holderIdentity": dice.below(2).to_string() } }),
            "Node" => json!({ "spec": { "unschedulable": dice.permille(500) } }),
            _ => json!({ "metadata": { "labels": { "more": null } } }),
        },
    }
}

/// A status of a kind.
fn status(kind: &str, dice: &mut Dice) -> Json {
    let number = dice.within(0, 3);
    match kind {
        "Pod" => json!({ "phase": *dice.pick(&["Pending", "Running", "Succeeded"]).expect("one") }),
        "PersistentVolumeClaim" => json!({ "phase": *dice.pick(&["Pending", "Lost"]).expect("one") }),
        "VolumeAttachment" => json!({ "attached": dice.permille(500) }),
        "Node" => {
            let used = &["one", "two"][..dice.below(3)];
            json!({ "volumesInUse": used })
        }
        "Job" => json!({ "active": number, "ready": 0 }),
        "PodDisruptionBudget" => json!({
            "currentHealthy": number, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": number,
        }),
        "DaemonSet" => json!({
            "currentNumberScheduled": number, "numberMisscheduled": 0, "desiredNumberScheduled": number, "numberReady": 0,
        }),
        _ => json!({ "replicas": number }),
    }
}

/// Asks both something about an object.
async fn step(pair: &mut Pair, dice: &mut Dice) -> Result<(), String> {
    let (path, kind, has_status) = *dice.pick(KINDS).expect("a kind");
    let name = if path.contains("NS") {
        format!("it-{}", dice.below(NAMES))
    } else {
        format!("{}-{}", pair.namespace, dice.below(NAMES))
    };
    let key = format!("{path}/{name}");
    let question = |method: Method, below: &str, content_type, body: Json| Question {
        method,
        path: format!("{path}{below}"),
        query: String::new(),
        content_type,
        body: (!body.is_null()).then_some(body),
    };
    let at = format!("/{name}");
    let versioned = |mut body: Json, dice: &mut Dice| {
        if dice.permille(600) {
            body["metadata"]["resourceVersion"] = json!("VERSION-OF-IT");
        }
        if dice.permille(300) {
            body["metadata"]["uid"] = json!("UID-OF-IT");
        }
        body
    };
    let merge = "application/merge-patch+json";
    let asked = match dice.below(12) {
        0..4 => question(Method::POST, "", "application/json", object(kind, &name, dice)),
        4 => question(Method::PATCH, &at, merge, versioned(change(kind, dice), dice)),
        5 => question(
            Method::PATCH,
            &at,
            "application/strategic-merge-patch+json",
            versioned(change(kind, dice), dice),
        ),
        6 => {
            let test = json!({ "op": "test", "path": "/metadata/uid", "value": "UID-OF-IT" });
            let add = json!({ "op": "add", "path": "/metadata/annotations", "value": { "by": "json" } });
            question(Method::PATCH, &at, "application/json-patch+json", json!([test, add]))
        }
        7 if has_status => {
            let body = versioned(json!({ "status": status(kind, dice), "metadata": {} }), dice);
            question(Method::PATCH, &format!("{at}/status"), merge, body)
        }
        7 | 8 => {
            let left = *dice.pick(&[&[][..], &["example.com/b"], &["example.com/a"]]).expect("one");
            question(Method::PATCH, &at, merge, json!({ "metadata": { "finalizers": left } }))
        }
        9 => {
            let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "it-0", "uid": "an-owner" });
            question(Method::PATCH, &at, merge, json!({ "metadata": { "ownerReferences": [owner] } }))
        }
        _ => {
            let mut options = json!({ "kind": "DeleteOptions", "apiVersion": "v1" });
            // What is not said differs by kind, and by the history of the API.
            options["propagationPolicy"] =
                json!(dice.pick(&["Background", "Background", "Foreground", "Orphan"]).expect("one"));
            if dice.permille(300) {
                options["preconditions"] = json!({ "uid": "UID-OF-IT" });
            }
            // Who takes a finalizer back by a delete is refused by the real one if a version is named.
            if options["propagationPolicy"] != "Background" && dice.permille(200) {
                options["preconditions"]["resourceVersion"] = json!("VERSION-OF-IT");
            }
            if kind == "Pod" && dice.permille(400) {
                options["gracePeriodSeconds"] = json!(dice.within(0, 60));
            }
            question(Method::DELETE, &at, "application/json", options)
        }
    };
    let stale = dice.permille(250);
    let [(real, real_said), (model, _)] = pair.ask(&asked, &key, stale).await;
    if real != model {
        return Err(format!(
            "the real one says {real:?} ({}), the model {model:?}",
            text(&real_said, "/message")
        ));
    }
    pair.look(path, &name).await?;
    if dice.permille(100) {
        let mut list = question(Method::GET, "", "application/json", Json::Null);
        list.query =
            (*dice.pick(&["labelSelector=n%3D1", "labelSelector=n+notin+%280%29", ""]).expect("one"))
                .to_owned();
        let [(_, real), (_, model)] = pair.ask(&list, "", false).await;
        let names = |list: &Json| -> Vec<String> {
            let names = items(list, "/items").iter().map(|item| text(item, "/metadata/name").to_owned());
            names.filter(|name| name.starts_with("it-") || name.starts_with(&pair.namespace)).collect()
        };
        if names(&real) != names(&model) {
            return Err(format!("the real one lists {:?}, the model {:?}", names(&real), names(&model)));
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_simulated_api_server_answers_as_the_real_one() {
    // Nobody plays the nodes.
    let args =
        vec!["--kwok-arg=manage-all-nodes=false", "--kwok-arg=manage-nodes-with-label-selector=type=kwok"];
    let plane = ControlPlane::start(&Options { nodes: 0, args });
    let cluster = plane.cluster().await;
    for seed in 1..=by_depth(4, 40) {
        let namespace = format!("fidelity-{seed}");
        let home = cluster.namespace(&namespace).await;
        let account = json!({ "metadata": { "name": "default" } });
        let _: k8s_openapi::api::core::v1::ServiceAccount = home.create(account).await;
        let mut model = Model::new(Timestamp::from_second(1_800_000_000).expect("a time"), seed);
        let made = json!({ "metadata": { "name": home.name } });
        model.create("user", "namespaces", "", made).map_err(|refusal| refusal.message).expect("a namespace");
        let mut pair = Pair {
            real: cluster.client.clone(),
            model,
            namespace: home.name.clone(),
            known: BTreeMap::new(),
            asked: Vec::new(),
        };
        let mut dice = Dice::new(seed, "fidelity");
        for _ in 0..STEPS {
            if let Err(why) = step(&mut pair, &mut dice).await {
                let last = pair.asked.len().saturating_sub(12);
                panic!("seed {seed}, after\n{}\n{why}", pair.asked[last..].join("\n"));
            }
        }
    }
}

/// A ClusterRole, as it is sent.
fn role(name: &str) -> Vec<u8> {
    let metadata = ObjectMeta { name: name.into(), ..ObjectMeta::default() };
    ClusterRole { metadata, ..ClusterRole::default() }.to_bytes()
}

/// Names of ClusterRoles with each printable character of ASCII that the API server takes, and others that mean something in a
/// URL, each found, changed and deleted by the client that ships.
#[tokio::test]
async fn objects_with_odd_names_are_read_patched_and_deleted() {
    let plane = ControlPlane::shared();
    let clients = faulty_clients(&plane.report.kubeconfigs["admin"], &Faults::new(0)).await;
    let client = clients.root("fidelity-test");
    let characters = (b' '..=b'~').map(char::from).filter(|letter| !matches!(letter, '/' | '%'));
    let odd = ["?watch=true&timeoutSeconds=31536000", "#", "my role", "äöü", "...", "a?b#c", "+", "a;b=c,d"];
    let each = characters.map(|letter| format!("{letter}fidelity{letter}"));
    for name in each.chain(odd.into_iter().map(|name| format!("{name} fidelity"))) {
        let key = Key::new("", name.as_str());
        let made = client.create(&CLUSTER_ROLES, "", &role(&name)).await.expect("it is made");
        let found = client.get(&CLUSTER_ROLES, &key).await.expect("it is found");
        assert_eq!((found.meta().name.as_str(), &found.meta().uid), (name.as_str(), &made.meta().uid));
        let selector = Some(FieldSelector::name(&name));
        let query = ListQuery { field_selector: selector, ..ListQuery::default() };
        let page = client.list(&CLUSTER_ROLES, &query).await.expect("a list");
        assert_eq!(page.items.len(), 1, "{name}");
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "odd": "yes" } } }));
        let patched = client.patch(&CLUSTER_ROLES, &key, None, &patch).await.expect("it is patched");
        assert_eq!(patched.meta().uid, made.meta().uid);
        let options = DeleteOptions { uid: Some(made.meta().uid.to_string()), ..DeleteOptions::default() };
        client.delete(&CLUSTER_ROLES, &key, &options).await.expect("it is deleted");
        let gone = client.get(&CLUSTER_ROLES, &key).await.expect_err("it is gone");
        assert!(gone.is_object_not_found(), "{gone}");
    }
    let admin = client.get(&CLUSTER_ROLES, &Key::new("", "cluster-admin")).await;
    admin.expect("the collection is left alone");
}

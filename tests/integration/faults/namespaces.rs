//! Namespaces under faults: they end, with all that they hold, and nobody else's objects do.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace as CoreNamespace, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::line::WriteFault;
use super::stage::{LIMIT, Outcome, Place, Scenario, Stage, shared};
use crate::harness::{Namespace, object, until};

/// A finalizer of somebody else's.
const FOREIGN: &str = "tests.coxswain.dev/held";

struct Ending;

fn namespaces(place: &Place) -> Api<CoreNamespace> {
    Api::all(place.namespace.client.clone())
}

async fn fill(namespace: &Namespace) {
    let named = |name: &str, rest: Value| {
        let mut body = rest;
        body["metadata"] = json!({ "name": name });
        body
    };
    let _: ServiceAccount = namespace.create(named("default", json!({}))).await;
    let spec = json!({
        "schedulerName": "nobody", "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "web", "image": "web:1" }],
    });
    // Without an address: those are of ranges that others look after.
    let headless = json!({ "clusterIP": "None", "ports": [{ "port": 80 }] });
    for name in ["one", "two"] {
        let _: Pod = namespace.create(named(name, json!({ "spec": spec }))).await;
        let _: ConfigMap = namespace.create(named(name, json!({}))).await;
        let _: Secret = namespace.create(named(name, json!({}))).await;
        let _: Service = namespace.create(named(name, json!({ "spec": headless }))).await;
    }
    let rule = json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] });
    let _: Role = namespace.create(named("one", json!({ "rules": [rule] }))).await;
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one" });
    let _: RoleBinding = namespace.create(named("one", json!({ "roleRef": role }))).await;
}

/// What a namespace holds, by kind and name: UID and resource version.
async fn content(namespace: &Namespace) -> BTreeMap<String, (String, String)> {
    let mut all = BTreeMap::new();
    macro_rules! list {
        ($($kind:ty),*) => {$(
            let api: Api<$kind> = namespace.api();
            for each in api.list_metadata(&ListParams::default()).await.expect("a list").items {
                let meta = each.metadata;
                let name = format!("{} {}", stringify!($kind), meta.name.unwrap_or_default());
                all.insert(name, (meta.uid.unwrap_or_default(), meta.resource_version.unwrap_or_default()));
            }
        )*};
    }
    list!(ConfigMap, Pod, Role, RoleBinding, Secret, Service, ServiceAccount);
    all
}

impl Scenario for Ending {
    const CONTROLLER: &'static str = "namespace-controller";
    const ACCOUNT: &'static str = "namespace-controller";

    async fn prepare(place: &Place) {
        fill(&place.namespace).await;
    }

    async fn act(place: &Place) {
        drop(namespaces(place).delete(place.name(), &DeleteParams::default()).await.expect("deleted"));
    }

    async fn outcome(place: &Place) -> Outcome {
        let held = content(&place.namespace).await.into_keys().map(|name| (name, Value::Null));
        let mut outcome: Outcome = held.collect();
        if let Some(namespace) = namespaces(place).get_opt(place.name()).await.expect("an answer") {
            let conditions = namespace.status.and_then(|status| status.conditions);
            outcome.insert("itself".to_owned(), json!(conditions));
        }
        outcome
    }

    fn expected() -> Outcome {
        Outcome::new()
    }
}

async fn release(place: &Place) {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let maps = place.namespace.api::<ConfigMap>();
    maps.patch("held", &PatchParams::default(), &patch).await.expect("released");
}

/// It does not hear that a namespace has gone, and that there is another one of that name.
async fn lags(stage: &Stage<'_>) {
    let place = stage.empty::<Ending>().await;
    stage.leave(&place);
    stage.line.set_fault(place.name(), WriteFault::None);
    let held = json!({ "metadata": { "name": "held", "finalizers": [FOREIGN] } });
    let _: ConfigMap = place.namespace.create(held).await;
    Ending::act(&place).await;
    let waits = |namespace: &Option<CoreNamespace>| {
        let status = namespace.iter().filter_map(|namespace| namespace.status.as_ref());
        status
            .flat_map(|status| status.conditions.iter().flatten())
            .any(|condition| condition.type_ == "NamespaceFinalizersRemaining" && condition.status == "True")
    };
    let get = async || namespaces(&place).get_opt(place.name()).await.expect("an answer");
    let waiting = until("it waits for a finalizer", LIMIT, get, waits).await.expect("it is there");
    stage.line.hold("namespaces");
    // Somebody else lets it go, and makes another one.
    release(&place).await;
    let mut end = waiting;
    end.metadata.resource_version = None;
    end.spec = Some(object(json!({ "finalizers": [] })));
    let request = http::Request::put(format!("/api/v1/namespaces/{}/finalize", place.name()))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&end).expect("JSON"))
        .expect("a request");
    stage.cluster.client.request_text(request).await.expect("finalized");
    until("its end", LIMIT, get, Option::is_none).await;
    let again = object(json!({ "metadata": { "name": place.name() } }));
    namespaces(&place).create(&PostParams::default(), &again).await.expect("created");
    fill(&place.namespace).await;
    let before = content(&place.namespace).await;
    let account = stage.line.account(place.name());
    // It looks again at what it takes for the old one.
    let looks = async || stage.reconciles().await;
    let before_that = looks().await;
    until("another look", LIMIT, looks, |looks| *looks > before_that).await;
    stage.line.release();
    stage.stays::<Ending>().await;
    assert_eq!(content(&place.namespace).await, before, "another one of that name keeps what it has");
    assert_eq!(stage.line.account(place.name()).carried, account.carried, "nothing is written to it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_end_and_others_keep_what_they_have() {
    let shared = shared().await;
    let stage = Stage::start::<Ending>(&shared.plane).await;
    let bystander = stage.cluster.namespace("bystander").await;
    fill(&bystander).await;
    let before = content(&bystander).await;
    stage.endures_faults::<Ending>().await;
    lags(&stage).await;
    assert_eq!(content(&bystander).await, before, "what a bystander has");
}

//! Writes and live reads that only a real API server can judge: apply, scales, JSON, pages, questions of access.

use std::sync::Arc;
use std::time::Duration;

use coxswain_machinery::api::autoscaling::Scale;
use coxswain_machinery::api::{Kind, Object as _, dynamic, kinds};
use coxswain_machinery::client::{AccessQuestion, ApiClient, Faults, ListQuery, Query, RequestPath};
use coxswain_machinery::executor::{ActionResult, Events, Executed, Executor, WriteEffect};
use coxswain_machinery::model::plan::{EventSpec, Patch, Step, Tolerate, Verb, Write};
use coxswain_machinery::model::{Key, Plan};
use coxswain_machinery::wire::splice::{Edit, edit};
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::{Value, json};

use crate::harness::{ControlPlane, eventually, faulty_clients};

const LIMIT: Duration = Duration::from_mins(1);
const GROUP: &str = "executor.coxswain.dev";
const MANAGER: &str = "coxswain-test";

struct Silent;

impl Events for Silent {
    fn emit(&self, _: EventSpec) {}
}

/// A resource that has a status and a scale.
fn definition() -> Value {
    let replicas = json!({ "type": "object", "properties": { "replicas": { "type": "integer" } } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("crews.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": { "kind": "Crew", "plural": "crews", "singular": "crew" },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": replicas, "status": replicas },
                } },
                "subresources": {
                    "status": {},
                    "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" },
                },
            }],
        },
    })
}

fn applied(kind: &'static Kind, key: &Key, object: Value) -> Write {
    let patch = Patch::Apply { manager: MANAGER, force: true, object };
    Write::new(kind, key.clone(), Verb::Patch(patch))
}

async fn run(client: &ApiClient, steps: Vec<Step>) -> Executed {
    Executor::new(client.clone(), Arc::new(Silent)).execute(Plan { steps, ..Plan::default() }).await
}

fn stored(executed: &Executed, at: usize) -> &str {
    assert!(executed.error.is_none(), "{executed:?}");
    let WriteEffect::Stored(version) = &executed.effects[at].change else { panic!("{executed:?}") };
    version
}

async fn scale(client: &ApiClient, kind: &'static Kind, key: &Key) -> Arc<Scale> {
    let any: Arc<dyn std::any::Any + Send + Sync> = client.scale(kind, key).await.expect("a scale");
    any.downcast().expect("a Scale")
}

#[tokio::test]
async fn what_an_executor_writes_is_what_the_server_takes() {
    let plane = ControlPlane::shared();
    let namespace = plane.cluster().await.namespace("executor").await;
    let clients = faulty_clients(&plane.report.kubeconfigs["admin"], &Faults::new(0)).await;
    let client = clients.root("executor-test");

    // Apply makes the definition, and objects once it is served.
    let definitions = dynamic::kind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
    );
    let name = Key::new("", format!("crews.{GROUP}"));
    stored(&run(&client, vec![Step::Write(applied(definitions, &name, definition()))]).await, 0);
    let crews = dynamic::kind(GROUP, "v1", "Crew", "crews", true);
    let key = Key::new(namespace.name.clone(), "main");
    let crew = |part: &str, replicas: i32| {
        json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "Crew",
            "metadata": { "name": "main" },
            part: { "replicas": replicas },
        })
    };
    eventually("the resource to be served", LIMIT, async || {
        run(&client, vec![Step::Write(applied(crews, &key, crew("spec", 3)))]).await.error.is_none()
    })
    .await;
    let status = applied(crews, &key, crew("status", 2)).on("status");
    let version = stored(&run(&client, vec![Step::Write(status)]).await, 0).to_owned();

    // Its scale bears its name, UID and version, and is written with them.
    let held = scale(&client, crews, &key).await;
    assert_eq!((held.spec.replicas, held.status.replicas), (3, 2));
    assert_eq!(held.metadata.resource_version, version.as_str());
    let wanted = edit(&held.raw(), &[Edit::SetVarint(&[2, 1], 5)]).expect("an edit");
    let put = || Write::new(crews, key.clone(), Verb::Update(wanted.clone().into())).on("scale");
    let written = run(&client, vec![Step::Write(put())]).await;
    let object = client.get(crews, &key).await.expect("the object");
    assert_eq!(stored(&written, 0), object.meta().resource_version.as_str(), "the object's own version");
    assert_eq!(scale(&client, crews, &key).await.spec.replicas, 5);
    let again = run(&client, vec![Step::Write(put())]).await;
    assert_eq!(again.failures[0].reason, "Conflict", "it was made from an older one");
    let tolerate = Tolerate { conflict: true, ..Tolerate::default() };
    let tolerated = run(&client, vec![Step::Write(Write { tolerate, ..put() })]).await;
    assert_eq!(tolerated.results[0].result, ActionResult::Unneeded);

    // What another manager holds is a conflict, unless it is forced.
    let patch = Patch::Apply { manager: "other", force: false, object: crew("status", 7) };
    let other = Write::new(crews, key.clone(), Verb::Patch(patch)).on("status");
    assert_eq!(run(&client, vec![Step::Write(other)]).await.failures[0].reason, "Conflict");

    // One write builds on the answer of the one before, which has changed the version.
    let account = Key::new(namespace.name.clone(), "builds");
    let labeled = vec![Edit::MapSet(&[1, 11], "built".to_owned(), "on".to_owned())];
    let metadata = json!({ "name": "builds", "labels": { "made": "by-apply" } });
    let object = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
    let first = applied(&kinds::SERVICE_ACCOUNTS, &account, object);
    let next = Write::new(&kinds::SERVICE_ACCOUNTS, account.clone(), Verb::UpdateLast(labeled));
    let chains = vec![vec![first, next]];
    let built = run(&client, vec![Step::Chains { chains, slow_start: false }]).await;
    assert_ne!(stored(&built, 0), stored(&built, 1));
    let meta = built.effects[1].answer.as_ref().expect("an answer").meta().clone();
    assert_eq!(meta.labels.get("built").map(coxswain_machinery::wire::Str::as_str), Some("on"));

    // The API server takes the field manager of other writes from the beginning of the user agent.
    let shown = namespace.api::<ServiceAccount>().get("builds").await.expect("the account");
    let entries = shown.metadata.managed_fields.unwrap_or_default().into_iter();
    let managers: Vec<_> = entries.filter_map(|entry| entry.manager).collect();
    assert_eq!(managers, [MANAGER, "kube-controller-manager"]);

    // A delete by resource version alone: of an older one it is refused.
    let delete = |version: &str| {
        let verb = Verb::Delete {
            uid: "".into(),
            resource_version: Some(version.into()),
            propagation: None,
            grace_period: Some(0),
        };
        vec![Step::Write(Write::new(&kinds::SERVICE_ACCOUNTS, account.clone(), verb))]
    };
    let refused = run(&client, delete(stored(&built, 0))).await;
    assert_eq!(refused.failures[0].reason, "Conflict");
    let deleted = run(&client, delete(&meta.resource_version)).await;
    assert_eq!(deleted.effects[0].change, WriteEffect::Deleted(meta.uid), "the answer tells the UID");

    // A 404 names an object only where such objects are served.
    let absent = client.get(crews, &Key::new(namespace.name.clone(), "nobody")).await.expect_err("absent");
    assert!(absent.is_object_not_found(), "{absent}");
    let unserved = dynamic::kind(GROUP, "v9", "Crew", "crews", true);
    let unknown = client.get(unserved, &key).await.expect_err("not served");
    assert!(unknown.is_not_found() && !unknown.is_object_not_found(), "{unknown}");
    let unscaled = client.scale(&kinds::SERVICE_ACCOUNTS, &account).await.expect_err("no scale");
    assert!(unscaled.is_not_found() && !unscaled.is_object_not_found(), "{unscaled}");
}

#[tokio::test]
async fn what_is_read_live_is_what_the_server_tells() {
    let plane = ControlPlane::shared();
    let namespace = plane.cluster().await.namespace("reads").await;
    let clients = faulty_clients(&plane.report.kubeconfigs["admin"], &Faults::new(0)).await;
    let client = clients.root("executor-test");

    let path = RequestPath::openapi_document("/openapi/v3/apis/apps/v1");
    let uri = path.uri(Query::NONE).expect("a URI");
    let document = client.json_of(&uri, 16 << 20).await.expect("a document");
    assert!(document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"].is_object());
    let bound = client.json_of(&uri, 1000).await.expect_err("it is longer");
    assert!(bound.to_string().contains("more than 1000 bytes"), "{bound}");

    let question = |user: &str| AccessQuestion {
        user: user.into(),
        groups: vec!["system:authenticated".into()],
        verb: "update".into(),
        group: "apps".into(),
        resource: "replicasets".into(),
        subresource: "status".into(),
        namespace: namespace.name.as_str().into(),
        ..AccessQuestion::default()
    };
    let controller = "system:serviceaccount:kube-system:replicaset-controller";
    for (user, allowed) in [(controller, true), ("nobody", false)] {
        let verdict = client.review_access(&question(user)).await.expect("a verdict");
        assert_eq!(verdict.allowed, allowed, "{user}: {}", verdict.reason);
    }

    for name in ["a", "b", "c"] {
        let key = Key::new(namespace.name.clone(), name);
        let object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name } });
        stored(&run(&client, vec![Step::Write(applied(&kinds::SECRETS, &key, object))]).await, 0);
    }
    let (mut names, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let query = ListQuery {
            namespace: namespace.name.clone(),
            limit: Some(2),
            continue_token: after,
            ..ListQuery::default()
        };
        let page = client.list(&kinds::SECRETS, &query).await.expect("a page");
        pages += 1;
        assert!(page.items.len() <= 2);
        let decoded = page.items.iter().map(|item| (kinds::SECRETS.decode)(item).expect("a Secret"));
        names.extend(decoded.map(|object| object.meta().name.to_string()));
        if page.continue_token.is_empty() {
            break;
        }
        after = Some(page.continue_token);
    }
    assert_eq!((names.as_slice(), pages), (["a", "b", "c"].map(String::from).as_slice(), 2));
}

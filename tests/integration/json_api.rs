//! Both managers next to an aggregated API server that has JSON only: it refuses reads of its objects that do not accept JSON, and answers
//! all others with whole objects. The managers delete namespaces, collect dependents of its objects, and count its objects in quotas.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace as CoreNamespace, ResourceQuota};
use kube::api::{Api, DeleteParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{
    ControlPlane, Namespace, Options, TlsServer, register_apis, turn_beside_another, until,
};

const LIMIT: Duration = Duration::from_mins(3);
const GROUP: &str = "json.example.com";
/// Duration of a watch, which sends no events.
const WATCH: Duration = Duration::from_secs(10);

/// The objects of the API, by namespace and name.
type Things = Arc<Mutex<BTreeMap<(String, String), Value>>>;

fn status(code: StatusCode) -> (StatusCode, Value) {
    let (word, reason) = match code {
        StatusCode::OK => ("Success", ""),
        StatusCode::UNPROCESSABLE_ENTITY => ("Failure", "Invalid"),
        StatusCode::NOT_ACCEPTABLE => ("Failure", "NotAcceptable"),
        _ => ("Failure", "NotFound"),
    };
    let body = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": word,
        "reason": reason, "code": code.as_u16(), "details": { "kind": "things" } });
    (code, body)
}

fn list(things: &Things, is_in: impl Fn(&str) -> bool) -> (StatusCode, Value) {
    let things = things.lock();
    let items: Vec<&Value> =
        things.iter().filter(|((namespace, _), _)| is_in(namespace)).map(|(_, thing)| thing).collect();
    let body = json!({ "kind": "ThingList", "apiVersion": format!("{GROUP}/v1"),
        "metadata": { "resourceVersion": "7" }, "items": items });
    (StatusCode::OK, body)
}

/// Whether a request accepts JSON.
fn accepts_json(headers: &HeaderMap) -> bool {
    let is_json = |value: &HeaderValue| {
        value.to_str().is_ok_and(|value| value.contains("application/json") || value.contains("*/*"))
    };
    !headers.contains_key(ACCEPT) || headers.get_all(ACCEPT).iter().any(is_json)
}

async fn answer(request: Request<Incoming>, things: Things) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().trim_matches('/').to_owned();
    let query = request.uri().query().unwrap_or_default();
    let asks_for = |wanted: &str| {
        form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == wanted && value != "false")
    };
    let (is_watch, is_stream) = (asks_for("watch"), asks_for("sendInitialEvents"));
    let parts: Vec<&str> = path.split('/').collect();
    let method = request.method();
    let (code, body) = match (&parts[..], method) {
        (["apis", GROUP, "v1", .., "things"] | ["apis", GROUP, "v1", .., "things", _], &Method::GET)
            if !accepts_json(request.headers()) =>
        {
            status(StatusCode::NOT_ACCEPTABLE)
        }
        (["apis", GROUP, "v1"], _) => {
            let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
            let things = json!({ "name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing",
                "verbs": verbs });
            let body = json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1"),
                "resources": [things] });
            (StatusCode::OK, body)
        }
        // Servers older than KEP-3157 refuse streaming lists with this code.
        (["apis", GROUP, "v1", .., "things"], &Method::GET) if is_stream => {
            status(StatusCode::UNPROCESSABLE_ENTITY)
        }
        (["apis", GROUP, "v1", .., "things"], &Method::GET) if is_watch => {
            tokio::time::sleep(WATCH).await;
            return Ok(Response::new(Full::default()));
        }
        (["apis", GROUP, "v1", "things"], &Method::GET) => list(&things, |_| true),
        (["apis", GROUP, "v1", "namespaces", namespace, "things"], &Method::GET) => {
            list(&things, |each| each == *namespace)
        }
        (["apis", GROUP, "v1", "namespaces", namespace, "things"], &Method::DELETE) => {
            things.lock().retain(|(each, _), _| each != namespace);
            status(StatusCode::OK)
        }
        (["apis", GROUP, "v1", "namespaces", namespace, "things", name], method) => {
            let at = ((*namespace).to_owned(), (*name).to_owned());
            let found = match *method {
                Method::DELETE => things.lock().remove(&at),
                _ => things.lock().get(&at).cloned(),
            };
            found.map_or_else(|| status(StatusCode::NOT_FOUND), |thing| (StatusCode::OK, thing))
        }
        _ => status(StatusCode::NOT_FOUND),
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

async fn register(plane: &ControlPlane, port: u16) {
    let client = plane.cluster().await.client;
    register_apis(&client, "things", port, &[(GROUP, "v1")]).await;
    let observe = || async { plane.try_kubectl(&["get", "things", "-A"]).status.success() };
    until("the aggregated API is available", LIMIT, observe, |is_reached| *is_reached).await;
}

/// Stores an object, and returns its UID.
fn store(things: &Things, namespace: &str, name: &str) -> String {
    let uid = Uuid::new_v4().to_string();
    let metadata = json!({ "namespace": namespace, "name": name, "uid": uid, "resourceVersion": "5",
        "creationTimestamp": "2026-01-01T00:00:00Z" });
    let body = json!({ "kind": "Thing", "apiVersion": format!("{GROUP}/v1"), "metadata": metadata });
    things.lock().insert((namespace.to_owned(), name.to_owned()), body);
    uid
}

/// Creates a ConfigMap `of-NAME` whose owner is this object.
async fn create_dependent(namespace: &Namespace, name: &str, uid: &str) {
    let owner = json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Thing", "name": name, "uid": uid });
    let _: ConfigMap = namespace
        .create(json!({ "metadata": { "name": format!("of-{name}"), "ownerReferences": [owner] } }))
        .await;
}

// `kubectl` and the start of a manager block the thread of the test, and the API server waits for answers of the test's server meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregated_api_server_with_json_only_stops_neither_namespaces_nor_collection_nor_quota() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 0, args: Vec::new() });
    let things = Things::default();
    let served = Arc::clone(&things);
    let server =
        TlsServer::start(&plane.report.manager_serving, move |request| answer(request, Arc::clone(&served)));
    let server = server.await;
    register(&plane, server.port).await;
    let cluster = plane.cluster().await;
    for program in ["go", "coxswain"] {
        let (ends, stays) = (cluster.namespace(program).await, cluster.namespace(program).await);
        store(&things, &ends.name, "doomed");
        let there = store(&things, &stays.name, "there");
        create_dependent(&stays, "there", &there).await;
        create_dependent(&stays, "gone", &Uuid::new_v4().to_string()).await;
        let counted = format!("count/things.{GROUP}");
        let _: ResourceQuota = stays
            .create(json!({ "metadata": { "name": "few" }, "spec": { "hard": { (counted.clone()): "5" } } }))
            .await;
        let controllers =
            "--controllers=namespace-controller,garbage-collector-controller,resourcequota-controller";
        let manager = match program {
            "go" => plane.go_manager(program, &[controllers]),
            _ => plane.coxswain(program, &[controllers]),
        };
        let namespaces: Api<CoreNamespace> = Api::all(cluster.client.clone());
        namespaces.delete(&ends.name, &DeleteParams::default()).await.expect("it is deleted");
        let look = || async { namespaces.get_opt(&ends.name).await.expect("an answer") };
        until(&format!("the end of a namespace under {program}"), LIMIT, look, Option::is_none).await;
        assert!(
            !things.lock().contains_key(&(ends.name.clone(), "doomed".to_owned())),
            "the namespace ended before its object"
        );

        let maps = stays.api::<ConfigMap>();
        let look = || async { maps.get_opt("of-gone").await.expect("an answer") };
        until(&format!("the collection of a dependent under {program}"), LIMIT, look, Option::is_none).await;
        let quotas = stays.api::<ResourceQuota>();
        let used = || async {
            let status = quotas.get("few").await.expect("the quota").status.unwrap_or_default();
            status.used.unwrap_or_default().get(&counted).map(|used| used.0.clone())
        };
        until(&format!("the count under {program}"), LIMIT, used, |used| used.as_deref() == Some("1")).await;
        assert!(
            maps.get_opt("of-there").await.expect("an answer").is_some(),
            "deleted although its owner exists"
        );
        manager.stop();
    }
}

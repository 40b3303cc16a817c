//! Live reads of objects for which an aggregated API server answers 404 without a name.

use super::*;
use crate::api::{Kind, dynamic};

const GROUP: &str = "json.example.com";
/// The answer of API servers that are not built with the libraries of Kubernetes.
const UNNAMED: &str =
    r#"{"kind":"Status","status":"Failure","reason":"NotFound","details":{"kind":"things"},"code":404}"#;
/// The answer of aggregated API servers that do not serve the resource.
const WITHOUT_DETAILS: &str = r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#;
const NAMED: &str =
    r#"{"kind":"Status","reason":"NotFound","details":{"name":"one","kind":"things"},"code":404}"#;
/// The answer of a proxy, and of kube-apiserver for a path that it does not serve.
const PLAIN: &str = "404 page not found";

const OBJECT: &str = "/apis/json.example.com/v1/namespaces/ns/things/one";
const LIST: &str = "/apis/json.example.com/v1/namespaces/ns/things?fieldSelector=metadata.name%3Done";

/// An API server that answers 404 for each object, and the answer to its lists.
struct Aggregated {
    absent: &'static str,
    code: u16,
    list: String,
    asked: Mutex<Vec<String>>,
}

impl Aggregated {
    fn client(self: &Arc<Self>) -> ApiClient {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
            let target = request.uri().to_string();
            let (code, body) = match request.uri().path() {
                OBJECT => (404, server.absent.to_owned()),
                _ => (server.code, server.list.clone()),
            };
            server.asked.lock().push(target);
            async move {
                let body = Full::new(Bytes::from(body)).map_err(BoxError::from).boxed_unsync();
                let response = Response::builder().status(code).header("content-type", "application/json");
                response.body(body).map_err(BoxError::from)
            }
        });
        ApiClient::new(BoxCloneSyncService::new(service), "test")
    }
}

fn things() -> &'static Kind {
    dynamic::kind(GROUP, "v1", "Thing", "things", true)
}

/// Reads an object, and notes whether it is there; `None` if that is not known.
#[derive(Default)]
struct Looker(Mutex<Vec<Option<bool>>>);

impl Reconcile for Looker {
    fn plan(&self, key: &Key, _: &[Failure], reads: &Reads, _: Timestamp) -> Result<Pass, ObserveError> {
        let Some(found) = reads.object(things(), key) else {
            return Ok(Pass::Needs(vec![TEST_READ.of(Read::Object(things(), key.clone()))]));
        };
        self.0.lock().push(found.ok().map(|object| object.is_some()));
        Ok(Pass::Nothing)
    }
}

/// Whether a read finds the object, and the requests that it sends.
async fn read(absent: &'static str, code: u16, list: String) -> (Option<bool>, Vec<String>) {
    let server = Arc::new(Aggregated { absent, code, list, asked: Mutex::default() });
    let mut bench = Bench::new();
    let looker = Arc::new(Looker::default());
    bench.worker.reconcile = Arc::clone(&looker) as _;
    let discovery = Arc::new(Discovery::new(server.client()));
    bench.worker.reader = Reader::new(server.client(), discovery, BlockingPool::inline());
    bench.worker.reconcile(&Key::new("ns", "one"), &|| {}).await;
    let (found, asked) = (looker.0.lock().clone(), server.asked.lock().clone());
    assert_eq!(found.len(), 1);
    (found[0], asked)
}

fn list(names: &[(&str, &str)], next: &str) -> String {
    let thing = |(namespace, name): &(&str, &str)| {
        serde_json::json!({ "kind": "Thing", "apiVersion": format!("{GROUP}/v1"),
            "metadata": { "namespace": namespace, "name": name, "uid": "u", "resourceVersion": "5" } })
    };
    let items: Vec<_> = names.iter().map(thing).collect();
    let metadata = serde_json::json!({ "resourceVersion": "7", "continue": next });
    serde_json::json!({ "kind": "ThingList", "apiVersion": format!("{GROUP}/v1"), "metadata": metadata,
        "items": items })
    .to_string()
}

/// The end of an API is no proof that its objects are gone, and an API server that leaves out a name must not keep their dependents for
/// ever. In a cluster of API servers of two versions one may answer the 404 and another one discovery, so that discovery is no proof either.
#[tokio::test(start_paused = true)]
async fn unnamed_404_is_absence_only_if_the_server_lists_the_namespace_without_the_object() {
    for absent in [UNNAMED, WITHOUT_DETAILS, PLAIN] {
        let table = [
            (200, list(&[], ""), Some(false)),
            // The selector is ignored.
            (200, list(&[("ns", "two"), ("ns", "three")], ""), Some(false)),
            // The object was created meanwhile, or a replica that lacks the resource has answered the first request.
            (200, list(&[("ns", "one")], ""), Some(true)),
            (200, list(&[("ns", "two"), ("ns", "one")], "more"), Some(true)),
            // The list proves neither.
            (200, list(&[("ns", "two")], "more"), None),
            (200, list(&[("other", "one")], ""), None),
            (200, "{}".to_owned(), None),
            // The resource is no longer served, or the list fails.
            (404, absent.to_owned(), None),
            (403, String::new(), None),
            (503, String::new(), None),
        ];
        for (code, list, is_there) in table {
            let found = read(absent, code, list.clone()).await;
            assert_eq!(found, (is_there, vec![OBJECT.to_owned(), LIST.to_owned()]), "{absent} {code} {list}");
        }
    }
    let found = read(NAMED, 503, String::new()).await;
    assert_eq!(found, (Some(false), vec![OBJECT.to_owned()]));
}

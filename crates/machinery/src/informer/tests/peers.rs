//! Caches of objects whose API server knows nothing of streams of initial events: small servers of other authors, in JSON.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request};
use serde_json::{Value, json};

use super::{informers, names};
use crate::api::{Kind, dynamic};
use crate::client::testing::{answer, endless, mock};
use crate::client::{ApiClient, BoxError, ResponseBody};

fn foos() -> &'static Kind {
    dynamic::kind("peers.ex.io", "v1", "Foo", "foos", true)
}

fn foo(name: &str) -> Value {
    json!({ "apiVersion": "peers.ex.io/v1", "kind": "Foo", "metadata": { "name": name, "namespace": "a", "uid": name, "resourceVersion": "7" } })
}

fn list() -> String {
    let metadata = json!({ "resourceVersion": "9" });
    json!({ "apiVersion": "peers.ex.io/v1", "kind": "FooList", "metadata": metadata, "items": [foo("web"), foo("db")] })
        .to_string()
}

fn event(kind: &str, object: &Value) -> String {
    json!({ "type": kind, "object": object }).to_string() + "\n"
}

/// How a server answers a request for a watch, whatever is asked of it.
#[derive(Clone, Debug)]
enum Watches {
    /// With this, and then the response ends.
    End(u16, String),
    /// With this, and then the connection breaks.
    Break(String),
    /// With this, and then nothing more.
    Last(String),
    /// Not at all.
    Never,
}

fn client(watches: &Watches) -> (ApiClient, Arc<parking_lot::Mutex<Vec<Request<Bytes>>>>) {
    let watches = watches.clone();
    let (service, seen) = mock(move |request: Request<Bytes>| {
        let watches = watches.clone();
        async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let mut response = match watches {
                _ if !is_watch => answer(200, list()),
                Watches::End(status, body) => answer(status, body),
                Watches::Break(body) => answer(200, "").map(|_| broken(body)),
                Watches::Last(body) => answer(200, "").map(|_| endless(body)),
                Watches::Never => std::future::pending().await,
            };
            response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
            Ok(response)
        }
    });
    (ApiClient::new(service, "test"), seen)
}

fn broken(body: String) -> ResponseBody {
    use http_body_util::BodyExt as _;
    let frames =
        [Ok(http_body::Frame::data(Bytes::from(body))), Err::<_, BoxError>("connection reset".into())];
    http_body_util::StreamBody::new(futures::stream::iter(frames)).boxed_unsync()
}

#[tokio::test(start_paused = true)]
async fn cache_of_a_server_without_streams_is_filled_by_a_list() {
    let added = event("ADDED", &foo("web"));
    let progress =
        json!({ "apiVersion": "peers.ex.io/v1", "kind": "Foo", "metadata": { "resourceVersion": "8" } });
    let bookmark = event("BOOKMARK", &progress);
    let status = |code: u16| json!({ "apiVersion": "v1", "kind": "Status", "code": code, "message": "no", "reason": "Expired" });
    let mut all = vec![
        Watches::End(200, added.clone()),
        Watches::End(200, String::new()),
        Watches::End(200, added[..20].to_owned()),
        Watches::End(200, list()),
        Watches::End(200, list() + "\n"),
        Watches::End(200, added.clone() + &bookmark + &event("ERROR", &status(410))),
        Watches::Break(added.clone()),
        Watches::Break(String::new()),
        Watches::Last(added.clone() + &bookmark),
        Watches::Last(String::new()),
        Watches::Never,
    ];
    all.extend(
        [400, 403, 404, 405, 406, 410, 415, 422, 500, 501, 503, 504]
            .map(|code| Watches::End(code, status(code).to_string())),
    );
    for watches in all {
        let (client, seen) = client(&watches);
        let informers = informers(&Arc::new(client), true);
        let handle = informers.acquire(foos(), None);
        let filled = tokio::time::timeout(std::time::Duration::from_mins(10), handle.wait_synced()).await;
        assert!(filled.is_ok_and(|filled| filled.is_ok()), "never filled: {watches:?}");
        assert_eq!(names(handle.store()), ["db@7", "web@7"], "{watches:?}");
        let first = seen.lock()[0].uri().query().unwrap_or_default().to_owned();
        assert!(first.contains("sendInitialEvents=true"), "{first}");
    }
}

//! Metadata of objects whose API server offers no protobuf, or ignores what it is asked for.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::Layer as _;

use crate::api::{Kind, dynamic};
use crate::client::layers::{JsonOnTheWire, With};
use crate::client::testing::{answer, mock};
use crate::client::{
    ApiClient, ApiError, BoxError, DeleteOptions, HttpService, LONGEST_OBJECT, ListQuery, WatchQuery,
};
use crate::model::Key;
use crate::model::plan::{Patch, Propagation};
use crate::wire::{EventType, ObjectHead, WatchFrame, wrap_envelope};

type Seen = Arc<Mutex<Vec<Request<Bytes>>>>;

fn foos() -> &'static Kind {
    dynamic::kind("ex.io", "v1", "Foo", "foos", true)
}

fn key() -> Key {
    Key::new("default", "web")
}

fn foo(name: &str) -> Value {
    json!({
        "apiVersion": "ex.io/v1", "kind": "Foo",
        "metadata": { "name": name, "namespace": "default", "uid": "u-1", "resourceVersion": "7", "finalizers": ["ex.io/a"] },
        "spec": { "metadata": { "name": "of the spec" }, "huge": [1e300, -1, "x"] }, "status": null,
    })
}

fn foo_list() -> Value {
    json!({ "apiVersion": "ex.io/v1", "kind": "FooList", "metadata": { "resourceVersion": "9", "continue": "next" },
        "items": [foo("web"), foo("db")] })
}

fn in_json(
    status: u16,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<super::super::ResponseBody> {
    let mut response = answer(status, body);
    if !content_type.is_empty() {
        response.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
    }
    response
}

/// A server that answers each request with the same text.
fn server(content_type: &'static str, body: impl Into<Bytes>) -> (ApiClient, Seen) {
    let body = body.into();
    let (service, seen) = mock(move |_| {
        let body = body.clone();
        async move { Ok(in_json(200, content_type, body)) }
    });
    (ApiClient::new(service, "test"), seen)
}

/// A small server of an own group: it knows JSON alone, and whole objects only.
fn json_server(is_strict: bool) -> (HttpService, Seen) {
    mock(move |request: Request<Bytes>| async move {
        let header = |name: &str| request.headers().get(name).map_or("", |value| value.to_str().unwrap());
        if is_strict && !header("accept").split(',').any(|each| each.trim() == "application/json") {
            return Ok(answer(406, "only application/json"));
        }
        if is_strict && request.method() == "DELETE" && header("content-type") != "application/json" {
            return Ok(answer(415, "only application/json"));
        }
        let is_one = request.uri().path().ends_with("/web");
        let body = if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            let event =
                |kind: &str, object: Value| json!({ "type": kind, "object": object }).to_string() + "\n";
            let bookmark =
                json!({ "apiVersion": "ex.io/v1", "kind": "Foo", "metadata": { "resourceVersion": "8" } });
            let gone = json!({ "apiVersion": "v1", "kind": "Status", "code": 410, "reason": "Expired" });
            event("ADDED", foo("web")) + &event("BOOKMARK", bookmark) + &event("ERROR", gone)
        } else if request.method() == "DELETE" && !is_one {
            json!({ "apiVersion": "v1", "kind": "Status", "status": "Success" }).to_string()
        } else {
            if is_one { foo("web") } else { foo_list() }.to_string()
        };
        Ok(in_json(200, "application/json; charset=utf-8", body))
    })
}

async fn frames(client: &ApiClient) -> Result<Vec<WatchFrame>, BoxError> {
    let body = client.watch(foos(), &WatchQuery::default()).await?;
    let mut bytes = body.collect().await?.to_bytes();
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_be_bytes(bytes.split_to(4)[..].try_into()?) as usize;
        frames.push(WatchFrame::decode(&bytes.split_to(length))?);
    }
    Ok(frames)
}

#[tokio::test]
async fn whole_objects_in_json_are_read_as_metadata() {
    for (is_strict, json_mode) in [(false, false), (true, false), (true, true)] {
        let (service, seen) = json_server(is_strict);
        let service = if json_mode { HttpService::new(With(JsonOnTheWire).layer(service)) } else { service };
        let client = ApiClient::new(service, "test");
        let options = DeleteOptions {
            uid: Some("u-1".to_owned()),
            resource_version: Some("7".to_owned()),
            propagation: Some(Propagation::Foreground),
            grace_period_seconds: Some(0),
        };
        let read = client.get(foos(), &key()).await.unwrap();
        let deleted = client.delete(foos(), &key(), &options).await.unwrap();
        let patched = client.patch(foos(), &key(), None, &Patch::Merge(json!({}))).await.unwrap();
        assert_eq!(deleted.uid, "u-1");
        for object in [read, deleted.object.unwrap(), patched] {
            let meta = object.meta();
            assert_eq!((meta.name.as_str(), meta.resource_version.as_str()), ("web", "7"));
            assert_eq!(meta.finalizers[0], "ex.io/a");
        }
        let page = client.list(foos(), &ListQuery::default()).await.unwrap();
        assert_eq!((page.resource_version.as_str(), page.continue_token.as_str()), ("9", "next"));
        let names = page.items.iter().map(|item| ObjectHead::read(item).unwrap().name.into_owned());
        assert_eq!(names.collect::<Vec<_>>(), ["web", "db"]);
        assert!(page.items.iter().all(|item| item.len() < 60), "the rest of an object is not kept");
        client.delete_collection(foos(), "default", &DeleteOptions::default()).await.unwrap();

        let frames = frames(&client).await.unwrap();
        let kinds: Vec<_> = frames.iter().map(|frame| frame.kind).collect();
        assert_eq!(kinds, [EventType::Added, EventType::Bookmark, EventType::Error]);
        let heads: Vec<_> =
            frames[..2].iter().map(|frame| ObjectHead::read(&frame.object).unwrap()).collect();
        assert_eq!((&*heads[0].name, &*heads[1].name, &*heads[1].resource_version), ("web", "", "8"));

        let seen = seen.lock();
        let body: Value = serde_json::from_slice(seen[1].body()).unwrap();
        let expected = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
            "preconditions": { "uid": "u-1", "resourceVersion": "7" }, "propagationPolicy": "Foreground" });
        assert_eq!(body, expected);
        let body: Value = serde_json::from_slice(seen[4].body()).unwrap();
        assert_eq!(body, json!({ "kind": "DeleteOptions", "apiVersion": "v1" }));
        assert!(seen[1].headers()["content-type"] == "application/json");
    }
}

#[tokio::test]
async fn protobuf_is_asked_for_first_and_whole_objects_in_json_last() {
    let (client, seen) =
        server("", wrap_envelope("meta.k8s.io/v1", "PartialObjectMetadata", b"\x0a\x05\x0a\x03web"));
    assert_eq!(client.get(foos(), &key()).await.unwrap().meta().name, "web");
    client.list(foos(), &ListQuery::default()).await.unwrap();
    client.watch(foos(), &WatchQuery::default()).await.unwrap();
    let seen = seen.lock();
    for (request, form, stream) in [
        (0, "PartialObjectMetadata", ""),
        (1, "PartialObjectMetadataList", ""),
        (2, "PartialObjectMetadata", ";stream=watch"),
    ] {
        let expected = format!(
            "application/vnd.kubernetes.protobuf;as={form};g=meta.k8s.io;v=v1{stream},\
             application/json;as={form};g=meta.k8s.io;v=v1,application/json"
        );
        assert_eq!(seen[request].headers()["accept"], expected);
    }
}

/// An API server of anybody decides about these bytes.
#[tokio::test]
async fn answers_that_are_no_objects_are_errors() {
    for (content_type, body) in [
        ("application/json", ""),
        ("application/json", "null"),
        ("application/json", "[]"),
        ("application/json", "{"),
        ("application/json", "{}"),
        ("application/json", r#"{"apiVersion":"ex.io/v1","kind":"Foo"}"#),
        ("application/json", r#"{"apiVersion":"ex.io/v1","kind":"Foo","metadata":null}"#),
        ("application/json", r#"{"apiVersion":"ex.io/v1","kind":"Foo","metadata":[]}"#),
        ("application/json", r#"{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{}}"#),
        ("application/json", r#"{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":1}}"#),
        (
            "application/json",
            r#"{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"a","generation":1e99}}"#,
        ),
        (
            "application/json",
            r#"{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"a","labels":"x"}}"#,
        ),
        ("application/json", r#"{"apiVersion":"v1","kind":"Status","metadata":{"name":"a"}}"#),
        ("application/json", r#"{"apiVersion":"v1","kind":"Status","metadata":{"name":"a"},"items":[]}"#),
        ("text/html", "<html>"),
        ("", r#"{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":"a"}}"#),
        ("application/vnd.kubernetes.protobuf", "k8s"),
    ] {
        let (client, _) = server(content_type, body);
        let error = client.get(foos(), &key()).await.map(drop).unwrap_err();
        assert!(matches!(error, ApiError::Malformed { .. }), "{body}: {error:?}");
        let error = client.list(foos(), &ListQuery::default()).await.map(drop).unwrap_err();
        assert!(matches!(error, ApiError::Malformed { .. }), "{body}: {error:?}");
        if content_type == "application/json" {
            let events = frames(&client).await;
            assert!(events.is_err() || events.is_ok_and(|events| events.is_empty()), "{body}");
        }
        // It is gone, whatever the server says about that.
        assert!(
            client.delete(foos(), &key(), &DeleteOptions::default()).await.unwrap().object.is_none(),
            "{body}"
        );
    }
}

#[tokio::test]
async fn malformed_object_of_a_list_exists_and_hides_no_other() {
    for malformed in [
        json!({}),
        json!(null),
        json!(1),
        json!({ "metadata": null }),
        json!({ "metadata": {} }),
        json!({ "metadata": { "name": "" } }),
        json!({ "metadata": { "name": "b", "generation": "x" } }),
        json!({ "metadata": { "name": "b", "deletionTimestamp": "yesterday" } }),
        json!({ "metadata": { "name": "b", "generation": 1e99 } }),
    ] {
        let mut list = foo_list();
        list["metadata"] = json!({});
        list["items"].as_array_mut().unwrap().insert(1, malformed.clone());
        let (client, _) = server("application/json", list.to_string());
        let found = client.list_all(foos(), "default").await.unwrap();
        let names: Vec<_> = found.readable().iter().map(|object| object.meta().name.to_string()).collect();
        assert_eq!(names, ["web", "db"], "{malformed}");
        assert!(found.complete().is_err(), "{malformed}");

        let line = json!({ "type": "ADDED", "object": malformed }).to_string() + "\n";
        let (client, _) = server("application/json", line);
        let frames = frames(&client).await.unwrap();
        assert!((foos().decode)(&frames[0].object).is_err(), "{malformed}");
    }
}

#[tokio::test]
async fn odd_lists_are_read_as_by_go() {
    for (body, names) in [
        (r#"{"apiVersion":"ex.io/v1","kind":"FooList"}"#, &[][..]),
        (r#"{"apiVersion":"ex.io/v1","kind":"FooList","metadata":null,"items":null}"#, &[]),
        // A small server may give its lists any kind.
        (r#"{"apiVersion":"ex.io/v1","kind":"Foos","items":[{"metadata":{"name":"a"}}]}"#, &["a"]),
        // The last of two members counts.
        (
            r#"{"apiVersion":"ex.io/v1","kind":"Foo","kind":"FooList","items":[],
                "items":[{"metadata":{"name":"a","name":"b"}}]}"#,
            &["b"],
        ),
        // Items of a further member are read into those of the one before, element by element.
        (
            r#"{"apiVersion":"ex.io/v1","kind":"FooList","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],
                "items":[{"metadata":{"uid":"1"}},{"metadata":{"name":"c"}}]}"#,
            &["a", "c"],
        ),
        (
            r#"{"apiVersion":"ex.io/v1","kind":"FooList","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],
                "items":[{}]}"#,
            &["a"],
        ),
        (
            r#"{"apiVersion":"ex.io/v1","kind":"FooList","items":[{"metadata":{"name":"a"}}],"items":null}"#,
            &[],
        ),
    ] {
        let (client, _) = server("Application/JSON;charset=utf-8", body);
        let found = client.list_all(foos(), "default").await.unwrap();
        let found: Vec<_> = found.readable().iter().map(|object| object.meta().name.to_string()).collect();
        assert_eq!(found, names, "{body}");
    }
}

/// JavaScript and Python write a lone surrogate as such an escape, and any user may store one.
#[tokio::test]
async fn text_that_is_not_unicode_is_replaced_as_by_go() {
    for (text, read) in [
        (&b"a\xff"[..], "a\u{fffd}"),
        (b"\xe4\xb8a", "\u{fffd}\u{fffd}a"),
        (br"\ud800", "\u{fffd}"),
        (br"\uDFFFb", "\u{fffd}b"),
        (br"\ud800\ud83d\ude00\ude00", "\u{fffd}\u{1f600}\u{fffd}"),
        (br"\ud800\u0041", "\u{fffd}A"),
        (br"\\ud800", r"\ud800"),
        (br"\\\ud800", "\\\u{fffd}"),
    ] {
        let metadata = [
            &b"{\"name\":\"a\",\"finalizers\":[\""[..],
            text,
            b"\"],\"annotations\":{\"",
            text,
            b"\":\"",
            text,
            b"\"},\"",
            text,
            b"\":1}",
        ]
        .concat();
        let object =
            [b"{\"apiVersion\":\"ex.io/v1\",\"kind\":\"Foo\",\"metadata\":", &metadata[..], b"}"].concat();
        let list =
            [b"{\"apiVersion\":\"ex.io/v1\",\"kind\":\"FooList\",\"items\":[", &object[..], b"]}"].concat();
        let event = [b"{\"type\":\"ADDED\",\"object\":", &object[..], b"}\n"].concat();
        let shown = String::from_utf8_lossy(text).into_owned();

        let listed = server("application/json", list).0.list_all(foos(), "default").await.unwrap();
        let listed = Arc::clone(&listed.complete().unwrap()[0]);
        let got = server("application/json", object).0.get(foos(), &key()).await.unwrap();
        let frames = frames(&server("application/json", event).0).await.unwrap();
        let watched = (foos().decode)(&frames[0].object).unwrap();
        for object in [listed, got, watched] {
            let finalizers: Vec<_> = object.meta().finalizers.iter().map(ToString::to_string).collect();
            assert_eq!(finalizers, [read], "{shown}");
        }
    }
}

#[tokio::test]
async fn answer_in_json_has_a_limit() {
    const PIECE: &[u8] = &[b' '; 1 << 20];
    let (service, _) = mock(|_| async {
        let frames = (0..100).map(|_| Ok::<_, BoxError>(Frame::data(Bytes::from_static(PIECE))));
        let body = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::OK;
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
        Ok(response)
    });
    let client = ApiClient::new(service, "test");
    let error = client.get(foos(), &key()).await.map(drop).unwrap_err();
    assert!(matches!(error, ApiError::TooLong { limit, .. } if limit == 4 * LONGEST_OBJECT), "{error:?}");
    let error = client.delete(foos(), &key(), &DeleteOptions::default()).await.map(drop).unwrap_err();
    assert!(matches!(error, ApiError::TooLong { .. }), "{error:?}");
    assert!(frames(&client).await.unwrap_err().to_string().contains("has more than"));
}

//! What goes over the wire, and what is made of the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use crate::api::kinds;
use crate::api::meta::{Status, StatusCause, StatusDetails, StatusMetadata};
use crate::client::error::LONGEST_RETRY_AFTER;
use crate::client::layers::{Timeout, With};
use crate::client::testing::{answer, endless, mock};
use crate::client::{
    ApiClient, ApiError, BoxError, DeleteOptions, FieldSelector, HttpService, ListQuery, RequestIntent,
    TransportError, WatchQuery,
};
use crate::model::Key;
use crate::model::plan::{Patch, Propagation};
use crate::wire::text::held_text;
use crate::wire::{Message, Str, wrap_envelope};

fn key() -> Key {
    Key::new("default", "web")
}

fn failing(code: u16, body: impl Into<Bytes>) -> ApiClient {
    let body = body.into();
    let (service, _) = mock(move |_| {
        let body = body.clone();
        async move { Ok(answer(code, body)) }
    });
    ApiClient::new(service, "test")
}

#[tokio::test]
async fn a_delete_names_what_it_means() {
    let (service, seen) = mock(|_| async { Ok(answer(200, wrap_envelope("v1", "Status", b""))) });
    let client = ApiClient::new(service, "test");
    let options = DeleteOptions {
        uid: Some("u-1".to_owned()),
        resource_version: Some("42".to_owned()),
        propagation: Some(Propagation::Foreground),
        grace_period_seconds: Some(0),
    };
    let gone = client.delete(&kinds::PODS, &key(), &options).await.unwrap();
    assert!(gone.object.is_none(), "a mere Status is no object");
    client.delete(&kinds::PODS, &key(), &DeleteOptions::default()).await.unwrap();

    let seen = seen.lock();
    assert_eq!(seen[0].method(), Method::DELETE);
    assert_eq!(seen[0].uri(), "/api/v1/namespaces/default/pods/web");
    assert_eq!(seen[0].headers()["content-type"], "application/vnd.kubernetes.protobuf");
    let mut expected = b"k8s\0".to_vec();
    // runtime.Unknown { typeMeta: { apiVersion: "v1", kind: "DeleteOptions" }, raw: … }
    expected.extend(b"\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions");
    // DeleteOptions { gracePeriodSeconds: 0, preconditions: { uid, resourceVersion }, propagationPolicy }
    expected.extend(b"\x12\x19\x08\x00\x12\x09\x0a\x03u-1\x12\x0242\x22\x0aForeground");
    assert_eq!(seen[0].body().as_ref(), expected);
    assert_eq!(seen[1].body().as_ref(), b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x00");
}

#[tokio::test]
async fn what_is_written_by_its_metadata_is_answered_by_it() {
    let kind = crate::api::dynamic::kind("ex.io", "v1", "Foo", "foos", true);
    // PartialObjectMetadata { metadata: { name: "web" } }
    let (service, seen) = mock(|_| async {
        let body = wrap_envelope("meta.k8s.io/v1", "PartialObjectMetadata", b"\x0a\x05\x0a\x03web");
        Ok(answer(200, body))
    });
    let client = ApiClient::new(service, "test");
    let patched = client.patch(kind, &key(), None, &Patch::Json(serde_json::json!([]))).await.unwrap();
    let deleted = client.delete(kind, &key(), &DeleteOptions::default()).await.unwrap();
    for answered in [Some(patched), deleted.object] {
        assert_eq!(answered.unwrap().meta().name, "web");
    }
    let seen = seen.lock();
    for request in seen.iter() {
        assert_eq!(request.uri(), "/apis/ex.io/v1/namespaces/default/foos/web");
        assert_eq!(
            request.headers()["accept"],
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
             application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        );
    }
    assert_eq!(seen.len(), 2);
}

/// A genuine character of those that stand for bytes stays; a byte leaves as U+FFFD, as Go writes it.
#[tokio::test]
async fn patch_has_texts_of_the_api_as_go_writes_them() {
    let (service, seen) = mock(|_| async { Ok(answer(200, wrap_envelope("v1", "Pod", b""))) });
    let client = ApiClient::new(service, "test");
    let [genuine, bytes] =
        [held_text("\u{10ffc3}".as_bytes()), held_text(b"\xff\xfe")].map(|text| Str::from(&*text));
    let value = serde_json::json!({ "a": genuine, "b": genuine.as_str(), "c": bytes });
    client.patch(&kinds::PODS, &key(), None, &Patch::Merge(value)).await.unwrap();
    let sent: serde_json::Value = serde_json::from_slice(seen.lock()[0].body()).unwrap();
    let expected = serde_json::json!({ "a": "\u{10ffc3}", "b": "\u{10ffc3}", "c": "\u{fffd}\u{fffd}" });
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn queries_are_encoded() {
    let (service, seen) = mock(|_| async { Ok(answer(200, wrap_envelope("v1", "PodList", b""))) });
    let client = ApiClient::new(service, "test");
    let query = ListQuery {
        namespace: "a".to_owned(),
        field_selector: Some(FieldSelector::name("x")),
        limit: Some(500),
        resource_version: Some("0".to_owned()),
        ..ListQuery::default()
    };
    client.list(&kinds::PODS, &query).await.unwrap();
    let query = WatchQuery { send_initial_events: true, timeout_seconds: 300, ..WatchQuery::default() };
    client.watch(&kinds::PODS, &query).await.unwrap();
    let seen = seen.lock();
    assert_eq!(
        seen[0].uri(),
        "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx&limit=500&resourceVersion=0"
    );
    assert_eq!(
        seen[1].uri(),
        "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
         &resourceVersionMatch=NotOlderThan&timeoutSeconds=300"
    );
}

#[tokio::test]
async fn a_status_is_understood_in_protobuf_and_in_json() {
    let status = Status {
        metadata: StatusMetadata { r#continue: "further on".into() },
        status: "Failure".into(),
        message: "pods \"web\" is forbidden".into(),
        reason: "Forbidden".into(),
        code: 403,
        details: Some(Box::new(StatusDetails {
            retry_after_seconds: 4,
            causes: vec![StatusCause { reason: "NamespaceTerminating".into(), ..StatusCause::default() }],
            ..StatusDetails::default()
        })),
    };
    let mut encoded = Vec::new();
    status.encode_fields(&mut encoded);
    let error =
        failing(403, wrap_envelope("v1", "Status", &encoded)).get(&kinds::PODS, &key()).await.unwrap_err();
    assert_eq!((error.code(), error.reason()), (403, "Forbidden"));
    assert_eq!(error.message(), "pods \"web\" is forbidden");
    assert!(error.has_cause("NamespaceTerminating"));
    assert_eq!(error.retry_after(), Some(Duration::from_secs(4)));
    let body = Bytes::from_static(br#"{"kind":"Status","details":{"retryAfterSeconds":2147483647}}"#);
    for (header, status) in [(None, &body), (Some(Duration::MAX), &Bytes::new())] {
        let error =
            ApiError::refused("POST", RequestIntent::Create, StatusCode::TOO_MANY_REQUESTS, header, status);
        assert_eq!(error.retry_after(), Some(LONGEST_RETRY_AFTER), "a webhook chooses any number");
    }
    assert_eq!(error.next_page(), "further on");
    assert!(!error.is_ambiguous());

    let json = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"gone","reason":"Expired","code":410,
        "metadata":{"continue":"there"},"details":{"retryAfterSeconds":2,"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
    let error = failing(410, json).get(&kinds::PODS, &key()).await.unwrap_err();
    assert!(error.is_expired() && error.has_cause("ResourceVersionTooLarge"));
    assert_eq!(error.retry_after(), Some(Duration::from_secs(2)));
    assert_eq!(error.next_page(), "there");
    assert_eq!(error.to_string(), "GET /api/v1/namespaces/default/pods/web: gone (410 Expired)");

    let error = failing(502, "bad gateway\n").get(&kinds::PODS, &key()).await.unwrap_err();
    assert_eq!((error.code(), error.reason(), error.message().as_str()), (502, "", "bad gateway"));
    assert!(error.is_ambiguous());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_one_in_the_headers_and_in_the_body() {
    use tower::Layer;
    let limit = Timeout(Duration::from_secs(10));
    for service in
        [mock(|_| std::future::pending()).0, mock(|_| async { Ok(http::Response::new(endless("k8s"))) }).0]
    {
        let client = ApiClient::new(HttpService::new(With(limit).layer(service)), "test");
        let error = client.get(&kinds::PODS, &key()).await.unwrap_err();
        assert!(matches!(&error, ApiError::Timeout { after, .. } if *after == limit.0), "{error:?}");
        assert!(error.is_ambiguous());
    }
}

#[tokio::test]
async fn what_was_certainly_not_sent_is_not_ambiguous() {
    for (not_sent, ambiguous) in [(true, false), (false, true)] {
        let (service, _) = mock(move |_: Request<Bytes>| async move {
            Err(TransportError::new("down".into(), not_sent).into())
        });
        let error = ApiClient::new(service, "test").get(&kinds::PODS, &key()).await.unwrap_err();
        assert_eq!(error.is_ambiguous(), ambiguous);
        assert_eq!(error.to_string(), "GET /api/v1/namespaces/default/pods/web: down");
    }
}

/// A client whose server answers with this code and pieces of a mebibyte without an end, and how many it has sent.
fn flooding(code: u16) -> (ApiClient, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let (service, _) = mock(move |_| {
        let sent = Arc::clone(&counted);
        let piece = Bytes::from(vec![b' '; 1 << 20]);
        let pieces = futures::stream::repeat_with(move || {
            sent.fetch_add(1, Ordering::SeqCst);
            Ok::<_, BoxError>(Frame::data(piece.clone()))
        });
        async move {
            let mut response = http::Response::new(StreamBody::new(pieces).boxed_unsync());
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            Ok(response)
        }
    });
    (ApiClient::new(service, "test"), sent)
}

#[tokio::test]
async fn endless_answer_ends_at_the_limit_of_its_intent() {
    let limit = RequestIntent::Get.body_limit();
    let (client, sent) = flooding(200);
    let errors = [
        client.get(&kinds::PODS, &key()).await.unwrap_err(),
        client.create(&kinds::PODS, "default", b"").await.unwrap_err(),
        client.update(&kinds::PODS, &key(), None, b"").await.unwrap_err(),
        client.patch(&kinds::PODS, &key(), None, &Patch::Json(serde_json::json!([]))).await.unwrap_err(),
        client.delete(&kinds::PODS, &key(), &DeleteOptions::default()).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, ApiError::TooLong { limit: held, .. } if held == limit), "{error:?}");
        assert!(error.to_string().ends_with("the response has more than 16777216 bytes"), "{error}");
        assert!(error.is_ambiguous(), "a write may have been carried out");
    }
    assert_eq!(sent.load(Ordering::SeqCst), 5 * 17);
    // Nothing is kept of what a collection was, so this takes no memory.
    let error =
        client.delete_collection(&kinds::PODS, "default", &DeleteOptions::default()).await.unwrap_err();
    let limit = RequestIntent::DeleteCollection.body_limit();
    assert!(matches!(error, ApiError::TooLong { limit: held, .. } if held == limit), "{error:?}");
}

#[tokio::test]
async fn endless_error_answer_is_cut_and_its_code_counts() {
    let (client, sent) = flooding(403);
    let query = WatchQuery::default();
    for error in [
        client.get(&kinds::PODS, &key()).await.unwrap_err(),
        client.list(&kinds::PODS, &ListQuery::default()).await.unwrap_err(),
        client.watch(&kinds::PODS, &query).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.code(), 403);
        assert_eq!(error.message(), "Forbidden");
    }
    assert_eq!(sent.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn name_is_never_a_query_or_another_path() {
    let (service, seen) = mock(|_| async { Ok(answer(404, "")) });
    let client = ApiClient::new(service, "test");
    let get = async |name: &str| client.get(&kinds::CLUSTER_ROLES, &Key::new("", name)).await.unwrap_err();
    for (name, path) in [
        ("?watch=true&timeoutSeconds=31536000", "%3Fwatch=true&timeoutSeconds=31536000"),
        ("team#1", "team%231"),
        ("my role", "my%20role"),
        ("system:node", "system:node"),
    ] {
        assert_eq!(get(name).await.code(), 404);
        let expected = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{path}");
        assert_eq!(*seen.lock().last().unwrap().uri(), *expected);
    }
    let sent = seen.lock().len();
    for name in ["", ".", "..", "a/b", "%2e%2e"] {
        let error = get(name).await;
        assert!(error.is_unaddressable() && !error.is_object_not_found(), "{error:?}");
        let options = DeleteOptions::default();
        client.delete(&kinds::CLUSTER_ROLES, &Key::new("", name), &options).await.unwrap_err();
    }
    assert_eq!(seen.lock().len(), sent, "nothing was sent");
}

//! Requests in protobuf over a service that speaks JSON.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tower::{Layer as _, ServiceExt as _};

use super::*;
use crate::api::kinds::PODS;
use crate::client::ApiError;
use crate::client::api::HttpService;
use crate::client::layers::With;
use crate::client::request::{RequestPath, build};
use crate::client::testing::{answer, mock};
use crate::wire::{ObjectHead, WatchFrame, wrap_envelope};

async fn send(below: HttpService, request: ApiRequest) -> Result<ApiResponse, BoxError> {
    With(JsonOnTheWire).layer(below).oneshot(request).await
}

/// A request in protobuf, as [`ApiClient`](crate::client::ApiClient) sends it.
fn in_protobuf(method: Method, uri: &str, accept: &str, body: Option<Vec<u8>>) -> ApiRequest {
    let mut request = Request::builder().method(method).uri(uri).header("accept", accept);
    if body.is_some() {
        request = request.header("content-type", "application/vnd.kubernetes.protobuf");
    }
    request.body(Full::new(Bytes::from(body.unwrap_or_default()))).unwrap()
}

fn json_answer(status: u16, body: &'static str) -> ApiResponse {
    let mut response = answer(status, body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}

#[tokio::test]
async fn json_is_spoken_below_and_protobuf_above() {
    const STORED: &str = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","newer":1}}"#;
    let (below, seen) = mock(|_| async { Ok(json_answer(200, STORED)) });
    let name = wrap_envelope("v1", "ConfigMap", b"\x0a\x03\x0a\x01a");
    let request = in_protobuf(Method::PUT, "/x", "application/vnd.kubernetes.protobuf", Some(name));
    let response = send(below, request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(object_to_json(&body).unwrap().len(), STORED.len());
    let seen = seen.lock();
    assert_eq!(seen[0].headers()["accept"], "application/json");
    assert_eq!(seen[0].headers()["content-type"], "application/json");
    assert_eq!(*seen[0].body(), r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#);
}

#[tokio::test]
async fn what_is_not_protobuf_passes_as_it_is() {
    let (below, seen) = mock(|_| async { Ok(json_answer(200, "{}")) });
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                    application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    let request = in_protobuf(Method::GET, "/x", "application/json", None);
    let response = send(below.clone(), request).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{}");
    let response = send(below.clone(), in_protobuf(Method::GET, "/x", metadata, None)).await.unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "{}",
        "the client reads either form"
    );
    let protobuf = "application/vnd.kubernetes.protobuf";
    let refused = send(below, in_protobuf(Method::GET, "/x", protobuf, None)).await;
    let refused = ApiError::transport("GET /x", refused.unwrap_err());
    assert_eq!(
        refused.to_string().matches("malformed JSON in apiVersion: missing member").count(),
        1,
        "{refused}"
    );
    assert!(matches!(refused, ApiError::Malformed { .. }), "{refused:?}");
    let asked: Vec<_> = seen.lock().iter().map(|request| request.headers()["accept"].clone()).collect();
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    assert_eq!(asked, ["application/json", metadata, "application/json"]);

    let status = r#"{"kind":"Status","apiVersion":"v1","code":404}"#;
    let (below, _) = mock(move |_| async move { Ok(json_answer(404, status)) });
    let request = in_protobuf(Method::GET, "/x", "application/vnd.kubernetes.protobuf", None);
    let response = send(below, request).await.unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        status,
        "whoever reads it knows both"
    );
}

/// Lines are cut anywhere, and the last one is half.
#[tokio::test]
async fn the_lines_of_a_watch_become_frames() {
    let line = |name: &str| {
        format!(
            r#"{{"type":"ADDED","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}"}}}}}}"#
        )
    };
    let text = format!("{}\n\n{}\n{}", line("a"), line("b"), &line("c")[..20]);
    for size in [1, 7, 50, text.len()] {
        let pieces: Vec<Bytes> = text.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
        let (below, seen) = mock(move |_| {
            let frames = pieces.clone().into_iter().map(|piece| Ok::<_, BoxError>(Frame::data(piece)));
            let body = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
            let mut response = Response::new(body);
            response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
            async move { Ok(response) }
        });
        let accept = "application/vnd.kubernetes.protobuf;stream=watch";
        let watch = RequestPath::collection(&PODS, "").into();
        let (_, request) =
            build(RequestIntent::Watch, &watch, HeaderValue::from_static(accept), None).unwrap();
        let response = send(below, request).await.unwrap();
        let mut frames = response.into_body().collect().await.unwrap().to_bytes();
        let mut names = Vec::new();
        while !frames.is_empty() {
            let length = frames.split_to(4);
            let length = u32::from_be_bytes(length.as_ref().try_into().unwrap());
            let frame = WatchFrame::decode(&frames.split_to(length as usize)).unwrap();
            names.push(ObjectHead::read(&frame.object).unwrap().name.into_owned());
        }
        assert_eq!(names, ["a", "b"]);
        assert_eq!(seen.lock()[0].headers()["accept"], "application/json");
    }
}

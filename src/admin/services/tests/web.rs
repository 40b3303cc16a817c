//! Browsers, and requests that nobody would make: what comes in as bytes.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt as _, Full};
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::admin::authorize::METHODS;
use crate::admin::proto;
use crate::admin::services::admin_handler;
use coxswain_machinery::serve::{AnswerBody, PageHandler};

const LIST: &str = "ControllerService/ListControllers";
const PAGE: &str = "https://console.example.org";

fn handler_for(options: &AdminOptions) -> PageHandler {
    let manager = Arc::new(Fake::new());
    let events = Arc::new(EventLog::new("log-1", 8, manager.clock()));
    let deps = AdminDeps {
        manager,
        authorizer: Arc::new(Judge::default()),
        events,
        shutdown: CancellationToken::new(),
        metrics: crate::admin::AdminMetrics::register(&coxswain_machinery::telemetry::Registry::new())
            .unwrap(),
        mutations: tokio_util::task::TaskTracker::new(),
    };
    admin_handler(deps, options).unwrap()
}

fn web() -> AdminOptions {
    AdminOptions { grpc_web: true, allowed_origins: vec![PAGE.to_owned()], ..AdminOptions::default() }
}

fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(message);
    framed.freeze()
}

async fn send(handler: &PageHandler, rpc: &str, content_type: &str, body: Bytes) -> Response<AnswerBody> {
    send_over(Version::HTTP_2, handler, rpc, content_type, body).await
}

async fn send_over(
    version: Version,
    handler: &PageHandler,
    rpc: &str,
    content_type: &str,
    body: Bytes,
) -> Response<AnswerBody> {
    let user = UserInfo { name: "jane".into(), groups: vec![AUTHENTICATED.into()], ..UserInfo::default() };
    let request = Request::builder()
        .method(Method::POST)
        .version(version)
        .uri(format!("https://replica/coxswain.admin.v1.{rpc}"))
        .header(header::CONTENT_TYPE, content_type)
        .header(header::ORIGIN, PAGE)
        .header("te", "trailers")
        .extension(Arc::new(user))
        .body(Full::new(body).map_err(|never| match never {}).boxed_unsync())
        .unwrap();
    handler(request).await
}

async fn preflight(handler: &PageHandler, origin: &str) -> Response<AnswerBody> {
    let request = Request::builder()
        .method(Method::OPTIONS)
        .uri(format!("https://replica/coxswain.admin.v1.{LIST}"))
        .header(header::ORIGIN, origin)
        .header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST")
        .header(header::ACCESS_CONTROL_REQUEST_HEADERS, "authorization,content-type,x-grpc-web")
        .extension(Arc::new(UserInfo::anonymous()))
        .body(Full::default().map_err(|never: Infallible| match never {}).boxed_unsync())
        .unwrap();
    handler(request).await
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_call() {
    let handler = handler_for(&web());
    let answer = preflight(&handler, PAGE).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], PAGE);

    let list = proto::ListControllersRequest::default().encode_to_vec();
    let answer = send(&handler, LIST, "application/grpc-web+proto", frame(&list)).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/grpc-web+proto");
    assert_eq!(answer.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], PAGE);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("grpc-status:0"), "{body:?}");

    let answer = preflight(&handler, "https://elsewhere.example.org").await;
    assert!(!answer.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
}

#[tokio::test]
async fn browsers_are_refused_unless_they_are_asked_for() {
    let handler = handler_for(&AdminOptions::default());
    let list = proto::ListControllersRequest::default().encode_to_vec();
    let answer = send(&handler, LIST, "application/grpc-web+proto", frame(&list)).await;
    let plain = send(&handler, LIST, "application/grpc", frame(&list)).await;
    assert_eq!(plain.headers()[header::CONTENT_TYPE], "application/grpc");
    assert!(!plain.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
    // The service behind does not know the translation and answers in its own protocol, which no page can read.
    assert_ne!(answer.headers().get(header::CONTENT_TYPE).unwrap(), "application/grpc-web+proto");
}

#[tokio::test]
async fn over_http1_only_grpc_web_is_spoken() {
    let list = frame(&proto::ListControllersRequest::default().encode_to_vec());
    for (options, content_type, expected) in [
        (AdminOptions::default(), "application/grpc", StatusCode::HTTP_VERSION_NOT_SUPPORTED),
        (web(), "application/grpc", StatusCode::BAD_REQUEST),
        (web(), "application/grpc-web+proto", StatusCode::OK),
    ] {
        let handler = handler_for(&options);
        let answer = send_over(Version::HTTP_11, &handler, LIST, content_type, list.clone()).await;
        assert_eq!(answer.status(), expected, "{content_type}, {options:?}");
    }
}

/// The `grpc-status` of an answer, which must come soon.
async fn status_of(handler: &PageHandler, rpc: &str, body: Bytes) -> Option<String> {
    let answer = tokio::time::timeout(Duration::from_secs(10), send(handler, rpc, "application/grpc", body));
    let answer = answer.await.expect("an answer");
    let text = |headers: &http::HeaderMap| {
        headers.get("grpc-status").map(|value| value.to_str().unwrap().to_owned())
    };
    if let Some(status) = text(answer.headers()) {
        return Some(status);
    }
    // A stream says nothing before its end, and some have none.
    let mut body = answer.into_body();
    loop {
        let next = tokio::time::timeout(Duration::from_millis(50), body.frame()).await.ok()??;
        if let Ok(trailers) = next.unwrap().into_trailers() {
            return text(&trailers);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever bytes come in, each RPC answers, and the services go on.
    #[test]
    fn no_bytes_break_a_service(
        method in 0..METHODS.len(),
        message in proptest::collection::vec(any::<u8>(), 0..200),
        raw in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let handler = handler_for(&AdminOptions::default());
            let body = if raw { Bytes::from(message) } else { frame(&message) };
            let status = status_of(&handler, METHODS[method].rpc, body).await;
            // 2 (UNKNOWN) is what a panic or an error without a code would become.
            prop_assert!(status.as_deref() != Some("2"), "{:?}", METHODS[method]);
            let list = proto::ListControllersRequest::default().encode_to_vec();
            let listed = status_of(&handler, LIST, frame(&list)).await;
            prop_assert_eq!(listed.as_deref(), Some("0"));
            Ok(())
        })?;
    }
}

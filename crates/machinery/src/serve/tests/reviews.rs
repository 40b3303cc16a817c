//! Reviews as they go over the wire.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;
use tower::util::BoxCloneSyncService;

use crate::client::{ApiClient, BoxError};
use crate::serve::*;

/// What was asked: method, path with query, body.
type Asked = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A client whose server gives these answers, one by one, the last of them again and again.
fn client(answers: Vec<(u16, Value)>) -> (ApiReviews, Asked) {
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    let service = service_fn(move |request: Request<Full<Bytes>>| {
        let (log, answers) = (Arc::clone(&log), answers.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let mut log = log.lock();
            let (code, answer) = &answers[log.len().min(answers.len() - 1)];
            log.push((parts.method.to_string(), parts.uri.to_string(), body));
            let body = Full::new(Bytes::from(answer.to_string()));
            let body = body.map_err(|never| -> BoxError { match never {} }).boxed_unsync();
            Ok::<_, BoxError>(Response::builder().status(*code).body(body)?)
        }
    });
    (ApiReviews::new(ApiClient::new(BoxCloneSyncService::new(service), "test"), Arc::new(Unobserved)), asked)
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "reason": reason, "message": "no", "code": code}))
}

#[tokio::test]
async fn a_token_review_names_the_user() {
    let status = json!({"status": {"authenticated": true, "user": {
        "username": "jane", "uid": "42", "groups": ["dev"], "extra": {"scopes": ["a", "b"]}}}});
    let (reviews, asked) = client(vec![(201, status)]);
    let user = reviews.token_review(&"t0k3n".into()).await.unwrap().unwrap();
    let extra: BTreeMap<_, _> = [("scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()])].into();
    let expected = UserInfo { name: "jane".into(), uid: "42".into(), groups: vec!["dev".into()], extra };
    assert_eq!(user, expected);
    let expected =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "t0k3n"}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews".to_owned();
    assert_eq!(*asked.lock(), [("POST".to_owned(), path, expected)]);
}

#[tokio::test]
async fn a_token_of_nobody_is_none_and_an_error_in_the_status_is_one() {
    let (reviews, _) = client(vec![(201, json!({"status": {"user": {}}}))]);
    assert_eq!(reviews.token_review(&"x".into()).await.unwrap(), None);
    let (reviews, _) = client(vec![(201, json!({"status": {"authenticated": true, "error": "expired"}}))]);
    let error = reviews.token_review(&"s3cr3t".into()).await.unwrap_err().to_string();
    assert!(error.contains("expired") && !error.contains("s3cr3t"), "{error}");
}

#[tokio::test]
async fn an_access_review_asks_for_the_path_or_the_resource() {
    let allowed = (201, json!({"status": {"allowed": true, "reason": "because"}}));
    let (reviews, asked) = client(vec![allowed, (201, json!({"status": {"allowed": true, "denied": true}}))]);
    let jane = UserInfo { name: "jane".into(), groups: vec!["dev".into()], ..UserInfo::default() };
    let path = Attributes::Path { verb: "get".into(), path: "/metrics".into() };
    let access = reviews.subject_access_review(&jane, &path).await.unwrap();
    assert_eq!(access, Access { allowed: true, denied: false, reason: "because".into() });
    let resource = Attributes::Resource(ResourceAttributes {
        verb: "update".into(),
        group: "admin.coxswain.dev".into(),
        version: "v1".into(),
        resource: "controllers".into(),
        name: "job-controller".into(),
        ..ResourceAttributes::default()
    });
    assert!(!reviews.subject_access_review(&jane, &resource).await.unwrap().allowed, "denied wins");
    let asked = asked.lock();
    assert_eq!(asked[0].1, "/apis/authorization.k8s.io/v1/subjectaccessreviews?timeout=10s");
    let spec = json!({"nonResourceAttributes": {"verb": "get", "path": "/metrics"}, "user": "jane", "groups": ["dev"]});
    assert_eq!(asked[0].2["spec"], spec);
    let spec = json!({"resourceAttributes": {"verb": "update", "group": "admin.coxswain.dev", "version": "v1",
        "resource": "controllers", "name": "job-controller"}, "user": "jane", "groups": ["dev"]});
    assert_eq!(asked[1].2["spec"], spec);
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_asked_again_a_few_times_and_what_will_not_is_not() {
    let ok = (201, json!({"status": {"user": {}}}));
    let (reviews, asked) = client(vec![failure(500, "InternalError"), failure(429, "TooManyRequests"), ok]);
    assert_eq!(reviews.token_review(&"x".into()).await.unwrap(), None);
    assert_eq!(asked.lock().len(), 3);
    let (reviews, asked) = client(vec![failure(503, "ServiceUnavailable")]);
    assert_eq!(reviews.token_review(&"x".into()).await.unwrap_err().code(), 503);
    assert_eq!(asked.lock().len(), 5);
    let (reviews, asked) = client(vec![failure(403, "Forbidden")]);
    assert_eq!(reviews.token_review(&"x".into()).await.unwrap_err().code(), 403);
    assert_eq!(asked.lock().len(), 1);
}

#[tokio::test]
async fn the_configuration_is_the_config_maps_data_and_may_be_missing() {
    let (reviews, asked) =
        client(vec![(200, json!({"data": {"client-ca-file": "PEM"}})), failure(404, "NotFound")]);
    let data = reviews.authentication_config().await.unwrap().unwrap();
    assert_eq!(data["client-ca-file"], "PEM");
    assert_eq!(reviews.authentication_config().await.unwrap(), None);
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    assert_eq!(asked.lock()[0], ("GET".to_owned(), path.to_owned(), Value::Null));
    let (reviews, _) = client(vec![failure(403, "Forbidden")]);
    assert_eq!(reviews.authentication_config().await.unwrap_err().code(), StatusCode::FORBIDDEN.as_u16());
}

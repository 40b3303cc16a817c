//! JSON of any path, and questions of access.

use std::io::Read as _;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::client::testing::{answer, mock};
use crate::client::{AccessQuestion, AccessVerdict, ApiClient, ApiError, Pieces, Query, RequestPath};

#[tokio::test]
async fn json_is_read_up_to_a_bound() {
    let (service, seen) = mock(|_| async { Ok(answer(200, r#"{"items": [1, 2]}"#)) });
    let client = ApiClient::new(service, "test");
    let path = RequestPath::group_version("metrics.k8s.io", "v1beta1").resource("pods");
    let uri = path.uri(&Query::default().with("labelSelector", "a=b")).unwrap();
    assert_eq!(client.json_of(&uri, 17).await.unwrap(), json!({ "items": [1, 2] }));
    let error = client.json_of(&uri, 16).await.unwrap_err();
    assert_eq!(error.to_string(), "GET /apis/metrics.k8s.io/v1beta1/pods: the answer has more than 16 bytes");
    assert!(matches!(&error, ApiError::TooLong { limit: 16, .. }), "{error}");
    let seen = seen.lock();
    let expected = "/apis/metrics.k8s.io/v1beta1/pods?labelSelector=a%3Db";
    assert_eq!((seen[0].method(), seen[0].uri().to_string().as_str()), (&Method::GET, expected));
    assert_eq!(seen[0].headers()["accept"], "application/json");
}

#[test]
fn pieces_are_one_stream_and_go_as_they_are_read() {
    let parts = ["", "ab", "", "", "cdefg", "h", ""];
    for size in 1..10 {
        let mut pieces = Pieces(parts.iter().map(|part| Bytes::from(*part)).collect());
        let (mut read, mut buffer) = (Vec::new(), vec![0; size]);
        loop {
            let count = pieces.read(&mut buffer).unwrap();
            if count == 0 {
                break;
            }
            read.extend_from_slice(&buffer[..count]);
            let left: usize = pieces.0.iter().map(Bytes::len).sum();
            assert_eq!(left, 8 - read.len(), "what was read is not kept");
        }
        assert_eq!(read, b"abcdefgh");
        assert!(pieces.0.is_empty());
    }
}

#[tokio::test]
async fn a_question_of_access_is_a_review() {
    let (service, seen) = mock(|request| async move {
        let review: Value = serde_json::from_slice(request.body()).unwrap();
        let denied = review["spec"]["user"] == "both";
        Ok(answer(201, json!({ "status": { "allowed": true, "denied": denied, "reason": "r" } }).to_string()))
    });
    let client = ApiClient::new(service, "test");
    let question = |user: &str| AccessQuestion {
        user: user.into(),
        groups: vec!["system:nodes".into()],
        extra: vec![("k".into(), vec!["v".into()])],
        verb: "create".into(),
        group: "certificates.k8s.io".into(),
        resource: "certificatesigningrequests".into(),
        subresource: "selfnodeclient".into(),
        ..AccessQuestion::default()
    };
    let verdict = |allowed| AccessVerdict { allowed, reason: "r".to_owned() };
    assert_eq!(client.review_access(&question("node")).await.unwrap(), verdict(true));
    assert_eq!(client.review_access(&question("both")).await.unwrap(), verdict(false), "a denial wins");
    let seen = seen.lock();
    assert_eq!(seen[0].method(), Method::POST);
    assert_eq!(seen[0].uri(), "/apis/authorization.k8s.io/v1/subjectaccessreviews");
    let sent: Value = serde_json::from_slice(seen[0].body()).unwrap();
    assert_eq!(sent["kind"], "SubjectAccessReview");
    assert_eq!(
        (&sent["spec"]["groups"][0], &sent["spec"]["extra"]["k"][0]),
        (&json!("system:nodes"), &json!("v"))
    );
    assert_eq!(sent["spec"]["resourceAttributes"]["subresource"], "selfnodeclient");
}

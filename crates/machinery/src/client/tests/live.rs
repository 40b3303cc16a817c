//! JSON of any path, and questions of access.

use std::io::Read as _;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::client::testing::{answer, mock};
use crate::client::{
    AccessQuestion, AccessVerdict, ApiClient, ApiError, Pieces, Query, RequestIntent, RequestPath,
};
use crate::wire::text::held_text;

#[tokio::test]
async fn json_is_read_up_to_a_bound() {
    let (service, seen) = mock(|_| async { Ok(answer(200, r#"{"items": [1, 2]}"#)) });
    let client = ApiClient::new(service, "test");
    let path = RequestPath::group_version("metrics.k8s.io", "v1beta1").resource("pods");
    let uri = path.uri(&Query::default().with("labelSelector", "a=b")).unwrap();
    assert_eq!(client.json_of(&uri, 17).await.unwrap(), json!({ "items": [1, 2] }));
    let error = client.json_of(&uri, 16).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "GET /apis/metrics.k8s.io/v1beta1/pods: the response has more than 16 bytes"
    );
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

/// A user who may choose a name must not be reviewed as another one.
#[tokio::test]
async fn texts_of_other_sources_leave_in_json_as_they_are() {
    let (service, seen) = mock(|_| async { Ok(answer(201, "{}")) });
    let client = ApiClient::new(service, "test");
    let review = json!({ "spec": { "user": "ren\u{10ffc3}\u{10ffa9}" } });
    let path = RequestPath::ACCESS_REVIEWS;
    let _: Value = client.json(RequestIntent::Create, path, Query::NONE, Some(&review)).await.unwrap();
    let user = (&*held_text("ren\u{10ffc3}\u{10ffa9}".as_bytes())).into();
    let question =
        AccessQuestion { user, groups: vec![(&*held_text(b"g\xff")).into()], ..AccessQuestion::default() };
    client.review_access(&question).await.unwrap();
    for sent in seen.lock().iter() {
        let sent: Value = serde_json::from_slice(sent.body()).unwrap();
        assert_eq!(sent["spec"]["user"], review["spec"]["user"]);
    }
    let asked: Value = serde_json::from_slice(seen.lock()[1].body()).unwrap();
    assert_eq!(asked["spec"]["groups"], json!(["g\u{fffd}"]));
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

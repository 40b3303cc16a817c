//! Admission webhooks of tests: reads AdmissionReviews and answers them.

use std::convert::Infallible;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::controlplane::ControlPlane;
use super::tls::TlsServer;

/// Starts a webhook that answers each request as `judge` says: with members of an AdmissionResponse besides the UID. Returns the server and
/// its `clientConfig`.
pub(crate) async fn webhook(
    plane: &ControlPlane,
    judge: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static,
) -> (TlsServer, Value) {
    let answer = move |request: Request<Incoming>| {
        let judge = judge.clone();
        async move {
            let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
            let review: Value = serde_json::from_slice(&body).unwrap_or_default();
            let mut response = judge(&review["request"]);
            response["uid"] = review["request"]["uid"].clone();
            let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
            let mut answer = Response::new(Full::new(Bytes::from(review.to_string())));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok::<_, Infallible>(answer)
        }
    };
    let server = TlsServer::start(&plane.report.manager_serving, answer).await;
    let ca = STANDARD.encode(std::fs::read(&plane.report.ca_file).expect("the CA"));
    let config = json!({ "url": format!("https://127.0.0.1:{}/", server.port), "caBundle": ca });
    (server, config)
}

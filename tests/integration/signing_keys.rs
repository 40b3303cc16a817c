//! Tokens that are signed with keys on P-521 and with RSA keys of other sizes than ring has, as the API server and the Go manager read them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Options, object, turn, until};

const LIMIT: Duration = Duration::from_mins(2);
macro_rules! data {
    ($flag:literal, $path:literal) => {
        concat!($flag, "=", env!("CARGO_MANIFEST_DIR"), "/tests/data/", $path)
    };
}

/// Public keys for the API server, private ones for managers, and the algorithm of their tokens.
const KEYS: [(&str, &str, &str); 2] = [
    (
        data!("service-account-key-file", "keys/p521.pub"),
        data!("--service-account-private-key-file", "keys/p521.pem"),
        "ES512",
    ),
    (
        data!("service-account-key-file", "keys/rsa4104.pub"),
        data!("--service-account-private-key-file", "authorities/rsa4104.key"),
        "RS256",
    ),
];

#[tokio::test]
async fn tokens_of_odd_keys_are_the_go_managers_and_let_in() {
    let _turn = turn().await;
    for (public, private, algorithm) in KEYS {
        sign(public, private, algorithm).await;
    }
}

async fn sign(public: &'static str, private: &str, algorithm: &str) {
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--apiserver-arg", public] });
    let cluster = plane.cluster().await;
    // The API server knows tokens by this key only, so managers do without those that it signs itself.
    let args = [private, "--use-service-account-credentials=false"];
    let mut headers = Vec::new();
    for name in ["coxswain", "go"] {
        let manager = if name == "go" { plane.go_manager(name, &args) } else { plane.coxswain(name, &args) };
        let namespace = cluster.namespace(name).await;
        namespace.create::<ServiceAccount>(json!({ "metadata": { "name": "robot" } })).await;
        let of = json!({ "kubernetes.io/service-account.name": "robot" });
        let secret = json!({ "metadata": { "name": "token", "annotations": of },
            "type": "kubernetes.io/service-account-token" });
        namespace.create::<Secret>(secret).await;
        let secrets: Api<Secret> = namespace.api();
        let signed = || async {
            let data = secrets.get("token").await.expect("the Secret").data?;
            Some(String::from_utf8(data.get("token")?.0.clone()).expect("text"))
        };
        let token = until("a token", LIMIT, signed, Option::is_some).await.expect("it was waited for");
        let review = object(json!({ "spec": { "token": token } }));
        let reviews: Api<TokenReview> = Api::all(cluster.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await.expect("an answer").status;
        let status = status.expect("a status");
        let user = status.user.unwrap_or_default().username.unwrap_or_default();
        assert_eq!(user, format!("system:serviceaccount:{}:robot", namespace.name), "{:?}", status.error);
        let header = token.split('.').next().expect("a header");
        let header = URL_SAFE_NO_PAD.decode(header).expect("base64");
        headers.push(serde_json::from_slice::<Value>(&header).expect("JSON"));
        manager.stop();
    }
    assert_eq!(headers[0], headers[1]);
    assert_eq!(headers[0]["alg"], algorithm);
}

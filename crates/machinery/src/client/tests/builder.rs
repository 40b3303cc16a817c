//! The clients of a manager, against a server on loopback.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::api::kinds;
use crate::client::testing::{Handler, Pki, Server, answer, text};
use crate::client::{
    ApiError, ClientBuilder, ClientMetrics, ClientOptions, Connection, Fault, FaultRule, Faults, QpsFactor,
    wait_for_api_server,
};
use crate::model::Key;
use crate::telemetry::Registry;
use crate::wire::wrap_envelope;

type Seen = Arc<Mutex<Vec<Request<Bytes>>>>;

/// Pods for who shows a token or certificate that is known; tokens for the manager.
fn api_server(seen: &Seen) -> Handler {
    let seen = Arc::clone(seen);
    let issued = Arc::new(AtomicUsize::new(0));
    Arc::new(move |request| {
        seen.lock().push(request.clone());
        let path = request.uri().path().to_owned();
        let token = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let response = if path == "/healthz" {
            Response::new(text("ok"))
        } else if path.ends_with("/token") {
            assert_eq!(token.as_deref(), Some("Bearer manager"), "only the manager requests tokens");
            let account = path.rsplit('/').nth(1).unwrap();
            let number = issued.fetch_add(1, Ordering::SeqCst);
            let body = format!(
                r#"{{"spec":{{"expirationSeconds":3600}},"status":{{"token":"{account}-{number}"}}}}"#
            );
            answer(201, body)
        } else if token.is_none_or(|token| token == "Bearer job-controller-0") {
            answer(401, r#"{"kind":"Status","reason":"Unauthorized","code":401}"#)
        } else {
            answer(200, wrap_envelope("v1", "Pod", b""))
        };
        Box::pin(async move { response })
    })
}

struct World {
    _server: Server,
    _dir: tempfile::TempDir,
    seen: Seen,
    registry: Registry,
    builder: ClientBuilder,
}

async fn world(options: ClientOptions) -> World {
    let seen = Seen::default();
    let pki = Pki::new();
    let server = Server::https(&pki, &["h2", "http/1.1"], api_server(&seen)).await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ca.crt"), &pki.ca_pem).unwrap();
    let kubeconfig = format!(
        "{{current-context: x, contexts: [{{name: x, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: \"{}\", certificate-authority: ca.crt}}}}], \
         users: [{{name: u, user: {{token: manager}}}}]}}",
        server.url
    );
    let path = dir.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig).unwrap();
    let connection = Connection::load(Some(Path::new(&path)), None).await.unwrap();
    let registry = Registry::new();
    let metrics = ClientMetrics::register(&registry).unwrap();
    let builder = ClientBuilder::new(connection, options, metrics).await.unwrap();
    World { _server: server, _dir: dir, seen, registry, builder }
}

fn key() -> Key {
    Key::new("default", "web")
}

#[tokio::test]
async fn each_controller_has_its_name_and_its_own_account() {
    let world =
        world(ClientOptions { use_service_account_credentials: true, ..ClientOptions::default() }).await;
    let builder = &world.builder;
    let deployment = builder
        .for_controller("deployment-controller", Some("deployment-controller"), QpsFactor::ONE)
        .unwrap();
    let special = builder.for_controller("serviceaccount-token-controller", None, QpsFactor::ONE).unwrap();
    deployment.get(&kinds::PODS, &key()).await.unwrap();
    special.get(&kinds::PODS, &key()).await.unwrap();
    builder
        .leader_election(Duration::from_secs(10), &Handle::current())
        .await
        .unwrap()
        .get(&kinds::PODS, &key())
        .await
        .unwrap();

    let seen: Vec<_> = world.seen.lock().drain(..).collect();
    let got: Vec<_> = seen
        .iter()
        .map(|request| {
            let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
            let agent = header("user-agent");
            (agent.rsplit('/').next().unwrap().to_owned(), header("authorization"), request.version())
        })
        .collect();
    let row = |agent: &str, token: &str| (agent.to_owned(), format!("Bearer {token}"), http::Version::HTTP_2);
    assert_eq!(
        got,
        [
            row("token-requests", "manager"),
            row("deployment-controller", "deployment-controller-0"),
            row("serviceaccount-token-controller", "manager"),
            row("leader-election", "manager"),
        ]
    );
    let families = world.registry.gather();
    let total = families.iter().find(|family| family.name() == "rest_client_requests_total").unwrap();
    let counts: Vec<_> = total.get_metric().iter().map(|metric| metric.get_counter().get_value()).collect();
    assert_eq!(counts.iter().sum::<f64>().round() as u64, 4, "{counts:?}");
    builder.shutdown().await;
    let error = deployment.get(&kinds::PODS, &key()).await.unwrap_err();
    assert!(error.to_string().contains("shutting down") && !error.is_ambiguous(), "{error}");
    builder.for_controller("job-controller", Some("job-controller"), QpsFactor::ONE).unwrap_err();
}

#[tokio::test]
async fn a_401_is_shown_and_the_next_request_has_a_new_token() {
    let world =
        world(ClientOptions { use_service_account_credentials: true, ..ClientOptions::default() }).await;
    let client =
        world.builder.for_controller("job-controller", Some("job-controller"), QpsFactor::ONE).unwrap();
    let error = client.get(&kinds::PODS, &key()).await.unwrap_err();
    assert_eq!(error.code(), 401, "not tried again behind the caller's back");
    let key = key();
    let waiting = client.get(&kinds::PODS, &key);
    // The token is not ten seconds old, so it takes that long: too long for a test on a real clock.
    tokio::pin!(waiting);
    assert!(futures::poll!(&mut waiting).is_pending());
    assert_eq!(world.seen.lock().len(), 2, "the refused token is not used again");
}

#[tokio::test]
async fn without_the_flag_controllers_act_as_the_manager() {
    let world = world(ClientOptions::default()).await;
    let client =
        world.builder.for_controller("job-controller", Some("job-controller"), QpsFactor::ONE).unwrap();
    client.get(&kinds::PODS, &key()).await.unwrap();
    let seen = world.seen.lock();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].headers()["authorization"], "Bearer manager");
}

#[tokio::test]
async fn losing_the_lease_stops_controllers_but_not_the_release_of_the_lease() {
    let world = world(ClientOptions::default()).await;
    let builder = &world.builder;
    let controller = builder.root("job-controller");
    let election = builder.leader_election(Duration::from_secs(10), &Handle::current()).await.unwrap();
    builder.gate().close();
    builder.gate().drained().await;
    let error = controller.create(&kinds::PODS, "default", b"").await.unwrap_err();
    assert!(error.is_writes_stopped() && !error.is_ambiguous(), "{error}");
    controller.get(&kinds::PODS, &key()).await.unwrap();
    election.update(&kinds::PODS, &key(), None, b"").await.unwrap();
    builder.ungated("overrides").update(&kinds::PODS, &key(), None, b"").await.unwrap();
    assert!(builder.ungated_as("replicas", "garbage").unwrap().is_none(), "nobody acts as accounts here");
    let seen = world.seen.lock();
    assert_eq!(seen.iter().map(Request::method).collect::<Vec<_>>(), [Method::GET, Method::PUT, Method::PUT]);
}

#[tokio::test]
async fn a_service_account_can_write_behind_the_gate() {
    let options = ClientOptions { use_service_account_credentials: true, ..ClientOptions::default() };
    let world = world(options).await;
    world.builder.gate().close();
    assert_eq!(world.seen.lock().len(), 0, "no token is asked for before it is needed");
    let client = world.builder.ungated_as("replicas", "garbage").unwrap().unwrap();
    client.update(&kinds::PODS, &key(), None, b"").await.unwrap();
    let used = world.seen.lock().last().unwrap().headers()["authorization"].clone();
    assert_eq!(used, "Bearer garbage-0");
    world.builder.shutdown().await;
    assert!(world.builder.ungated_as("replicas", "garbage").is_err());
}

#[tokio::test]
async fn tests_can_break_any_client() {
    let faults = Faults::new(1);
    let world = world(ClientOptions { faults: Some(faults.clone()), ..ClientOptions::default() }).await;
    let client = world.builder.root("job-controller");
    faults.add(FaultRule::new(Fault::Drop).path("*/pods/web"));
    let error = client.get(&kinds::PODS, &key()).await.unwrap_err();
    assert!(matches!(error, ApiError::Transport { .. }));
    assert!(world.seen.lock().is_empty());
    wait_for_api_server(&client, Duration::from_secs(10)).await.unwrap();
}

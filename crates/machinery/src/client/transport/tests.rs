//! Tests of the transport against a server on loopback.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::lanes::{REQUESTS_PER_LANE, WATCHES_PER_LANE};
use super::*;
use crate::api::kinds::PODS;
use crate::client::fence::Fence;
use crate::client::request::{Query, RequestIntent, RequestPath, build};
use crate::client::testing::{Handler, Pair, Peer, Pki, Server, endless, text};

mod black_hole;
mod proxied;

const H2: &[&str] = &["h2", "http/1.1"];

fn request(uri: &str) -> ApiRequest {
    Request::builder().uri(uri).body(Full::new(Bytes::new())).unwrap()
}

fn watch() -> ApiRequest {
    let query = Query::default().with("watch", "true");
    let target = (RequestPath::collection(&PODS, ""), &query).into();
    build(RequestIntent::Watch, &target, HeaderValue::from_static("*/*"), None).unwrap().1
}

/// Answers with the version, the client's certificate, and its authorization; watches never end.
fn echo() -> Handler {
    Arc::new(|request| {
        let Peer(peer) = request.extensions().get().cloned().unwrap();
        let token = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let line = format!("{:?} {peer:?} {token:?}", request.version());
        let body = if request.uri().query() == Some("watch=true") { endless("start") } else { text(line) };
        Box::pin(async move { Response::new(body) })
    })
}

async fn connect(url: &str, pki: &Pki, user: &str, dir: &Path) -> Transport {
    connect_with(url, pki, user, dir, KeepAlive::default()).await
}

async fn connect_with(url: &str, pki: &Pki, user: &str, dir: &Path, keep_alive: KeepAlive) -> Transport {
    std::fs::write(dir.join("ca.crt"), &pki.ca_pem).unwrap();
    let kubeconfig = format!(
        "{{current-context: x, contexts: [{{name: x, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: \"{url}\", certificate-authority: ca.crt}}}}], \
         users: [{{name: u, user: {{{user}}}}}]}}"
    );
    let path = dir.join("kubeconfig");
    std::fs::write(&path, kubeconfig).unwrap();
    let connection = Connection::load(Some(&path), None).await.unwrap();
    Transport::new(connection, keep_alive).await.unwrap()
}

async fn ask(transport: &Transport) -> Result<String, BoxError> {
    let response = transport.service().oneshot(request("/version")).await?;
    let body = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn many_requests_at_once_share_one_http2_connection() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let transport = connect(&server.url, &pki, "token: s3cret", dir.path()).await;
    for answer in join_all((0..REQUESTS_PER_LANE).map(|_| ask(&transport))).await {
        assert_eq!(answer.unwrap(), "HTTP/2.0 None Some(\"Bearer s3cret\")");
    }
    assert_eq!((server.connections(), transport.lanes()), (1, 1));
}

#[tokio::test]
async fn watches_are_spread_over_lanes_and_never_hold_up_requests() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let transport = connect(&server.url, &pki, "token: s3cret", dir.path()).await;
    let watches = join_all((0..=2 * WATCHES_PER_LANE).map(|_| transport.service().oneshot(watch()))).await;
    let watches: Vec<_> = watches.into_iter().map(Result::unwrap).collect();
    ask(&transport).await.unwrap();
    assert_eq!((server.connections(), transport.lanes()), (4, 4), "three for watches, one for requests");
    drop(watches);
    let kept = transport.service().oneshot(watch()).await.unwrap();
    assert_eq!(
        (server.connections(), transport.lanes()),
        (4, 2),
        "spare lanes are closed, the first is used again"
    );
    drop(kept);
}

#[tokio::test]
async fn writes_behind_a_fence_have_connections_of_their_own() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    for protocols in [H2, &["http/1.1"]] {
        let server = Server::https(&pki, protocols, echo()).await;
        let transport = connect(&server.url, &pki, "token: s3cret", dir.path()).await;
        let write = async |fence: &Arc<Fence>| {
            let mut request = request("/write");
            request.extensions_mut().insert(Arc::clone(fence));
            let response = transport.service().oneshot(request).await?;
            response.into_body().collect().await
        };
        ask(&transport).await.unwrap();
        let fence = Arc::new(Fence::default());
        for _ in 0..3 {
            write(&fence).await.unwrap();
        }
        assert_eq!((server.connections(), transport.lanes()), (2, 2), "{protocols:?}");
        fence.cut();
        write(&fence).await.unwrap_err();
        ask(&transport).await.unwrap();
        assert_eq!(server.connections(), 2, "{protocols:?}: reads go on as before");
        write(&Arc::default()).await.unwrap();
        assert_eq!((server.connections(), transport.lanes()), (3, 2), "{protocols:?}");
    }
}

/// The first of all requests is a write: how the server speaks is found out without it.
#[tokio::test]
async fn a_write_is_never_sent_on_a_connection_without_a_fence() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let transport = connect(&server.url, &pki, "token: s3cret", dir.path()).await;
    let fence = Arc::new(Fence::default());
    let mut write = request("/write");
    write.extensions_mut().insert(Arc::clone(&fence));
    let response = transport.service().oneshot(write).await.unwrap();
    assert_eq!(format!("{fence:?}"), "Fence { cut: false, sockets: 1, .. }");
    drop(response);
    assert_eq!((server.connections(), transport.lanes()), (2, 1));
}

#[tokio::test]
async fn without_http2_there_is_http1() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let tls = Server::https(&pki, &["http/1.1"], echo()).await;
    let transport = connect(&tls.url, &pki, "token: s3cret", dir.path()).await;
    for _ in 0..3 {
        assert_eq!(ask(&transport).await.unwrap(), "HTTP/1.1 None Some(\"Bearer s3cret\")");
    }
    assert_eq!(tls.connections(), 1, "the connection is kept, the first one too");

    let plain = Server::http(echo()).await;
    let connection = Connection::load(None, Some(&plain.url)).await.unwrap();
    let transport = Transport::new(connection, KeepAlive::default()).await.unwrap();
    assert_eq!(ask(&transport).await.unwrap(), "HTTP/1.1 None None");
    assert_eq!(plain.url, format!("http://{}", transport.host()));
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_or_reached_gets_nothing() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&Pki::new(), H2, echo()).await;
    let transport = connect(&server.url, &pki, "token: s3cret", dir.path()).await;
    let error = ask(&transport).await.unwrap_err();
    assert!(is_tls(&*error));
    let error = error.downcast::<TransportError>().unwrap();
    assert!(error.is_not_sent());
    assert!(error.to_string().contains("certificate"), "{error}");

    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for url in [format!("https://{free}"), format!("http://{free}")] {
        let transport = connect(&url, &pki, "token: s3cret", dir.path()).await;
        let error = ask(&transport).await.unwrap_err().downcast::<TransportError>().unwrap();
        assert!(error.is_not_sent());
        assert!(error.to_string().contains("Connection refused"), "{error}");
    }
}

#[tokio::test]
async fn the_servers_name_can_be_given() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let url = |name: &str| format!("{}\", tls-server-name: \"{name}", server.url);
    let transport = connect(&url("kubernetes.test"), &pki, "token: x", dir.path()).await;
    ask(&transport).await.unwrap();
    let transport = connect(&url("other.test"), &pki, "token: x", dir.path()).await;
    ask(&transport).await.unwrap_err();
}

#[tokio::test]
async fn a_rotated_client_certificate_is_taken_up() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let write = |pair: Pair| {
        std::fs::write(dir.path().join("tls.crt"), pair.certificate).unwrap();
        std::fs::write(dir.path().join("tls.key"), pair.key).unwrap();
    };
    write(pki.sign("first", &[]));
    let server = Server::https(&pki, H2, echo()).await;
    let user = "client-certificate: tls.crt, client-key: tls.key";
    let transport = connect(&server.url, &pki, user, dir.path()).await;
    assert_eq!(ask(&transport).await.unwrap(), "HTTP/2.0 Some(\"first\") None");
    let mut watch = transport.service().oneshot(watch()).await.unwrap().into_body();
    watch.frame().await.unwrap().unwrap();
    assert!(!transport.0.reload(true).await.unwrap(), "nothing has changed");

    std::fs::write(dir.path().join("tls.crt"), "half a file").unwrap();
    transport.0.reload(false).await.unwrap_err();
    assert_eq!(ask(&transport).await.unwrap(), "HTTP/2.0 Some(\"first\") None", "the old one stays in use");

    write(pki.sign("second", &[]));
    assert!(transport.0.reload(false).await.unwrap());
    assert_eq!(ask(&transport).await.unwrap(), "HTTP/2.0 Some(\"second\") None");
    assert!(futures::poll!(watch.frame()).is_pending(), "what still runs is left alone");

    let anonymous = Transport::new(transport.0.connection.anonymous(), KeepAlive::default()).await.unwrap();
    assert_eq!(ask(&anonymous).await.unwrap(), "HTTP/2.0 None None");
}

#[tokio::test]
async fn credentials_of_a_plugin_are_sent() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let script =
        r"echo '{apiVersion: client.authentication.k8s.io/v1, kind: ExecCredential, status: {token: made}}'";
    let user = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [\"-c\", {script:?}], \
         interactiveMode: Never}}"
    );
    let transport = connect(&server.url, &pki, &user, dir.path()).await;
    assert_eq!(ask(&transport).await.unwrap(), "HTTP/2.0 None Some(\"Bearer made\")");
    assert!(transport.0.reload(true).await.unwrap(), "a refusal has the plugin asked again");
}

/// Passes bytes on to `target` until it is told to fall silent.
async fn relay(target: String, silent: Arc<AtomicBool>, tasks: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tasks.spawn(async move {
        let mut pipes = JoinSet::new();
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(target.trim_start_matches("https://")).await.unwrap();
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            let (one, other) = (Arc::clone(&silent), Arc::clone(&silent));
            pipes.spawn(pipe(near_in, far_out, one));
            pipes.spawn(pipe(far_in, near_out, other));
        }
    });
    url
}

async fn pipe(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    silent: Arc<AtomicBool>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if silent.load(Ordering::SeqCst) {
            continue;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_dead_connection_is_found_out_and_replaced() {
    let (pki, dir, mut tasks) = (Pki::new(), tempfile::tempdir().unwrap(), JoinSet::new());
    let server = Server::https(&pki, H2, echo()).await;
    let silent = Arc::new(AtomicBool::new(false));
    let url = relay(server.url.clone(), Arc::clone(&silent), &mut tasks).await;
    let keep_alive = KeepAlive::within(Duration::from_millis(400));
    let transport = connect_with(&url, &pki, "token: x", dir.path(), keep_alive).await;
    let mut watch = transport.service().oneshot(watch()).await.unwrap().into_body();
    watch.frame().await.unwrap().unwrap();
    silent.store(true, Ordering::SeqCst);
    let error = watch.frame().await.unwrap().err().unwrap();
    assert!(!error.downcast::<TransportError>().unwrap().is_not_sent());
    silent.store(false, Ordering::SeqCst);
    ask(&transport).await.unwrap();
}

#[tokio::test]
async fn a_transport_that_is_dropped_closes_its_connections() {
    let (pki, dir) = (Pki::new(), tempfile::tempdir().unwrap());
    let server = Server::https(&pki, H2, echo()).await;
    let transport = connect(&server.url, &pki, "token: x", dir.path()).await;
    ask(&transport).await.unwrap();
    let tasks = transport.0.tasks.clone();
    assert!(!tasks.is_empty());
    drop(transport);
    tasks.close();
    tasks.wait().await;
}

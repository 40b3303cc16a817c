//! Pods of an API server, and connections to their ports: `pods/portforward` as an API server and a kubelet answer it.

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

const PODS: &str = "/api/v1/namespaces/kube-system/pods";

/// The port of a pod, and the address that it leads to.
type Port = ((String, u16), String);

/// What the API server knows of pods.
#[derive(Default)]
pub(super) struct PodNetwork {
    pods: Mutex<Vec<Value>>,
    ports: Mutex<Vec<Port>>,
    /// The part of a path that nobody may use.
    forbidden: Mutex<Option<&'static str>>,
    tunnels: Mutex<JoinSet<()>>,
}

impl PodNetwork {
    /// Adds a static pod of a node, whose port leads to this address.
    pub(super) fn add_static_pod(&self, node: &str, port: u16, address: &str) {
        let name = format!("kube-controller-manager-{node}");
        self.ports.lock().push(((name.clone(), port), address.to_owned()));
        self.pods.lock().push(json!({
            "metadata": { "name": name, "namespace": "kube-system", "labels": { "component": "kube-controller-manager" } },
            "spec": { "hostNetwork": true, "nodeName": node, "containers": [] },
        }));
    }

    /// Forbids requests whose path has this text.
    pub(super) fn forbid(&self, part: Option<&'static str>) {
        *self.forbidden.lock() = part;
    }

    pub(super) fn answer(&self, request: Request<Incoming>) -> Response<tonic::body::Body> {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        if self.forbidden.lock().is_some_and(|part| path.contains(part)) {
            return status(403, "pods is forbidden: User \"jane\" cannot do this");
        }
        let below = path.strip_prefix(PODS).unwrap_or_default();
        if below.is_empty() {
            let is_selected = query == "labelSelector=component%3Dkube-controller-manager";
            let items = if is_selected { self.pods.lock().clone() } else { Vec::new() };
            return json_of(200, &json!({ "kind": "PodList", "items": items }));
        }
        let pod = below.trim_start_matches('/').strip_suffix("/portforward");
        let port = query.strip_prefix("ports=").and_then(|port| port.parse().ok());
        let (Some(pod), Some(port)) = (pod, port) else { return status(404, "no such page") };
        let wanted = (pod.to_owned(), port);
        if !self.pods.lock().iter().any(|each| each["metadata"]["name"] == pod) {
            return status(404, "pods not found");
        }
        let address =
            self.ports.lock().iter().find(|(known, _)| *known == wanted).map(|(_, address)| address.clone());
        self.upgrade(request, port, address)
    }

    /// Changes over to a WebSocket, and carries bytes between it and the address.
    fn upgrade(
        &self,
        request: Request<Incoming>,
        port: u16,
        address: Option<String>,
    ) -> Response<tonic::body::Body> {
        let accept = derive_accept_key(request.headers()[SEC_WEBSOCKET_KEY].as_bytes());
        let protocol = request.headers()[SEC_WEBSOCKET_PROTOCOL].clone();
        assert_eq!(protocol, "v4.channel.k8s.io");
        self.tunnels.lock().spawn(async move {
            let upgraded = hyper::upgrade::on(request).await.unwrap();
            let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
            forward(socket, port, address).await;
        });
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_ACCEPT, accept)
            .header(SEC_WEBSOCKET_PROTOCOL, protocol)
            .body(tonic::body::Body::empty())
            .unwrap()
    }
}

/// The kubelet's part.
async fn forward(
    mut socket: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>,
    port: u16,
    address: Option<String>,
) {
    let message = |channel: u8, bytes: &[u8]| Message::Binary([&[channel], bytes].concat().into());
    for channel in [0, 1] {
        socket.send(message(channel, &port.to_le_bytes())).await.unwrap();
    }
    let Some(address) = address else {
        socket.send(message(1, b"dial tcp4 127.0.0.1: connect: connection refused")).await.unwrap();
        // The client hangs up.
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
        return;
    };
    let (mut from_pod, mut to_pod) = TcpStream::connect(address).await.unwrap().into_split();
    let (mut sink, mut source) = socket.split();
    let upstream = async {
        while let Some(Ok(Message::Binary(bytes))) = source.next().await {
            assert_eq!(bytes[0], 0, "data");
            if to_pod.write_all(&bytes[1..]).await.is_err() {
                return;
            }
        }
    };
    let downstream = async {
        let mut buffer = [0; 1024];
        while let Ok(length @ 1..) = from_pod.read(&mut buffer).await {
            if sink.send(message(0, &buffer[..length])).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    };
    tokio::select! {
        biased;
        () = upstream => {}
        () = downstream => {}
    }
}

fn status(code: u16, message: &str) -> Response<tonic::body::Body> {
    json_of(code, &json!({ "kind": "Status", "status": "Failure", "code": code, "message": message }))
}

fn json_of(code: u16, body: &Value) -> Response<tonic::body::Body> {
    let body = Full::new(Bytes::from(body.to_string()));
    let mut response = Response::new(tonic::body::Body::new(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

//! A reverse proxy between a manager and the API server, over TLS and HTTP/2 as the server's own, that may rewrite what
//! passes in protobuf or JSON, lose it, and hold it up.
//!
//! Requests without a bearer token go on as the controller manager (the proxy has its certificate), the others as
//! whoever the token says.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::bail;
use bytes::{Buf, Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use super::ControlPlane;
use super::tls::TlsServer;

/// What becomes of what is on its way. By default nothing does.
pub(crate) trait Tamper: Send + Sync + 'static {
    /// A request's protobuf body; empty where there is none.
    fn request(&self, method: &Method, path: &str, body: Bytes) -> Bytes {
        let _ = (method, path);
        body
    }

    /// An answer's protobuf body, in its envelope.
    fn answer(&self, body: Bytes) -> Bytes {
        body
    }

    /// An event of a watch in protobuf, without the length in front of it.
    fn event(&self, frame: Bytes) -> Bytes {
        frame
    }

    /// A request's JSON body, also that of a patch.
    fn json_request(&self, method: &Method, path: &str, body: &Value) {
        let _ = (method, path, body);
    }

    /// An answer's JSON body.
    fn json_answer(&self, body: Value) -> Value {
        body
    }

    /// An event of a watch in JSON.
    fn json_event(&self, event: Value) -> Value {
        event
    }

    /// What becomes of a request, before it goes on.
    fn fate<'a>(&'a self, method: &'a Method, uri: &'a Uri) -> BoxFuture<'a, Fate> {
        let _ = (method, uri);
        Box::pin(std::future::ready(Fate::Passes))
    }

    /// Delays an answer: the request has been carried out.
    fn delays<'a>(&'a self, method: &'a Method, uri: &'a Uri) -> BoxFuture<'a, ()> {
        let _ = (method, uri);
        Box::pin(std::future::ready(()))
    }

    /// A request was answered, whether or not the answer goes on.
    fn answered(&self, method: &Method, uri: &Uri, status: StatusCode) {
        let _ = (method, uri, status);
    }

    /// Comes between the events of a watch and whoever watches: it may take its time. After a `false` nothing comes
    /// any more, and the watch breaks off.
    fn delivers<'a>(&'a self, uri: &'a Uri) -> BoxFuture<'a, bool> {
        let _ = uri;
        Box::pin(std::future::ready(true))
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It goes on, and its answer comes back.
    Passes,
    /// It goes on and is carried out, but its answer is lost.
    LosesAnswer,
    /// It never arrives.
    Lost,
    /// It is answered with this status instead.
    Refused(StatusCode),
}

/// A running proxy; it ends when this is dropped.
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) url: String,
    _server: TlsServer,
}

struct Upstream {
    manager: Client,
    nobody: Client,
    tamper: Arc<dyn Tamper>,
}

impl Proxy {
    /// Starts in front of the API server of `plane`.
    pub(crate) async fn start(plane: &ControlPlane, tamper: Arc<dyn Tamper>) -> Self {
        let report = &plane.report;
        let kubeconfig =
            Kubeconfig::read_from(&report.kubeconfigs["controller-manager"]).expect("the kubeconfig");
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("the kubeconfig is complete");
        config.default_retry = false;
        let manager = Client::try_from(config.clone()).expect("a client");
        config.auth_info = AuthInfo::default();
        let nobody = Client::try_from(config).expect("a client");
        let upstream = Arc::new(Upstream { manager, nobody, tamper });

        let forward = move |request| {
            let upstream = Arc::clone(&upstream);
            async move { upstream.forward(request).await }
        };
        let server = TlsServer::start(&report.manager_serving, forward).await;
        Self { url: format!("https://{}:{}", Ipv4Addr::LOCALHOST, server.port), _server: server }
    }
}

type AnswerBody = UnsyncBoxBody<Bytes, anyhow::Error>;

impl Upstream {
    async fn forward(&self, request: Request<Incoming>) -> Result<Response<AnswerBody>, anyhow::Error> {
        let (head, body) = request.into_parts();
        let mut body = body.collect().await?.to_bytes();
        let fate = self.tamper.fate(&head.method, &head.uri).await;
        match fate {
            Fate::Passes | Fate::LosesAnswer => {}
            Fate::Lost => bail!("the request is lost"),
            Fate::Refused(status) => return Ok(refused(status)),
        }
        if is_protobuf(&head.headers) {
            body = self.tamper.request(&head.method, head.uri.path(), body);
        } else if content_type(&head.headers).ends_with("json") && !body.is_empty() {
            self.tamper.json_request(&head.method, head.uri.path(), &serde_json::from_slice(&body)?);
        }
        let asked_as_watch = head.uri.query().is_some_and(|query| query.contains("watch=true"));
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut onward = Request::builder().method(head.method.clone()).uri(target).body(Body::from(body))?;
        *onward.headers_mut() = end_to_end(&head.headers);
        let client = if head.headers.contains_key(AUTHORIZATION) { &self.nobody } else { &self.manager };
        let (answer, body) = client.send(onward).await?.into_parts();
        self.tamper.answered(&head.method, &head.uri, answer.status);
        self.tamper.delays(&head.method, &head.uri).await;
        if fate == Fate::LosesAnswer {
            body.collect().await?;
            bail!("the answer is lost");
        }

        let tampered = if is_json(&answer.headers) && answer.status.is_success() {
            if asked_as_watch {
                self.watch_json(body)
            } else {
                let json = serde_json::from_slice(&body.collect().await?.to_bytes())?;
                let body = Bytes::from(self.tamper.json_answer(json).to_string());
                Full::new(body).map_err(|never| match never {}).boxed_unsync()
            }
        } else if !is_protobuf(&answer.headers) {
            body.map_err(Into::into).boxed_unsync()
        } else if is_watch(&answer.headers) {
            self.watch(head.uri, body)
        } else {
            let body = self.tamper.answer(body.collect().await?.to_bytes());
            Full::new(body).map_err(|never| match never {}).boxed_unsync()
        };
        let mut response = Response::new(tampered);
        *response.status_mut() = answer.status;
        *response.headers_mut() = end_to_end(&answer.headers);
        Ok(response)
    }

    /// Takes the stream apart into events and puts it together again.
    fn watch(&self, uri: Uri, body: Body) -> AnswerBody {
        let tamper = Arc::clone(&self.tamper);
        let mut waiting = BytesMut::new();
        let events = body.into_data_stream().map_err(anyhow::Error::from).map_ok(move |chunk| {
            waiting.extend_from_slice(&chunk);
            let mut out = BytesMut::new();
            while let Some(length) = waiting.get(..4).map(|mut bytes| bytes.get_u32() as usize) {
                if waiting.len() < 4 + length {
                    break;
                }
                let mut frame = waiting.split_to(4 + length);
                frame.advance(4);
                let frame = tamper.event(frame.freeze());
                let length = u32::try_from(frame.len()).expect("a frame of less than 4 GiB");
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&frame);
            }
            out.freeze()
        });
        // An empty chunk would end an HTTP/1.1 body.
        let chunks = events.try_filter(|chunk| std::future::ready(!chunk.is_empty()));
        let (tamper, uri) = (Arc::clone(&self.tamper), Arc::new(uri));
        let chunks = chunks.and_then(move |chunk| {
            let (tamper, uri) = (Arc::clone(&tamper), Arc::clone(&uri));
            async move { if tamper.delivers(&uri).await { Ok(chunk) } else { bail!("the watch is cut") } }
        });
        let chunks = chunks.chain(stream::empty());
        StreamBody::new(chunks.map_ok(Frame::data)).boxed_unsync()
    }

    /// The same for lines of JSON.
    fn watch_json(&self, body: Body) -> AnswerBody {
        let tamper = Arc::clone(&self.tamper);
        let mut waiting = BytesMut::new();
        let events = body.into_data_stream().map_err(anyhow::Error::from).and_then(move |chunk| {
            waiting.extend_from_slice(&chunk);
            let mut out = String::new();
            let mut failed = None;
            while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                match serde_json::from_slice(&waiting.split_to(end + 1)) {
                    Ok(event) => {
                        out.push_str(&tamper.json_event(event).to_string());
                        out.push('\n');
                    }
                    Err(error) => failed = Some(error),
                }
            }
            std::future::ready(failed.map_or(Ok(Bytes::from(out)), |error| Err(error.into())))
        });
        let chunks = events.try_filter(|chunk| std::future::ready(!chunk.is_empty()));
        StreamBody::new(chunks.map_ok(Frame::data)).boxed_unsync()
    }
}

/// An answer of the API server's form that is not the API server's.
fn refused(status: StatusCode) -> Response<AnswerBody> {
    let reason = match status {
        StatusCode::GONE => "Expired",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        StatusCode::NOT_FOUND => "NotFound",
        _ => "ServiceUnavailable",
    };
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused on the way", "reason": reason, "code": status.as_u16(),
    });
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn is_protobuf(headers: &HeaderMap) -> bool {
    content_type(headers).starts_with("application/vnd.kubernetes.protobuf")
}

fn is_json(headers: &HeaderMap) -> bool {
    content_type(headers) == "application/json"
}

fn is_watch(headers: &HeaderMap) -> bool {
    content_type(headers).contains("stream=watch")
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for hop in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(hop);
    }
    headers
}

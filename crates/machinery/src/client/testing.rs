//! What the tests of the client stack share: services that answer as told, and a server on loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::Layer;

use super::api::{ApiClient, BoxError, HttpService, ResponseBody};
use super::layers::{ApiRequest, ApiResponse, ClientMetrics, RateLimit, RateLimits, With};
use crate::telemetry::Registry;

/// A body of this text.
pub(super) fn text(body: impl Into<Bytes>) -> ResponseBody {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that begins with this text and does not end.
pub(crate) fn endless(body: impl Into<Bytes>) -> ResponseBody {
    let first = http_body::Frame::data(body.into());
    let frames = futures::StreamExt::chain(
        futures::stream::iter([Ok::<_, BoxError>(first)]),
        futures::stream::pending(),
    );
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

pub(crate) fn answer(status: u16, body: impl Into<Bytes>) -> ApiResponse {
    let mut response = Response::new(text(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// A service that answers each request by `answer`, and keeps what it was asked.
pub(crate) fn mock<F, A>(answer: F) -> (HttpService, Arc<Mutex<Vec<Request<Bytes>>>>)
where
    F: Fn(Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Result<ApiResponse, BoxError>> + Send + 'static,
{
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let service = tower::service_fn(move |request: ApiRequest| {
        let (answer, kept) = (answer.clone(), Arc::clone(&kept));
        async move {
            let (parts, body) = request.into_parts();
            let request = Request::from_parts(parts, body.collect().await?.to_bytes());
            kept.lock().push(request.clone());
            answer(request).await
        }
    });
    (HttpService::new(service), seen)
}

/// A client with these limits of a service.
pub(crate) fn limited(service: HttpService, qps: f32, burst: u32) -> ApiClient {
    let metrics = ClientMetrics::register(&Registry::new()).unwrap().of_host("host:1".into());
    let rate = RateLimit { limits: RateLimits::new(qps, burst), metrics };
    ApiClient::new(HttpService::new(With(rate.clone()).layer(service)), "test").limited_by(rate)
}

/// A certificate authority and what it has signed.
pub(super) struct Pki {
    issuer: Issuer<'static, KeyPair>,
    pub(super) ca: CertificateDer<'static>,
    pub(super) ca_pem: String,
}

/// A certificate and its key, in PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Pki {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { ca: certificate.der().clone(), ca_pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    pub(super) fn sign(&self, name: &str, hosts: &[&str]) -> Pair {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// What a server at 127.0.0.1 or `kubernetes.test` speaks.
    pub(super) fn server(&self, protocols: &[&str]) -> rustls::ServerConfig {
        crate::tls::install();
        let pair = self.sign("server", &["127.0.0.1", "kubernetes.test"]);
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.ca.clone()).unwrap();
        let clients = rustls::server::WebPkiClientVerifier::builder(Arc::new(roots))
            .allow_unauthenticated()
            .build()
            .unwrap();
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let mut config = rustls::ServerConfig::builder()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }
}

/// The common name of the certificate that a client showed; in a request's extensions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peer(pub(super) Option<String>);

/// Answers a request.
pub(super) type Handler =
    Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<ResponseBody>> + Send + Sync>;

/// A server on a free port of loopback, gone when dropped.
pub(super) struct Server {
    pub(super) url: String,
    connections: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl Server {
    pub(super) async fn http(handler: Handler) -> Self {
        Self::start(None, handler).await
    }

    pub(super) async fn https(pki: &Pki, protocols: &[&str], handler: Handler) -> Self {
        Self::start(Some(pki.server(protocols)), handler).await
    }

    /// Connections accepted so far.
    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    async fn start(tls: Option<rustls::ServerConfig>, handler: Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let tls = tls.map(|config| tokio_rustls::TlsAcceptor::from(Arc::new(config)));
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let (tls, handler) = (tls.clone(), Arc::clone(&handler));
                serving.spawn(async move {
                    match tls {
                        None => serve(stream, Peer(None), handler).await,
                        Some(tls) => {
                            // A client that does not trust us hangs up; the test sees it from the other side.
                            if let Ok(stream) = tls.accept(stream).await {
                                let peer = common_name(stream.get_ref().1.peer_certificates());
                                serve(stream, Peer(peer), handler).await;
                            }
                        }
                    }
                });
            }
        });
        Self { url, connections, _accepting: accepting }
    }
}

fn common_name(chain: Option<&[CertificateDer<'_>]>) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(chain?.first()?).ok()?;
    certificate.subject().iter_common_name().next()?.as_str().ok().map(str::to_owned)
}

async fn serve<S>(stream: S, peer: Peer, handler: Handler)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let (handler, peer) = (Arc::clone(&handler), peer.clone());
        async move {
            let (mut parts, body) = request.into_parts();
            parts.extensions.insert(peer);
            let body = body.collect().await?.to_bytes();
            Ok::<_, hyper::Error>(handler(Request::from_parts(parts, body)).await)
        }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(100);
    // A client that goes away is no failure of the server's.
    drop(builder.serve_connection(TokioIo::new(stream), service).await);
}

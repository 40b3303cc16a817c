//! A server over TLS on loopback that answers as a test says, by HTTP/1.1 and HTTP/2.

use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::KeyPair;

/// The running server; it ends when this is dropped.
pub(crate) struct TlsServer {
    /// Where it listens.
    pub(crate) port: u16,
    _connections: JoinSet<()>,
}

impl TlsServer {
    /// Serves with this certificate, and answers each request by `answer`.
    pub(crate) async fn start<A, F, B, E>(pair: &KeyPair, answer: A) -> Self
    where
        A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let acceptor = TlsAcceptor::from(Arc::new(configuration(pair)));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(serve(stream, acceptor.clone(), answer.clone()));
                while open.try_join_next().is_some() {}
            }
        });
        Self { port, _connections: connections }
    }
}

async fn serve<A, F, B, E>(stream: TcpStream, acceptor: TlsAcceptor, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    // Whoever hangs up has its reasons, be it the certificate.
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let connection = auto::Builder::new(TokioExecutor::new());
    drop(connection.serve_connection(TokioIo::new(stream), service_fn(answer)).await);
}

/// TLS as who has this certificate serves it.
fn configuration(pair: &KeyPair) -> rustls::ServerConfig {
    let chain: Vec<_> = CertificateDer::pem_file_iter(&pair.cert_file)
        .expect("a certificate")
        .map(|der| der.expect("a certificate"))
        .collect();
    let key = PrivateKeyDer::from_pem_file(&pair.key_file).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("the certificate and its key");
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    tls
}

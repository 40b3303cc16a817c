//! A crowd without credentials at a manager's secure port: connections that do nothing, pages, streams, requests with made-up
//! tokens for made-up paths. It comes from a thread of its own, and costs little: it takes nothing from who looks on.

use std::collections::VecDeque;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic_health::pb::HealthCheckRequest;

use super::{ControlPlane, Manager};

/// Ten thousand in a minute, on a machine that can send so many.
const EVERY: Duration = Duration::from_millis(6);
/// Addresses that it comes from, 127.0.0.2 and further: those of pods, say, of which none is a probe's.
const ADDRESSES: usize = 4;
/// Of three quarters of so many the connections are held: of more than strangers have places.
const HELD: usize = 1000;

/// A crowd that comes until this is dropped.
pub(crate) struct Crowd {
    counts: Arc<Counts>,
    runtime: Option<Runtime>,
}

#[derive(Default)]
struct Counts {
    sent: AtomicUsize,
    served: AtomicUsize,
}

/// Where the crowd goes to, and how it introduces itself.
struct Place {
    address: SocketAddr,
    host: ServerName<'static>,
    old: TlsConnector,
    new: TlsConnector,
    counts: Arc<Counts>,
}

impl Crowd {
    /// Begins to send them.
    pub(crate) fn gather(plane: &ControlPlane, manager: &Manager<'_>) -> Self {
        let counts = Arc::<Counts>::default();
        let address: SocketAddr = manager.url.trim_start_matches("https://").parse().expect("an address");
        let place = Place {
            address,
            host: address.ip().into(),
            old: connector(plane, "http/1.1"),
            new: connector(plane, "h2"),
            counts: Arc::clone(&counts),
        };
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.spawn(send(place));
        Self { counts, runtime: Some(runtime) }
    }

    /// How many have come so far.
    pub(crate) fn sent(&self) -> usize {
        self.counts.sent.load(Ordering::Relaxed)
    }

    /// How many of them had an answer, whatever it was.
    pub(crate) fn served(&self) -> usize {
        self.counts.served.load(Ordering::Relaxed)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // Whoever drops it may be in a runtime, which is not to wait.
        self.runtime.take().expect("it is there until here").shutdown_background();
    }
}

/// TLS of somebody without a certificate, who was never here before.
fn connector(plane: &ControlPlane, protocol: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_file_iter(&plane.report.ca_file).expect("a PEM file") {
        roots.add(der.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// Sends them, for as long as the runtime goes on. The first go when there are many.
async fn send(place: Place) {
    let place = Arc::new(place);
    let (mut crowd, mut order) = (JoinSet::new(), VecDeque::new());
    let mut pace = interval(EVERY);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for n in 0.. {
        pace.tick().await;
        let place = Arc::clone(&place);
        place.counts.sent.fetch_add(1, Ordering::Relaxed);
        order.push_back(crowd.spawn(async move { place.intrude(n).await }));
        if order.len() > HELD {
            order.pop_front().expect("the first").abort();
        }
        while crowd.try_join_next().is_some() {}
    }
}

impl Place {
    /// One of the crowd. It is refused, or cut off, or goes on until it is told to go.
    async fn intrude(&self, n: usize) -> io::Result<()> {
        let socket = TcpSocket::new_v4()?;
        let from = Ipv4Addr::new(127, 0, 0, 2 + (n / 4 % ADDRESSES) as u8);
        socket.bind((from, 0).into())?;
        let mut stream = socket.connect(self.address).await?;
        match n % 4 {
            0 => held(&mut stream).await,
            1 => {
                let mut stream = self.old.connect(self.host.clone(), stream).await?;
                self.ask(&mut stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
                held(&mut stream).await
            }
            2 => self.watch(self.new.connect(self.host.clone(), stream).await?).await,
            _ => {
                let mut stream = self.old.connect(self.host.clone(), stream).await?;
                let request = format!(
                    "GET /made/up/{n} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer made-up-{n}\r\n\r\n"
                );
                self.ask(&mut stream, &request).await
            }
        }
    }

    /// Asks, and reads what comes first.
    async fn ask(&self, stream: &mut TlsStream<TcpStream>, request: &str) -> io::Result<()> {
        stream.write_all(request.as_bytes()).await?;
        if stream.read(&mut [0; 4096]).await? > 0 {
            self.counts.served.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Watches the health of something that there is not, with a name as long as it may be.
    async fn watch(&self, stream: TlsStream<TcpStream>) -> io::Result<()> {
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let request = Request::post(format!("https://{}/grpc.health.v1.Health/Watch", self.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(framed(&HealthCheckRequest { service: "x".repeat(400) })));
        let request = request.expect("a request");
        let watching = async {
            let stream = sender.send_request(request).await.map_err(io::Error::other)?;
            self.counts.served.fetch_add(1, Ordering::Relaxed);
            pending::<()>().await;
            drop(stream);
            Ok(())
        };
        tokio::select! {
            ended = connection => ended.map_err(io::Error::other),
            ended = watching => ended,
        }
    }
}

/// Stays until the other side ends it, and says nothing.
async fn held(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    while stream.read(&mut [0; 512]).await? > 0 {}
    Err(ErrorKind::UnexpectedEof.into())
}

/// A message in a gRPC frame.
fn framed(request: &HealthCheckRequest) -> Bytes {
    let message = request.encode_to_vec();
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(&message);
    frame.freeze()
}

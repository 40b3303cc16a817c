//! One connection: handshake, requests, end. Every step has its time, and all of it an end when its place is needed.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::answers::AnswerBody;
use super::authn::ClientCerts;
use super::chain::Chain;
use super::options::Limits;
use super::seats::Seat;
use crate::client::BoxError;

/// A connection that was accepted.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) tls: Arc<ServerConfig>,
    pub(super) chain: Arc<Chain>,
    pub(super) limits: Limits,
    pub(super) max_streams: u32,
    pub(super) seat: Seat,
    /// The runtime that carries out the handshake; `None` for the runtime of the port.
    pub(super) handshakes: Option<Handle>,
}

/// The address of a connection's client, in the extensions of each of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

/// The first byte of a TLS handshake record.
const HANDSHAKE: u8 = 0x16;
/// What a client hears that speaks HTTP where TLS is spoken.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
/// More than any client has reason to send, and less than a flood needs.
const MAX_HEADERS: usize = 256;
/// How often a silent HTTP/2 client is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(15);

/// Serves a connection to its end. What goes wrong with it concerns nobody else, and is logged at debug level: any
/// client can bring it about at will.
pub(super) async fn serve(connection: Connection, shutdown: CancellationToken) {
    let (peer, cut) = (connection.peer, connection.seat.cut());
    tokio::select! {
        biased;
        () = cut.cancelled() => tracing::debug!(%peer, "Closed a connection to accept another one"),
        () = attend(connection, shutdown) => {}
    }
}

/// Whoever answers the requests of one client.
struct Attended {
    chain: Arc<Chain>,
    peer: PeerAddress,
}

async fn attend(connection: Connection, shutdown: CancellationToken) {
    let peer = connection.peer;
    let Connection { stream, tls, chain, limits, max_streams, seat, handshakes, .. } = connection;
    let handshake = timeout(limits.handshake, carry_out(shake_hands(stream, tls), handshakes));
    let stream = tokio::select! {
        biased;
        () = shutdown.cancelled() => return,
        result = handshake => match result {
            Ok(Ok(Some(stream))) => stream,
            Ok(Ok(None)) => return tracing::debug!(%peer, "Received plain HTTP on the secure port"),
            Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_elapsed) => return tracing::debug!(%peer, "TLS handshake timed out"),
        },
    };
    let chain = Attended { chain, peer: PeerAddress(peer) };
    if let Err(error) = carry(stream, chain, limits, max_streams, seat, shutdown).await {
        tracing::debug!(%peer, %error, "Connection failed");
    }
}

/// Carries out a handshake on the runtime `place`, or on the current one if `place` is `None`. Dropping the future aborts the handshake.
async fn carry_out<T: Send + 'static>(
    handshake: impl Future<Output = std::io::Result<T>> + Send + 'static,
    place: Option<Handle>,
) -> std::io::Result<T> {
    match place {
        Some(place) => {
            AbortOnDropHandle::new(place.spawn(handshake)).await.map_err(std::io::Error::other).flatten()
        }
        None => handshake.await,
    }
}

/// `Ok(None)`: the client does not speak TLS, and was told.
async fn shake_hands(
    mut stream: TcpStream,
    tls: Arc<ServerConfig>,
) -> std::io::Result<Option<TlsStream<TcpStream>>> {
    stream.set_nodelay(true)?;
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE && first[0].is_ascii_alphabetic() {
        stream.write_all(NOT_TLS).await?;
        stream.shutdown().await?;
        return Ok(None);
    }
    TlsAcceptor::from(tls).accept(stream).await.map(Some)
}

/// What the requests of a connection tell its keeper, and the table of connections.
struct Activity {
    in_flight: AtomicUsize,
    changed: Notify,
    /// The client should go.
    close: CancellationToken,
    seat: Seat,
}

/// A request that is not yet answered to the last byte.
struct InFlight(Arc<Activity>);

impl InFlight {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.in_flight.fetch_add(1, Ordering::Relaxed);
        activity.seat.begun();
        activity.changed.notify_one();
        Self(Arc::clone(activity))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.0.seat.ended();
        self.0.changed.notify_one();
    }
}

async fn carry(
    stream: TlsStream<TcpStream>,
    Attended { chain, peer }: Attended,
    limits: Limits,
    max_streams: u32,
    seat: Seat,
    shutdown: CancellationToken,
) -> Result<(), BoxError> {
    let (_, session) = stream.get_ref();
    let h2 = session.alpn_protocol() == Some(b"h2");
    let certs: ClientCerts = session.peer_certificates().unwrap_or_default().iter().cloned().collect();
    let activity = Arc::new(Activity {
        in_flight: AtomicUsize::new(0),
        changed: Notify::new(),
        close: CancellationToken::new(),
        seat,
    });
    let service = {
        let activity = Arc::clone(&activity);
        service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(peer);
            let (chain, certs) = (Arc::clone(&chain), Arc::clone(&certs));
            let in_flight = InFlight::new(&activity);
            async move {
                let answer = chain.answer(request, &certs, &in_flight.0.seat).await;
                if !answer.known && h2 {
                    in_flight.0.close.cancel();
                }
                Ok::<_, std::convert::Infallible>(tracked(answer.response, in_flight))
            }
        })
    };
    let builder = builder(h2, &limits, max_streams);
    let mut conn = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut idle = pin!(sleep(limits.header_time));
    let mut end = pin!(sleep(limits.farewell));
    let mut parting = false;
    loop {
        tokio::select! {
            biased;
            result = conn.as_mut() => return result,
            () = shutdown.cancelled(), if !parting => parting = true,
            () = activity.close.cancelled(), if !parting => parting = true,
            // Whatever it still carries: a peer that takes nothing would keep its place for ever.
            () = &mut end, if parting => return Ok(()),
            () = activity.changed.notified() => {
                let wait = if parting { limits.parting } else { limits.idle };
                idle.as_mut().reset(Instant::now() + wait);
                continue;
            }
            () = &mut idle => {
                if activity.in_flight.load(Ordering::Relaxed) > 0 {
                    idle.as_mut().reset(Instant::now() + limits.idle);
                    continue;
                }
                if parting {
                    return Ok(());
                }
                parting = true;
            }
        }
        conn.as_mut().graceful_shutdown();
        end.as_mut().reset(Instant::now() + limits.farewell);
        idle.as_mut().reset(Instant::now() + limits.parting);
    }
}

/// ALPN has settled the version, so that no time is spent on waiting for bytes that tell it.
fn builder(h2: bool, limits: &Limits, max_streams: u32) -> auto::Builder<TokioExecutor> {
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut builder = if h2 { builder.http2_only() } else { builder.http1_only() };
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_buf_size(limits.header_bytes.max(8 << 10))
        .max_headers(MAX_HEADERS)
        .title_case_headers(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(max_streams)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER);
    builder
}

/// The response, counted as in flight until its body is sent or given up.
fn tracked(response: Response<AnswerBody>, in_flight: InFlight) -> Response<AnswerBody> {
    response.map(|body| {
        if body.is_end_stream() {
            return body;
        }
        Tracked { body, _in_flight: in_flight }.boxed_unsync()
    })
}

struct Tracked {
    body: AnswerBody,
    _in_flight: InFlight,
}

impl Body for Tracked {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

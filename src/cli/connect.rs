//! A connection to one replica: TLS, HTTP/2, and calls with the caller's credentials on them.
//!
//! Nothing is sent before the replica's certificate has been checked, unless the user wants it so.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Response, Status, TimeoutExpired};
use tower::{Service as _, ServiceExt as _};

use super::error::CliError;
use super::output::{clean, human};
use super::pods;
use super::token::{Authorized, Tokens};
use super::trust::{COXSWAIN_NAME, CertificateName, is_of_a_node};
use crate::admin::proto::controller_service_client::ControllerServiceClient;
use crate::admin::proto::event_service_client::EventServiceClient;
use crate::admin::proto::leader_service_client::LeaderServiceClient;
use crate::admin::proto::queue_service_client::QueueServiceClient;
use coxswain_machinery::client::{Connection, PodPort};
use coxswain_machinery::options::versions;

/// How long connecting may take, TLS included. A replica that is there answers sooner.
const CONNECT: Duration = Duration::from_secs(5);
/// The same by way of the API server and a kubelet.
const CONNECT_TO_POD: Duration = Duration::from_secs(15);
/// How long a call may take if nobody says otherwise.
pub(super) const CALL: Duration = Duration::from_secs(30);
/// The same for calls that wait for their effect: a little more than the replica waits.
pub(super) const WAIT: Duration = Duration::from_mins(3);
/// How long an answer may be late: the replica's own word on the deadline says more than ours.
const GRACE: Duration = Duration::from_secs(2);
/// Silence on the connection after which a sign of life is asked for, and how long it may take: so that a stream does
/// not wait for ever on a replica that is no more.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));
/// Bytes of an answer: all controllers with all they watch are far below.
const MAX_ANSWER: usize = 64 << 20;

/// Host and port as flags and Leases give them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Reads `host:port`, `[v6]:port`, or `https://host:port`.
    ///
    /// # Errors
    /// Words for people.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("address {text:?}: expected HOST:PORT");
        if text.starts_with("http://") {
            return Err(format!(
                "address {text:?}: the admin API requires TLS; use HOST:PORT or https://HOST:PORT"
            ));
        }
        let rest = text.strip_prefix("https://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return Err(format!("address {text:?}: enclose the IPv6 address in brackets"));
        }
        let host = bare.unwrap_or(host);
        // Also a check that there is nothing in it that belongs to other parts of a URL.
        if ServerName::try_from(host).is_err() {
            return Err(wrong());
        }
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        Ok(Self { host: host.to_owned(), port })
    }
}

/// The way to a replica's port.
pub(super) enum Way {
    /// To its address.
    Direct,
    /// To the same port of its pod in [`pods::NAMESPACE`], through the API server.
    Pod(Box<Connection>, String),
}

/// Bytes in both directions.
trait Wire: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Wire for T {}

impl Way {
    async fn connect(&self, address: &Address) -> Result<Pin<Box<dyn Wire>>, String> {
        match self {
            Self::Direct => {
                let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
                let stream = stream.map_err(|error| error.to_string())?;
                // Only makes small things slower if it fails.
                let _ = stream.set_nodelay(true);
                Ok(Box::pin(stream))
            }
            Self::Pod(connection, pod) => {
                let port = Box::pin(PodPort::connect(connection, (pods::NAMESPACE, pod), address.port)).await;
                Ok(Box::pin(port.map_err(|error| {
                    let hint = match error.code() {
                        401 | 403 => "; grant `get` and `create` on pods/portforward",
                        _ => "",
                    };
                    format!("port-forward to pod {}/{pod}: {error}{hint}", pods::NAMESPACE)
                })?))
            }
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A connection to a replica, as somebody.
#[derive(Clone, Debug)]
pub(super) struct Session {
    channel: Authorized,
    timeout: Option<Duration>,
    /// The replica's identity; empty if it is not known.
    pub(super) identity: String,
    /// Where it is.
    pub(super) address: Address,
}

impl Session {
    /// Connects. The certificate is verified in the same way whatever the way is.
    ///
    /// # Errors
    /// Why the replica can't be reached, in words for people.
    pub(super) async fn open(
        (identity, address): (&str, &Address),
        way: &Way,
        (rule, server_name): (CertificateName, Option<&str>),
        tls: Arc<rustls::ClientConfig>,
        tokens: Option<Arc<Tokens>>,
        timeout: Option<Duration>,
    ) -> Result<Self, String> {
        let expected = match rule {
            CertificateName::Coxswain => COXSWAIN_NAME,
            CertificateName::Address => server_name.unwrap_or(&address.host),
        };
        let name = ServerName::try_from(expected.to_owned())
            .map_err(|_| format!("--tls-server-name {expected:?}: expected a DNS name or an IP address"))?;
        let usual = if matches!(way, Way::Direct) { CONNECT } else { CONNECT_TO_POD };
        let limit = timeout.map_or(usual, |timeout| timeout.min(usual));
        let connected = async {
            let stream = way.connect(address).await?;
            let stream = handshake(stream, (expected, name), tls).await?;
            if expected.eq_ignore_ascii_case(COXSWAIN_NAME) { refuse_nodes(stream) } else { Ok(stream) }
        };
        let stream = tokio::time::timeout(limit, connected).await;
        let stream = stream.map_err(|_| format!("timed out after {}", human::duration(limit)))??;
        let mut stream = Some(TokioIo::new(stream));
        let connector = tower::service_fn(move |_| {
            // A call that would need a second one has lost the first.
            let stream = stream.take().ok_or_else(|| std::io::Error::other("connection lost"));
            std::future::ready(stream)
        });
        let endpoint = Endpoint::from_shared(format!("https://{address}"))
            .and_then(|endpoint| endpoint.user_agent(format!("coxswain-cli/{}", versions::COXSWAIN)))
            .map_err(|error| error.to_string())?
            .http2_keep_alive_interval(KEEP_ALIVE.0)
            .keep_alive_timeout(KEEP_ALIVE.1);
        let channel = endpoint.connect_with_connector(connector).await.map_err(|error| causes(&error))?;
        let (identity, address) = (identity.to_owned(), address.clone());
        Ok(Self { channel: Authorized::new(channel, tokens), timeout, identity, address })
    }

    /// Whether this is a session with another replica than the one of this identity and address; an empty identity is not known.
    pub(super) fn is_of_another(&self, identity: &str, address: &str) -> bool {
        let is_other_identity =
            !identity.is_empty() && !self.identity.is_empty() && self.identity != identity;
        is_other_identity || self.address.to_string() != address
    }

    /// The service of controllers.
    pub(super) fn controllers(&self) -> ControllerServiceClient<Authorized> {
        ControllerServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER)
    }

    /// The service of events.
    pub(super) fn events(&self) -> EventServiceClient<Authorized> {
        EventServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER)
    }

    /// The service of leadership.
    pub(super) fn leader(&self) -> LeaderServiceClient<Authorized> {
        LeaderServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER)
    }

    /// The service of queues.
    pub(super) fn queues(&self) -> QueueServiceClient<Authorized> {
        QueueServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER)
    }

    fn request<T>(message: T, timeout: Option<Duration>) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        request
    }

    /// Makes a call: `call` gets the request, and has until `usual`, or what `--timeout` says.
    pub(super) async fn call<T, R, F>(
        &self,
        message: T,
        usual: Duration,
        call: impl FnOnce(Request<T>) -> F,
    ) -> Result<R, CliError>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let limit = self.timeout.unwrap_or(usual);
        let answer = tokio::time::timeout(limit + GRACE, call(Self::request(message, Some(limit)))).await;
        match answer {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) if is_late(&status) => Err(CliError::TimedOut(limit)),
            Ok(Err(status)) => Err(status.into()),
            Err(_) => Err(CliError::TimedOut(limit)),
        }
    }

    /// Reads a page of the replica's port, of at most `limit` bytes.
    ///
    /// # Errors
    /// The replica cannot be reached, refuses the caller, serves only the admin API, or does not answer in time; or the page is too long.
    pub(super) async fn page(&self, path: &'static str, limit: usize) -> Result<String, String> {
        let request =
            http::Request::get(path).body(tonic::body::Body::empty()).map_err(|error| causes(&error))?;
        let read = async {
            let mut channel = self.channel.clone();
            let channel = channel.ready().await.map_err(|error| causes(&*error))?;
            let response = channel.call(request).await.map_err(|error| causes(&*error))?;
            let (status, headers) = (response.status(), response.headers());
            // A port that serves only the admin API treats every path as a gRPC call.
            if headers
                .get("content-type")
                .is_some_and(|form| form.as_bytes().starts_with(b"application/grpc"))
            {
                return Err(format!("GET {path}: {} serves only the admin API", self.address));
            }
            let body = Limited::new(response.into_body(), limit).collect().await;
            let body = body.map_err(|error| format!("GET {path}: {}", causes(&*error)))?;
            let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            if status.is_success() {
                return Ok(text);
            }
            let why: String = text.lines().next().unwrap_or_default().chars().take(200).collect();
            Err(format!("GET {path}: HTTP {status}: {}", clean(&why)))
        };
        let limit = self.timeout.unwrap_or(CALL);
        let late = |_| Err(format!("GET {path}: no answer within {}", human::duration(limit)));
        tokio::time::timeout(limit, read).await.unwrap_or_else(late)
    }

    /// The request of a stream: without a limit, unless `--timeout` sets one.
    pub(super) fn stream<T>(&self, message: T) -> Request<T> {
        Self::request(message, self.timeout)
    }
}

async fn handshake(
    stream: Pin<Box<dyn Wire>>,
    (expected, name): (&str, ServerName<'static>),
    tls: Arc<rustls::ClientConfig>,
) -> Result<TlsStream<Pin<Box<dyn Wire>>>, String> {
    let stream =
        TlsConnector::from(tls).connect(name, stream).await.map_err(|error| tls_error(&error, expected))?;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(
            "TLS handshake: the server does not support HTTP/2, which the admin API requires".to_owned()
        );
    }
    Ok(stream)
}

/// Refuses a server with the certificate of a node, before anything is sent to it.
fn refuse_nodes<S>(stream: TlsStream<S>) -> Result<TlsStream<S>, String> {
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    match certificate.map(|certificate| is_of_a_node(certificate)) {
        Some(Ok(false)) => Ok(stream),
        Some(Ok(true)) => Err(format!(
            "refusing to send a token: the certificate for {COXSWAIN_NAME} belongs to a node (group system:nodes)"
        )),
        Some(Err(error)) => Err(format!("parse the server's certificate: {error}")),
        None => Err("TLS handshake: the server sent no certificate".to_owned()),
    }
}

/// Whether it was this side that gave up waiting, by the deadline that it sent along.
pub(super) fn is_late(status: &Status) -> bool {
    let first = std::error::Error::source(status);
    let mut causes = std::iter::successors(first, |error| error.source());
    status.code() == Code::Cancelled && causes.any(<dyn std::error::Error>::is::<TimeoutExpired>)
}

/// What is wrong with the TLS connection, and what may help.
fn tls_error(error: &std::io::Error, expected: &str) -> String {
    use rustls::{CertificateError, Error};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        // A signature that does not fit is that of another authority of the same name.
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "verify the server's certificate: no trusted CA signed it; use --certificate-authority to trust another CA"
                .to_owned()
        }
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) if expected == COXSWAIN_NAME => format!(
            "refusing to send a token: the server's certificate is not for {COXSWAIN_NAME}; \
             use --server or --tls-server-name to name the server, or --certificate-authority to trust another CA"
        ),
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => format!("verify the server's certificate: it is not for {expected:?}; use --tls-server-name to expect another name"),
        Some(Error::InvalidMessage(_)) => "TLS handshake: the server does not use TLS".to_owned(),
        Some(Error::AlertReceived(alert)) => format!("TLS handshake: the server sent the alert {alert:?}"),
        Some(Error::NoApplicationProtocol) => "TLS handshake: the server does not support HTTP/2, which the admin API requires".to_owned(),
        _ => format!("TLS handshake: {error}"),
    }
}

/// An error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

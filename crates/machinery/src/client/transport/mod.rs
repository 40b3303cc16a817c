//! The transport: connections to one API server as one identity.
//!
//! A [`Transport`] is the bottom of every client. Requests come down with a path only; the transport puts the
//! server's address and the identity's own credentials on them, and picks a connection (see [`lanes`]). When files
//! with a client certificate change, or a plugin's credentials are refused, it builds everything anew, sends new
//! requests that way, and lets the old connections end with the requests that still run on them.
//!
//! It retries nothing that was sent, and it knows nothing of objects.

mod connector;
mod lanes;
mod proxy;
mod socket;
mod token_file;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::{HeaderValue, StatusCode};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;
use tower::{Layer, Service, ServiceExt};

use self::connector::{Connector, Tasks};
use self::lanes::Lanes;
pub(super) use self::proxy::{Proxy, Variables};
use self::token_file::FileToken;
use super::api::{BoxError, HttpService};
use super::config::{ConfigError, Connection, describe_auth, describe_kube};
use super::layers::{ApiRequest, ApiResponse, Bearer, CountedTransport, TokenError, With};
use super::tls::tls_config;
use crate::environment::{Environment, Threads};

/// How often files with client certificates are looked at.
const RELOAD_EVERY: Duration = Duration::from_mins(1);
/// The shortest time between two looks that a refusal asked for: a plugin may be slow, or ask a person.
const RELOAD_AT_MOST_EVERY: Duration = Duration::from_secs(10);

/// How dead connections are found out: by HTTP/2 pings, sent when nothing else has come for a while.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// Silence after which a ping is sent.
    pub interval: Duration,
    /// How long its answer may take.
    pub timeout: Duration,
}

impl Default for KeepAlive {
    /// client-go's: a ping after 30 s, its answer within 15 s.
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), timeout: Duration::from_secs(15) }
    }
}

impl KeepAlive {
    /// Finds a dead connection within `limit`.
    pub fn within(limit: Duration) -> Self {
        Self { interval: limit / 2, timeout: limit / 2 }
    }
}

/// Connections to one API server as one identity. Cheap to clone; they close when the last clone is dropped and the
/// requests on them have ended.
#[derive(Clone)]
pub struct Transport(Arc<Inner>);

struct Inner {
    environment: Environment,
    connection: Connection,
    keep_alive: KeepAlive,
    host: Arc<str>,
    current: ArcSwap<Generation>,
    /// Woken when the API server refused our credentials, or a handshake failed.
    refused: Arc<Notify>,
    tasks: TaskTracker,
    /// The task that looks after rotated files; ends with this.
    watcher: Mutex<JoinSet<()>>,
    counted: OnceLock<CountedTransport>,
}

/// One state of the identity's credentials, and the connections made with it.
struct Generation {
    service: HttpService,
    lanes: Lanes,
    /// Digest of the certificate files, to tell whether they have changed.
    fingerprint: Fingerprint,
}

type Fingerprint = Option<[u8; 32]>;

/// A request that the transport could not carry, with all its causes in one line.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    message: String,
    not_sent: bool,
    source: BoxError,
}

impl TransportError {
    /// Whether it is certain that nothing of the request reached the server: there was no connection.
    pub fn is_not_sent(&self) -> bool {
        self.not_sent
    }

    pub(super) fn new(source: BoxError, not_sent: bool) -> Self {
        let mut message = source.to_string();
        let mut cause = source.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Wrappers that repeat what they wrap say nothing new.
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = error.source();
        }
        Self { message, not_sent, source }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("connection", &self.0.connection)
            .field("keep_alive", &self.0.keep_alive)
            .finish_non_exhaustive()
    }
}

impl Transport {
    /// Makes ready to connect; nothing is sent yet. Reads certificates and asks a credential plugin, if there is one.
    pub async fn new(connection: Connection, keep_alive: KeepAlive) -> Result<Self, ConfigError> {
        Self::new_in(&Environment::system(), &Handle::current(), connection, keep_alive).await
    }

    /// The same in another environment; on `threads` it looks after its credentials.
    pub(super) async fn new_in(
        environment: &Environment,
        threads: &Handle,
        connection: Connection,
        keep_alive: KeepAlive,
    ) -> Result<Self, ConfigError> {
        let tasks = TaskTracker::new();
        let host = connection.server().authority().map_or("", http::uri::Authority::as_str).into();
        let generation = build(environment, &connection, keep_alive, &tasks).await?;
        let transport = Self(Arc::new(Inner {
            environment: environment.clone(),
            connection,
            keep_alive,
            host,
            current: ArcSwap::from_pointee(generation),
            refused: Arc::new(Notify::new()),
            tasks,
            watcher: Mutex::new(JoinSet::new()),
            counted: OnceLock::new(),
        }));
        let connection = &transport.0.connection;
        if connection.has_exec_plugin() || !connection.certificate_files().is_empty() {
            let refused = Arc::clone(&transport.0.refused);
            transport.0.watcher.lock().spawn_on(watch(Arc::downgrade(&transport.0), refused), threads);
        }
        Ok(transport)
    }

    /// Counts it, once, for as long as anyone has it.
    pub(super) fn count(&self, counted: CountedTransport) {
        // One that is counted already is let go, and with it what was counted twice.
        let _ = self.0.counted.set(counted);
    }

    /// Host and port of the API server, as metrics show them.
    pub fn host(&self) -> &Arc<str> {
        &self.0.host
    }

    /// The service at the bottom of a client.
    pub(super) fn service(&self) -> TransportService {
        TransportService(Arc::clone(&self.0))
    }

    /// Connections that this transport may have open at present, for those that count them.
    pub fn lanes(&self) -> usize {
        self.0.current.load().lanes.len()
    }
}

impl Inner {
    /// Looks whether the credentials have changed, and if so changes over to them. `refused` says that the API server
    /// did not like the present ones, so that a plugin is asked again too.
    async fn reload(&self, refused: bool) -> Result<bool, ConfigError> {
        let found = blocking(self.environment.threads, &self.connection, fingerprint).await?;
        let changed = found != self.current.load().fingerprint;
        if !(changed || (refused && self.connection.has_exec_plugin())) {
            return Ok(false);
        }
        let generation = build(&self.environment, &self.connection, self.keep_alive, &self.tasks).await?;
        self.current.store(Arc::new(generation));
        Ok(true)
    }
}

/// Looks after rotated credentials until the transport is gone, which it does not keep alive.
async fn watch(inner: Weak<Inner>, refused: Arc<Notify>) {
    loop {
        let asked = tokio::select! {
            biased;
            () = tokio::time::sleep(RELOAD_EVERY) => false,
            () = refused.notified() => true,
        };
        let Some(inner) = inner.upgrade() else { return };
        match inner.reload(asked).await {
            Ok(false) => {}
            Ok(true) => tracing::info!(host = %inner.host, "Reloaded client credentials"),
            Err(error) => {
                tracing::warn!(host = %inner.host, %error, "Failed to reload client credentials; keeping the previous ones");
            }
        }
        drop(inner);
        if asked {
            tokio::time::sleep(RELOAD_AT_MOST_EVERY).await;
        }
    }
}

/// Connects to the API server for HTTP/1.1, as the identity's client certificate if it has one, through its proxy if it has one.
pub(super) async fn connect_http1(
    connection: &Connection,
) -> Result<impl AsyncRead + AsyncWrite + Send + use<>, BoxError> {
    let config = &connection.config;
    let tls = tls_config(config)?;
    let connector = Connector::new(tls, config.tls_server_name.as_deref(), connection.proxy.clone())?;
    Ok(TokioIo::new(connector.http1(config.cluster_url.clone()).await?))
}

/// What has to be read from disk, or asked of a plugin, to make a [`Generation`].
struct Material {
    fingerprint: Fingerprint,
    tls: rustls::ClientConfig,
    auth: Option<kube::client::middleware::AuthLayer>,
}

async fn build(
    environment: &Environment,
    connection: &Connection,
    keep_alive: KeepAlive,
    tasks: &TaskTracker,
) -> Result<Generation, ConfigError> {
    let threads = environment.threads;
    let material = blocking(threads, connection, material).await??;
    let config = &connection.config;
    let connector = Connector::new(material.tls, config.tls_server_name.as_deref(), connection.proxy.clone())
        .map_err(|why| connection.invalid(format!("tls-server-name: {why}")))?;
    let lanes = Lanes::new(config.cluster_url.clone(), connector, keep_alive, Tasks(tasks.clone()));
    let headers = config.extra_headers_layer().map_err(|error| connection.invalid(describe_kube(&error)))?;
    let carrier = environment.api_server.clone().unwrap_or_else(|| HttpService::new(lanes.clone()));
    let base = headers.layer(config.base_uri_layer().layer(carrier));
    let service = match (&connection.token_file, material.auth) {
        (Some(file), _) => {
            HttpService::new(With(Bearer(Arc::new(FileToken::new(file.clone(), threads)))).layer(base))
        }
        (None, Some(auth)) => HttpService::new(auth.layer(base).map_err(plugin_error)),
        (None, None) => HttpService::new(base),
    };
    Ok(Generation { service, lanes, fingerprint: material.fingerprint })
}

fn material(connection: &Connection) -> Result<Material, ConfigError> {
    // Before the files are read for use: a change in between is found by the next look.
    let fingerprint = fingerprint(connection);
    let invalid = |error: kube::Error| connection.invalid(describe_kube(&error));
    let tls = tls_config(&connection.config).map_err(|why| connection.invalid(why))?;
    // kube takes for granted that it can be sent, and panics if not.
    let token = connection.config.auth_info.token.as_ref();
    if token.is_some_and(|token| HeaderValue::from_str(token.expose_secret()).is_err()) {
        let why = "the user's token has a line break or another control character";
        return Err(connection.invalid(why.to_owned()));
    }
    let auth = connection.config.auth_layer().map_err(invalid)?;
    Ok(Material { fingerprint, tls, auth })
}

/// A digest of the certificate files; `None` when there are none, or while one of them cannot be read.
fn fingerprint(connection: &Connection) -> Fingerprint {
    let files = connection.certificate_files();
    if files.is_empty() {
        return None;
    }
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for file in files {
        context.update(&std::fs::read(file).ok()?);
    }
    context.finish().as_ref().try_into().ok()
}

/// Files and plugins are waited for where that may be done.
async fn blocking<T: Send + 'static>(
    threads: Threads,
    connection: &Connection,
    work: impl FnOnce(&Connection) -> T + Send + 'static,
) -> Result<T, ConfigError> {
    let held = connection.clone();
    threads.blocking(move || work(&held)).await.map_err(|error| connection.invalid(error.to_string()))
}

/// A credential plugin that fails while its token is refreshed; its output is kept out of the error.
fn plugin_error(error: BoxError) -> BoxError {
    match error.downcast::<kube::client::AuthError>() {
        Ok(error) => {
            let why = describe_auth(&error);
            TokenError { identity: "the manager".to_owned(), why }.into()
        }
        Err(error) => error,
    }
}

/// The transport as a service: the present generation carries each request.
#[derive(Clone)]
pub(super) struct TransportService(Arc<Inner>);

impl Service<ApiRequest> for TransportService {
    type Response = ApiResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ApiResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ApiRequest) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let service = inner.current.load().service.clone();
            let result = service.oneshot(request).await;
            let refused = match &result {
                Ok(response) => response.status() == StatusCode::UNAUTHORIZED,
                Err(error) => is_tls(&**error),
            };
            if refused {
                inner.refused.notify_one();
            }
            result
        })
    }
}

/// Whether TLS is among an error's causes: a certificate refused, by either side.
fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    // An I/O error does not name the error in it as its source, but that one's source.
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.is_some_and(|inner| is_tls(inner)) || error.source().is_some_and(is_tls)
}

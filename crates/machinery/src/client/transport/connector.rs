//! Makes connections: TCP, TLS with HTTP/2 by ALPN, within a limit of time.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper_rustls::builderstates::WantsProtocols1;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::Connection as _;
use parking_lot::Mutex;
use rustls_pki_types::{InvalidDnsNameError, ServerName};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt};

use super::proxy::{Proxy, Route, Way};
use super::socket::{Socket, Sockets};
use crate::client::api::BoxError;
use crate::client::fence::Fence;

/// How long connecting may take, TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection made to find out the protocol stays good for use.
const FIRST_STAYS_GOOD: Duration = Duration::from_secs(5);

/// TLS with the server, over TCP or over TLS with a proxy.
pub(super) type Stream = MaybeHttpsStream<MaybeHttpsStream<Socket>>;
type Https = HttpsConnector<Route>;

/// Connects to the API server.
#[derive(Clone)]
pub(super) struct Connector {
    https: Https,
    tls: Arc<Tls>,
    /// The connection by which the protocol was found out, for the first who asks for one.
    first: Arc<Mutex<Option<(Stream, Instant)>>>,
    /// Refuses a connection that is not HTTP/2.
    only_http2: bool,
    /// Set when a connection was refused for that.
    downgraded: Arc<AtomicBool>,
}

struct Tls {
    config: rustls::ClientConfig,
    server_name: Option<ServerName<'static>>,
    way: Option<Arc<Way>>,
}

impl Tls {
    fn over(&self, sockets: Sockets) -> Https {
        self.builder().enable_all_versions().wrap_connector(Route::new(sockets, self.way.clone()))
    }

    /// The same for HTTP/1.1 alone.
    fn http1(&self) -> Https {
        self.builder().enable_http1().wrap_connector(Route::new(Sockets::new(None), self.way.clone()))
    }

    fn builder(&self) -> HttpsConnectorBuilder<WantsProtocols1> {
        let builder = HttpsConnectorBuilder::new().with_tls_config(self.config.clone()).https_or_http();
        match self.server_name.clone() {
            Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => builder,
        }
    }
}

impl Connector {
    pub(super) fn new(
        config: rustls::ClientConfig,
        server_name: Option<&str>,
        proxy: Option<Proxy>,
    ) -> Result<Self, InvalidDnsNameError> {
        let server_name = server_name.map(|name| ServerName::try_from(name.to_owned())).transpose()?;
        let way = proxy.map(|proxy| Arc::new(Way::new(proxy, &config)));
        let tls = Arc::new(Tls { config, server_name, way });
        let https = tls.over(Sockets::new(None));
        Ok(Self { https, tls, first: Arc::default(), only_http2: false, downgraded: Arc::default() })
    }

    /// The same, refusing what is not HTTP/2.
    pub(super) fn only_http2(&self) -> Self {
        Self { only_http2: true, ..self.clone() }
    }

    /// The same, for connections behind a fence, which are all made anew.
    pub(super) fn behind(&self, fence: Arc<Fence>) -> Self {
        Self { https: self.tls.over(Sockets::new(Some(fence))), first: Arc::default(), ..self.clone() }
    }

    /// Connects to find out whether the server speaks HTTP/2. The connection is kept for the first who asks, if that is
    /// to be; there is no fence around it.
    pub(super) async fn probe(&self, server: Uri, keep: bool) -> Result<bool, BoxError> {
        let stream = connect(self.https.clone(), server).await?;
        let http2 = stream.connected().is_negotiated_h2();
        if keep {
            *self.first.lock() = Some((stream, Instant::now()));
        }
        Ok(http2)
    }

    /// Connects for HTTP/1.1, which a protocol can be upgraded from.
    pub(super) async fn http1(&self, server: Uri) -> Result<Stream, BoxError> {
        connect(self.tls.http1(), server).await
    }

    /// Whether a connection was refused because it was not HTTP/2, since this was last asked.
    pub(super) fn take_downgraded(&self) -> bool {
        self.downgraded.swap(false, Ordering::Relaxed)
    }
}

async fn connect(https: Https, server: Uri) -> Result<Stream, BoxError> {
    match tokio::time::timeout(CONNECT_TIMEOUT, https.oneshot(server)).await {
        Ok(connected) => connected,
        Err(_) => Err(format!("not connected within {CONNECT_TIMEOUT:?}").into()),
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Stream, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let first = this.first.lock().take().filter(|(_, made)| made.elapsed() < FIRST_STAYS_GOOD);
            let stream = match first {
                Some((stream, _)) => stream,
                None => connect(this.https, server).await?,
            };
            if this.only_http2 && !stream.connected().is_negotiated_h2() {
                this.downgraded.store(true, Ordering::Relaxed);
                return Err("the server speaks HTTP/2 no more".into());
            }
            Ok(stream)
        })
    }
}

/// Runs hyper's connection tasks where their owner can count them.
#[derive(Clone)]
pub(super) struct Tasks(pub(super) TaskTracker);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        drop(self.0.spawn(task));
    }
}

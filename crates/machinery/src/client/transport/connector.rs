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
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt};

use super::proxy::{Proxy, Route, Way};
use super::socket::{Socket, Sockets};
use crate::client::api::BoxError;
use crate::client::fence::Fence;
use crate::environment::Threads;
use crate::tls;

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
    /// Whether the client key signs so slowly that a handshake would block the other tasks of its thread.
    signs_slowly: bool,
}

impl Tls {
    fn over(&self, sockets: Sockets) -> Https {
        self.builder().enable_all_versions().wrap_connector(Route::new(sockets, self.way.clone()))
    }

    /// The same for HTTP/1.1 alone.
    fn http1(&self) -> Https {
        self.builder().enable_http1().wrap_connector(Route::new(Sockets::new(None), self.way.clone()))
    }

    /// Connects. The attempt has a thread of its own if the client key signs slowly. Dropping the future ends such an attempt at its next await.
    async fn connect(&self, https: Https, server: Uri) -> Result<Stream, BoxError> {
        if !self.signs_slowly {
            return connect(https, server).await;
        }
        let (runtime, dropped) = (Handle::current(), CancellationToken::new());
        let ended = dropped.clone();
        let _guard = dropped.drop_guard();
        let attempt = async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => Err("the caller dropped the connection attempt".into()),
                connected = connect(https, server) => connected,
            }
        };
        Threads::Own.blocking(move || runtime.block_on(attempt)).await?
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
        let signs_slowly = signs_slowly(&config);
        let tls = Arc::new(Tls { config, server_name, way, signs_slowly });
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
        let stream = self.tls.connect(self.https.clone(), server).await?;
        let http2 = stream.connected().is_negotiated_h2();
        if keep {
            *self.first.lock() = Some((stream, Instant::now()));
        }
        Ok(http2)
    }

    /// Connects for HTTP/1.1, which a protocol can be upgraded from.
    pub(super) async fn http1(&self, server: Uri) -> Result<Stream, BoxError> {
        self.tls.connect(self.tls.http1(), server).await
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

/// Returns whether the client key of a configuration signs slowly. A configuration without a client key returns `false`.
fn signs_slowly(config: &rustls::ClientConfig) -> bool {
    let schemes = config.crypto_provider().signature_verification_algorithms.supported_schemes();
    let key = config.client_auth_cert_resolver.resolve(&[], &schemes);
    key.is_some_and(|key| tls::signs_slowly(&*key.key))
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
                None => this.tls.connect(this.https, server).await?,
            };
            if this.only_http2 && !stream.connected().is_negotiated_h2() {
                this.downgraded.store(true, Ordering::Relaxed);
                return Err("the server no longer accepts HTTP/2".into());
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

#[cfg(test)]
mod tests {
    use std::thread;

    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};

    use super::*;
    use crate::client::testing::{Pki, Server, answer};
    use crate::tls::slow_key::SlowKey;
    use crate::tls::{Roots, ServerVerifier, provider, signing_key};

    #[tokio::test]
    async fn slow_signature_of_a_client_is_made_off_the_thread_of_its_caller() {
        let pki = Pki::new();
        let server = Server::https(&pki, &["h2"], Arc::new(|_| Box::pin(async { answer(200, "") }))).await;
        let pair = pki.sign("client", &[]);
        let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let fast = signing_key(key, &provider()).unwrap();
        let slow = SlowKey::new(Arc::clone(&fast));
        let connect = |key: Arc<dyn rustls::sign::SigningKey>| {
            let resolver = SingleCertAndKey::from(CertifiedKey::new(chain.clone(), key));
            let roots = Roots::from_pem(pki.ca_pem.as_bytes()).unwrap();
            let config = rustls::ClientConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(ServerVerifier::new(roots)))
                .with_client_cert_resolver(Arc::new(resolver));
            let connector = Connector::new(config, None, None).unwrap();
            let server = server.url.parse().unwrap();
            async move { (connector.tls.signs_slowly, connector.probe(server, false).await.unwrap()) }
        };
        assert_eq!(connect(Arc::new(slow.clone())).await, (true, true));
        let threads: Vec<_> = slow.threads.lock().iter().map(|(id, _)| *id).collect();
        assert_eq!(threads.len(), 1);
        assert_ne!(threads[0], thread::current().id());
        assert_eq!(connect(fast).await, (false, true));
    }
}

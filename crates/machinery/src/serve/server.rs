//! The port itself: set up by [`SecureServer::bind`], served by [`SecureServer::run`].

use std::cell::OnceCell;
use std::convert::Infallible;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::authn::trust::TrustStore;
use super::authn::{Authenticator, ClusterTrust, HeaderRules, RequestHeader, TokenAuthenticator};
use super::authz::Authorizer;
use super::chain::Chain;
use super::connection::{Connection, serve};
use super::error::ServeError;
use super::limit::Lines;
use super::observe::ServeObserver;
use super::options::ServeOptions;
use super::reload::{Content, Reloader, Reports};
use super::renewal::Renewal;
use super::reviews::Reviews;
use super::router::Router;
use super::seats::Seats;
use super::signed::{ServingSigner, SignedRenewal};
use super::tls::{self, CertFiles, CertStore, SelfSigned, Tls};
use crate::environment::{Aside, Threads};
use crate::latest;
use crate::model::clock::SharedClock;

const BACKLOG: u32 = 1024;
/// The name of the thread that carries out slow handshakes.
const HANDSHAKES: &str = "coxswain-tls";
/// Streams on one HTTP/2 connection when no flag says how many.
const HTTP2_STREAMS: u32 = 100;

/// What the port works with.
#[derive(Clone)]
pub struct ServeDeps {
    /// For the validity of certificates.
    pub clock: SharedClock,
    /// The pages. Install [`super::Pages`] into it; more may be added while the server runs.
    pub router: Arc<Router>,
    /// Asks for TokenReviews and the cluster's authentication configuration; `None` without
    /// `--authentication-kubeconfig` (and outside of a cluster).
    pub authentication: Option<Arc<dyn Reviews>>,
    /// Asks for SubjectAccessReviews; `None` without `--authorization-kubeconfig` (and outside of a cluster).
    pub authorization: Option<Arc<dyn Reviews>>,
    /// Signs a certificate for [`super::COXSWAIN_NAME`] where the default certificate is made and kept in memory; `None` without
    /// the key of the cluster's CA.
    pub signer: Option<Arc<dyn ServingSigner>>,
    /// Hears of what happens.
    pub observer: Arc<dyn ServeObserver>,
}

impl std::fmt::Debug for ServeDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServeDeps").field("router", &self.router).finish_non_exhaustive()
    }
}

/// A port that listens and does not yet serve.
pub struct SecureServer {
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<Tls>,
    chain: Arc<Chain>,
    reloader: Arc<Reloader>,
    options: ServeOptions,
    authority: latest::Receiver<Option<String>>,
}

impl std::fmt::Debug for SecureServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecureServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl SecureServer {
    /// Reads the certificates, makes one if none is given, asks the cluster for the authorities that no flag names,
    /// and listens. Must be called within a tokio runtime.
    pub async fn bind(options: ServeOptions, deps: ServeDeps) -> Result<Self, ServeError> {
        let provider = Arc::new(options.tls.spoken.provider());
        let LoadedCerts { certs, files: cert_files, authority, renewal, signed } =
            load_certs(&options, &deps, &provider).await?;
        let trust = Trust::load(&options, &deps).await?;
        let mut reloader = Reloader::new(
            Arc::clone(&provider),
            Arc::clone(&certs),
            trust.client_ca.clone(),
            trust.request_header.clone(),
            trust.cluster,
            Reports::new(Arc::clone(&deps.observer), options.address.port(), Arc::clone(&deps.clock)),
        );
        reloader.renew(renewal, signed);
        for (what, index, files, content) in &cert_files {
            reloader.watch_cert(what, *index, files, content);
        }
        for (what, path, store, content) in trust.files {
            reloader.watch_authorities(what, path, store, &content);
        }
        let tls = Arc::new(Tls::new(&options, provider, certs, reloader.hints())?);
        let tokens = match &deps.authentication {
            Some(reviews) => {
                let ttl = options.authentication.token_cache_ttl;
                Some(TokenAuthenticator::new(Arc::clone(reviews), ttl, Arc::clone(&deps.observer))?)
            }
            None => None,
        };
        let authorizer =
            Authorizer::new(&options.authorization, deps.authorization, Arc::clone(&deps.observer))?;
        let chain = Chain {
            authenticator: Authenticator {
                request_header: trust.request_header,
                client_ca: trust.client_ca,
                tokens,
                observer: deps.observer,
            },
            authorizer: Arc::new(authorizer),
            router: deps.router,
            limits: options.limits,
            refusals: Lines::default(),
        };
        let listener = listen(&options)?;
        let address = listener
            .local_addr()
            .map_err(|source| ServeError::Listen { address: options.address, source })?;
        Ok(Self {
            listener,
            address,
            tls,
            chain: Arc::new(chain),
            reloader: Arc::new(reloader),
            options,
            authority,
        })
    }

    /// Where it listens; the port is the one found free when none was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The authority to trust here, in PEM, if the serving certificate was given by no flag and is signed by an
    /// authority of its own. It changes when the certificate is made again.
    pub fn self_signed_authority(&self) -> latest::Receiver<Option<String>> {
        self.authority.clone()
    }

    /// Judges what the callers of a mounted service may do.
    pub fn authorizer(&self) -> Arc<Authorizer> {
        Arc::clone(&self.chain.authorizer)
    }

    /// Replaces the default certificate, for tests.
    #[cfg(test)]
    pub(super) fn replace_certificate(&self, key: rustls::sign::CertifiedKey) {
        self.tls.certs.replace(0, key);
    }

    /// Looks for rotated files at once, for tests that do not wait a minute.
    #[cfg(test)]
    pub(super) fn reload(
        &self,
    ) -> impl Fn() -> futures::future::BoxFuture<'static, ()> + Send + Sync + use<> {
        let (reloader, tls) = (Arc::clone(&self.reloader), Arc::clone(&self.tls));
        move || {
            let (reloader, tls) = (Arc::clone(&reloader), Arc::clone(&tls));
            Box::pin(async move { reloader.turn(&tls).await })
        }
    }

    /// Serves until `shutdown`, then lets requests in flight end for as long as the options grant, and returns when
    /// every connection is closed.
    pub async fn run(self, shutdown: CancellationToken) {
        tracing::info!(address = %self.address, "Serving HTTPS");
        let Self { listener, tls, chain, reloader, options, .. } = self;
        let reloads = keep_reloading(&reloader, &tls, &options);
        let mut connections = tokio::select! {
            biased;
            connections = accept(listener, &tls, &chain, &options, &shutdown) => connections,
            never = reloads => match never {},
        };
        let drained =
            timeout(options.shutdown_grace, async { while connections.join_next().await.is_some() {} });
        if drained.await.is_err() {
            tracing::warn!(
                connections = connections.len(),
                "Closed connections with open requests at the end of the grace period"
            );
            connections.shutdown().await;
        }
        tracing::info!("Closed the secure port");
    }
}

/// Looks for rotated files and authorities, again and again.
async fn keep_reloading(reloader: &Reloader, tls: &Tls, options: &ServeOptions) -> Infallible {
    loop {
        sleep(options.reload_interval).await;
        reloader.turn(tls).await;
    }
}

/// The thread that carries out handshakes while the port has a key that signs slowly. The thread starts with the first such handshake.
///
/// rustls signs within the call that reads the client's first message. Any client can begin a handshake, and on the thread of the port a slow
/// signature would delay every request and every other handshake.
#[derive(Default)]
struct Handshakes(OnceCell<Option<Aside>>);

impl Handshakes {
    /// Returns the runtime that carries out a handshake; `None` for the runtime of the port.
    fn place(&self, certs: &CertStore) -> Option<Handle> {
        if !certs.signs_slowly() {
            return None;
        }
        let aside = self.0.get_or_init(|| match Threads::Own.one(HANDSHAKES) {
            Ok(aside) => Some(aside),
            Err(error) => {
                tracing::warn!(%error, "Failed to start a thread for TLS handshakes; using the listener thread");
                None
            }
        });
        aside.as_ref().map(|aside| aside.handle().clone())
    }
}

/// Takes connections until `shutdown`, and hands over those that still live.
async fn accept(
    listener: TcpListener,
    tls: &Arc<Tls>,
    chain: &Arc<Chain>,
    options: &ServeOptions,
    shutdown: &CancellationToken,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let seats = Seats::new(&options.limits);
    let handshakes = Handshakes::default();
    let max_streams = if options.http2_max_streams == 0 { HTTP2_STREAMS } else { options.http2_max_streams };
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return connections,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "A connection task failed");
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let Some(seat) = seats.take(peer.ip()) else {
                        tracing::debug!(%peer, "Rejected a connection because of the connection limit");
                        continue;
                    };
                    let connection = Connection {
                        stream,
                        peer,
                        tls: tls.config(),
                        chain: Arc::clone(chain),
                        limits: options.limits,
                        max_streams,
                        seat,
                        handshakes: handshakes.place(&tls.certs),
                    };
                    connections.spawn(serve(connection, shutdown.clone()));
                }
                Err(error) => {
                    // Out of file descriptors, most likely: that passes, and must not become a busy loop.
                    tracing::warn!(%error, "Failed to accept a connection");
                    sleep(std::time::Duration::from_millis(100)).await;
                }
            },
        }
    }
}

fn listen(options: &ServeOptions) -> Result<TcpListener, ServeError> {
    let at = |address: SocketAddr| -> std::io::Result<TcpListener> {
        let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
        socket.set_reuseaddr(true)?;
        if options.permit_port_sharing {
            socket.set_reuseport(true)?;
        }
        // Inherited by every connection: a peer that is gone is noticed.
        socket.set_keepalive(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    let address = options.address;
    let listening = if address.ip().is_unspecified() {
        // As Go does: all addresses of both families, and of IPv4 alone where there is no IPv6.
        let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        at(both).or_else(|error| if address.is_ipv4() { at(address) } else { Err(error) })
    } else {
        at(address)
    };
    listening.map_err(|source| ServeError::Listen { address, source })
}

type LoadedCert = (&'static str, usize, CertFiles, Content);

/// The serving certificates.
struct LoadedCerts {
    certs: Arc<CertStore>,
    /// Those that are in files.
    files: Vec<LoadedCert>,
    /// The authority of the default one, if it is self-signed.
    authority: latest::Receiver<Option<String>>,
    /// Replaces the default one, if no flag names it.
    renewal: Option<Renewal>,
    /// Replaces the one that the cluster's CA signs, if there is one.
    signed: Option<SignedRenewal>,
}

const CERT_FLAG: &str = "--tls-cert-file";
const SNI_FLAG: &str = "--tls-sni-cert-key";
const CLIENT_CA_FLAG: &str = "--client-ca-file";
const REQUEST_HEADER_CA_FLAG: &str = "--requestheader-client-ca-file";

/// Reads the serving certificates, or makes one.
async fn load_certs(
    options: &ServeOptions,
    deps: &ServeDeps,
    provider: &Arc<CryptoProvider>,
) -> Result<LoadedCerts, ServeError> {
    let mut files = Vec::new();
    let mut renewal = None;
    let renewed = |files, chain: &[u8]| Renewal::new(options.clone(), Arc::clone(&deps.clock), files, chain);
    let default = match tls::prepare(options, deps.clock.now())? {
        SelfSigned::Memory { cert, key } => {
            renewal = Some(renewed(None, cert.as_bytes()));
            tls::certified_key(cert.as_bytes(), key.as_bytes(), provider).map_err(ServeError::SelfSigned)?
        }
        SelfSigned::Files(pair) => {
            let content = Content::read_pair(CERT_FLAG, &pair.cert, &pair.key).await?;
            let key = content.certified_key(CERT_FLAG, &pair.cert, provider)?;
            if options.tls.cert_and_key.is_none() {
                renewal = Some(renewed(Some(pair.clone()), content.first()));
            }
            files.push((CERT_FLAG, 0, pair, content));
            key
        }
    };
    let is_in_memory = files.is_empty();
    let mut others = Vec::new();
    for (index, sni) in options.tls.sni.iter().enumerate() {
        let pair = CertFiles { cert: sni.cert_file.clone(), key: sni.key_file.clone() };
        let content = Content::read_pair(SNI_FLAG, &pair.cert, &pair.key).await?;
        others.push((sni.names.clone(), content.certified_key(SNI_FLAG, &pair.cert, provider)?));
        files.push((SNI_FLAG, index + 1, pair, content));
    }
    let certs = Arc::new(CertStore::new(default, others));
    if let Some(renewal) = &renewal
        && let Err(error) = renewal.turn(&certs, provider).await
    {
        tracing::error!(%error, "Failed to create a new serving certificate; keeping the previous one");
    }
    let authority =
        renewal.as_ref().map_or_else(|| latest::Sender::new(None).subscribe(), Renewal::authority);
    let signer = deps.signer.as_ref().filter(|_| is_in_memory);
    let signed = signer.map(|signer| SignedRenewal::new(Arc::clone(signer), Arc::clone(&deps.clock)));
    if let Some(signed) = &signed {
        signed.turn(&certs, provider).await;
    }
    Ok(LoadedCerts { certs, files, authority, renewal, signed })
}

/// Whose certificates are trusted, and where that is read from.
struct Trust {
    client_ca: Option<Arc<TrustStore>>,
    request_header: Option<Arc<RequestHeader>>,
    cluster: Option<ClusterTrust>,
    files: Vec<(&'static str, PathBuf, Arc<TrustStore>, Content)>,
}

impl Trust {
    /// Flags first; the cluster is asked for what no flag names, unless that is skipped.
    async fn load(options: &ServeOptions, deps: &ServeDeps) -> Result<Self, ServeError> {
        let authentication = &options.authentication;
        let store = || Arc::new(TrustStore::new(Arc::clone(&deps.clock)));
        let mut trust = Self { client_ca: None, request_header: None, cluster: None, files: Vec::new() };
        if let Some(path) = &authentication.client_ca_file {
            trust.client_ca = Some(trust.load_file(CLIENT_CA_FLAG, path, store()).await?);
        }
        let rules = &authentication.request_header;
        if let Some(path) = &rules.ca_file {
            let store = trust.load_file(REQUEST_HEADER_CA_FLAG, path, store()).await?;
            let rules = HeaderRules::from_options(rules)
                .map_err(|reason| ServeError::Nothing(format!("--requestheader-*-headers: {reason}")))?;
            let rules = ArcSwap::from_pointee(rules);
            trust.request_header = Some(Arc::new(RequestHeader { trust: store, rules }));
        }
        let complete = trust.client_ca.is_some() && trust.request_header.is_some();
        if complete || authentication.skip_lookup {
            return Ok(trust);
        }
        let Some(reviews) = &deps.authentication else {
            tracing::warn!(
                client_certificates = trust.client_ca.is_some(),
                request_headers = trust.request_header.is_some(),
                "No client for the cluster's authentication configuration (--authentication-kubeconfig); using only \
                 the CAs set by flags; requests with bearer tokens are anonymous"
            );
            return Ok(trust);
        };
        let mut cluster = ClusterTrust {
            reviews: Arc::clone(reviews),
            client_ca: None,
            request_header: None,
            seen: Mutex::new(None),
        };
        if trust.client_ca.is_none() {
            cluster.client_ca = Some(store());
            trust.client_ca.clone_from(&cluster.client_ca);
        }
        if trust.request_header.is_none() {
            let method = RequestHeader { trust: store(), rules: ArcSwap::default() };
            cluster.request_header = Some(Arc::new(method));
            trust.request_header.clone_from(&cluster.request_header);
        }
        match cluster.refresh().await {
            Ok(_) => {}
            Err(error) if authentication.tolerate_lookup_failure => tracing::warn!(
                %error,
                "Failed to read the cluster's authentication configuration; continuing without it \
                 (--authentication-tolerate-lookup-failure), so requests may be anonymous"
            ),
            Err(error) => return Err(ServeError::Lookup(error.to_string())),
        }
        trust.cluster = Some(cluster);
        Ok(trust)
    }

    async fn load_file(
        &mut self,
        what: &'static str,
        path: &std::path::Path,
        store: Arc<TrustStore>,
    ) -> Result<Arc<TrustStore>, ServeError> {
        let content = Content::read(what, path).await?;
        content.authorities(what, path, &store)?;
        self.files.push((what, path.to_owned(), Arc::clone(&store), content));
        Ok(store)
    }
}

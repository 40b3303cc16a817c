//! Certificates, a fake API server, a running port, and a client for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::client::{ApiError, tls_config};
use crate::model::clock::SystemClock;
use crate::serve::*;
use crate::telemetry::Profiler;
use crate::telemetry::Registry;
use crate::tls::provider;
use crate::x509::fixtures::{Draft, public_key, to_pem};

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) cert: String,
    pub(super) key: String,
}

/// An authority.
pub(super) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        Pair { cert: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }

    /// Signs a draft.
    pub(super) fn issue(&self, draft: &Draft) -> Vec<u8> {
        draft.issued_by(self.0.der(), self.0.key())
    }

    /// Signs a client certificate whose subject has this content.
    pub(super) fn client_of(&self, subject: &[u8]) -> Pair {
        self.client_by(|key| Draft::new(public_key(key), subject.to_vec()))
    }

    /// Signs a client certificate by a draft of it.
    pub(super) fn client_by(&self, draft: impl Fn(&KeyPair) -> Draft) -> Pair {
        let key = KeyPair::generate().unwrap();
        let der = self.issue(&draft(&key));
        Pair { cert: to_pem(&der), key: key.serialize_pem() }
    }

    pub(super) fn client(&self, name: &str, groups: &[&str]) -> Pair {
        self.sign(&client_params(name, groups))
    }

    pub(super) fn server(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }
}

pub(super) fn client_params(name: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    // One value per type is all that a name made by rcgen holds: the second organization goes by its number.
    let kinds = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    assert!(groups.len() <= kinds.len());
    for (&group, kind) in groups.iter().zip(kinds) {
        params.distinguished_name.push(kind, group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// An API server that knows some tokens and allows some users some paths.
#[derive(Default)]
pub(super) struct FakeReviews {
    pub(super) tokens: Mutex<BTreeMap<String, UserInfo>>,
    pub(super) allowed: Mutex<Vec<(String, String)>>,
    pub(super) config: Mutex<Option<BTreeMap<String, String>>>,
    pub(super) broken: Mutex<bool>,
    pub(super) token_reviews: AtomicUsize,
    pub(super) access_reviews: AtomicUsize,
    pub(super) asked: Mutex<Vec<(UserInfo, Attributes)>>,
    /// When set, each review waits for a permit.
    pub(super) gate: Mutex<Option<Arc<Semaphore>>>,
}

impl FakeReviews {
    pub(super) fn knows(self, token: &str, name: &str) -> Self {
        let user = UserInfo { name: name.to_owned(), uid: "u-1".to_owned(), ..UserInfo::default() };
        self.tokens.lock().insert(token.to_owned(), user);
        self
    }

    pub(super) fn allows(self, name: &str, path: &str) -> Self {
        self.allowed.lock().push((name.to_owned(), path.to_owned()));
        self
    }

    pub(super) fn break_down(&self, broken: bool) {
        *self.broken.lock() = broken;
    }

    pub(super) fn token_count(&self) -> usize {
        self.token_reviews.load(Ordering::SeqCst)
    }

    pub(super) fn access_count(&self) -> usize {
        self.access_reviews.load(Ordering::SeqCst)
    }

    async fn pass(&self) -> Result<(), ApiError> {
        let gate = self.gate.lock().clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        if *self.broken.lock() {
            return Err(ApiError::Malformed {
                request: "POST /fake".to_owned(),
                what: "out of order".to_owned(),
            });
        }
        Ok(())
    }
}

impl Reviews for FakeReviews {
    fn token_review<'a>(
        &'a self,
        token: &'a SecretString,
    ) -> BoxFuture<'a, Result<Option<UserInfo>, ApiError>> {
        async move {
            self.token_reviews.fetch_add(1, Ordering::SeqCst);
            self.pass().await?;
            Ok(self.tokens.lock().get(token.expose_secret()).cloned())
        }
        .boxed()
    }

    fn subject_access_review<'a>(
        &'a self,
        user: &'a UserInfo,
        attributes: &'a Attributes,
    ) -> BoxFuture<'a, Result<Access, ApiError>> {
        async move {
            self.access_reviews.fetch_add(1, Ordering::SeqCst);
            self.pass().await?;
            self.asked.lock().push((user.clone(), attributes.clone()));
            let target = match attributes {
                Attributes::Path { path, .. } => path.clone(),
                Attributes::Resource(resource) => resource.resource.clone(),
            };
            let allowed = self.allowed.lock().contains(&(user.name.clone(), target));
            Ok(Access { allowed, ..Access::default() })
        }
        .boxed()
    }

    fn authentication_config(&self) -> BoxFuture<'_, Result<Option<BTreeMap<String, String>>, ApiError>> {
        async move {
            self.pass().await?;
            Ok(self.config.lock().clone())
        }
        .boxed()
    }
}

/// The pages of a manager with nothing in it.
pub(super) fn pages(health: &Arc<HealthRegistry>) -> Pages {
    Pages {
        health: Arc::clone(health),
        metrics: Registry::new(),
        slis: Registry::new(),
        config: Arc::new(|| serde_json::json!({"kubecontrollermanager.config.k8s.io": {"kind": "Test"}})),
        flags: Some(Arc::new(|| {
            vec![("v".to_owned(), "2".to_owned()), ("bind-address".to_owned(), "::".to_owned())]
        })),
        status: Some(StatusPage {
            binary_version: "0.1.0".to_owned(),
            compatible_version: "1.36.3".to_owned(),
            emulation_version: "1.36".to_owned(),
        }),
        debugging: Some(Debugging {
            profiler: Profiler::default(),
            set_verbosity: Arc::new(|level| if level > 9 { Err("too much".to_owned()) } else { Ok(()) }),
        }),
        started: "2026-01-01T00:00:00Z".parse().unwrap(),
        observer: Arc::new(Unobserved),
        clock: Arc::new(SystemClock),
    }
}

/// A port to be, on a directory of its own.
pub(super) struct Setup {
    pub(super) dir: tempfile::TempDir,
    pub(super) server_ca: Ca,
    pub(super) client_ca: Ca,
    pub(super) options: ServeOptions,
    pub(super) reviews: Arc<FakeReviews>,
    pub(super) delegates: bool,
    pub(super) health: Arc<HealthRegistry>,
    pub(super) router: Arc<Router>,
}

impl Setup {
    /// With a serving certificate for `localhost`, a client CA, no front proxy, and an API server.
    pub(super) fn new(reviews: FakeReviews) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (server_ca, client_ca) = (Ca::new("server-ca"), Ca::new("client-ca"));
        let mut options = ServeOptions { address: "127.0.0.1:0".parse().unwrap(), ..ServeOptions::default() };
        options.authentication.skip_lookup = true;
        options.limits.parting = Duration::from_millis(50);
        let health = Arc::new(HealthRegistry::new());
        let router = Arc::new(Router::new());
        pages(&health).install(&router);
        let mut setup = Self {
            dir,
            server_ca,
            client_ca,
            options,
            reviews: Arc::new(reviews),
            delegates: true,
            health,
            router,
        };
        let serving = setup.server_ca.server(&["localhost"]);
        setup.options.tls.cert_and_key = Some(setup.write_pair("serving", &serving));
        setup.options.authentication.client_ca_file =
            Some(setup.write("client-ca.crt", &setup.client_ca.pem()));
        setup
    }

    pub(super) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(super) fn write_pair(&self, name: &str, pair: &Pair) -> (PathBuf, PathBuf) {
        (self.write(&format!("{name}.crt"), &pair.cert), self.write(&format!("{name}.key"), &pair.key))
    }

    pub(super) fn deps(&self) -> ServeDeps {
        let reviews = || self.delegates.then(|| Arc::clone(&self.reviews) as Arc<dyn Reviews>);
        ServeDeps {
            clock: Arc::new(SystemClock),
            router: Arc::clone(&self.router),
            authentication: reviews(),
            authorization: reviews(),
            signer: None,
            observer: Arc::new(Unobserved),
        }
    }

    pub(super) async fn bind(&self) -> Result<SecureServer, ServeError> {
        SecureServer::bind(self.options.clone(), self.deps()).await
    }

    pub(super) async fn start(&self) -> Running {
        self.run(self.bind().await.unwrap())
    }

    /// Runs a server of this setup.
    pub(super) fn run(&self, server: SecureServer) -> Running {
        let (address, authorizer) = (server.local_addr(), server.authorizer());
        let reload = server.reload();
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(shutdown.clone()));
        let trust = self.server_ca.pem();
        Running { address, shutdown, tasks, trust, authorizer, reload: Box::new(reload) }
    }
}

type Reload = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A port that serves until it is dropped.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) shutdown: CancellationToken,
    pub(super) tasks: JoinSet<()>,
    pub(super) trust: String,
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) reload: Reload,
}

impl Running {
    pub(super) fn client(&self) -> Client {
        Client {
            address: self.address,
            trust: self.trust.clone(),
            cert: None,
            is_malformed: false,
            h1: false,
            name: "localhost",
        }
    }

    /// One anonymous GET on a connection of its own.
    pub(super) async fn get(&self, path: &str) -> Reply {
        self.client().get(path).await
    }
}

/// How to connect.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) trust: String,
    pub(super) cert: Option<Pair>,
    /// Presents the certificate although our client refuses it.
    pub(super) is_malformed: bool,
    pub(super) h1: bool,
    pub(super) name: &'static str,
}

impl Client {
    pub(super) fn with_cert(mut self, pair: &Pair) -> Self {
        self.cert = Some(pair.clone());
        self
    }

    pub(super) fn with_malformed_cert(self, pair: &Pair) -> Self {
        Self { is_malformed: true, ..self.with_cert(pair) }
    }

    pub(super) fn with_h1(mut self) -> Self {
        self.h1 = true;
        self
    }

    pub(super) async fn tls(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let trust = CertificateDer::pem_slice_iter(self.trust.as_bytes());
        let mut cluster = kube::Config::new("https://localhost".parse().unwrap());
        cluster.root_cert = Some(trust.map(|cert| cert.unwrap().to_vec()).collect());
        if let Some(pair) = self.cert.as_ref().filter(|_| !self.is_malformed) {
            cluster.auth_info.client_certificate_data = Some(BASE64_STANDARD.encode(&pair.cert));
            cluster.auth_info.client_key_data = Some(BASE64_STANDARD.encode(&pair.key).into());
        }
        let mut config = tls_config(&cluster).unwrap();
        if let Some(pair) = self.cert.as_ref().filter(|_| self.is_malformed) {
            let chain =
                CertificateDer::pem_slice_iter(pair.cert.as_bytes()).collect::<Result<_, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            let key = provider().key_provider.load_private_key(key).unwrap();
            config.client_auth_cert_resolver =
                Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)));
        }
        config.alpn_protocols = vec![if self.h1 { b"http/1.1".to_vec() } else { b"h2".to_vec() }];
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(self.name).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    pub(super) async fn connect(&self) -> Session {
        let io = TokioIo::new(self.tls().await.unwrap());
        let mut tasks = JoinSet::new();
        let sender = if self.h1 {
            let (sender, conn) = http1::handshake(io).await.unwrap();
            tasks.spawn(async move { drop(conn.await) });
            Sender::H1(sender)
        } else {
            let (sender, conn) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tasks.spawn(async move { drop(conn.await) });
            Sender::H2(sender)
        };
        Session { sender, tasks }
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.connect().await.get(path).await.unwrap()
    }

    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        self.connect().await.send(request).await.unwrap()
    }

    /// A GET with a bearer token.
    pub(super) async fn get_as(&self, token: &str, path: &str) -> Reply {
        self.send(request(Method::GET, path, &[("authorization", &format!("Bearer {token}"))])).await
    }
}

pub(super) enum Sender {
    H1(http1::SendRequest<Full<Bytes>>),
    H2(http2::SendRequest<Full<Bytes>>),
}

/// A connection.
pub(super) struct Session {
    sender: Sender,
    pub(super) tasks: JoinSet<()>,
}

impl Session {
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Reply, hyper::Error> {
        let response = match &mut self.sender {
            Sender::H1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::H2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Ok(Reply { status: parts.status, headers: parts.headers, body })
    }

    pub(super) async fn get(&mut self, path: &str) -> Result<Reply, hyper::Error> {
        self.send(request(Method::GET, path, &[])).await
    }
}

pub(super) fn request(method: Method, path: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let uri = format!("https://localhost{path}");
    let mut request = Request::builder().method(method).uri(uri).header("host", "localhost");
    for &(name, value) in headers {
        request = request.header(name, value);
    }
    request.body(Full::default()).unwrap()
}

/// What came back.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

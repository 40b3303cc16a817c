//! A replica on a free port of loopback: TLS, the real services over a fake manager, and beside them as much of an API
//! server as tells who the replicas are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::admin::events::EventLog;
use crate::admin::testing::Judge;
use crate::admin::testing::fake::{Fake, ME, OTHER, at};
use crate::admin::{AdminDeps, AdminOptions, service};
use crate::cli::environment::Environment;
use crate::cli::error::Exit;
use crate::cli::output::Screen;
use crate::cli::tests::pod_network::PodNetwork;
use coxswain_machinery::serve::{AUTHENTICATED, UserInfo};

/// The token of one who may do everything.
pub(super) const TOKEN: &str = "jane-s3cret";

/// What the requests of all replicas share and leave behind.
#[derive(Default)]
struct Shared {
    leases: Mutex<Vec<Value>>,
    main: Mutex<Option<Value>>,
    /// Where the main Lease is.
    main_path: Mutex<String>,
    seen: Mutex<Vec<(String, Option<String>)>>,
    /// The token in the place of [`TOKEN`].
    accepted: Mutex<Option<&'static str>>,
    /// Pods and their ports.
    cluster: PodNetwork,
    /// Pages of the replica's port.
    pages: Mutex<BTreeMap<&'static str, String>>,
}

/// A replica that runs.
pub(super) struct Replica {
    pub(super) address: String,
    pub(super) authority: String,
    pub(super) manager: Arc<Fake>,
    pub(super) events: Arc<EventLog>,
    /// Client certificate and key of one who may do everything.
    pub(super) client: (String, String),
    pub(super) dir: TempDir,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) exit: Exit,
    pub(super) out: String,
    pub(super) err: String,
}

/// Names in the certificate of a replica, and in that of a node.
const REPLICA_NAMES: &[&str] = &["127.0.0.1", "admin.test", "coxswain.kube-system.svc"];
const NODE_NAMES: &[&str] = &["127.0.0.1", "node-1"];

/// The certificate of a server: its names, and organization and common name of its subject.
type Certified<'a> = (&'a [&'a str], &'a [(DnType, &'a str)]);

fn server_tls(
    authority: &CertifiedIssuer<'static, KeyPair>,
    (names, subject): Certified<'_>,
) -> rustls::ServerConfig {
    drop(rustls::crypto::ring::default_provider().install_default());
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), *value);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let clients = rustls::server::WebPkiClientVerifier::builder(Arc::new(roots))
        .allow_unauthenticated()
        .build()
        .unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let mut tls = rustls::ServerConfig::builder()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    tls
}

impl Replica {
    pub(super) async fn start() -> Self {
        Self::with_log("log-1").await
    }

    /// One whose log of events has this name.
    pub(super) async fn with_log(log: &str) -> Self {
        Self::with(log, (REPLICA_NAMES, &[])).await
    }

    /// A server with the certificate of a node, by the authority of its own cluster.
    pub(super) async fn on_a_node() -> Self {
        Self::with("log-1", (NODE_NAMES, &[])).await
    }

    /// A server whose certificate, by the authority of its own cluster, is for Coxswain and has this subject.
    pub(super) async fn with_subject(subject: &[(DnType, &str)]) -> Self {
        Self::with("log-1", (REPLICA_NAMES, subject)).await
    }

    async fn with(log: &str, certified: Certified<'_>) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let tls = tokio_rustls::TlsAcceptor::from(Arc::new(server_tls(&authority, certified)));
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "jane");
        let key = KeyPair::generate().unwrap();
        let client = (params.signed_by(&key, &authority).unwrap().pem(), key.serialize_pem());

        let manager = Arc::new(Fake::new());
        let events = Arc::new(EventLog::new(log, 64, manager.clock()));
        let stop = CancellationToken::new();
        let deps = AdminDeps {
            manager: Arc::clone(&manager) as _,
            authorizer: Arc::new(Judge::default()),
            events: Arc::clone(&events),
            shutdown: stop.clone(),
            metrics: crate::admin::AdminMetrics::register(&coxswain_machinery::telemetry::Registry::new())
                .unwrap(),
            mutations: tokio_util::task::TaskTracker::new(),
        };
        let services = service(deps, &AdminOptions::default()).unwrap();
        let usual = main_path("kube-system", "kube-controller-manager");
        let shared = Arc::new(Shared { main_path: Mutex::new(usual), ..Shared::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut tasks = JoinSet::new();
        let (log, seen) = (Arc::clone(&events), Arc::clone(&shared));
        tasks.spawn(async move { log.run().await });
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, services, shared) = (tls.clone(), services.clone(), Arc::clone(&seen));
                serving.spawn(async move {
                    // A client that does not trust us hangs up, which the test sees from the other side.
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let certified = stream.get_ref().1.peer_certificates().is_some();
                    let answer = move |request: Request<Incoming>| {
                        let (services, shared) = (services.clone(), Arc::clone(&shared));
                        async move { Ok::<_, hyper::Error>(answer(request, certified, &shared, services).await) }
                    };
                    let service = hyper::service::service_fn(answer);
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
                });
            }
        });
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), authority.pem()).unwrap();
        std::fs::write(dir.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let authority = authority.pem();
        let replica = Self { address, authority, manager, events, client, dir, shared, _tasks: tasks };
        replica.announce(&[lease(ME, &replica.address, 0, None)], Some(ME));
        replica
    }

    /// What the API server knows.
    pub(super) fn announce(&self, leases: &[Value], holder: Option<&str>) {
        *self.shared.leases.lock() = leases.to_vec();
        *self.shared.main.lock() = holder.map(|holder| lease(holder, "", 0, None));
    }

    /// Accepts this token and no other from now on.
    pub(super) fn accept(&self, token: &'static str) {
        *self.shared.accepted.lock() = Some(token);
    }

    /// Serves a page from now on.
    pub(super) fn serve_page(&self, path: &'static str, text: &str) {
        self.shared.pages.lock().insert(path, text.to_owned());
    }

    /// Gives the main Lease another name.
    pub(super) fn rename_main(&self, namespace: &str, name: &str) {
        *self.shared.main_path.lock() = main_path(namespace, name);
    }

    /// The pods that the API server knows, and connections to their ports.
    pub(super) fn cluster(&self) -> &PodNetwork {
        &self.shared.cluster
    }

    /// Paths of requests, with the token that each carried.
    pub(super) fn seen(&self) -> Vec<(String, Option<String>)> {
        std::mem::take(&mut self.shared.seen.lock())
    }

    /// A kubeconfig for this as the API server.
    pub(super) fn kubeconfig(&self, authority: &str, user: &Value) -> PathBuf {
        use base64::Engine as _;
        let authority = base64::engine::general_purpose::STANDARD.encode(authority);
        let server = format!("https://{}", self.address);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{ "name": "c", "cluster": { "server": server, "certificate-authority-data": authority } }],
            "users": [{ "name": "u", "user": user }, { "name": "nobody", "user": {} }],
            "contexts": [
                { "name": "here", "context": { "cluster": "c", "user": "u" } },
                { "name": "anonymous", "context": { "cluster": "c", "user": "nobody" } },
            ],
        });
        let path = self.dir.path().join("kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_string_lossy().into_owned()
    }

    /// Runs a command in these surroundings.
    pub(super) async fn run_in(&self, variables: &[(&'static str, &str)], line: &[&str]) -> Ran {
        run(Environment::new(self.manager.clock(), variables), line).await
    }

    /// Runs a command with a kubeconfig that leads here.
    pub(super) async fn run(&self, line: &[&str]) -> Ran {
        let kubeconfig = self.kubeconfig(&self.authority, &json!({ "token": TOKEN }));
        self.run_in(&[("KUBECONFIG", kubeconfig.to_str().unwrap())], line).await
    }
}

pub(super) async fn run(environment: Environment, line: &[&str]) -> Ran {
    let (out, err) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let line: Vec<_> = line.iter().map(std::ffi::OsString::from).collect();
    let screen = Screen::new(Arc::clone(&out) as _, Arc::clone(&err) as _);
    let exit = crate::cli::execute(crate::cli::Called::Directly, &line, environment, screen).await;
    let text = |bytes: &Mutex<Vec<u8>>| String::from_utf8(bytes.lock().clone()).unwrap();
    Ran { exit, out: text(&out), err: text(&err) }
}

/// A replica's Lease, or, without an address, the one that is fought for.
pub(super) fn lease(identity: &str, address: &str, renewed: i64, authority: Option<&str>) -> Value {
    let mut annotations = json!({});
    if !address.is_empty() {
        annotations["coxswain.dev/admin-address"] = json!(address);
    }
    if let Some(authority) = authority {
        annotations["coxswain.dev/admin-ca"] = json!(authority);
    }
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": identity, "namespace": "kube-system", "annotations": annotations },
        "spec": {
            "holderIdentity": identity, "leaseDurationSeconds": 15,
            "renewTime": at(renewed).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        },
    })
}

/// The other replica, which is not there.
pub(super) fn other(renewed: i64) -> Value {
    // Nothing listens on this port: it is for services that answer nobody.
    lease(OTHER, "127.0.0.1:9", renewed, None)
}

async fn answer<S>(
    mut request: Request<Incoming>,
    certified: bool,
    shared: &Shared,
    services: S,
) -> Response<tonic::body::Body>
where
    S: tower::Service<
            Request<tonic::body::Body>,
            Response = Response<tonic::body::Body>,
            Error = std::convert::Infallible,
            Future: Send,
        > + Send,
{
    let token = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    shared.seen.lock().push((request.uri().path().to_owned(), token.clone()));
    let accepted = shared.accepted.lock().unwrap_or(TOKEN);
    let known = certified || token == Some(format!("Bearer {accepted}"));
    let path = request.uri().path().to_owned();
    if known && path.starts_with("/api/v1/namespaces/kube-system/pods") {
        return shared.cluster.answer(request);
    }
    if let Some(page) = shared.pages.lock().get(path.as_str()).filter(|_| known) {
        return Response::new(tonic::body::Body::new(http_body_util::Full::new(bytes::Bytes::from(
            page.clone(),
        ))));
    }
    if path.starts_with("/apis/") {
        let anonymous = token.is_none();
        return api_server(&path, request.uri().query().unwrap_or_default(), (known, anonymous), shared);
    }
    let user = if known {
        UserInfo { name: "jane".into(), groups: vec![AUTHENTICATED.to_owned()], ..UserInfo::default() }
    } else {
        UserInfo::anonymous()
    };
    request.extensions_mut().insert(Arc::new(user));
    services.oneshot(request.map(tonic::body::Body::new)).await.unwrap()
}

fn main_path(namespace: &str, name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
}

fn api_server(
    path: &str,
    query: &str,
    (known, anonymous): (bool, bool),
    shared: &Shared,
) -> Response<tonic::body::Body> {
    let refusal = |code: u16, reason: &str| {
        (
            code,
            json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason }),
        )
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let main = shared.main_path.lock().clone();
    let (code, body) = match path.strip_prefix(leases) {
        _ if !known && !anonymous => refusal(401, "Unauthorized"),
        _ if !known => refusal(403, "Forbidden"),
        Some("") if query == "labelSelector=coxswain.dev%2Fcomponent%3Dreplica" => {
            (200, json!({ "kind": "LeaseList", "items": *shared.leases.lock() }))
        }
        _ if path == main => match shared.main.lock().clone() {
            Some(lease) => (200, lease),
            None => refusal(404, "NotFound"),
        },
        _ => refusal(404, "NotFound"),
    };
    let body = http_body_util::Full::new(bytes::Bytes::from(body.to_string()));
    let mut response = Response::new(tonic::body::Body::new(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

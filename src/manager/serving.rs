//! The secure port as the flags ask for it: its options, its pages, and whom it asks about callers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::complete::Completed;
use super::error::ManagerError;
use super::facade::Facade;
use super::replicas::{Announcement, Replicas, advertised_host};
use crate::admin::{AdminDeps, AdminMetrics, AdminOptions, admin_handler};
use coxswain_machinery::client::{ApiClient, ClientBuilder, ClientOptions, Connection};
use coxswain_machinery::environment::{Aside, Threads, hostname};
use coxswain_machinery::options::logging::SetVerbosity;
use coxswain_machinery::options::versions::COXSWAIN;
use coxswain_machinery::options::{Config, Flag, TABLE};
use coxswain_machinery::serve::{
    ApiReviews, AuthenticationOptions, AuthorizationOptions, Debugging, Limits, Pages, Probe,
    RequestHeaderOptions, RequestOutcome, ReviewKind, Reviews, Router, SecureServer, ServeDeps,
    ServeObserver, ServeOptions, SniCertKey, StatusPage, TlsOptions,
};
use coxswain_machinery::telemetry::{
    AllocatorMetrics, BuildInfo, CheckStatus, FeatureMetric, FeatureStates, MetricsError, ProcessMetrics,
    Profiler, Registry, RuntimeMetrics, ServeMetrics, SliMetrics, VersionInfo,
};
use coxswain_machinery::{files, latest};

/// Metrics of what is served, and of the threads that serve.
pub(super) struct PortMetrics {
    pub(super) requests: ServeMetrics,
    pub(super) admin: AdminMetrics,
    pub(super) runtimes: RuntimeMetrics,
}

/// Registers these and, once and for all, what this process is. To be called within the manager's runtime.
pub(super) fn register(registry: &Registry, config: &Config) -> Result<PortMetrics, MetricsError> {
    register_identity(registry, config)?;
    let runtimes = RuntimeMetrics::register(registry)?;
    runtimes.watch("manager", Handle::current());
    Ok(PortMetrics {
        requests: ServeMetrics::register(registry)?,
        admin: AdminMetrics::register(registry)?,
        runtimes,
    })
}

fn register_identity(registry: &Registry, config: &Config) -> Result<(), MetricsError> {
    ProcessMetrics::register(registry)?;
    AllocatorMetrics::register(registry)?;
    let version = config.kubernetes_version.as_str();
    let mut parts = version.trim_start_matches('v').split('.');
    // Go's names, by which dashboards know platforms.
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    BuildInfo {
        major: parts.next().unwrap_or_default().to_owned(),
        minor: parts.next().unwrap_or_default().to_owned(),
        git_version: version.to_owned(),
        compiler: "rustc".to_owned(),
        platform: format!("{}/{arch}", std::env::consts::OS),
        ..BuildInfo::default()
    }
    .register(registry)?;
    VersionInfo {
        binary: COXSWAIN.to_owned(),
        component: "kube".to_owned(),
        emulation: config.versions.emulated.to_string(),
        min_compat: config.versions.min_compatibility.to_string(),
    }
    .register(registry)?;
    let states = FeatureStates::register(registry)?;
    for gate in config.gates.iter() {
        states.set(FeatureMetric { name: gate.name, stage: gate.stage.label(), enabled: gate.enabled });
    }
    Ok(())
}

/// As the threads are called.
const THREADS: &str = "coxswain-serve";
/// Machines with fewer cores get one thread for ports, the others two.
const MANY_CORES: usize = 8;

/// Where ports are served: threads of their own, so that no number of callers takes the controllers' away, and so that
/// what each costs can be told apart (`/proc/PID/task/*/comm`).
pub(super) fn threads(threads: Threads) -> Result<Aside, ManagerError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    threads.some(THREADS, if cores < MANY_CORES { 1 } else { 2 }).map_err(ManagerError::Threads)
}

/// The ports, and what replicas and clients are told of them.
pub(super) struct Bound {
    pub(super) servers: Vec<SecureServer>,
    pub(super) announcement: Announcement,
    /// The authority that is announced.
    pub(super) authority: Option<latest::Receiver<Option<String>>>,
}

impl Bound {
    /// Announces the authority again whenever the certificate of the admin API's port is made again. Returns when it never is.
    pub(super) fn keep_announced(&self, replicas: Arc<Replicas>) -> impl Future<Output = ()> + Send + use<> {
        let (authority, announcement) = (self.authority.clone(), self.announcement.clone());
        async move {
            let Some(mut authority) = authority else { return };
            while authority.changed().await.is_ok() {
                let admin_ca = authority.borrow_and_update().clone();
                replicas.announce(Announcement { admin_ca, ..announcement.clone() });
            }
        }
    }
}

/// Binds the secure port, with the admin API on it unless that has a port of its own, and that port; nothing with
/// `--secure-port=0` and no `--admin-port`.
pub(super) async fn bind(
    manager: &Arc<Completed>,
    shutdown: &CancellationToken,
    set_verbosity: SetVerbosity,
) -> Result<Bound, ManagerError> {
    let config = &manager.runtime.config;
    let mut servers = Vec::new();
    if config.secure_port().is_none() && config.admin_port().is_none() {
        tracing::info!("No port is served, because --secure-port is 0 and --admin-port is unset");
        return Ok(Bound { servers, announcement: Announcement::default(), authority: None });
    }
    let flags = &config.flags;
    let observer: Arc<dyn ServeObserver> = Arc::new(Observer {
        slis: Arc::clone(&manager.slis),
        requests: manager.port_metrics.requests.clone(),
    });
    let deps = ServeDeps {
        clock: Arc::clone(&manager.runtime.clock),
        router: Arc::clone(&manager.router),
        authentication: reviews(
            manager,
            "authentication-kubeconfig",
            &flags.authentication_kubeconfig,
            "delegated-authentication",
            &observer,
        )
        .await?,
        authorization: reviews(
            manager,
            "authorization-kubeconfig",
            &flags.authorization_kubeconfig,
            "delegated-authorization",
            &observer,
        )
        .await?,
        signer: manager.authorities.serving_signer(flags),
        observer: Arc::clone(&observer),
    };
    let host = |bound| advertised_host(bound, manager.runtime.clients.connection().server());
    let (mut secure, mut own) = (None, None);
    if let Some(port) = config.secure_port() {
        secure = Some((SocketAddr::new(flags.bind_address, port), host(flags.bind_address).await));
    }
    if let Some(port) = config.admin_port() {
        own = Some((SocketAddr::new(flags.admin_bind_address, port), host(flags.admin_bind_address).await));
    }
    // Both ports find the certificate in --cert-dir that the first of them makes: it names the addresses of both.
    let names: Vec<String> = secure.iter().chain(&own).map(|(_, host)| host.clone()).collect();
    let mut advertised = String::new();
    if let Some((address, host)) = secure {
        pages(manager, &observer, set_verbosity).install(&manager.router);
        advertised = host;
        servers.push(SecureServer::bind(options(config, address, &names), deps.clone()).await?);
    }
    let mut admin = Arc::clone(&manager.router);
    if let Some((address, host)) = own {
        admin = Arc::new(Router::new());
        advertised = host;
        let deps = ServeDeps { router: Arc::clone(&admin), ..deps };
        servers.push(SecureServer::bind(options(config, address, &names), deps).await?);
    }
    let (mut announcement, mut authority) = (Announcement::default(), None);
    if let Some(server) = servers.last() {
        mount(manager, server, &admin, shutdown)?;
        announcement = announced(&advertised, server);
        authority = Some(server.self_signed_authority());
    }
    Ok(Bound { servers, announcement, authority })
}

/// Puts the admin API on a port.
fn mount(
    manager: &Arc<Completed>,
    server: &SecureServer,
    router: &Router,
    shutdown: &CancellationToken,
) -> Result<(), ManagerError> {
    let flags = &manager.runtime.config.flags;
    let deps = AdminDeps {
        manager: Arc::new(Facade(Arc::clone(manager))),
        authorizer: server.authorizer(),
        events: Arc::clone(manager.event_logger.log()),
        shutdown: shutdown.clone(),
        metrics: manager.port_metrics.admin.clone(),
        mutations: manager.mutations.clone(),
    };
    let options = AdminOptions {
        anonymous_reflection: flags.admin_anonymous_reflection,
        grpc_web: flags.admin_grpc_web,
        allowed_origins: flags.admin_cors_allowed_origins.clone(),
        ..AdminOptions::default()
    };
    router.mount_grpc(admin_handler(deps, &options)?, flags.admin_grpc_web);
    tracing::info!(address = %server.local_addr(), "Serving the admin API");
    Ok(())
}

/// What replicas and clients are told of the admin API's port.
fn announced(host: &str, server: &SecureServer) -> Announcement {
    let port = server.local_addr().port();
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Announcement {
        admin_address: Some(format!("{host}:{port}")),
        admin_ca: server.self_signed_authority().borrow().clone(),
    }
}

fn pages(manager: &Completed, observer: &Arc<dyn ServeObserver>, set_verbosity: SetVerbosity) -> Pages {
    let runtime = Arc::clone(&manager.runtime);
    let config = &manager.runtime.config;
    let flags = {
        let runtime = Arc::clone(&runtime);
        Arc::new(move || {
            let value = |flag: &Flag| (flag.name(), flag.show(&runtime.config.flags));
            TABLE.iter().map(value).collect()
        }) as Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>
    };
    Pages {
        health: Arc::clone(&manager.health),
        metrics: manager.metrics.clone(),
        slis: manager.slis.registry().clone(),
        config: Arc::new(move || runtime.config.configz()),
        flags: config.gates.enabled("ComponentFlagz").then_some(flags),
        status: config.gates.enabled("ComponentStatusz").then(|| StatusPage {
            binary_version: COXSWAIN.to_owned(),
            compatible_version: config.kubernetes_version.clone(),
            emulation_version: config.versions.emulated.to_string(),
        }),
        debugging: config.flags.profiling.then(|| Debugging { set_verbosity, profiler: Profiler::default() }),
        started: manager.started,
        observer: Arc::clone(observer),
        clock: Arc::clone(&manager.runtime.clock),
    }
}

/// Whom to ask about callers: the kubeconfig that the flag names, or, inside of a cluster, that cluster. Without either
/// nobody is asked, as in the original: then only what flags name is trusted.
async fn reviews(
    manager: &Completed,
    flag: &'static str,
    file: &str,
    name: &str,
    observer: &Arc<dyn ServeObserver>,
) -> Result<Option<Arc<dyn Reviews>>, ManagerError> {
    let client = if !file.is_empty() && file == manager.runtime.config.flags.kubeconfig {
        manager.runtime.clients.ungated(name)
    } else {
        let connection = if !file.is_empty() {
            Connection::from_kubeconfig(flag, &PathBuf::from(file), None).await?
        } else if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            Connection::load(None, None).await?
        } else {
            tracing::warn!(
                "Callers are not checked by the API server (TokenReview or SubjectAccessReview), because --{flag} is unset"
            );
            return Ok(None);
        };
        client_of(manager, connection, name).await?
    };
    Ok(Some(Arc::new(ApiReviews::new(client, Arc::clone(observer)))))
}

async fn client_of(
    manager: &Completed,
    connection: Connection,
    name: &str,
) -> Result<ApiClient, ManagerError> {
    let options = ClientOptions { environment: manager.environment.clone(), ..ClientOptions::default() };
    let builder = ClientBuilder::new(connection, options, manager.client_metrics.clone()).await?;
    Ok(builder.ungated(name))
}

fn options(config: &Config, address: SocketAddr, names: &[String]) -> ServeOptions {
    let flags = &config.flags;
    let ports = u64::from(config.secure_port().is_some()) + u64::from(config.admin_port().is_some());
    let file = |name: &str| (!name.is_empty()).then(|| PathBuf::from(name));
    ServeOptions {
        address,
        permit_address_sharing: flags.permit_address_sharing,
        permit_port_sharing: flags.permit_port_sharing,
        disable_http2: flags.disable_http2_serving,
        http2_max_streams: u32::try_from(flags.http2_max_streams_per_connection).unwrap_or_default(),
        tls: TlsOptions {
            cert_and_key: file(&flags.tls_cert_file).zip(file(&flags.tls_private_key_file)),
            cert_dir: file(&flags.cert_dir),
            self_signed_names: std::iter::once(hostname()).chain(names.iter().cloned()).collect(),
            sni: flags
                .tls_sni_cert_key
                .iter()
                .map(|each| SniCertKey {
                    cert_file: PathBuf::from(&each.cert_file),
                    key_file: PathBuf::from(&each.key_file),
                    names: each.names.clone(),
                })
                .collect(),
            spoken: config.serving_tls.clone(),
        },
        authentication: AuthenticationOptions {
            client_ca_file: file(&flags.client_ca_file),
            request_header: RequestHeaderOptions {
                ca_file: file(&flags.requestheader_client_ca_file),
                allowed_names: flags.requestheader_allowed_names.clone(),
                username_headers: flags.requestheader_username_headers.clone(),
                uid_headers: flags.requestheader_uid_headers.clone(),
                group_headers: flags.requestheader_group_headers.clone(),
                extra_header_prefixes: flags.requestheader_extra_headers_prefix.clone(),
            },
            skip_lookup: flags.authentication_skip_lookup,
            tolerate_lookup_failure: flags.authentication_tolerate_lookup_failure,
            token_cache_ttl: flags.authentication_token_webhook_cache_ttl,
        },
        authorization: AuthorizationOptions {
            always_allow_paths: flags.authorization_always_allow_paths.clone(),
            authorized_ttl: flags.authorization_webhook_cache_authorized_ttl,
            unauthorized_ttl: flags.authorization_webhook_cache_unauthorized_ttl,
        },
        limits: Limits::for_open_files(files::limit(), ports),
        ..ServeOptions::default()
    }
}

/// Puts what happens at the port into metrics.
struct Observer {
    slis: Arc<SliMetrics>,
    requests: ServeMetrics,
}

impl ServeObserver for Observer {
    fn health_checked(&self, name: &str, probe: Probe, status: CheckStatus) {
        self.slis.observe(name, probe.name(), status);
    }

    fn serving_certificate(&self, port: u16, not_after: i64) {
        self.requests.serving_certificate(port, not_after);
    }

    fn client_ca(&self, source: &'static str, not_after: i64) {
        self.requests.client_ca(source, not_after);
    }

    fn health_checks(&self, probe: Probe, names: &[String]) {
        self.slis.retain(probe.name(), names);
    }

    fn reset_slis(&self) {
        self.slis.reset();
    }

    fn authenticated(&self, outcome: RequestOutcome, user: Option<&str>, took: Duration) {
        self.requests.authenticated(outcome.authentication_label(), user, took);
    }

    fn authorized(&self, outcome: RequestOutcome, took: Duration) {
        self.requests.authorized(outcome.authorization_label(), took);
    }

    fn certificate_trusted(&self, valid_for: Duration) {
        self.requests.certificate_trusted(valid_for);
    }

    fn reviewed(&self, what: ReviewKind, status: Option<u16>, took: Duration) {
        match what {
            ReviewKind::Token => self.requests.delegated_authentication.observe(status, took),
            ReviewKind::Access => self.requests.delegated_authorization.observe(status, took),
        }
    }

    fn token_looked_up(&self, is_remembered: bool, took: Duration) {
        self.requests.tokens.looked_up(is_remembered, took);
    }

    fn tokens_wait(&self, more: i64) {
        self.requests.tokens.wait(more);
    }

    fn tokens_fetched(&self, more: i64) {
        self.requests.tokens.in_flight(more);
    }

    fn token_fetched(&self, is_known: bool) {
        self.requests.tokens.fetched(is_known);
    }
}

#[cfg(test)]
mod tests;

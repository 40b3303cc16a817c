//! Completion: from flags to clients, metrics, events, locks and controllers. Nothing is started here, and nothing is
//! written to the cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::clock_offset::ClockOffset;
use super::controller::Controller;
use super::controllers::Controllers;
use super::directories::Directories;
use super::error::ManagerError;
use super::event_logger::EventLogger;
use super::leadership::{self, Leases, Lock};
use super::lease_policy::LeasePolicy;
use super::overrides::{self, Overrides};
use super::replicas::Replicas;
use super::serving::PortMetrics;
use super::signing::Authorities;
use super::step_down::{self, Requests, StepDown};
use super::terms::Work;
use crate::admin::Group;
use crate::admin::overrides::{OverrideStore, inherited};
use coxswain_controllers::identity::serviceaccount_token::TOKEN_SIGNER;
use coxswain_controllers::identity::serviceaccount_token::signer::{PrivateKeySigner, TokenFinisher};
use coxswain_controllers::registry;
use coxswain_controllers::storage::persistentvolume_binder::DIRECTORIES;
use coxswain_machinery::client::{
    ApiClient, ClientBuilder, ClientMetrics, ClientOptions, Connection, Discovery, WriteGate,
    wait_for_api_server,
};
use coxswain_machinery::election::{
    Candidacy, CandidateObject, Contender, Elector, ElectorHealth, LeaseLock, Timing,
};
use coxswain_machinery::environment::{Environment, Threads, hostname};
use coxswain_machinery::events::{EventBroadcaster, EventMetrics, Journal, Recorder};
use coxswain_machinery::executor::Finishers;
use coxswain_machinery::framework::{
    BlockingPool, Descriptor, ExpectationsRegistry, ReconcileMetrics, RoomMetrics, Runtime, Stop, Watchdog,
};
use coxswain_machinery::informer::{Epochs, Informers, InformersConfig};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::clock::SharedClock;
use coxswain_machinery::model::plan::EventSpec;
use coxswain_machinery::options::versions::{COXSWAIN, KUBERNETES};
use coxswain_machinery::options::{Config, Flags, LeaderMigration, MigrationLock, SelectionState};
use coxswain_machinery::queue::QueueMetrics;
use coxswain_machinery::serve::{HealthRegistry, Router};
use coxswain_machinery::telemetry::push::Pushing;
use coxswain_machinery::telemetry::tracing::{Exporting, Process, Tracing, TracingError, set_failed};
use coxswain_machinery::telemetry::{ManagerMetrics, MetricLimits, Registrar, Registry, SliMetrics};
use coxswain_machinery::wire::Str;
use coxswain_machinery::wire::text::lossy_utf8;

/// Everything that the manager runs with.
pub(super) struct Completed {
    pub(super) runtime: Arc<Runtime>,
    pub(super) controllers: Controllers,
    pub(super) main_lock: Option<Lock>,
    pub(super) migration: Option<Migration>,
    /// The Leases of these locks, to be looked at.
    pub(super) leases: Arc<Leases>,
    /// Whether others may write the Leases.
    pub(super) lease_policy: LeasePolicy,
    pub(super) clock_offset: ClockOffset,
    /// This replica and all others.
    pub(super) replicas: Arc<Replicas>,
    /// Those that sign certificates.
    pub(super) authorities: Authorities,
    /// Asks for leadership to be given up.
    pub(super) step_down: StepDown,
    pub(super) requests: tokio::sync::Mutex<Requests>,
    pub(super) health: Arc<HealthRegistry>,
    pub(super) router: Arc<Router>,
    pub(super) metrics: Registry,
    pub(super) slis: Arc<SliMetrics>,
    pub(super) port_metrics: PortMetrics,
    pub(super) client_metrics: ClientMetrics,
    /// This replica's name in elections.
    pub(super) identity: String,
    pub(super) event_logger: Arc<EventLogger>,
    pub(super) overrides: Arc<Overrides>,
    /// Writes events about objects that callers of the admin API had reconciled.
    pub(super) recorder: Recorder,
    /// Writes events about orders, by the admin API or by hand.
    pub(super) journal: Arc<Journal>,
    /// Mutations of the admin API under way, and events about orders.
    pub(super) mutations: TaskTracker,
    pub(super) started: jiff::Timestamp,
    pub(super) environment: Environment,
    pub(super) shutdown_timeout: Option<Duration>,
}

/// Leader migration: the second lock, and which controllers run under it.
pub(super) struct Migration {
    pub(super) lock: Lock,
    shared: LeaderMigration,
}

impl Migration {
    /// Under which lock a controller runs, if under any of ours.
    pub(super) fn lock_of(&self, controller: &Controller) -> MigrationLock {
        self.shared.lock_of(controller.descriptor)
    }
}

/// Parsing of certificate requests, verifications and signatures that run at the same time. Each occupies a core.
const COMPUTATIONS: usize = 2;

/// The name under which this manager takes part in leader migration, whatever its binary is called.
const COMPONENT: &str = "kube-controller-manager";

/// The overrides of the controllers of a registry.
fn overrides_of(
    registry: &'static [Descriptor],
    client: ApiClient,
    group: &Group,
    event_logger: &Arc<EventLogger>,
) -> Overrides {
    let is_known = |name: &str| registry.iter().any(|descriptor| descriptor.name == name);
    Overrides::new(&OverrideStore::new(client, Arc::new(is_known)), group, Arc::clone(event_logger))
}

/// The registry of all metrics, which shows what it is told to.
fn metrics(config: &Config) -> Result<Registry, ManagerError> {
    let metrics = Registry::new();
    let limits = MetricLimits::new(&config.flags.disabled_metrics, &config.metric_labels);
    let disabled = Registrar::new(&metrics)
        .counter("disabled_metrics_total", "Metrics disabled by --disabled-metrics.")?;
    disabled.inc_by(limits.disabled() as u64);
    metrics.limit(limits);
    Ok(metrics)
}

/// Completes a configuration. Elections are to run on `election`.
pub(super) async fn complete(
    config: Config,
    registry: &'static [Descriptor],
    environment: Environment,
    election: &Handle,
) -> Result<Completed, ManagerError> {
    registry::validate(registry)?;
    let clock = Arc::clone(&environment.clock);
    let started = clock.now();
    let flags = &config.flags;

    let metrics = metrics(&config)?;
    let port_metrics = super::serving::register(&metrics, &config)?;
    let connection = Connection::load(path(&flags.kubeconfig), text(&flags.master)).await?;
    let client_metrics = ClientMetrics::register(&metrics)?;
    let root_ca = root_ca(&config, &connection)?;
    let options = ClientOptions {
        qps: flags.kube_api_qps,
        burst: flags.kube_api_burst.unsigned_abs(),
        use_service_account_credentials: flags.use_service_account_credentials,
        // Without a name the original speaks JSON too.
        json: flags.kube_api_content_type != "application/vnd.kubernetes.protobuf",
        environment: environment.clone(),
        ..ClientOptions::default()
    };
    let clients = ClientBuilder::new(connection, options, client_metrics.clone()).await?;

    let informers = informers(&config, &clients, &metrics)?;
    let events = EventBroadcaster::new(Arc::clone(&clock), EventMetrics::register(&metrics)?);
    let manager_metrics = ManagerMetrics::register(&metrics)?;
    let health = Arc::new(HealthRegistry::new());

    let identity = leadership::identity(&environment.host);
    let setup = LockSetup {
        config: &config,
        clients: &clients,
        events: &events,
        metrics: &manager_metrics,
        clock: &clock,
        health: &health,
        epochs: informers.epochs(),
        thread: election,
        identity: identity.clone(),
    };
    let (main_lock, migration) = setup.locks().await?;

    let event_logger = Arc::new(EventLogger::new(Arc::clone(&clock)));
    let group = Group::new(&flags.leader_elect_resource_namespace, &flags.leader_elect_resource_name);
    let admin = clients.ungated("coxswain-admin");
    let overrides = Arc::new(overrides_of(registry, admin.clone(), &group, &event_logger));
    let journal = Arc::new(events.journal(COMPONENT, clients.ungated("coxswain-journal")));
    let recorder = events.recorder(COMPONENT, admin);
    let pool = BlockingPool::new(environment.threads, COMPUTATIONS);
    let authorities = Authorities::load(&config, environment.threads, &pool, &metrics)?;
    let runtime = Arc::new(Runtime {
        observer: clients.root("observer"),
        discovery: Arc::new(Discovery::new(clients.root("controller-discovery"))),
        informers,
        clients,
        events,
        clock,
        zones: environment.zones.clone(),
        watchdog: Watchdog::new(&metrics)?,
        queue_metrics: QueueMetrics::register(&metrics)?,
        reconcile_metrics: ReconcileMetrics::register(&metrics)?,
        room_metrics: RoomMetrics::new(metrics.clone()),
        pages: Arc::new(Router::new()),
        finishers: authorities.join(finishers(flags, environment.threads, &pool)?),
        pool,
        root_ca,
        report: Arc::clone(&event_logger) as _,
        writes: Some(Arc::clone(&event_logger) as _),
        expectations: ExpectationsRegistry::default(),
        config,
    });
    let leases = Arc::new(leases(&runtime.config, main_lock.as_ref(), migration.as_ref()));
    let replicas = Arc::new(Replicas::new(identity.clone(), started, group, Arc::clone(&leases), &runtime));
    let (step_down, requests) = step_down::channel(main_lock.is_some());
    let controllers =
        Controllers::new(registry, Arc::clone(&runtime), Arc::clone(&health), manager_metrics, &event_logger);
    controllers.announce();
    Ok(Completed {
        shutdown_timeout: runtime.config.flags.controller_shutdown_timeout,
        router: Arc::clone(&runtime.pages),
        runtime,
        controllers,
        main_lock,
        migration,
        leases,
        lease_policy: LeasePolicy::register(&metrics)?,
        clock_offset: ClockOffset::register(&metrics)?,
        replicas,
        authorities,
        step_down,
        requests: requests.into(),
        health,
        port_metrics,
        metrics,
        slis: Arc::new(SliMetrics::new()?),
        client_metrics,
        identity,
        event_logger,
        overrides,
        recorder,
        journal,
        mutations: TaskTracker::new(),
        started,
        environment,
    })
}

impl Completed {
    /// Begins to send traces, in the name of this replica.
    pub(super) fn start_tracing(
        &self,
        tracing: Tracing,
        threads: &Handle,
    ) -> Result<Exporting, TracingError> {
        self.metrics.exemplars().enable(Arc::clone(&self.runtime.clock));
        let process = Process { version: COXSWAIN, identity: &self.identity, host: &hostname() };
        tracing.start(process, &self.metrics, threads)
    }

    /// Begins to push metrics, in the name of this replica, if that is asked for.
    pub(super) fn start_pushing(&self, threads: &Handle) -> Result<Option<Pushing>, TracingError> {
        let Some(settings) = &self.runtime.config.push else { return Ok(None) };
        let process = Process { version: COXSWAIN, identity: &self.identity, host: &hostname() };
        let clock = Arc::clone(&self.runtime.clock);
        Pushing::start(settings, (process, self.started), &self.metrics, clock, threads).map(Some)
    }

    /// Tells of overrides that outlived all replicas: somebody who installs this manager again may not know of them.
    fn tell_of_inherited_overrides(&self) {
        let replicas = self.replicas.list();
        let started = replicas.iter().filter(|replica| replica.live).map(|replica| replica.started);
        let Some(message) = inherited(&self.overrides.set(), started, self.event_logger.now()) else {
            return;
        };
        tracing::warn!(overrides = message, "Overrides that are older than every running replica are active");
        let regarding = self.overrides.lease();
        let event = EventSpec { regarding, warning: true, reason: "OverridesInherited", message };
        let journal = Arc::clone(&self.journal);
        drop(self.mutations.spawn(async move { journal.write(event).await }));
    }

    async fn start_controllers(
        &self,
        under: MigrationLock,
        stop: &CancellationToken,
    ) -> Result<(), ManagerError> {
        let ready = wait_for_api_server(&self.runtime.observer, API_SERVER_WAIT);
        let Some(ready) = stop.run_until_cancelled(ready).await else { return Ok(()) };
        ready?;
        let here = |controller: &Controller| {
            self.migration.as_ref().is_none_or(|held| held.lock_of(controller) == under)
        };
        let was_known = self.overrides.are_known();
        if !was_known {
            self.health.add(Arc::clone(&self.overrides) as _);
        }
        let known = stop.run_until_cancelled(self.overrides.first_look()).await;
        if !was_known {
            self.health.remove(overrides::HEALTH);
        }
        if known.is_some() {
            if under == MigrationLock::Main {
                self.tell_of_inherited_overrides();
            }
            self.controllers.apply(&self.overrides.set(), self.event_logger.now());
            self.controllers.start(&here, stop);
        }
        Ok(())
    }
}

fn informers(
    config: &Config,
    clients: &ClientBuilder,
    metrics: &Registry,
) -> Result<Informers, prometheus::Error> {
    let settings = InformersConfig {
        watch_list: config.gates.enabled("WatchListClient"),
        min_resync_period: config.flags.min_resync_period,
        ..InformersConfig::default()
    };
    let threads = tokio::runtime::Handle::current();
    Informers::new(Arc::new(clients.root("shared-informers")), settings, threads, metrics)
}

fn leases(config: &Config, main: Option<&Lock>, migration: Option<&Migration>) -> Leases {
    let namespace = &config.flags.leader_elect_resource_namespace;
    let locks = main.into_iter().chain(migration.map(|migration| &migration.lock));
    let lease = |lock: &Lock| (Key::new(namespace, &lock.name), lock.elector.leadership());
    Leases::new(locks.map(lease).collect())
}

struct LockSetup<'a> {
    config: &'a Config,
    clients: &'a ClientBuilder,
    events: &'a EventBroadcaster,
    metrics: &'a ManagerMetrics,
    clock: &'a SharedClock,
    health: &'a HealthRegistry,
    epochs: &'a Arc<Epochs>,
    thread: &'a Handle,
    identity: String,
}

impl LockSetup<'_> {
    /// The lock of elections, if there are any, and that of leader migration.
    async fn locks(&self) -> Result<(Option<Lock>, Option<Migration>), ManagerError> {
        let flags = &self.config.flags;
        if !flags.leader_elect {
            return Ok((None, None));
        }
        let (namespace, name) = (&flags.leader_elect_resource_namespace, &flags.leader_elect_resource_name);
        let is_coordinated = self.config.gates.enabled("CoordinatedLeaderElection");
        let main = self.lock(namespace, name, is_coordinated).await?;
        let migration = self.migration().await?;
        // One check for both: a check takes the place of another one of its name.
        let locks = [Some(&main), migration.as_ref().map(|migration| &migration.lock)].into_iter().flatten();
        let electors = locks.map(|lock| (lock.name.clone(), Arc::clone(&lock.elector))).collect();
        self.health.add(Arc::new(ElectorHealth::new(electors, leadership::HEALTH_GRACE)));
        Ok((Some(main), migration))
    }

    /// A lock, on the Lease that the API server gives away or that whoever comes first takes.
    async fn lock(&self, namespace: &str, name: &str, is_coordinated: bool) -> Result<Lock, ManagerError> {
        let flags = &self.config.flags;
        let timing = Timing {
            lease: flags.leader_elect_lease_duration,
            renew_deadline: flags.leader_elect_renew_deadline,
            retry: flags.leader_elect_retry_period,
        };
        let client = self.clients.leader_election(flags.leader_elect_renew_deadline, self.thread).await?;
        let lock = LeaseLock::new(client.clone(), namespace, name);
        let elector = Elector::new(lock, self.identity.clone(), timing, Arc::clone(self.clock))
            .noticing_restores(Arc::clone(self.epochs));
        let elector = Arc::new(if is_coordinated { elector.coordinated() } else { elector });
        let candidate = is_coordinated.then(|| {
            let object = CandidateObject::new(client, namespace, &self.identity);
            Arc::new(Contender::new(object, self.candidacy(name), timing.retry, Arc::clone(self.clock)))
        });
        // Not the elector's client: its connection is served by the elector's thread, and for nobody else.
        let recorder = self.events.recorder(COMPONENT, self.clients.ungated("leader-election"));
        let (thread, metrics) = (self.thread.clone(), self.metrics.clone());
        let releases = !self.config.gates.is_switched_off("ControllerManagerReleaseLeaderElectionLockOnExit");
        Ok(Lock { elector, thread, name: name.to_owned(), metrics, recorder, releases, candidate })
    }

    /// What this replica says of itself when it stands for the Lease `lease`.
    fn candidacy(&self, lease: &str) -> Candidacy {
        let emulation = format!("{}.0", self.config.versions.emulated);
        Candidacy {
            lease: lease.into(),
            binary: KUBERNETES.trim_start_matches('v').into(),
            emulation: emulation.into(),
        }
    }

    async fn migration(&self) -> Result<Option<Migration>, ManagerError> {
        let Some(shared) = &self.config.leader_migration else { return Ok(None) };
        let namespace = &self.config.flags.leader_elect_resource_namespace;
        // A candidate has the name of the holder that it wants to be, and stands for one Lease.
        let lock = self.lock(namespace, &shared.leader_name, false).await?;
        Ok(Some(Migration { lock, shared: shared.clone() }))
    }
}

fn path(text: &str) -> Option<&Path> {
    (!text.is_empty()).then(|| Path::new(text))
}

fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, ManagerError> {
    std::fs::read(path).map_err(|error| ManagerError::File {
        flag,
        path: path.to_owned(),
        why: error.to_string(),
    })
}

/// Controllers that publish the CA bundle.
const PUBLISHERS: [&str; 2] = [
    "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    "root-ca-certificate-publisher-controller",
];
/// Where the kubelet mounts `kube-root-ca.crt`, by both of its usual names.
const PROJECTED: [&str; 2] =
    ["/var/run/secrets/kubernetes.io/serviceaccount", "/run/secrets/kubernetes.io/serviceaccount"];

/// Whether a file is projected by the kubelet from the ConfigMap `kube-root-ca.crt`, which this manager publishes.
fn is_projected(path: &Path) -> bool {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    PROJECTED.iter().any(|mount| path.starts_with(mount) || resolved.starts_with(mount))
}

/// Whether the CA bundle is one that this manager would publish and read back: it could never be rotated, and a change by others
/// would spread to all namespaces. An error if the flags select a controller that publishes it.
fn is_own_output(config: &Config, connection: &Connection) -> Result<bool, ManagerError> {
    let file = path(&config.flags.root_ca_file).or_else(|| connection.authorities_file());
    let publishes = PUBLISHERS.iter().any(|name| {
        registry::find(name).is_some_and(|row| config.controller_state(row) == SelectionState::Enabled)
    });
    match file.filter(|path| is_projected(path)) {
        None => Ok(false),
        Some(_) if !publishes => Ok(true),
        Some(path) => Err(ManagerError::File {
            flag: "root-ca-file",
            path: path.to_owned(),
            why: "the file is projected from the ConfigMap kube-root-ca.crt, which this manager publishes; use a \
                  file with the cluster's CA that does not depend on this ConfigMap, such as /etc/coxswain/keys/ca.crt"
                .to_owned(),
        }),
    }
}

/// Returns the CA bundle to publish: the content of the file, or else the authorities of the connection as the kubeconfig has them. Each byte
/// that is not UTF-8, as in a comment in Latin-1, becomes U+FFFD. The bundle is empty if no CA is known. Returns None if the bundle is
/// projected from `kube-root-ca.crt`: an override cannot start a controller that publishes it.
fn root_ca(config: &Config, connection: &Connection) -> Result<Option<Str>, ManagerError> {
    let flag = "root-ca-file";
    if is_own_output(config, connection)? {
        return Ok(None);
    }
    if let Some(path) = path(&config.flags.root_ca_file) {
        return Ok(Some(Str::of_bytes(lossy_utf8(&read(flag, path)?).as_bytes())));
    }
    if let Some(data) = connection.authorities().filter(|data| !data.is_empty()) {
        return Ok(Some(Str::of_bytes(lossy_utf8(data).as_bytes())));
    }
    let Some(all) = connection.root_certificates().filter(|all| !all.is_empty()) else {
        tracing::warn!(
            "Publishing an empty CA bundle, because no CA is configured; set --root-ca-file, or use a kubeconfig with a CA"
        );
        return Ok(Some(Str::EMPTY));
    };
    let pem: String = all.iter().map(|der| pem_certificate(der)).collect();
    Ok(Some(Str::from(pem)))
}

fn pem_certificate(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap_or("")).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn finishers(flags: &Flags, threads: Threads, pool: &BlockingPool) -> Result<Finishers, ManagerError> {
    let finishers = Finishers::default().with(DIRECTORIES, Arc::new(Directories::new(threads)));
    let Some(path) = path(&flags.service_account_private_key_file) else { return Ok(finishers) };
    let pem = read("service-account-private-key-file", path)?;
    let signer = PrivateKeySigner::from_pem(&pem)
        .map_err(|error| ManagerError::signing_key(PathBuf::from(path), &error))?;
    Ok(finishers.with(TOKEN_SIGNER, Arc::new(TokenFinisher::new(signer, pool.clone()))))
}

/// How long the API server may take to become ready once this replica leads.
const API_SERVER_WAIT: Duration = Duration::from_secs(10);

impl Work for Completed {
    fn gate(&self) -> &WriteGate {
        self.runtime.clients.gate()
    }

    async fn start(&self, under: MigrationLock, stop: &CancellationToken) -> Result<(), ManagerError> {
        let span = tracing::debug_span!("start controllers", coxswain.lock = ?under);
        let started = self.start_controllers(under, stop).instrument(span.clone()).await;
        if let Err(error) = &started {
            set_failed(&span, error.to_string());
        }
        started
    }

    async fn may_go_second(&self, stop: &CancellationToken) -> bool {
        self.controllers.token_controller_started(stop).await
    }

    fn shutdown_timeout(&self) -> Option<Duration> {
        self.shutdown_timeout
    }

    async fn stopped(&self) -> Stop {
        self.controllers.stopped().await
    }

    fn stand_by(&self) {
        self.controllers.stand_by();
    }
}

#[cfg(test)]
mod tests {
    use coxswain_machinery::client::Origin;

    use super::*;

    /// Others find what was published by its bytes: nothing of them may change on the way.
    #[tokio::test]
    async fn authorities_are_published_as_the_kubeconfig_has_them() {
        let names = vec!["authority".to_owned()];
        let pem = rcgen::generate_simple_self_signed(names).unwrap().cert.pem();
        let text = format!("# first\r\n{}{}", pem.replace('\n', "\r\n"), pem.trim_end());
        // As `base64` without `-w0` writes it.
        let data = STANDARD.encode(&text);
        let lines: Vec<&str> =
            data.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let data = format!("\"{}\\n\"", lines.join("\\n"));
        let kubeconfig = format!(
            "current-context: here\ncontexts: [{{name: here, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://api.test', certificate-authority-data: {data}}}}}]\n\
             users: [{{name: u, user: {{}}}}]\n"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), kubeconfig).unwrap();
        let connection = Connection::load(Some(file.path()), None).await.unwrap();
        let published = root_ca(&Config::default(), &connection).unwrap();
        assert_eq!(published.as_deref(), Some(&*text));
    }

    /// `openssl x509 -text` writes names in the encoding of the certificate above the PEM block.
    #[tokio::test]
    async fn root_ca_file_with_a_comment_in_latin_1_is_published() {
        let connection = Connection::load(None, Some("http://api.test")).await.unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"Issuer: O=M\xfcller\n-----BEGIN CERTIFICATE-----\n").unwrap();
        let mut config = Config::default();
        config.flags.root_ca_file = file.path().to_str().unwrap().to_owned();
        let published = root_ca(&config, &connection).unwrap();
        let expected = "Issuer: O=M\u{fffd}ller\n-----BEGIN CERTIFICATE-----\n";
        assert_eq!(published.as_deref(), Some(expected));
    }

    /// The kubelet projects the file from what the manager publishes.
    #[tokio::test]
    async fn root_ca_of_the_service_account_mount_is_refused_where_it_is_published() {
        let mount = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
        let of_master = Connection::load(None, Some("http://api.test")).await.unwrap();
        let mut in_cluster = kube::Config::new("https://api.test".parse().unwrap());
        in_cluster.root_cert_file = Some(mount.into());
        in_cluster.root_cert = Some(vec![b"of the mount".to_vec()]);
        let in_cluster = Connection::new(in_cluster, Origin::InCluster);
        let config = |file: &str, controllers: &[&str]| {
            let mut config = Config::default();
            config.flags.root_ca_file = file.to_owned();
            config.flags.controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
            config
        };
        let pem = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(pem.path(), "a bundle").unwrap();
        let pem_file = pem.path().to_str().unwrap();
        for (file, controllers, connection, is_refused) in [
            (mount, &["*"][..], &of_master, true),
            ("/run/secrets/kubernetes.io/serviceaccount/..data/ca.crt", &["*"], &of_master, true),
            // Without the flag the file of the connection would be published.
            ("", &["*"], &in_cluster, true),
            ("", &["root-ca-certificate-publisher-controller"], &in_cluster, true),
            ("", &["job-controller"], &in_cluster, false),
            ("", &["*"], &of_master, false),
            (pem_file, &["*"], &in_cluster, false),
            (mount, &["job-controller"], &of_master, false),
        ] {
            let outcome = root_ca(&config(file, controllers), connection);
            // An override may start a publisher that the flags do not select.
            let bundle = outcome.as_ref().ok().cloned().flatten();
            let is_published = bundle.as_ref().is_some_and(|bundle| !bundle.is_empty());
            assert_eq!(is_published, file == pem_file, "{file:?} {controllers:?}");
            let is_unknown = bundle.is_some_and(|bundle| bundle.is_empty());
            assert_eq!(
                is_unknown,
                file.is_empty() && !is_refused && controllers[0] == "*",
                "{controllers:?}"
            );
            let error = outcome.err().map(|error| error.to_string()).unwrap_or_default();
            let expected = "is projected from the ConfigMap kube-root-ca.crt, which this manager publishes";
            assert_eq!(error.contains(expected), is_refused, "{file:?} {controllers:?}: {error}");
            assert!(is_refused || error.is_empty(), "{error}");
        }
    }
}

//! The manager's machinery in the test's own process, on a real control plane, with faults in between.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coxswain::manager::EventLogger;
use coxswain_machinery::client::{
    ApiClient, ClientBuilder, ClientMetrics, ClientOptions, Connection, Discovery, Faults,
};
use coxswain_machinery::events::{EventBroadcaster, EventMetrics};
use coxswain_machinery::executor::Finishers;
use coxswain_machinery::framework::{
    BlockingPool, ExpectationsRegistry, ReconcileMetrics, RoomMetrics, Runtime, Unreported, Watchdog,
};
use coxswain_machinery::informer::{Informers, InformersConfig, ListWatch};
use coxswain_machinery::model::clock::{SharedClock, SystemClock};
use coxswain_machinery::options::Config;
use coxswain_machinery::queue::QueueMetrics;
use coxswain_machinery::serve::Router;
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::zones::Zones;

/// How long a request may take: short, so that stalls end soon.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// Clients with faults, before anything is built on them.
pub(crate) async fn faulty_clients(kubeconfig: &Path, faults: &Faults) -> ClientBuilder {
    let connection = Connection::load(Some(kubeconfig), None).await.expect("the kubeconfig");
    let options = ClientOptions {
        qps: -1.0,
        request_timeout: REQUEST_TIMEOUT,
        faults: Some(faults.clone()),
        ..ClientOptions::default()
    };
    let metrics = ClientMetrics::register(&Registry::new()).expect("metrics");
    ClientBuilder::new(connection, options, metrics).await.expect("clients")
}

/// What controllers are built from: informers that read from `source`, everything else through `clients`.
pub(crate) fn runtime(
    clients: ClientBuilder,
    source: Arc<dyn ListWatch>,
    config: InformersConfig,
) -> Runtime {
    let metrics = Registry::new();
    let clock: SharedClock = Arc::new(SystemClock);
    let handle = tokio::runtime::Handle::current();
    Runtime {
        config: Config::default(),
        informers: Informers::new(source, config, handle, &metrics).expect("informers"),
        events: EventBroadcaster::new(
            Arc::clone(&clock),
            EventMetrics::register(&metrics).expect("event metrics"),
        ),
        observer: clients.root("observer"),
        discovery: Arc::new(Discovery::new(clients.root("discovery"))),
        clients,
        clock,
        zones: Zones::bundled(),
        queue_metrics: QueueMetrics::register(&metrics).expect("queue metrics"),
        reconcile_metrics: ReconcileMetrics::register(&metrics).expect("reconcile metrics"),
        pool: BlockingPool::inline(),
        watchdog: Watchdog::new(&metrics).expect("watchdog metrics"),
        room_metrics: RoomMetrics::new(metrics),
        pages: Arc::new(Router::new()),
        finishers: Finishers::default(),
        root_ca: Some("a bundle".into()),
        report: Arc::new(Unreported),
        writes: None,
        expectations: ExpectationsRegistry::default(),
    }
}

/// [`runtime`] on the API server alone.
pub(crate) fn runtime_on(clients: ClientBuilder) -> Runtime {
    let source: ApiClient = clients.root("shared-informers");
    runtime(clients, Arc::new(source), InformersConfig::default())
}

/// What controllers tell of themselves, to nobody.
pub(crate) fn event_logger() -> Arc<EventLogger> {
    Arc::new(EventLogger::new(Arc::new(SystemClock)))
}

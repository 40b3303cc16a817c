//! A running controller: its informers, queues and workers, from start to stop.
//!
//! Everything that a controller holds hangs on its [`Instance`]: when that is gone, its tasks are joined, its handlers
//! are off the informers, and informers that nobody else uses have freed their memory.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::blocking::BlockingPool;
use super::caches::Caches;
use super::change::QueuedChange;
use super::clock_watch::ClockWatch;
use super::demand::{Demands, Explained, Explainer, Synced};
use super::descriptor::{Build, BuildError, Built, Descriptor, Loop};
use super::dynamic::{DynamicRoom, DynamicWatches, QueueOf, Supervisor};
use super::expectations::ExpectationsRegistry;
use super::freshness::{Freshness, KeyWait};
use super::metrics::{ReconcileMetrics, RoomMetrics};
use super::reader::Reader;
use super::report::Report;
use super::stats::LoopStats;
use super::terminating::TerminatingOwners;
use super::trace::{self, Causes, Waits};
use super::watch::{CacheSource, Debounce, KeyMap, WakeUp};
use super::watchdog::Watchdog;
use super::worker::{Worker, panic_message};
use crate::api::Kind;
use crate::client::{
    ApiClient, ApiError, ApiResources, ClientBuildError, ClientBuilder, Discovery, QpsFactor, WaitSeats,
};
use crate::events::EventBroadcaster;
use crate::executor::{AnsweredWrite, Executor, Finishers, ObserveWrites};
use crate::informer::{
    Delta, Epoch, EventHandler, InformerHandle, Informers, NewHandler, Registration, Store,
};
use crate::model::Key;
use crate::model::clock::SharedClock;
use crate::options::Config;
use crate::queue::{QueueMetrics, WorkQueue};
use crate::serve::{PageHandler, Router};
use crate::wire::Str;
use crate::zones::Zones;

/// What all controllers are built from.
pub struct Runtime {
    /// The manager's configuration.
    pub config: Config,
    /// The shared informers.
    pub informers: Informers,
    /// Makes each controller's client.
    pub clients: ClientBuilder,
    /// Makes each controller's event recorder.
    pub events: EventBroadcaster,
    /// Reads with the manager's own identity.
    pub observer: ApiClient,
    /// The resources that the server has, and their kinds: cached, and forgotten every 30 seconds.
    pub discovery: Arc<Discovery>,
    /// The time.
    pub clock: SharedClock,
    /// Time zones.
    pub zones: Zones,
    /// Runs long computations of all controllers.
    pub pool: BlockingPool,
    /// Watches for reconciles that hold a thread.
    pub watchdog: Watchdog,
    /// Metrics of queues.
    pub queue_metrics: QueueMetrics,
    /// Metrics of reconciles.
    pub reconcile_metrics: ReconcileMetrics,
    /// Metrics of single controllers.
    pub room_metrics: RoomMetrics,
    /// Answers for controllers' debug pages.
    pub pages: Arc<Router>,
    /// What finishes objects of plans: signs service-account tokens, when there is a key.
    pub finishers: Finishers,
    /// The CA bundle to publish, empty if no CA is known; `None` if it must not be published.
    pub root_ca: Option<Str>,
    /// Hears of every reconcile.
    pub report: Arc<dyn Report>,
    /// Hears of every write.
    pub writes: Option<Arc<dyn WriteReport>>,
    /// What all controllers wrote and the caches have not shown yet. It outlives their instances.
    pub expectations: ExpectationsRegistry,
}

/// Hears of every write, and whose it is. Must not block.
pub trait WriteReport: Send + Sync {
    /// `controller` has written, or tried to.
    fn wrote(&self, controller: &'static str, write: &AnsweredWrite<'_>);
}

/// The writes of one controller.
struct WritesOf {
    controller: &'static str,
    report: Arc<dyn WriteReport>,
}

impl ObserveWrites for WritesOf {
    fn wrote(&self, write: &AnsweredWrite<'_>) {
        self.report.wrote(self.controller, write);
    }
}

/// A controller that did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A flag stands against it.
    #[error("{0}")]
    Skipped(String),
    /// Its configuration is wrong.
    #[error("{0}")]
    Invalid(String),
    /// Its credentials can't be had (yet).
    #[error("create client: {0}")]
    Client(#[from] ClientBuildError),
    /// It was told to stop before its caches were filled.
    #[error("stopped before the caches were synced")]
    Stopped,
    /// It has to know which resources the API has.
    #[error("the API resources are not discovered yet")]
    Undiscovered,
    /// Which resources the API has could not be found out.
    #[error("discovery: {0}")]
    Discovery(ApiError),
    /// There is no such controller yet.
    #[error("not implemented")]
    NotImplemented,
}

impl From<BuildError> for StartError {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Skipped(why) => Self::Skipped(why),
            BuildError::Invalid(why) | BuildError::NotYet(why) => Self::Invalid(why),
            BuildError::Undiscovered => Self::Undiscovered,
        }
    }
}

/// A running controller.
pub struct Instance {
    name: &'static str,
    loops: Vec<RunningLoop>,
    resyncs: Vec<Resync>,
    stopping: CancellationToken,
    tasks: JoinSet<()>,
    /// Handlers that are told of what is there when it starts.
    new_handlers: Vec<NewHandler>,
    registrations: Vec<Registration>,
    watched: Vec<Watched>,
    handles: Vec<InformerHandle>,
    dynamic: Option<Arc<Supervisor>>,
    debug: Option<DebugPages>,
    epoch: Epoch,
}

/// Reconciles all objects again and again, see [`LoopSettings::resync`](super::LoopSettings::resync).
pub(super) struct Resync {
    pub(super) period: Duration,
    pub(super) objects: Arc<Store>,
    pub(super) queue: Arc<WorkQueue<Key>>,
}

impl Resync {
    /// Works until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(self.period)).await.is_some() {
            for object in self.objects.list() {
                self.queue.add(Key::of(object.meta()));
            }
        }
    }
}

/// A controller's debug pages, gone when this is dropped.
struct DebugPages {
    controller: &'static str,
    router: Arc<Router>,
}

impl Drop for DebugPages {
    fn drop(&mut self) {
        self.router.remove_debug(self.controller);
    }
}

/// One loop of a running controller.
#[derive(Clone)]
pub struct RunningLoop {
    /// Keys taken at the same time.
    pub workers: usize,
    worker: Arc<Worker>,
}

impl RunningLoop {
    /// Name of its queue.
    pub fn name(&self) -> &'static str {
        self.worker.queue_name
    }

    /// The kind of object that its keys name; `None` if they name none.
    pub fn kind(&self) -> Option<&'static Kind> {
        self.worker.kind
    }

    /// Its queue.
    pub fn queue(&self) -> &WorkQueue<Key> {
        &self.worker.queue
    }

    /// Its counts.
    pub fn stats(&self) -> &LoopStats {
        &self.worker.stats
    }

    /// How many keys wait for a cache. They are in no queue meanwhile.
    pub fn waiting_keys(&self) -> usize {
        self.worker.freshness.waiting_keys()
    }

    /// The keys that wait for a cache, at most `limit`, those that have waited longest first.
    pub fn longest_waiting(&self, limit: usize) -> Vec<KeyWait> {
        self.worker.freshness.longest_waiting(limit)
    }

    /// Whether a key waits until the cache of a kind has seen what was written of it.
    #[cfg(test)]
    pub(super) fn covers(&self, kind: &'static Kind) -> bool {
        self.worker.freshness.caches.cover(kind)
    }

    /// Reconciles a key before all others that wait; `None` if the controller stops before. May be dropped at any time:
    /// the reconcile takes place all the same.
    pub async fn sync(&self, key: Key) -> Option<Synced> {
        self.worker.sync(key).await
    }

    /// What a reconcile of this key would do.
    pub async fn explain(&self, key: &Key) -> Explained {
        self.worker.explain(key).await
    }
}

/// Something that a controller watches.
#[derive(Clone)]
pub struct Watched {
    /// The kind.
    pub kind: &'static Kind,
    /// Restricts it.
    pub field_selector: Option<&'static str>,
    store: Arc<Store>,
}

impl Watched {
    /// All objects of a store's kind.
    pub(super) fn of(store: &Arc<Store>) -> Self {
        Self { kind: store.kind(), field_selector: None, store: Arc::clone(store) }
    }

    /// What holds the objects.
    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Objects in the store.
    pub fn cached(&self) -> usize {
        self.store.len()
    }

    /// Whether the store has been filled.
    pub fn is_synced(&self) -> bool {
        self.store.is_filled()
    }
}

impl Instance {
    /// Builds the controller and begins to fill its caches. Nothing is reconciled before [`Instance::start`]. Discovery is
    /// asked only for a controller that needs it.
    pub async fn prepare_discovered(
        descriptor: &'static Descriptor,
        runtime: &Runtime,
    ) -> Result<Self, StartError> {
        match Self::prepare(descriptor, runtime) {
            Err(StartError::Undiscovered) => {}
            prepared => return prepared,
        }
        let resources = runtime.discovery.resources().await.map_err(StartError::Discovery)?;
        Self::prepare_with(descriptor, runtime, Some(&resources))
    }

    /// The same for a controller that does not hang on what the API has.
    ///
    /// # Errors
    /// [`StartError::Undiscovered`] if it does.
    pub fn prepare(descriptor: &'static Descriptor, runtime: &Runtime) -> Result<Self, StartError> {
        Self::prepare_with(descriptor, runtime, None)
    }

    fn prepare_with(
        descriptor: &'static Descriptor,
        runtime: &Runtime,
        discovered: Option<&ApiResources>,
    ) -> Result<Self, StartError> {
        let build = descriptor.build.ok_or(StartError::NotImplemented)?;
        // Before the informers are acquired: they are of this epoch or a later one.
        let epoch = runtime.informers.epochs().present();
        let handles = Mutex::new(Handles { informers: &runtime.informers, held: Vec::new() });
        let dynamic = Mutex::new(None);
        let debug = Mutex::new(None);
        let Built { loops } = build(&Build {
            config: &runtime.config,
            gate: &|gate| runtime.config.gates.enabled(gate),
            root_ca: runtime.root_ca.clone(),
            finishers: &runtime.finishers,
            zones: &runtime.zones,
            caches: CacheSource::new(&|kind, selector| handles.lock().store(kind, selector)),
            dynamic: &|room| {
                let watches = Arc::new(DynamicWatches::default());
                *dynamic.lock() = Some((room, Arc::clone(&watches)));
                watches
            },
            debug: &|page| *debug.lock() = Some(page),
            metrics: &runtime.room_metrics,
            discovered,
        })?;
        let qps_factor =
            loops.iter().map(|each| each.settings.qps_factor).fold(QpsFactor::ONE, QpsFactor::max);
        let client =
            runtime.clients.for_controller(descriptor.name, descriptor.service_account, qps_factor)?;
        let reader = |client| Reader::new(client, Arc::clone(&runtime.discovery), runtime.pool.clone());
        // A client has a rate limit of its own: who asks for explanations does not spend the controller's requests.
        let explaining =
            runtime.clients.for_controller(descriptor.name, descriptor.service_account, QpsFactor::ONE)?;
        let (reader, explainer) = (reader(client.clone()), Explainer::new(reader(explaining.impatient())));
        let reader = reader.counted(runtime.reconcile_metrics.live_reads());
        let source = descriptor.event_source.unwrap_or(descriptor.name);
        let mut executor = Executor::new(client.clone(), Arc::new(runtime.events.recorder(source, client)))
            .with_finishers(runtime.finishers.clone());
        if let Some(report) = &runtime.writes {
            let writes = WritesOf { controller: descriptor.name, report: Arc::clone(report) };
            executor = executor.observed_by(Arc::new(writes));
        }
        let executor = executor.in_epoch(epoch.clone());

        let mut handles = handles.into_inner();
        let mut instance = Self {
            name: descriptor.name,
            loops: Vec::new(),
            resyncs: Vec::new(),
            stopping: CancellationToken::new(),
            tasks: JoinSet::new(),
            new_handlers: Vec::new(),
            registrations: Vec::new(),
            watched: Vec::new(),
            handles: Vec::new(),
            dynamic: None,
            debug: None,
            epoch,
        };
        for wake_up in loops.iter().flat_map(|each| &each.wake_ups) {
            handles.handle(wake_up.kind, wake_up.field_selector);
        }
        for each in loops {
            instance.add_loop(each, &mut handles, runtime, (&executor, &reader, &explainer));
        }
        for (kind, field_selector, handle) in handles.held {
            let store = Arc::clone(handle.store());
            instance.watched.push(Watched { kind, field_selector, store });
            instance.handles.push(handle);
        }
        if let Some(dynamic) = dynamic.into_inner() {
            instance.supervise(dynamic, runtime);
        }
        if let Some(page) = debug.into_inner() {
            instance.mount(&page, &runtime.pages);
        }
        Ok(instance)
    }

    fn supervise(&mut self, dynamic: (Arc<dyn DynamicRoom>, Arc<DynamicWatches>), runtime: &Runtime) {
        let queue = |each: &RunningLoop| QueueOf {
            name: each.name(),
            queue: Arc::clone(&each.worker.queue),
            causes: Arc::clone(&each.worker.causes),
        };
        let queues = self.loops.iter().map(queue).collect();
        let supervisor =
            Arc::new(Supervisor::new(self.name, dynamic, queues, &runtime.informers, &runtime.discovery));
        self.tasks.spawn(Arc::clone(&supervisor).run());
        self.dynamic = Some(supervisor);
    }

    fn mount(&mut self, page: &PageHandler, router: &Arc<Router>) {
        router.add_debug(self.name, page);
        self.debug = Some(DebugPages { controller: self.name, router: Arc::clone(router) });
    }

    /// Waits for its caches, or for `stop`, and starts its workers.
    pub async fn start(&mut self, stop: &CancellationToken) -> Result<(), StartError> {
        // Replays come before the waits: a pending replay keeps a snapshot of the whole cache in memory.
        for handler in std::mem::take(&mut self.new_handlers) {
            let replayed = stop.run_until_cancelled(handler.replayed()).await;
            self.registrations.push(replayed.ok_or(StartError::Stopped)?);
        }
        for handle in &self.handles {
            let span = trace::sync(self.name, handle.store(), handle.has_synced());
            tokio::select! {
                biased;
                synced = handle.wait_synced().instrument(span) => synced.map_err(|_| StartError::Stopped)?,
                () = stop.cancelled() => return Err(StartError::Stopped),
            }
        }
        if let Some(dynamic) = &self.dynamic
            && stop.run_until_cancelled(dynamic.settled()).await.is_none()
        {
            return Err(StartError::Stopped);
        }
        for each in &self.loops {
            let Worker { settings, freshness, .. } = &*each.worker;
            if settings.serial {
                let all = each.worker.expecting(&Key::EMPTY);
                freshness.expectations.require_current(all, &freshness.caches);
            }
            for seed in &settings.seeds {
                each.worker.queue.add(seed.clone());
            }
            for _ in 0..each.workers {
                self.tasks.spawn(Arc::clone(&each.worker).run());
            }
        }
        for resync in self.resyncs.drain(..) {
            self.tasks.spawn(resync.run(self.stopping.clone()));
        }
        if let Some(first) = self.loops.first() {
            let queues = self.loops.iter().map(|each| Arc::clone(&each.worker.queue)).collect();
            let watch = ClockWatch::new(self.name, Arc::clone(&first.worker.clock), queues);
            self.tasks.spawn(watch.run(self.stopping.clone()));
        }
        Ok(())
    }

    fn add_loop(
        &mut self,
        each: Loop,
        handles: &mut Handles<'_>,
        runtime: &Runtime,
        (executor, reader, explainer): (&Executor, &Reader, &Explainer),
    ) {
        let settings = each.settings;
        let queue = WorkQueue::with_config(each.queue, settings.backoff, &runtime.queue_metrics);
        let queue = Arc::new(queue.fair_by(|key: &Key| key.namespace.as_str()));
        let stats = Arc::new(LoopStats::new(Arc::clone(&runtime.clock)));
        let causes = Arc::new(Causes::default());
        for WakeUp { kind, field_selector, keys, debounce } in each.wake_ups {
            let handler = queue_keys(Arc::clone(&queue), keys, debounce, (kind, Arc::clone(&causes)));
            let is_own = each.kind == Some(kind);
            let handler = if is_own { queue_gone(Arc::clone(&queue), handler, debounce) } else { handler };
            self.new_handlers.push(handles.handle(kind, field_selector).add_handler(self.name, handler));
        }
        if let (Some(period), Some(kind)) = (settings.resync, each.kind) {
            let objects = handles.store(kind, None);
            self.resyncs.push(Resync { period, objects, queue: Arc::clone(&queue) });
        }
        let earlier = self.loops.iter().filter(|earlier| earlier.worker.queue_name == each.queue).count();
        let mut freshness = Freshness::new(
            Caches::new(each.kind, handles.stores()).in_epoch(self.epoch.clone()),
            runtime.expectations.of(self.name, each.queue, earlier),
            Arc::clone(&queue),
            runtime.observer.clone(),
        );
        freshness.longest_wait = settings.longest_wait;
        let wait_seats = WaitSeats::new(settings.waits_beside());
        let reader = reader.clone().for_workers(settings.workers);
        let worker = Arc::new(Worker {
            controller: self.name,
            queue_name: each.queue,
            kind: each.kind,
            queue,
            settings,
            reconcile: each.reconcile,
            executor: executor.clone(),
            reader,
            freshness,
            explainer: explainer.clone(),
            clock: Arc::clone(&runtime.clock),
            stats,
            metrics: runtime.reconcile_metrics.clone(),
            demands: Demands::default(),
            causes,
            waits: Waits::default(),
            terminating: TerminatingOwners::default(),
            report: Arc::clone(&runtime.report),
            watchdog: runtime.watchdog.clone(),
            wait_seats,
        });
        self.loops.push(RunningLoop { workers: worker.settings.at_a_time(), worker });
    }

    /// Returns the epoch to which all that it remembers belongs. When it is over, the controller must be built again: it plans no more.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Its loops.
    pub fn loops(&self) -> &[RunningLoop] {
        &self.loops
    }

    /// What it watches all the time.
    pub fn watched(&self) -> &[Watched] {
        &self.watched
    }

    /// Its watches that come and go.
    pub fn dynamic(&self) -> Option<&Arc<DynamicWatches>> {
        self.dynamic.as_ref().map(|supervisor| supervisor.watches())
    }

    /// Returns, with the reason, when one of its tasks has panicked; never otherwise. Panics of reconciles are contained; this
    /// is for what goes wrong around them.
    pub async fn failed(&mut self) -> String {
        loop {
            match self.tasks.join_next().await {
                Some(Err(error)) if error.is_panic() => return panic_message(error.into_panic().as_ref()),
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Releases its informers, lets the reconciles in flight finish within `grace`, or without a limit, and aborts the others. The end of
    /// `cut_off` aborts them, too.
    pub async fn stop(mut self, grace: Option<Duration>, cut_off: impl Future<Output = ()>) -> Stop {
        self.new_handlers.clear();
        self.registrations.clear();
        self.stopping.cancel();
        self.debug = None;
        if let Some(dynamic) = &self.dynamic {
            dynamic.stop();
        }
        for each in &self.loops {
            each.worker.queue.shut_down_now();
            each.worker.wait_seats.close();
            each.worker.demands.close();
        }
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        let stop = tokio::select! {
            biased;
            drained = within(grace, drained) => drained.map_or(Stop::Aborted, |()| Stop::Finished),
            () = cut_off => Stop::Aborted,
        };
        if stop == Stop::Aborted {
            if self.epoch.is_over() {
                tracing::info!(controller = self.name, "Aborting reconciles: etcd was restored");
            } else {
                tracing::warn!(
                    controller = self.name,
                    ?grace,
                    "Reconciles did not finish in time; aborting them"
                );
            }
            self.tasks.shutdown().await;
        }
        // Before the informers: what they hold is freed with the last that looks into it.
        self.loops.clear();
        self.resyncs.clear();
        self.watched.clear();
        if let Some(dynamic) = self.dynamic.take() {
            dynamic.release().await;
        }
        for handle in self.handles {
            handle.release().await;
        }
        stop
    }
}

/// How an instance has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All reconciles have returned.
    Finished,
    /// Some reconciles were aborted at the limit.
    Aborted,
}

/// Waits for the end of `work`, without a limit or until it is reached; `None` in that case.
async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

/// Queues the keys that a change concerns: at once, or after a debounce in which further changes are collected.
pub(super) fn queue_keys(
    queue: Arc<WorkQueue<Key>>,
    keys: KeyMap,
    debounce: Debounce,
    (kind, causes): (&'static Kind, Arc<Causes>),
) -> EventHandler {
    Arc::new(move |delta: Delta<'_>| {
        let mut change = QueuedChange::new(kind, &delta);
        let debounce = debounce.of(&delta);
        keys(delta, &mut |key| {
            change.puts(key, &queue, &causes, debounce);
        });
    })
}

/// Returns a handler that calls `handler`, and then queues the key of a deleted object if the key has a long delay: the reconcile drops the
/// delay, which may be 68 years. Controllers whose key maps ignore deletions need this. If changes are debounced, returns `handler`: such a
/// controller may have to wait before it acts on a deletion.
pub(super) fn queue_gone(
    queue: Arc<WorkQueue<Key>>,
    handler: EventHandler,
    debounce: Debounce,
) -> EventHandler {
    if !matches!(debounce, Debounce::None) {
        return handler;
    }
    Arc::new(move |delta: Delta<'_>| {
        let gone = delta.old.filter(|_| delta.new.is_none()).map(|object| Key::of(object.meta()));
        handler(delta);
        if let Some(key) = gone {
            queue.add_gone(key);
        }
    })
}

/// The informers that a controller under construction has asked for.
struct Handles<'a> {
    informers: &'a Informers,
    held: Vec<(&'static Kind, Option<&'static str>, InformerHandle)>,
}

impl Handles<'_> {
    fn handle(&mut self, kind: &'static Kind, selector: Option<&'static str>) -> &InformerHandle {
        let at = self.held.iter().position(|(held, by, _)| *held == kind && *by == selector);
        let at = at.unwrap_or_else(|| {
            self.held.push((kind, selector, self.informers.acquire(kind, selector)));
            self.held.len() - 1
        });
        &self.held[at].2
    }

    fn store(&mut self, kind: &'static Kind, selector: Option<&'static str>) -> Arc<Store> {
        Arc::clone(self.handle(kind, selector).store())
    }

    /// Everything that the controller can read.
    fn stores(&self) -> Vec<Arc<Store>> {
        self.held.iter().map(|(.., handle)| Arc::clone(handle.store())).collect()
    }
}

//! [`Informers`]: the informers of the process, one per kind and selector, shared by all that ask for them.
//!
//! An informer lives as long as somebody holds a handle: it is started by the first and, when the last is dropped,
//! cancelled; its task then ends by itself, and with it goes its memory, unless somebody kept the store. Tasks are
//! tracked and joined by [`Informers::shutdown`]. A panic of an informer's task is contained and reported, and the
//! informer starts again on the same store, which a new list brings up to date.

use std::ops::RangeInclusive;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::epochs::{Epoch, Epochs};
use super::list_watch::ListWatch;
use super::metrics::{Gauges, Metrics};
use super::panic_text;
use super::reflector::{Backoff, Progress, Reachability, Reflector, Status};
use super::stats::InformerStats;
use super::store::{EventHandler, HandlerId, Store};
use crate::api::Kind;
use crate::api::meta::ObjectMeta;
use crate::client::FieldSelector;
use crate::random::HashMap;
use crate::telemetry::Registry;

/// How informers work.
#[derive(Clone, Debug)]
pub struct InformersConfig {
    /// The `name` label of the original's informer metrics.
    pub name: String,
    /// Whether to ask for the initial state as a stream (the `WatchListClient` feature gate). A server that refuses
    /// is asked for lists.
    pub watch_list: bool,
    /// Every handler hears of every object again after between once and twice this time (`--min-resync-period`);
    /// never if zero.
    pub min_resync_period: Duration,
    /// How long watches last and how long they may be silent.
    pub timing: WatchTiming,
}

/// How long a watch lasts, and after what silence it is taken for dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchTiming {
    /// Seconds after which the server is asked to end a watch: drawn between these, so that not all end at once.
    pub seconds: RangeInclusive<u32>,
    /// A watch that is silent for this much longer than the time after which the server should have ended it is cut.
    pub margin: Duration,
    /// Initial events that pause for this long will not end.
    pub initial: Duration,
    /// The longest pause between tries, up to twice as long with jitter.
    pub pause: Duration,
}

impl Default for WatchTiming {
    fn default() -> Self {
        Self {
            seconds: 300..=600,
            margin: Duration::from_secs(30),
            initial: Duration::from_mins(1),
            pause: Duration::from_secs(30),
        }
    }
}

impl Default for InformersConfig {
    fn default() -> Self {
        Self {
            name: "kube-controller-manager".to_owned(),
            watch_list: true,
            min_resync_period: Duration::from_hours(12),
            timing: WatchTiming::default(),
        }
    }
}

/// The informers of the process. Cheap to clone; all clones are one set.
#[derive(Clone)]
pub struct Informers {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    source: Arc<dyn ListWatch>,
    config: InformersConfig,
    runtime: Handle,
    tasks: TaskTracker,
    stop: CancellationToken,
    metrics: Metrics,
    reachability: Arc<Reachability>,
    epochs: Arc<Epochs>,
    active: Mutex<HashMap<Id, Weak<Active>>>,
    /// The number of informers of each resource. Locked while `active` is locked.
    numbers: Mutex<HashMap<ResourceLabels, usize>>,
}

/// Group, version and resource, by which informers share series.
type ResourceLabels = (&'static str, &'static str, &'static str);

fn resource_labels(kind: &'static Kind) -> ResourceLabels {
    (kind.group, kind.version, kind.resource)
}

/// What an informer is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Id {
    kind: &'static Kind,
    field_selector: Option<FieldSelector>,
    label_selector: Option<String>,
}

/// A running informer; dropped with its last handle.
struct Active {
    id: Id,
    store: Arc<Store>,
    status: Arc<Status>,
    stop: CancellationToken,
    /// The number of the epoch in which it was started.
    epoch: u64,
    of: Weak<Shared>,
}

/// The informer has ended: the process is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer for {0} has stopped")]
pub struct InformerStopped(pub &'static Kind);

impl Informers {
    /// An empty set that reads from `source`, runs its tasks on `runtime` and registers its metrics with `registry`;
    /// an error if they are registered there already.
    pub fn new(
        source: Arc<dyn ListWatch>,
        config: InformersConfig,
        runtime: Handle,
        registry: &Registry,
    ) -> Result<Self, prometheus::Error> {
        let metrics = Metrics::register(registry, &config.name)?;
        let epochs = Epochs::register(registry)?;
        let shared = Arc::new(Shared {
            source,
            config,
            runtime,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            metrics,
            reachability: Arc::default(),
            epochs,
            active: Mutex::default(),
            numbers: Mutex::default(),
        });
        let gauges = Gauges::new(Arc::downgrade(&shared), &shared.config.name)?;
        registry.register(Box::new(gauges))?;
        Ok(Self { shared })
    }

    /// Returns the epochs that the informers notice, and that others notice for them.
    pub fn epochs(&self) -> &Arc<Epochs> {
        &self.shared.epochs
    }

    /// A handle on the informer of the objects of `kind` that match `field_selector`, which is started if nobody holds
    /// one yet that was started in the present epoch.
    pub fn acquire(&self, kind: &'static Kind, field_selector: Option<&'static str>) -> InformerHandle {
        self.acquire_selected(kind, field_selector.map(FieldSelector::fixed), None)
    }

    /// [`Informers::acquire`] for the objects that match a label selector, too. Metrics tell informers apart by kind and
    /// field selector: whoever selects by labels selects by a field as well, if anyone else watches the same kind.
    pub fn acquire_selected(
        &self,
        kind: &'static Kind,
        field_selector: Option<FieldSelector>,
        label_selector: Option<&str>,
    ) -> InformerHandle {
        let id = Id { kind, field_selector, label_selector: label_selector.map(str::to_owned) };
        // Dropped after the lock, which the last handle on an informer takes.
        let _of_an_earlier_epoch;
        let mut active = self.shared.active.lock();
        let epoch = self.shared.epochs.present();
        if let Some(running) = active.get(&id).and_then(Weak::upgrade) {
            if running.epoch >= epoch.number() {
                return InformerHandle { active: running };
            }
            _of_an_earlier_epoch = running;
        }
        let started = Arc::new(self.shared.start(id.clone(), epoch));
        *self.shared.numbers.lock().entry(resource_labels(kind)).or_default() += 1;
        active.insert(id, Arc::downgrade(&started));
        InformerHandle { active: started }
    }

    /// Whether somebody holds a handle on the informer of the objects of `kind` that match `field_selector`.
    pub fn is_running(&self, kind: &'static Kind, field_selector: Option<&'static str>) -> bool {
        let id = Id { kind, field_selector: field_selector.map(FieldSelector::fixed), label_selector: None };
        self.shared.active.lock().get(&id).is_some_and(|held| held.strong_count() > 0)
    }

    /// Tells whoever judges by the silence of watches ([`Deliveries`](super::Deliveries)) of an object that this process has written: a
    /// watch of all objects of the resource which does not show it in time is late.
    pub fn wrote(&self, kind: &Kind, written: &ObjectMeta) {
        let Some(version) = written.version() else { return };
        let shows_it = |id: &Id| {
            let is_of_it = id.kind.group == kind.group && id.kind.resource == kind.resource;
            is_of_it && id.field_selector.is_none() && id.label_selector.is_none()
        };
        // The set is locked when an informer ends, which it may here.
        let running: Vec<_> = {
            let active = self.shared.active.lock();
            active.iter().filter(|(id, _)| shows_it(id)).filter_map(|(_, held)| held.upgrade()).collect()
        };
        for informer in running {
            informer.store.wrote(version);
        }
    }

    /// All running informers, by resource and selector.
    pub fn stats(&self) -> Vec<InformerStats> {
        self.shared.stats()
    }

    /// What is wrong with which informers; nothing when all is well.
    pub fn problems(&self) -> Vec<String> {
        self.stats().iter().filter_map(InformerStats::named_problem).collect()
    }

    /// What is wrong with the informer of the objects of `kind` that match `field_selector`, if it runs.
    pub fn problem_of(&self, kind: &'static Kind, field_selector: Option<&'static str>) -> Option<String> {
        let id = Id { kind, field_selector: field_selector.map(FieldSelector::fixed), label_selector: None };
        let running = self.shared.active.lock().get(&id).and_then(Weak::upgrade);
        running.and_then(|running| running.stats().named_problem())
    }

    /// Stops every informer and waits until their tasks have ended. Handles stay valid and their stores readable.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl std::fmt::Debug for Informers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Informers").field("active", &self.shared.active.lock().len()).finish_non_exhaustive()
    }
}

impl Shared {
    fn start(self: &Arc<Self>, id: Id, epoch: Epoch) -> Active {
        let Id { kind, field_selector, label_selector } = id.clone();
        let store = Arc::new(Store::new(kind));
        let status = Arc::new(Status::new());
        let stop = self.stop.child_token();
        let number = epoch.number();
        let reflector = Reflector {
            kind,
            field_selector,
            label_selector,
            source: Arc::clone(&self.source),
            store: Arc::clone(&store),
            status: Arc::clone(&status),
            metrics: self.metrics.of(kind),
            stream: self.config.watch_list,
            timing: self.config.timing.clone(),
            reachability: Arc::clone(&self.reachability),
            epoch,
        };
        let task = supervise(reflector, self.config.min_resync_period, stop.clone());
        self.tasks.spawn_on(task, &self.runtime);
        Active { id, store, status, stop, epoch: number, of: Arc::downgrade(self) }
    }

    pub(super) fn stats(&self) -> Vec<InformerStats> {
        self.told(Active::stats, |stats| stats)
    }

    /// The same with the estimated size of what each holds, for metrics.
    pub(super) fn measured(&self) -> Vec<(InformerStats, usize)> {
        self.told(|active| (active.stats(), active.store.estimated_bytes()), |(stats, _)| stats)
    }

    fn told<T>(&self, of: impl Fn(&Active) -> T, stats: impl Fn(&T) -> &InformerStats) -> Vec<T> {
        // A handle that is dropped meanwhile takes the lock, so none may be dropped under it.
        let running: Vec<Arc<Active>> = self.active.lock().values().filter_map(Weak::upgrade).collect();
        let mut told: Vec<T> = running.iter().map(|active| of(active)).collect();
        told.sort_by(|a, b| {
            let (a, b) = (stats(a), stats(b));
            (a.kind.resource, a.kind.group, &a.field_selector).cmp(&(
                b.kind.resource,
                b.kind.group,
                &b.field_selector,
            ))
        });
        told
    }
}

impl Active {
    fn stats(&self) -> InformerStats {
        InformerStats::of(&self.store, self.id.field_selector.as_ref(), &self.status)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(shared) = self.of.upgrade() {
            let mut active = shared.active.lock();
            // By now there may be a successor of the same name.
            if active.get(&self.id).is_some_and(|held| held.strong_count() == 0) {
                active.remove(&self.id);
            }
            // Informers start under the same lock, so no informer keeps series that are removed here.
            let mut numbers = shared.numbers.lock();
            let labels = resource_labels(self.id.kind);
            match numbers.get_mut(&labels) {
                Some(number) if *number > 1 => *number -= 1,
                _ => {
                    numbers.remove(&labels);
                    shared.metrics.forget(self.id.kind);
                }
            }
        }
    }
}

/// A share in an informer: while there is one, the informer runs.
#[derive(Clone)]
pub struct InformerHandle {
    active: Arc<Active>,
}

impl InformerHandle {
    /// The informer's store. Kept beyond the last handle, it is readable and no longer kept up to date.
    pub fn store(&self) -> &Arc<Store> {
        &self.active.store
    }

    /// Registers a handler, which hears of all changes from here on, and of some objects that are there; `name` says in
    /// reports whose it is. It hears of the others by [`NewHandler::replayed`].
    pub fn add_handler(&self, name: &str, handler: EventHandler) -> NewHandler {
        let store = &self.active.store;
        let id = store.begin_handler(name, handler);
        let has_more = store.replay_slice(id);
        NewHandler { registration: Registration { store: Arc::downgrade(store), id }, has_more }
    }

    /// Whether the store has been complete at least once and every handler has been told.
    pub fn has_synced(&self) -> bool {
        self.active.status.progress() == Progress::Synced
    }

    /// Waits until the store has been complete once and every handler has been told.
    pub async fn wait_synced(&self) -> Result<(), InformerStopped> {
        let mut progress = self.active.status.subscribe();
        let reached = progress.wait_for(|progress| *progress != Progress::Syncing).await;
        match reached {
            Ok(Progress::Synced) => Ok(()),
            _ => Err(InformerStopped(self.active.id.kind)),
        }
    }

    /// Lets go of the informer and, if this was the last handle, waits until it has ended and its memory is free.
    pub async fn release(self) {
        let Some(last) = Arc::into_inner(self.active) else { return };
        let mut progress = last.status.subscribe();
        drop(last);
        // An error means that the task is gone, and the sender with it.
        let _ = progress.wait_for(|progress| *progress == Progress::Stopped).await;
    }

    /// How the informer is doing.
    pub fn stats(&self) -> InformerStats {
        self.active.stats()
    }
}

impl std::fmt::Debug for InformerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("InformerHandle").field(&self.active.id).finish()
    }
}

/// A handler that may have yet to hear of what was there when it was registered. It is taken off when this is dropped.
#[derive(Debug)]
#[must_use = "the handler is removed when its registration is dropped"]
pub struct NewHandler {
    registration: Registration,
    has_more: bool,
}

impl NewHandler {
    /// Tells the handler of everything that was there, in slices between which other tasks go on.
    pub async fn replayed(self) -> Registration {
        let Self { registration, mut has_more } = self;
        while has_more {
            yield_now().await;
            let store = registration.store.upgrade();
            has_more = store.is_some_and(|store| store.replay_slice(registration.id));
        }
        registration
    }
}

/// A registered handler, taken off when this is dropped: it is not called again once the drop returns. It does not
/// keep the informer running. The drop must not happen inside of a handler.
#[derive(Debug)]
#[must_use = "the handler is removed when its registration is dropped"]
pub struct Registration {
    store: Weak<Store>,
    id: HandlerId,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(store) = self.store.upgrade() {
            store.remove_handler(self.id);
        }
    }
}

/// Runs a reflector until it is stopped, again after every panic.
async fn supervise(reflector: Reflector, min_resync_period: Duration, stop: CancellationToken) {
    let begun = Instant::now();
    let mut backoff = Backoff::default();
    loop {
        backoff.well(begun.elapsed());
        let work = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = resync(&reflector.store, min_resync_period) => {}
                () = reflector.run() => {}
            }
        };
        let Err(panic) = AssertUnwindSafe(work).catch_unwind().await else { break };
        let panic = panic_text(panic.as_ref());
        tracing::error!(kind = %reflector.kind, %panic, "An informer panicked; restarting it");
        reflector.status.restarted(&panic);
        let pause = backoff.fail(begun.elapsed());
        if stop.run_until_cancelled(sleep(pause)).await.is_none() {
            break;
        }
    }
    reflector.store.remove_all_handlers();
    let status = Arc::clone(&reflector.status);
    drop(reflector);
    status.stopped();
}

/// Tells the handlers of everything once per period, which is drawn anew each time so that no two informers keep step.
async fn resync(store: &Store, min_period: Duration) {
    if min_period.is_zero() {
        return std::future::pending().await;
    }
    loop {
        sleep(min_period.mul_f64(1.0 + crate::random::fraction())).await;
        store.resync().await;
    }
}

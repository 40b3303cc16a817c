//! Watches that come and go: a controller that watches whatever the API has, custom resources included.
//!
//! A supervisor compares what discovery finds with what is watched, at the start and whenever discovery has been
//! reset (every 30 seconds), and starts and ends watches accordingly. Only metadata is asked for, except where some other
//! controller watches all objects of the resource in full: then their informer is shared. The room hears of changes as
//! it would from a watch of its own, always by the resource's metadata-only row ([`crate::api::dynamic`]).
//!
//! - While the resources of any version of a group can't be found out, the watches of that group stay as they are.
//! - When the server prefers another version, the old one's watch ends before the new one's begins. The room hears when the new
//!   one has shown all objects.
//! - Nothing outlives the controller: the supervisor is joined with its workers, and the informers are released.
//!
//! It knows no resource by name and never writes.

#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::FusedFuture as _;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::change::QueuedChange;
use super::instance::Watched;
use super::trace::{self, Causes};
use crate::api::{Kind, kinds};
pub use crate::client::ApiResource;
use crate::client::{ApiResources, Discovery, RestMapper};
use crate::informer::{Delta, EventHandler, InformerHandle, Informers, Registration, Store};
use crate::latest;
use crate::model::Key;
use crate::queue::WorkQueue;
use crate::random::{HashMap, HashSet};

/// How long the workers wait for the watches that were there at the start.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);
/// How soon discovery is asked again after it has failed as a whole.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Puts a key into the queue of this name, which must be one of the controller's own.
pub type Enqueue<'a> = &'a mut dyn FnMut(&str, Key);

/// Returns the row of a kind's resource in the version that the server prefers, see [`DynamicWatches::served_row`].
pub type ServedRow<'a> = &'a dyn Fn(&'static Kind) -> Result<Option<&'static Kind>, String>;

/// A controller's part in watches that come and go. What it is told runs in informers' tasks and in the supervisor: it
/// must not block. See "Locks" of the informers' store for what it may touch.
pub trait DynamicRoom: Send + Sync + 'static {
    /// Whether to watch a resource. It is asked of each in the version that the server prefers, if it can be listed and
    /// watched at all.
    fn wants(&self, resource: &ApiResource) -> bool;

    /// The row by which to watch the objects of `kind`, a metadata-only one, if the room reads more of them. It is of the
    /// same group, version and resource.
    fn in_full(&self, kind: &'static Kind) -> Option<&'static Kind> {
        let _ = kind;
        None
    }

    /// An object changed. The metadata of what `delta` holds is complete; of what type the objects are is not said.
    fn changed(&self, kind: &'static Kind, delta: Delta<'_>, enqueue: Enqueue<'_>);

    /// Objects of `kind` are not watched any more. Those that were there may still be, and the watch of another version may
    /// follow.
    fn forgotten(&self, kind: &'static Kind, enqueue: Enqueue<'_>);

    /// The room has heard of all objects of `kind` that were there when their watch began.
    fn synced(&self, kind: &'static Kind, enqueue: Enqueue<'_>) {
        let _ = (kind, enqueue);
    }

    /// Discovery has answered, and the watches are what it says. The supervisor calls this every 30 seconds.
    fn discovered(&self, served: ServedRow<'_>, enqueue: Enqueue<'_>) {
        let _ = (served, enqueue);
    }

    /// Discovery failed as a whole: watches stay as they are until it works again.
    fn failed(&self, error: &str) {
        let _ = error;
    }
}

/// The watches of a [`DynamicRoom`], as it and the admin API see them.
#[derive(Default)]
pub struct DynamicWatches {
    queues: OnceLock<Queues>,
    seen: RwLock<Seen>,
}

type Queues = Vec<QueueOf>;

/// A queue of the controller, by its name.
pub(super) struct QueueOf {
    pub(super) name: &'static str,
    pub(super) queue: Arc<WorkQueue<Key>>,
    /// What queued its keys, for traces.
    pub(super) causes: Arc<Causes>,
}

#[derive(Default)]
struct Seen {
    resources: Option<Arc<ApiResources>>,
    watched: Vec<(&'static Kind, Watched)>,
    /// The kinds whose watches began within the last 30 seconds, and when.
    begun: Vec<(&'static Kind, Instant)>,
}

impl DynamicWatches {
    /// What is watched now. The kind of a shared informer is the one in full.
    pub fn watched(&self) -> Vec<Watched> {
        self.seen.read().watched.iter().map(|(_, watched)| watched.clone()).collect()
    }

    /// Whether the objects of a kind are watched and all that were there have been told of.
    pub fn is_synced(&self, kind: &'static Kind) -> bool {
        self.seen.read().watched.iter().any(|(held, watched)| *held == kind && watched.is_synced())
    }

    /// The kinds that are watched, and whether all objects that were there have been told of.
    pub fn kinds(&self) -> Vec<(&'static Kind, bool)> {
        self.seen.read().watched.iter().map(|(kind, watched)| (*kind, watched.is_synced())).collect()
    }

    /// Whether watches of this group began less than 30 seconds ago and one of them has not synced. An API that returns shows its objects in
    /// any order, a dependent maybe later than its owner.
    pub fn is_settling(&self, group: &str) -> bool {
        let seen = self.seen.read();
        let is_synced = |kind: &'static Kind| {
            // Linear: both are the kinds of the cluster, for an orphaning owner within 30 seconds.
            seen.watched.iter().any(|(held, watched)| std::ptr::eq(*held, kind) && watched.is_synced())
        };
        let settles =
            |(kind, at): &(&'static Kind, Instant)| at.elapsed() < SETTLE_WITHIN && !is_synced(kind);
        seen.begun.iter().filter(|(kind, _)| kind.group == group).any(settles)
    }

    /// What holds the objects of a resource that is watched, in whatever version. [`Store::is_filled`] returns whether a
    /// complete list was received.
    pub fn store(&self, group: &str, resource: &str) -> Option<Arc<Store>> {
        let seen = self.seen.read();
        let held = seen.watched.iter().find(|(kind, _)| kind.group == group && kind.resource == resource);
        held.map(|(_, watched)| Arc::clone(watched.store()))
    }

    /// The metadata-only row of the resource that has objects of this `apiVersion` and `kind`, as of the last discovery;
    /// an error says why there is none.
    pub fn kind_of(&self, api_version: &str, kind: &str) -> Result<&'static Kind, String> {
        let Some(resources) = self.seen.read().resources.clone() else {
            return Err("the API resources are not discovered yet".to_owned());
        };
        let mapper = RestMapper::new(resources);
        match mapper.resource_for_api_version(api_version, kind) {
            Some(resource) => Ok(resource.metadata_kind()),
            None if mapper.may_be_missing(api_version) => {
                Err(format!("discovery of the resources of {api_version} failed"))
            }
            None => Err(format!("{api_version} has no kind {kind}")),
        }
    }

    /// The metadata-only row of a kind's resource in the version that the server prefers, as of the last discovery. `None`: no
    /// version of it is served. An error says why that is not known.
    pub fn served_row(&self, kind: &'static Kind) -> Result<Option<&'static Kind>, String> {
        let Some(resources) = self.seen.read().resources.clone() else {
            return Err("the API resources are not discovered yet".to_owned());
        };
        let mapper = RestMapper::new(Arc::clone(&resources));
        match mapper.resource(kind.group, None, kind.resource) {
            Some(resource) => Ok(Some(resource.metadata_kind())),
            None if resources.has_failed_group(kind.group) => {
                Err(format!("discovery of the resources of group {} failed", kind.group))
            }
            None => Ok(None),
        }
    }

    /// Puts a key into the controller's queue of this name. Before the controller is built there is none.
    pub fn enqueue(&self, queue: &str, key: Key) {
        if let Some(held) = self.queue(queue) {
            held.queue.add(key);
        } else {
            no_such_queue(queue, &key);
        }
    }

    fn queue(&self, name: &str) -> Option<&QueueOf> {
        self.queues.get()?.iter().find(|held| held.name == name)
    }

    /// Tells a room of a change, and the causes of the keys that it queues for that.
    fn tell(&self, room: &dyn DynamicRoom, kind: &'static Kind, delta: Delta<'_>) {
        let mut change = QueuedChange::new(kind, &delta);
        room.changed(kind, delta, &mut |queue, key| match self.queue(queue) {
            Some(held) => change.puts(key, &held.queue, &held.causes, Duration::ZERO),
            None => no_such_queue(queue, &key),
        });
    }
}

fn no_such_queue(queue: &str, key: &Key) {
    tracing::error!(queue, %key, "Dropped a key for an unknown queue");
}

impl std::fmt::Debug for DynamicWatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.kinds()).finish()
    }
}

/// Starts and ends the watches of one room.
pub(super) struct Supervisor {
    controller: &'static str,
    room: Arc<dyn DynamicRoom>,
    watches: Arc<DynamicWatches>,
    informers: Informers,
    discovery: Arc<Discovery>,
    stop: CancellationToken,
    settled: latest::Sender<bool>,
    running: Mutex<Vec<Running>>,
}

/// Whether discovery found nothing, and did not fail.
fn is_bare(resources: &ApiResources) -> bool {
    resources.preferred().is_empty() && resources.failures().next().is_none()
}

/// One running watch. The handler is off before the informer is let go.
struct Running {
    kind: &'static Kind,
    /// Whether the room knows that it has heard of all objects.
    is_told: bool,
    registration: Registration,
    handle: InformerHandle,
}

/// Whether a watch of the kind begins. `held` is the row by which its resource is watched; while a version of the group cannot be
/// discovered, it stays.
fn begins(resources: &ApiResources, kind: &'static Kind, held: Option<&'static Kind>) -> bool {
    held.is_none_or(|held| !std::ptr::eq(held, kind) && !resources.has_failed_group(kind.group))
}

impl Supervisor {
    pub(super) fn new(
        controller: &'static str,
        (room, watches): (Arc<dyn DynamicRoom>, Arc<DynamicWatches>),
        queues: Queues,
        informers: &Informers,
        discovery: &Arc<Discovery>,
    ) -> Self {
        // A room asks for its watches once, before its loops are there.
        let _ = watches.queues.set(queues);
        Self {
            controller,
            room,
            watches,
            informers: informers.clone(),
            discovery: Arc::clone(discovery),
            stop: CancellationToken::new(),
            settled: latest::Sender::new(false),
            running: Mutex::default(),
        }
    }

    pub(super) fn watches(&self) -> &Arc<DynamicWatches> {
        &self.watches
    }

    /// Works until [`Supervisor::stop`].
    pub(super) async fn run(self: Arc<Self>) {
        let _ = self.stop.run_until_cancelled(Box::pin(self.supervise())).await;
    }

    /// Waits until the watches that were there at the start have synced, or long enough.
    pub(super) async fn settled(&self) {
        // An error means that the sender is gone, and it is ours.
        let _ = self.settled.subscribe().wait_for(|settled| *settled).await;
    }

    /// Ends [`Supervisor::run`].
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends all watches, after [`Supervisor::run`] has ended. The room is not told.
    pub(super) async fn release(&self) {
        let running = std::mem::take(&mut *self.running.lock());
        *self.watches.seen.write() = Seen::default();
        for Running { registration, handle, .. } in running {
            drop(registration);
            handle.release().await;
        }
    }

    async fn supervise(&self) {
        let mut resets = self.discovery.resets();
        let mut look = pin!(self.look().fuse());
        let begun = async {
            look.as_mut().await;
            self.wait_synced().await;
        };
        if timeout_at(Instant::now() + SETTLE_WITHIN, begun).await.is_err() {
            let behind: Vec<String> = self.behind().iter().map(ToString::to_string).collect();
            let behind = behind.join(", ");
            tracing::warn!(controller = self.controller, behind, "Starting before these caches are synced");
        }
        self.settled.send_replace(true);
        // The timeout must not cancel the look: a handler with half a replay would miss the other objects and their deletion.
        if !look.is_terminated() {
            look.await;
        }
        // What was reset while the first watches synced is looked at now.
        while resets.changed().await.is_ok() {
            self.look().await;
        }
    }

    /// Waits until all watches have synced.
    async fn wait_synced(&self) {
        let handles: Vec<InformerHandle> =
            self.running.lock().iter().map(|running| running.handle.clone()).collect();
        for handle in handles {
            // An informer that has stopped is no reason to wait: the process is ending.
            let span = trace::sync(self.controller, handle.store(), handle.has_synced());
            let _ = handle.wait_synced().instrument(span).await;
        }
        self.tell_synced();
    }

    /// Tells the room of watches that have synced.
    fn tell_synced(&self) {
        let mut synced = Vec::new();
        for held in self.running.lock().iter_mut() {
            if !held.is_told && held.handle.has_synced() {
                held.is_told = true;
                synced.push(held.kind);
            }
        }
        for kind in synced {
            self.room.synced(kind, &mut |queue, key| self.watches.enqueue(queue, key));
        }
    }

    fn behind(&self) -> Vec<&'static Kind> {
        self.watches.kinds().into_iter().filter(|(_, synced)| !synced).map(|(kind, _)| kind).collect()
    }

    /// Makes the watches what discovery says now. Tries until discovery answers.
    async fn look(&self) {
        let resources = loop {
            match self.discovery.resources().await {
                // Every API server has resources. An API server that starts may answer before it has any, and all watches would end.
                Ok(resources) if is_bare(&resources) => {
                    let error = "the API server returned no resources";
                    tracing::warn!(
                        controller = self.controller,
                        error,
                        "Discovery returned no resources; keeping the current watches"
                    );
                    self.room.failed(error);
                    sleep(ASK_AGAIN).await;
                }
                Ok(resources) => break resources,
                Err(error) => {
                    tracing::warn!(controller = self.controller, %error, "Discovery failed; keeping the current watches");
                    self.room.failed(&error.to_string());
                    sleep(ASK_AGAIN).await;
                }
            }
        };
        for failure in resources.failures() {
            tracing::warn!(controller = self.controller, error = %failure, "Discovery of an API group failed; keeping its watches");
        }
        self.watches.seen.write().resources = Some(Arc::clone(&resources));
        let wanted = self.wanted(&resources);
        self.end_unwanted(&resources, &wanted).await;
        let held: HashMap<(&str, &str), &'static Kind> = self
            .running
            .lock()
            .iter()
            .map(|held| ((held.kind.group, held.kind.resource), held.kind))
            .collect();
        let wanted: Vec<(&'static Kind, Option<&'static Kind>)> =
            wanted.into_iter().map(|kind| (kind, held.get(&(kind.group, kind.resource)).copied())).collect();
        self.note_begun(&resources, &wanted);
        for (kind, held) in wanted {
            self.begin_or_share(&resources, kind, held).await;
        }
        self.show();
        self.tell_synced();
        let watches = &self.watches;
        self.room.discovered(&|kind| watches.served_row(kind), &mut |queue, key| watches.enqueue(queue, key));
    }

    fn wanted(&self, resources: &ApiResources) -> Vec<&'static Kind> {
        let preferred = resources.preferred().into_iter();
        let wanted = preferred.filter(|held| held.supports(&["list", "watch"]) && self.room.wants(held));
        wanted.map(ApiResource::metadata_kind).collect()
    }

    async fn end_unwanted(&self, resources: &ApiResources, wanted: &[&'static Kind]) {
        // By address: a resource that was defined anew may differ in its scope alone.
        let address = |kind: &'static Kind| std::ptr::from_ref(kind).addr();
        let wanted: HashSet<usize> = wanted.iter().map(|&kind| address(kind)).collect();
        let stays = |running: &Running| {
            wanted.contains(&address(running.kind)) || resources.has_failed_group(running.kind.group)
        };
        let ended: Vec<Running> = {
            let mut running = self.running.lock();
            let (stay, end) = std::mem::take(&mut *running).into_iter().partition(stays);
            *running = stay;
            end
        };
        if ended.is_empty() {
            return;
        }
        self.show();
        for Running { kind, registration, handle, .. } in ended {
            tracing::info!(controller = self.controller, %kind, version = kind.version, "Stopped watching a resource");
            drop(registration);
            self.room.forgotten(kind, &mut |queue, key| self.watches.enqueue(queue, key));
            handle.release().await;
        }
    }

    /// Notes the kinds whose watches are about to begin. A kind whose watch does not begin is not noted: it would settle as long as its
    /// group is incomplete.
    fn note_begun(&self, resources: &ApiResources, wanted: &[(&'static Kind, Option<&'static Kind>)]) {
        let at = Instant::now();
        let begun = wanted.iter().filter(|(kind, held)| begins(resources, kind, *held));
        let mut seen = self.watches.seen.write();
        seen.begun.retain(|(_, since)| since.elapsed() < SETTLE_WITHIN);
        seen.begun.extend(begun.map(|(kind, _)| (*kind, at)));
    }

    /// `held` is the row by which the resource is watched.
    async fn begin_or_share(
        &self,
        resources: &ApiResources,
        kind: &'static Kind,
        held: Option<&'static Kind>,
    ) {
        if held.is_some_and(|held| std::ptr::eq(held, kind)) {
            self.share(kind).await;
        } else if begins(resources, kind, held) {
            let row = self.room.in_full(kind).or_else(|| self.in_full(kind));
            let handle = self.informers.acquire(row.unwrap_or(kind), None);
            let registration = handle.add_handler(self.controller, self.handler(kind)).replayed().await;
            let watched = Watched::of(handle.store());
            self.running.lock().push(Running { kind, is_told: false, registration, handle });
            // The room may want to know of its watches from the first object on.
            self.watches.seen.write().watched.push((kind, watched));
        }
    }

    /// The row by which somebody watches all of the resource's objects, and keeps more of them.
    fn in_full(&self, kind: &'static Kind) -> Option<&'static Kind> {
        let same = |held: &&&'static Kind| held.is_of_resource(kind);
        let row = kinds::ALL.iter().find(same)?;
        self.informers.is_running(row, None).then_some(*row)
    }

    /// Changes over to an informer of somebody else's, if there is one by now.
    async fn share(&self, kind: &'static Kind) {
        let Some(row) = self.in_full(kind) else { return };
        let own = |held: &Running| held.kind == kind && held.handle.store().kind() == kind;
        if !self.running.lock().iter().any(own) {
            return;
        }
        let handle = self.informers.acquire(row, None);
        if !handle.has_synced() {
            handle.release().await;
            return;
        }
        let registration = handle.add_handler(self.controller, self.handler(kind)).replayed().await;
        let Some(before) = ({
            let mut running = self.running.lock();
            let at = running.iter().position(own);
            at.map(|at| {
                std::mem::replace(&mut running[at], Running { kind, is_told: false, registration, handle })
            })
        }) else {
            return;
        };
        drop(before.registration);
        self.tell_lost(kind, &before.handle);
        self.show();
        before.handle.release().await;
    }

    /// What the informer before held and the present one does not: it went, or it came and the present one is behind.
    /// Then it is told of again in a moment.
    fn tell_lost(&self, kind: &'static Kind, before: &InformerHandle) {
        let present = {
            let running = self.running.lock();
            let present = running.iter().find(|held| std::ptr::eq(held.kind, kind));
            present.map(|held| Arc::clone(held.handle.store()))
        };
        let Some(present) = present else { return };
        for object in before.store().list() {
            let held = present.get(&Key::of(object.meta()));
            if held.is_none_or(|held| held.meta().uid != object.meta().uid) {
                let delta = Delta { old: Some(&object), new: None, initial: false, resync: false };
                self.watches.tell(self.room.as_ref(), kind, delta);
            }
        }
    }

    fn handler(&self, kind: &'static Kind) -> EventHandler {
        let (room, watches) = (Arc::clone(&self.room), Arc::clone(&self.watches));
        Arc::new(move |delta| watches.tell(room.as_ref(), kind, delta))
    }

    /// Lets others see what is watched.
    fn show(&self) {
        let running = self.running.lock();
        let watched = running.iter().map(|held| (held.kind, Watched::of(held.handle.store())));
        self.watches.seen.write().watched = watched.collect();
    }
}

//! Replicas: each announces itself with a Lease, as API servers do, and knows all others.
//!
//! The Leases are `kube-system/coxswain-replica-N`, labeled `coxswain.dev/component: replica`. Each names its replica's
//! identity in the leader election, since when the process runs, and, in annotations, where it serves the admin API. At
//! a clean stop it is deleted, or, without the credentials for that, released for the next replica to take. What a
//! replica leaves that was killed is removed by the leader.
//!
//! Nothing depends on it but the admin API: whatever fails is reported and tried again. It never writes a Lease without
//! the label, and leadership is not its business.

mod advertise;
mod board;
mod format;
mod slot;
mod store;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

pub(super) use advertise::advertised_host;
use board::{Board, TRY_AGAIN};
pub use format::{
    ADMIN_ADDRESS_ANNOTATION, ADMIN_CA_ANNOTATION, Announcement, LEASE_ANNOTATION, REPLICA_NAME_PREFIX,
    REPLICA_NAMESPACE, REPLICA_SELECTOR, SELECTION_ANNOTATION, VERSION_ANNOTATION,
};
use format::{LEASE_DURATION, Own, is_replicas};
use slot::Slot;
use store::{ApiStore, LeaseStore};

use super::leadership::Leases;
use crate::admin::Group;
use crate::admin::manager::ReplicaState;
use coxswain_machinery::api::coordination::Lease;
use coxswain_machinery::api::kinds::LEASES;
use coxswain_machinery::client::FieldSelector;
use coxswain_machinery::framework::Runtime;
use coxswain_machinery::informer::{Delta, Informers, downcast};
use coxswain_machinery::latest;
use coxswain_machinery::model::backoff::ExponentialBackoff;
use coxswain_machinery::model::clock::SharedClock;
use coxswain_machinery::options::versions::COXSWAIN;

/// Time between two signs of life.
const RENEW: Duration = Duration::from_secs(10);
/// The wait after a failure.
const RETRY: ExponentialBackoff = ExponentialBackoff::doubling(Duration::from_secs(1), RENEW);
/// How long a try under way at the end may still take: cut off, it might leave a Lease that nobody knows.
const LAST_TRY: Duration = Duration::from_secs(2);

/// Tells whether this replica leads.
type Leads = Arc<dyn Fn() -> bool + Send + Sync>;

/// Returns the identity of the holder of the main Lease; empty if nobody is known to hold it.
type Holder = Arc<dyn Fn() -> String + Send + Sync>;

/// This replica and all others of its group.
pub struct Replicas {
    own: Own,
    clock: SharedClock,
    store: Arc<dyn LeaseStore>,
    leads: Leads,
    holder: Holder,
    announcement: latest::Sender<Announcement>,
    board: Mutex<Board>,
    /// When this replica has renewed last.
    renewed: Mutex<Timestamp>,
    /// Wakes whoever judges: something was seen.
    seen: Notify,
    /// The others as they were told of last, without signs of life.
    told: Mutex<Vec<ReplicaState>>,
    changes: latest::Sender<u64>,
}

impl std::fmt::Debug for Replicas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replicas").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Replicas {
    /// The replicas of the cluster, this one being called `identity`; nothing is written before [`Self::run`].
    pub(super) fn new(
        identity: String,
        started: Timestamp,
        group: Group,
        leases: Arc<Leases>,
        runtime: &Arc<Runtime>,
    ) -> Self {
        let store = Arc::new(ApiStore::new(Arc::clone(runtime)));
        let main = Arc::clone(&leases);
        let holder: Holder = Arc::new(move || {
            let record = main.list().into_iter().next().and_then(|main| main.record);
            record.map(|record| record.holder.to_string()).unwrap_or_default()
        });
        let leads: Leads = Arc::new(move || leases.is_leading());
        let selection = runtime.config.selection_digest();
        let own = Own { identity, started, selection, group };
        Self::on(store, (leads, holder), own, Arc::clone(&runtime.clock))
    }

    fn on(
        store: Arc<dyn LeaseStore>,
        (leads, holder): (Leads, Holder),
        own: Own,
        clock: SharedClock,
    ) -> Self {
        Self {
            renewed: Mutex::new(own.started),
            own,
            clock,
            store,
            leads,
            holder,
            announcement: latest::Sender::default(),
            board: Mutex::default(),
            seen: Notify::new(),
            told: Mutex::default(),
            changes: latest::Sender::default(),
        }
    }

    /// Sets what this replica tells of itself. It may change while it runs.
    pub fn announce(&self, announcement: Announcement) {
        self.announcement.send_if_modified(|held| {
            let changed = *held != announcement;
            *held = announcement;
            changed
        });
        self.tell();
    }

    /// This replica's identity, in the leader election too if there is one.
    pub fn identity(&self) -> &str {
        &self.own.identity
    }

    /// All replicas of this one's group that have announced themselves, by identity, and this one in any case.
    pub fn list(&self) -> Vec<ReplicaState> {
        let mut all = self.board.lock().others(&self.own.identity, Instant::now());
        let holder = (self.holder)();
        all.retain(|replica| self.own.group.includes(replica, &holder));
        all.push(ReplicaState {
            identity: self.own.identity.clone(),
            admin_address: self.announcement.borrow().admin_address.clone().unwrap_or_default(),
            version: COXSWAIN.to_owned(),
            lease: self.own.group.lease(),
            selection: self.own.selection.clone(),
            started: self.own.started,
            renewed: *self.renewed.lock(),
            lease_duration: LEASE_DURATION,
            live: true,
        });
        all.sort_by(|a, b| a.identity.cmp(&b.identity));
        all
    }

    /// Changes whenever a replica comes, goes, dies, lives again or says something new of itself; not with mere
    /// renewals. The number means nothing.
    pub fn changes(&self) -> latest::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Announces this replica and follows the others until `stop`; then withdraws its Lease, which takes seconds at
    /// most. On leaders and standbys alike.
    pub(super) async fn run(self: Arc<Self>, informers: Informers, stop: CancellationToken) {
        let here = FieldSelector::equals("metadata.namespace", REPLICA_NAMESPACE);
        let leases = informers.acquire_selected(&LEASES, Some(here), Some(REPLICA_SELECTOR));
        let board = Arc::clone(&self);
        let handler = move |delta: Delta<'_>| match (delta.new, delta.old) {
            (Some(lease), _) => board.see(downcast(Arc::clone(lease))),
            (None, Some(gone)) => board.see_gone(&gone.meta().name),
            (None, None) => {}
        };
        let _told = leases.add_handler("replicas", Arc::new(handler)).replayed().await;
        // Whoever takes a name without having seen which are taken would make one more.
        let synced = stop.run_until_cancelled(leases.wait_synced()).await;
        if matches!(synced, Some(Ok(()))) {
            self.keep(&stop).await;
        }
    }

    /// Takes note of a Lease. Called from the informer's task: never blocks.
    fn see(&self, lease: Option<Arc<Lease>>) {
        if let Some(lease) = lease.filter(|lease| is_replicas(lease)) {
            self.board.lock().put(&lease, Instant::now());
            self.tell();
            self.seen.notify_one();
        }
    }

    fn see_gone(&self, name: &str) {
        self.board.lock().remove(name);
        self.tell();
        self.seen.notify_one();
    }

    /// Says so if the replicas are not what they were.
    fn tell(&self) {
        let mut told = self.told.lock();
        let mut now = self.list();
        for each in &mut now {
            each.renewed = each.started;
        }
        if *told != now {
            *told = now;
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Gives signs of life and judges those of the others, until `stop`.
    async fn keep(&self, stop: &CancellationToken) {
        let slot = |held| Slot {
            store: Arc::clone(&self.store),
            own: self.own.clone(),
            clock: Arc::clone(&self.clock),
            held,
        };
        let (mut own, others) = (slot(None), slot(None));
        tokio::join!(
            async {
                self.keep_announced(&mut own, stop).await;
                own.withdraw().await;
            },
            async { stop.run_until_cancelled(self.keep_judging(&others)).await },
        );
    }

    async fn keep_announced(&self, slot: &mut Slot, stop: &CancellationToken) {
        let mut announcement = self.announcement.subscribe();
        let mut failures = 0;
        while !stop.is_cancelled() {
            let says = announcement.borrow_and_update().clone();
            let now = self.clock.now();
            let mut attempt = Box::pin(slot.announce(&self.board, &says));
            let announced = tokio::select! {
                biased;
                announced = &mut attempt => announced,
                () = stop.cancelled() => {
                    if timeout(LAST_TRY, attempt).await.is_err() {
                        tracing::debug!("A renewal of the replica's Lease did not complete before shutdown");
                    }
                    return;
                }
            };
            drop(attempt);
            let pause = match announced {
                Ok(()) => {
                    *self.renewed.lock() = now;
                    failures = 0;
                    RENEW
                }
                Err(error) => {
                    let pause = RETRY.next(&mut failures);
                    tracing::warn!(%error, again_in = ?pause, "Failed to announce this replica; retrying");
                    pause
                }
            };
            // Not all replicas at once.
            let pause = pause.mul_f64(coxswain_machinery::random::within(0.9..1.1));
            tokio::select! {
                biased;
                () = sleep(pause) => {}
                _ = announcement.changed() => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Notices who dies, and removes, while this replica leads, what the dead have left.
    async fn keep_judging(&self, slot: &Slot) {
        loop {
            self.tell();
            let remains = || {
                !self
                    .board
                    .lock()
                    .remains(&self.own.identity, self.store.may_delete(), Instant::now())
                    .is_empty()
            };
            let mut again = None;
            if remains() {
                if (self.leads)() {
                    slot.collect(&self.board).await;
                }
                // The watch shows what came of it; a failure, or another leader, is looked at again.
                again = Some(Instant::now() + TRY_AGAIN);
            }
            let next = self.board.lock().next_change(Instant::now()).into_iter().chain(again).min();
            let due = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => {}
                () = self.seen.notified() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Whether the caches are fresh enough for a key to be reconciled, and what wakes the keys for which they are not.
//!
//! A key that has to wait is queued by the cache itself, as soon as that shows what the key waits for. What may have been
//! written without an answer is looked up by a live read, which serves all keys that wait for the same place. Nobody polls,
//! and nothing here knows what a key stands for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::caches::Caches;
use super::expectations::{Expectations, LiveObjects, MAY_STILL_LAND, Readiness, Unanswered};
use crate::api::Kind;
use crate::client::{ApiClient, ApiError, FieldSelector, ListQuery};
use crate::informer::Awaited;
use crate::model::Key;
use crate::model::backoff::ExponentialBackoff;
use crate::queue::WorkQueue;
use crate::random::HashMap;
use crate::wire::ObjectHead;

/// Objects per page of a live read.
const LIVE_PAGE: u32 = 500;
/// The pause after a live read has failed, for all keys that wait for the same place.
const AFTER_FAILURE: ExponentialBackoff =
    ExponentialBackoff::doubling(Duration::from_secs(1), Duration::from_secs(15));

/// Where a live read looks: a kind, and a namespace or an object of it.
type Place = (&'static Kind, Key);

/// The expectations of one loop over the caches that the present instance reads.
pub(super) struct Freshness {
    pub(super) caches: Caches,
    pub(super) expectations: Arc<Expectations>,
    queue: Arc<WorkQueue<Key>>,
    /// Reads what a controller's own role may not list; never writes.
    observer: ApiClient,
    /// For how long a key waits at most, see [`LoopSettings::longest_wait`](super::LoopSettings::longest_wait).
    pub(super) longest_wait: Option<Duration>,
    waiting: Mutex<HashMap<Key, WaitingKey>>,
    /// The live reads that are under way, and the keys to queue when they have ended.
    reads: Mutex<HashMap<Place, Vec<Key>>>,
    /// The places whose last live read has failed.
    pub(super) failed: Mutex<HashMap<Place, FailedRead>>,
}

/// A live read that has failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedRead {
    /// Failures in a row.
    failures: u32,
    /// When the place may be read again.
    until: Instant,
}

/// A key that waits for a cache.
#[derive(Clone, Debug)]
pub(super) struct WaitingKey {
    /// The kind whose cache it waits for.
    kind: &'static Kind,
    /// Since when.
    since: Instant,
    /// When the first of the changes came for which it is to be reconciled.
    pub(super) changed_at: Option<Instant>,
    /// What wakes it, and whether it has.
    woken_by: Option<(&'static Kind, Awaited, Arc<AtomicBool>)>,
}

/// A key that waits for the cache of a kind, for people who ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyWait {
    /// The key.
    pub key: Key,
    /// The kind.
    pub kind: &'static Kind,
    /// For how long it has waited.
    pub age: Duration,
}

impl WaitingKey {
    fn for_cache(kind: &'static Kind) -> Self {
        Self { kind, since: Instant::now(), changed_at: None, woken_by: None }
    }
}

impl Freshness {
    pub(super) fn new(
        caches: Caches,
        expectations: Arc<Expectations>,
        queue: Arc<WorkQueue<Key>>,
        observer: ApiClient,
    ) -> Self {
        Self {
            caches,
            expectations,
            queue,
            observer,
            longest_wait: None,
            waiting: Mutex::default(),
            reads: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// Whether `key` has to wait for what is expected of `expecting`, and for the cache of which kind: it is queued when that
    /// has seen the last writes. An error means that a live read failed.
    pub(super) async fn hold(&self, expecting: &Key, key: &Key) -> Result<Option<&'static Kind>, ApiError> {
        loop {
            let readiness = match self.expectations.check(expecting, &self.caches) {
                Readiness::Ready => Readiness::Ready,
                _ if self.is_over(expecting, key) => Readiness::Ready,
                readiness => readiness,
            };
            match readiness {
                Readiness::Ready => {
                    self.expectations.met(expecting);
                    self.waiting.lock().remove(key);
                    return Ok(None);
                }
                Readiness::Waiting(kind, awaited) => {
                    self.wake_when_shown(key, kind, awaited);
                    return Ok(Some(kind));
                }
                Readiness::Unanswered(lost) => {
                    if !self.look_up(key, &lost).await? {
                        self.waiting
                            .lock()
                            .entry(key.clone())
                            .or_insert_with(|| WaitingKey::for_cache(lost.kind));
                        return Ok(Some(lost.kind));
                    }
                }
            }
        }
    }

    /// Whether `key` has waited for as long as it waits at most. If not, it is queued when it has.
    fn is_over(&self, expecting: &Key, key: &Key) -> bool {
        let Some(longest) = self.longest_wait else { return false };
        let left = longest.saturating_sub(self.expectations.waited(expecting));
        if left.is_zero() {
            if !longest.is_zero() {
                tracing::warn!(object = %key, "The caches did not observe a write in time; no longer waiting for it");
            }
            return true;
        }
        self.queue.add_after(key.clone(), left);
        false
    }

    /// The key, if it waited when it was looked at last.
    pub(super) fn waiting(&self, key: &Key) -> Option<WaitingKey> {
        self.waiting.lock().get(key).cloned()
    }

    /// How many keys wait.
    pub(super) fn waiting_keys(&self) -> usize {
        self.waiting.lock().len()
    }

    /// The keys that wait, at most `limit`, those that have waited longest first. Takes time in proportion to their number.
    pub(super) fn longest_waiting(&self, limit: usize) -> Vec<KeyWait> {
        let mut waiting: Vec<(Instant, KeyWait)> = {
            let (held, now) = (self.waiting.lock(), Instant::now());
            let told = |(key, &WaitingKey { kind, since, .. }): (&Key, &WaitingKey)| {
                (since, KeyWait { key: key.clone(), kind, age: now.duration_since(since) })
            };
            held.iter().map(told).collect()
        };
        waiting.sort_by(|(a, this), (b, other)| a.cmp(b).then_with(|| this.key.cmp(&other.key)));
        waiting.into_iter().map(|(_, wait)| wait).take(limit).collect()
    }

    /// A key that waits is to be reconciled for a change that came then.
    pub(super) fn keep(&self, key: &Key, changed_at: Option<Instant>) {
        if let Some(waiting) = self.waiting.lock().get_mut(key) {
            waiting.changed_at = changed_at;
        }
    }

    fn wake_when_shown(&self, key: &Key, kind: &'static Kind, awaited: Awaited) {
        let woken = Arc::new(AtomicBool::new(false));
        {
            let mut waiting = self.waiting.lock();
            let entry = waiting.entry(key.clone()).or_insert_with(|| WaitingKey::for_cache(kind));
            entry.kind = kind;
            let woken_by = &mut entry.woken_by;
            let is_pending = woken_by.as_ref().is_some_and(|(held, by, woken)| {
                *held == kind && *by == awaited && !woken.load(Ordering::Acquire)
            });
            if is_pending {
                return;
            }
            *woken_by = Some((kind, awaited.clone(), Arc::clone(&woken)));
        }
        // The store may outlive this instance of the controller.
        let (queue, key) = (Arc::downgrade(&self.queue), key.clone());
        let wake = move || {
            woken.store(true, Ordering::Release);
            if let Some(queue) = queue.upgrade() {
                queue.add(key);
            }
        };
        self.caches.when_shown(kind, awaited, Box::new(wake));
    }

    /// Reads what may have been written, unless it is too early or somebody does: then the key is queued in time.
    async fn look_up(&self, key: &Key, lost: &Unanswered) -> Result<bool, ApiError> {
        let began = Instant::now();
        let early = lost.readable_at().map_or(MAY_STILL_LAND, |at| at.saturating_duration_since(began));
        if !early.is_zero() {
            self.queue.add_after(key.clone(), early);
            return Ok(false);
        }
        let place = (lost.kind, lost.place.clone());
        if let Some(left) = self.pause_after_failure(&place, began) {
            self.queue.add_after(key.clone(), left);
            return Ok(false);
        }
        let Some(_reading) = self.begin_read(key, lost) else { return Ok(false) };
        let live = self.read(lost.kind, &lost.place).await;
        self.note_read(place, live.is_err());
        let live = live?;
        self.expectations.found(lost.kind, &lost.place, began, &live, &self.caches);
        Ok(true)
    }

    /// How long a place is not read because its last live read has failed.
    fn pause_after_failure(&self, place: &Place, now: Instant) -> Option<Duration> {
        let until = self.failed.lock().get(place)?.until;
        Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Notes the end of a live read. All keys that wait for the place share the pause after a failure: each would repeat the same read.
    fn note_read(&self, place: Place, has_failed: bool) {
        let mut failed = self.failed.lock();
        if !has_failed {
            failed.remove(&place);
            return;
        }
        let now = Instant::now();
        // The keys that waited for the other places may be gone.
        failed.retain(|_, read| now.saturating_duration_since(read.until) < AFTER_FAILURE.longest);
        let read = failed.entry(place).or_insert(FailedRead { failures: 0, until: now });
        read.until = now + AFTER_FAILURE.next(&mut read.failures);
    }

    /// `None` if a live read of the same place is under way: the key is queued when that has ended.
    fn begin_read(&self, key: &Key, lost: &Unanswered) -> Option<PlaceRead<'_>> {
        let place = (lost.kind, lost.place.clone());
        let mut reads = self.reads.lock();
        if let Some(waiting) = reads.get_mut(&place) {
            waiting.push(key.clone());
            return None;
        }
        reads.insert(place.clone(), Vec::new());
        Some(PlaceRead { freshness: self, place })
    }

    async fn read(&self, kind: &'static Kind, place: &Key) -> Result<LiveObjects, ApiError> {
        let mut query = ListQuery {
            namespace: place.namespace.to_string(),
            field_selector: (!place.name.is_empty()).then(|| FieldSelector::name(&place.name)),
            limit: Some(LIVE_PAGE),
            ..ListQuery::default()
        };
        let mut live = LiveObjects::default();
        loop {
            let page = self.observer.list_metadata(kind, &query).await?;
            live.version = page.resource_version.parse().unwrap_or(0);
            for item in &page.items {
                let (head, error) = (ObjectHead::salvage(item), ObjectHead::read(item).err());
                // Without a UID it may be any of the objects that are looked for.
                if let Some(error) = error.filter(|_| head.uid.is_empty()) {
                    let (request, what) = (format!("list {kind}"), error.to_string());
                    return Err(ApiError::Malformed { request, what });
                }
                live.add(head.uid.into(), head.resource_version.parse().unwrap_or(0));
            }
            if page.continue_token.is_empty() {
                return Ok(live);
            }
            query.continue_token = Some(page.continue_token);
        }
    }
}

/// A live read that is under way. When it has ended, the keys that came meanwhile are queued.
struct PlaceRead<'a> {
    freshness: &'a Freshness,
    place: Place,
}

impl Drop for PlaceRead<'_> {
    fn drop(&mut self) {
        let waiting = self.freshness.reads.lock().remove(&self.place);
        for key in waiting.into_iter().flatten() {
            self.freshness.queue.add(key);
        }
    }
}

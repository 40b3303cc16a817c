//! The reflector: keeps one store equal to what the API server has, through every way in which a watch can end.
//!
//! [`machine`] decides, purely; this driver does the requests, decodes, and carries the effects out. It reads one event
//! at a time and awaits nothing but the API server, so the events' order is the store's order.
//!
//! # An object that can't be decoded
//! Strings can have any bytes ([`crate::wire::text`]), so only malformed protobuf can't be decoded, which no API server sends. The
//! object is neither dropped in silence nor allowed to stop the others: the store keeps the last state that could be read (taking it
//! out would tell controllers of a deletion that never was, and they would replace it), a write that rests on that state is refused
//! by its precondition, and the object is logged once, counted and makes the informer unhealthy until a state of it that can be read
//! arrives, or it is gone. The resource version moves on past it.
//!
//! The same holds for an object whose name can't be read: all of them are recorded under the empty name until the next list. A
//! deletion of such an object, or a frame that is no event, cannot be skipped: the watch is opened again at the last version, and
//! if that fails three times, the kind is listed again. In a list no object stops the others.

mod backoff;
mod frames;
mod machine;
mod reachability;
mod status;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument, Span};

use super::epochs::{CONFIRM_AFTER, Epoch};
use super::list_watch::ListWatch;
use super::metrics::KindMetrics;
use super::set::WatchTiming;
use super::store::{Store, StoreSnapshot};
use crate::api::meta::Status as ApiStatus;
use crate::api::{AnyObject, Kind, kinds};
use crate::client::{ApiError, FieldSelector, ListQuery, ResponseBody, WatchQuery};
use crate::model::Key;
use crate::random::HashMap;
use crate::telemetry::tracing::{child, set_failed};
use crate::wire::json::JsonError;
use crate::wire::{EventType, Message, ObjectHead, Str, WatchFrame, WireError};
pub(super) use backoff::Backoff;
pub(crate) use frames::Frames;
use machine::{Cause, Effects, Fault, Input, Next, Page, Request, State, StoreEffect};
use reachability::Outages;
pub(super) use reachability::Reachability;
pub(super) use status::{Progress, Status};

/// The annotation of the bookmark that ends the initial events (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// Objects per page of a list.
const PAGE_SIZE: u32 = 500;
/// Longest wait for the answer to a request. The API server's own limit for a list is a minute.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

/// Keeps a store up to date.
pub(super) struct Reflector {
    pub(super) kind: &'static Kind,
    pub(super) field_selector: Option<FieldSelector>,
    pub(super) label_selector: Option<String>,
    pub(super) source: Arc<dyn ListWatch>,
    pub(super) store: Arc<Store>,
    pub(super) status: Arc<Status>,
    pub(super) metrics: KindMetrics,
    /// Whether to ask for the initial state as a stream (the `WatchListClient` feature).
    pub(super) stream: bool,
    pub(super) timing: WatchTiming,
    /// What it shares with the others of its set.
    pub(super) reachability: Arc<Reachability>,
    /// The epoch in which it was started.
    pub(super) epoch: Epoch,
}

/// An open watch.
struct Watch {
    body: ResponseBody,
    frames: Frames,
    /// How long it may be silent once the initial events are through.
    silence: Duration,
}

/// A list in progress.
#[derive(Default)]
struct Collected {
    objects: StoreSnapshot,
    unreadable: HashMap<Key, String>,
}

/// What came with an input, for the store effects to work on.
enum Received {
    Nothing,
    Page(Vec<Item>),
    Event(EventType, Item),
}

/// One object received.
enum Item {
    Object(AnyObject),
    Unreadable { key: Key, version: Str, error: String },
}

/// A failure, with what is to be said about it.
struct Failure {
    fault: Fault,
    error: String,
}

/// Within this time the watches of metadata come back after an outage. There may be one for each of hundreds of custom resources, and they
/// follow the watches that workloads and nodes depend on.
const SPREAD_OF_METADATA: Duration = Duration::from_secs(2);
/// Reads that are tried to confirm that a list is older than the cache.
const CONFIRMATIONS: u32 = 30;
/// When an epoch ends, controllers drop their informers and start new ones. Informers that are still held after this time list again.
const RELIST_AFTER: Duration = Duration::from_secs(2);

impl Reflector {
    /// Runs for ever; ends by being dropped.
    pub(super) async fn run(&self) {
        let begun = Instant::now();
        let mut epoch = self.epoch.clone();
        let mut over = Box::pin(relist(epoch.clone()));
        // The epoch of the last complete list.
        let mut listed_in = None;
        // After a restore, a list from the cache of an API server that lags could lack what was written since then.
        let may_hold_something = self.store.is_filled() || epoch.number() > 0;
        let mut state = State::new(self.stream, may_hold_something, Backoff::up_to(self.timing.pause));
        if self.kind.metadata_only {
            state = state.called_within(SPREAD_OF_METADATA);
        }
        let mut watch: Option<Watch> = None;
        let mut asked_in = self.reachability.outages();
        let mut collected = Collected::default();
        let mut input = Input::Begin;
        let mut received = Received::Nothing;
        let mut received_at = begun;
        loop {
            let (after, Effects { on_store, next }) = state.step(input, begun.elapsed());
            state = after;
            let processing = !matches!(received, Received::Nothing);
            for effect in on_store {
                let committed = matches!(effect, StoreEffect::Commit(_));
                if let StoreEffect::Commit(version) = &effect {
                    if listed_in == Some(epoch.number())
                        && let Some(begun) = self.notice(&epoch, version).await
                    {
                        over = Box::pin(relist(begun.clone()));
                        epoch = begun;
                    }
                    listed_in = Some(epoch.number());
                }
                self.carry_out(effect, &mut received, &mut collected).await;
                if committed && let Some(watch) = &mut watch {
                    watch.frames.release();
                }
            }
            if processing {
                self.metrics.latency.observe(received_at.elapsed().as_secs_f64());
            }
            if !matches!(next, Next::Read) {
                watch = None;
            }
            let outcome = tokio::select! {
                biased;
                () = &mut over => {
                    epoch = epoch.present();
                    state.require_newest();
                    over = Box::pin(relist(epoch.clone()));
                    Err(failure(Cause::Expired, "etcd was restored".to_owned()))
                }
                outcome = self.perform(next, &state, &mut watch, &mut asked_in) => outcome,
            };
            received_at = Instant::now();
            (input, received) = outcome.and_then(|raw| self.understand(raw, &state)).unwrap_or_else(|failure| {
                tracing::warn!(kind = %self.kind, error = %failure.error, cause = ?failure.fault.cause, "Watch failed");
                self.status.failed(failure.error);
                (Input::Failed(failure.fault), Received::Nothing)
            });
            consume_budget().await;
        }
    }

    /// Ends the epoch if a list is older than what the store has shown. The first list may come from the cache of an API server; all later
    /// ones are consistent reads ([`State::new`]). Aggregated API servers may keep versions of their own, so built-in kinds count alone.
    /// A second read confirms it.
    async fn notice(&self, epoch: &Epoch, version: &str) -> Option<Epoch> {
        let before = self.store.resource_version().parse().ok()?;
        let after = version.parse().ok()?;
        let is_built_in = !self.kind.metadata_only && kinds::ALL.contains(&self.kind);
        if !is_built_in {
            return None;
        }
        for _ in 0..CONFIRMATIONS {
            if !epoch.suspects(before, after) {
                return None;
            }
            sleep(CONFIRM_AFTER).await;
            let query = ListQuery {
                field_selector: self.field_selector.clone(),
                label_selector: self.label_selector.clone(),
                limit: Some(1),
                ..ListQuery::default()
            };
            match within(ANSWER_WITHIN, self.source.list(self.kind, query), Cause::Lost).await {
                Ok(page) => return epoch.compare(self.kind, before, page.resource_version.parse().ok()?),
                Err(failure) => {
                    tracing::warn!(kind = %self.kind, error = %failure.error, "Failed to confirm that resource versions decreased; retrying");
                }
            }
        }
        tracing::error!(
            kind = %self.kind, before, after,
            "Resource versions are lower than before, but no read could confirm the decrease; restart Coxswain if etcd was restored"
        );
        None
    }

    /// `asked_in`: when the last request began.
    async fn perform(
        &self,
        next: Next,
        state: &State,
        watch: &mut Option<Watch>,
        asked_in: &mut Outages,
    ) -> Result<Raw, Failure> {
        match next {
            Next::Wait(pause) => {
                sleep(jittered(pause)).await;
                Ok(Raw::Elapsed)
            }
            Next::Await { pause, spread } => {
                let called = async {
                    self.reachability.back_since(*asked_in).await;
                    sleep(spread.mul_f64(crate::random::fraction())).await;
                };
                let called = timeout(jittered(pause), called).await.is_ok();
                Ok(if called { Raw::Called } else { Raw::Elapsed })
            }
            Next::Ask(request) => {
                *asked_in = self.reachability.outages();
                let span = child(|| self.span(&request));
                let asked = async {
                    match request {
                        Request::List { newest, page } => self.list(newest, page).await,
                        Request::Stream => self.open(Str::EMPTY, true, watch).await,
                        Request::Watch => self.open(state.position().clone(), false, watch).await,
                    }
                };
                let asked = asked.instrument(span.clone()).await;
                match &asked {
                    Ok(_) => self.reachability.reached(),
                    Err(failure) => {
                        if matches!(failure.fault.cause, Cause::Lost | Cause::Silent) {
                            self.reachability.lost(*asked_in);
                        }
                        set_failed(&span, failure.error.clone());
                    }
                }
                asked
            }
            Next::Read => match watch {
                Some(watch) => {
                    let silence = if state.is_collecting() { self.timing.initial } else { watch.silence };
                    let raw = watch.read(silence).await?;
                    if matches!(raw, Raw::Ended) {
                        self.status.ended();
                    }
                    Ok(raw)
                }
                // Only a state machine that reads before it opens could bring us here.
                None => Ok(Raw::Ended),
            },
        }
    }

    fn span(&self, request: &Request) -> Span {
        let asked = match request {
            Request::List { .. } => "list",
            Request::Stream => "stream",
            Request::Watch => "watch",
        };
        tracing::debug_span!(
            "informer",
            otel.name = %format_args!("informer {asked} {}", self.kind),
            k8s.object.resource = %self.kind,
            // More than none when it lists again.
            coxswain.cached = self.store.len() as i64,
        )
    }

    async fn list(&self, newest: bool, page: Page) -> Result<Raw, Failure> {
        let first = page == Page::First;
        let query = ListQuery {
            field_selector: self.field_selector.clone(),
            label_selector: self.label_selector.clone(),
            limit: (page != Page::Whole).then_some(PAGE_SIZE),
            // A token carries its version; "0" lets the server answer from its cache.
            resource_version: (first && !newest).then(|| "0".to_owned()),
            continue_token: if let Page::Next(token) = page { Some(token) } else { None },
            ..ListQuery::default()
        };
        let page = within(ANSWER_WITHIN, self.source.list(self.kind, query), Cause::Lost).await?;
        Ok(Raw::Page { items: page.items, version: page.resource_version.into(), next: page.continue_token })
    }

    async fn open(&self, position: Str, initial: bool, watch: &mut Option<Watch>) -> Result<Raw, Failure> {
        let timeout_seconds = crate::random::within(self.timing.seconds.clone());
        let query = WatchQuery {
            field_selector: self.field_selector.clone(),
            label_selector: self.label_selector.clone(),
            resource_version: position.into(),
            send_initial_events: initial,
            timeout_seconds,
            ..WatchQuery::default()
        };
        let unanswered = if initial { Cause::Silent } else { Cause::Lost };
        let body = within(ANSWER_WITHIN, self.source.watch(self.kind, query), unanswered).await?;
        let silence = Duration::from_secs(u64::from(timeout_seconds)) + self.timing.margin;
        *watch = Some(Watch { body, frames: Frames::default(), silence });
        self.status.opened();
        Ok(Raw::Opened)
    }

    /// Makes an input of what came, decoding what has to be decoded.
    fn understand(&self, raw: Raw, state: &State) -> Result<(Input, Received), Failure> {
        match raw {
            Raw::Elapsed => Ok((Input::Elapsed, Received::Nothing)),
            Raw::Called => Ok((Input::Called, Received::Nothing)),
            Raw::Opened => Ok((Input::Opened, Received::Nothing)),
            Raw::Ended => Ok((Input::Ended, Received::Nothing)),
            Raw::Page { items, version, next } => {
                let items: Vec<Item> = items.iter().map(|item| self.take_in(item, true)).collect();
                Ok((Input::Page { version, next }, Received::Page(items)))
            }
            Raw::Frame(frame) => {
                let frame = WatchFrame::decode(&frame).map_err(corrupt)?;
                self.metrics.count(frame.kind);
                match frame.kind {
                    EventType::Added | EventType::Modified | EventType::Deleted => {
                        let collecting = state.is_collecting() && frame.kind != EventType::Deleted;
                        let item = self.take_in(&frame.object, collecting);
                        let is_unreadable = matches!(item, Item::Unreadable { .. });
                        if frame.kind == EventType::Deleted && is_unreadable && item.key().name.is_empty() {
                            return Err(failure(
                                Cause::Corrupt,
                                "DELETED event for an object without a name".to_owned(),
                            ));
                        }
                        let version = match item.version() {
                            version if version.is_empty() && is_unreadable => state.position().clone(),
                            version => version.clone(),
                        };
                        Ok((Input::Object { version }, Received::Event(frame.kind, item)))
                    }
                    EventType::Bookmark => {
                        let head = ObjectHead::read(&frame.object).map_err(corrupt)?;
                        let ends_initial =
                            head.has_annotation(INITIAL_EVENTS_END, "true").map_err(corrupt)?;
                        let version = Str::from(head.resource_version);
                        Ok((Input::Bookmark { version, ends_initial }, Received::Nothing))
                    }
                    EventType::Error => Err(error_event(&frame.object)),
                    EventType::Unknown => Err(corrupt(WireError::new("unknown type of a watch event"))),
                }
            }
        }
    }

    /// Decodes an object; within a list, one that the store holds already is not decoded but shared.
    fn take_in(&self, object: &Bytes, listed: bool) -> Item {
        if listed
            && !self.store.is_empty()
            && let Some(held) = self.known(object)
        {
            return Item::Object(held);
        }
        let error = match (self.kind.decode)(object) {
            Ok(object) if object.meta().name.is_empty() => "the object has no name".to_owned(),
            Ok(object) => return Item::Object(object),
            Err(error) => error.to_string(),
        };
        let head = ObjectHead::salvage(object);
        let namespace = if head.name.is_empty() { Str::EMPTY } else { head.namespace.into() };
        Item::Unreadable { key: Key::new(namespace, head.name), version: head.resource_version.into(), error }
    }

    /// The object that the store holds, if it is in the state that these bytes encode.
    fn known(&self, object: &Bytes) -> Option<AnyObject> {
        let sent = ObjectHead::read(object).ok()?;
        self.store.find(&sent.namespace, &sent.name).filter(|held| {
            let meta = held.meta();
            meta.uid == *sent.uid && meta.resource_version == *sent.resource_version
        })
    }

    async fn carry_out(&self, effect: StoreEffect, received: &mut Received, collected: &mut Collected) {
        match effect {
            StoreEffect::Collect => {
                match std::mem::replace(received, Received::Nothing) {
                    Received::Nothing => {}
                    Received::Page(items) => {
                        for item in items {
                            self.collect(item, collected);
                        }
                    }
                    Received::Event(EventType::Deleted, item) => {
                        let key = item.key();
                        collected.objects.remove(&key.namespace, &key.name);
                        collected.unreadable.remove(&key);
                    }
                    Received::Event(_, item) => self.collect(item, collected),
                }
                self.status.collecting(collected.objects.len());
            }
            StoreEffect::Apply => {
                if let Received::Event(kind, item) = received {
                    self.apply(*kind, item);
                }
            }
            StoreEffect::Commit(version) => {
                let Collected { objects, unreadable } = std::mem::take(collected);
                tracing::info!(kind = %self.kind, objects = objects.len(), resource_version = %version, "Listed objects");
                self.store.replace_with(objects, &version).await;
                self.status.committed(unreadable);
            }
            StoreEffect::Mark(version) => self.store.bookmark(&version),
            StoreEffect::Discard => {
                *collected = Collected::default();
                self.status.collecting(0);
            }
        }
    }

    fn collect(&self, item: Item, collected: &mut Collected) {
        match item {
            Item::Object(object) => {
                if !collected.unreadable.is_empty() {
                    collected.unreadable.remove(&Key::of(object.meta()));
                }
                collected.objects.put(object);
            }
            Item::Unreadable { key, error, .. } => {
                self.report(&key, &error);
                if let Some(held) = self.store.get(&key) {
                    collected.objects.put(held);
                }
                collected.unreadable.insert(key, error);
            }
        }
    }

    fn apply(&self, kind: EventType, item: &Item) {
        match (kind, item) {
            (EventType::Deleted, Item::Object(last)) => self.store.remove(last),
            (_, Item::Object(object)) => self.store.upsert(object),
            (EventType::Deleted, Item::Unreadable { key, version, error }) => {
                self.report(key, error);
                self.store.remove_key(key, version);
            }
            (_, Item::Unreadable { key, version, error }) => {
                self.report(key, error);
                if !version.is_empty() {
                    self.store.bookmark(version);
                }
            }
        }
        match item {
            Item::Unreadable { key, error, .. } if kind != EventType::Deleted => {
                self.status.unreadable(key.clone(), error.clone());
            }
            item => self.status.readable(&item.key()),
        }
    }

    fn report(&self, key: &Key, error: &str) {
        self.metrics.unreadable.inc();
        if self.status.is_unreadable(key, error) {
            return;
        }
        tracing::error!(kind = %self.kind, %key, error, "Failed to decode an object; keeping its last valid version");
    }
}

impl Item {
    fn version(&self) -> &Str {
        match self {
            Self::Object(object) => &object.meta().resource_version,
            Self::Unreadable { version, .. } => version,
        }
    }

    fn key(&self) -> Key {
        match self {
            Self::Object(object) => Key::of(object.meta()),
            Self::Unreadable { key, .. } => key.clone(),
        }
    }
}

/// What a step of I/O brought, not yet decoded.
enum Raw {
    Elapsed,
    Called,
    Page { items: Vec<Bytes>, version: Str, next: String },
    Opened,
    Frame(Bytes),
    Ended,
}

impl Watch {
    /// The next frame, or how it ended.
    async fn read(&mut self, silence: Duration) -> Result<Raw, Failure> {
        loop {
            match self.frames.next() {
                Ok(Some(frame)) => return Ok(Raw::Frame(frame)),
                Ok(None) => {}
                Err(error) => return Err(failure(Cause::Corrupt, error.to_string())),
            }
            match timeout(silence, self.body.frame()).await {
                Err(_) => {
                    return Err(failure(
                        Cause::Silent,
                        format!("no data received for {} s", silence.as_secs()),
                    ));
                }
                Ok(None) if self.frames.is_at_boundary() => return Ok(Raw::Ended),
                Ok(None) => {
                    return Err(failure(Cause::Lost, "the watch ended in the middle of an event".to_owned()));
                }
                Ok(Some(Err(error))) => {
                    let cause = if error.is::<JsonError>() { Cause::Corrupt } else { Cause::Lost };
                    return Err(failure(cause, error.to_string()));
                }
                Ok(Some(Ok(frame))) => {
                    // Trailers have no data.
                    if let Ok(data) = frame.into_data() {
                        self.frames.push(data);
                    }
                }
            }
        }
    }
}

/// Returns when an epoch has been over for so long that what was learned in it is to be listed again.
async fn relist(epoch: Epoch) {
    epoch.over().await;
    sleep(RELIST_AFTER).await;
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + crate::random::fraction())
}

/// `unanswered` is the cause of the failure if no answer comes in time.
async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, ApiError>>,
    unanswered: Cause,
) -> Result<T, Failure> {
    match timeout(limit, request).await {
        Ok(answer) => answer.map_err(|error| Failure {
            fault: Fault { cause: cause_of(&error), retry_after: error.retry_after() },
            error: error.to_string(),
        }),
        Err(_) => Err(failure(unanswered, format!("timed out after {} s", limit.as_secs()))),
    }
}

fn cause_of(error: &ApiError) -> Cause {
    if error.is_expired() {
        return Cause::Expired;
    }
    match error {
        ApiError::Refused { code, .. } => cause_of_code(*code),
        ApiError::Transport { .. } | ApiError::Timeout { .. } => Cause::Lost,
        // Answers from the server's cache are not paged, so the next list is paged from the newest state. And where the next page
        // begins may be a name that is too long for a URI: then the rest cannot be asked for, and the list comes whole.
        ApiError::TooLong { .. } | ApiError::Unaddressable { .. } => Cause::Expired,
        ApiError::Malformed { .. } => Cause::Corrupt,
    }
}

fn cause_of_code(code: u16) -> Cause {
    match code {
        410 => Cause::Expired,
        400 | 405 | 406 | 415 | 422 => Cause::Rejected,
        429 => Cause::Busy,
        _ => Cause::Refused,
    }
}

/// The failure that an `ERROR` event reports.
fn error_event(object: &Bytes) -> Failure {
    let status = match ApiStatus::decode(object) {
        Ok(status) => status,
        Err(error) => return corrupt(error),
    };
    let cause = match status.reason.as_str() {
        "Expired" | "Gone" => Cause::Expired,
        _ => cause_of_code(u16::try_from(status.code).unwrap_or_default()),
    };
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    let retry_after = u64::try_from(seconds).ok().filter(|&seconds| seconds > 0).map(Duration::from_secs);
    let error =
        format!("the watch returned an ERROR event: {} ({} {})", status.message, status.code, status.reason);
    Failure { fault: Fault { cause, retry_after }, error }
}

fn failure(cause: Cause, error: String) -> Failure {
    Failure { fault: Fault { cause, retry_after: None }, error }
}

fn corrupt(error: impl std::fmt::Display) -> Failure {
    failure(Cause::Corrupt, error.to_string())
}

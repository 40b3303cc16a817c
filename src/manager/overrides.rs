//! The overrides at work: what the Lease says, followed by every replica, becomes what the controllers are told.
//!
//! An entry that can't be read never changes what runs: the last one that could be read holds on. Writing is the admin
//! API's, through [`Overrides::write`]; what it wrote is in force here at once, before the watch brings it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::controllers::Controllers;
use super::event_logger::EventLogger;
use crate::admin::events::OverrideChange;
use crate::admin::overrides::{
    Entry, HandEdit, HeldOverrides, Order, OverrideSet, OverrideStore, StoreError, by_hand,
};
use crate::admin::{AdminMetrics, Group};
use coxswain_machinery::api::coordination::Lease;
use coxswain_machinery::api::kinds::LEASES;
use coxswain_machinery::client::FieldSelector;
use coxswain_machinery::informer::{Delta, Informers};
use coxswain_machinery::latest;
use coxswain_machinery::model::Key;
use coxswain_machinery::model::backoff::ExponentialBackoff;
use coxswain_machinery::model::plan::Regarding;
use coxswain_machinery::serve::HealthCheck;
use coxswain_machinery::wire::{Message, Str, Uid};

/// The wait after a read that failed before the overrides are known.
const FIRST_LOOK: ExponentialBackoff =
    ExponentialBackoff::doubling(Duration::from_secs(1), Duration::from_secs(10));
/// For how long the API server must refuse to show the overrides before that counts: one that has just started, or whose
/// authorizer is away, refuses what it will allow.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Name of the health check.
pub(super) const HEALTH: &str = "overrides";
/// However far off the next end of an override is, the clock is looked at this often: it may be set.
const LOOK_AT_CLOCK: Duration = Duration::from_mins(1);

/// The overrides, as this replica knows them.
pub(super) struct Overrides {
    store: OverrideStore,
    set: ArcSwap<OverrideSet>,
    seen: Mutex<Seen>,
    news: Notify,
    known: latest::Sender<bool>,
    /// Why they could not be read at first.
    unknown: Mutex<Option<String>>,
    event_logger: Arc<EventLogger>,
}

/// Which Lease was seen last.
#[derive(Default)]
struct Seen {
    uid: Uid,
    version: u64,
    resource_version: Str,
    /// A write of our own that the watch has not brought yet.
    awaited: Option<Awaited>,
}

#[derive(Clone, Copy)]
struct Awaited {
    version: u64,
    since: Instant,
}

/// Who tells what a Lease says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The answer to a write.
    Answer,
    /// The watch, which tells one version after the other.
    Watch,
}

/// For how long the watch may bring what is older than an answer. What it brings later is what there is.
const OVERTAKEN: Duration = Duration::from_mins(1);

impl Seen {
    /// Whether to take in a version. An answer overtakes the watch, and what the watch then brings is older for a while. Else
    /// the watch is right, even if versions go back: etcd was restored from a copy, and so were the overrides.
    fn takes(&mut self, version: u64, source: Source, now: Instant) -> bool {
        match source {
            Source::Answer if version < self.version => false,
            Source::Answer => {
                self.awaited = (version > self.version).then_some(Awaited { version, since: now });
                true
            }
            Source::Watch => {
                let overtaken = self.awaited.is_some_and(|awaited| {
                    version < awaited.version && now.duration_since(awaited.since) < OVERTAKEN
                });
                if !overtaken {
                    self.awaited = None;
                }
                !overtaken
            }
        }
    }
}

impl Overrides {
    /// Returns the overrides of a group. No other group's Lease is kept: its orders concern other controllers.
    pub(super) fn new(store: &OverrideStore, group: &Group, event_logger: Arc<EventLogger>) -> Self {
        Self {
            store: store.of(group),
            set: ArcSwap::default(),
            seen: Mutex::default(),
            news: Notify::new(),
            known: latest::Sender::new(false),
            unknown: Mutex::default(),
            event_logger,
        }
    }

    /// What they say.
    pub(super) fn set(&self) -> Arc<OverrideSet> {
        self.set.load_full()
    }

    /// The Lease, for events about it.
    pub(super) fn lease(&self) -> Regarding {
        let seen = self.seen.lock();
        Regarding {
            kind: &LEASES,
            key: self.store.key(),
            uid: seen.uid.clone(),
            resource_version: seen.resource_version.clone(),
        }
    }

    /// Reads them from the API server, for an order.
    pub(super) async fn read(&self) -> Result<HeldOverrides, StoreError> {
        self.store.read().await
    }

    /// Writes entries, and takes note of them.
    pub(super) async fn write(
        &self,
        held: &HeldOverrides,
        changes: &[(String, Entry)],
    ) -> Result<HeldOverrides, StoreError> {
        let written = self.store.write(held, changes).await?;
        if let Ok(lease) = Lease::decode(&written.raw) {
            self.take_in(&lease, written.set.clone(), Source::Answer);
        }
        Ok(written)
    }

    /// Takes in what a Lease says, unless a newer one was seen.
    fn take_in(&self, lease: &Lease, set: OverrideSet, source: Source) {
        let meta = &lease.metadata;
        let version = meta.resource_version.parse().unwrap_or(0);
        let mut seen = self.seen.lock();
        if !seen.takes(version, source, Instant::now()) {
            return;
        }
        seen.uid = meta.uid.clone();
        seen.version = version;
        seen.resource_version = meta.resource_version.clone();
        let set = set.keeping(&self.set.load());
        self.set.store(Arc::new(set));
        drop(seen);
        self.news.notify_one();
    }

    /// The Lease is gone, and all overrides with it, unless that was an older one.
    fn forget(&self, lease: &Lease) {
        let mut seen = self.seen.lock();
        if seen.uid != lease.metadata.uid {
            return;
        }
        seen.uid = Uid::default();
        self.set.store(Arc::default());
        drop(seen);
        self.news.notify_one();
    }

    /// Waits until the overrides are known: a leader must not start what they disable. A silent or overloaded API server is
    /// waited for, without which no controller could work anyway. If the API server refuses to show the overrides, the flags
    /// hold.
    pub(super) async fn first_look(&self) {
        let mut known = self.known.subscribe();
        if *known.borrow() {
            return;
        }
        tokio::select! {
            biased;
            _ = known.wait_for(|known| *known) => {}
            () = self.read_until_known() => {}
        }
    }

    async fn read_until_known(&self) {
        let mut failures = 0;
        let mut refused_since = None;
        loop {
            match self.store.read().await {
                Ok(held) => {
                    if let Ok(lease) = Lease::decode(&held.raw) {
                        self.take_in(&lease, held.set, Source::Answer);
                    }
                    return;
                }
                Err(error @ StoreError::Unreadable(_))
                    if refused_since.get_or_insert_with(Instant::now).elapsed() >= REFUSED_FOR =>
                {
                    tracing::error!(%error, "Failed to read the overrides; only the flags select controllers");
                    return;
                }
                Err(error) => {
                    if !matches!(error, StoreError::Unreadable(_)) {
                        refused_since = None;
                    }
                    let pause = FIRST_LOOK.next(&mut failures);
                    tracing::warn!(%error, again_in = ?pause, "Failed to read the overrides; delaying the start of controllers");
                    *self.unknown.lock() = Some(error.to_string());
                    sleep(pause).await;
                }
            }
        }
    }

    /// Whether the overrides have been read.
    pub(super) fn are_known(&self) -> bool {
        *self.known.subscribe().borrow()
    }

    /// Watches the Lease, and tells the controllers what it orders, now and whenever that changes or an override ends;
    /// for ever. `announce` is told what was done to it by hand.
    pub(super) async fn run(
        self: &Arc<Self>,
        informers: &Informers,
        controllers: &Controllers,
        metrics: &AdminMetrics,
        announce: &(dyn Fn(Vec<HandEdit>) + Sync),
    ) {
        let Key { namespace, name, .. } = self.store.key();
        let selector =
            FieldSelector::equals("metadata.namespace", &namespace).and(&FieldSelector::name(&name));
        let handle = informers.acquire_selected(&LEASES, Some(selector), None);
        let overrides = Arc::clone(self);
        let handler = move |delta: Delta<'_>| match delta.typed::<Lease>() {
            (_, Some(now)) => {
                overrides.take_in(now, overrides.store.decode(now).set, Source::Watch);
            }
            (Some(last), None) => overrides.forget(last),
            (None, None) => {}
        };
        let _told = handle.add_handler("overrides", Arc::new(handler)).replayed().await;
        let known = async {
            if handle.wait_synced().await.is_ok() {
                self.known.send_replace(true);
            }
        };
        tokio::join!(known, self.apply(controllers, metrics, announce));
    }

    async fn apply(
        &self,
        controllers: &Controllers,
        metrics: &AdminMetrics,
        announce: &(dyn Fn(Vec<HandEdit>) + Sync),
    ) {
        let mut applied = Applied { set: Arc::default(), at: self.event_logger.now() };
        loop {
            let now = self.event_logger.now();
            let set = self.set();
            self.report(controllers, &applied, &set, now);
            let edits = by_hand(&applied.set, &set, now);
            for HandEdit { controller, message } in &edits {
                tracing::warn!(target: "audit", name = controller, change = message, "Override edited outside the admin API");
            }
            if !edits.is_empty() {
                metrics.edited_by_hand(edits.len());
                announce(edits);
            }
            controllers.apply(&set, now);
            metrics.overrides(&set, now);
            let next = set.next_expiry(now).and_then(|at| Duration::try_from(at.duration_since(now)).ok());
            applied = Applied { set, at: now };
            tokio::select! {
                biased;
                () = self.news.notified() => {}
                () = sleep(next.map_or(LOOK_AT_CLOCK, |next| next.min(LOOK_AT_CLOCK))) => {}
            }
        }
    }

    /// Tells of what is different from what was applied last.
    fn report(&self, controllers: &Controllers, before: &Applied, set: &OverrideSet, now: Timestamp) {
        let name_of = |name: &str| controllers.get(name).map(|controller| controller.descriptor.name);
        for (name, entry) in set.entries() {
            let known = before.set.entry(name);
            if known == Some(entry) {
                continue;
            }
            // At the start of the process nothing has changed by reading what is there: old ends are no news.
            let change = match entry.order {
                Order::Default if known.is_none() => continue,
                Order::Default => OverrideChange::Cleared,
                _ if !entry.is_in_force(now) => continue,
                _ => OverrideChange::Set,
            };
            tracing::info!(controller = name, change = ?change, user = entry.user, reason = entry.reason, "Override changed");
            self.event_logger.override_changed(name_of(name), change, Some(entry.clone()), String::new());
        }
        for (name, entry) in before.set.entries() {
            if set.entry(name).is_none() && entry.is_in_force(now) {
                tracing::info!(controller = name, "Override removed");
                let change = OverrideChange::Cleared;
                self.event_logger.override_changed(name_of(name), change, None, String::new());
            }
        }
        for (name, entry) in set.expired(before.at, now) {
            tracing::info!(controller = name, "Override expired");
            let change = OverrideChange::Expired;
            self.event_logger.override_changed(name_of(name), change, Some(entry.clone()), String::new());
        }
        for problem in set.problems().iter().filter(|problem| !before.set.problems().contains(problem)) {
            tracing::error!(key = problem.key, problem = problem.message, "Override has no effect");
            let controller = name_of(&problem.controller);
            let text = format!("{}: {}", problem.key, problem.message);
            self.event_logger.override_changed(controller, OverrideChange::Invalid, None, text);
        }
    }
}

/// The health check while a leader waits for the overrides. A restart would not make them known, so no probe fails.
impl HealthCheck for Overrides {
    fn name(&self) -> &'static str {
        HEALTH
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn degraded(&self) -> Option<String> {
        let why = self.unknown.lock().clone();
        why.map(|why| format!("no controller starts until the overrides are read: {why}"))
    }
}

/// What the controllers were told last, and when.
struct Applied {
    set: Arc<OverrideSet>,
    at: Timestamp,
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, VecDeque};

    use bytes::Bytes;
    use http::{Method, Request, Response};
    use http_body_util::{BodyExt as _, Full};

    use super::*;
    use crate::admin::overrides::{ANNOTATION_PREFIX, LEASE_NAME, LEASE_NAMESPACE};
    use coxswain_machinery::api::meta::ObjectMeta;
    use coxswain_machinery::client::{ApiClient, BoxError, HttpService};
    use coxswain_machinery::model::clock::SystemClock;
    use coxswain_machinery::wire::{unwrap_envelope, wrap_envelope};

    /// What is taken in of versions that come by the watch (`w`) or as answers (`a`), a second apart.
    fn taken(news: &[(char, u64)]) -> Vec<u64> {
        let (mut seen, mut at, mut taken) = (Seen::default(), Instant::now(), Vec::new());
        for (source, version) in news {
            at += Duration::from_secs(1);
            let source = if *source == 'a' { Source::Answer } else { Source::Watch };
            if seen.takes(*version, source, at) {
                seen.version = *version;
                taken.push(*version);
            }
        }
        taken
    }

    #[test]
    fn an_answer_overtakes_the_watch_and_else_the_watch_is_right() {
        assert_eq!(taken(&[('w', 5), ('w', 7)]), [5, 7]);
        // What was on its way when the answer came is old.
        assert_eq!(taken(&[('w', 5), ('a', 9), ('w', 7), ('w', 9), ('w', 11)]), [5, 9, 9, 11]);
        assert_eq!(taken(&[('w', 5), ('a', 9), ('w', 12), ('a', 11)]), [5, 9, 12]);
        // The watch was first.
        assert_eq!(taken(&[('w', 9), ('a', 9), ('w', 4)]), [9, 9, 4]);
    }

    #[test]
    fn versions_that_go_back_are_taken_up() {
        assert_eq!(taken(&[('w', 900), ('w', 20), ('w', 21)]), [900, 20, 21]);
        assert_eq!(taken(&[('w', 5), ('a', 900), ('w', 900), ('w', 20), ('a', 22)]), [5, 900, 900, 20, 22]);
        // Even if the answer was never seen: the watch can't be behind for that long.
        let mut seen = Seen::default();
        let now = Instant::now();
        assert!(seen.takes(900, Source::Answer, now));
        seen.version = 900;
        assert!(!seen.takes(20, Source::Watch, now + OVERTAKEN / 2));
        assert!(seen.takes(21, Source::Watch, now + OVERTAKEN));
    }

    const NAME: &str = "deployment-controller";

    /// The Lease with one override, as the API server sends it.
    fn lease() -> Vec<u8> {
        let value = r#"{"desired":"disabled","time":"2026-11-21T12:00:00Z","version":1,"replica":"a"}"#;
        let metadata = ObjectMeta {
            name: LEASE_NAME.into(),
            namespace: LEASE_NAMESPACE.into(),
            resource_version: "7".into(),
            annotations: [(format!("{ANNOTATION_PREFIX}{NAME}").as_str(), value)].into_iter().collect(),
            ..ObjectMeta::default()
        };
        wrap_envelope("coordination.k8s.io/v1", "Lease", &Lease { metadata, ..Lease::default() }.to_bytes())
    }

    fn status(code: u16, reason: &str) -> (u16, Vec<u8>) {
        (
            code,
            format!(r#"{{"kind":"Status","reason":"{reason}","code":{code},"message":"no"}}"#).into_bytes(),
        )
    }

    fn not_found() -> (u16, Vec<u8>) {
        no_lease(LEASE_NAME)
    }

    /// Overrides on an API server that gives these answers, the last one again and again; without one it is silent.
    fn overrides(answers: Vec<(u16, Vec<u8>)>) -> Overrides {
        let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
        let service = tower::service_fn(move |_: Request<Full<Bytes>>| {
            let mut answers = answers.lock();
            let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
            async move {
                let Some((code, body)) = answer else { return std::future::pending().await };
                let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
                Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
            }
        });
        let client = ApiClient::new(HttpService::new(service), "test");
        let store = OverrideStore::new(client, Arc::new(|name| name == NAME));
        Overrides::new(&store, &Group::default(), Arc::new(EventLogger::new(Arc::new(SystemClock))))
    }

    fn no_lease(name: &str) -> (u16, Vec<u8>) {
        let details = format!(r#"{{"name":"{name}","group":"coordination.k8s.io","kind":"leases"}}"#);
        let body = format!(r#"{{"kind":"Status","reason":"NotFound","code":404,"details":{details}}}"#);
        (404, body.into_bytes())
    }

    /// Whether the first look ends within a minute, and what is known then.
    async fn look(answers: Vec<(u16, Vec<u8>)>) -> (bool, bool, Option<String>) {
        let overrides = overrides(answers);
        let ended = tokio::time::timeout(Duration::from_mins(1), overrides.first_look()).await.is_ok();
        (ended, overrides.set().entry(NAME).is_some(), overrides.degraded())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_or_overloaded_server_is_waited_for_and_a_refusal_is_not() {
        assert_eq!(look(vec![(200, lease())]).await, (true, true, None));
        assert_eq!(look(vec![not_found()]).await, (true, false, None));
        // A refusal counts when it lasts: an API server that has just started refuses what it will allow.
        for refusal in [status(403, "Forbidden"), (200, b"rubbish".to_vec())] {
            let began = Instant::now();
            let (ended, known, _) = look(vec![refusal.clone()]).await;
            assert!(ended && !known && began.elapsed() >= REFUSED_FOR, "{:?}", began.elapsed());
            let (ended, known, _) = look(vec![refusal.clone(), refusal, (200, lease())]).await;
            assert!(ended && known);
        }
        // Nobody serves Leases, yet: that says nothing of this one.
        assert!(!look(vec![status(404, "NotFound")]).await.0);
        for (code, reason) in [(429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")]
        {
            let (ended, known, why) = look(vec![status(code, reason)]).await;
            assert!(
                !ended && !known && why.is_some_and(|why| why.contains("no controller starts")),
                "{code}"
            );
            let (ended, known, _) =
                look(vec![status(code, reason), status(code, reason), (200, lease())]).await;
            assert!(ended && known, "{code}");
        }
        assert!(!look(vec![status(401, "Unauthorized")]).await.0);
        assert!(!look(vec![]).await.0, "silence");
    }

    /// An API server that stores Leases as they are written.
    #[derive(Clone, Default)]
    struct Server {
        /// Leases by name.
        leases: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
        /// Names of the Leases that requests have read or written.
        used: Arc<Mutex<BTreeSet<String>>>,
    }

    impl Server {
        /// Returns the overrides of a new process of a group.
        fn process(&self, group: &Group) -> Overrides {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
                let server = server.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    let (code, answer) = server.answer(&parts.method, parts.uri.path(), &body)?;
                    let body = Full::new(Bytes::from(answer)).map_err(|never| match never {}).boxed_unsync();
                    Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
                }
            });
            let client = ApiClient::new(HttpService::new(service), "test");
            let store = OverrideStore::new(client, Arc::new(|name| name == NAME));
            Overrides::new(&store, group, Arc::new(EventLogger::new(Arc::new(SystemClock))))
        }

        fn answer(&self, method: &Method, path: &str, body: &Bytes) -> Result<(u16, Vec<u8>), BoxError> {
            if *method == Method::GET {
                let name = path.rsplit('/').next().unwrap_or_default();
                self.used.lock().insert(name.to_owned());
                let found = self.leases.lock().get(name).cloned();
                return Ok(found.map_or_else(|| no_lease(name), |lease| (200, lease)));
            }
            let name = Lease::decode(&unwrap_envelope(body)?)?.metadata.name.to_string();
            self.used.lock().insert(name.clone());
            self.leases.lock().insert(name, body.to_vec());
            Ok((if *method == Method::POST { 201 } else { 200 }, body.to_vec()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn group_reads_and_writes_its_own_lease_only() {
        let server = Server::default();
        server.leases.lock().insert(LEASE_NAME.to_owned(), lease());
        let of_default_group = server.process(&Group::default());
        of_default_group.first_look().await;
        let order = of_default_group.set().entry(NAME).cloned().unwrap();
        server.used.lock().clear();

        let own = "coxswain-overrides-b";
        let group = Group::new("kube-system", "b");
        let first = server.process(&group);
        first.first_look().await;
        assert!(first.set().entry(NAME).is_none(), "the override of the default group is in force");
        // The first order creates the Lease, at any replica of the group.
        let held = first.read().await.unwrap();
        assert!(held.raw.is_empty());
        first.write(&held, &[(NAME.to_owned(), order)]).await.unwrap();
        assert!(first.set().entry(NAME).is_some());
        assert!(server.leases.lock().contains_key(own));

        // An administrator, or a restore of etcd, has removed the Lease. The next process uses no other Lease instead.
        server.leases.lock().remove(own);
        let next = server.process(&group);
        next.first_look().await;
        assert!(next.set().entry(NAME).is_none());
        assert_eq!(*server.used.lock(), BTreeSet::from([own.to_owned()]));
        assert_eq!(server.leases.lock()[LEASE_NAME], lease(), "the default group keeps its overrides");
    }
}

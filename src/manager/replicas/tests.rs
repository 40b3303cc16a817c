//! Replicas on Leases in memory, in paused time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use tokio::task::JoinSet;

use super::*;
use coxswain_machinery::api::meta::{ObjectMeta, Status};
use coxswain_machinery::client::ApiError;
use coxswain_machinery::election::fixture::PausedClock;
use coxswain_machinery::model::metadata::ANNOTATIONS;
use coxswain_machinery::wire::Message;
use coxswain_machinery::wire::splice::{Edit, edit};

/// The Lease of the default group.
const MAIN: &str = "kube-system/kube-controller-manager";

/// An API server with Leases, and a watch that is never late.
#[derive(Default)]
struct Server {
    leases: Mutex<BTreeMap<String, Arc<Lease>>>,
    version: AtomicU32,
    watching: Mutex<Vec<Arc<Replicas>>>,
    /// Who holds the main Lease.
    holder: Mutex<String>,
    requests: Mutex<Vec<String>>,
    may_delete: bool,
    /// The next request is never answered.
    stalls: AtomicBool,
    /// The next write is carried out, and its answer lost.
    loses_answer: AtomicBool,
}

impl Server {
    fn new(may_delete: bool) -> Arc<Self> {
        Arc::new(Self { may_delete, ..Self::default() })
    }

    fn names(&self) -> Vec<String> {
        self.leases.lock().keys().cloned().collect()
    }

    fn lease(&self, name: &str) -> Arc<Lease> {
        Arc::clone(&self.leases.lock()[name])
    }

    fn holders(&self) -> Vec<String> {
        self.leases.lock().values().map(|lease| lease.spec.holder_identity.to_string()).collect()
    }

    fn put(&self, raw: &[u8]) -> Arc<Lease> {
        let version = self.version.fetch_add(1, Ordering::SeqCst) + 1;
        let held = Lease::decode(&Bytes::copy_from_slice(raw)).unwrap();
        let mut edits = vec![Edit::SetBytes(&[1, 6], version.to_string().into_bytes())];
        if held.metadata.uid.is_empty() {
            edits.push(Edit::SetBytes(&[1, 5], format!("uid-{version}").into_bytes()));
        }
        let raw = Bytes::from(edit(raw, &edits).unwrap());
        let lease =
            Arc::new((LEASES.decode)(&raw).ok().and_then(downcast::<Lease>).unwrap().as_ref().clone());
        self.leases.lock().insert(lease.metadata.name.to_string(), Arc::clone(&lease));
        for each in &*self.watching.lock() {
            each.see(Some(Arc::clone(&lease)));
        }
        lease
    }

    fn remove(&self, name: &str) {
        self.leases.lock().remove(name);
        for each in &*self.watching.lock() {
            each.see_gone(name);
        }
    }

    fn refused(reason: &str, code: u16) -> ApiError {
        ApiError::Refused {
            request: "lease".into(),
            code,
            reason: reason.into(),
            message: reason.into(),
            status: Box::new(Status::default()),
            retry_after: None,
        }
    }

    async fn enter(&self, what: String) {
        self.requests.lock().push(what);
        if self.stalls.swap(false, Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    fn answer(&self, lease: Arc<Lease>) -> Result<Arc<Lease>, ApiError> {
        if self.loses_answer.swap(false, Ordering::SeqCst) {
            return Err(Self::refused("Timeout", 504));
        }
        Ok(lease)
    }

    fn current(&self, name: &str, version: &str) -> Result<(), ApiError> {
        match self.leases.lock().get(name) {
            Some(held) if held.metadata.resource_version == *version => Ok(()),
            Some(_) => Err(Self::refused("Conflict", 409)),
            None => Err(Self::refused("NotFound", 404)),
        }
    }
}

impl LeaseStore for Server {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Arc<Lease>>, ApiError>> {
        Box::pin(async move {
            self.enter(format!("get {name}")).await;
            Ok(self.leases.lock().get(name).cloned())
        })
    }

    fn create<'a>(&'a self, raw: &'a [u8]) -> BoxFuture<'a, Result<Arc<Lease>, ApiError>> {
        Box::pin(async move {
            let lease = Lease::decode(&Bytes::copy_from_slice(raw)).unwrap();
            self.enter(format!("create {}", lease.metadata.name)).await;
            if self.leases.lock().contains_key(lease.metadata.name.as_str()) {
                return Err(Self::refused("AlreadyExists", 409));
            }
            self.answer(self.put(raw))
        })
    }

    fn update<'a>(&'a self, name: &'a str, raw: &'a [u8]) -> BoxFuture<'a, Result<Arc<Lease>, ApiError>> {
        Box::pin(async move {
            self.enter(format!("update {name}")).await;
            let lease = Lease::decode(&Bytes::copy_from_slice(raw)).unwrap();
            self.current(name, &lease.metadata.resource_version)?;
            self.answer(self.put(raw))
        })
    }

    fn may_delete(&self) -> bool {
        self.may_delete
    }

    fn delete<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let name = &lease.metadata.name;
            self.enter(format!("delete {name}")).await;
            assert!(self.may_delete, "it would be refused");
            self.current(name, &lease.metadata.resource_version)?;
            self.remove(name);
            Ok(())
        })
    }
}

/// A replica that runs.
struct Running {
    replicas: Arc<Replicas>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

/// The Lease as an informer decodes it, with its bytes.
fn decoded(raw: Vec<u8>) -> Arc<Lease> {
    (LEASES.decode)(&raw.into()).ok().and_then(downcast::<Lease>).unwrap()
}

fn own_in(group: Group, identity: &str, started: Timestamp) -> Own {
    Own { identity: identity.to_owned(), started, selection: SELECTION.to_owned(), group }
}

fn replica(server: &Arc<Server>, identity: &str, leads: bool) -> Arc<Replicas> {
    replica_of(server, Group::default(), identity, leads)
}

fn replica_of(server: &Arc<Server>, group: Group, identity: &str, leads: bool) -> Arc<Replicas> {
    let clock: SharedClock = Arc::new(PausedClock(Instant::now()));
    let own = own_in(group, identity, clock.now());
    let store: Arc<dyn LeaseStore> = Arc::<Server>::clone(server);
    let held = Arc::clone(server);
    let holder: Holder = Arc::new(move || held.holder.lock().clone());
    let replicas = Arc::new(Replicas::on(store, (Arc::new(move || leads), holder), own, clock));
    for lease in server.leases.lock().values() {
        replicas.see(Some(Arc::clone(lease)));
    }
    server.watching.lock().push(Arc::clone(&replicas));
    replicas
}

impl Running {
    fn start(server: &Arc<Server>, identity: &str, leads: bool) -> Self {
        let replicas = replica(server, identity, leads);
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        let (doing, ends) = (Arc::clone(&replicas), stop.clone());
        task.spawn(async move { doing.keep(&ends).await });
        Self { replicas, stop, task }
    }

    async fn stopped(self) {
        self.stop.cancel();
        self.task.join_all().await;
    }

    /// As SIGKILL does.
    async fn killed(mut self, server: &Server) {
        server.watching.lock().retain(|each| !Arc::ptr_eq(each, &self.replicas));
        self.task.shutdown().await;
    }

    fn sees(&self) -> Vec<(String, bool)> {
        self.replicas.list().into_iter().map(|each| (each.identity, each.live)).collect()
    }
}

fn pairs<const N: usize>(list: [(&str, bool); N]) -> Vec<(String, bool)> {
    list.into_iter().map(|(identity, live)| (identity.to_owned(), live)).collect()
}

/// A digest of flags.
const SELECTION: &str = "0123456789abcdef";

const A_MOMENT: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn replicas_announce_themselves_and_know_each_other() {
    let server = Server::new(true);
    let b = Running::start(&server, "b", true);
    assert_eq!(b.sees(), pairs([("b", true)]), "before it has announced itself");
    b.replicas.announce(Announcement {
        admin_address: Some("10.0.0.2:10257".to_owned()),
        admin_ca: Some("PEM".to_owned()),
    });
    sleep(A_MOMENT).await;
    let a = Running::start(&server, "a", false);
    sleep(A_MOMENT).await;
    assert_eq!(server.names(), ["coxswain-replica-0", "coxswain-replica-1"]);
    assert_eq!(a.sees(), pairs([("a", true), ("b", true)]));
    assert_eq!(a.sees(), b.sees());
    let seen = a.replicas.list().into_iter().find(|each| each.identity == "b").unwrap();
    assert_eq!((seen.admin_address.as_str(), seen.version.as_str()), ("10.0.0.2:10257", COXSWAIN));
    assert_eq!(seen.lease_duration, LEASE_DURATION);

    let lease = server.lease("coxswain-replica-0");
    let meta = &lease.metadata;
    assert_eq!(meta.namespace, "kube-system");
    let map = |map: &coxswain_machinery::wire::Labels| -> Vec<_> {
        map.iter().map(|(key, value)| format!("{key}={value}")).collect()
    };
    assert_eq!(map(&meta.labels), ["app.kubernetes.io/name=coxswain", REPLICA_SELECTOR]);
    let version = format!("coxswain.dev/version={COXSWAIN}");
    let selection = |identity: &str| format!("coxswain.dev/selection={SELECTION} {identity}");
    let main = |identity: &str| format!("coxswain.dev/lease={MAIN} {identity}");
    let all = [
        "coxswain.dev/admin-address=10.0.0.2:10257",
        "coxswain.dev/admin-ca=PEM",
        &main("b"),
        &selection("b"),
        version.as_str(),
    ];
    assert_eq!(map(&meta.annotations), all);
    let of_a = map(&server.lease("coxswain-replica-1").metadata.annotations);
    assert_eq!(of_a, [main("a"), selection("a"), version.clone()]);
    assert_eq!(seen.selection, SELECTION);

    // What it tells may change.
    b.replicas.announce(Announcement { admin_address: Some("h:1".to_owned()), admin_ca: None });
    sleep(A_MOMENT).await;
    let seen = a.replicas.list().into_iter().find(|each| each.identity == "b").unwrap();
    assert_eq!(seen.admin_address, "h:1");
    assert!(!server.lease("coxswain-replica-0").metadata.annotations.contains_key(ADMIN_CA_ANNOTATION));
}

#[test]
fn selection_left_by_another_replica_is_unknown() {
    let own = |identity: &str| own_in(Group::default(), identity, Timestamp::UNIX_EPOCH);
    let stored = own("newer").lease("coxswain-replica-0", &Announcement::default(), Timestamp::UNIX_EPOCH);
    let lease = decoded(stored.unwrap());
    assert_eq!(super::format::state(&lease, true).selection, SELECTION);
    assert_eq!(super::format::state(&lease, true).lease, MAIN);
    // An older version knows nothing of the annotation.
    let mut record = coxswain_machinery::election::Record::from(&*lease);
    record.holder = "older".into();
    let taken = edit(&coxswain_machinery::api::Object::raw(&*lease), &record.edits()).unwrap();
    let lease = decoded(taken);
    let taken = super::format::state(&lease, true);
    assert_eq!((taken.selection.as_str(), taken.lease.as_str()), ("", ""));
}

#[tokio::test(start_paused = true)]
async fn groups_with_different_leases_do_not_see_each_other() {
    let server = Arc::<Server>::default();
    let (a, b) =
        (replica(&server, "a", true), replica_of(&server, Group::new("kube-system", "b"), "b", true));
    let identities =
        |replicas: &Replicas| replicas.list().into_iter().map(|each| each.identity).collect::<Vec<_>>();
    let announce = |own: &Own| {
        let lease =
            own.lease(&format!("coxswain-replica-{}", own.identity), &Announcement::default(), own.started);
        let lease = decoded(lease.unwrap());
        for replicas in [&a, &b] {
            replicas.see(Some(Arc::clone(&lease)));
        }
        lease
    };
    let now = a.clock.now();
    announce(&own_in(Group::default(), "a-2", now));
    announce(&own_in(Group::new("kube-system", "b"), "b-2", now));
    announce(&own_in(Group::new("managers", "b"), "c", now));
    assert_eq!(identities(&a), ["a", "a-2"]);
    assert_eq!(identities(&b), ["b", "b-2"]);

    // A replica of an older version announces no group.
    let lease = announce(&own_in(Group::default(), "older", now));
    let edits = [Edit::MapRemove(ANNOTATIONS, LEASE_ANNOTATION.to_owned())];
    let older = edit(&coxswain_machinery::api::Object::raw(&*lease), &edits).unwrap();
    let older = decoded(older);
    for replicas in [&a, &b] {
        replicas.see(Some(Arc::clone(&older)));
    }
    assert_eq!(identities(&a), ["a", "a-2", "older"]);
    assert_eq!(identities(&b), ["b", "b-2"]);
    "older".clone_into(&mut server.holder.lock());
    assert_eq!(identities(&b), ["b", "b-2", "older"], "it leads this group");
}

#[tokio::test(start_paused = true)]
async fn renewals_are_signs_of_life_and_no_changes() {
    let server = Server::new(true);
    let (a, b) = (Running::start(&server, "a", true), Running::start(&server, "b", false));
    sleep(A_MOMENT).await;
    let mut changes = a.replicas.changes();
    changes.mark_unchanged();
    let first = server.lease("coxswain-replica-1");
    sleep(Duration::from_mins(10)).await;
    assert!(!changes.has_changed(), "nothing has changed");
    assert_eq!(a.sees(), pairs([("a", true), ("b", true)]));
    let last = server.lease("coxswain-replica-1");
    assert_eq!(last.spec.acquire_time, first.spec.acquire_time);
    assert_ne!(last.spec.renew_time, first.spec.renew_time);
    let renewals = server.requests.lock().iter().filter(|what| *what == "update coxswain-replica-1").count();
    assert!((55..=67).contains(&renewals), "{renewals} renewals in ten minutes");

    b.stopped().await;
    assert!(changes.has_changed());
    assert_eq!(a.sees(), pairs([("a", true)]));
}

#[tokio::test(start_paused = true)]
async fn the_dead_are_noticed_and_their_leases_removed_by_the_leader() {
    for may_delete in [true, false] {
        let server = Server::new(may_delete);
        let dead = Running::start(&server, "dead", false);
        sleep(A_MOMENT).await;
        let (a, b) = (Running::start(&server, "a", true), Running::start(&server, "b", false));
        sleep(A_MOMENT).await;
        dead.killed(&server).await;
        let mut changes = a.replicas.changes();
        changes.mark_unchanged();
        sleep(Duration::from_secs(27)).await;
        assert!(!changes.has_changed());
        changes.changed().await.unwrap();
        assert_eq!(a.sees(), pairs([("a", true), ("b", true), ("dead", false)]));
        assert_eq!(a.sees(), b.sees());
        assert_eq!(server.names().len(), 3);

        sleep(LEASE_DURATION + A_MOMENT).await;
        assert_eq!(a.sees(), pairs([("a", true), ("b", true)]));
        assert_eq!(a.sees(), b.sees());
        if may_delete {
            assert_eq!(server.names().len(), 2);
            assert_eq!(server.requests.lock().iter().filter(|what| what.starts_with("delete")).count(), 1);
        } else {
            assert!(server.holders().contains(&String::new()), "released for the next");
            let c = Running::start(&server, "c", false);
            sleep(A_MOMENT).await;
            assert_eq!(server.names().len(), 3, "which takes it");
            assert!(server.holders().contains(&"c".to_owned()));
            assert_eq!(c.sees().len(), 3);
            sleep(Duration::from_mins(10)).await;
            assert_eq!(server.names().len(), 3);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_removes_anything_without_leading() {
    let server = Server::new(true);
    let dead = Running::start(&server, "dead", false);
    sleep(A_MOMENT).await;
    let a = Running::start(&server, "a", false);
    dead.killed(&server).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(server.names().len(), 2);
    assert_eq!(a.sees(), pairs([("a", true), ("dead", false)]));
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_leaves_nothing_or_something_of_use() {
    let server = Server::new(true);
    let a = Running::start(&server, "a", true);
    sleep(A_MOMENT).await;
    // Somebody else has written it since.
    let lease = server.lease("coxswain-replica-0");
    let note = Edit::MapSet(&[1, 12], "note".to_owned(), "x".to_owned());
    server.put(&edit(&coxswain_machinery::api::Object::raw(&*lease), &[note]).unwrap());
    a.stopped().await;
    assert_eq!(server.names(), Vec::<String>::new());

    let server = Server::new(false);
    for identity in ["a", "b", "c"] {
        let each = Running::start(&server, identity, true);
        sleep(A_MOMENT).await;
        assert_eq!(server.holders(), [identity]);
        assert_eq!(server.lease("coxswain-replica-0").metadata.annotations.iter().len(), 3);
        each.stopped().await;
        let left = server.lease("coxswain-replica-0");
        assert_eq!((left.spec.holder_identity.as_str(), left.metadata.annotations.iter().len()), ("", 0));
    }
    assert_eq!(server.names(), ["coxswain-replica-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_delays_one_renewal_and_not_the_end() {
    let server = Server::new(true);
    let a = Running::start(&server, "a", true);
    sleep(A_MOMENT).await;
    for _ in 0..5 {
        let before = server.requests.lock().len();
        server.stalls.store(true, Ordering::SeqCst);
        sleep(Duration::from_secs(20)).await;
        assert!(server.requests.lock().len() > before + 1, "it has gone on");
        assert_eq!(replica(&server, "b", false).list().len(), 2);
    }
    // Neither deleting nor releasing is answered.
    server.stalls.store(true, Ordering::SeqCst);
    let began = Instant::now();
    a.stopped().await;
    assert!(began.elapsed() <= slot::WITHDRAW * 2);
    assert_eq!(server.holders(), [""], "released, since it could not be deleted in time");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_lease() {
    let server = Server::new(true);
    server.loses_answer.store(true, Ordering::SeqCst);
    let a = Running::start(&server, "a", true);
    sleep(RENEW).await;
    assert_eq!(server.holders(), ["a"]);
    // A renewal that was carried out unknown to us.
    server.loses_answer.store(true, Ordering::SeqCst);
    sleep(RENEW * 3).await;
    assert_eq!(server.holders(), ["a"]);
    assert_eq!(a.sees(), pairs([("a", true)]));
    a.stopped().await;
    assert_eq!(server.names(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_or_taken_is_replaced() {
    let server = Server::new(true);
    let a = Running::start(&server, "a", true);
    sleep(A_MOMENT).await;
    server.remove("coxswain-replica-0");
    sleep(RENEW * 2).await;
    assert_eq!(server.holders(), ["a"]);

    let thief = own_in(Group::default(), "thief", Timestamp::UNIX_EPOCH);
    let lease = server.lease("coxswain-replica-0");
    server.put(&thief.renewed(&lease, &Announcement::default(), Timestamp::MAX).unwrap());
    sleep(RENEW * 2).await;
    assert_eq!(server.holders(), ["thief", "a"]);
    assert_eq!(a.sees(), pairs([("a", true), ("thief", true)]));
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_the_label_is_never_touched() {
    let server = Server::new(true);
    let foreign = |name: &str| {
        let metadata =
            ObjectMeta { name: name.into(), namespace: REPLICA_NAMESPACE.into(), ..ObjectMeta::default() };
        server.put(&Lease { metadata, ..Lease::default() }.to_bytes())
    };
    let first = foreign("coxswain-replica-0");
    let a = Running::start(&server, "a", true);
    sleep(A_MOMENT).await;
    assert_eq!(server.holders(), ["", "a"]);
    // Someone takes the label off: it is not ours any more.
    let lease = server.lease("coxswain-replica-1");
    let label = Edit::MapRemove(&[1, 11], "coxswain.dev/component".to_owned());
    let bare = server.put(&edit(&coxswain_machinery::api::Object::raw(&*lease), &[label]).unwrap());
    server.watching.lock().iter().for_each(|each| each.see_gone("coxswain-replica-1"));
    sleep(Duration::from_mins(5)).await;
    for untouched in [first, bare] {
        let now = server.lease(&untouched.metadata.name);
        assert_eq!(now.metadata.resource_version, untouched.metadata.resource_version);
    }
    assert_eq!(server.names().len(), 3);
    a.stopped().await;
    assert_eq!(server.names().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_renewed_long_ago_is_taken_over() {
    let server = Server::new(false);
    let old = replica(&server, "old", false);
    let long_ago = old.clock.now() - SignedDuration::from_mins(11);
    server.put(&old.own.lease("coxswain-replica-0", &Announcement::default(), long_ago).unwrap());
    let lately = old.clock.now() - SignedDuration::from_mins(9);
    let other = Own { identity: "lately".to_owned(), ..old.own.clone() };
    server.put(&other.lease("coxswain-replica-1", &Announcement::default(), lately).unwrap());
    server.watching.lock().clear();
    let a = Running::start(&server, "a", false);
    sleep(A_MOMENT).await;
    assert_eq!(server.holders(), ["a", "lately"]);
    assert_eq!(a.sees(), pairs([("a", true), ("lately", true)]), "its clock may be wrong: it may live");
    assert_eq!(server.lease("coxswain-replica-0").spec.lease_transitions, 1);
}

/// Two replicas start at the same time: what one sees as free, the other has taken.
#[tokio::test(start_paused = true)]
async fn replicas_that_start_together_find_places_of_their_own() {
    for seen in [true, false] {
        let server = Server::new(false);
        let left = Running::start(&server, "left", true);
        sleep(A_MOMENT).await;
        left.stopped().await;
        let all: Vec<_> = ["a", "b", "c", "d"].map(|name| replica(&server, name, false)).into();
        let watching = std::mem::take(&mut *server.watching.lock());
        if seen {
            server.watching.lock().extend(watching);
        }
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for each in &all {
            let (each, stop) = (Arc::clone(each), stop.clone());
            tasks.spawn(async move { each.keep(&stop).await });
        }
        sleep(RENEW * 2).await;
        let mut holders = server.holders();
        holders.sort();
        assert_eq!(holders, ["a", "b", "c", "d"], "with a watch: {seen}");
        stop.cancel();
        tasks.join_all().await;
        assert_eq!(server.holders(), [""; 4]);
    }
}

#[tokio::test]
async fn a_port_that_is_bound_to_one_address_is_advertised_with_it() {
    let uri = http::Uri::from_static("https://127.0.0.1:6443");
    let host = async |bound: &str| advertised_host(bound.parse().unwrap(), &uri).await;
    assert_eq!(host("10.1.2.3").await, "10.1.2.3");
    assert_eq!(host("fd00::1").await, "fd00::1");
    // The way to the server is the loopback's, which is of no use to others.
    assert_eq!(host("0.0.0.0").await, coxswain_machinery::environment::hostname());
}

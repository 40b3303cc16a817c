//! Garbage collection: an object goes when none of its owners is left, and an owner goes as its deletion asks for.
//!
//! Three parts, all of them pure: the [`graph`] of owners says what each change makes worth looking at; a [`view`] is what
//! live reads find there; the [`plan`] says what to do. What each never does is written at its head. They follow the
//! Kubernetes documentation ("Garbage Collection", "Owners and Dependents", "Use Cascading Deletion") and what was
//! observed on the Go manager.
//!
//! # What holds
//! - Nothing is deleted but by UID *and* resource version, and only when all owner references of that very version were
//!   looked up: at the places where they point, not by UID alone. So the object itself need not be read before: if it is not
//!   what the watch last told, the API server refuses, and it is read then. If its references are the same, what changes in it
//!   is something else, maybe all the time: then it goes by its UID alone, as in the original.
//! - What the graph says is never a proof, but for what cannot be taken back: that an object of a UID is gone, or had these
//!   references in that version. That an owner waits for its dependents can be: a later delete may say that they are to be
//!   left. A graph that lags behind delays, it does not destroy.
//! - An owner that waits for its dependents goes on waiting when a watch ends: its dependents stay known as *unseen* ones. One
//!   of them is read live every 30 seconds, until the watch of another version shows them or none is left. Unseen objects of a
//!   resource that has not been served for ten minutes are forgotten, unless other objects refer to them or an owner waits for them.
//! - An owner that orphans its dependents waits until all watches of its API group have synced, for up to 30 seconds after the group has
//!   returned: a dependent that is listed later than its owner would be deleted. A dependent whose watch does not sync in this time is
//!   deleted when it appears, as by kube-controller-manager.
//! - What can't be looked up (a kind that is not served, a failed read) is neither absent nor there: the attempt is retried.
//!
//! # Where it differs from the original, on purpose
//! - A dependent that appears while its owner is being deleted in the foreground goes at once, not when another change
//!   draws attention to it. Differs: late-dependents.
//! - Objects in the foreground deletion of which each blocks the next, in a circle, are unblocked whichever way they got
//!   there; in the original two that a user deletes so wait for each other for ever. Differs: circles.
//! - Of two references with one UID, of which one names another object, only the wrong one is removed: by its position, tested.
//!   Differs: references-by-position. Differs: absence-by-place.
//! - An owner whose name holds `/` or `%`, or is `.` or `..`, is never asked for. It counts as unknown, and its dependent stays.
//!   Differs: unreadable-owner-names.
//! - Custom and aggregated resources are changed with tested JSON patches, built-in ones with strategic patches.
//!   Differs: references-by-position.
//! - An object whose owners are all in sight is not read again, nor one that goes, or need not wait any longer, as it was
//!   last observed; and an owner's foreground deletion is looked at again when its last blocking dependent is gone, not
//!   at each. Differs: delete-by-version.
//!
//! # How it hangs together
//! ```text
//! watches of everything that can be deleted ([`coxswain_machinery::framework::DynamicRoom`])
//!   └─ changes ─► graph ─ what is worth a look ─► attempt_to_delete, attempt_to_orphan
//!                   ▲                                   │ live reads, as many passes as it takes
//!                   └── who was found absent ◄── view ──┴─► plan
//! ```
//! Keys are UIDs. Attempts begin when the watches that were there at the start have synced, or after 30 seconds; an
//! owner that is not in sight yet is a virtual node and costs a live read, never an object. The graph can be looked at under
//! `/debug/controllers/garbage-collector-controller/graph`, whole or around the objects of `?uid=`.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::IntCounter;

use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::ObjectMeta;
use coxswain_machinery::framework::{
    ApiResource, Build, BuildError, Built, DefaultState, Descriptor, DynamicRoom, DynamicWatches, Enqueue,
    Grant, Loop, LoopSettings, Memory, Observation, ObserveError, Outcome, QpsFactor, Reads, ReconcileEnd,
    Room, RoomAdapter, ServedRow,
};
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::clock::{SteadyClock, SteadyTime};
use coxswain_machinery::model::plan::Failure;
use coxswain_machinery::model::{Key, Plan};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::serve::{PageHandler, respond, sync_handler, text};

pub mod graph;
pub mod plan;
#[cfg(test)]
mod tests;
pub mod view;

pub use coxswain_machinery::wire::Uid;

use graph::{AffectedObjects, Blocker, Graph, Place, SearchTurn};
use view::{Attempt, Kinds, Subject, View};

/// The garbage collector's row of the registry.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "garbage-collector-controller",
    aliases: &["garbagecollector"],
    description: "Deletes objects whose owners no longer exist.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: Some("generic-garbage-collector"),
    event_source: None,
    writes: &[
        Grant { group: "*", resource: "*", verbs: &["delete", "get", "list", "patch", "update", "watch"] },
        coxswain_machinery::framework::EVENTS_GRANT,
    ],
    build: Some(build),
};

/// The queue of objects that may have to go.
const DELETE: &str = "garbage_collector_attempt_to_delete";
/// The queue of objects whose dependents are to be kept.
const ORPHAN: &str = "garbage_collector_attempt_to_orphan";

/// An object may have to be read before it is deleted: so that `--kube-api-qps` objects go in a second in any case. The
/// original has it so.
const QPS_FACTOR: QpsFactor = QpsFactor { qps: 2.0, burst: 1 };

/// How long an object waits for the caches to show what was written for it. The lists of some aggregated API servers have no resource
/// version, or count versions by object: such a cache never shows it. A cache that is late makes no wrong delete, as all deletes name what
/// was judged.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// Resources that come in masses, go by themselves and own nothing, by group and name.
const IGNORED: &[(&str, &str)] = &[("", "events"), ("events.k8s.io", "events")];

/// Builds the controller.
pub fn build(build: &Build<'_>) -> Result<Built, BuildError> {
    let flags = &build.config.flags;
    if !flags.enable_garbage_collector {
        return Err(BuildError::Skipped("--enable-garbage-collector=false".to_owned()));
    }
    let sync_errors = build.metrics.counter(
        "garbagecollector_controller_resources_sync_error_total",
        "Failed discoveries of the resources to watch.",
    );
    let sync_errors = sync_errors.map_err(|error| BuildError::Invalid(error.to_string()))?;
    let hub = Arc::new(Hub { graph: Mutex::default(), unseen: Mutex::default(), sync_errors });
    let watches = (build.dynamic)(Arc::clone(&hub) as _);
    (build.debug)(page(&hub));
    let attempts = |queue: &'static str, attempt: fn(Uid) -> Attempt| Loop {
        queue,
        kind: None,
        settings: LoopSettings {
            qps_factor: QPS_FACTOR,
            longest_wait: Some(LONGEST_WAIT),
            ..LoopSettings::with_workers(flags.concurrent_gc_syncs)
        },
        wake_ups: Vec::new(),
        reconcile: Arc::new(
            RoomAdapter::new(Attempts { hub: Arc::clone(&hub), watches: Arc::clone(&watches), attempt })
                .remembered_by(Arc::new(Absences {
                    hub: Arc::clone(&hub),
                    watches: Arc::clone(&watches),
                    searches: queue == DELETE,
                })),
        ),
    };
    Ok(Built { loops: vec![attempts(DELETE, Attempt::Delete), attempts(ORPHAN, Attempt::Orphan)] })
}

/// What watches feed and attempts ask.
struct Hub {
    graph: Mutex<Graph>,
    unseen: Mutex<UnseenOwners>,
    sync_errors: IntCounter,
}

/// Owners that exist and that no watch shows, and owners that may exist at a place that could not be read after a long search.
struct UnseenOwners {
    clock: SteadyClock,
    /// Times of the first search after which each owner was added, by key.
    since: HashMap<Key, SteadyTime>,
}

impl Default for UnseenOwners {
    fn default() -> Self {
        Self { clock: SteadyClock::start(), since: HashMap::default() }
    }
}

impl UnseenOwners {
    /// Returns how long the owner of this key has been known.
    fn known_for(&self, key: &Key) -> Duration {
        self.since.get(key).map(|since| self.clock.now().since(*since)).unwrap_or_default()
    }

    fn add(&mut self, key: &Key) {
        let now = self.clock.now();
        self.since.entry(key.clone()).or_insert(now);
    }
}

impl DynamicRoom for Hub {
    fn wants(&self, resource: &ApiResource) -> bool {
        let ignored = |(group, name): &(&str, &str)| resource.group == *group && resource.resource == *name;
        resource.supports(&["delete"]) && !IGNORED.iter().any(ignored)
    }

    fn changed(&self, kind: &'static Kind, delta: Delta<'_>, enqueue: Enqueue<'_>) {
        let mut affected = AffectedObjects::default();
        {
            let mut graph = self.graph.lock();
            match (delta.new, delta.old) {
                (Some(now), old) => {
                    // etcd was restored from a copy: what the cache holds now counts, not what was newer.
                    if delta.is_news() && old.is_some_and(|old| has_gone_back(old.meta(), now.meta())) {
                        graph.forget_version(&now.meta().uid);
                    }
                    graph.observe(kind, now.meta(), &mut affected);
                }
                (None, Some(last)) => graph.gone(kind, last.meta(), &mut affected),
                (None, None) => {}
            }
        }
        put(affected, enqueue);
    }

    fn forgotten(&self, kind: &'static Kind, enqueue: Enqueue<'_>) {
        let mut affected = AffectedObjects::default();
        self.graph.lock().forget_kind(kind, &mut affected);
        put(affected, enqueue);
    }

    fn synced(&self, kind: &'static Kind, enqueue: Enqueue<'_>) {
        let mut affected = AffectedObjects::default();
        let unseen: Vec<Uid> = self.unseen.lock().since.keys().map(|key| Uid::from(&key.name)).collect();
        {
            let mut graph = self.graph.lock();
            graph.shown(kind, &mut affected);
            // The list lacks these owners, which no watch showed so far. One of them may have been deleted meanwhile.
            affected.delete.extend(unseen.into_iter().filter(|uid| graph.is_missing(uid, kind)));
        }
        put(affected, enqueue);
    }

    fn discovered(&self, served: ServedRow<'_>, enqueue: Enqueue<'_>) {
        let mut affected = AffectedObjects::default();
        self.graph.lock().sweep_unseen(served, &mut affected);
        put(affected, enqueue);
    }

    fn failed(&self, _: &str) {
        self.sync_errors.inc();
    }
}

/// Whether a cache replaced an object by an older version of it.
fn has_gone_back(before: &ObjectMeta, now: &ObjectMeta) -> bool {
    before.uid == now.uid && before.version().zip(now.version()).is_some_and(|(before, now)| now < before)
}

/// Puts what is worth a look into the queues.
fn put(affected: AffectedObjects, enqueue: Enqueue<'_>) {
    for (queue, uids) in [(DELETE, affected.delete), (ORPHAN, affected.orphan)] {
        for uid in uids {
            enqueue(queue, Key::new("", uid.to_str()));
        }
    }
}

/// Returns whether a write may have been refused because its object has changed: 409, or 422 for a patch, whose tests may have failed. A live
/// read cannot fix any other 422.
fn is_outdated(failure: &Failure) -> bool {
    failure.code == StatusCode::CONFLICT
        || failure.code == StatusCode::UNPROCESSABLE_ENTITY && failure.verb == "patch"
}

/// The attempts of one queue.
struct Attempts {
    hub: Arc<Hub>,
    watches: Arc<DynamicWatches>,
    attempt: fn(Uid) -> Attempt,
}

impl Room<Found> for Attempts {
    const HEEDS_FAILURES: bool = true;

    type View = View;

    fn observe(
        &self,
        key: &Key,
        failures: &[Failure],
        read: &Reads,
    ) -> Result<Observation<View>, ObserveError> {
        let changed = failures.iter().any(is_outdated);
        if !failures.is_empty() && !changed {
            // There is nowhere to write a failure down; the attempt is made again.
            return Ok(Observation::Nothing);
        }
        let attempt = (self.attempt)(Uid::from(&key.name));
        let mut observed =
            view::observe(&self.hub.graph.lock(), self.watches.as_ref(), &attempt, changed, read)?;
        if let Observation::View(View { subject: Subject::Virtual { known_for, .. }, .. }) = &mut observed {
            *known_for = self.hub.unseen.lock().known_for(key);
        }
        Ok(observed)
    }

    fn plan(view: &View, _: Timestamp) -> Plan<Found> {
        let blocker = match &view.subject {
            Subject::Blocked { by, found } => Some((by.clone(), found.clone())),
            _ => None,
        };
        let (is_unseen, is_unknown) = match &view.subject {
            Subject::Virtual { there, unknown, is_long, .. } => {
                let is_unseen = *there || (*is_long && unknown.is_some());
                (is_unseen, !is_unseen && unknown.is_some())
            }
            Subject::Search(_) => (false, true),
            _ => (false, false),
        };
        let turn = match &view.subject {
            Subject::Search(turn) => Some(turn.clone()),
            _ => None,
        };
        plan::plan(view).with_note(Found {
            absent: view.absent.clone(),
            blocker,
            turn,
            is_unseen,
            is_unknown,
        })
    }
}

impl Kinds for DynamicWatches {
    fn named(&self, api_version: &str, kind: &str) -> Result<&'static Kind, String> {
        self.kind_of(api_version, kind)
    }

    fn served(&self, kind: &'static Kind) -> Result<Option<&'static Kind>, String> {
        self.served_row(kind)
    }

    fn is_settling(&self, group: &str) -> bool {
        Self::is_settling(self, group)
    }
}

/// What live reads found that the graph is to be told.
#[derive(Debug, Default)]
struct Found {
    /// Who was found absent: it spares others their reads.
    absent: Vec<Place>,
    /// A dependent that was out of sight.
    blocker: Option<(Uid, Blocker)>,
    /// The part of a search for the object of the key, after which another part follows.
    turn: Option<SearchTurn>,
    /// Whether the object of the key exists and no watch shows it, or may exist after a long search.
    is_unseen: bool,
    /// Whether the object of the key could not be read, or its search goes on.
    is_unknown: bool,
}

/// Tells the graph what was found.
struct Absences {
    hub: Arc<Hub>,
    watches: Arc<DynamicWatches>,
    /// Whether the attempts of the loop search for owners. The other loop's attempts for the same UID must not end a search.
    searches: bool,
}

impl Memory<Found> for Absences {
    fn commit(&self, key: &Key, found: Found) {
        if found.is_unseen {
            self.hub.unseen.lock().add(key);
        } else if !found.is_unknown && self.searches {
            self.hub.unseen.lock().since.remove(key);
        }
        let mut affected = AffectedObjects::default();
        {
            let mut graph = self.hub.graph.lock();
            let uid = Uid::from(&key.name);
            match found.turn {
                Some(turn) => graph.record_turn(&uid, turn),
                None if self.searches => graph.end_search(&uid),
                None => {}
            }
            graph.record_absences(found.absent, &mut affected);
            if let Some((uid, blocker)) = found.blocker {
                graph.looked_for(&uid, &blocker, &mut affected);
            }
        }
        put(affected, &mut |queue, key| self.watches.enqueue(queue, key));
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        if self.searches && matches!(ended.outcome, Outcome::Absent) {
            self.hub.unseen.lock().since.remove(key);
            self.hub.graph.lock().end_search(&Uid::from(&key.name));
        }
    }
}

const GRAPHVIZ: HeaderValue = HeaderValue::from_static("text/vnd.graphviz");

/// The graph, for people: `/graph`, or a part of it: `/graph?uid=UID&uid=UID`.
fn page(hub: &Arc<Hub>) -> PageHandler {
    let hub = Arc::clone(hub);
    sync_handler(move |request| {
        if request.uri().path() != "/graph" {
            return text(StatusCode::NOT_FOUND, "404 page not found\n");
        }
        let query = request.uri().query().unwrap_or_default();
        let uids: Vec<Uid> = form_urlencoded::parse(query.as_bytes())
            .filter(|(name, _)| name == "uid")
            .map(|(_, uid)| Uid::from(&*uid))
            .collect();
        let mut dot = String::new();
        // Writing to a string does not fail.
        let _ = hub.graph.lock().write_dot((!uids.is_empty()).then_some(&uids), &mut dot);
        respond(StatusCode::OK, GRAPHVIZ, dot)
    })
}

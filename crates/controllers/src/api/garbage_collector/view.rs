//! What an attempt rests on: an object and its owners as they are now, and what the graph knows beside.
//!
//! Observing takes several passes: each says which live reads it still needs, and the next one has them. Nothing is read
//! that cannot subject: an object whose owners are all in sight costs no request, and nor does an owner that is known to be
//! gone, which cannot be taken back. (That it waits for its dependents can: who deletes it once more may say that they
//! are to be left.) Nor is an object read that is to go, or need not wait any longer, if it still is what the watch last
//! told: it is written on the condition that it is, which the API server checks, and read if it is not. Reads go to the API
//! server, never to a cache; this module itself does no I/O.

use std::sync::Arc;
use std::time::Duration;

use super::Uid;
use super::graph::{
    Blocker, Coordinates, Graph, HeldDependent, NodeFacts, ObjectFacts, ObjectIdentity, OwnerFindings,
    OwnerSearch, OwnerTarget, Place, READS_PER_TURN, SearchTurn, State,
};
use crate::live_reads::{COLLECTOR_OBJECT, COLLECTOR_UNSEEN};
use coxswain_machinery::api::meta::{ORPHAN_FINALIZER, OwnerReference};
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::framework::{DeclaredRead, Observation, ObserveError, Read, Reads};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::names::is_addressable;
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::Str;

/// Length in bytes of the longest name that a request can contain. The client refuses longer URIs.
const LONGEST_NAME: usize = 60 << 10;
/// Characters of a name that no request can contain which are shown in the reason.
const SHOWN: usize = 64;

/// What is to be attempted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attempt {
    /// To delete the object if it must go, or to let it go if it waited for its dependents.
    Delete(Uid),
    /// To take an object that is being deleted out of its dependents' owner references.
    Orphan(Uid),
}

/// The kinds that discovery has found.
pub trait Kinds {
    /// The kind that an owner reference names by `apiVersion` and `kind`.
    ///
    /// # Errors
    /// Says why it cannot be found.
    fn named(&self, api_version: &str, kind: &str) -> Result<&'static Kind, String>;

    /// The row of this kind's resource in the version that is served now. `None`: no version is.
    ///
    /// # Errors
    /// Says why that cannot be found out.
    fn served(&self, kind: &'static Kind) -> Result<Option<&'static Kind>, String>;

    /// Whether an API group has returned, and objects of it may not have been observed yet.
    fn is_settling(&self, group: &str) -> bool;
}

/// Everything that a decision rests on.
#[derive(Debug)]
pub struct View {
    /// What is to be decided about.
    pub subject: Subject,
    /// Where live reads found nobody: the graph is to be told.
    pub absent: Vec<Place>,
}

/// What is to be decided about.
#[derive(Debug)]
pub enum Subject {
    /// An object that no watch has told of.
    Virtual {
        /// It is there: its watch is late, or there is none of its kind.
        there: bool,
        /// Why some place could not be looked at.
        unknown: Option<String>,
        /// The search has taken several reconciles.
        is_long: bool,
        /// References were added while the search took several reconciles.
        is_outdated: bool,
        /// Time since the first live read that found the object.
        known_for: Duration,
    },
    /// An object that no watch has told of, and that may be at places which this reconcile does not read.
    Search(SearchTurn),
    /// An object that may have to go.
    Candidate {
        /// What the graph knows of it.
        facts: ObjectFacts,
        /// It, as it is now.
        live: AnyObject,
        /// Its owners, in the order of its references.
        owners: Vec<Owner>,
        /// It has changed under the last decision, and its references have not. Something else in it changes faster than it
        /// can be looked at, so that its version is nothing to hold to.
        is_restless: bool,
    },
    /// An object that must go, if it still is what was last observed: its owners are gone, or wait for it.
    Doomed {
        /// What the graph knows of it.
        facts: ObjectFacts,
        /// An owner waits for its dependents to go.
        awaited: bool,
    },
    /// An object that waited for its dependents, and need not any longer: none is left that blocks it.
    Released {
        /// Which object it is.
        identity: ObjectIdentity,
        /// Where among its finalizers the one is by which it waits, as last observed.
        at: usize,
    },
    /// An object that waits for its dependents, of which one is out of sight.
    Blocked {
        /// The dependent.
        by: Uid,
        /// How it was found.
        found: Blocker,
    },
    /// An object that waited for its dependents, and need not or cannot wait any longer.
    Waiting {
        /// What the graph knows of it.
        facts: ObjectFacts,
        /// It, as it is now.
        live: AnyObject,
    },
    /// An object that is being deleted and leaves its dependents behind. They may be in its own API group, which has just returned.
    Settling,
    /// An object that is being deleted and leaves its dependents behind.
    Orphaning {
        /// Which object it is.
        owner: ObjectIdentity,
        /// It, as it is now.
        live: AnyObject,
        /// Its dependents, as the graph has observed them.
        dependents: Vec<HeldDependent>,
    },
}

/// What became of a reference's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It exists.
    Solid,
    /// It is being deleted, and waits for its dependents to go first.
    Waiting,
    /// It does not exist where the reference points.
    Absent {
        /// An object with that UID exists in another namespace.
        elsewhere: bool,
    },
    /// It has a namespace and the dependent has none, so that nobody can say which object is meant. It counts as there.
    OutOfReach,
    /// It can't be told.
    Unknown(String),
}

/// Observes for an attempt with what has been read so far. `changed`: what was decided about the version last observed
/// came too late, so that the object itself must be read.
pub fn observe(
    graph: &Graph,
    kinds: &dyn Kinds,
    attempt: &Attempt,
    changed: bool,
    reads: &Reads,
) -> Result<Observation<View>, ObserveError> {
    match attempt {
        Attempt::Orphan(uid) => match graph.subject(uid) {
            NodeFacts::Object(facts) if facts.state.orphan_deleting => {
                observe_orphaning(graph, kinds, facts, reads)
            }
            _ => Ok(Observation::Nothing),
        },
        Attempt::Delete(uid) => match graph.search(uid) {
            Some(search) => Ok(observe_search(uid, search, reads)),
            None => observe_deletable(graph, kinds, uid, changed, reads),
        },
    }
}

fn observe_deletable(
    graph: &Graph,
    kinds: &dyn Kinds,
    uid: &Uid,
    changed: bool,
    reads: &Reads,
) -> Result<Observation<View>, ObserveError> {
    match graph.subject(uid) {
        NodeFacts::Unknown => Ok(Observation::Nothing),
        NodeFacts::Virtual(places) => Ok(observe_virtual(graph, kinds, places, reads)),
        NodeFacts::Object(facts) if facts.state.foreground_deleting => {
            observe_waiting(graph, kinds, facts, changed, reads)
        }
        NodeFacts::Object(facts) if facts.state.deleting || facts.settled => Ok(Observation::Nothing),
        NodeFacts::Object(facts) => {
            let observed = (!changed).then(|| observe_doomed(graph, kinds, &facts, reads)).flatten();
            observed.map_or_else(|| observe_candidate(graph, kinds, facts, changed, reads), Ok)
        }
    }
}

/// Why there is no object of a UID to be had.
enum Missing {
    NotRead(DeclaredRead),
    Failed(String),
    Gone,
}

impl Missing {
    /// How a pass ends that cannot do without the object.
    fn end(self) -> Result<Observation<View>, ObserveError> {
        match self {
            Self::NotRead(read) => Ok(Observation::Needs(vec![read])),
            Self::Failed(error) => Err(ObserveError::Retry(error)),
            Self::Gone => Ok(Observation::Nothing),
        }
    }
}

fn find(reads: &Reads, kind: &'static Kind, key: &Key, uid: &Uid) -> Result<AnyObject, Missing> {
    match reads.object(kind, key) {
        None => Err(Missing::NotRead(COLLECTOR_OBJECT.of(Read::Object(kind, key.clone())))),
        Some(Err(error)) => Err(Missing::Failed(error.to_string())),
        Some(Ok(Some(object))) if object.meta().uid == *uid => Ok(Arc::clone(object)),
        Some(Ok(_)) => Err(Missing::Gone),
    }
}

fn find_itself(reads: &Reads, identity: &ObjectIdentity) -> Result<AnyObject, Missing> {
    find(reads, identity.kind, &identity.key, &identity.uid)
}

fn observe_waiting(
    graph: &Graph,
    kinds: &dyn Kinds,
    facts: ObjectFacts,
    changed: bool,
    reads: &Reads,
) -> Result<Observation<View>, ObserveError> {
    if facts.blocking > 0 && !facts.deadlocked {
        let unseen = graph.unseen_blocker(&facts.identity.uid);
        return Ok(unseen.map_or(Observation::Nothing, |unseen| observe_unseen(kinds, unseen, reads)));
    }
    if let (0, Some(at), false) = (facts.blocking, facts.state.foreground_at, changed) {
        return Ok(view(Subject::Released { identity: facts.identity, at: at.into() }));
    }
    match find_itself(reads, &facts.identity) {
        Err(missing) => missing.end(),
        Ok(live) if State::of(live.meta()).foreground_deleting => Ok(view(Subject::Waiting { facts, live })),
        Ok(_) => Ok(Observation::Nothing),
    }
}

/// Looks for one dependent that is out of sight: while it is there, its owner need not know more.
fn observe_unseen(kinds: &dyn Kinds, unseen: ObjectIdentity, reads: &Reads) -> Observation<View> {
    let served = match kinds.served(unseen.kind) {
        Ok(served) => served,
        Err(why) => return view(Subject::Blocked { by: unseen.uid, found: Blocker::Unknown(why) }),
    };
    // What discovery lacks may be served all the same.
    let row = served.unwrap_or(unseen.kind);
    let found = match reads.object(row, &unseen.key) {
        None => return Observation::Needs(vec![COLLECTOR_UNSEEN.of(Read::Object(row, unseen.key))]),
        Some(Err(error)) if served.is_none() && error.is_not_found() => Blocker::NotServed,
        Some(Err(error)) if served.is_some() || error.code() == 503 => Blocker::Unreadable(error.to_string()),
        Some(Err(error)) => Blocker::Unknown(error.to_string()),
        Some(Ok(Some(live))) if live.meta().uid == unseen.uid => {
            Blocker::There(live.meta().owner_references.clone())
        }
        Some(Ok(_)) => Blocker::Gone,
    };
    view(Subject::Blocked { by: unseen.uid, found })
}

fn observe_orphaning(
    graph: &Graph,
    kinds: &dyn Kinds,
    facts: ObjectFacts,
    reads: &Reads,
) -> Result<Observation<View>, ObserveError> {
    if kinds.is_settling(facts.identity.kind.group) {
        return Ok(view(Subject::Settling));
    }
    match find_itself(reads, &facts.identity) {
        Err(missing) => missing.end(),
        Ok(live) if live.meta().finalizers.iter().any(|held| held == ORPHAN_FINALIZER) => {
            let mut dependents = graph.dependents(&facts.identity.uid);
            for unseen in dependents.iter_mut().filter(|held| held.is_unseen) {
                let served = kinds.served(unseen.identity.kind).map_err(ObserveError::Retry)?;
                unseen.identity.kind = served.unwrap_or(unseen.identity.kind);
            }
            Ok(view(Subject::Orphaning { owner: facts.identity, live, dependents }))
        }
        Ok(_) => Ok(Observation::Nothing),
    }
}

/// Looks for an owner at all places to which references point. If these are more objects than one reconcile reads, a search begins.
fn observe_virtual(graph: &Graph, kinds: &dyn Kinds, places: Vec<Place>, reads: &Reads) -> Observation<View> {
    let (mut targets, mut turn) = (Vec::new(), SearchTurn::default());
    add_targets(graph, kinds, &places, &mut targets, &mut turn.findings);
    let needs = read_targets(targets, reads, &mut turn);
    if !needs.is_empty() {
        return Observation::Needs(needs);
    }
    if turn.left.is_empty() {
        return end_of_search(turn.findings, false, false);
    }
    turn.listed = Some(places);
    view(Subject::Search(turn))
}

/// Continues a search. Places to which references point since it began are left to the next search, so that each search ends.
fn observe_search(uid: &Uid, search: &OwnerSearch, reads: &Reads) -> Observation<View> {
    let (targets, through) = search.next_targets(uid);
    let mut turn = SearchTurn { through, ..SearchTurn::default() };
    let needs = read_targets(targets, reads, &mut turn);
    if !needs.is_empty() {
        return Observation::Needs(needs);
    }
    if !turn.left.is_empty() || !search.ends_with(through) {
        return view(Subject::Search(turn));
    }
    let mut findings = search.findings(uid);
    findings.add(turn.findings);
    end_of_search(findings, true, search.is_outdated())
}

fn end_of_search(findings: OwnerFindings, is_long: bool, is_outdated: bool) -> Observation<View> {
    let OwnerFindings { absent, there, unknown } = findings;
    let subject = Subject::Virtual { there, unknown, is_long, is_outdated, known_for: Duration::ZERO };
    Observation::View(View { subject, absent })
}

/// Adds the findings about these objects to the turn, or returns the reads that are needed first. One reconcile reads eight objects at
/// most, because users choose the number of places and other keys wait meanwhile.
fn read_targets(targets: Vec<OwnerTarget>, reads: &Reads, turn: &mut SearchTurn) -> Vec<DeclaredRead> {
    // Places may change between two passes. The objects that were read already belong to this turn.
    let is_read = |target: &OwnerTarget| reads.object(target.kind, &target.key).is_some();
    let (read, unread): (Vec<OwnerTarget>, Vec<OwnerTarget>) = targets.into_iter().partition(is_read);
    // A reconcile has eight passes, and the last one must not read.
    let room = match reads.count() {
        0 => READS_PER_TURN,
        count => (READS_PER_TURN - 1).saturating_sub(count),
    };
    if room > 0 && !unread.is_empty() {
        let needs = unread.into_iter().take(room);
        return needs.map(|target| COLLECTOR_OBJECT.of(Read::Object(target.kind, target.key))).collect();
    }
    for target in read {
        add_finding(target, reads, &mut turn.findings);
    }
    turn.left = unread;
    Vec::new()
}

/// Adds the objects to which these places lead, each once.
fn add_targets(
    graph: &Graph,
    kinds: &dyn Kinds,
    places: &[Place],
    targets: &mut Vec<OwnerTarget>,
    findings: &mut OwnerFindings,
) {
    let mut positions: HashMap<(&'static Kind, Key), usize> = HashMap::default();
    positions.extend(targets.iter().enumerate().map(|(at, target)| ((target.kind, target.key.clone()), at)));
    for place in places {
        match lead(graph, kinds, place.clone()) {
            Lead::Owner(Owner::Unknown(reason)) => {
                findings.unknown.get_or_insert(reason);
            }
            Lead::Owner(_) => {}
            Lead::Object(kind, key, place) => {
                let at = *positions.entry((kind, key.clone())).or_insert(targets.len());
                match targets.get_mut(at) {
                    Some(target) => target.places.push(place),
                    None => targets.push(OwnerTarget { kind, key, places: vec![place] }),
                }
            }
        }
    }
}

/// Adds the result of a live read.
fn add_finding(target: OwnerTarget, reads: &Reads, findings: &mut OwnerFindings) {
    let Some(place) = target.places.first() else { return };
    match find(reads, target.kind, &target.key, &place.uid) {
        Ok(_) => findings.there = true,
        Err(Missing::Gone) => findings.absent.extend(target.places),
        Err(Missing::Failed(error)) => {
            findings.unknown.get_or_insert(error);
        }
        Err(Missing::NotRead(_)) => {}
    }
}

/// Looks at the owners that an object was last observed to have. `None` if it must be read to know what to do: something
/// keeps it, or it is not to be deleted as most objects are.
fn observe_doomed(
    graph: &Graph,
    kinds: &dyn Kinds,
    facts: &ObjectFacts,
    reads: &Reads,
) -> Option<Observation<View>> {
    if facts.version == 0 || facts.state.cascades {
        return None;
    }
    let seen = match Sighting::of(graph, kinds, graph.owners(&facts.identity.uid), reads) {
        Ok(seen) => seen,
        Err(needs) => return Some(Observation::Needs(needs)),
    };
    let lost = |owner: &Owner| matches!(owner, Owner::Absent { elsewhere: false } | Owner::Waiting);
    if seen.owners.is_empty() || !seen.owners.iter().all(lost) {
        return None;
    }
    let subject = Subject::Doomed { facts: facts.clone(), awaited: seen.owners.contains(&Owner::Waiting) };
    Some(Observation::View(View { subject, absent: seen.absent }))
}

fn observe_candidate(
    graph: &Graph,
    kinds: &dyn Kinds,
    facts: ObjectFacts,
    changed: bool,
    reads: &Reads,
) -> Result<Observation<View>, ObserveError> {
    let live = match find_itself(reads, &facts.identity) {
        Err(missing) => return missing.end(),
        Ok(live) if live.meta().is_deleting() => return Ok(Observation::Nothing),
        Ok(live) => live,
    };
    let place = |reference: &OwnerReference| Place {
        uid: reference.uid.clone(),
        coordinates: Arc::new(Coordinates::of(reference)),
        namespace: facts.identity.key.namespace.clone(),
    };
    let places: Vec<Place> = live.meta().owner_references.iter().map(place).collect();
    let is_restless = changed && places == graph.owners(&facts.identity.uid);
    let seen = match Sighting::of(graph, kinds, places, reads) {
        Ok(seen) => seen,
        Err(needs) => return Ok(Observation::Needs(needs)),
    };
    Ok(Observation::View(View {
        subject: Subject::Candidate { facts, live, owners: seen.owners, is_restless },
        absent: seen.absent,
    }))
}

fn view(subject: Subject) -> Observation<View> {
    Observation::View(View { subject, absent: Vec::new() })
}

/// What is seen of some owners.
#[derive(Default)]
struct Sighting {
    needs: Vec<DeclaredRead>,
    /// The reads in `needs`.
    asked: HashSet<Read>,
    owners: Vec<Owner>,
    absent: Vec<Place>,
}

impl Sighting {
    /// Looks at all owners to which references point from these places, or says what must be read for that.
    fn of(
        graph: &Graph,
        kinds: &dyn Kinds,
        places: impl IntoIterator<Item = Place>,
        reads: &Reads,
    ) -> Result<Self, Vec<DeclaredRead>> {
        let mut seen = Self::default();
        for place in places {
            seen.look(graph, kinds, place, reads);
        }
        if seen.needs.is_empty() { Ok(seen) } else { Err(seen.needs) }
    }

    /// Looks at the owner to which a reference from `place.namespace` points.
    fn look(&mut self, graph: &Graph, kinds: &dyn Kinds, place: Place, reads: &Reads) {
        let elsewhere = graph.is_elsewhere(&place);
        let (kind, key, place) = match lead(graph, kinds, place) {
            Lead::Object(kind, key, place) => (kind, key, place),
            Lead::Owner(owner) => {
                self.owners.push(owner);
                return;
            }
        };
        match find(reads, kind, &key, &place.uid) {
            Err(Missing::NotRead(read)) => {
                if self.asked.insert(Read::clone(&read)) {
                    self.needs.push(read);
                }
            }
            Err(Missing::Failed(error)) => self.owners.push(Owner::Unknown(error)),
            Ok(live) if State::of(live.meta()).foreground_deleting => {
                self.owners.push(Owner::Waiting);
            }
            Ok(_) => self.owners.push(Owner::Solid),
            Err(Missing::Gone) => {
                self.absent.push(place);
                self.owners.push(Owner::Absent { elsewhere });
            }
        }
    }
}

/// The next step after a reference.
enum Lead {
    /// No live read is needed.
    Owner(Owner),
    /// This object is to be read. The place has the namespace in which its kind is.
    Object(&'static Kind, Key, Place),
}

/// Follows a reference from `place.namespace`.
fn lead(graph: &Graph, kinds: &dyn Kinds, mut place: Place) -> Lead {
    if graph.is_absent(&place) {
        return Lead::Owner(Owner::Absent { elsewhere: graph.is_elsewhere(&place) });
    }
    let kind = match kinds.named(&place.coordinates.api_version, &place.coordinates.kind) {
        Ok(kind) => kind,
        Err(reason) => return Lead::Owner(Owner::Unknown(reason)),
    };
    if kind.namespaced && place.namespace.is_empty() {
        return Lead::Owner(Owner::OutOfReach);
    }
    if !is_addressable(&place.coordinates.name) || place.coordinates.name.len() > LONGEST_NAME {
        // The text of a search is bounded.
        let start: String = place.coordinates.name.chars().take(SHOWN).collect();
        return Lead::Owner(Owner::Unknown(format!("{kind}: invalid resource name {start:?}")));
    }
    if !kind.namespaced {
        place.namespace = Str::EMPTY;
    }
    let key = Key::new(place.namespace.clone(), place.coordinates.name.clone());
    Lead::Object(kind, key, place)
}

/// The reference as the original words it in events.
pub(super) fn describe(reference: &OwnerReference, namespace: &str) -> String {
    let OwnerReference { api_version, kind, name, uid, .. } = reference;
    format!(
        "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in \
         namespace \"{namespace}\""
    )
}

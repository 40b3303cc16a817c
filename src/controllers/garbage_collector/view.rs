//! What an attempt rests on: an object and its owners as they are now, and what the graph knows beside.
//!
//! Observing takes several passes: each says which live reads it still needs, and the next one has them. Nothing is read
//! that cannot matter: an object whose owners are all in sight costs no request. Reads go to the API server, never to a
//! cache; this module itself does no I/O.

use std::sync::Arc;

use hashbrown::HashMap;

use super::graph::{Coordinates, Facts, Graph, Held, Identity, Place, State, Subject};
use super::{ORPHAN_FINALIZER, Uid};
use crate::api::Kind;
use crate::api::meta::{ObjectMeta, OwnerReference};
use crate::model::Key;
use crate::wire::Str;

/// What is to be attempted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attempt {
    /// To delete the object if it must go, or to let it go if it waited for its dependents.
    Delete(Uid),
    /// To take an object that is being deleted out of its dependents' owner references.
    Orphan(Uid),
}

/// A live read of an object's metadata.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Read {
    /// Its kind.
    pub kind: &'static Kind,
    /// Where it is.
    pub key: Key,
}

/// What live reads have found; `None`: there is no such object. An attempt begins with none.
pub type Reads = HashMap<Read, Option<Arc<ObjectMeta>>>;

/// Finds the kind that an owner reference names by `apiVersion` and `kind`, or says why it can't.
pub type Resolve<'a> = &'a dyn Fn(&str, &str) -> Result<&'static Kind, String>;

/// What came of a pass.
#[derive(Debug)]
pub enum Observed {
    /// There is nothing to decide about.
    Nothing,
    /// Read these, and observe again.
    Needs(Vec<Read>),
    /// Everything that the decision rests on.
    View(View),
}

/// Everything that a decision rests on.
#[derive(Debug)]
pub struct View {
    /// What is to be decided about.
    pub matter: Matter,
    /// Where live reads found nobody: the graph is to be told.
    pub absent: Vec<Place>,
}

/// What is to be decided about.
#[derive(Debug)]
pub enum Matter {
    /// An object that no watch has told of.
    Virtual {
        /// It is there: its watch is late, or there is none of its kind.
        there: bool,
        /// Why some place could not be looked at.
        unknown: Option<String>,
    },
    /// An object that may have to go.
    Candidate {
        /// What the graph knows of it.
        facts: Facts,
        /// It, as it is now.
        live: Arc<ObjectMeta>,
        /// Its owners, in the order of its references.
        owners: Vec<Owner>,
    },
    /// An object that waited for its dependents, and need not or cannot wait any longer.
    Waiting {
        /// What the graph knows of it.
        facts: Facts,
        /// It, as it is now.
        live: Arc<ObjectMeta>,
    },
    /// An object that is being deleted and leaves its dependents behind.
    Orphaning {
        /// Which object it is.
        owner: Identity,
        /// It, as it is now.
        live: Arc<ObjectMeta>,
        /// Its dependents, as the graph has observed them.
        dependents: Vec<Held>,
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

/// Observes for an attempt with what has been read so far.
pub fn observe(graph: &Graph, resolve: Resolve<'_>, attempt: &Attempt, reads: &Reads) -> Observed {
    match attempt {
        Attempt::Orphan(uid) => match graph.subject(uid) {
            Subject::Object(facts) if facts.state.orphan_deleting => observe_orphaning(graph, facts, reads),
            _ => Observed::Nothing,
        },
        Attempt::Delete(uid) => match graph.subject(uid) {
            Subject::Unknown => Observed::Nothing,
            Subject::Virtual(places) => observe_virtual(graph, resolve, places, reads),
            Subject::Object(facts) if facts.state.foreground_deleting => observe_waiting(facts, reads),
            Subject::Object(facts) if facts.state.deleting || facts.settled => Observed::Nothing,
            Subject::Object(facts) => observe_candidate(graph, resolve, facts, reads),
        },
    }
}

/// What a read has found of an object of this UID.
enum Found {
    NotRead(Read),
    Gone,
    There(Arc<ObjectMeta>),
}

fn find(reads: &Reads, read: Read, uid: &Uid) -> Found {
    match reads.get(&read) {
        None => Found::NotRead(read),
        Some(Some(meta)) if Uid::from(&meta.uid) == *uid => Found::There(Arc::clone(meta)),
        Some(_) => Found::Gone,
    }
}

fn find_itself(reads: &Reads, identity: &Identity) -> Found {
    find(reads, Read { kind: identity.kind, key: identity.key.clone() }, &identity.uid)
}

fn observe_waiting(facts: Facts, reads: &Reads) -> Observed {
    if facts.blocking > 0 && !facts.deadlocked {
        return Observed::Nothing;
    }
    match find_itself(reads, &facts.identity) {
        Found::NotRead(read) => Observed::Needs(vec![read]),
        Found::There(live) if State::of(&live).foreground_deleting => view(Matter::Waiting { facts, live }),
        Found::Gone | Found::There(_) => Observed::Nothing,
    }
}

fn observe_orphaning(graph: &Graph, facts: Facts, reads: &Reads) -> Observed {
    match find_itself(reads, &facts.identity) {
        Found::NotRead(read) => Observed::Needs(vec![read]),
        Found::There(live) if live.finalizers.iter().any(|held| held == ORPHAN_FINALIZER) => {
            let dependents = graph.dependents(&facts.identity.uid);
            view(Matter::Orphaning { owner: facts.identity, live, dependents })
        }
        Found::Gone | Found::There(_) => Observed::Nothing,
    }
}

fn observe_virtual(graph: &Graph, resolve: Resolve<'_>, places: Vec<Place>, reads: &Reads) -> Observed {
    let mut seen = Sighting::default();
    for place in places {
        seen.look(graph, resolve, place, reads);
    }
    if !seen.needs.is_empty() {
        return Observed::Needs(seen.needs);
    }
    let there = seen.owners.iter().any(|owner| matches!(owner, Owner::Solid | Owner::Waiting));
    let unknown = seen.owners.into_iter().find_map(|owner| match owner {
        Owner::Unknown(reason) => Some(reason),
        _ => None,
    });
    Observed::View(View { matter: Matter::Virtual { there, unknown }, absent: seen.absent })
}

fn observe_candidate(graph: &Graph, resolve: Resolve<'_>, facts: Facts, reads: &Reads) -> Observed {
    let live = match find_itself(reads, &facts.identity) {
        Found::NotRead(read) => return Observed::Needs(vec![read]),
        Found::There(live) if !live.is_deleting() => live,
        Found::Gone | Found::There(_) => return Observed::Nothing,
    };
    let mut seen = Sighting::default();
    for reference in &live.owner_references {
        let place = Place {
            uid: Uid::from(&reference.uid),
            coordinates: Arc::new(Coordinates::of(reference)),
            namespace: facts.identity.key.namespace.clone(),
        };
        seen.look(graph, resolve, place, reads);
    }
    if !seen.needs.is_empty() {
        return Observed::Needs(seen.needs);
    }
    Observed::View(View {
        matter: Matter::Candidate { facts, live, owners: seen.owners },
        absent: seen.absent,
    })
}

fn view(matter: Matter) -> Observed {
    Observed::View(View { matter, absent: Vec::new() })
}

/// What is seen of some owners.
#[derive(Default)]
struct Sighting {
    needs: Vec<Read>,
    owners: Vec<Owner>,
    absent: Vec<Place>,
}

impl Sighting {
    /// Looks at the owner to which a reference from `place.namespace` points.
    fn look(&mut self, graph: &Graph, resolve: Resolve<'_>, mut place: Place, reads: &Reads) {
        let elsewhere = graph.is_elsewhere(&place);
        if graph.is_absent(&place) {
            self.owners.push(Owner::Absent { elsewhere });
            return;
        }
        let kind = match resolve(&place.coordinates.api_version, &place.coordinates.kind) {
            Ok(kind) => kind,
            Err(reason) => {
                self.owners.push(Owner::Unknown(reason));
                return;
            }
        };
        if kind.namespaced && place.namespace.is_empty() {
            self.owners.push(Owner::OutOfReach);
            return;
        }
        if !kind.namespaced {
            place.namespace = Str::EMPTY;
        }
        let key = Key { namespace: place.namespace.clone(), name: place.coordinates.name.clone() };
        match find(reads, Read { kind, key }, &place.uid) {
            Found::NotRead(read) if self.needs.contains(&read) => {}
            Found::NotRead(read) => self.needs.push(read),
            Found::There(meta) if State::of(&meta).foreground_deleting => self.owners.push(Owner::Waiting),
            Found::There(_) => self.owners.push(Owner::Solid),
            Found::Gone => {
                self.absent.push(place);
                self.owners.push(Owner::Absent { elsewhere });
            }
        }
    }
}

/// The reference as the original words it in events.
pub(super) fn describe(reference: &OwnerReference, namespace: &str) -> String {
    let OwnerReference { api_version, kind, name, uid, .. } = reference;
    format!(
        "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in \
         namespace \"{namespace}\""
    )
}

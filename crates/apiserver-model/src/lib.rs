//! An API server in memory: what it stores, and how each write changes it.
//!
//! All of it is synchronous and knows no time but what it is told; `http` speaks for it. An object is the JSON that the real
//! server would show, with every field that upstream's definitions have.
//!
//! It models: resource versions and conflicts, UIDs, preconditions, finalizers, graceful deletion and propagation, owner
//! references, status, finalize and approval subresources, generateName, generations, the defaults that controllers read, namespace
//! lifecycle, quotas by numbers of objects and by the CPU that pods ask for, who may name an owner that waits, scales of workloads,
//! external metrics. It does not model: other authorization, managed fields, most of validation.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "a test that cannot go on says why and fails"
)]

pub mod access;
mod admission;
mod caches;
pub mod codec;
mod defaults;
pub mod dice;
pub mod http;
pub mod metrics;
mod patch;
mod refusal;
pub mod reply;
mod scale;
mod served;
mod watch;
mod write;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value as Json;

use coxswain_machinery::api::{Kind, kinds};
use coxswain_machinery::wire::json::schema::SCHEMA;

pub use admission::{CPU, Roles, amount, charges, spelt};
pub use caches::Caches;
use dice::Dice;
pub use patch::PatchType;
pub use refusal::Refusal;
pub use served::{OnTheWay, Served};
pub use watch::{Lag, Query, Watching};
pub use write::{Change, Deletion, items, text};

/// Changes that are remembered for watches that come back.
const REMEMBERED: usize = 4000;

/// Where an object is: its resource, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The plural name of its kind.
    pub resource: &'static str,
    /// Its namespace; empty if it is in none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// One version of an object.
#[derive(Debug)]
pub struct Stored {
    /// Where it is.
    pub place: Place,
    /// Its resource version.
    pub version: u64,
    /// All that it says.
    pub json: Json,
    full: OnceLock<Bytes>,
    metadata: OnceLock<Bytes>,
}

/// A change that watches are told of.
pub struct Event {
    /// The version that it made.
    pub version: u64,
    before: Option<Arc<Stored>>,
    /// What the object became; what it was when it went.
    pub after: Arc<Stored>,
    /// Whether the object is gone.
    pub gone: bool,
}

/// What is left of a list, and the version that it shows.
struct Remainder {
    version: u64,
    objects: Vec<Arc<Stored>>,
}

/// The objects as they were at a version.
#[derive(Clone)]
pub struct Backup {
    version: u64,
    objects: BTreeMap<Place, Arc<Stored>>,
}

/// See the module.
pub struct Model {
    version: u64,
    now: Timestamp,
    objects: BTreeMap<Place, Arc<Stored>>,
    history: VecDeque<Event>,
    /// Versions up to this one are forgotten.
    compacted: u64,
    watching: Vec<Watching>,
    /// What is left of lists that were read in part, by their tokens.
    pages: BTreeMap<u64, Remainder>,
    /// How late watches are.
    pub lag: Lag,
    /// Whether watches are not told of deletions, which is a bug that is planted.
    pub deaf: bool,
    dice: Dice,
    /// What writers are allowed to write, as far as it matters to whom they make an object wait for.
    pub roles: Roles,
    /// Who may have what.
    pub access: access::Access,
    /// What the external metrics API answers.
    pub metrics: metrics::Metrics,
    /// Kinds of custom resources that are served now.
    custom: Vec<&'static Kind>,
    /// Changes that nobody has looked at yet.
    pub changes: Vec<Change>,
}

/// The row of a resource that the API has.
pub fn kind(group: &str, version: &str, resource: &str) -> Option<&'static Kind> {
    let is_it = |row: &&&Kind| (row.group, row.version, row.resource) == (group, version, resource);
    kinds::ALL.iter().find(is_it).copied()
}

/// The row of a resource by its name alone, which is unique among those that the model stores.
pub fn stored_kind(resource: &str) -> &'static Kind {
    built_in(resource).unwrap_or_else(|| panic!("{resource} are not stored"))
}

/// Returns the row of a stored resource that is not custom.
fn built_in(resource: &str) -> Option<&'static Kind> {
    kinds::ALL.iter().find(|row| row.resource == resource && message(row).is_some()).copied()
}

/// Returns the API group of a resource; the model answers with an empty one for custom resources.
fn group_of(resource: &str) -> &'static str {
    built_in(resource).map_or("", |row| row.group)
}

/// The message of a kind's objects; `None` if the model does not store them.
pub fn message(kind: &Kind) -> Option<usize> {
    SCHEMA.of_kind(&kind.api_version(), kind.kind)
}

impl Place {
    /// The place of this resource, namespace and name.
    pub fn new(resource: &'static str, namespace: &str, name: &str) -> Self {
        Self { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl Stored {
    /// The encoding of the object, or of its metadata alone.
    pub fn encoded(&self, metadata_only: bool) -> Bytes {
        // Custom resources have no message of their own.
        let message = built_in(self.place.resource).and_then(message);
        if let Some(message) = message.filter(|_| !metadata_only) {
            return self.full.get_or_init(|| codec::encode(message, &self.json).into()).clone();
        }
        let encode = || {
            let message = SCHEMA.named("meta.v1.ObjectMeta").expect("it is in the table");
            let mut out = Vec::new();
            let metadata = codec::encode(message, &self.json["metadata"]);
            coxswain_machinery::wire::splice::put_bytes(&mut out, 1, &metadata);
            out.into()
        };
        self.metadata.get_or_init(encode).clone()
    }
}

impl Model {
    /// A server with the namespaces that the real one makes for itself.
    pub fn new(now: Timestamp, seed: u64) -> Self {
        let mut model = Self {
            version: 1,
            now,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            compacted: 0,
            watching: Vec::new(),
            pages: BTreeMap::new(),
            lag: Lag::default(),
            deaf: false,
            dice: Dice::new(seed, "server"),
            roles: |_| None,
            access: access::Access::default(),
            metrics: metrics::Metrics::default(),
            custom: Vec::new(),
            changes: Vec::new(),
        };
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let namespace = serde_json::json!({ "metadata": { "name": name } });
            model.create("server", "namespaces", "", namespace).expect("a namespace");
        }
        model
    }

    /// From here on it is this late.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// How late it is.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What is at a place.
    pub fn get(&self, place: &Place) -> Option<&Arc<Stored>> {
        self.objects.get(place)
    }

    /// The object of this name; `Null` if there is none.
    pub fn look(&self, resource: &'static str, namespace: &str, name: &str) -> &Json {
        self.objects.get(&Place::new(resource, namespace, name)).map_or(&Json::Null, |stored| &stored.json)
    }

    /// The objects of a resource, those of one namespace or of all, by name.
    pub fn all(&self, resource: &'static str, namespace: &str) -> impl Iterator<Item = &Arc<Stored>> {
        let namespace = namespace.to_owned();
        let range = self.objects.range(Place::new(resource, &namespace, "")..);
        range
            .take_while(move |(place, _)| {
                place.resource == resource && (namespace.is_empty() || place.namespace == namespace)
            })
            .map(|(_, stored)| stored)
    }

    /// Everything.
    pub fn everything(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.objects.values()
    }

    /// The changes after a version. Whoever asks must not be so far behind that some are forgotten: nothing would tell of those.
    pub fn after(&self, version: u64) -> impl Iterator<Item = &Event> {
        assert!(version >= self.compacted, "changes after version {version} are forgotten");
        let from = self.history.partition_point(|event| event.version <= version);
        self.history.range(from..)
    }

    /// Creates an object of this encoding.
    pub fn create_encoded(
        &mut self,
        by: &str,
        kind: &'static Kind,
        object: &[u8],
    ) -> Result<Arc<Stored>, Refusal> {
        let message = message(kind).expect("a kind that is stored");
        let json = codec::decode(message, object).expect("an object of the kind");
        let namespace = text(&json, "/metadata/namespace").to_owned();
        self.create(by, kind.resource, &namespace, json)
    }

    /// Puts an object there as it is, as a backup brings it back: with its UID, its times and its status. If there is one of its name,
    /// this is its next version.
    pub fn restore(&mut self, kind: &'static Kind, object: &[u8]) -> Arc<Stored> {
        let json = codec::decode(message(kind).expect("a kind that is stored"), object)
            .expect("an object of the kind");
        let at = |name: &str| text(&json, name).to_owned();
        let place = Place::new(kind.resource, &at("/metadata/namespace"), &at("/metadata/name"));
        self.commit(place, json, false)
    }

    /// Serves a custom resource. Only the metadata of its objects can be read. No other resource may have its name.
    pub fn define(&mut self, kind: &'static Kind) {
        self.custom.push(kind);
    }

    /// No longer serves a custom resource, and deletes its objects after all watches of it have ended.
    pub fn undefine(&mut self, kind: &'static Kind) {
        self.custom.retain(|held| *held != kind);
        self.cut(Some(kind.resource));
        let all: Vec<Place> = self.all(kind.resource, "").map(|stored| stored.place.clone()).collect();
        for place in all {
            drop(self.delete("server", &place, &Deletion::default()));
        }
    }

    /// Forgets what is past: watches that begin there, and lists that go on there, are refused.
    pub fn compact(&mut self) {
        self.compacted = self.version;
        self.history.clear();
        self.pages.clear();
    }

    /// Returns a backup of all objects.
    pub fn backup(&self) -> Backup {
        Backup { version: self.version, objects: self.objects.clone() }
    }

    /// Goes on from a backup, as an API server does that is started again after etcd was restored: resource versions go back, all watches
    /// end, and a watch from a later version is sent nothing until that version is exceeded.
    pub fn go_back_to(&mut self, backup: &Backup) {
        self.version = backup.version;
        self.objects.clone_from(&backup.objects);
        self.compact();
        self.cut(None);
    }

    /// A UUID that nobody else has.
    fn uid(&mut self) -> String {
        let (high, low) = (self.dice.number(), self.dice.number());
        uuid::Builder::from_random_bytes(((u128::from(high) << 64) | u128::from(low)).to_be_bytes())
            .into_uuid()
            .to_string()
    }

    /// What is put behind a `generateName`.
    fn suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(LETTERS[self.dice.below(LETTERS.len())])).collect()
    }

    /// Stores a version of an object, and tells of it. `gone`: it was the last one.
    fn commit(&mut self, place: Place, mut json: Json, gone: bool) -> Arc<Stored> {
        self.version += 1;
        json["metadata"]["resourceVersion"] = Json::from(self.version.to_string());
        let stored = Arc::new(Stored {
            place: place.clone(),
            version: self.version,
            json,
            full: OnceLock::new(),
            metadata: OnceLock::new(),
        });
        let before =
            if gone { self.objects.remove(&place) } else { self.objects.insert(place, Arc::clone(&stored)) };
        let event = Event { version: self.version, before, after: Arc::clone(&stored), gone };
        self.tell(&event);
        self.history.push_back(event);
        if self.history.len() > REMEMBERED
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.version;
        }
        stored
    }
}

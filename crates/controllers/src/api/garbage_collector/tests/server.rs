//! The model of the API server as a test of the graph sees it: metadata of three kinds, and a log of changes for each. It is written to
//! by the executor that ships.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use apiserver_model::{Deletion, Place as Stored, Served};
use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::fixtures::row;
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::{
    FOREGROUND_FINALIZER, ObjectMeta, OwnerReference, PartialObjectMetadata,
};
use coxswain_machinery::executor::WriteEffect;
use coxswain_machinery::model::plan::{Propagation, Write};
use coxswain_machinery::model::{Key, Plan, Step};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Message as _, Str, Uid};

/// Where an object is: its kind's position among [`SERVED`], namespace and name.
pub(super) type Place = (usize, Key);

/// Two kinds in namespaces and one that is in none.
pub(super) static SERVED: [&Kind; 3] = [
    &row("", "ConfigMap", "configmaps", true),
    &row("coordination.k8s.io", "Lease", "leases", true),
    &row("storage.k8s.io", "StorageClass", "storageclasses", false),
];

/// Finds the kinds above in their only version.
pub(super) fn resolve(api_version: &str, kind: &str) -> Result<&'static Kind, String> {
    let found = SERVED.into_iter().find(|row| row.kind == kind && row.api_version() == api_version);
    found.ok_or_else(|| format!("{api_version} {kind} is not served"))
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    Set(Arc<ObjectMeta>),
    Gone(Arc<ObjectMeta>),
}

/// How a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    Conflict,
    Unprocessable,
}

pub(super) struct Server {
    api: Served,
    pub(super) objects: BTreeMap<Place, ObjectMeta>,
    /// What no watch has told yet.
    pub(super) logs: [VecDeque<Event>; 3],
    /// Objects that waited for their dependents, and in which version it was said that they wait no longer.
    pub(super) waited_until: HashMap<Uid, u64>,
    pub(super) version: u64,
}

impl Default for Server {
    fn default() -> Self {
        let api =
            Served::new("generic-garbage-collector", Timestamp::from_second(1_700_000_000).expect("a time"));
        for name in ["a", "b"] {
            let namespace = json!({ "metadata": { "name": name } });
            api.model().create("user", "namespaces", "", namespace).expect("a namespace");
        }
        let version = api.model().version();
        Self {
            api,
            objects: BTreeMap::new(),
            logs: [const { VecDeque::new() }; 3],
            waited_until: HashMap::default(),
            version,
        }
    }
}

fn position(resource: &str) -> Option<usize> {
    SERVED.iter().position(|row| row.resource == resource)
}

pub(super) fn place(kind: &Kind, key: &Key) -> Place {
    (position(kind.resource).expect("one of the kinds"), key.clone())
}

fn stored((kind, key): &Place) -> Stored {
    Stored::new(SERVED[*kind].resource, &key.namespace, &key.name)
}

fn json_of(meta: &ObjectMeta) -> (Json, Json) {
    let reference = |held: &OwnerReference| {
        json!({
            "apiVersion": held.api_version, "kind": held.kind, "name": held.name, "uid": held.uid,
            "blockOwnerDeletion": held.block_owner_deletion,
        })
    };
    (meta.owner_references.iter().map(reference).collect(), json!(meta.finalizers))
}

impl Server {
    pub(super) fn get(&self, kind: &Kind, key: &Key) -> Option<&ObjectMeta> {
        self.objects.get(&place(kind, key))
    }

    /// Creates an object under a new UID.
    pub(super) fn create(&mut self, kind: usize, namespace: &str, name: &str, meta: &ObjectMeta) {
        let namespace = if SERVED[kind].namespaced { namespace } else { "" };
        let (owners, finalizers) = json_of(meta);
        let object = json!({
            "metadata": { "name": name, "ownerReferences": owners, "finalizers": finalizers },
        });
        // One of the name may be there.
        drop(self.api.model().create("user", SERVED[kind].resource, namespace, object));
        self.follow();
    }

    /// Changes owners and finalizers of an object as a user or another controller does.
    pub(super) fn change(&mut self, place: &Place, change: impl FnOnce(&mut ObjectMeta)) {
        if let Some(mut meta) = self.objects.get(place).cloned() {
            change(&mut meta);
            let (owners, finalizers) = json_of(&meta);
            let change = |object: &mut Json| {
                object["metadata"]["ownerReferences"] = owners;
                object["metadata"]["finalizers"] = finalizers;
            };
            self.api.model().change("user", &stored(place), "", change).expect("it is there");
            self.follow();
        }
    }

    pub(super) fn delete(&mut self, place: &Place, propagation: Propagation) {
        let propagation = format!("{propagation:?}");
        let how = Deletion { propagation, ..Deletion::default() };
        self.api.model().delete("user", &stored(place), &how).expect("it is there");
        self.follow();
    }

    /// Carries out a write of the garbage collector's.
    pub(super) fn perform(&mut self, write: &Write) -> Result<(), Refusal> {
        let steps = vec![Step::Write(write.clone())];
        let done = self.api.execute(Plan { steps, ..Plan::default() });
        self.follow();
        match done.failures.first().map(|failure| failure.code) {
            // Tolerated; the worker looks again.
            None if done.outdated => Err(Refusal::Conflict),
            None if done.effects.iter().any(|effect| effect.change == WriteEffect::Nothing) => {
                Err(Refusal::NotFound)
            }
            None => Ok(()),
            Some(404) => Err(Refusal::NotFound),
            Some(409) => Err(Refusal::Conflict),
            Some(422) => Err(Refusal::Unprocessable),
            Some(code) => panic!("{write}: {code}"),
        }
    }

    /// Takes note of what has changed.
    fn follow(&mut self) {
        let model = self.api.model();
        for event in model.after(self.version) {
            let Some(kind) = position(event.after.place.resource) else { continue };
            let metadata = event.after.encoded(true);
            let meta = PartialObjectMetadata::decode(&metadata).expect("metadata").metadata;
            let place = (kind, Key::new(meta.namespace.clone(), meta.name.clone()));
            if self.objects.get(&place).is_some_and(waits) && !waits(&meta) {
                self.waited_until.insert(meta.uid.clone(), event.version);
            }
            if event.gone {
                self.objects.remove(&place);
                self.logs[kind].push_back(Event::Gone(Arc::new(meta)));
            } else {
                self.logs[kind].push_back(Event::Set(Arc::new(meta.clone())));
                self.objects.insert(place, meta);
            }
        }
        self.version = model.version();
    }

    /// The owner to which a reference points, if it is there.
    pub(super) fn owner(&self, dependent: &ObjectMeta, reference: &OwnerReference) -> Option<&ObjectMeta> {
        let kind = resolve(&reference.api_version, &reference.kind).ok()?;
        let namespace = if kind.namespaced { dependent.namespace.clone() } else { Str::EMPTY };
        let owner = self.objects.get(&place(kind, &Key::new(namespace, reference.name.clone())))?;
        (owner.uid == reference.uid).then_some(owner)
    }

    /// Whether a reference keeps its object now: the owner is there and does not wait for its dependents to go.
    pub(super) fn is_there(&self, dependent: &ObjectMeta, reference: &OwnerReference) -> bool {
        let out_of_reach = dependent.namespace.is_empty()
            && resolve(&reference.api_version, &reference.kind).is_ok_and(|kind| kind.namespaced);
        out_of_reach || self.owner(dependent, reference).is_some_and(|owner| !waits(owner))
    }

    /// Whether it must not be cut: the owner is there, and has not waited for its dependents to go at any time since
    /// this version.
    pub(super) fn keeps(&self, dependent: &ObjectMeta, reference: &OwnerReference, since: u64) -> bool {
        let waited = self.waited_until.get(&reference.uid).is_some_and(|until| *until > since);
        self.is_there(dependent, reference) && !waited
    }
}

/// Whether the object waits for its dependents to go.
fn waits(meta: &ObjectMeta) -> bool {
    meta.is_deleting() && meta.finalizers.iter().any(|held| held == FOREGROUND_FINALIZER)
}

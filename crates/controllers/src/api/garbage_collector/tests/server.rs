//! A small API server: objects, versions, finalizers, preconditions, JSON patches, and a log of changes per kind.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use super::fixtures::{KINDS, resolve};
use coxswain_machinery::api::Kind;
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::{Patch, Propagation, Verb, Write};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Str, Time, Uid};

/// Where an object is: its kind's position among [`KINDS`], namespace and name.
pub(super) type Place = (usize, Key);

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

#[derive(Default)]
pub(super) struct Server {
    pub(super) objects: BTreeMap<Place, ObjectMeta>,
    /// What no watch has told yet.
    pub(super) logs: [VecDeque<Event>; 3],
    /// Objects that waited for their dependents, and in which version it was said that they wait no longer.
    pub(super) waited_until: HashMap<Uid, u64>,
    pub(super) version: u64,
}

pub(super) fn position(kind: &Kind) -> usize {
    KINDS.iter().position(|row| *row == kind).expect("one of the kinds")
}

impl Server {
    pub(super) fn get(&self, kind: &Kind, key: &Key) -> Option<&ObjectMeta> {
        self.objects.get(&(position(kind), key.clone()))
    }

    /// Creates an object under a new UID.
    pub(super) fn create(&mut self, kind: usize, namespace: &str, name: &str, meta: ObjectMeta) {
        let namespace = if KINDS[kind].namespaced { namespace } else { "" };
        let place = (kind, Key::new(namespace, name));
        if !self.objects.contains_key(&place) {
            let uid = format!("{name}-{}", self.version);
            let meta = ObjectMeta { namespace: namespace.into(), name: name.into(), uid: uid.into(), ..meta };
            self.store(place, meta);
        }
    }

    /// Changes an object as a user or another controller does.
    pub(super) fn change(&mut self, place: &Place, change: impl FnOnce(&mut ObjectMeta)) {
        if let Some(mut meta) = self.objects.get(place).cloned() {
            change(&mut meta);
            self.store(place.clone(), meta);
        }
    }

    pub(super) fn delete(&mut self, place: &Place, propagation: Propagation) {
        self.change(place, |meta| {
            meta.finalizers.retain(|held| held != FOREGROUND_FINALIZER && held != ORPHAN_FINALIZER);
            match propagation {
                Propagation::Background => {}
                Propagation::Foreground => meta.finalizers.push(FOREGROUND_FINALIZER.into()),
                Propagation::Orphan => meta.finalizers.push(ORPHAN_FINALIZER.into()),
            }
            meta.deletion_timestamp = Time::from_seconds(1);
        });
    }

    /// Carries out a write of the garbage collector's.
    pub(super) fn perform(&mut self, write: &Write) -> Result<(), Refusal> {
        let place = (position(write.kind), write.key.clone());
        let Some(meta) = self.objects.get(&place) else { return Err(Refusal::NotFound) };
        match &write.verb {
            Verb::Delete { uid, resource_version, propagation, .. } => {
                let same = resource_version.as_ref().is_none_or(|version| *version == meta.resource_version);
                if meta.uid != *uid || !same {
                    return Err(Refusal::Conflict);
                }
                self.delete(&place, propagation.expect("it is always said"));
            }
            Verb::Patch(Patch::Json(operations)) => {
                let patched = patch(meta, operations).ok_or(Refusal::Unprocessable)?;
                self.store(place, patched);
            }
            other => panic!("the garbage collector does not {other:?}"),
        }
        Ok(())
    }

    /// The owner to which a reference points, if it is there.
    pub(super) fn owner(&self, dependent: &ObjectMeta, reference: &OwnerReference) -> Option<&ObjectMeta> {
        let kind = resolve(&reference.api_version, &reference.kind).ok()?;
        let namespace = if kind.namespaced { dependent.namespace.clone() } else { Str::EMPTY };
        let owner = self.objects.get(&(position(kind), Key::new(namespace, reference.name.clone())))?;
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

    fn store(&mut self, place: Place, mut meta: ObjectMeta) {
        self.version += 1;
        meta.resource_version = self.version.to_string().into();
        if self.objects.get(&place).is_some_and(waits) && !waits(&meta) {
            self.waited_until.insert(meta.uid.clone(), self.version);
        }
        let log = &mut self.logs[place.0];
        if meta.is_deleting() && meta.finalizers.is_empty() {
            self.objects.remove(&place);
            log.push_back(Event::Gone(Arc::new(meta)));
        } else {
            log.push_back(Event::Set(Arc::new(meta.clone())));
            self.objects.insert(place, meta);
        }
    }
}

/// Whether the object waits for its dependents to go.
fn waits(meta: &ObjectMeta) -> bool {
    meta.is_deleting() && meta.finalizers.iter().any(|held| held == FOREGROUND_FINALIZER)
}

/// The object after a JSON patch (`test`, `remove` and `replace` of what is there); `None` if it can't be applied.
fn patch(meta: &ObjectMeta, operations: &Value) -> Option<ObjectMeta> {
    let reference = |held: &OwnerReference| {
        json!({"uid": held.uid, "name": held.name, "kind": held.kind, "apiVersion": held.api_version,
               "blockOwnerDeletion": held.block_owner_deletion})
    };
    let references: Vec<Value> = meta.owner_references.iter().map(reference).collect();
    let mut document = json!({"metadata": {
        "uid": meta.uid, "ownerReferences": references, "finalizers": meta.finalizers,
    }});
    for operation in operations.as_array()? {
        let path = operation["path"].as_str()?;
        match operation["op"].as_str()? {
            "test" => (document.pointer(path)? == &operation["value"]).then_some(())?,
            "replace" => *document.pointer_mut(path)? = operation["value"].clone(),
            "remove" => {
                let (list, at) = path.rsplit_once('/')?;
                let (list, at) = (document.pointer_mut(list)?.as_array_mut()?, at.parse::<usize>().ok()?);
                (at < list.len()).then(|| list.remove(at))?;
            }
            other => panic!("no operation of a JSON patch: {other}"),
        }
    }
    let text = |value: &Value| value.as_str().map(Str::from);
    let metadata = &document["metadata"];
    let mut patched = meta.clone();
    patched.owner_references = metadata["ownerReferences"]
        .as_array()?
        .iter()
        .map(|held| {
            Some(OwnerReference {
                uid: text(&held["uid"])?.into(),
                name: text(&held["name"])?,
                kind: text(&held["kind"])?,
                api_version: text(&held["apiVersion"])?,
                controller: None,
                block_owner_deletion: held["blockOwnerDeletion"].as_bool(),
            })
        })
        .collect::<Option<_>>()?;
    patched.finalizers = metadata["finalizers"].as_array()?.iter().map(text).collect::<Option<_>>()?;
    Some(patched)
}

//! Kinds, objects and references to test with.

use std::sync::Arc;

use super::super::Uid;
use super::super::graph::{AffectedObjects, Graph, Removal};
use super::super::view::Kinds;
use coxswain_machinery::api::meta::{
    FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ObjectMeta, OwnerReference, PartialObjectMetadata,
};
use coxswain_machinery::api::{AnyObject, Kind};
use coxswain_machinery::wire::Time;

pub(super) const fn row(
    group: &'static str,
    kind: &'static str,
    resource: &'static str,
    namespaced: bool,
) -> Kind {
    Kind {
        group,
        version: "v1",
        kind,
        resource,
        namespaced,
        metadata_only: true,
        decode: |_| Ok(Arc::new(PartialObjectMetadata::default())),
    }
}

/// In namespaces, in the core group.
pub(super) static POD: Kind = row("", "Pod", "pods", true);
/// In namespaces, in a group that is not built in.
pub(super) static THING: Kind = row("x.io", "Thing", "things", true);
/// In namespaces, in a group of its own.
pub(super) static GADGET: Kind = row("ex.io", "Gadget", "gadgets", true);
/// Cluster-scoped.
pub(super) static REALM: Kind = row("ex.io", "Realm", "realms", false);

pub(super) static KINDS: [&Kind; 4] = [&POD, &THING, &GADGET, &REALM];

/// Finds the kinds above in their only version.
pub(super) fn resolve(api_version: &str, kind: &str) -> Result<&'static Kind, String> {
    let found = KINDS.into_iter().find(|row| row.kind == kind && row.api_version() == api_version);
    found.ok_or_else(|| format!("{api_version} {kind} is not served"))
}

/// Kinds of which each is served as it is.
pub(super) struct Discovered(pub(super) fn(&str, &str) -> Result<&'static Kind, String>);

impl Kinds for Discovered {
    fn named(&self, api_version: &str, kind: &str) -> Result<&'static Kind, String> {
        self.0(api_version, kind)
    }

    fn served(&self, kind: &'static Kind) -> Result<Option<&'static Kind>, String> {
        Ok(Some(kind))
    }

    fn is_settling(&self, _: &str) -> bool {
        false
    }
}

/// An object in namespace `a`, whose UID is `uid-NAME` and whose version is 1.
pub(super) fn object(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.into(),
        namespace: "a".into(),
        uid: format!("uid-{name}").into(),
        resource_version: "1".into(),
        ..ObjectMeta::default()
    }
}

/// An object as a read of its metadata finds it.
pub(super) fn partial(meta: &ObjectMeta) -> AnyObject {
    Arc::new(PartialObjectMetadata { metadata: meta.clone() })
}

pub(super) fn reference(kind: &Kind, owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        kind: kind.kind.into(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        api_version: kind.api_version().into(),
        controller: None,
        block_owner_deletion: None,
    }
}

pub(super) trait With: Sized {
    fn owned_by(self, kind: &Kind, owner: &ObjectMeta) -> Self;
    fn blocking(self, kind: &Kind, owner: &ObjectMeta) -> Self;
    fn at(self, version: u64) -> Self;
    fn in_namespace(self, namespace: &str) -> Self;
    fn deleting(self, finalizers: &[&str]) -> Self;
    fn foreground(self) -> Self {
        self.deleting(&[FOREGROUND_FINALIZER])
    }
    fn orphaning(self) -> Self {
        self.deleting(&[ORPHAN_FINALIZER])
    }
}

impl With for ObjectMeta {
    fn owned_by(mut self, kind: &Kind, owner: &ObjectMeta) -> Self {
        self.owner_references.push(reference(kind, owner));
        self
    }

    fn blocking(mut self, kind: &Kind, owner: &ObjectMeta) -> Self {
        let reference = OwnerReference { block_owner_deletion: Some(true), ..reference(kind, owner) };
        self.owner_references.push(reference);
        self
    }

    fn at(mut self, version: u64) -> Self {
        self.resource_version = version.to_string().into();
        self
    }

    fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.into();
        self
    }

    fn deleting(mut self, finalizers: &[&str]) -> Self {
        self.deletion_timestamp = Time::from_seconds(1);
        self.finalizers = finalizers.iter().map(|finalizer| (*finalizer).into()).collect();
        let version = self.version().unwrap_or(0) + 1;
        self.at(version)
    }
}

pub(super) fn uid(meta: &ObjectMeta) -> Uid {
    meta.uid.clone()
}

/// What a change makes worth looking at, sorted and each once: to delete, to orphan.
pub(super) fn told(change: impl FnOnce(&mut AffectedObjects)) -> (Vec<String>, Vec<String>) {
    let mut affected = AffectedObjects::default();
    change(&mut affected);
    let names = |uids: Vec<Uid>| {
        let mut names: Vec<String> = uids.iter().map(Uid::to_string).collect();
        names.sort();
        names.dedup();
        names
    };
    (names(affected.delete), names(affected.orphan))
}

/// Shows the graph THINGs; what that makes worth a look to delete.
pub(super) fn see(graph: &mut Graph, objects: &[&ObjectMeta]) -> Vec<String> {
    told(|affected| objects.iter().for_each(|object| graph.observe(&THING, object, affected))).0
}

/// A THING is deleted; what that makes worth a look.
pub(super) fn lose(graph: &mut Graph, object: &ObjectMeta) -> Vec<String> {
    told(|affected| graph.remove(&THING, &uid(object), Removal::Deleted, affected)).0
}

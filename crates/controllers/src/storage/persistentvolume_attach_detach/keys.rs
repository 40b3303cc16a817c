//! Which nodes a change concerns. Every key is a node's name.

use std::sync::Arc;

use super::book::is_managed;
use super::memory::Books;
use crate::storage::claims::{BY_CLAIM, claim_key};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::storage::{
    CsiDriver, PersistentVolume, PersistentVolumeClaim, VolumeAttachment,
};
use coxswain_machinery::api::{Index, IndexKeys, Object, distinct};
use coxswain_machinery::framework::{KeyMap, Watch};
use coxswain_machinery::informer::{Delta, Indexed, Lister};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::Str;

/// VolumeAttachments by the nodes that they name.
pub(super) static OF_NODE: Index = Index { name: "attached to", keys: of_node };
/// Nodes by the volumes that they list.
pub(super) static LISTING: Index = Index { name: "listing", keys: listing };

fn of_node(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    any.downcast_ref::<VolumeAttachment>().map(|found| found.spec.node_name.clone()).into_iter().collect()
}

fn listing(object: &dyn Object) -> IndexKeys {
    let any: &dyn std::any::Any = object;
    let listed = any.downcast_ref::<Node>().map(|node| &node.status.volumes_attached);
    distinct(listed.into_iter().flatten().map(|volume| volume.name.clone()))
}

/// A pod with volumes that comes, is bound, ends or goes concerns its node.
pub(super) fn of_pods() -> KeyMap {
    Arc::new(|delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<Pod>();
        let says = |pod: &Pod| (pod.metadata.uid.clone(), pod.spec.node_name.clone(), pod.has_ended());
        if delta.resync || !delta.initial && old.map(says) == new.map(says) {
            return;
        }
        for pod in old.into_iter().chain(new) {
            let has_volumes = pod.claims.iter().next().is_some() || !pod.shape.inline_volumes.is_empty();
            if has_volumes && !pod.spec.node_name.is_empty() {
                add(Key::new("", pod.spec.node_name.clone()));
            }
        }
    })
}

/// A node that comes, goes or says something else of its volumes or itself concerns its own key; what it says no more that it has
/// concerns those that wait for it.
pub(super) fn of_nodes(books: Arc<Books>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if delta.resync {
            return;
        }
        let (old, new) = delta.typed::<Node>();
        if let Some(node) = old.or(new) {
            let waits = |node: &Node| books.awaits_news_of(&node.metadata.name);
            let is_news = old.zip(new).is_none_or(|(old, new)| !is_alike(old, new));
            if delta.initial || is_news || waits(node) {
                add(Key::of(&node.metadata));
            }
        }
        let kept = new.into_iter().flat_map(|new| &new.status.volumes_attached);
        let kept: HashSet<&Str> = kept.map(|listed| &listed.name).collect();
        for listed in old.into_iter().flat_map(|old| &old.status.volumes_attached) {
            if !kept.contains(&listed.name) {
                books.waiters(&listed.name).into_iter().for_each(|node| add(Key::new("", node)));
            }
        }
    })
}

/// Whether nothing has changed of a node that is looked at.
fn is_alike(old: &Node, new: &Node) -> bool {
    is_managed(old) == is_managed(new)
        && old.is_out_of_service() == new.is_out_of_service()
        && old.is_ready() == new.is_ready()
        && old.status.volumes_in_use == new.status.volumes_in_use
        && old.status.volumes_attached == new.status.volumes_attached
}

/// A VolumeAttachment concerns its node, and those that wait for its volume. One that is there at the start is taken up.
pub(super) fn of_attachments(books: Arc<Books>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<VolumeAttachment>();
        let Some(attachment) = new.or(old).filter(|_| !delta.resync) else { return };
        let (node, name) = (&attachment.spec.node_name, &attachment.metadata.name);
        if delta.initial {
            books.was_there(name);
        }
        add(Key::new("", node.clone()));
        if let Some(volume) = books.volume_of(node, name) {
            books.waiters(&volume).into_iter().for_each(|node| add(Key::new("", node)));
        }
    })
}

/// A bound claim that is new or has changed concerns the nodes of the pods that name it.
pub(super) fn of_claims(pods: Indexed<Pod>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        if delta.initial || delta.resync {
            return;
        }
        if let (_, Some(claim)) = delta.typed::<PersistentVolumeClaim>()
            && claim.status.phase == "Bound"
        {
            tell(&pods, &Key::of(&claim.metadata), add);
        }
    })
}

/// A volume that has another claim than before concerns the nodes of the pods that name that.
pub(super) fn of_volumes(pods: Indexed<Pod>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<PersistentVolume>();
        let claim =
            |volume: &PersistentVolume| volume.spec.claim_ref.clone().filter(|claim| !claim.uid.is_empty());
        let Some(now) = new.filter(|_| !delta.initial).and_then(claim) else { return };
        if old.and_then(claim).is_none_or(|before| before.uid != now.uid) {
            tell(&pods, &Key::new(now.namespace.clone(), now.name.clone()), add);
        }
    })
}

/// A CSI driver that begins or ceases to need attaching, which is rare, concerns all nodes.
pub(super) fn of_drivers(nodes: Lister<Node>) -> KeyMap {
    Arc::new(move |delta: Delta<'_>, add: &mut dyn FnMut(Key)| {
        let (old, new) = delta.typed::<CsiDriver>();
        let is_needless = |driver: &CsiDriver| driver.spec.attach_required == Some(false);
        if !delta.initial && old.is_some_and(is_needless) != new.is_some_and(is_needless) {
            nodes.list().iter().for_each(|node| add(Key::of(&node.metadata)));
        }
    })
}

/// Pods by the claims that they name.
pub(super) fn by_claim(pods: &Watch<Pod>) -> Indexed<Pod> {
    pods.index(&BY_CLAIM)
}

fn tell(pods: &Indexed<Pod>, claim: &Key, add: &mut dyn FnMut(Key)) {
    for pod in pods.filed(&claim_key(claim)) {
        if !pod.spec.node_name.is_empty() {
            add(Key::new("", pod.spec.node_name.clone()));
        }
    }
}

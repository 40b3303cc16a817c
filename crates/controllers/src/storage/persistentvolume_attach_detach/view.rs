//! A node, what is known of its volumes, and what must be read live before something is taken away. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::book::{Book, Held, State, is_managed, version};
use super::source::Source;
use super::wanted::wants;
use super::world::{Rules, World};
use coxswain_machinery::api::core::{AttachedVolume, Node};
use coxswain_machinery::api::kinds::{NODES, VOLUME_ATTACHMENTS};
use coxswain_machinery::api::storage::VolumeAttachment;
use coxswain_machinery::framework::Reads;
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::{Failure, Key};
use coxswain_machinery::wire::Str;

/// Everything that a decision rests on.
#[derive(Debug)]
pub(super) struct View {
    /// Its name.
    pub(super) name: Str,
    /// The node: as this reconcile's write of it was answered, else as the cache has it.
    pub(super) node: Option<Arc<Node>>,
    /// The node as the API server has it.
    pub(super) live: Live,
    /// What is known of it, with what its pods want now.
    pub(super) book: Book,
    /// The VolumeAttachments from the start that are in the book.
    pub(super) taken_up: Vec<Str>,
    /// The VolumeAttachments of its volumes, by name.
    pub(super) attachments: BTreeMap<Str, Arc<VolumeAttachment>>,
    /// Those that were read live, by name.
    pub(super) live_attachments: BTreeMap<Str, LiveAttachment>,
    /// Why objects could not be read live.
    pub(super) unreadable: Vec<String>,
    /// Volumes of which a CSI driver says that they need not be attached.
    pub(super) needless: BTreeSet<Str>,
    /// Other nodes that have volumes which this one wants and which are for one node only.
    pub(super) elsewhere: BTreeMap<Str, Vec<Elsewhere>>,
    /// What has failed in this reconcile.
    pub(super) failures: Vec<Failure>,
    /// The VolumeAttachments that were written in this reconcile.
    pub(super) written: Vec<Str>,
    /// The time, by the clock of the books.
    pub(super) at: Duration,
    pub(super) rules: Rules,
}

/// A node as the API server has it.
#[derive(Clone, Debug)]
pub(super) enum Live {
    /// It was not asked.
    Unasked,
    /// The live read failed. Tasks that need the Node are retried; other volumes of the node are not delayed.
    Unreadable,
    Gone,
    Is(Arc<Node>),
}

/// A VolumeAttachment as the API server has it.
#[derive(Clone, Debug)]
pub(super) enum LiveAttachment {
    /// It could not be read, so it does not count as gone.
    Unreadable {
        /// Whether no role lets it be read: a retry will not help.
        is_forbidden: bool,
    },
    Gone,
    Is(Arc<VolumeAttachment>),
}

/// Another node that has a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Elsewhere {
    pub(super) node: Str,
    pub(super) is_attached: bool,
    /// Whether an attacher is at work on it there.
    pub(super) is_under_way: bool,
    /// Whether it is being detached there, or may be about to: the node was not evaluated since the start.
    pub(super) is_leaving: bool,
    /// The pods that want it there, by namespace and name.
    pub(super) pods: Vec<Key>,
}

impl Live {
    /// The node, if it is there.
    pub(super) fn node(&self) -> Option<&Node> {
        match self {
            Self::Is(node) => Some(node),
            Self::Gone | Self::Unasked | Self::Unreadable => None,
        }
    }
}

impl View {
    /// The VolumeAttachment of a volume, as the cache has it.
    pub(super) fn attachment(&self, name: Option<&Str>) -> Option<&VolumeAttachment> {
        self.attachments.get(name?).map(AsRef::as_ref)
    }

    /// Whether this volume counts as mounted.
    pub(super) fn is_mounted(&self, volume: &str, held: &Held) -> bool {
        let says_nothing_new =
            held.known_at.as_ref().is_some_and(|known| *known == version(self.node.as_deref()));
        says_nothing_new || self.book.in_use.contains(volume)
    }
}

pub(super) fn observe(world: &World, key: &Key, failures: &[Failure], read: &Reads, at: Duration) -> View {
    let name = &key.name;
    let mut unreadable = Vec::new();
    let answered = read.answer(&NODES, key).cloned().and_then(downcast::<Node>);
    let live = match (&answered, read.object(&NODES, key)) {
        // The answer to a write is the node as the API server has it.
        (Some(node), _) => Live::Is(Arc::clone(node)),
        (None, Some(Ok(found))) => found.cloned().and_then(downcast::<Node>).map_or(Live::Gone, Live::Is),
        (None, Some(Err(error))) => {
            unreadable.push(format!("read {NODES} {name}: {}", error.message()));
            Live::Unreadable
        }
        (None, None) => Live::Unasked,
    };
    let node = answered.or_else(|| world.nodes.get(key));
    let (mut book, taken_up) = match world.books.book(name) {
        Some(book) => (Book::clone(&book), Vec::new()),
        None => take_up(world, name, node.as_deref()),
    };
    for attachment in std::mem::take(&mut book.doubtful) {
        // Caches have heard of what was written before anything is looked at again: one that is not there did not come.
        if let Some(found) = world.attachments.get(&Key::new("", attachment)) {
            take_up_one(world, name, node.as_deref(), &found, &mut book);
        }
    }
    if let Some(node) = &node {
        for listed in &node.status.volumes_attached {
            book.held.entry(listed.name.clone()).or_insert_with(|| listed_volume(name, listed));
        }
        book.in_use = node.status.volumes_in_use.iter().cloned().collect();
    }
    book.is_managed |= node.as_deref().is_some_and(is_managed);
    book.wants = if book.is_managed { wants(world, name, &book.wants) } else { BTreeMap::new() };
    book.is_managed &= node.is_some() || !book.wants.is_empty();
    for (volume, want) in &book.wants {
        if let Some(held) = book.held.get_mut(volume) {
            // More is known of it than its name.
            held.source = Some(Arc::clone(&want.source));
            held.attachment.clone_from(&want.attachment);
        }
    }
    let names: BTreeSet<Str> = {
        let wanted = book.wants.values().filter_map(|want| want.attachment.clone());
        wanted.chain(book.held.values().filter_map(|held| held.attachment.clone())).collect()
    };
    let mut attachments = BTreeMap::new();
    let mut live_attachments = BTreeMap::new();
    for name in names {
        let key = Key::new("", name.clone());
        if let Some(found) = world.attachments.get(&key) {
            attachments.insert(name.clone(), found);
        }
        let live = match read.object(&VOLUME_ATTACHMENTS, &key) {
            None => continue,
            Some(Ok(found)) => found
                .cloned()
                .and_then(downcast::<VolumeAttachment>)
                .map_or(LiveAttachment::Gone, LiveAttachment::Is),
            Some(Err(error)) => {
                unreadable.push(format!("read {VOLUME_ATTACHMENTS} {name}: {}", error.message()));
                LiveAttachment::Unreadable { is_forbidden: error.code() == 403 }
            }
        };
        live_attachments.insert(name, live);
    }
    let sources = book.held.iter().filter_map(|(volume, held)| Some((volume, held.source.as_ref()?)));
    let needless = sources.filter(|(_, source)| !source.is_attachable(&world.drivers));
    let needless = needless.map(|(volume, _)| volume.clone()).collect();
    let written = read.written().iter().filter(|effect| effect.kind == &VOLUME_ATTACHMENTS);
    View {
        name: name.clone(),
        elsewhere: elsewhere(world, name, &book, at),
        written: written.map(|effect| effect.key.name.clone()).collect(),
        failures: failures.to_vec(),
        rules: world.rules,
        node,
        live,
        book,
        taken_up,
        attachments,
        live_attachments,
        unreadable,
        needless,
        at,
    }
}

/// What there is at the start: what the node lists is attached, and what it does not list but has a VolumeAttachment may be.
fn take_up(world: &World, name: &Str, node: Option<&Node>) -> (Book, Vec<Str>) {
    let mut book = Book::default();
    for listed in node.into_iter().flat_map(|node| &node.status.volumes_attached) {
        book.held.insert(listed.name.clone(), listed_volume(name, listed));
    }
    let mut taken_up = Vec::new();
    for attachment in world.attached_to.filed(name) {
        if !world.books.is_from_start(&attachment.metadata.name) {
            continue;
        }
        taken_up.push(attachment.metadata.name.clone());
        take_up_one(world, name, node, &attachment, &mut book);
    }
    (book, taken_up)
}

/// The volume of a VolumeAttachment may be attached, if the node does not list it anyway.
fn take_up_one(
    world: &World,
    name: &Str,
    node: Option<&Node>,
    attachment: &VolumeAttachment,
    book: &mut Book,
) {
    let volume = attachment.spec.source.persistent_volume_name.as_ref();
    let volume = volume.and_then(|volume| world.volumes.get(&Key::new("", volume.clone())));
    let source = volume.and_then(|volume| Source::of_volume(&volume));
    let source = source.filter(|source| source.is_migrated || source.is_attachable(&world.drivers));
    if let Some(source) = source {
        let unique = source.unique.clone();
        let uncertain = || Held {
            known_at: Some(version(node)),
            ..Held::new(State::Uncertain, Some(Arc::new(source)), name)
        };
        book.held.entry(unique).or_insert_with(uncertain);
    }
}

/// A volume that the node lists.
fn listed_volume(node: &str, listed: &AttachedVolume) -> Held {
    let source = Source::of_name(&listed.name).map(Arc::new);
    Held { device_path: listed.device_path.clone(), ..Held::new(State::Attached, source, node) }
}

/// Who else has the volumes that this node wants, lacks, and must have for itself.
fn elsewhere(world: &World, name: &Str, book: &Book, at: Duration) -> BTreeMap<Str, Vec<Elsewhere>> {
    let lacks = |volume: &Str| book.held.get(volume).is_none_or(|held| held.state != State::Attached);
    let lacking = book.wants.iter().filter(|(volume, want)| !want.source.is_shared && lacks(volume));
    let found = lacking.map(|(volume, want)| {
        let mut others: BTreeMap<Str, Elsewhere> = BTreeMap::new();
        let blank = |node: &Str| Elsewhere {
            node: node.clone(),
            is_attached: false,
            is_under_way: false,
            is_leaving: false,
            pods: pods_of(world, node, volume),
        };
        for (node, all) in world.books.holders(volume) {
            for held in all.into_iter().filter(|_| node != *name) {
                let named = held.attachment.clone().or_else(|| want.source.attachment(&node));
                let attachment = named.and_then(|named| world.attachments.get(&Key::new("", named)));
                if let Some(held) = held.settled(attachment.as_deref(), at) {
                    let other = others.entry(node.clone()).or_insert_with(|| blank(&node));
                    other.is_attached |= held.state == State::Attached;
                    other.is_under_way |= held.under_way.is_some();
                    other.is_leaving |= held.is_leaving;
                }
            }
        }
        // A node that was not evaluated since the start has the volumes that it lists, and may release them soon: no warning is emitted before.
        for node in world.listing.filed(volume) {
            let listing = &node.metadata.name;
            if listing != name && world.books.book(listing).is_none() {
                let other = others.entry(listing.clone()).or_insert_with(|| blank(listing));
                other.is_attached = true;
                other.is_leaving = true;
            }
        }
        (volume.clone(), others.into_values().collect())
    });
    found.collect()
}

/// The pods that want a volume on another node.
fn pods_of(world: &World, node: &str, volume: &Str) -> Vec<Key> {
    let known = world.books.book(node).map(|book| book.wants.clone()).unwrap_or_default();
    let mut wants = wants(world, node, &known);
    let want = wants.remove(volume);
    want.into_iter().flat_map(|want| want.pods).map(|pod| pod.key).collect()
}

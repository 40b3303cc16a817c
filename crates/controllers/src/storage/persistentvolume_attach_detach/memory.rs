//! The books of all nodes, what plans under way will make of them, and who holds and awaits which volume. Times are by the process's own clock. Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::book::{Book, Held};
use super::note::Note;
use coxswain_machinery::framework::{Memory, ReconcileEnd};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::clock::Stopwatch;
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::Str;

/// What is remembered.
#[derive(Debug)]
pub(super) struct Books {
    clock: Stopwatch,
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    /// By node.
    books: HashMap<Str, Arc<Book>>,
    /// Nodes by the volumes that they have.
    holders: ByVolume,
    /// Nodes by the volumes that they wait for.
    waiters: ByVolume,
    /// What the plans that are being carried out will make of their nodes: one for each worker at most.
    reserved: HashMap<Str, Reservation>,
    /// The VolumeAttachments that were there at the start, as long as their nodes were not looked at.
    at_start: HashSet<Str>,
}

/// What a node is about to have and to wait for.
#[derive(Debug)]
struct Reservation {
    held: BTreeMap<Str, Held>,
    waits: BTreeSet<Str>,
}

/// Names of nodes by volume.
#[derive(Debug, Default)]
struct ByVolume(HashMap<Str, BTreeSet<Str>>);

impl ByVolume {
    fn nodes(&self, volume: &str) -> Vec<Str> {
        self.0.get(volume).into_iter().flatten().cloned().collect()
    }

    fn add(&mut self, volume: &Str, node: &Str) {
        self.0.entry(volume.clone()).or_default().insert(node.clone());
    }

    fn remove(&mut self, volume: &Str, node: &Str) {
        if let Some(nodes) = self.0.get_mut(volume) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.0.remove(volume);
            }
        }
    }
}

impl Default for Books {
    fn default() -> Self {
        Self { clock: Stopwatch::start(), shelf: Mutex::default() }
    }
}

impl Books {
    /// The time since this instance began.
    pub(super) fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    /// What is known of a node; `None` if it was not looked at yet.
    pub(super) fn book(&self, node: &str) -> Option<Arc<Book>> {
        self.shelf.lock().books.get(node).cloned()
    }

    /// All that is known.
    pub(super) fn all(&self) -> Vec<(Str, Arc<Book>)> {
        let shelf = self.shelf.lock();
        shelf.books.iter().map(|(node, book)| (node.clone(), Arc::clone(book))).collect()
    }

    /// What is known of a volume on each node that has it or may have it: as it is, and as a plan that is being carried out will
    /// make it.
    pub(super) fn holders(&self, volume: &str) -> BTreeMap<Str, Vec<Held>> {
        let shelf = self.shelf.lock();
        let mut held: BTreeMap<Str, Vec<Held>> = BTreeMap::new();
        for node in shelf.holders.nodes(volume) {
            if let Some(known) = shelf.books.get(&node).and_then(|book| book.held.get(volume)) {
                held.entry(node).or_default().push(known.clone());
            }
        }
        for (node, reservation) in &shelf.reserved {
            if let Some(planned) = reservation.held.get(volume) {
                held.entry(node.clone()).or_default().push(planned.clone());
            }
        }
        held
    }

    /// The nodes that wait until another one gives a volume up.
    pub(super) fn waiters(&self, volume: &str) -> Vec<Str> {
        let shelf = self.shelf.lock();
        let mut nodes: BTreeSet<Str> = shelf.waiters.nodes(volume).into_iter().collect();
        let about_to = shelf.reserved.iter().filter(|(_, reservation)| reservation.waits.contains(volume));
        nodes.extend(about_to.map(|(node, _)| node.clone()));
        nodes.into_iter().collect()
    }

    /// The volume of a node's VolumeAttachment.
    pub(super) fn volume_of(&self, node: &str, attachment: &str) -> Option<Str> {
        let book = self.book(node)?;
        let is_it = |held: &Held| held.attachment.as_ref().is_some_and(|name| *name == attachment);
        book.held.iter().find(|(_, held)| is_it(held)).map(|(volume, _)| volume.clone())
    }

    /// Whether a volume counts as mounted until this node says more.
    pub(super) fn awaits_news_of(&self, node: &str) -> bool {
        let is_new = |held: &Held| held.known_at.is_some() && held.under_way.is_none();
        self.book(node).is_some_and(|book| {
            book.held.iter().any(|(volume, held)| is_new(held) && !book.wants.contains_key(volume))
        })
    }

    /// A VolumeAttachment was there at the start.
    pub(super) fn was_there(&self, attachment: &Str) {
        self.shelf.lock().at_start.insert(attachment.clone());
    }

    /// Whether a VolumeAttachment was there at the start.
    pub(super) fn is_from_start(&self, attachment: &str) -> bool {
        self.shelf.lock().at_start.contains(attachment)
    }
}

impl Memory<Note> for Books {
    fn commit(&self, key: &Key, note: Note) {
        let node = &key.name;
        let mut shelf = self.shelf.lock();
        shelf.reserved.remove(node);
        for attachment in &note.taken_up {
            shelf.at_start.remove(attachment);
        }
        let before = shelf.books.remove(node);
        for volume in before.iter().flat_map(|book| book.held.keys()) {
            if !note.book.held.contains_key(volume) {
                shelf.holders.remove(volume, node);
            }
        }
        for volume in before.iter().flat_map(|book| &book.waits) {
            if !note.book.waits.contains(volume) {
                shelf.waiters.remove(volume, node);
            }
        }
        for volume in note.book.held.keys() {
            shelf.holders.add(volume, node);
        }
        for volume in &note.book.waits {
            shelf.waiters.add(volume, node);
        }
        if note.is_there || !note.book.is_blank() {
            shelf.books.insert(node.clone(), Arc::new(note.book));
        }
    }

    fn reserve(&self, key: &Key, note: &Note) {
        let reservation = Reservation { held: note.book.held.clone(), waits: note.book.waits.clone() };
        self.shelf.lock().reserved.insert(key.name.clone(), reservation);
    }

    fn ended(&self, key: &Key, _: ReconcileEnd<'_>) {
        self.shelf.lock().reserved.remove(&key.name);
    }
}

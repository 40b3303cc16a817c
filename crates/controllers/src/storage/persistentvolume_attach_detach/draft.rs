//! What becomes of a node's volumes: operations that have ended, volumes that are missing, those that come and those that go.
//!
//! A reconcile goes through up to three drafts, each made of what the one before has changed: what is told ([`Stage::Tell`]), what the
//! node's list says ([`Stage::List`]), and what attachers are asked for ([`Stage::Ask`]). So a volume has left the list before its
//! VolumeAttachment is deleted. Pure.

use std::time::Duration;

use super::book::{Book, Held, Operation, PATIENCE, Progress, State, Task, listed_by};
use super::note::Ended;
use super::source::Source;
use super::tell::{attach_failed, attached};
use super::view::{LiveAttachment, View};
use crate::live_reads::ATTACHMENT_COMPARED;
use coxswain_machinery::api::kinds::{NODES, VOLUME_ATTACHMENTS};
use coxswain_machinery::framework::{DeclaredRead, Read};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::EventSpec;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::{Str, Uid};

/// How far a draft has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Something has ended: it is told and remembered, before anything else begins.
    Tell,
    /// The node's list is to change.
    List,
    /// Attachers are asked, if there is anything to ask for.
    Ask,
}

/// Something that an attacher is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// A VolumeAttachment of this name is created for the volume.
    Attach(Str, Str),
    /// The VolumeAttachment of this name, which has this UID, is deleted.
    Detach(Str, Uid),
    /// The API server is asked whether there is a VolumeAttachment of this name, which cannot be read.
    Probe(Str),
}

/// What becomes of a node's volumes.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) stage: Stage,
    pub(super) book: Book,
    pub(super) events: Vec<EventSpec>,
    pub(super) asks: Vec<Ask>,
    /// What must be read live before it goes on.
    pub(super) needs: Vec<DeclaredRead>,
    pub(super) ended: Vec<Ended>,
    pub(super) forced: Vec<&'static str>,
    /// When something is due that no change tells.
    pub(super) look_in: Option<Duration>,
}

/// The draft of what comes next.
pub(super) fn draft(view: &View) -> Draft {
    let mut draft = Draft {
        stage: Stage::Tell,
        book: Book { waits: [].into(), ..view.book.clone() },
        events: Vec::new(),
        asks: Vec::new(),
        needs: Vec::new(),
        ended: Vec::new(),
        forced: Vec::new(),
        look_in: None,
    };
    draft.settle(view);
    draft.attach_at_once(view);
    if !draft.events.is_empty() {
        return draft;
    }
    draft.compare(view);
    draft.begin_leaving(view);
    draft.tidy(view);
    let has_failed = view.failures.iter().any(|failure| failure.kind == &NODES);
    if !has_failed && list(&draft.book, view).is_some() {
        draft.stage = Stage::List;
        return draft;
    }
    draft.stage = Stage::Ask;
    draft.take_away(view);
    draft.give_up_lost(view);
    draft.ask_for(view);
    draft
}

/// The list that the node is to have, names and device paths, if it has another one. What stays keeps its place.
pub(super) fn list(book: &Book, view: &View) -> Option<Vec<(Str, Str)>> {
    let node = view.node.as_deref()?;
    let listed = &node.status.volumes_attached;
    let is_reported = |volume: &Str| book.held.get(volume).is_some_and(Held::is_reported);
    let stays = listed.iter().filter(|each| is_reported(&each.name));
    let mut wanted: Vec<(Str, Str)> =
        stays.map(|each| (each.name.clone(), each.device_path.clone())).collect();
    let names: HashSet<&Str> = listed_by(node);
    let is_new = |volume: &Str| is_reported(volume) && !names.contains(volume);
    let new = book.held.iter().filter(|(volume, _)| is_new(volume));
    let before = wanted.len();
    wanted.extend(new.map(|(volume, held)| (volume.clone(), held.device_path.clone())));
    (before != listed.len() || wanted.len() != before).then_some(wanted)
}

impl Draft {
    pub(super) fn look_in(&mut self, delay: Duration) {
        self.look_in = Some(self.look_in.map_or(delay, |earlier| earlier.min(delay)));
    }

    pub(super) fn end(&mut self, source: Option<&Source>, task: Task, has_failed: bool, took: Duration) {
        self.ended.push(Ended::new(source, task, has_failed, took));
    }

    pub(super) fn volumes(&self) -> Vec<Str> {
        self.book.held.keys().cloned().collect()
    }

    /// Ends what has ended, and sets the clocks.
    fn settle(&mut self, view: &View) {
        for volume in self.volumes() {
            let is_wanted = self.book.wants.contains_key(&volume);
            if let Some(held) = self.book.held.remove(&volume)
                && let Some(mut held) = self.progressed(view, held)
            {
                if is_wanted && held.state == State::Attached {
                    held.unwanted_since = None;
                    // It had begun to leave, and nobody was asked to take it away.
                    held.is_leaving &= held.under_way.is_some() || is_lost(view, &volume, &held);
                } else if !is_wanted {
                    held.unwanted_since = held.unwanted_since.or(Some(view.at));
                }
                self.book.held.insert(volume, held);
            }
        }
    }

    /// Makes wanted volumes uncertain whose VolumeAttachments may be gone, so that new ones are created in this draft. As long as a draft only
    /// emits events or changes the list of the node, these volumes keep leaving, and other nodes wait.
    fn give_up_lost(&mut self, view: &View) {
        let wants = &self.book.wants;
        let lost = self.book.held.iter_mut().filter(|(volume, held)| {
            wants.contains_key(*volume) && held.state == State::Attached && is_lost(view, volume, held)
        });
        for (_, held) in lost {
            held.state = State::Uncertain;
            held.is_leaving = false;
        }
    }

    /// A volume once the operation under way on it was looked at; `None` if it has gone.
    pub(super) fn progressed(&mut self, view: &View, mut held: Held) -> Option<Held> {
        let Some(operation) = held.under_way.clone() else { return Some(held) };
        let Operation { task, since, ref pods } = operation;
        let source = held.source.clone();
        let source = source.as_deref();
        let took = view.at.saturating_sub(since);
        match operation.progress(view.attachment(held.attachment.as_ref()), source, view.at) {
            Progress::Waits => {
                self.look_in(PATIENCE.saturating_sub(took));
                return Some(held);
            }
            Progress::Done if task == Task::Detach => {
                self.end(source, task, false, took);
                return None;
            }
            Progress::Done => {
                self.events.extend(pods.iter().map(|pod| attached(pod, source)));
                held = Held {
                    state: State::Attached,
                    is_leaving: false,
                    missing_since: None,
                    under_way: None,
                    backoff: None,
                    ..held
                };
                self.end(source, task, false, took);
            }
            Progress::Failed(error) => {
                if task == Task::Attach {
                    self.events.extend(pods.iter().map(|pod| attach_failed(pod, source, &error)));
                }
                held.failed(task, view.at);
                self.end(source, task, true, took);
            }
        }
        Some(held)
    }

    /// Finds volumes that are said to be attached and are not, by their VolumeAttachments: once a period.
    fn compare(&mut self, view: &View) {
        let Some(period) = view.rules.period else { return };
        for volume in self.volumes() {
            let Some(mut held) = self.book.held.get(&volume).cloned() else { continue };
            let is_known = held.source.as_ref().is_some_and(|source| source.is_known());
            let Some(name) = held.attachment.clone().filter(|_| is_known) else { continue };
            let is_attached = view.attachment(Some(&name)).is_some_and(|found| found.status.attached);
            let is_compared = held.is_reported()
                && held.under_way.is_none()
                && !is_attached
                && !view.needless.contains(&volume);
            if !is_compared {
                held.missing_since = None;
                self.book.held.insert(volume, held);
                continue;
            }
            let since = held.missing_since.unwrap_or(view.at);
            held.missing_since = Some(since);
            let left = next(since, period).saturating_sub(view.at);
            match view.live_attachments.get(&name) {
                _ if !left.is_zero() => self.look_in(left),
                None => self
                    .needs
                    .push(ATTACHMENT_COMPARED.of(Read::Object(&VOLUME_ATTACHMENTS, Key::new("", name)))),
                Some(LiveAttachment::Unreadable { .. }) => {
                    held.missing_since = Some(view.at);
                    self.look_in(period);
                }
                Some(LiveAttachment::Is(found)) if found.status.attached => {
                    held.missing_since = Some(view.at);
                    self.look_in(period);
                }
                Some(LiveAttachment::Is(_) | LiveAttachment::Gone) => {
                    held.missing_since = None;
                    held.state = State::Absent;
                }
            }
            self.book.held.insert(volume, held);
        }
    }

    /// Forgets what is neither there nor wanted, and names that nobody can detach once their node is gone. Ends the backoff of reads of
    /// VolumeAttachments that the cache now shows.
    fn tidy(&mut self, view: &View) {
        let listed: HashSet<&Str> = view.node.as_deref().map(listed_by).unwrap_or_default();
        let Book { held, wants, .. } = &mut self.book;
        for held in held.values_mut() {
            if held.attachment.as_ref().is_some_and(|name| view.attachments.contains_key(name)) {
                held.unheard = None;
            }
        }
        held.retain(|volume, held| {
            held.state != State::Absent && (held.source.is_some() || view.node.is_some())
                || held.under_way.is_some()
                || wants.contains_key(volume)
                || listed.contains(volume)
        });
    }
}

/// Whether the detach of a volume could not be judged, because its VolumeAttachment could not be read: it may be gone.
fn is_lost(view: &View, volume: &Str, held: &Held) -> bool {
    held.is_leaving && held.unheard.is_none() && lacks_attachment(view, volume, held)
}

/// Whether nothing is under way on a volume that needs a VolumeAttachment, and the cache lacks it.
fn lacks_attachment(view: &View, volume: &Str, held: &Held) -> bool {
    held.under_way.is_none()
        && held.attachment.as_ref().is_some_and(|name| !view.attachments.contains_key(name))
        && !view.needless.contains(volume)
}

/// The end of the period in which something was seen first.
fn next(since: Duration, period: Duration) -> Duration {
    let periods = since.as_nanos() / period.as_nanos().max(1) + 1;
    period.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX))
}

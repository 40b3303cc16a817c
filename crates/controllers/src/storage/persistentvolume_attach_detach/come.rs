//! What comes: volumes that pods of the node want and that it has not. Pure.

use std::time::Duration;

use super::book::{Held, Operation, PATIENCE, State, Task, version};
use super::draft::{Ask, Draft};
use super::source::Means;
use super::tell::{attached, exclusive};
use super::view::View;
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// When a node looks again that waits for another one, should nothing wake it: an operation there ends within minutes, and a pod
/// may stay for ever.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(30);

impl Draft {
    /// Attaches what needs no new VolumeAttachment, and finds out what must wait for other nodes.
    pub(super) fn attach_at_once(&mut self, view: &View) {
        for volume in self.book.wants.keys().cloned().collect::<Vec<_>>() {
            if !self.is_to_come(view, &volume) || self.waits_for_another(view, &volume) {
                continue;
            }
            let Some(want) = self.book.wants.get(&volume).cloned() else { continue };
            let is_there = view.attachment(want.attachment.as_ref()).is_some();
            let is_done = want.source.means == Means::Node;
            if !is_there && !is_done {
                continue;
            }
            let mut held = self.coming(view, &volume);
            if is_done {
                held.state = State::Attached;
                held.backoff = None;
                self.events.extend(want.pods.iter().map(|pod| attached(pod, Some(&want.source))));
                self.end(Some(&want.source), Task::Attach, false, Duration::ZERO);
                self.book.held.insert(volume, held);
            } else {
                held.under_way =
                    Some(Operation { task: Task::Attach, since: view.at, pods: want.pods.clone() });
                if let Some(held) = self.progressed(view, held) {
                    self.book.held.insert(volume, held);
                }
            }
        }
    }

    /// Whether a volume that is wanted is to be attached now.
    fn is_to_come(&mut self, view: &View, volume: &str) -> bool {
        let Some(held) = self.book.held.get(volume) else { return true };
        if held.state == State::Attached || held.under_way.is_some() {
            return false;
        }
        let left = held.backs_off(Task::Attach, view.at);
        if let Some(left) = left {
            self.look_in(left);
        }
        left.is_none()
    }

    /// A volume that is about to be attached.
    pub(super) fn coming(&self, view: &View, volume: &str) -> Held {
        let known = self.book.held.get(volume).filter(|held| held.under_way.is_none());
        let mut held = known.cloned().unwrap_or_else(|| {
            let source = self.book.wants.get(volume).map(|want| want.source.clone());
            Held {
                known_at: Some(version(view.node.as_deref())),
                ..Held::new(State::Absent, source, &view.name)
            }
        });
        held.is_leaving = false;
        held
    }

    /// Whether another node has it, or is about to get it or to lose it. That another one has it is told once.
    fn waits_for_another(&mut self, view: &View, volume: &Str) -> bool {
        let others = view.elsewhere.get(volume).map(Vec::as_slice).unwrap_or_default();
        let is_busy = others.iter().any(|other| other.is_under_way || other.is_attached && other.is_leaving);
        let has_it = others.iter().any(|other| other.is_attached);
        if !is_busy && !has_it {
            return false;
        }
        self.book.waits.insert(volume.clone());
        self.look_in(if is_busy { SOON } else { LATER });
        let want = self.book.wants.get_mut(volume).filter(|want| !want.is_told && !is_busy);
        if let Some(want) = want {
            want.is_told = true;
            let used_by: Vec<&Key> =
                others.iter().filter(|other| other.is_attached).flat_map(|other| &other.pods).collect();
            let told = want.pods.iter().map(|pod| exclusive(pod, &want.source, &used_by));
            self.events.extend(told);
        }
        true
    }

    /// Has VolumeAttachments created for what is wanted and has none.
    pub(super) fn ask_for(&mut self, view: &View) {
        for volume in self.book.wants.keys().cloned().collect::<Vec<_>>() {
            if self.book.waits.contains(&volume) || !self.is_to_come(view, &volume) {
                continue;
            }
            let Some(want) = self.book.wants.get(&volume) else { continue };
            let (Some(name), pods) = (want.attachment.clone(), want.pods.clone()) else { continue };
            if view.attachments.contains_key(&name) {
                // It went missing a moment ago: the next look takes up what there is.
                self.look_in(Duration::ZERO);
                continue;
            }
            let mut held = self.coming(view, &volume);
            held.under_way = Some(Operation { task: Task::Attach, since: view.at, pods });
            self.book.held.insert(volume.clone(), held);
            self.asks.push(Ask::Attach(volume, name));
            self.look_in(PATIENCE);
        }
    }
}

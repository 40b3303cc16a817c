//! What goes: volumes that the node has, or may have, and that none of its pods wants. Pure.

use std::time::Duration;

use super::book::{Backoff, FORCED_AFTER, Held, Operation, PATIENCE, State, Task, listed_by};
use super::draft::{Ask, Draft};
use super::view::{Live, LiveAttachment, View};
use crate::live_reads::{ATTACHMENT_NODE, ATTACHMENT_UNHEARD};
use coxswain_machinery::api::core::Node;
use coxswain_machinery::api::kinds::{NODES, VOLUME_ATTACHMENTS};
use coxswain_machinery::framework::Read;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::Str;

/// Whether a volume that nobody wants may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// It may.
    Go,
    /// Its last attempt has failed: not for so long.
    BacksOff(Duration),
    /// It is mounted, on a node that will say when it is not.
    Mounted,
    /// It is mounted, on a node that is not ready: it is taken away after so long.
    Forced(Duration),
}

/// Whether a volume that nobody wants may go. Nothing is begun here.
pub(super) fn leave(view: &View, volume: &str, held: &Held) -> Leave {
    if let Some(left) = held.backs_off(Task::Detach, view.at) {
        return Leave::BacksOff(left);
    }
    let node = view.node.as_deref();
    let for_long = view.at.saturating_sub(held.unwanted_since.unwrap_or(view.at));
    if !view.is_mounted(volume, held) || node.is_some_and(Node::is_out_of_service) {
        return Leave::Go;
    }
    match FORCED_AFTER.checked_sub(for_long).filter(|left| !left.is_zero()) {
        _ if node.is_some_and(Node::is_ready) || !view.rules.is_forced => Leave::Mounted,
        Some(left) => Leave::Forced(left),
        None => Leave::Go,
    }
}

impl Draft {
    /// What is attached, or may be, and nobody wants; without those that an attacher is at work on, and those of unknown plugins.
    fn unwanted(&self) -> Vec<(Str, Held)> {
        let is_unwanted = |volume: &Str, held: &Held| {
            held.state != State::Absent
                && held.under_way.is_none()
                && held.source.is_some()
                && !self.book.wants.contains_key(volume)
        };
        let all = self.book.held.iter().filter(|(volume, held)| is_unwanted(volume, held));
        all.map(|(volume, held)| (volume.clone(), held.clone())).collect()
    }

    /// Has volumes leave that may go. What does not leave stays listed.
    pub(super) fn begin_leaving(&mut self, view: &View) {
        for (volume, mut held) in self.unwanted() {
            match leave(view, &volume, &held) {
                Leave::Go => held.is_leaving = true,
                Leave::BacksOff(left) => self.look_in(left),
                Leave::Mounted => held.is_leaving = false,
                Leave::Forced(left) => {
                    held.is_leaving = false;
                    self.look_in(left);
                }
            }
            self.book.held.insert(volume, held);
        }
    }

    /// Takes away what has left the node's list, unless the node uses it, by its own word of this moment.
    pub(super) fn take_away(&mut self, view: &View) {
        let read = ATTACHMENT_NODE.of(Read::Object(&NODES, Key::new("", view.name.clone())));
        let mut is_asked = self.needs.contains(&read);
        let listed: HashSet<&Str> = view.node.as_deref().map(listed_by).unwrap_or_default();
        let used: HashSet<&Str> =
            view.live.node().map(|node| node.status.volumes_in_use.iter().collect()).unwrap_or_default();
        for (volume, mut held) in self.unwanted() {
            if !held.is_leaving || listed.contains(&volume) || leave(view, &volume, &held) != Leave::Go {
                continue;
            }
            let is_heard_of = held.attachment.as_ref().is_none_or(|name| view.attachments.contains_key(name));
            if let Some(left) = held.left_unheard(view.at).filter(|_| !is_heard_of) {
                self.look_in(left);
                continue;
            }
            if matches!(view.live, Live::Unasked) {
                if !is_asked {
                    self.needs.push(read.clone());
                    is_asked = true;
                }
                continue;
            }
            let is_unknown = matches!(view.live, Live::Unreadable);
            // The cache has to do for a Node that cannot be read, as it does in kube-controller-manager once a detach is forced. Its taint may have
            // been removed since, so the volume has six minutes to be wanted again.
            let forced = if is_unknown {
                why_forced(view, view.node.as_deref(), &held).filter(|_| held.is_unwanted_for_long(view.at))
            } else {
                why_forced(view, view.live.node(), &held)
            };
            if forced.is_none() && (is_unknown || used.contains(&volume)) {
                if is_unknown && !held.is_unwanted_for_long(view.at) {
                    held.delay(Task::Detach, view.at);
                    // The volume is listed again until the backoff has passed. Until then the events of pods that wait on other nodes name this
                    // node. The answer to the next patch of the list shows the Node.
                    held.is_leaving = false;
                } else {
                    // As in kube-controller-manager, another node may have it now.
                    held.failed(Task::Detach, view.at);
                }
                self.look_in(held.backs_off(Task::Detach, view.at).unwrap_or_default());
                self.end(held.source.as_deref(), Task::Detach, true, Duration::ZERO);
                self.book.held.insert(volume, held);
                continue;
            }
            self.detach(view, &volume, held, forced);
        }
    }

    fn detach(&mut self, view: &View, volume: &Str, mut held: Held, forced: Option<&'static str>) {
        let source = held.source.clone();
        let Some(name) = held.attachment.clone() else {
            // A disk: its node lets go of it by itself.
            self.forced.extend(forced);
            self.end(source.as_deref(), Task::Detach, false, Duration::ZERO);
            self.book.held.remove(volume);
            return;
        };
        let found = match (view.attachments.get(&name), view.live_attachments.get(&name)) {
            (Some(found), _) => Some(found),
            (None, Some(LiveAttachment::Gone)) => None,
            (None, Some(LiveAttachment::Unreadable { is_forbidden })) => {
                if *is_forbidden || held.is_unwanted_for_long(view.at) {
                    held.under_way = Some(Operation { task: Task::Detach, since: view.at, pods: Vec::new() });
                    self.book.held.insert(volume.clone(), held);
                    self.forced.extend(forced);
                    self.asks.push(Ask::Probe(name));
                    self.look_in(Duration::ZERO);
                    return;
                }
                held.delay(Task::Detach, view.at);
                self.look_in(held.backs_off(Task::Detach, view.at).unwrap_or_default());
                self.end(source.as_deref(), Task::Detach, true, Duration::ZERO);
                self.book.held.insert(volume.clone(), held);
                return;
            }
            (None, Some(LiveAttachment::Is(_))) => {
                // The cache has yet to hear of it. What it has not seen come it does not see go, either: its absence there would be
                // taken for the end of the detaching. A cache that is late hears of it soon, one that cannot read it never does.
                held.unheard = Some(Backoff::after(held.unheard, Task::Detach, view.at));
                self.look_in(held.left_unheard(view.at).unwrap_or_default());
                self.book.held.insert(volume.clone(), held);
                return;
            }
            (None, None) => {
                self.needs.push(ATTACHMENT_UNHEARD.of(Read::Object(&VOLUME_ATTACHMENTS, Key::new("", name))));
                return;
            }
        };
        self.forced.extend(forced);
        let Some(found) = found else {
            self.end(source.as_deref(), Task::Detach, false, Duration::ZERO);
            self.book.held.remove(volume);
            return;
        };
        held.under_way = Some(Operation { task: Task::Detach, since: view.at, pods: Vec::new() });
        if found.metadata.is_deleting() {
            let Some(progressed) = self.progressed(view, held) else { return };
            held = progressed;
            if let Some(left) = held.backs_off(Task::Detach, view.at) {
                self.look_in(left);
            }
        } else {
            self.asks.push(Ask::Detach(name, found.metadata.uid.clone()));
            self.look_in(PATIENCE);
        }
        self.book.held.insert(volume.clone(), held);
    }
}

/// Why a volume is taken away although its node may use it, if it is: the node is not ready and had six minutes, or a user has marked it as
/// out of service.
fn why_forced(view: &View, node: Option<&Node>, held: &Held) -> Option<&'static str> {
    let is_ready = node.is_some_and(Node::is_ready);
    if view.rules.is_forced && held.is_unwanted_for_long(view.at) && !is_ready {
        Some("timeout")
    } else {
        node.is_some_and(Node::is_out_of_service).then_some("out-of-service")
    }
}

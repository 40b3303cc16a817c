//! What becomes of a node's volumes when attachers could not be asked for all that was wanted. Pure.

use std::time::Duration;

use super::book::{Backoff, Operation, Task};
use super::draft::{Draft, Stage};
use super::tell::attach_failed;
use super::view::View;
use coxswain_machinery::api::kinds::VOLUME_ATTACHMENTS;
use coxswain_machinery::random::{HashMap, HashSet};
use coxswain_machinery::wire::Str;

/// What was asked for is under way, what was refused is tried again later, and the rest is as if nothing had been tried. A pod may
/// have gone while the answer was waited for: what was asked for it may be there, whatever was answered.
pub(super) fn refused(view: &View) -> Draft {
    let mut draft = Draft {
        stage: Stage::Tell,
        book: view.book.clone(),
        events: Vec::new(),
        asks: Vec::new(),
        needs: Vec::new(),
        ended: Vec::new(),
        forced: Vec::new(),
        look_in: Some(Backoff::FIRST),
    };
    let refused: Vec<_> =
        view.failures.iter().filter(|failure| failure.kind == &VOLUME_ATTACHMENTS).collect();
    let wanted =
        view.book.wants.iter().filter_map(|(volume, want)| Some((want.attachment.as_ref()?, volume)));
    // The first of two volumes with one attachment counts.
    let wanted: HashMap<&Str, &Str> = wanted.rev().collect();
    let held = view.book.held.iter().filter_map(|(volume, held)| Some((held.attachment.as_ref()?, volume)));
    let held: HashMap<&Str, &Str> = held.rev().collect();
    for failure in &refused {
        let name = &failure.key.name;
        if let Some((volume, want)) =
            wanted.get(name).and_then(|volume| view.book.wants.get_key_value(*volume))
        {
            let volume = volume.clone();
            let error = format!("kubernetes.io/csi: attacher.Attach failed: {}", failure.message);
            draft.events.extend(want.pods.iter().map(|pod| attach_failed(pod, Some(&want.source), &error)));
            let mut held = draft.coming(view, &volume);
            held.failed(Task::Attach, view.at);
            draft.book.held.insert(volume, held);
            draft.end(Some(&want.source), Task::Attach, true, Duration::ZERO);
        } else if let Some(held) = held.get(name).and_then(|volume| draft.book.held.get_mut(*volume)) {
            held.is_leaving = true;
            held.unwanted_since = held.unwanted_since.or(Some(view.at));
            let was_probe = !view.attachments.contains_key(name);
            if was_probe && (failure.code == 409 || !held.is_unwanted_for_long(view.at)) {
                // 409 shows that the API server has the VolumeAttachment, which the cache has yet to show. Any other answer shows nothing,
                // and a probe detaches nothing: the volume stays attached.
                held.unheard = Some(Backoff::after(held.unheard, Task::Detach, view.at));
                continue;
            }
            held.failed(Task::Detach, view.at);
            let source = held.source.clone();
            draft.end(source.as_deref(), Task::Detach, true, Duration::ZERO);
        } else {
            draft.book.doubtful.insert(name.clone());
        }
    }
    let refused: HashSet<&Str> = refused.iter().map(|failure| &failure.key.name).collect();
    for name in view.written.iter().filter(|name| !refused.contains(name)) {
        let wanted = wanted.get(name).and_then(|volume| view.book.wants.get_key_value(*volume));
        let operation = |task, pods| Some(Operation { task, since: view.at, pods });
        if let Some((volume, want)) = wanted {
            let (volume, pods) = (volume.clone(), want.pods.clone());
            let mut held = draft.coming(view, &volume);
            held.under_way = operation(Task::Attach, pods);
            draft.book.held.insert(volume, held);
        } else if let Some(held) = held.get(name).and_then(|volume| draft.book.held.get_mut(*volume)) {
            held.is_leaving = true;
            held.unwanted_since = held.unwanted_since.or(Some(view.at));
            held.under_way = operation(Task::Detach, Vec::new());
        } else {
            draft.book.doubtful.insert(name.clone());
        }
    }
    draft
}

//! What is remembered of each autoscaler between its looks, because no object tells it: what its metrics asked for lately, what
//! was added and removed lately, which pods its target's selector selects, and, while its target is being scaled, what was
//! decided. Lost with the process: then nobody shrinks within the window. Decides nothing.

use std::sync::Arc;

use parking_lot::Mutex;

use super::draft::{Draft, Looked, Note};
use super::history::{History, Step};
use coxswain_machinery::framework::{Memory, Outcome, ReconcileEnd};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

/// One autoscaler.
#[derive(Debug, Default)]
struct Remembered {
    history: History,
    selector: Option<Arc<Selector>>,
    draft: Option<Arc<Draft>>,
    /// What the look under way came to.
    looked: Option<Looked>,
    /// What the look under way has done to the target: when, and by how much.
    scaled: Option<Step>,
}

/// What is remembered of all autoscalers.
#[derive(Debug, Default)]
pub(super) struct Remembering(Mutex<HashMap<Key, Remembered>>);

impl Remembering {
    /// What was asked for and done lately.
    pub(super) fn history(&self, key: &Key) -> History {
        self.0.lock().get(key).map(|held| held.history.clone()).unwrap_or_default()
    }

    /// What the look under way has decided.
    pub(super) fn draft(&self, key: &Key) -> Option<Arc<Draft>> {
        self.0.lock().get(key)?.draft.clone()
    }

    /// The selectors of the other autoscalers of the namespace, by name, as far as they are known.
    pub(super) fn others(&self, key: &Key) -> Vec<(Str, Arc<Selector>)> {
        let held = self.0.lock();
        let others = held.iter().filter(|(other, _)| other.namespace == key.namespace && *other != key);
        others.filter_map(|(other, held)| Some((other.name.clone(), held.selector.clone()?))).collect()
    }

    /// An autoscaler is gone: whom it shared pods with has them alone. The rest is forgotten when its turn comes.
    pub(super) fn forget_selector(&self, key: &Key) {
        if let Some(held) = self.0.lock().get_mut(key) {
            held.selector = None;
        }
    }

    /// A plan was made and is about to be carried out.
    pub(super) fn begin(&self, key: &Key, note: &Note) {
        if note.look.is_none() && note.draft.is_none() {
            return;
        }
        let mut all = self.0.lock();
        let held = all.entry(key.clone()).or_default();
        held.draft.clone_from(&note.draft);
        if note.look.is_some() {
            held.looked.clone_from(&note.look);
        }
    }
}

impl Memory<Note> for Remembering {
    /// Nothing rests on all writes of a plan: what metrics ask for is remembered whatever becomes of the status.
    fn commit(&self, _: &Key, _: Note) {}

    /// The target was scaled.
    fn commit_item(&self, key: &Key, note: &Note, _: usize) {
        let Some(draft) = &note.draft else { return };
        if let Some(held) = self.0.lock().get_mut(key) {
            held.scaled = Some(Step { at: draft.at, by: draft.desired.saturating_sub(draft.current) });
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let mut all = self.0.lock();
        if matches!(ended.outcome, Outcome::Absent) {
            all.remove(key);
            return;
        }
        let Some(held) = all.get_mut(key) else { return };
        let draft = held.draft.take();
        if let Some(looked) = held.looked.take() {
            held.selector = looked.selector.or(held.selector.take());
            if let Some(history) = looked.history {
                held.history = history;
            }
        }
        let counts = draft.is_some_and(|draft| draft.remembers_steps);
        match held.scaled.take().filter(|_| counts) {
            Some(step) if step.by > 0 => held.history.added.push(step),
            Some(step) => held.history.removed.push(Step { by: step.by.saturating_neg(), ..step }),
            None => {}
        }
    }
}

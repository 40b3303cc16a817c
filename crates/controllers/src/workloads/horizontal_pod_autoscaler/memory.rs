//! What is remembered of each autoscaler between its looks, because no object tells it: what its metrics asked for lately, what
//! was added and removed lately, which pods its target's selector selects, and, while its target is being scaled, what was
//! decided. Lost with the process: then nobody shrinks within the window. Decides nothing.

use std::sync::Arc;

use parking_lot::Mutex;

use super::draft::{Draft, Looked, Note};
use super::history::{History, Step};
use super::selectors::Selectors;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{Memory, Outcome, ReconcileEnd};
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::Str;

/// One autoscaler.
#[derive(Debug, Default)]
struct Remembered {
    history: History,
    draft: Option<Arc<Draft>>,
    /// What the look under way came to.
    looked: Option<Looked>,
    /// What the look under way has done to the target: when, and by how much.
    scaled: Option<Step>,
}

/// All of them.
#[derive(Debug, Default)]
struct All {
    of: HashMap<Key, Remembered>,
    selectors: Selectors,
}

/// What is remembered of all autoscalers.
#[derive(Debug, Default)]
pub(super) struct Remembering(Mutex<All>);

impl Remembering {
    /// What was asked for and done lately.
    pub(super) fn history(&self, key: &Key) -> History {
        self.0.lock().of.get(key).map(|held| held.history.clone()).unwrap_or_default()
    }

    /// What the look under way has decided.
    pub(super) fn draft(&self, key: &Key) -> Option<Arc<Draft>> {
        self.0.lock().of.get(key)?.draft.clone()
    }

    /// The names of the other autoscalers whose targets are known to have some of these pods.
    pub(super) fn sharers(&self, key: &Key, pods: &[Arc<Pod>]) -> Vec<Str> {
        self.0.lock().selectors.sharers(key, pods)
    }

    /// An autoscaler is gone: whom it shared pods with has them alone. The rest is forgotten when its turn comes.
    pub(super) fn forget_selector(&self, key: &Key) {
        self.0.lock().selectors.remove(key);
    }

    /// A plan was made and is about to be carried out.
    pub(super) fn begin(&self, key: &Key, note: &Note) {
        if note.look.is_none() && note.draft.is_none() {
            return;
        }
        let mut all = self.0.lock();
        let held = all.of.entry(key.clone()).or_default();
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
        if let Some(held) = self.0.lock().of.get_mut(key) {
            held.scaled = Some(Step { at: draft.at, by: draft.desired.saturating_sub(draft.current) });
        }
    }

    fn ended(&self, key: &Key, ended: ReconcileEnd<'_>) {
        let All { of, selectors } = &mut *self.0.lock();
        if matches!(ended.outcome, Outcome::Absent) {
            of.remove(key);
            selectors.remove(key);
            return;
        }
        let Some(held) = of.get_mut(key) else { return };
        let draft = held.draft.take();
        if let Some(looked) = held.looked.take() {
            if let Some(selector) = looked.selector {
                selectors.set(key, &selector);
            }
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

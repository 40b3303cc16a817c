//! Whose schedule has changed: the new one is not due before its next activation, whatever the old one left. No object tells
//! that. Decides nothing.

use parking_lot::Mutex;

use coxswain_machinery::api::batch::CronJob;
use coxswain_machinery::framework::Memory;
use coxswain_machinery::model::Key;
use coxswain_machinery::random::HashMap;

/// What a plan tells beside its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Note {
    /// The generation whose new schedule the plan has heeded.
    pub(super) rescheduled: Option<i64>,
    /// How long after its activation the Job was made, in seconds, if one was.
    pub(super) skew: Option<f64>,
}

/// CronJobs whose schedule or time zone has changed since they were looked at, by the generation that did it.
#[derive(Debug, Default)]
pub(super) struct Rescheduled(Mutex<HashMap<Key, i64>>);

impl Rescheduled {
    /// A CronJob has changed, or is gone. After a change of its schedule any other one counts.
    pub(super) fn heed(&self, old: Option<&CronJob>, new: Option<&CronJob>) {
        match (old, new) {
            (Some(old), Some(new)) => {
                let schedule = |job: &CronJob| (job.spec.schedule.clone(), job.spec.time_zone.clone());
                if schedule(old) == schedule(new) {
                    self.forget(&Key::of(&new.metadata));
                } else {
                    self.0.lock().insert(Key::of(&new.metadata), new.metadata.generation);
                }
            }
            (Some(gone), None) => self.forget(&Key::of(&gone.metadata)),
            _ => {}
        }
    }

    /// Something else has changed: what was missed is started at once.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    /// The generation with a new schedule that was not heeded yet.
    pub(super) fn generation(&self, key: &Key) -> Option<i64> {
        self.0.lock().get(key).copied()
    }
}

impl Memory<Note> for Rescheduled {
    fn commit(&self, key: &Key, note: Note) {
        if note.rescheduled.is_some() {
            let mut held = self.0.lock();
            if held.get(key).copied() == note.rescheduled {
                held.remove(key);
            }
        }
    }
}

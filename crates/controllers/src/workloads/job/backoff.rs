//! How often pods of a Job have failed since one succeeded, and until when no pod is made for that. Kept in memory: a restart
//! forgets it, and a replacement may then come at once.

use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use coxswain_machinery::model::Key;
use coxswain_machinery::model::backoff::ExponentialBackoff;
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::{Time, Uid};

/// As in the original.
const BACKOFF: ExponentialBackoff =
    ExponentialBackoff::doubling(Duration::from_secs(10), Duration::from_mins(10));

/// Failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// How many.
    pub(super) failures: u32,
    /// When the last pod failed.
    pub(super) last: Option<Time>,
}

impl Record {
    /// The record when these pods have ended, too: a success forgets all failures before it.
    pub(super) fn after(self, failed: &[Time], succeeded: &[Time]) -> Self {
        let newest_success = succeeded.iter().max();
        let counts = |at: &&Time| newest_success.is_none_or(|success| *at > success);
        let failures: Vec<Time> = failed.iter().filter(counts).copied().collect();
        let held = if newest_success.is_some() { Self::default() } else { self };
        Self {
            failures: held.failures.saturating_add(u32::try_from(failures.len()).unwrap_or(u32::MAX)),
            last: failures.into_iter().max().max(held.last),
        }
    }

    /// For how long no pod is made; `None` if one may be.
    pub(super) fn wait(self, now: Timestamp) -> Option<Duration> {
        wait(self.failures, self.last?, now)
    }
}

/// 292 years, in seconds: the nanoseconds that 64 bits hold.
const LONGEST_AHEAD: i64 = i64::MAX / 1_000_000_000;

/// For how long no pod is made after so many failures in a row, the last of them then; `None` if one may be.
pub(super) fn wait(failures: u32, last: Time, now: Timestamp) -> Option<Duration> {
    let delay = BACKOFF.after(failures.checked_sub(1)?);
    // kube-controller-manager's difference overflows there, and no pod waits for the end of the calendar.
    if last.seconds_since(Time::from(now)) > LONGEST_AHEAD {
        return None;
    }
    let passed = now.duration_since(last.into());
    let left = jiff::SignedDuration::try_from(delay).ok()?.checked_sub(passed)?;
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

/// The records of all Jobs whose pods have failed.
#[derive(Debug, Default)]
pub(super) struct Backoffs(Mutex<HashMap<Key, (Uid, Record)>>);

impl Backoffs {
    /// The record of a Job.
    pub(super) fn of(&self, key: &Key, uid: &Uid) -> Record {
        let held = self.0.lock();
        held.get(key).filter(|(held, _)| held == uid).map(|(_, record)| *record).unwrap_or_default()
    }

    /// The record of a Job is this from now on.
    pub(super) fn set(&self, key: &Key, uid: &Uid, record: Record) {
        if record == Record::default() {
            self.forget(key);
        } else {
            self.0.lock().insert(key.clone(), (uid.clone(), record));
        }
    }

    /// The Job has ended, or is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

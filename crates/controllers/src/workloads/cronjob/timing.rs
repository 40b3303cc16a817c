//! Which activation is due, and when the next one comes.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::schedule::Schedule;

/// How long after an activation a CronJob is looked at, as in the original: clocks may differ by as much.
const LATENESS: Duration = Duration::from_millis(100);
/// More missed activations than this are warned of.
const MANY: i64 = 100;

/// What was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// Nothing: the first activation is to come.
    Nothing,
    /// Activations of which this is the last.
    Last {
        /// The activation.
        at: Timestamp,
        /// Whether there were many.
        many: bool,
    },
    /// Activations that an estimate takes for too far back.
    Forgotten,
    /// The schedule never comes.
    Never,
}

/// The activations after `earliest` that have come by `now`. How many there were is estimated by the distance of the first two,
/// and only those that it takes for the last ones are looked for: if activations are uneven, there may be none.
pub(super) fn missed(schedule: &Schedule, earliest: Timestamp, now: Timestamp) -> Missed {
    let Some(first) = schedule.next(earliest) else {
        // The calendar ends before an activation after a time that somebody wrote for "never".
        let comes = earliest > now && schedule.next(now).is_some();
        return if comes { Missed::Nothing } else { Missed::Never };
    };
    if now < first {
        return Missed::Nothing;
    }
    let second = schedule.next(first);
    if second.is_some_and(|second| now < second) {
        return Missed::Last { at: first, many: false };
    }
    let distance = second.map_or(0, |second| rounded(second.duration_since(first)));
    if distance < 1 {
        return Missed::Never;
    }
    let count = now.duration_since(first).as_secs() / distance + 1;
    let from = first.checked_add(SignedDuration::from_secs((count - 2).saturating_mul(distance)));
    let mut last = None;
    let mut at = from.unwrap_or(first);
    while let Some(next) = schedule.next(at).filter(|next| *next <= now) {
        last = Some(next);
        at = next;
    }
    last.map_or(Missed::Forgotten, |at| Missed::Last { at, many: count > MANY })
}

fn rounded(duration: SignedDuration) -> i64 {
    duration.as_secs() + i64::from(duration.subsec_millis() >= 500)
}

/// How long until the CronJob is to be looked at again, if `since` is when it was last started or made; `None` if its schedule
/// never comes.
pub(super) fn next_look(schedule: &Schedule, since: Timestamp, now: Timestamp) -> Option<Duration> {
    let after = match missed(schedule, since, now) {
        Missed::Nothing => since,
        Missed::Last { at, .. } => at,
        Missed::Forgotten | Missed::Never => now,
    };
    let next = schedule.next(after).or_else(|| (after > now).then_some(after))?;
    let left = next.duration_since(now).saturating_add(SignedDuration::try_from(LATENESS).ok()?);
    Some(if left.is_negative() { Duration::ZERO } else { left.unsigned_abs() })
}

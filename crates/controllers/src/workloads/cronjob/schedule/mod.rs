//! The schedule of a CronJob: its text, and the times that it means.
//!
//! The grammar is that of the original, errors included, since the API server and people who read events know them: five fields
//! ([`fields`]), names that begin with `@`, `@every` ([`every`]), and a zone in front. What one text means was recorded from the
//! original (`tests/schedules.tsv`).
//!
//! One difference is intended: on a day whose midnight the clock skips (Africa/Cairo, America/Santiago, Atlantic/Azores), and where it moves by
//! a part of an hour (Australia/Lord_Howe), the original runs on days and at times that do not match, and misses others that do. Here the
//! days and times of the fields count.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

use coxswain_machinery::zones::Zones;

mod every;
mod fields;
mod quote;

use fields::Fields;

/// How many calendar years after the one of a time the next one is looked for.
const YEARS: i16 = 5;

/// When Jobs are made.
#[derive(Clone, Debug)]
pub(super) enum Schedule {
    /// When these fields match the local time.
    Matching(Fields, TimeZone),
    /// So many seconds after the last time.
    Every(i64),
}

/// A schedule that can't be read: why, as the original says it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ScheduleError(String);

impl ScheduleError {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl Schedule {
    /// Reads a schedule that means local times in `zone`, unless it names one itself.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn parse(text: &str, zone: TimeZone, zones: &Zones) -> Result<Self, ScheduleError> {
        if text.is_empty() {
            return Err(ScheduleError::new("empty spec string"));
        }
        let prefixed = ["TZ=", "CRON_TZ="].into_iter().find_map(|prefix| text.strip_prefix(prefix));
        let (text, zone) = match prefixed.map(|rest| rest.split_once(' ')) {
            None => (text, zone),
            Some(None) => {
                let error = "invalid schedule format: runtime error: slice bounds out of range [:-1]";
                return Err(ScheduleError::new(error));
            }
            Some(Some((name, rest))) => (rest.trim(), zones.named(name).ok_or_else(|| bad_location(name))?),
        };
        if text.starts_with('@') {
            return Self::named(text, zone);
        }
        Ok(Self::Matching(Fields::parse(text)?, zone))
    }

    fn named(text: &str, zone: TimeZone) -> Result<Self, ScheduleError> {
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => {
                let Some(duration) = text.strip_prefix("@every ") else {
                    return Err(ScheduleError(format!("unrecognized descriptor: {text}")));
                };
                let every = every::seconds(duration);
                let failed = |error| ScheduleError(format!("failed to parse duration {text}: {error}"));
                return every.map(Self::Every).map_err(failed);
            }
        };
        Ok(Self::Matching(Fields::parse(fields)?, zone))
    }

    /// The first time after `after`; `None` if there is none for years.
    ///
    /// Hours go by in real time: a local time that a change of the clock skips does not come that day, one that it repeats comes
    /// twice.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every(seconds) => Timestamp::from_second(after.as_second().checked_add(*seconds)?).ok(),
            Self::Matching(fields, zone) => next_match(fields, zone, after),
        }
    }
}

fn bad_location(name: &str) -> ScheduleError {
    let reason = if name.contains("..") || name.starts_with(['/', '\\']) {
        "time: invalid location name".to_owned()
    } else if name.contains('\0') {
        // No file has such a name.
        "invalid argument".to_owned()
    } else {
        format!("unknown time zone {name}")
    };
    ScheduleError(format!("provided bad location {name}: {reason}"))
}

/// Between two changes of the clock local time goes on evenly, so each such stretch is a matter of the calendar alone.
fn next_match(fields: &Fields, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut offset = zone.to_offset(after);
    let local = whole_minute(offset.to_datetime(after))?;
    let end = DateTime::new(local.year().checked_add(YEARS + 1)?, 1, 1, 0, 0, 0, 0).ok()?;
    let mut from = local.checked_add(1.minute()).ok()?;
    let mut changes = zone.following(after);
    while from < end {
        let change = changes.next();
        let until = change.as_ref().map_or(end, |change| offset.to_datetime(change.timestamp()).min(end));
        if let Some(local) = fields.first(from, until) {
            return offset.to_timestamp(local).ok();
        }
        let change = change?;
        offset = change.offset();
        let begin = offset.to_datetime(change.timestamp());
        from = whole_minute(begin)?;
        if from < begin {
            from = from.checked_add(1.minute()).ok()?;
        }
    }
    None
}

fn whole_minute(local: DateTime) -> Option<DateTime> {
    let time = Time::new(local.hour(), local.minute(), 0, 0).ok()?;
    Some(DateTime::from_parts(local.date(), time))
}

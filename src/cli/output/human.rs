//! Times and durations for people.

use std::time::Duration;

use jiff::Timestamp;

/// Shown where there is nothing.
pub(in crate::cli) const NONE: &str = "<none>";

/// A duration in at most two units, as coarse as it is long: `12ms`, `95s`, `3m12s`, `45m`, `3h5m`, `3d4h`, `400d`.
pub(in crate::cli) fn duration(of: Duration) -> String {
    let seconds = of.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |whole: u64, unit: &str, rest: u64, small: &str| match rest {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit}{rest}{small}"),
    };
    if of.is_zero() {
        "0s".to_owned()
    } else if of < Duration::from_millis(1) {
        format!("{}µs", of.as_micros())
    } else if seconds < 1 {
        format!("{}ms", of.as_millis())
    } else if minutes < 2 {
        format!("{seconds}s")
    } else if minutes < 10 {
        pair(minutes, "m", seconds % 60, "s")
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        pair(days, "d", hours % 24, "h")
    } else {
        format!("{days}d")
    }
}

/// A message's duration; `None` where it is none. A negative one is as good as nothing.
pub(in crate::cli) fn read_duration(of: Option<&prost_types::Duration>) -> Option<Duration> {
    let of = of?;
    let seconds = u64::try_from(of.seconds).unwrap_or(0);
    let nanos = u32::try_from(of.nanos).ok().filter(|nanos| *nanos < 1_000_000_000).unwrap_or(0);
    Some(Duration::new(seconds, nanos))
}

/// A message's duration in words.
pub(in crate::cli) fn duration_or_none(of: Option<&prost_types::Duration>) -> String {
    read_duration(of).map_or_else(|| NONE.to_owned(), duration)
}

/// A message's time; `None` where it is none, or beyond all reason.
pub(in crate::cli) fn read_time(at: Option<&prost_types::Timestamp>) -> Option<Timestamp> {
    let at = at?;
    Timestamp::new(at.seconds, at.nanos).ok()
}

/// For how long something has been so; a time yet to come counts as now.
pub(in crate::cli) fn age(at: Option<&prost_types::Timestamp>, now: Timestamp) -> String {
    match read_time(at) {
        None => NONE.to_owned(),
        Some(at) => duration(between(at, now)),
    }
}

/// From one time to a later one, in whole seconds; zero if it is not later.
pub(in crate::cli) fn between(from: Timestamp, to: Timestamp) -> Duration {
    let whole = Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO);
    Duration::from_secs(whole.as_secs())
}

/// A time to the second, and how long ago that is.
pub(in crate::cli) fn ago(at: Option<&prost_types::Timestamp>, now: Timestamp) -> String {
    match read_time(at) {
        None => NONE.to_owned(),
        Some(time) => format!("{} ({} ago)", second(time), duration(between(time, now))),
    }
}

/// A time to the second, in UTC.
pub(in crate::cli) fn second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time to the millisecond, in UTC.
pub(in crate::cli) fn millisecond(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

//! Which activation is due, and when to look again.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::super::schedule::Schedule;
use super::super::timing::{Missed, missed, next_look};
use coxswain_machinery::zones::Zones;

fn schedule(text: &str) -> Schedule {
    Schedule::parse(text, TimeZone::UTC, &Zones::bundled()).unwrap()
}

/// `24T09:30` of November 2026.
fn at(text: &str) -> Timestamp {
    let seconds = if text.len() > 8 { "" } else { ":00" };
    format!("2026-11-{text}{seconds}Z").parse().unwrap()
}

#[test]
fn the_last_activation_that_was_missed_is_due() {
    let last = |text| Missed::Last { at: at(text), many: false };
    let many = |text| Missed::Last { at: at(text), many: true };
    for (text, since, now, expected) in [
        ("0 * * * *", "24T09:00", "24T09:59:59", Missed::Nothing),
        ("0 * * * *", "24T09:00", "24T10:00", last("24T10:00")),
        ("0 * * * *", "24T09:00", "24T10:59:59", last("24T10:00")),
        ("0 * * * *", "24T09:00", "24T12:30", last("24T12:00")),
        // More than a hundred are warned of.
        ("* * * * *", "24T09:00", "24T10:40:59", last("24T10:40")),
        ("* * * * *", "24T09:00", "24T10:41", many("24T10:41")),
        ("0 * * * *", "01T00:00", "24T12:30", many("24T12:00")),
        // Uneven ones are forgotten: the first two are five minutes apart, and the last ones are not there.
        ("*/5 0 * * *", "23T00:55", "24T12:00", Missed::Forgotten),
        ("*/5 0 * * *", "23T00:55", "24T00:31", last("24T00:30")),
        ("*/5 0 * * *", "23T00:55", "24T00:59:59", last("24T00:55")),
        ("*/5 0 * * *", "23T00:55", "24T01:00", Missed::Forgotten),
        ("0 0 30 2 *", "24T09:00", "24T12:00", Missed::Never),
        (", * * * *", "24T09:00", "24T12:00", Missed::Never),
        ("@every 90s", "24T09:00", "24T09:01:29", Missed::Nothing),
        ("@every 90s", "24T09:00", "24T09:04:29", last("24T09:03")),
        ("@every 1s", "24T09:00", "24T09:00:01", last("24T09:00:01")),
        ("0 * * * *", "25T09:00", "24T09:00", Missed::Nothing),
    ] {
        assert_eq!(missed(&schedule(text), at(since), at(now)), expected, "{text} since {since} at {now}");
    }
}

#[test]
fn it_is_looked_at_again_a_tenth_of_a_second_after_the_next_activation() {
    let after = |text: &str, since: &str, now: &str| next_look(&schedule(text), at(since), at(now));
    let seconds = |seconds: u64| Some(Duration::from_millis(seconds * 1000 + 100));
    assert_eq!(after("0 * * * *", "24T09:00", "24T09:20"), seconds(2400));
    assert_eq!(
        after("0 * * * *", "24T09:00", "24T12:20"),
        seconds(2400),
        "the missed ones are not waited for"
    );
    assert_eq!(
        after("*/5 0 * * *", "23T00:55", "24T12:00"),
        seconds(12 * 3600),
        "after those that are forgotten"
    );
    assert_eq!(after("0 0 30 2 *", "24T09:00", "24T12:00"), None);
    assert_eq!(after("0 * * * *", "24T13:00", "24T12:30"), seconds(5400), "clocks that differ");
}

/// `lastScheduleTime: 9999-12-31T23:59:59Z`: the calendar ends before the next activation.
#[test]
fn last_schedule_time_at_the_end_of_the_calendar_means_that_nothing_is_due() {
    let now = at("24T09:00");
    for text in ["0 * * * *", "@every 90s"] {
        assert_eq!(missed(&schedule(text), Timestamp::MAX, now), Missed::Nothing, "{text}");
        assert!(next_look(&schedule(text), Timestamp::MAX, now).is_some(), "{text}");
    }
    assert_eq!(missed(&schedule("0 0 30 2 *"), Timestamp::MAX, now), Missed::Never);
}

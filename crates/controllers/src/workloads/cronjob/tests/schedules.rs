//! What texts mean, beside what the original makes of them.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::super::schedule::Schedule;
use coxswain_machinery::zones::Zones;

/// Recorded with the library that the original reads schedules with.
const RECORDED: &str = include_str!("schedules.tsv");

fn parse(text: &str, zone: &str) -> Result<Schedule, String> {
    let zones = Zones::bundled();
    Schedule::parse(text, zones.named(zone).unwrap(), &zones).map_err(|error| error.to_string())
}

/// The next six times, or why there are none.
fn told(text: &str, zone: &str, from: &str) -> String {
    let schedule = match parse(text, zone) {
        Ok(schedule) => schedule,
        Err(error) => return format!("error: {error}"),
    };
    let mut at: Timestamp = from.parse().unwrap();
    let mut told = Vec::new();
    for _ in 0..6 {
        let Some(next) = schedule.next(at) else {
            told.push("never".to_owned());
            break;
        };
        told.push(next.to_string());
        at = next;
    }
    told.join(" ")
}

#[test]
fn texts_mean_what_they_mean_to_the_original() {
    let mut rows = 0;
    for row in RECORDED.lines().filter(|row| !row.starts_with('#')) {
        let [text, zone, from, recorded] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
        // The original says so where its library panics.
        let recorded = recorded.replace("panic: ", "error: invalid schedule format: ");
        assert_eq!(told(text, zone, from), recorded, "{text:?} in {zone:?} after {from}");
        rows += 1;
    }
    assert!(rows > 140, "{rows} rows");
}

/// Errors that the comparison with Go found.
#[test]
fn errors_are_those_of_go() {
    for (text, error) in [
        ("TZ=../x * * * * *", "provided bad location ../x: time: invalid location name"),
        ("TZ=/x * * * * *", "provided bad location /x: time: invalid location name"),
        ("TZ=a\0 * * * * *", "provided bad location a\0: invalid argument"),
        ("TZ=X * * * * *", "provided bad location X: unknown time zone X"),
        ("1\0 * * * *", r#"failed to parse int from 1NUL: strconv.Atoi: parsing "1\x00": invalid syntax"#),
        ("' * * * *", r#"failed to parse int from ': strconv.Atoi: parsing "'": invalid syntax"#),
        (
            "19000000000000000000a * * * *",
            r#"failed to parse int from 19000000000000000000a: strconv.Atoi: parsing "19000000000000000000a": value out of range"#,
        ),
        (
            "@every 1\u{e9}",
            r#"failed to parse duration @every 1\u{e9}: time: unknown unit "\xc3\xa9" in duration "1\xc3\xa9""#,
        ),
        (
            "@every 92233720368854775807f",
            r#"failed to parse duration @every 92233720368854775807f: time: invalid duration "92233720368854775807f""#,
        ),
    ] {
        let error = error.replace("NUL", "\0").replace(r"\u{e9}", "\u{e9}");
        assert_eq!(parse(text, "UTC").unwrap_err(), error, "{text:?}");
    }
}

/// Where the original misses a time, as clocks there move by half an hour.
#[test]
fn half_an_hour_is_no_reason_to_miss_a_day() {
    let days = told("0 12 * * *", "Australia/Lord_Howe", "2026-04-03T02:00:00Z");
    assert!(days.starts_with("2026-04-04T01:00:00Z 2026-04-05T01:30:00Z 2026-04-06T01:30:00Z"), "{days}");
}

/// A field of what may stand there.
fn field(least: u8, most: u8) -> impl Strategy<Value = String> {
    let number = least..=most;
    let span = (number.clone(), number.clone())
        .prop_map(|(one, other)| format!("{}-{}", one.min(other), one.max(other)));
    let item = prop_oneof![
        3 => Just("*".to_owned()),
        2 => number.prop_map(|number| number.to_string()),
        1 => span,
        1 => (1_u8..20).prop_map(|step| format!("*/{step}")),
    ];
    prop::collection::vec(item, 1..3).prop_map(|items| items.join(","))
}

/// Whether a schedule of these fields matches a local time: each by itself, without looking for the next.
fn matches(fields: &[String], local: jiff::civil::DateTime) -> bool {
    let is_in = |field: &str, value: i8| {
        field.split(',').any(|item| {
            let (range, step) =
                item.split_once('/').map_or((item, 1), |(range, step)| (range, step.parse().unwrap()));
            let (least, most) = match range.split_once('-') {
                Some((least, most)) => (least.parse().unwrap(), most.parse().unwrap()),
                None if range == "*" => (-1, 99),
                None => (range.parse().unwrap(), range.parse().unwrap()),
            };
            // Steps of a star are counted from the least value: 1 in days and months.
            (least..=most).contains(&value) && (step == 1 || value % step == 0)
        })
    };
    let is_open = |field: &str| field.split(',').any(|item| item == "*" || item == "*/1");
    let day = is_in(&fields[2], local.day());
    let weekday = is_in(&fields[4], local.weekday().to_sunday_zero_offset());
    is_in(&fields[0], local.minute())
        && is_in(&fields[1], local.hour())
        && is_in(&fields[3], local.month())
        && if is_open(&fields[2]) || is_open(&fields[4]) { day && weekday } else { day || weekday }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Around changes of the clock, the next time is the first minute whose local time matches.
    #[test]
    fn the_next_time_is_the_first_that_matches(
        minutes in field(0, 59),
        hours in field(0, 23),
        weekdays in field(0, 6),
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
        day in 0_i64..365,
        second in 0_i64..86_400,
    ) {
        // Steps of days and months begin at 1, which `matches` does not know.
        let fields = [minutes, hours, "*".to_owned(), "*".to_owned(), weekdays];
        let schedule = parse(&fields.join(" "), zone).unwrap();
        let zone = Zones::bundled().named(zone).unwrap();
        let from = Timestamp::from_second(1_767_225_600 + day * 86_400 + second).unwrap();
        let found = schedule.next(from).unwrap();
        let mut at = Timestamp::from_second((from.as_second() / 60 + 1) * 60).unwrap();
        let limit = from.checked_add(SignedDuration::from_hours(72)).unwrap();
        while at < limit && !matches(&fields, zone.to_datetime(at)) {
            at = at.checked_add(SignedDuration::from_mins(1)).unwrap();
        }
        if at < limit {
            prop_assert_eq!(found, at);
        } else {
            prop_assert!(found >= limit);
        }
    }

    /// Whatever the text, it is read or refused, and the next time is later.
    #[test]
    fn any_text_is_read_or_refused(text in "[-*?/,0-9a-zA-Z@= ]{0,24}|@every [-+.0-9a-zµ]{0,12}", from in 0_i64..4_000_000_000) {
        let from = Timestamp::from_second(from).unwrap();
        if let Ok(schedule) = Schedule::parse(&text, TimeZone::UTC, &Zones::bundled())
            && let Some(next) = schedule.next(from)
        {
            prop_assert!(next > from, "{}", text);
        }
    }
}

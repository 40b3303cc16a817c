//! Compares Coxswain's parser of schedules with the library that kube-controller-manager uses.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::schedule::Schedule;
use coxswain_machinery::oracle::{Comparison, KnownDifference, Random, SEPARATOR};
use coxswain_machinery::zones::Zones;

/// Whether the name of a zone is a path that the machine's files may resolve. The oracle does not answer such questions.
fn is_path(zone: &str) -> bool {
    zone.contains("//") || zone.contains("/./") || zone.starts_with("./") || zone.ends_with('/')
}

/// Returns the answer to a question (zone, time and schedule) in the form of the oracle: the next times or the error.
fn read(question: &str) -> Option<Value> {
    let (zone, rest) = question.split_once(SEPARATOR).unwrap_or((question, ""));
    let (seconds, text) = rest.split_once(SEPARATOR).unwrap_or((rest, ""));
    let seconds: u32 = seconds.parse().ok().filter(|_| !seconds.starts_with('+'))?;
    let mut at = Timestamp::from_second(seconds.into()).ok()?;
    let prefixed = ["TZ=", "CRON_TZ="].into_iter().find_map(|prefix| text.strip_prefix(prefix));
    let named = prefixed.and_then(|rest| rest.split_once(' ')).map_or("", |(name, _)| name);
    if is_path(zone) || is_path(named) {
        return None;
    }
    let zones = Zones::bundled();
    let schedule = match Schedule::parse(text, zones.named(zone)?, &zones) {
        Ok(schedule) => schedule,
        Err(error) => return Some(json!({ "error": error.to_string() })),
    };
    let mut times = Vec::new();
    while times.len() < 6
        && let Some(next) = schedule.next(at)
    {
        times.push(next.as_second());
        at = next;
    }
    Some(json!({ "times": times }))
}

fn generate(random: &mut Random) -> String {
    let zone = random.one_of(&[
        "",
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Asia/Kathmandu",
        "Asia/Tokyo",
        "Pacific/Auckland",
    ]);
    // From 2017 to 2031.
    let seconds = 1_500_000_000 + random.below(450_000_000);
    let item = |random: &mut Random, least: usize, most: usize, names: &[&str]| {
        let value = |random: &mut Random| {
            if random.one_in(16) { most + 1 } else { least + random.below(most - least + 1) }
        };
        let item = match random.below(8) {
            0..=2 => "*".to_owned(),
            3 => "?".to_owned(),
            4 if !names.is_empty() => random.one_of(names).to_owned(),
            5 => format!("{}-{}", value(random), value(random)),
            _ => value(random).to_string(),
        };
        if random.one_in(4) { format!("{item}/{}", 1 + random.below(40)) } else { item }
    };
    let field = |random: &mut Random, least: usize, most: usize, names: &[&str]| {
        let items: Vec<String> =
            (0..=random.below(4) / 3).map(|_| item(random, least, most, names)).collect();
        items.join(",")
    };
    let text = match random.below(10) {
        0 => {
            let name = random.one_of(&[
                "@yearly",
                "@annually",
                "@monthly",
                "@weekly",
                "@daily",
                "@midnight",
                "@hourly",
            ]);
            name.to_owned()
        }
        1 => {
            format!("@every {}{}", random.number(4), random.one_of(&["s", "m", "h", "ms", "m1s", ".5h", ""]))
        }
        _ => {
            let months = ["jan", "Feb", "MAR", "dec"];
            let days = ["sun", "Mon", "SAT"];
            let fields = [
                field(random, 0, 59, &[]),
                field(random, 0, 23, &[]),
                field(random, 1, 31, &[]),
                field(random, 1, 12, &months),
                field(random, 0, 6, &days),
            ];
            fields.join(" ")
        }
    };
    let prefix = if random.one_in(8) {
        random.one_of(&["TZ=UTC ", "CRON_TZ=Asia/Tokyo ", "TZ=Europe/Berlin", "TZ=X "])
    } else {
        ""
    };
    format!("{zone}{SEPARATOR}{seconds}{SEPARATOR}{prefix}{text}")
}

#[test]
fn schedules_are_never_read_differently() {
    Comparison {
        question: "schedule",
        seeds: &[
            "UTC\u{1f}1767225600\u{1f}*/15 0-6,22 1,15 jan-jun mon-fri",
            "Europe/Berlin\u{1f}1774742400\u{1f}30 2 * * *",
            "America/New_York\u{1f}1793500000\u{1f}30 1 * * sun",
            "UTC\u{1f}1767225600\u{1f}0 0 29 2 *",
            "UTC\u{1f}1767225600\u{1f}0 0 31 2,4 ?",
            "UTC\u{1f}1767225600\u{1f}@every 1h30m",
            "UTC\u{1f}1767225600\u{1f}CRON_TZ=Asia/Tokyo @daily",
            "UTC\u{1f}1767225600\u{1f}@every -9223372036854775808ns",
            "UTC\u{1f}1767225600\u{1f}@every -2562047h47m16.854775808s",
            "UTC\u{1f}1767225600\u{1f}@every 9223372036854775808ns",
            "Asia/Kathmandu\u{1f}490000000\u{1f}* 0 * jan 0",
        ],
        words: &[
            "*",
            "?",
            "/",
            "-",
            ",",
            " ",
            "  ",
            "\t",
            "@",
            "@every ",
            "TZ=",
            "CRON_TZ=",
            "UTC ",
            "Local ",
            "L",
            "#",
            "0",
            "00",
            "59",
            "60",
            "jan",
            "SUN",
            "mon-fri",
            "*/",
            "9223372036854775808",
        ],
        generate,
        read,
        refusals: &[],
        differences: &[
            // In 1986 the clock of Nepal went from 00:00 to 00:15.
            KnownDifference {
                reason: "Go misses and moves times where a clock skips midnight or a part of an hour. Differs: half-hour-zones",
                fields: &["times"],
                covers: |text, _, _| {
                    let mut parts = text.split(SEPARATOR);
                    let is_there = parts.next().is_some_and(|zone| zone.starts_with("Asia/Kat"));
                    let seconds = parts.next().and_then(|seconds| seconds.parse::<u32>().ok());
                    is_there && seconds.is_some_and(|seconds| seconds < 505_000_000)
                },
            },
        ],
    }
    .run();
}

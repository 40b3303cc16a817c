//! Coxswain's reading of times next to that of Kubernetes' library.

use serde_json::{Value, json};

use super::WallTime;
use crate::oracle::{Comparison, KnownRefusal, Random};

fn shown(at: WallTime, digits: usize) -> Value {
    let text = if at.is_unset() { "null".to_owned() } else { format!("\"{at:.digits$}\"") };
    json!({ "seconds": at.seconds, "nanoseconds": at.nanoseconds, "text": text })
}

fn read(text: &str) -> Option<Value> {
    let mut read = serde_json::Map::new();
    if let Ok(at) = text.parse() {
        read.insert("time".to_owned(), shown(at, 0));
    }
    if let Ok(at) = WallTime::parse_micro(text) {
        read.insert("micro".to_owned(), shown(at, 6));
    }
    (!read.is_empty()).then(|| read.into())
}

fn generate(random: &mut Random) -> String {
    let year = random.one_of(&["0000", "0001", "1900", "1969", "1970", "2000", "2026", "2028", "9999"]);
    let two = |random: &mut Random, most: usize| format!("{:02}", random.below(most));
    let (month, day) = (two(random, 14), two(random, 33));
    let (hour, minute, second) = (two(random, 25), two(random, 61), two(random, 61));
    let hour = if random.one_in(8) { hour.trim_start_matches('0') } else { &hour };
    let fraction = match random.below(4) {
        0 => format!(".{}", random.text("0123456789", 0, 12)),
        1 => format!(".{}", random.text("0123456789", 6, 6)),
        2 if random.one_in(4) => format!(",{}", random.text("0123456789", 1, 9)),
        _ => String::new(),
    };
    let zone = if random.one_in(2) {
        "Z".to_owned()
    } else {
        format!("{}{}:{}", random.one_of(&["+", "-"]), two(random, 26), two(random, 62))
    };
    format!("{year}-{month}-{day}T{hour}:{minute}:{second}{fraction}{zone}")
}

#[test]
fn times_are_never_read_differently() {
    Comparison {
        question: "time",
        seeds: &[
            "2026-01-01T12:00:00Z",
            "2026-01-01T12:00:00.123456Z",
            "2026-01-01T7:00:00+24:60",
            "2026-01-01T12:00:00.25-01:00",
            "2026-01-01T12:00:00,5Z",
            "1970-01-01T00:00:00Z",
            "2026-01-01T12:00:00.+00000Z",
            "0001-01-01T00:00:00Z",
            "0001-01-01T00:00:00.000000Z",
            "0001-01-01T01:00:00+01:00",
            "9999-12-31T23:59:59.999999Z",
            "2028-02-29T12:00:00Z",
        ],
        words: &[
            "T", "Z", "+", "-", ":", ".", ",", "0", "00:", "t", "z", ".000000", "24:00", "60", "29", "02-29",
        ],
        generate,
        read,
        refusals: &[KnownRefusal {
            reason: "a sign within the digits of a second is a typing error. Differs: odd-signs-in-times",
            covers: |text, _| {
                text.split_once(['.', ',']).is_some_and(|(_, fraction)| fraction.starts_with(['+', '-']))
            },
        }],
        differences: &[],
    }
    .run();
}

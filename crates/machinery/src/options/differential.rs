//! Coxswain's reading of durations and of the values of flags next to Go's.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::{Value, json};

use super::duration;
use super::value::{FlagValue, Repetition};
use crate::oracle::{Comparison, KnownRefusal, Random, SEPARATOR};

fn duration_text(random: &mut Random) -> String {
    let sign = random.one_of(&["", "", "", "", "+", "-"]);
    let mut text = sign.to_owned();
    for _ in 0..=random.below(3) {
        let digits = [1, 3, 6, 19][random.below(4)];
        text += &random.number(digits);
        if random.one_in(3) {
            text.extend([".", &random.text("0123456789", 0, 20)]);
        }
        text += random.one_of(&["ns", "us", "\u{b5}s", "\u{3bc}s", "ms", "s", "m", "h", "", "d"]);
    }
    text
}

const DURATIONS: &[&str] = &[
    "0",
    "5s",
    "1m30s",
    "12h0m0s",
    "1.5h",
    "100ms",
    "0.3333333333333333333h",
    "2562047h47m16.854775807s",
    "9223372036854775807ns",
    "-1.5s",
    "1\u{b5}s1\u{3bc}s",
    ".5s",
    "5.s",
    "+0",
];

const UNITS: &[&str] =
    &["ns", "us", "\u{b5}s", "\u{3bc}s", "ms", "s", "m", "h", ".", "-", "+", "0", "e", "_", "2562047h", "1"];

#[test]
fn durations_are_never_read_differently() {
    fn read(text: &str) -> Option<Value> {
        let read = duration::parse(text).ok()?;
        Some(json!({ "nanoseconds": read.as_nanos() as u64, "text": duration::format(read) }))
    }
    Comparison {
        question: "duration",
        seeds: DURATIONS,
        words: UNITS,
        generate: duration_text,
        read,
        refusals: &[KnownRefusal {
            reason: "a negative duration has no meaning for any flag. Differs: strict-flags",
            covers: |_, theirs| theirs["nanoseconds"].as_i64().is_some_and(|nanoseconds| nanoseconds < 0),
        }],
        differences: &[],
    }
    .run();
}

/// Sets a flag to all values, one after the other.
fn set<V: FlagValue>(mut flag: V, values: &str) -> Option<V> {
    let mut repetition = Repetition::First;
    for value in values.split(SEPARATOR) {
        flag.set(value, repetition).ok()?;
        repetition = Repetition::Again;
    }
    Some(flag)
}

fn read(text: &str) -> Option<Value> {
    let (kind, values) = text.split_once(SEPARATOR).unwrap_or((text, ""));
    Some(match kind {
        "bool" => json!(set(false, values)?),
        "int" => json!(set(0_i64, values)?),
        "int32" => json!(set(0_i32, values)?),
        "float32" => json!(set(0_f32, values)?.to_bits()),
        "duration" => json!(set(Duration::ZERO, values)?.as_nanos() as u64),
        "ip" => json!(set(IpAddr::V4(Ipv4Addr::UNSPECIFIED), values)?),
        "strings" => json!(set(vec!["default".to_owned()], values)?),
        "int32Slice" => json!(set(vec![7_i32], values)?),
        "stringToString" => json!(set(BTreeMap::from([("default".to_owned(), String::new())]), values)?),
        _ => return None,
    })
}

fn value(kind: &str, random: &mut Random) -> String {
    match kind {
        "bool" => {
            random.one_of(&["true", "false", "1", "0", "t", "F", "TRUE", "True", "yes", "on", ""]).to_owned()
        }
        "int" | "int32" => {
            let prefix = random.one_of(&["", "", "", "0x", "0X", "0o", "0b", "0", "-", "+", "-0x"]);
            format!("{prefix}{}", random.number(10))
        }
        "float32" => {
            let exponent = random.one_of(&["", "", "e3", "e-3", "E+5", "e38", "e39", "p3"]);
            format!("{}.{}{exponent}", random.number(6), random.number(6))
        }
        "duration" => duration_text(random),
        "ip" => {
            let front = random.one_of(&["", "", "::ffff:", " "]);
            let octets: Vec<String> = (0..4).map(|_| random.number(2)).collect();
            format!("{front}{}", octets.join("."))
        }
        "int32Slice" => {
            let items: Vec<String> = (0..random.below(4)).map(|_| random.number(5)).collect();
            items.join(",")
        }
        "stringToString" => {
            let pairs: Vec<String> = (0..random.below(4))
                .map(|_| format!("{}={}", random.text("ab\" ,", 0, 3), random.text("ab\" ,=", 0, 3)))
                .collect();
            pairs.join(",")
        }
        _ => random.text("abc,,\" \n'", 0, 12),
    }
}

fn generate(random: &mut Random) -> String {
    let kinds =
        ["bool", "int", "int32", "float32", "duration", "ip", "strings", "int32Slice", "stringToString"];
    let kind = random.one_of(&kinds);
    let values: Vec<String> = (0..=random.below(2)).map(|_| value(kind, random)).collect();
    format!("{kind}{SEPARATOR}{}", values.join("\u{1f}"))
}

#[test]
fn values_of_flags_are_never_read_differently() {
    Comparison {
        question: "flag",
        seeds: &[
            "bool\u{1f}true",
            "int\u{1f}0x1_F",
            "int32\u{1f}-2147483648",
            "float32\u{1f}0.5",
            "float32\u{1f}inf",
            "float32\u{1f}0x1p3",
            "duration\u{1f}1m30s",
            "ip\u{1f}10.0.0.1",
            "ip\u{1f}fd00::1",
            "ip\u{1f}::ffff:10.0.0.1",
            "strings\u{1f}a,\"b,c\",\"d\"\"e\"\u{1f}f",
            "int32Slice\u{1f}1,2\u{1f}3",
            "stringToString\u{1f}a=1,b=\"2,3\"",
            "stringToString\u{1f}a=1,2\u{1f}b=",
            "strings\u{1f}\na,\"b\nc\"\r\nd",
        ],
        words: &[
            "\"", "\"\"", ",", "=", "\n", "\r\n", " ", "_", "0x", "0", "-", "+", "inf", "nan", "e5", "true",
            "::", "::ffff:", ".",
        ],
        generate,
        read,
        refusals: &[
            KnownRefusal {
                reason: "a negative duration has no meaning for any flag. Differs: strict-flags",
                covers: |text, _| {
                    let mut values = text.split(SEPARATOR);
                    values.next() == Some("duration") && values.any(|value| value.starts_with('-'))
                },
            },
            KnownRefusal {
                reason: "a number that is infinite or none has no meaning for any flag. Differs: strict-flags",
                covers: |text, theirs| {
                    let bits = theirs.as_u64().and_then(|bits| u32::try_from(bits).ok());
                    text.starts_with("float32") && bits.is_some_and(|bits| !f32::from_bits(bits).is_finite())
                },
            },
            KnownRefusal {
                reason: "hexadecimal fractions and digits with underscores are typing errors. Differs: strict-flags",
                covers: |text, _| text.starts_with("float32") && text.contains(['_', 'x', 'X']),
            },
        ],
        differences: &[],
    }
    .run();
}

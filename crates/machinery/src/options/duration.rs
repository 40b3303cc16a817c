//! Durations as Go writes them (`1m30s`, `12h0m0s`, `1.5h`, `100ms`): what every duration flag and `/configz` speak.
//!
//! Go's durations are signed 64-bit nanoseconds. None of the manager's flags means anything when negative, so a
//! negative duration is refused here, once, instead of in forty places.

use std::time::Duration;

use super::value::ValueError;

/// The longest duration that Go can hold: about 292 years.
const MAX_NANOS: u128 = i64::MAX as u128;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration in Go's syntax: a sequence of numbers with units, or a bare `0`.
///
/// # Errors
/// Anything else, a negative duration, and one that Go could not hold.
pub fn parse(text: &str) -> Result<Duration, ValueError> {
    let expected = || {
        ValueError::new(
            "expected a duration: numbers with units such as 300ms, 1.5h or 1m30s (ns, us, ms, s, m, h)",
        )
    };
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(expected());
    }
    let too_long = || ValueError::new("expected a duration of at most 2562047h47m16s");
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(expected());
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(ValueError::new(format!(
                "the number {whole} has no unit; add a unit, for example {whole}s"
            )));
        }
        let scale =
            UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale).ok_or_else(expected)?;
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
        let part = whole.checked_mul(scale.into()).filter(|n| *n <= MAX_NANOS).ok_or_else(too_long)?;
        nanos += part + u128::from(fraction_nanos(fraction, scale));
        if nanos > MAX_NANOS {
            return Err(too_long());
        }
        rest = after;
    }
    if negative && nanos > 0 {
        return Err(ValueError::new("expected a duration of 0 or more"));
    }
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| too_long())
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns the nanoseconds in a decimal fraction of a unit. As in Go, doubles round them, and digits that have no room in 64 bits
/// are dropped.
pub fn fraction_nanos(digits: &str, unit: u64) -> u64 {
    const MOST: u64 = 1 << 63;
    let (mut value, mut power) = (0_u64, 1_f64);
    for digit in digits.bytes() {
        let longer = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0')));
        let Some(longer) = longer.filter(|longer| *longer <= MOST) else { break };
        value = longer;
        power *= 10.0;
    }
    (value as f64 * (unit as f64 / power)) as u64
}

/// Writes a duration as Go does: `1m0s`, `1.5s`, `300ms`, `0s`.
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos < 1_000 {
        return format!("{nanos}ns");
    }
    if nanos < 1_000_000 {
        return format!("{}\u{b5}s", decimal(nanos, 1_000));
    }
    if nanos < 1_000_000_000 {
        return format!("{}ms", decimal(nanos, 1_000_000));
    }
    let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000);
    let minutes = nanos / 60_000_000_000;
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// `nanos / unit` as a decimal number without trailing zeros.
fn decimal(nanos: u128, unit: u128) -> String {
    let (whole, fraction) = (nanos / unit, nanos % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let fraction = format!("{fraction:0width$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{format, parse};

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("0", 0_u64),
            ("-0", 0),
            ("+0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("5s", 5_000_000_000),
            ("1m30s", 90_000_000_000),
            ("12h0m0s", 43_200_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("100ms", 100_000_000),
            ("1\u{b5}s", 1_000),
            ("1\u{3bc}s1us1ns", 2_001),
            ("30s1h", 3_630_000_000_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
            (".2900000000033333h", 1_044_000_000_012),
            ("0.9223372036854775809ns", 0),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
        ] {
            assert_eq!(parse(text).map(|d| d.as_nanos()), Ok(u128::from(nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in
            ["", "5", "1.5", "-", "+", "s", ".s", ".", "1d", "1s ", " 1s", "1h30", "abc", "1e3s", "--1s"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["9223372036854775808ns", "2562048h", "99999999999999999999999999999999999999999999h"] {
            assert!(parse(text).unwrap_err().to_string().contains("at most"), "{text}");
        }
        assert!(parse("5").unwrap_err().to_string().contains("no unit"));
        assert!(parse("-1s").unwrap_err().to_string().contains("0 or more"));
    }

    #[test]
    fn writes_as_go_writes() {
        for (nanos, text) in [
            (0_u64, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (60_000_000_000, "1m0s"),
            (31_536_000_000_000_000, "8760h0m0s"),
        ] {
            assert_eq!(format(Duration::from_nanos(nanos)), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(nanos in 0..=i64::MAX as u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn parts_add_up(h in 0_u64..10_000, m in 0_u64..10_000, s in 0_u64..10_000, ms in 0_u64..10_000) {
            let text = format!("{h}h{m}m{s}s{ms}ms");
            prop_assert_eq!(parse(&text), Ok(Duration::from_millis(((h * 60 + m) * 60 + s) * 1000 + ms)));
        }

        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn never_panics_on_near_misses(text in "[-+0-9.hmsnu\u{b5}]{0,60}") {
            let _ = parse(&text);
        }
    }
}

//! `@every`: a duration as Go writes it, in whole seconds.

use super::quote::quoted_bytes;
use coxswain_machinery::options::duration::fraction_nanos;

/// Units, and their nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS),
    ("m", 60 * NANOS),
    ("h", 3600 * NANOS),
];
const NANOS: u64 = 1_000_000_000;
/// The largest magnitude of a number, and of a negative duration.
const MOST: u64 = 1 << 63;

/// The whole seconds of a duration, at least one.
///
/// # Errors
/// It is none; the text is that of the original.
pub(super) fn seconds(text: &str) -> Result<i64, String> {
    let is_negative = text.starts_with('-');
    let nanos = nanos(text)?;
    let seconds = if is_negative { 1 } else { (nanos / NANOS).max(1) };
    Ok(seconds as i64)
}

/// Its nanoseconds, whatever its sign.
fn nanos(text: &str) -> Result<u64, String> {
    let invalid = || format!("time: invalid duration {}", quoted_bytes(text));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let whole = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        if whole > MOST {
            return Err(invalid());
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", quoted_bytes(text)));
        }
        let unknown = || {
            let (unit, text) = (quoted_bytes(unit), quoted_bytes(text));
            format!("time: unknown unit {unit} in duration {text}")
        };
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(unknown)?;
        let part =
            whole.checked_mul(*scale).and_then(|part| part.checked_add(fraction_nanos(fraction, *scale)));
        nanos = part.and_then(|part| nanos.checked_add(part)).ok_or_else(invalid)?;
        if nanos > MOST {
            return Err(invalid());
        }
        rest = after;
    }
    // Only a negative duration can have this magnitude.
    if nanos == MOST && !text.starts_with('-') {
        return Err(invalid());
    }
    Ok(nanos)
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

//! JSON that somebody else wrote, read as Go reads it.
//!
//! Go's decoder replaces whatever is not Unicode by U+FFFD: each byte that is not part of valid UTF-8, and each `\u` escape of a
//! surrogate that is not one half of a pair. serde_json refuses both, and with them the whole object. JavaScript and Python write such
//! escapes, so users can store them through API servers in these languages.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use crate::wire::text::lossy_utf8;

/// The escape of U+FFFD.
const REPLACEMENT: &str = r"\ufffd";
/// The length of an escape of one UTF-16 code unit.
const ESCAPE: usize = REPLACEMENT.len();

/// Reads a value from JSON that somebody else wrote.
///
/// # Errors
/// The text is no JSON, or no such value.
pub fn read_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_str(&lossy_json(json))
}

/// Returns JSON in which U+FFFD stands for whatever is not Unicode, as in a value that Go has read.
pub fn lossy_json(json: &[u8]) -> Cow<'_, str> {
    let text = lossy_utf8(json);
    let unpaired = unpaired_surrogates(text.as_bytes());
    if unpaired.is_empty() {
        return text;
    }
    let mut replaced = String::with_capacity(text.len());
    let mut from = 0;
    for at in unpaired {
        replaced.push_str(&text[from..at]);
        replaced.push_str(REPLACEMENT);
        from = at + ESCAPE;
    }
    replaced.push_str(&text[from..]);
    Cow::Owned(replaced)
}

/// Returns where escapes of unpaired surrogates begin. JSON has backslashes in strings only.
fn unpaired_surrogates(json: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += next;
        at += match code_unit(json, at) {
            Some(0xd800..=0xdbff) if matches!(code_unit(json, at + ESCAPE), Some(0xdc00..=0xdfff)) => {
                2 * ESCAPE
            }
            Some(0xd800..=0xdfff) => {
                found.push(at);
                ESCAPE
            }
            Some(_) => ESCAPE,
            // The escaped character may be a backslash. The text may end after this one.
            None => (json.len() - at).min(2),
        };
    }
    found
}

/// Returns the UTF-16 code unit whose `\u` escape begins at a place.
fn code_unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE)?.strip_prefix(br"\u")?;
    digits.iter().try_fold(0, |unit: u16, digit| {
        let digit = char::from(*digit).to_digit(16).and_then(|digit| u16::try_from(digit).ok())?;
        Some(unit << 4 | digit)
    })
}

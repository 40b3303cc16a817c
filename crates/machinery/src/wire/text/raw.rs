//! The text form of byte strings: how a string that is not valid UTF-8 is kept in a `str`.
//!
//! A string of the API is a byte string: no API server checks that a protobuf string is valid UTF-8, so a user who may create an
//! object can store any bytes in it. [`held_text`] maps byte strings to texts one to one:
//!
//! - Valid UTF-8 without the characters U+10FF80 to U+10FFFF (private use) is its own text form.
//! - Otherwise each byte that is not part of valid UTF-8, and each byte of such a character, becomes the character U+10FF00 plus
//!   the byte.
//!
//! So two texts are equal exactly if their bytes are; joining texts with ASCII between them, splitting them at ASCII and looking
//! them up never mixes two byte strings up. [`raw_bytes`] gives the bytes back: for protobuf, and for paths and queries of
//! requests. [`lossy_text`] gives what Go writes in JSON: for JSON, logs and metrics.
//!
//! Text that did not pass through [`held_text`] can contain the reserved characters and must not be mixed with text that did. This
//! module never decides which of the two a text is.

use std::borrow::Cow;

/// The first byte of a reserved character. No character below U+100000 begins with it.
const LEAD: u8 = 0xf4;
/// The code point that stands for byte 0.
const BASE: u32 = 0x10_ff00;

/// Returns the text form of a byte string.
pub fn held_text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.is_ascii() || !has_reserved(bytes) => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(bytes)),
    }
}

/// Returns the byte string with this text form.
pub fn raw_bytes(text: &str) -> Cow<'_, [u8]> {
    if !has_reserved(text.as_bytes()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for char in text.chars() {
        match byte_of(char) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// Returns the text with this text form as Go's JSON encoder writes it: U+FFFD for each byte that is not part of valid UTF-8.
pub fn lossy_text(text: &str) -> Cow<'_, str> {
    match raw_bytes(text) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(bytes) => Cow::Owned(lossy_utf8(&bytes).into_owned()),
    }
}

/// Returns a byte string as Go's JSON encoder writes it: U+FFFD for each byte that is not part of valid UTF-8.
pub fn lossy_utf8(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(text)
}

/// Returns whether a terminal or a log viewer may obey a character or hide it: control characters, separators of lines and paragraphs,
/// and format characters (Unicode's category Cf), which can reorder the text around them. Joiners (U+200C and U+200D) are plain text
/// in several scripts.
pub fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}')
}

/// Whether there is a reserved character in UTF-8. In other bytes it may find one that is none.
fn has_reserved(bytes: &[u8]) -> bool {
    bytes.contains(&LEAD) && bytes.windows(3).any(|start| matches!(start, [LEAD, 0x8f, 0xbe | 0xbf]))
}

/// The byte that a reserved character stands for.
fn byte_of(char: char) -> Option<u8> {
    u8::try_from(u32::from(char).checked_sub(BASE)?).ok().filter(|byte| !byte.is_ascii())
}

#[cold]
fn escaped(bytes: &[u8]) -> String {
    let escape = |byte: &u8| char::from_u32(BASE + u32::from(*byte)).unwrap_or(char::REPLACEMENT_CHARACTER);
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if byte_of(char).is_some() {
                text.extend(char.encode_utf8(&mut [0; 4]).as_bytes().iter().map(escape));
            } else {
                text.push(char);
            }
        }
        text.extend(chunk.invalid().iter().map(escape));
    }
    text
}

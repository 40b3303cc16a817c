//! The first PEM block of a text, read as Go's `encoding/pem` reads it or not at all.
//!
//! The API server, admission plugins and approvers judge the block that Go's decoder returns first. That decoder skips a block that
//! it cannot read and returns a later one. This reader never skips: it refuses a text whose first BEGIN line does not start a block
//! that every decoder reads alike. It accepts lines of any length, either line ending, and text before and after the block.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// A text without a readable first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PemError {
    /// The text has no block, or its first block has another label.
    #[error("the first PEM block does not have the expected label")]
    Label,
    #[error("an END line precedes the first BEGIN line")]
    EndFirst,
    #[error("the first BEGIN line has text around its dashes")]
    Begin,
    #[error("the first block has no END line with the label of its BEGIN line")]
    End,
    /// Includes header lines, which no request needs.
    #[error("the content of the first block is not base64")]
    Base64,
}

const BEGIN: &[u8] = b"-----BEGIN";
const END: &[u8] = b"-----END";
const DASHES: &[u8] = b"-----";

/// Returns the content of the first block, which must have this label.
pub(super) fn first_block(text: &[u8], label: &str) -> Result<Vec<u8>, PemError> {
    let at = position(text, BEGIN).ok_or(PemError::Label)?;
    let (before, block) = text.split_at(at);
    if position(before, END).is_some() {
        return Err(PemError::EndFirst);
    }
    if before.last().is_some_and(|byte| *byte != b'\n') {
        return Err(PemError::Begin);
    }
    let mut lines = block.split_inclusive(|byte| *byte == b'\n').map(trim_end);
    let first = lines.next().unwrap_or_default();
    if first != format!("-----BEGIN {label}-----").as_bytes() {
        let is_whole = first.starts_with(b"-----BEGIN ") && first.ends_with(DASHES);
        return Err(if is_whole { PemError::Label } else { PemError::Begin });
    }
    let mut content = Vec::new();
    for line in lines {
        if line.starts_with(DASHES) {
            if line != format!("-----END {label}-----").as_bytes() {
                return Err(PemError::End);
            }
            return BASE64_STANDARD.decode(&content).map_err(|_| PemError::Base64);
        }
        content.extend(line.iter().filter(|byte| !matches!(byte, b' ' | b'\t' | b'\r')));
    }
    Err(PemError::End)
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Removes the line ending, then blanks and tabs. A carriage return counts only in front of a newline.
fn trim_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r\n").or_else(|| line.strip_suffix(b"\n")).unwrap_or(line);
    let end = line.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |last| last + 1);
    &line[..end]
}

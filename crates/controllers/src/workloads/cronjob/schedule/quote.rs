//! Quotations in error messages, as Go writes them.

use std::fmt::Write as _;

/// Quotes a text as a Go string literal. Printable characters are not escaped.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for char in text.chars() {
        let number = u32::from(char);
        let _ = match char {
            '"' | '\\' => write!(quoted, "\\{char}"),
            '\u{7}' => write!(quoted, "\\a"),
            '\u{8}' => write!(quoted, "\\b"),
            '\u{c}' => write!(quoted, "\\f"),
            '\n' => write!(quoted, "\\n"),
            '\r' => write!(quoted, "\\r"),
            '\t' => write!(quoted, "\\t"),
            '\u{b}' => write!(quoted, "\\v"),
            _ if char.is_ascii_control() => write!(quoted, "\\x{number:02x}"),
            _ if is_printed(char) => write!(quoted, "{char}"),
            _ if number < 0x1_0000 => write!(quoted, "\\u{number:04x}"),
            _ => write!(quoted, "\\U{number:08x}"),
        };
    }
    quoted + "\""
}

/// Quotes a text as Go's errors about durations do: each byte beyond ASCII is escaped.
pub(super) fn quoted_bytes(text: &str) -> String {
    let mut quoted = String::from('"');
    for byte in text.bytes() {
        let _ = match byte {
            b'"' | b'\\' => write!(quoted, "\\{}", char::from(byte)),
            b' '..=0x7f => write!(quoted, "{}", char::from(byte)),
            _ => write!(quoted, "\\x{byte:02x}"),
        };
    }
    quoted + "\""
}

/// Whether a character is a letter, mark, number, punctuation, symbol or the space.
fn is_printed(char: char) -> bool {
    char.is_ascii() || {
        // `escape_debug` escapes a mark only at the start of a text.
        let text = format!("a{char}");
        text.escape_debug().eq(text.chars())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_in_go() {
        for (text, as_text, as_bytes) in [
            ("a ' \u{e9}", "\"a ' \u{e9}\"", r#""a ' \xc3\xa9""#),
            ("\"\\", r#""\"\\""#, r#""\"\\""#),
            ("\0\n\u{b}\u{1f}\u{7f}", r#""\x00\n\v\x1f\x7f""#, "\"\\x00\\x0a\\x0b\\x1f\u{7f}\""),
            ("\u{85}\u{a0}\u{feff}", r#""\u0085\u00a0\ufeff""#, r#""\xc2\x85\xc2\xa0\xef\xbb\xbf""#),
            ("e\u{301}\u{10ffff}", "\"e\u{301}\\U0010ffff\"", r#""e\xcc\x81\xf4\x8f\xbf\xbf""#),
        ] {
            assert_eq!((quoted(text).as_str(), quoted_bytes(text).as_str()), (as_text, as_bytes), "{text:?}");
        }
    }
}

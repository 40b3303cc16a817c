//! YAML that every reader takes for the same: kubelets read YAML 1.1, in which a bare `yes` is true, and others YAML 1.2.

use serde_yaml_ng::Value;

/// Words that are no text in one of the two versions.
const WORDS: [&str; 9] = ["false", "n", "no", "null", "off", "on", "true", "y", "yes"];

/// The text of a value, in block style. Text that may be taken for something else is quoted as in JSON.
pub(super) fn emit(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value, 0);
    text
}

/// Writes a value that begins on a line of its own.
fn write(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Mapping(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                text.push_str(&" ".repeat(indent));
                write_field(text, name, value, indent);
            }
        }
        Value::Sequence(items) if !items.is_empty() => {
            for item in items {
                text.push_str(&" ".repeat(indent));
                text.push_str("- ");
                write_item(text, item, indent + 2);
            }
        }
        scalar => {
            text.push_str(&" ".repeat(indent));
            text.push_str(&inline(scalar));
            text.push('\n');
        }
    }
}

fn write_field(text: &mut String, name: &Value, value: &Value, indent: usize) {
    text.push_str(&inline(name));
    match value {
        Value::Mapping(fields) if !fields.is_empty() => {
            text.push_str(":\n");
            write(text, value, indent + 2);
        }
        // Items may stand as far to the left as their field.
        Value::Sequence(items) if !items.is_empty() => {
            text.push_str(":\n");
            write(text, value, indent);
        }
        scalar => {
            text.push_str(": ");
            text.push_str(&inline(scalar));
            text.push('\n');
        }
    }
}

/// Writes an item behind its dash.
fn write_item(text: &mut String, item: &Value, indent: usize) {
    match item {
        Value::Mapping(fields) if !fields.is_empty() => {
            for (at, (name, value)) in fields.iter().enumerate() {
                if at > 0 {
                    text.push_str(&" ".repeat(indent));
                }
                write_field(text, name, value, indent);
            }
        }
        Value::Sequence(items) if !items.is_empty() => {
            text.push('\n');
            write(text, item, indent);
        }
        scalar => {
            text.push_str(&inline(scalar));
            text.push('\n');
        }
    }
}

/// A value on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) => serde_json::Value::from(text.as_str()).to_string(),
        Value::Mapping(_) => "{}".to_owned(),
        Value::Sequence(_) => "[]".to_owned(),
        // A manifest has no tags of its own.
        Value::Tagged(tagged) => inline(&tagged.value),
    }
}

/// Whether a text is text without quotes, whoever reads it.
fn is_plain(text: &str) -> bool {
    let begins =
        text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/') || text.starts_with("--");
    let is_harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-=,*+@:".contains(&byte);
    let is_word = WORDS.iter().any(|word| text.eq_ignore_ascii_case(word));
    begins
        && text.bytes().all(is_harmless)
        && !text.ends_with(':')
        && text != "--"
        && text != "---"
        && !is_word
}

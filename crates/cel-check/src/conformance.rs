//! Held against CEL's own conformance tests, of the Go module `cel.dev/expr` that `tests/cel-check/go.mod` pins. What came of them
//! is kept in `CONFORMANCE.md`; `COXSWAIN_REGENERATE=1` writes it anew.
//!
//! An expression passes if it has the deduced type that its test names, or, where it names none, if nothing is found wrong. Left
//! out are tests that say that they are not checked, and what Kubernetes' CEL has not: protocol messages, containers,
//! functions of a test's own, other extensions.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Environment, Type};

/// What Kubernetes' CEL does not know, and what that is.
const FOREIGN: [(&str, &str); 13] = [
    ("TestAllTypes", MESSAGES),
    ("GlobalEnum", MESSAGES),
    ("math.", EXTENSIONS),
    ("base64.", EXTENSIONS),
    ("cel.bind", EXTENSIONS),
    ("cel.block", EXTENSIONS),
    ("cel.iterVar", EXTENSIONS),
    ("proto.", EXTENSIONS),
    ("`", EXTENSIONS),
    ("existsOne(", EXTENSIONS),
    ("string_ext", EXTENSIONS),
    ("network", EXTENSIONS),
    ("bindings", EXTENSIONS),
];
const MESSAGES: &str = "protocol buffer messages";
const EXTENSIONS: &str = "extensions that Kubernetes does not have";
const UNCHECKED: &str = "type check disabled by the test";
const CONTAINER: &str = "containers";
const TYPES: &str = "variables or results of types that Kubernetes does not have";

/// A message in text.
#[derive(Debug, Default)]
struct Message(Vec<(String, Value)>);

#[derive(Debug)]
enum Value {
    Text(String),
    Message(Message),
}

impl Message {
    fn all(&self, name: &'static str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value)
    }

    fn text(&self, name: &'static str) -> Option<&str> {
        self.all(name).find_map(|value| match value {
            Value::Text(text) => Some(text.as_str()),
            Value::Message(_) => None,
        })
    }

    fn messages(&self, name: &'static str) -> impl Iterator<Item = &Message> {
        self.all(name).filter_map(|value| match value {
            Value::Message(message) => Some(message),
            Value::Text(_) => None,
        })
    }

    fn message(&self, name: &'static str) -> Option<&Message> {
        self.messages(name).next()
    }

    fn has(&self, name: &'static str) -> bool {
        self.all(name).next().is_some()
    }
}

/// Words of text: names, punctuation, and strings with a quote before them.
fn words(text: &str) -> VecDeque<String> {
    let mut words = VecDeque::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '#' => while letters.next_if(|letter| *letter != '\n').is_some() {},
            '"' | '\'' => {
                let mut bytes = vec![b'"'];
                while let Some(inner) = letters.next().filter(|inner| *inner != letter) {
                    if inner == '\\' {
                        escape(&mut letters, &mut bytes);
                    } else {
                        bytes.extend(inner.to_string().bytes());
                    }
                }
                words.push_back(String::from_utf8_lossy(&bytes).into_owned());
            }
            '{' | '}' | ':' | '[' | ']' | '<' | '>' => words.push_back(letter.to_string()),
            _ if letter.is_whitespace() || letter == ',' || letter == ';' => {}
            _ => {
                let mut word = letter.to_string();
                while let Some(next) =
                    letters.next_if(|next| next.is_alphanumeric() || "_.-+/".contains(*next))
                {
                    word.push(next);
                }
                words.push_back(word);
            }
        }
    }
    words
}

fn escape(letters: &mut std::iter::Peekable<std::str::Chars<'_>>, bytes: &mut Vec<u8>) {
    let mut digits = |count: usize, radix: u32| {
        let mut value = 0;
        for _ in 0..count {
            let Some(digit) = letters.next_if(|digit| digit.is_digit(radix)) else { break };
            value = value * radix + digit.to_digit(radix).unwrap_or(0);
        }
        value
    };
    match digits(3, 8) {
        0 => {}
        octal => return bytes.push(octal as u8),
    }
    match letters.next() {
        Some('n') => bytes.push(b'\n'),
        Some('t') => bytes.push(b'\t'),
        Some('r') => bytes.push(b'\r'),
        Some('a') => bytes.push(7),
        Some('b') => bytes.push(8),
        Some('f') => bytes.push(12),
        Some('v') => bytes.push(11),
        Some('x') => {
            let hex: String = [letters.next(), letters.next()].into_iter().flatten().collect();
            bytes.push(u8::from_str_radix(&hex, 16).unwrap_or(0));
        }
        Some(kind @ ('u' | 'U')) => {
            let count = if kind == 'u' { 4 } else { 8 };
            let hex: String = letters.by_ref().take(count).collect();
            let letter = u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32).unwrap_or(' ');
            bytes.extend(letter.to_string().bytes());
        }
        Some(other) => bytes.extend(other.to_string().bytes()),
        None => {}
    }
}

fn message(words: &mut VecDeque<String>) -> Message {
    let mut fields = Vec::new();
    while let Some(name) = words.pop_front() {
        if name == "}" || name == ">" {
            break;
        }
        if name == "[" {
            while words.pop_front().is_some_and(|word| word != "]") {}
        }
        if words.front().is_some_and(|word| word == ":") {
            words.pop_front();
        }
        match words.pop_front() {
            Some(open) if open == "{" || open == "<" => fields.push((name, Value::Message(message(words)))),
            Some(open) if open == "[" => while words.pop_front().is_some_and(|word| word != "]") {},
            Some(mut text) => {
                if text.starts_with('"') {
                    text.remove(0);
                    while let Some(more) = words.pop_front_if(|word| word.starts_with('"')) {
                        text.push_str(&more[1..]);
                    }
                }
                fields.push((name, Value::Text(text)));
            }
            None => break,
        }
    }
    Message(fields)
}

/// A type of a test, or none where Kubernetes' CEL has none of that sort.
fn of(message: &Message) -> Option<Type> {
    if let Some(primitive) = message.text("primitive") {
        return Some(match primitive {
            "BOOL" => Type::Bool,
            "INT64" => Type::Int,
            "UINT64" => Type::Uint,
            "DOUBLE" => Type::Double,
            "STRING" => Type::String,
            "BYTES" => Type::Bytes,
            _ => return None,
        });
    }
    let inner = |message: &Message, name: &'static str| match message.message(name) {
        Some(inner) => of(inner),
        None => Some(Type::Dyn),
    };
    if let Some(list) = message.message("list_type") {
        return Some(Type::list(inner(list, "elem_type")?));
    }
    if let Some(map) = message.message("map_type") {
        return Some(Type::map(inner(map, "key_type")?, inner(map, "value_type")?));
    }
    if message.has("type") {
        return Some(Type::of(inner(message, "type")?));
    }
    if let Some(named) = message.message("abstract_type") {
        let parameters: Option<Vec<_>> = named.messages("parameter_types").map(of).collect();
        return Some(Type::opaque(named.text("name")?, parameters?));
    }
    match (message.text("well_known"), message.text("null"), message.has("dyn")) {
        (Some("TIMESTAMP"), ..) => Some(Type::Timestamp),
        (Some("DURATION"), ..) => Some(Type::Duration),
        (_, Some(_), _) => Some(Type::Null),
        (.., true) => Some(Type::Dyn),
        _ => None,
    }
}

enum Verdict {
    Pass,
    Fail(String),
    LeftOut(&'static str),
}

fn judge(test: &Message) -> Option<Verdict> {
    let expression = test.text("expr")?;
    if test.text("disable_check") == Some("true") {
        return Some(Verdict::LeftOut(UNCHECKED));
    }
    if let Some((_, why)) = FOREIGN.iter().find(|(foreign, _)| expression.contains(foreign)) {
        return Some(Verdict::LeftOut(why));
    }
    if test.has("container") {
        return Some(Verdict::LeftOut(CONTAINER));
    }
    let mut environment = Environment::kubernetes().without_rules_of_literals();
    for declaration in test.messages("type_env") {
        let ident = declaration.message("ident").and_then(|ident| ident.message("type")).and_then(of);
        let (Some(name), Some(ident)) = (declaration.text("name"), ident) else {
            return Some(Verdict::LeftOut(TYPES));
        };
        environment.declare(name, ident);
    }
    let typed = test.message("typed_result").and_then(|result| result.message("deduced_type"));
    let wanted = match typed.map(of) {
        Some(None) => return Some(Verdict::LeftOut(TYPES)),
        Some(of) => of,
        None => None,
    };
    Some(match (environment.check(expression), wanted) {
        (Ok(found), Some(wanted)) if found != wanted => Verdict::Fail(format!("is {found}, not {wanted}")),
        (Ok(_), _) => Verdict::Pass,
        (Err(_), _) if test.has("eval_error") => Verdict::Pass,
        (Err(issues), _) => Verdict::Fail(issues.iter().map(|issue| issue.message.clone()).collect()),
    })
}

/// Where the tests are.
fn folder() -> PathBuf {
    let pinned = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cel-check");
    let mut go = Command::new("go");
    go.args(["mod", "download", "-json", "cel.dev/expr"]).current_dir(pinned).env("GOWORK", "off");
    let output = go.output().expect("go is on the PATH");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let module: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    Path::new(module["Dir"].as_str().expect("a directory")).join("tests/simple/testdata")
}

fn table() -> String {
    let mut files: Vec<_> =
        fs::read_dir(folder()).expect("tests").flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "textproto"));
    files.sort();
    let mut rows = String::new();
    let mut failures = String::new();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut total = [0; 3];
    for path in files {
        let file = message(&mut words(&fs::read_to_string(&path).expect("text")));
        let mut counts = [0; 3];
        for test in file.messages("section").flat_map(|section| section.messages("test")) {
            let at = match judge(test) {
                Some(Verdict::Pass) => 0,
                Some(Verdict::Fail(why)) => {
                    let expression = test.text("expr").unwrap_or_default().replace('\n', " ");
                    let _ = writeln!(failures, "- `{expression}`: {why}");
                    1
                }
                Some(Verdict::LeftOut(why)) => {
                    *reasons.entry(why).or_default() += 1;
                    2
                }
                None => continue,
            };
            counts[at] += 1;
            total[at] += 1;
        }
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let [passed, failed, left_out] = counts;
        let _ = writeln!(rows, "| {name} | {passed} | {failed} | {left_out} |");
    }
    let [passed, failed, left_out] = total;
    let mut left_out_for = String::new();
    for (why, count) in &reasons {
        let _ = writeln!(left_out_for, "| {why} | {count} |");
    }
    format!(
        "# CEL's conformance tests\n\
         Written by `COXSWAIN_REGENERATE=1 cargo test -p cel-check conformance`, from `tests/simple/testdata` of the Go module\n\
         `cel.dev/expr`. `src/conformance.rs` lists the excluded tests with the reasons.\n\n\
         | file | passed | failed | left out |\n|---|---:|---:|---:|\n{rows}| **all** | {passed} | {failed} | {left_out} |\n\n\
         ## Failed\n\
         Kubernetes' CEL has no `reverse()` of strings, and its `cel-go` treats `[optional.of(1), null]` as a list of null.\n\n\
         {failures}\n## Left out\n\n| reason | tests |\n|---|---:|\n{left_out_for}"
    )
}

#[test]
fn as_many_conformance_tests_pass_as_are_said_to() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("CONFORMANCE.md");
    let found = table();
    if std::env::var_os("COXSWAIN_REGENERATE").is_some() {
        fs::write(path, found).expect("written");
        return;
    }
    assert_eq!(found, fs::read_to_string(path).expect("the table"));
}

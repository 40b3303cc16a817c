//! Words: each means one thing, and is the one that the field uses.

use std::collections::BTreeMap;

use super::{CRATES, code, complain, sources};

/// Words that only we knew, and what to say instead. They are not used in names of types and modules, nor in those of functions
/// that are no sentences.
const RETIRED: &[(&str, &str)] = &[
    ("chronicle", "event log"),
    ("doubt", "recount, or what it is"),
    ("era", "outages"),
    ("gather", "debounce, or collect"),
    ("matter", "subject"),
    ("ordeal", "fault test"),
    ("pace", "qps factor"),
    ("reach", "reachability"),
    ("rest", "cooldown"),
    ("trouble", "fault"),
    ("worth", "affected"),
];

/// Names that hold one of them and are others' own: Kubernetes', and Prometheus'.
const OTHERS_OWN: &[&str] = &["RestMapper", "gather"];
/// A name of more words is a sentence, as tests have.
const WORDS_OF_A_NAME: usize = 2;

/// Names of types that several modules may have, and why.
const SHARED_NAMES: &[(&str, &str)] = &[
    ("View", "each room has one"),
    ("Environment", "what the process stands in, and what CEL calls the names that an expression may use"),
    ("EndpointPort", "Kubernetes calls it so in v1 and in discovery.k8s.io/v1"),
];

/// The name that a line declares after one of these words.
fn declared<'a>(line: &'a str, before: &[&str]) -> Option<&'a str> {
    let is_before = |word: &str| word.starts_with("pub") || word == "async";
    let mut words = line.split_whitespace().skip_while(|word| is_before(word));
    let found = before.iter().find(|word| words.clone().next() == Some(word))?;
    let name = words.nth(1).filter(|_| !found.is_empty())?;
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(name.len());
    Some(&name[..end])
}

/// The words of a name: `SlowStart` and `slow_start` are both slow and start.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if letter != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
    }
    words
}

fn retired(name: &str) -> Option<&'static (&'static str, &'static str)> {
    let of_name = words(name);
    RETIRED.iter().find(|(word, _)| of_name.iter().any(|held| held.trim_end_matches('s') == *word))
}

#[test]
fn names_are_words_that_everybody_knows() {
    let mut complaints = Vec::new();
    for (path, text) in CRATES.into_iter().chain(["tests", "benches"]).flat_map(sources) {
        for (at, line) in code(&text) {
            let of_type = declared(line, &["struct", "enum", "trait", "type", "mod"]);
            let of_function = declared(line, &["fn"]).filter(|name| words(name).len() <= WORDS_OF_A_NAME);
            let name = of_type.or(of_function).filter(|name| !OTHERS_OWN.contains(name));
            if let Some((word, instead)) = name.and_then(retired) {
                complaints.push(format!("{}:{}: say {instead}, not {word}", path.display(), at + 1));
            }
        }
    }
    complain(&complaints);
}

#[test]
fn a_public_type_has_a_name_of_its_own() {
    let mut declared_at: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in CRATES.into_iter().flat_map(sources) {
        for (at, line) in code(&text).filter(|(_, line)| line.starts_with("pub ")) {
            if let Some(name) = declared(line, &["struct", "enum", "trait", "type"]) {
                let place = format!("{}:{}", path.display(), at + 1);
                declared_at.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    assert!(declared_at.len() > 100, "there are public types");
    declared_at
        .retain(|name, places| places.len() > 1 && !SHARED_NAMES.iter().any(|(shared, _)| shared == name));
    let complaints =
        declared_at.iter().map(|(name, places)| format!("{name} is the name of {}", places.join(", ")));
    complain(&complaints.collect::<Vec<_>>());
}

#[test]
fn words_are_found_in_names() {
    assert_eq!(words("SlowStart"), ["slow", "start"]);
    assert_eq!(words("slow_start"), ["slow", "start"]);
    assert!(retired("RestPolicy").is_some() && retired("Restart").is_none());
    assert_eq!(declared("pub(crate) struct Rests<T> {", &["struct"]), Some("Rests"));
    assert_eq!(declared("struct Rest;", &["enum", "struct"]), Some("Rest"));
    assert_eq!(declared("    pub(super) async fn rest(self) {", &["fn"]), Some("rest"));
    assert_eq!(declared("impl Rest {", &["struct"]), None);
}

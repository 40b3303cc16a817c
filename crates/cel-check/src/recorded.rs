//! Held against what the Go manager and the API server said of the same expressions: `tests/data/*.jsonl`, which
//! `tests/cel-check/record.py` writes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Checked, Params, Policy, PolicyValidation, PolicyVariable, Schemas, Type};

#[derive(Deserialize)]
struct Variable {
    name: String,
    expression: String,
}

type KindName = (String, String, String);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Section {
    kinds: Vec<KindName>,
    params_kind: Option<KindName>,
    variables: Vec<Variable>,
    message: bool,
}

#[derive(Deserialize)]
enum Outcome {
    #[serde(rename = "warning")]
    Warning(String),
    #[serde(rename = "refused")]
    Refused(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Section(Section),
    Expression(String, Option<Outcome>),
}

/// An expression, and what came of it.
type Recorded = (String, Option<Outcome>);

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

#[derive(Default)]
struct Documents(BTreeMap<String, Schemas>);

impl Documents {
    fn of(&mut self, group: &str, version: &str) -> Schemas {
        let path =
            if group.is_empty() { format!("api_{version}") } else { format!("apis_{group}_{version}") };
        let read = |path: &String| {
            let file = File::open(data().join(format!("openapi/{path}.json"))).expect("a document");
            Schemas::read(file).expect("an OpenAPI document")
        };
        self.0.entry(path.clone()).or_insert_with(|| read(&path)).clone()
    }
}

/// The numbers behind the names of kinds are those of a clock.
fn without_numbers(text: &str) -> String {
    let mut kept = String::new();
    let letters: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < letters.len() {
        let digits = letters[at..].iter().take_while(|letter| letter.is_ascii_digit()).count();
        let behind = at.checked_sub(1).is_some_and(|before| letters[before].is_ascii_alphabetic());
        let before = letters.get(at + digits).is_none_or(|next| ".,)'\n".contains(*next));
        if (3..=9).contains(&digits) && behind && before {
            at += digits;
        } else {
            kept.extend(&letters[at..at + digits.max(1)]);
            at += digits.max(1);
        }
    }
    kept
}

struct Comparison {
    documents: Documents,
    compared: usize,
    refused: usize,
    differences: Vec<String>,
}

impl Comparison {
    fn differs(&mut self, expression: &str, theirs: &str, ours: &str) {
        if theirs != ours {
            let alike = theirs.lines().zip(ours.lines()).take_while(|(theirs, ours)| theirs == ours).count();
            let rest = |text: &str| text.lines().skip(alike).take(3).collect::<Vec<_>>().join("\n");
            let (theirs, ours) = (rest(theirs), rest(ours));
            self.differences.push(format!("{expression}\n  theirs: {theirs}\n  ours:   {ours}"));
        }
    }

    fn section(&mut self, section: &Section, expressions: &[Recorded]) {
        let schemas: Vec<_> = section
            .kinds
            .iter()
            .map(|(group, version, kind)| {
                self.documents.of(group, version).find(group, version, kind).expect("the kind")
            })
            .collect();
        let kinds = section.kinds.iter().zip(&schemas);
        let kinds: Vec<_> =
            kinds.map(|((group, version, kind), schema)| Checked { group, version, kind, schema }).collect();
        let params = section.params_kind.as_ref().map(|(group, version, kind)| {
            (kind, self.documents.of(group, version).find(group, version, kind).expect("the kind"))
        });
        let params = match &params {
            Some((kind, schema)) => Params::Of { kind, schema },
            None => Params::None,
        };
        let variables: Vec<_> = section
            .variables
            .iter()
            .map(|variable| PolicyVariable { name: &variable.name, expression: &variable.expression })
            .collect();
        for (expression, outcome) in expressions {
            let validation = if section.message {
                PolicyValidation { expression: "true", message_expression: expression }
            } else {
                PolicyValidation { expression, message_expression: "" }
            };
            let policy = Policy { variables: variables.clone(), validations: vec![validation] };
            if let Some(Outcome::Refused(message)) = outcome {
                self.refused(&policy, expression, message, matches!(params, Params::None));
                continue;
            }
            self.compared += 1;
            let ours = policy.warnings(params, &kinds).pop().map(|warning| without_numbers(&warning.warning));
            let theirs = match outcome {
                Some(Outcome::Warning(warning)) => warning.as_str(),
                _ => "",
            };
            self.differs(expression, theirs, ours.as_deref().unwrap_or_default());
        }
    }

    /// The API server checks with objects that are dyn. Its syntax errors are worded by its parser's generator.
    fn refused(&mut self, policy: &Policy<'_>, expression: &str, message: &str, no_params: bool) {
        let Some((_, theirs)) = message.split_once("compilation failed: ") else { return };
        let by_value = [
            "Syntax error",
            "literal",
            "invalid matches",
            "invalid duration",
            "invalid timestamp",
            "recursion depth",
        ];
        if by_value.iter().any(|text| theirs.contains(text)) {
            return;
        }
        let params = if no_params { Params::None } else { Params::Unknown };
        let environment = policy.environment_of(params, Type::Dyn, &mut 0);
        let ours = environment.check(expression).err().map(|issues| issues.to_string()).unwrap_or_default();
        self.refused += 1;
        self.differs(expression, theirs, &ours);
    }
}

#[test]
fn warnings_are_those_that_the_original_gave() {
    let mut comparison =
        Comparison { documents: Documents::default(), compared: 0, refused: 0, differences: Vec::new() };
    let mut files: Vec<_> = fs::read_dir(data()).expect("data").flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    for path in files {
        let mut sections: Vec<(Section, Vec<Recorded>)> = Vec::new();
        for line in fs::read_to_string(&path).expect("a recording").lines() {
            match serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", path.display())) {
                Line::Section(section) => sections.push((section, Vec::new())),
                Line::Expression(expression, outcome) => {
                    sections.last_mut().expect("a section").1.push((expression, outcome));
                }
            }
        }
        for (section, expressions) in sections {
            comparison.section(&section, &expressions);
        }
    }
    let Comparison { compared, refused, differences, .. } = comparison;
    let count = differences.len();
    assert!(differences.is_empty(), "{count} of {}:\n{}", compared + refused, differences.join("\n"));
    assert!(compared >= 2_000, "{compared} expressions, and {refused} refused");
}

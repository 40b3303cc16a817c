//! Coxswain's reading of selectors next to that of Kubernetes' library.

use serde_json::{Value, json};

use super::*;
use crate::api::meta::LabelSelectorRequirement;
use crate::oracle::{Comparison, Random, SEPARATOR};

/// The requirements as the oracle shows them.
fn shown(selector: &Selector, sets: &str) -> Value {
    let requirement = |requirement: &Requirement| {
        let (operator, values) = match &requirement.test {
            Test::In(values) => ("in", values.0.iter().map(ToString::to_string).collect()),
            Test::NotIn(values) => ("notin", values.0.iter().map(ToString::to_string).collect()),
            Test::Exists => ("exists", Vec::new()),
            Test::DoesNotExist => ("!", Vec::new()),
            Test::GreaterThan(least) => ("gt", vec![least.to_string()]),
            Test::LessThan(most) => ("lt", vec![most.to_string()]),
        };
        format!("{} {operator} {}", requirement.key, values.join(" "))
    };
    let mut requirements: Vec<String> = selector.requirements.iter().map(requirement).collect();
    requirements.sort();
    let matches = |set: &str| {
        let labels: Labels = set.split(';').filter_map(|label| label.split_once('=')).collect();
        selector.matches(&labels)
    };
    let matches: Vec<bool> = sets.split(SEPARATOR).map(matches).collect();
    json!({ "requirements": requirements, "matches": matches })
}

fn label(random: &mut Random) -> String {
    let key = random.one_of(&["app", "tier", "size", "example.com/role", "a.b_c-d", "A", "in", "notin"]);
    format!("{key}={}", random.one_of(&["web", "db", "", "1", "-3", "+3", "7", "07", "in", "x.y_z-1"]))
}

fn sets(random: &mut Random) -> String {
    let set = |random: &mut Random| {
        let labels: Vec<String> = (0..random.below(4)).map(|_| label(random)).collect();
        labels.join(";")
    };
    let sets: Vec<String> = (0..3).map(|_| set(random)).collect();
    sets.join("\u{1f}")
}

const WORDS: &[&str] = &[
    "=",
    "==",
    "!=",
    "!",
    ",",
    "(",
    ")",
    ">",
    "<",
    " in ",
    " notin ",
    "in",
    "notin",
    " ",
    "\t",
    "\n",
    "\r",
    "\u{b}",
    "\u{a0}",
    "/",
    "-",
    ".",
    "_",
    "''",
    "example.com/",
    "app",
    "web",
    "a,b",
    "(a,b)",
    "9223372036854775808",
    "a123456789b123456789c123456789d123456789e123456789f123456789g123",
    "1",
];

fn compare(
    question: &'static str,
    seeds: &'static [&'static str],
    generate: fn(&mut Random) -> String,
    read: fn(&str) -> Option<Value>,
) {
    Comparison { question, seeds, words: WORDS, generate, read, refusals: &[], differences: &[] }.run();
}

#[test]
fn texts_are_never_read_differently() {
    fn generate(random: &mut Random) -> String {
        let space = |random: &mut Random| random.one_of(&["", "", " ", "\t", "  "]).to_owned();
        let mut requirements = Vec::new();
        for _ in 0..random.below(4) {
            let label = label(random);
            let (key, value) = label.split_once('=').unwrap();
            let operator = random.one_of(&["=", "==", "!=", ">", "<", " in ", " notin ", "", "!"]);
            let gap = space(random);
            requirements.push(match operator {
                "" => format!("{gap}{key}{gap}"),
                "!" => format!("{gap}!{gap}{key}"),
                " in " | " notin " => format!("{key}{operator}({gap}{value}{gap},{gap}x)"),
                _ => format!("{key}{gap}{operator}{gap}{value}"),
            });
        }
        format!("{}{SEPARATOR}{}", requirements.join(","), sets(random))
    }
    fn read(text: &str) -> Option<Value> {
        let (text, sets) = text.split_once(SEPARATOR).unwrap_or((text, ""));
        Some(shown(&Selector::parse(text).ok()?, sets))
    }
    let seeds = &[
        "app=web,tier in (a, b),!old\u{1f}app=web;tier=a\u{1f}app=web;tier=a;old=x",
        "x in (foo,,baz),y,z notin ()\u{1f}x=;y=\u{1f}x=baz;z=",
        "size>3,size<8\u{1f}size=5\u{1f}size=x",
        "in=notin\u{1f}in=notin",
    ];
    compare("selector", seeds, generate, read);
}

#[test]
fn label_selectors_are_never_read_differently() {
    fn generate(random: &mut Random) -> String {
        let mut text = String::new();
        for _ in 0..random.below(4) {
            let label = label(random);
            let (key, value) = label.split_once('=').unwrap();
            let operator =
                random.one_of(&["=", "In", "NotIn", "Exists", "DoesNotExist", "In", "Gt", "in", ""]);
            let values = match operator {
                "Exists" | "DoesNotExist" if !random.one_in(8) => String::new(),
                "=" => format!(" {value}"),
                _ => [String::new(), format!(" {value}"), format!(" {value} x")][random.below(3)].clone(),
            };
            text.extend([operator, " ", key, &values, "\u{1f}"]);
        }
        format!("{text}{SEPARATOR}{}", sets(random))
    }
    fn read(text: &str) -> Option<Value> {
        let (mut selector, mut rest) = (LabelSelector::default(), text);
        let (mut labels, mut expressions) = (Vec::new(), Vec::new());
        while !rest.is_empty() {
            let (part, after) = rest.split_once(SEPARATOR).unwrap_or((rest, ""));
            rest = after;
            if part.is_empty() {
                break;
            }
            match part.split(' ').collect::<Vec<_>>()[..] {
                ["=", key, value] => labels.push((key, value)),
                ["=", ..] => return None,
                [operator, key, ref values @ ..] => {
                    let values = values.iter().map(|value| Str::from(*value)).collect();
                    let (key, operator) = (key.into(), operator.into());
                    expressions.push(LabelSelectorRequirement { key, operator, values });
                }
                _ => return None,
            }
        }
        selector.match_labels = labels.into_iter().collect();
        selector.match_expressions = expressions.into();
        Some(shown(&Selector::compile(&selector).ok()?, rest))
    }
    let seeds = &[
        "= app web\u{1f}In tier a b\u{1f}\u{1f}app=web;tier=a\u{1f}app=web",
        "NotIn tier a\u{1f}Exists app\u{1f}DoesNotExist old\u{1f}\u{1f}app=web\u{1f}old=",
        "\u{1f}\u{1f}app=web",
    ];
    compare("label-selector", seeds, generate, read);
}

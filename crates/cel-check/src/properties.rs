//! Whatever the expression: it is checked or refused, within bounds, and what is said of it can be shown.

use proptest::prelude::*;

use crate::{Environment, ObjectType, Type};

const WORDS: &[&str] = &[
    "a",
    "b",
    "object",
    "1",
    "1.5",
    "2u",
    "'a'",
    "'%s %d'",
    "b'x'",
    "null",
    "true",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    ".",
    ",",
    ":",
    "?",
    "!",
    "-",
    "+",
    "*",
    "==",
    "<",
    "&&",
    "||",
    " in ",
    ".?",
    "[?",
    "has(",
    ".all(",
    ".map(",
    ".exists_one(",
    ".filter(",
    ".transformList(",
    ".transformMap(",
    ".transformMapEntry(",
    ".optMap(",
    ".optFlatMap(",
    ".sortBy(",
    "x, ",
    "k, v, ",
    "x",
    "v",
    "size(",
    ".format([",
    ".flatten()",
    "optional.of(",
    "optional.none()",
    "type(",
    "sets.contains(",
    "é",
    "\n",
    "\t",
    "'",
    "//",
    ".spec",
    ".names",
    ".anything",
];

fn environment() -> Environment {
    let spec = ObjectType::declared("Spec", [("names", Type::list(Type::String)), ("anything", Type::Dyn)]);
    let object = ObjectType::declared("Object", [("spec", Type::Object(spec.into()))]);
    let mut environment = Environment::kubernetes();
    environment.declare("object", Type::Object(object.into()));
    environment.declare("a", Type::Dyn);
    environment.declare("b", Type::list(Type::map(Type::String, Type::Int)));
    environment
}

/// Expressions of operands and macros that fit each other.
fn expression() -> impl Strategy<Value = String> {
    let leaf = proptest::sample::select(vec![
        "a",
        "b",
        "object",
        "object.spec",
        "object.spec.names",
        "x",
        "1",
        "'a'",
        "[]",
        "{}",
        "null",
        "optional.none()",
        "1.5",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(8, 128, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        let binary = proptest::sample::select(vec!["+", "==", "&&", "in", "<", "-"]);
        let call = proptest::sample::select(vec![
            "size",
            "flatten",
            "sort",
            "orValue",
            "value",
            "hasValue",
            "first",
            "unwrapOpt",
            "distinct",
            "min",
        ]);
        let over = proptest::sample::select(vec![
            "all",
            "map",
            "filter",
            "optMap",
            "optFlatMap",
            "sortBy",
            "exists_one",
        ]);
        prop_oneof![
            (two.clone(), binary).prop_map(|((one, other), operator)| format!("({one} {operator} {other})")),
            (inner.clone(), call).prop_map(|(of, call)| format!("{of}.{call}()")),
            (two.clone(), over).prop_map(|((of, body), over)| format!("{of}.{over}(x, {body})")),
            two.clone().prop_map(|(of, body)| format!("{of}.transformMapEntry(k, x, {{x: {body}}})")),
            two.clone().prop_map(|(one, other)| format!("[{one}, {other}]")),
            two.clone().prop_map(|(one, other)| format!("{{{one}: {other}}}")),
            two.prop_map(|(one, other)| format!("{one}[?{other}]")),
            inner.clone().prop_map(|of| format!("optional.of({of})")),
            inner.prop_map(|of| format!("{of}.?names")),
        ]
    })
}

fn judged(expression: &str) -> String {
    match environment().check(expression) {
        Ok(of) => of.to_string(),
        Err(issues) => {
            assert!(issues.iter().next().is_some());
            issues.to_string()
        }
    }
}

proptest! {
    #[test]
    fn no_words_are_too_strange(words in proptest::collection::vec(proptest::sample::select(WORDS.to_vec()), 0..60)) {
        let _ = judged(&words.concat());
    }

    #[test]
    fn no_text_is_too_strange(text in ".{0,80}") {
        let _ = judged(&text);
    }

    #[test]
    fn an_expression_has_one_verdict(expression in expression()) {
        prop_assert_eq!(judged(&expression), judged(&expression));
    }
}

#[test]
fn what_grows_by_itself_comes_to_an_end() {
    let chained = |part: &str, times: usize| format!("a{}", part.repeat(times));
    for expression in [
        chained(".optMap(x, x)", 200),
        format!("optional.of(1){}", ".optMap(x, {x: x})".repeat(200)),
        format!("[]{}", ".map(x, [x])".repeat(250)),
        format!("[]{}", ".map(x, {x: x})".repeat(250)),
        format!("[1]{}", ".map(x, {x: x})".repeat(250)),
        format!("[1]{}", ".transformMap(k, x, {k: x})".repeat(250)),
        format!("{}1{}", "[".repeat(249), "]".repeat(249)),
        format!("{}b{}", "b.map(x, ".repeat(240), ")".repeat(240)),
        vec!["[]"; 240].join(" + "),
        vec!["object.nonsense"; 5000].join(" && "),
        format!("[{}]", vec!["object.nonsense"; 5000].join(", ")),
        format!("{{{}}}", vec!["object.a: object.b"; 4000].join(", ")),
        "!".repeat(99_000) + "a",
        "-".repeat(99_000) + "a",
        "(".repeat(100_000),
        "[".repeat(100_000),
        "{a:".repeat(33_000),
        "a?".repeat(50_000),
        "a.".repeat(50_000),
    ] {
        assert!(!judged(&expression).is_empty());
    }
}

/// The costliest expression that a few characters make, for each kind that a policy matches.
#[test]
fn a_policy_of_costly_expressions_comes_to_an_end() {
    let costly = format!("optional.of(object){}", ".optMap(x, x)".repeat(30));
    let environment = environment();
    let mut work = 0;
    assert!(environment.check_counted(&costly, &mut work).is_err_and(|issues| issues.is_limit()));
    assert!(work > 100_000, "{work}");

    let document = br#"{"components": {"schemas": {"K": {
        "type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "K"}]
    }}}}"#;
    let schemas = crate::Schemas::read(document.as_slice()).expect("a document");
    let schema = schemas.find("", "v1", "K").expect("the kind");
    let kinds = [crate::Checked { group: "", version: "v1", kind: "K", schema: &schema }; 10];
    let wrong = crate::PolicyValidation { expression: "object.b", message_expression: "" };
    let costly = crate::PolicyValidation { expression: &costly, message_expression: "" };
    let mut validations = vec![costly; 3000];
    validations.insert(0, wrong);
    validations.push(wrong);
    let variables = vec![crate::PolicyVariable { name: "v", expression: "object.spec.a" }; 3000];
    let policy = crate::Policy { variables, validations };
    let warnings = policy.warnings(crate::Params::None, &kinds);
    let places: Vec<&str> = warnings.iter().map(|warning| warning.field_ref.as_str()).collect();
    assert_eq!(places, ["spec.validations[0].expression"], "what is left then is unchecked");
}

#[test]
fn warnings_are_no_larger_than_an_object() {
    let document = br#"{"components": {"schemas": {"K": {
        "type": "object", "properties": {"spec": {"type": "object"}},
        "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "K"}]
    }}}}"#;
    let schemas = crate::Schemas::read(document.as_slice()).expect("a document");
    let schema = schemas.find("", "v1", "K").expect("the kind");
    let kinds = [crate::Checked { group: "", version: "v1", kind: "K", schema: &schema }; 10];
    let long = vec!["object.spec.b"; 300].join("+");
    let validations = vec![crate::PolicyValidation { expression: &long, message_expression: "" }; 10];
    let warnings = crate::Policy { variables: Vec::new(), validations }.warnings(crate::Params::None, &kinds);
    assert!(warnings.iter().map(|warning| warning.warning.len()).sum::<usize>() <= 1 << 20);

    // Names of types may be as long as somebody likes, and stand in each message.
    let name = "n".repeat(2000);
    let of = Type::Object(ObjectType::declared(&name, []).into());
    let mut environment = Environment::kubernetes();
    environment.declare("o", Type::list(Type::map(of.clone(), of)));
    let issues = environment.check(&vec!["o < 1"; 2000].join(" && ")).expect_err("each is wrong");
    assert!(issues.is_limit());
    let entries = vec!["1: 1"; 3000].join(", ");
    let issues = environment.check(&format!("{{1: o, {entries}}}")).expect_err("each is wrong");
    assert!(issues.is_limit());
}

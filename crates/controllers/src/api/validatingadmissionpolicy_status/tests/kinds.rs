//! Which kinds rules name.

use proptest::prelude::*;

use super::super::kinds::{matched, names_any};
use super::fixtures::{policy, rule};
use coxswain_machinery::api::system::{NamedRuleWithOperations, ValidatingAdmissionPolicySpec};
use coxswain_machinery::framework::{ApiResource, ApiResources};

/// Kinds A to Z of group `x` in v1 and v2, and kind A of group `y`, of the core group and of `z` in v3, where it has no singular.
fn api() -> ApiResources {
    let resource = |group: &str, version: &str, kind: &str, singular: &str| ApiResource {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        resource: format!("{}s", kind.to_lowercase()).into(),
        singular: singular.into(),
        ..ApiResource::default()
    };
    let letters = ('A'..='Z').map(|letter| letter.to_string());
    let mut all: Vec<ApiResource> = letters
        .flat_map(|kind| ["v1", "v2"].map(|version| resource("x", version, &kind, &kind.to_lowercase())))
        .collect();
    all.sort_by(|one, other| one.version.cmp(&other.version));
    all.extend([resource("y", "v1", "A", "a"), resource("", "v1", "A", "a"), resource("z", "v3", "A", "")]);
    ApiResources::of(all, Vec::new())
}

fn spec(rules: Vec<NamedRuleWithOperations>) -> ValidatingAdmissionPolicySpec {
    policy(rules, &["true"]).spec
}

fn names(rules: Vec<NamedRuleWithOperations>) -> (String, bool) {
    let found = matched(&spec(rules), &api());
    let name =
        |kind: &super::super::kinds::CheckedKind| format!("{}/{}/{}", kind.group, kind.version, kind.kind);
    (found.kinds.iter().map(name).collect::<Vec<_>>().join(" "), found.has_unknown)
}

#[test]
fn rules_name_kinds_by_group_version_and_resource() {
    let table: [(&str, Vec<NamedRuleWithOperations>, &str, bool); 15] = [
        ("one", vec![rule(&["x"], &["v1"], &["as"])], "x/v1/A", false),
        (
            "all combinations",
            vec![rule(&["y", "x"], &["v2", "v1"], &["bs", "as"])],
            "x/v1/A x/v1/B x/v2/A x/v2/B y/v1/A",
            true,
        ),
        (
            "of several rules",
            vec![rule(&["y"], &["v1"], &["as"]), rule(&["x"], &["v1"], &["as"])],
            "x/v1/A y/v1/A",
            false,
        ),
        (
            "by the singular name, in capitals",
            vec![rule(&["x"], &["v1"], &["A", "bS"])],
            "x/v1/A x/v1/B",
            false,
        ),
        ("by the kind where there is no singular", vec![rule(&["z"], &["v3"], &["a"])], "z/v3/A", false),
        ("in any group", vec![rule(&[""], &["v1"], &["as"])], "/v1/A x/v1/A y/v1/A", false),
        ("any group", vec![rule(&["*"], &["v1"], &["as"])], "", false),
        ("a wildcard within a group", vec![rule(&["*.x", "x"], &["v1"], &["as"])], "", false),
        ("a wildcard within a version", vec![rule(&["x"], &["v*"], &["as"])], "", false),
        ("any group beside one", vec![rule(&["x", "*"], &["v1"], &["as"])], "", false),
        ("any version", vec![rule(&["x"], &["*"], &["as"]), rule(&["y"], &["v1"], &["as"])], "y/v1/A", false),
        ("any resource", vec![rule(&["x"], &["v1"], &["*", "bs"])], "x/v1/B", false),
        ("subresources", vec![rule(&["x"], &["v1"], &["as/status", "*/*", "bs/*"])], "", false),
        ("unknown ones", vec![rule(&["x", "none"], &["v1"], &["as"])], "x/v1/A", true),
        ("none", vec![], "", false),
    ];
    for (what, rules, expected, unknown) in table {
        assert_eq!(names_any(&spec(rules.clone())), !expected.is_empty() || unknown, "{what}");
        assert_eq!(names(rules), (expected.to_owned(), unknown), "{what}");
    }
    assert!(!names_any(&ValidatingAdmissionPolicySpec::default()), "without constraints");
}

#[test]
fn ten_hits_of_a_rule_end_the_search() {
    let letters: Vec<String> = ('a'..='l').map(|letter| format!("{letter}s")).collect();
    let twelve: Vec<&str> = letters.iter().map(String::as_str).collect();
    let found = |rules| names(rules).0.split_whitespace().count();
    let last = || rule(&["y"], &["v1"], &["as"]);
    assert_eq!(found(vec![rule(&["x"], &["v1"], &twelve), last()]), 10, "the next rule is not looked at");
    assert_eq!(
        found(vec![rule(&["x"], &["v1"], &twelve[..9]), rule(&["x"], &["v2"], &twelve[..9]), last()]),
        19
    );
    let twice = ["a", "as", "b", "bs", "c", "cs", "d", "ds", "e", "es", "f"];
    assert_eq!(found(vec![rule(&["x"], &["v1"], &twice), last()]), 5, "repeats count");
    let (of_ten, unknown) = names(vec![rule(&["x"], &["v1"], &[&twelve[..10], &["zzz"]].concat())]);
    assert_eq!(
        (of_ten.split_whitespace().count(), unknown),
        (10, false),
        "what comes later is not asked for"
    );
}

#[test]
fn lists_of_many_names_are_not_combined_without_end() {
    let many: Vec<String> = (0..3000).map(|number| format!("n{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let rules = || vec![rule(&many, &many, &many), rule(&["y"], &["v1"], &["as"])];
    assert!(names_any(&spec(rules())));
    assert_eq!(names(rules()), (String::new(), true));
    let known = vec![rule(&["x"], &["v1"], &["as"]), rule(&many, &many, &many)];
    assert_eq!(names(known), ("x/v1/A".to_owned(), true), "what was found before stays");
}

proptest! {
    /// Whatever is named, at most ten of a rule are found, and all of them are what the API has.
    #[test]
    fn what_is_found_is_named_and_served(
        rules in prop::collection::vec(
            (
                prop::collection::vec(prop::sample::select(vec!["", "x", "y", "*", "q"]), 0..3),
                prop::collection::vec(prop::sample::select(vec!["v1", "v2", "*"]), 0..3),
                prop::collection::vec("[a-z]s?|[A-D]/status|\\*", 0..14),
            ),
            0..4,
        ),
    ) {
        let rules: Vec<_> = rules
            .iter()
            .map(|(groups, versions, resources)| {
                rule(groups, versions, &resources.iter().map(String::as_str).collect::<Vec<_>>())
            })
            .collect();
        let found = matched(&spec(rules.clone()), &api());
        prop_assert!(found.kinds.len() <= 10 * rules.len());
        for kind in &found.kinds {
            let api = api();
            let served = api.all().find(|each| each.group == kind.group && each.version == kind.version && each.kind == kind.kind);
            let served = served.expect("it is served");
            let is_named = rules.iter().map(|rule| &rule.rule_with_operations.rule).any(|rule| {
                let group = rule.api_groups.iter().any(|group| group.is_empty() || *group == served.group);
                let name = rule.resources.iter().any(|name| {
                    let name = name.to_lowercase();
                    name == served.resource.as_str() || name == served.kind.to_lowercase()
                });
                group && name && rule.api_versions.contains(&served.version)
            });
            prop_assert!(is_named, "{kind:?}");
        }
    }
}

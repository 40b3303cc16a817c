//! What is written.

use serde_json::json;

use super::super::plan;
use super::fixtures::{World, about_webs, applied, policy, rule, with_params, with_variable};

/// What is warned of, without the references.
fn told(policy: coxswain_machinery::api::system::ValidatingAdmissionPolicy) -> Vec<String> {
    World::of(&[policy]).warnings().into_iter().map(|(_, warning)| warning).collect()
}

#[test]
fn a_policy_without_mistakes_is_said_to_be_checked() {
    let mut policy = about_webs(&["object.spec.replicas < 5"]);
    policy.metadata.generation = 7;
    policy.status.observed_generation = 6;
    let (plan, learned) = World::of(&[policy]).planned().into_parts();
    let expected = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "a", "uid": "11111111-2222-3333-4444-555555555555" },
        "status": { "observedGeneration": 7, "typeChecking": {} },
    });
    assert_eq!(applied(&plan), expected);
    assert_eq!(plan.steps[0].writes().count(), 1);
    assert_eq!(learned.documents.len(), 1);
}

#[test]
fn no_generation_is_checked_twice() {
    for (generation, observed, is_due) in [(1, 0, true), (2, 1, true), (1, 1, false), (1, 2, false)] {
        let mut policy = about_webs(&["object.spec.nonsense == 1"]);
        policy.metadata.generation = generation;
        policy.status.observed_generation = observed;
        let world = World::of(&[policy]);
        assert_eq!(!world.planned().is_empty(), is_due, "{generation} after {observed}");
    }
}

#[test]
fn a_mistake_is_told_with_its_place_and_its_kind() {
    let warnings =
        World::of(&[about_webs(&["object.spec.replicas > 1", "object.spec.nonsense == 1"])]).warnings();
    let text = "example.com/v1, Kind=Web: ERROR: <input>:1:12: undefined field 'nonsense'\n \
                | object.spec.nonsense == 1\n | ...........^\n";
    assert_eq!(warnings, [("spec.validations[1].expression".to_owned(), text.to_owned())]);
}

#[test]
fn messages_are_checked_and_their_types_do_not_matter() {
    let mut policy = about_webs(&["object.spec.replicas > 1", "object.spec.nonsense == 1", "true"]);
    policy.spec.validations[0].message_expression = "'no ' + object.spec.nonsense".into();
    policy.spec.validations[1].message_expression = "object.spec.other".into();
    policy.spec.validations[2].message_expression = "object.spec.replicas".into();
    let fields: Vec<String> = World::of(&[policy]).warnings().into_iter().map(|(field, _)| field).collect();
    let expected = ["[0].messageExpression", "[1].expression", "[1].messageExpression"]
        .map(|end| format!("spec.validations{end}"));
    assert_eq!(fields, expected);
}

#[test]
fn each_kind_has_a_warning_of_its_own() {
    let both =
        || policy(vec![rule(&["example.com"], &["v2", "v1"], &["webs"])], &["object.spec.nonsense == 1"]);
    let warnings = told(both());
    let kinds: Vec<&str> = warnings[0].lines().filter(|line| line.contains("Kind=")).collect();
    assert_eq!(kinds.len(), 2);
    assert!(
        kinds[0].starts_with("example.com/v1, Kind=Web: ")
            && kinds[1].starts_with("example.com/v2, Kind=Web: ")
    );
    assert!(warnings[0].contains("^\n\nexample.com/v2"), "a blank line is between them: {}", warnings[0]);
    let mut one = both();
    one.spec.validations[0].expression = "object.spec.replicas > 1".into();
    assert!(told(one)[0].starts_with("example.com/v2, "), "only one of them has a mistake");
}

#[test]
fn what_can_not_be_known_is_not_warned_of() {
    let wrong = ["object.spec.nonsense == 1"];
    for (what, rules) in [
        ("no kind is named", rule(&["*"], &["v1"], &["webs"])),
        ("nobody serves it", rule(&["example.com"], &["v1"], &["nonsenses"])),
        ("its document is not to be had", rule(&["batch"], &["v1"], &["jobs"])),
    ] {
        let world = World::of(&[policy(vec![rules], &wrong)]);
        assert_eq!(world.status(), json!({ "observedGeneration": 1, "typeChecking": {} }), "{what}");
    }
    let beside = policy(vec![rule(&["batch", "example.com"], &["v1"], &["jobs", "webs"])], &wrong);
    assert_eq!(told(beside)[0].matches("Kind=").count(), 1, "what is known is checked all the same");
}

#[test]
fn parameters_have_the_type_of_their_kind() {
    let expressions = ["object.spec.replicas > params.spec.bytes", "params.spec.nonsense == 1"];
    let of = |api_version: &str, kind: &str| told(with_params(about_webs(&expressions), api_version, kind));
    let known = of("v1", "Cache");
    assert_eq!(known.len(), 1);
    assert!(known[0].contains("undefined field 'nonsense'"), "{}", known[0]);
    for (api_version, kind) in
        [("v1", "Nonsense"), ("v9", "Cache"), ("batch/v1", "Job"), ("a/b/c", "Cache"), ("", "")]
    {
        assert!(of(api_version, kind).is_empty(), "{api_version} {kind}");
    }
}

#[test]
fn variables_have_the_types_of_scalars_and_objects_hide_theirs() {
    let policy =
        about_webs(&["variables.replicas == 'x'", "variables.spec.nonsense == 1", "variables.twice == 'x'"]);
    let policy = with_variable(policy, "replicas", "object.spec.replicas");
    let policy = with_variable(policy, "spec", "object.spec");
    let policy = with_variable(policy, "twice", "variables.replicas * 2");
    let fields: Vec<String> = World::of(&[policy]).warnings().into_iter().map(|(field, _)| field).collect();
    assert_eq!(fields, ["spec.validations[0].expression", "spec.validations[2].expression"]);
}

#[test]
fn a_policy_says_what_it_was_checked_against() {
    let reasons = |policy| plan::reasons(&World::of(&[policy]).reconciled().0.unwrap().unwrap());
    let wrong = ["object.spec.nonsense == 1", "true"];
    assert_eq!(
        reasons(policy(vec![rule(&["example.com", "batch"], &["v1"], &["webs", "jobs"])], &wrong)),
        [
            "Generation 1 of the policy is new; its expressions are checked against 1 kind (Web): 1 warning found.",
            "The schema of Job is unknown, so the expressions are not checked against it.",
        ]
    );
    assert_eq!(
        reasons(policy(vec![rule(&["*"], &["v1"], &["webs"])], &wrong)),
        [
            "Generation 1 of the policy is new; its expressions cannot be type-checked, because no kind in the \
             policy's rules has a known schema: no warnings."
        ]
    );
    let mut checked = about_webs(&wrong);
    checked.status.observed_generation = 1;
    assert_eq!(
        reasons(checked),
        ["Generation 1 of the policy has been checked; the policy is checked again when its spec changes."]
    );
}

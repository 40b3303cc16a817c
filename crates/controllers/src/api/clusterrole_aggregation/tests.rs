//! The plan's tables, on a store that is filled by hand.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use coxswain_machinery::api::meta::{LabelSelector, LabelSelectorRequirement};
use coxswain_machinery::api::rbac::{AggregationRule, PolicyRule};
use coxswain_machinery::informer::Store;
use coxswain_machinery::model::Step;
use coxswain_machinery::model::plan::{Patch, Tolerate, Verb};
use coxswain_machinery::wire::Message;

fn rule(verbs: &[&str], resource: &str) -> PolicyRule {
    PolicyRule {
        verbs: verbs.iter().map(|verb| Str::from(*verb)).collect(),
        api_groups: vec!["".into()],
        resources: vec![resource.into()],
        ..PolicyRule::default()
    }
}

/// A role with a label `KEY=yes` for each of these keys.
fn role(name: &str, labels: &[&str], rules: &[PolicyRule]) -> ClusterRole {
    let mut role = ClusterRole::default();
    role.metadata.name = name.into();
    role.metadata.uid = format!("uid-{name}").into();
    role.metadata.resource_version = "1".into();
    role.metadata.labels = labels.iter().map(|label| (*label, "yes")).collect();
    role.rules = rules.to_vec();
    role
}

fn selecting(label: &str) -> LabelSelector {
    LabelSelector { match_labels: [(label, "yes")].into_iter().collect(), ..LabelSelector::default() }
}

fn aggregate(
    name: &str,
    labels: &[&str],
    selectors: Vec<LabelSelector>,
    rules: &[PolicyRule],
) -> ClusterRole {
    let rule = AggregationRule { cluster_role_selectors: selectors };
    ClusterRole { aggregation_rule: Some(Box::new(rule)), ..role(name, labels, rules) }
}

fn store(roles: &[ClusterRole]) -> Arc<Store> {
    let store = Arc::new(Store::new(&CLUSTER_ROLES));
    for role in roles {
        store.upsert(&(CLUSTER_ROLES.decode)(&role.to_bytes().into()).unwrap());
    }
    store
}

fn observed(roles: &[ClusterRole], name: &str) -> Result<Option<View>, ObserveError> {
    view::observe(&Controller { roles: Lister::new(store(roles)) }, &Key::new("", name))
}

/// What is applied to a role; nothing if it is as it should be.
fn applied(roles: &[ClusterRole], name: &str) -> Option<Value> {
    let view = observed(roles, name).unwrap()?;
    match plan::plan(&view).steps.as_slice() {
        [] => None,
        [Step::Write(write)] => {
            assert_eq!(write.to_string(), format!("patch clusterroles.rbac.authorization.k8s.io {name}"));
            assert_eq!(write.tolerate, Tolerate { absent: true, conflict: true, ..Tolerate::default() });
            match &write.verb {
                Verb::Patch(Patch::Apply {
                    manager: "clusterrole-aggregation-controller",
                    force: true,
                    object,
                }) => Some(object.clone()),
                other => panic!("{other:?}"),
            }
        }
        steps => panic!("{steps:?}"),
    }
}

/// The verbs of the rules that are applied, which tell them apart here.
fn verbs(applied: Option<&Value>) -> Vec<String> {
    let rules = applied.and_then(|object| object["rules"].as_array()).into_iter().flatten();
    rules.map(|rule| rule["verbs"].to_string()).collect()
}

#[test]
fn rules_come_by_selector_and_name_each_once() {
    let (get, list) = (rule(&["get"], "pods"), rule(&["list"], "pods"));
    let (both, other_way) = (rule(&["get", "list"], "pods"), rule(&["list", "get"], "pods"));
    let roles = [
        role("b", &["x"], &[list.clone(), get.clone()]),
        role("a", &["x"], std::slice::from_ref(&both)),
        role("c", &["y"], &[get.clone(), other_way]),
        role("0", &["z"], &[rule(&["delete"], "pods")]),
        aggregate("sum", &["x"], vec![selecting("y"), selecting("x")], &[rule(&["own"], "pods")]),
    ];
    let applied = applied(&roles, "sum");
    assert_eq!(
        verbs(applied.as_ref()),
        [r#"["get"]"#, r#"["list","get"]"#, r#"["get","list"]"#, r#"["list"]"#],
        "of its own rules none is taken, though it selects itself"
    );
}

#[test]
fn the_document_holds_what_is_there_and_nothing_else() {
    let everything = PolicyRule {
        verbs: vec!["*".into()],
        api_groups: vec!["apps".into(), "".into()],
        resources: vec!["pods".into(), "pods/log".into()],
        resource_names: vec!["one".into()],
        non_resource_urls: vec![],
    };
    let paths = PolicyRule {
        verbs: vec!["get".into()],
        non_resource_urls: vec!["/healthz".into()],
        ..PolicyRule::default()
    };
    let roles = [role("a", &["x"], &[everything, paths]), aggregate("sum", &[], vec![selecting("x")], &[])];
    let expected = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": "sum", "uid": "uid-sum" },
        "rules": [
            { "verbs": ["*"], "apiGroups": ["apps", ""], "resources": ["pods", "pods/log"], "resourceNames": ["one"] },
            { "verbs": ["get"], "nonResourceURLs": ["/healthz"] },
        ],
    });
    assert_eq!(applied(&roles, "sum"), Some(expected));
}

#[test]
fn an_aggregate_of_nothing_loses_what_was_applied_and_no_more() {
    let left = rule(&["get"], "pods");
    let emptied = applied(&[aggregate("sum", &[], vec![selecting("x")], &[left])], "sum").unwrap();
    assert_eq!(emptied.get("rules"), None);
    assert_eq!(applied(&[aggregate("sum", &[], vec![selecting("x")], &[])], "sum"), None);
}

#[test]
fn what_aggregates_nothing_is_left_alone() {
    let get = rule(&["get"], "pods");
    let table = [
        (
            "as it should be",
            vec![
                role("a", &["x"], std::slice::from_ref(&get)),
                aggregate("sum", &[], vec![selecting("x")], std::slice::from_ref(&get)),
            ],
        ),
        ("without a rule", vec![role("a", &["x"], std::slice::from_ref(&get)), role("sum", &[], &[])]),
        ("gone", vec![role("a", &["x"], &[get])]),
    ];
    for (what, roles) in table {
        assert_eq!(applied(&roles, "sum"), None, "{what}");
    }
}

#[test]
fn the_empty_selector_selects_all_others() {
    let roles = [
        role("a", &[], &[rule(&["get"], "pods")]),
        aggregate("z", &[], vec![selecting("x")], &[rule(&["list"], "pods")]),
        aggregate("sum", &[], vec![LabelSelector::default()], &[rule(&["own"], "pods")]),
    ];
    assert_eq!(verbs(applied(&roles, "sum").as_ref()), [r#"["get"]"#, r#"["list"]"#]);
}

#[test]
fn an_invalid_selector_keeps_the_role_as_it_is() {
    let invalid = LabelSelector {
        match_expressions: vec![LabelSelectorRequirement {
            key: "x".into(),
            operator: "Near".into(),
            values: Vec::new(),
        }]
        .into(),
        ..LabelSelector::default()
    };
    let roles = [
        role("a", &["x"], &[rule(&["get"], "pods")]),
        aggregate("sum", &[], vec![selecting("x"), invalid], &[]),
    ];
    let error = observed(&roles, "sum").unwrap_err();
    assert!(
        matches!(&error, ObserveError::Retry(why) if why.contains("clusterrole sum: invalid label selector")),
        "{error}"
    );
}

/// What a change is called, the role before and after it, and the keys that it concerns.
type Change<'a> = (&'a str, Option<&'a ClusterRole>, Option<&'a ClusterRole>, &'a [&'a str]);

/// The keys that a change concerns.
fn concerned(
    all: &[ClusterRole],
    old: Option<&ClusterRole>,
    new: Option<&ClusterRole>,
    initial: bool,
) -> Vec<String> {
    let store = store(all);
    let map = aggregates(Indexed::new(&store, &AGGREGATING));
    let object = |role: &ClusterRole| (CLUSTER_ROLES.decode)(&role.to_bytes().into()).unwrap();
    let (old, new) = (old.map(object), new.map(object));
    let mut keys = Vec::new();
    let delta = Delta { old: old.as_ref(), new: new.as_ref(), initial, resync: false };
    map(delta, &mut |key| keys.push(key.name.to_string()));
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn a_role_concerns_those_that_select_or_selected_it() {
    let x = aggregate("x", &["y"], vec![selecting("x")], &[]);
    let y = aggregate("y", &[], vec![selecting("y")], &[]);
    let all = [x.clone(), y.clone()];
    let a = |labels: &[&str], verbs: &[&str]| role("a", labels, &[rule(verbs, "pods")]);
    let (of_x, of_y, of_none) = (a(&["x"], &["get"]), a(&["y"], &["get"]), a(&[], &["get"]));
    let mut annotated = of_x.clone();
    annotated.metadata.resource_version = "2".into();
    let changed = a(&["x"], &["list"]);
    let grown = ClusterRole { rules: vec![rule(&["get"], "pods")], ..x.clone() };
    let table: [Change<'_>; 9] = [
        ("new", None, Some(&of_x), &["x"]),
        ("of no interest", None, Some(&of_none), &[]),
        ("relabeled", Some(&of_x), Some(&of_y), &["x", "y"]),
        ("without its label", Some(&of_x), Some(&of_none), &["x"]),
        ("other rules", Some(&of_x), Some(&changed), &["x"]),
        ("otherwise changed", Some(&of_x), Some(&annotated), &[]),
        ("gone", Some(&of_y), None, &["y"]),
        ("an aggregate that others select", Some(&x), Some(&grown), &["x", "y"]),
        ("an aggregate that is gone", Some(&y), None, &[]),
    ];
    for (what, old, new, expected) in table {
        assert_eq!(concerned(&all, old, new, false), expected, "{what}");
    }
    assert_eq!(concerned(&all, None, Some(&of_x), true), [""; 0], "what is there at the start");
    assert_eq!(concerned(&all, None, Some(&x), true), ["x"], "an aggregate at the start");
}

#[test]
fn a_role_says_why_it_has_its_rules() {
    let get = rule(&["get"], "pods");
    let sum = |rules: &[PolicyRule]| aggregate("sum", &[], vec![selecting("x"), selecting("y")], rules);
    let a = role("a", &["x", "y"], std::slice::from_ref(&get));
    let reasons = |roles: &[ClusterRole]| plan::reasons(&observed(roles, "sum").unwrap().unwrap());
    assert_eq!(
        reasons(&[a.clone(), sum(&[])]),
        [
            "The aggregationRule selects 1 ClusterRole (a) with 1 distinct rule in total: these rules replace the \
             rules of the aggregated ClusterRole."
        ]
    );
    assert_eq!(
        reasons(&[a, sum(std::slice::from_ref(&get))]),
        ["The aggregationRule selects 1 ClusterRole (a) with 1 distinct rule in total: the aggregated \
             ClusterRole already has exactly these rules."]
    );
    assert_eq!(
        reasons(&[sum(&[get])]),
        [
            "The aggregationRule selects no other ClusterRole with no distinct rules in total: the rules of the \
             aggregated ClusterRole are removed."
        ]
    );
}

/// Applies plans until there is nothing to do, as the API server would.
fn settle(mut roles: Vec<ClusterRole>) -> (Vec<ClusterRole>, usize) {
    for round in 0..20 {
        let mut writes = 0;
        for at in 0..roles.len() {
            let name = roles[at].metadata.name.to_string();
            let Some(object) = applied(&roles, &name) else { continue };
            writes += 1;
            let rules = object["rules"].as_array().cloned().unwrap_or_default();
            roles[at].rules = rules
                .iter()
                .map(|each| {
                    let texts = |field: &str| {
                        let all = each[field].as_array().into_iter().flatten();
                        all.map(|text| Str::from(text.as_str().unwrap())).collect()
                    };
                    PolicyRule {
                        verbs: texts("verbs"),
                        api_groups: texts("apiGroups"),
                        resources: texts("resources"),
                        resource_names: texts("resourceNames"),
                        non_resource_urls: texts("nonResourceURLs"),
                    }
                })
                .collect();
        }
        if writes == 0 {
            return (roles, round);
        }
    }
    panic!("it does not settle");
}

proptest! {
    /// Aggregates of aggregates, in circles too: it settles, and each has the rules of all that it selects, each once.
    #[test]
    fn whatever_selects_whatever_settles(
        plain in prop::collection::vec((0..4_usize, prop::collection::vec(0..6_u8, 0..4)), 0..6),
        sums in prop::collection::vec((prop::option::of(0..4_usize), prop::collection::vec(0..4_usize, 1..3)), 1..4),
    ) {
        const LABELS: [&str; 4] = ["w", "x", "y", "z"];
        let mut roles = Vec::new();
        for (at, (label, rules)) in plain.iter().enumerate() {
            let rules: Vec<_> = rules.iter().map(|number| rule(&[&format!("v{number}")], "pods")).collect();
            roles.push(role(&format!("a{at}"), &[LABELS[*label]], &rules));
        }
        for (at, (label, selected)) in sums.iter().enumerate() {
            let labels: Vec<&str> = label.iter().map(|label| LABELS[*label]).collect();
            let selectors = selected.iter().map(|label| selecting(LABELS[*label])).collect();
            roles.push(aggregate(&format!("s{at}"), &labels, selectors, &[]));
        }
        let (settled, _) = settle(roles);
        for sum in settled.iter().filter(|role| role.aggregation_rule.is_some()) {
            let selectors = view::selectors(sum).unwrap();
            for other in settled.iter().filter(|other| other.metadata.name != sum.metadata.name) {
                if selectors.iter().any(|selector| selector.matches(&other.metadata.labels)) {
                    prop_assert!(other.rules.iter().all(|rule| sum.rules.contains(rule)));
                }
            }
            for (at, rule) in sum.rules.iter().enumerate() {
                prop_assert!(!sum.rules[..at].contains(rule));
            }
        }
    }
}

//! Tables of what fits, and properties of the bytes.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::api::meta::ObjectMeta;
use crate::api::placement::{PlacedSpec, PlacedTemplate};
use crate::api::pod::{NodeAffinity, NodeSelector, PlacedBy, Pod};
use crate::wire::splice::{get, put_bytes};
use crate::wire::{Reader, Value};

fn node(labels: &[(&str, &str)], taints: &[(&str, &str, &str)]) -> Node {
    let metadata =
        ObjectMeta { name: "here".into(), labels: labels.iter().copied().collect(), ..ObjectMeta::default() };
    let mut node = Node { metadata, ..Node::default() };
    node.spec.taints = taints
        .iter()
        .map(|(key, value, effect)| Taint {
            key: (*key).into(),
            value: (*value).into(),
            effect: (*effect).into(),
            time_added: None,
        })
        .collect();
    node
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
    let values = values.iter().copied().map(Str::from).collect();
    NodeSelectorRequirement { key: key.into(), operator: operator.into(), values }
}

fn template(change: impl FnOnce(&mut PlacedSpec)) -> Raw {
    let mut template = PlacedTemplate::default();
    change(&mut template.spec);
    Raw(template.to_bytes().into())
}

fn requiring(terms: Vec<NodeSelectorTerm>) -> Raw {
    template(|spec| {
        let required = NodeSelector { node_selector_terms: terms };
        let node_affinity =
            NodeAffinity { required_during_scheduling_ignored_during_execution: Some(Box::new(required)) };
        spec.affinity = Some(Box::new(PlacedBy { node_affinity: Some(Box::new(node_affinity)) }));
    })
}

fn labels_term(requirements: &[NodeSelectorRequirement]) -> NodeSelectorTerm {
    NodeSelectorTerm { match_expressions: requirements.to_vec(), ..NodeSelectorTerm::default() }
}

fn fields_term(requirements: &[NodeSelectorRequirement]) -> NodeSelectorTerm {
    NodeSelectorTerm { match_fields: requirements.to_vec(), ..NodeSelectorTerm::default() }
}

fn fit(template: &Raw, node: &Node) -> Fit {
    NodeConstraints::of_template(template).unwrap().fit(node, &[], false)
}

fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
    Toleration {
        key: key.into(),
        operator: operator.into(),
        value: value.into(),
        effect: effect.into(),
        seconds: None,
    }
}

#[test]
fn a_template_that_asks_for_nothing_runs_anywhere() {
    assert_eq!(fit(&template(|_| {}), &node(&[], &[])), Fit::Runs);
    assert_eq!(fit(&Raw::default(), &node(&[], &[])), Fit::Runs);
    assert!(Fit::Runs.runs() && Fit::Runs.keeps());
    assert!(!Fit::Keeps.runs() && Fit::Keeps.keeps());
    assert!(!Fit::Excluded.runs() && !Fit::Excluded.keeps());
}

#[test]
fn a_named_node_and_a_selector_decide() {
    let here = node(&[("disk", "ssd"), ("zone", "a")], &[]);
    let named = |name: &str| template(|spec| spec.node_name = name.into());
    assert_eq!(fit(&named("here"), &here), Fit::Runs);
    assert_eq!(fit(&named("there"), &here), Fit::Excluded);
    for (selector, expected) in [
        ([("disk", "ssd"), ("zone", "a")].as_slice(), Fit::Runs),
        (&[("disk", "ssd"), ("zone", "b")], Fit::Excluded),
        (&[("rack", "")], Fit::Excluded),
    ] {
        let template = template(|spec| spec.node_selector = selector.iter().copied().collect());
        assert_eq!(fit(&template, &here), expected, "{selector:?}");
    }
}

#[test]
fn every_operator_of_a_label() {
    let here = node(&[("disk", "ssd"), ("cores", "8"), ("odd", "eight")], &[]);
    for (key, operator, values, matches) in [
        ("disk", "In", ["hdd", "ssd"].as_slice(), true),
        ("disk", "In", &["hdd"], false),
        ("rack", "In", &[""], false),
        ("disk", "NotIn", &["hdd"], true),
        ("disk", "NotIn", &["ssd"], false),
        ("rack", "NotIn", &["1"], true),
        ("disk", "Exists", &[], true),
        ("rack", "Exists", &[], false),
        ("disk", "DoesNotExist", &[], false),
        ("rack", "DoesNotExist", &[], true),
        ("cores", "Gt", &["7"], true),
        ("cores", "Gt", &["8"], false),
        ("cores", "Lt", &["9"], true),
        ("cores", "Lt", &["8"], false),
        ("odd", "Gt", &["7"], false),
        ("rack", "Lt", &["7"], false),
        // Malformed.
        ("disk", "In", &[], false),
        ("disk", "Exists", &["ssd"], false),
        ("cores", "Gt", &["many"], false),
        ("cores", "Gt", &["1", "2"], false),
        ("disk", "Like", &["ssd"], false),
    ] {
        let template = requiring(vec![labels_term(&[requirement(key, operator, values)])]);
        let expected = if matches { Fit::Runs } else { Fit::Excluded };
        assert_eq!(fit(&template, &here), expected, "{key} {operator} {values:?}");
    }
}

#[test]
fn every_operator_of_a_field() {
    let here = node(&[], &[]);
    for (key, operator, values, matches) in [
        ("metadata.name", "In", ["here"].as_slice(), true),
        ("metadata.name", "In", &["there"], false),
        ("metadata.name", "NotIn", &["here"], false),
        ("metadata.name", "NotIn", &["there"], true),
        ("metadata.name", "In", &["here", "there"], false),
        ("metadata.name", "In", &[], false),
        ("metadata.name", "Exists", &[], false),
        ("spec.unschedulable", "NotIn", &["true"], false),
    ] {
        let template = requiring(vec![fields_term(&[requirement(key, operator, values)])]);
        let expected = if matches { Fit::Runs } else { Fit::Excluded };
        assert_eq!(fit(&template, &here), expected, "{key} {operator} {values:?}");
    }
}

#[test]
fn terms_are_alternatives_and_all_of_one_must_hold() {
    let here = node(&[("disk", "ssd")], &[]);
    let holds = || requirement("disk", "Exists", &[]);
    let fails = || requirement("rack", "Exists", &[]);
    let malformed = || requirement("disk", "In", &[]);
    let mixed = NodeSelectorTerm {
        match_expressions: vec![holds()],
        match_fields: vec![requirement("metadata.name", "In", &["there"])],
    };
    for (terms, expected) in [
        (vec![], Fit::Excluded),
        (vec![NodeSelectorTerm::default()], Fit::Excluded),
        (vec![labels_term(&[holds()])], Fit::Runs),
        (vec![labels_term(&[holds(), fails()])], Fit::Excluded),
        (vec![labels_term(&[fails()]), labels_term(&[holds()])], Fit::Runs),
        (vec![labels_term(&[holds(), malformed()])], Fit::Excluded),
        (vec![labels_term(&[malformed()]), labels_term(&[holds()])], Fit::Runs),
        (vec![NodeSelectorTerm::default(), labels_term(&[holds()])], Fit::Runs),
        (vec![mixed], Fit::Excluded),
    ] {
        let told = format!("{terms:?}");
        assert_eq!(fit(&requiring(terms), &here), expected, "{told}");
    }
}

#[test]
fn taints_by_effect() {
    let tolerating = |tolerations: Vec<Toleration>| {
        let constraints = NodeConstraints { tolerations: tolerations.into(), ..NodeConstraints::default() };
        move |effect: &str| constraints.fit(&node(&[], &[("key", "value", effect)]), &[], false)
    };
    let none = tolerating(vec![]);
    assert_eq!(none("NoExecute"), Fit::Excluded);
    assert_eq!(none("NoSchedule"), Fit::Keeps);
    assert_eq!(none("PreferNoSchedule"), Fit::Runs);
    let scheduling = tolerating(vec![toleration("key", "Exists", "", "NoSchedule")]);
    assert_eq!(scheduling("NoExecute"), Fit::Excluded);
    assert_eq!(scheduling("NoSchedule"), Fit::Runs);
    let both = node(&[], &[("a", "", "NoSchedule"), ("b", "", "NoExecute")]);
    assert_eq!(NodeConstraints::default().fit(&both, &[], false), Fit::Excluded);
    let also = [toleration("b", "Exists", "", "")];
    assert_eq!(NodeConstraints::default().fit(&both, &also, false), Fit::Keeps);
}

#[test]
fn every_operator_of_a_toleration() {
    let taint = |value: &str| Taint {
        key: "sla".into(),
        value: value.into(),
        effect: "NoSchedule".into(),
        time_added: None,
    };
    for (key, operator, value, effect, of, plain, comparing) in [
        ("sla", "Exists", "", "", "950", true, true),
        ("sla", "Exists", "", "NoExecute", "950", false, false),
        ("other", "Exists", "", "", "950", false, false),
        ("", "Exists", "", "NoSchedule", "950", true, true),
        ("sla", "Equal", "950", "NoSchedule", "950", true, true),
        ("sla", "", "950", "", "950", true, true),
        ("sla", "", "95", "", "950", false, false),
        // The API server refuses it, and has not always.
        ("", "", "950", "", "950", true, true),
        ("", "Equal", "95", "", "950", false, false),
        ("sla", "Gt", "900", "", "950", false, true),
        ("sla", "Gt", "950", "", "950", false, false),
        ("sla", "Lt", "999", "", "950", false, true),
        ("sla", "Lt", "950", "", "950", false, false),
        ("sla", "Gt", "5", "", "007", false, false),
        ("sla", "Gt", "05", "", "7", false, false),
        ("sla", "Lt", "+8", "", "7", false, false),
        ("sla", "Lt", "8", "", "-0", false, false),
        ("sla", "Lt", "8", "", "-00", false, false),
        ("sla", "Gt", "-8", "", "0", false, true),
        ("sla", "Lt", "8", "", "-7", false, true),
        ("sla", "Gt", "9223372036854775808", "", "7", false, false),
        ("sla", "Gt", "900", "", "high", false, false),
        ("sla", "Gt", "low", "", "950", false, false),
        ("sla", "Like", "950", "", "950", false, false),
    ] {
        let toleration = toleration(key, operator, value, effect);
        let taint = taint(of);
        assert_eq!(
            [false, true].map(|comparing| tolerates(&toleration, &taint, comparing)),
            [plain, comparing],
            "{toleration:?} {taint:?}"
        );
    }
}

fn spec_of(tolerations: &[Toleration]) -> Vec<u8> {
    let mut spec = b"\x92\x3f\x04spec".to_vec();
    for toleration in tolerations {
        spec = tolerating(&spec, std::slice::from_ref(toleration)).unwrap();
    }
    spec
}

fn tolerated(spec: &[u8]) -> Vec<Toleration> {
    let spec = PlacedSpec::decode(&Bytes::copy_from_slice(spec)).unwrap();
    spec.tolerations.into_iter().map(Toleration::from).collect()
}

#[test]
fn what_is_tolerated_already_is_replaced_where_it_stands() {
    let not_ready = toleration("not-ready", "Exists", "", "NoExecute");
    let brief = Toleration { seconds: Some(5), ..not_ready.clone() };
    let other = toleration("other", "Equal", "1", "");
    let pressure = toleration("pressure", "Exists", "", "NoSchedule");
    let spec = spec_of(&[brief, other.clone()]);
    let made = tolerating(&spec, &[pressure.clone(), not_ready.clone()]).unwrap();
    assert_eq!(tolerated(&made), [not_ready, other, pressure]);
    assert!(made.starts_with(b"\x92\x3f\x04spec"), "what is not known stays");
}

#[test]
fn a_pod_is_meant_for_one_node_and_keeps_the_rest_of_its_affinity() {
    let mut node_affinity = Vec::new();
    put_bytes(&mut node_affinity, 1, b"\x0a\x00");
    put_bytes(&mut node_affinity, 2, b"preferred");
    let mut affinity = Vec::new();
    put_bytes(&mut affinity, 1, &node_affinity);
    put_bytes(&mut affinity, 3, b"pod anti-affinity");
    let mut spec = Vec::new();
    put_bytes(&mut spec, 18, &affinity);
    put_bytes(&mut spec, 900, b"of tomorrow");
    let mut pod = Vec::new();
    put_bytes(&mut pod, 2, &spec);

    let made = meant_for(&pod, &"here".into()).unwrap();
    assert_eq!(Pod::decode(&Bytes::from(made.clone())).unwrap().target_node(), Some(&"here".into()));
    assert_eq!(get(&made, &[2, 18, 1, 2]).unwrap(), Some(Value::Bytes(b"preferred")));
    assert_eq!(get(&made, &[2, 18, 3]).unwrap(), Some(Value::Bytes(b"pod anti-affinity")));
    assert_eq!(get(&made, &[2, 900]).unwrap(), Some(Value::Bytes(b"of tomorrow")));
    let terms = get(&made, &[2, 18, 1, 1]).unwrap().unwrap().bytes().unwrap();
    let mut fields = Reader::new(terms);
    assert!(fields.next_field().unwrap().is_some() && fields.next_field().unwrap().is_none(), "one term");
    // Where there is no affinity at all, too.
    let made = meant_for(&[], &"here".into()).unwrap();
    assert_eq!(Pod::decode(&Bytes::from(made)).unwrap().target_node(), Some(&"here".into()));
}

fn any_requirement() -> impl Strategy<Value = NodeSelectorRequirement> {
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "?"];
    (0..2_usize, 0..operators.len(), prop::collection::vec(0..3_u8, 0..3)).prop_map(
        move |(key, operator, values)| NodeSelectorRequirement {
            key: ["a", "metadata.name"][key].into(),
            operator: operators[operator].into(),
            values: values.into_iter().map(|value| Str::from(value.to_string())).collect(),
        },
    )
}

proptest! {
    /// Who tolerates more fits no worse; more taints fit no better; another term helps, if anything.
    #[test]
    fn fits_are_ordered(
        terms in prop::collection::vec(prop::collection::vec(any_requirement(), 0..3), 0..3),
        label in 0..3_u8,
        effects in prop::collection::vec(0..3_usize, 0..3),
    ) {
        let rank = |fit: Fit| [Fit::Excluded, Fit::Keeps, Fit::Runs].iter().position(|held| *held == fit);
        let label = label.to_string();
        let taints: Vec<_> =
            effects.iter().map(|at| ("k", "", ["NoExecute", "NoSchedule", "PreferNoSchedule"][*at])).collect();
        let here = node(&[("a", &label)], &taints);
        let terms: Vec<_> = terms.iter().map(|held| labels_term(held)).collect();
        let constraints = NodeConstraints::of_template(&requiring(terms.clone())).unwrap();
        let plain = constraints.fit(&here, &[], false);
        let everything = [toleration("", "Exists", "", "")];
        prop_assert!(rank(plain) <= rank(constraints.fit(&here, &everything, false)));
        let untainted = node(&[("a", &label)], &[]);
        prop_assert_eq!(constraints.fit(&here, &everything, false), constraints.fit(&untainted, &[], false));
        for drop in 0..terms.len() {
            let mut fewer = terms.clone();
            fewer.remove(drop);
            prop_assert!(rank(fit(&requiring(fewer), &here)) <= rank(plain));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), node in "[a-z]{0,4}") {
        let raw = Raw(Bytes::from(bytes.clone()));
        if let Ok(constraints) = NodeConstraints::of_template(&raw) {
            constraints.fit(&Node::default(), &[], true);
        }
        let added = [toleration("k", "Exists", "", "")];
        if let Ok(spec) = tolerating(&bytes, &added) {
            prop_assert_eq!(&tolerating(&spec, &added).unwrap(), &spec);
        }
        if let Ok(pod) = meant_for(&bytes, &Str::from(node.as_str())) {
            prop_assert_eq!(&meant_for(&pod, &Str::from(node.as_str())).unwrap(), &pod);
        }
    }
}

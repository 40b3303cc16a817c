//! Until when tolerations hold off a taint, and which devices rules select.

use super::super::verdict::{Evicting, Source, selects, until};
use super::fixtures::{SINCE, at, claim, exists, rule};
use coxswain_machinery::api::resource::DeviceToleration;
use coxswain_machinery::wire::Time;

fn taint(value: &str) -> Evicting {
    Evicting {
        source: Source::Rule { name: "r".into(), uid: "r".into() },
        key: "a".into(),
        value: value.into(),
        since: Time::from_seconds(SINCE),
    }
}

fn equal(value: &str, operator: &str) -> DeviceToleration {
    DeviceToleration { operator: operator.into(), value: value.into(), ..exists("a", None) }
}

#[test]
fn of_the_tolerations_that_match_the_shortest_time_counts_from_when_the_taint_came() {
    let of_any_effect = DeviceToleration { effect: "".into(), ..exists("a", None) };
    for (what, tolerations, seconds) in [
        ("none", vec![], Some(0)),
        ("for ever", vec![exists("a", None)], None),
        ("of any key", vec![exists("", None)], None),
        ("of another key", vec![exists("b", None)], Some(0)),
        ("of any effect", vec![of_any_effect], Some(0)),
        ("of the value", vec![equal("x", "Equal")], None),
        ("of the value, without an operator", vec![equal("x", "")], None),
        ("of another value", vec![equal("y", "Equal")], Some(0)),
        ("of an operator that nobody knows", vec![equal("x", "Gt")], Some(0)),
        ("for a time", vec![exists("a", Some(5))], Some(5)),
        ("for less than nothing", vec![exists("a", Some(-5))], Some(0)),
        ("for several times", vec![exists("a", Some(9)), exists("a", Some(5))], Some(5)),
        ("for a time and for ever", vec![exists("a", Some(9)), exists("a", None)], None),
    ] {
        assert_eq!(until(&taint("x"), &tolerations), seconds.map(at), "{what}");
    }
    let last = until(&taint("x"), &[exists("a", Some(i64::MAX))]);
    assert_eq!(last, Some(jiff::Timestamp::MAX), "longer than clocks tell");
    let timeless = Evicting { since: None, ..taint("x") };
    assert!(until(&timeless, &[]).unwrap() < at(0), "one without a time has always been there");
}

#[test]
fn a_rule_selects_what_all_that_it_says_is_true_of() {
    let claim = claim(vec![]);
    let device = &claim.status.allocation.as_ref().unwrap().devices.results[0];
    for (selector, is_selected) in [
        (None, false),
        (Some(["*", "*", "*"]), true),
        (Some(["d", "p", "a"]), true),
        (Some(["d", "*", "*"]), true),
        (Some(["e", "*", "*"]), false),
        (Some(["d", "q", "*"]), false),
        (Some(["d", "p", "b"]), false),
    ] {
        assert_eq!(selects(&rule(selector, "NoExecute"), device), is_selected, "{selector:?}");
    }
}

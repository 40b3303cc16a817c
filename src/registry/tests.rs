//! What a registry must be, and that ours is what was observed of the original.

use std::collections::{BTreeMap, BTreeSet};

use super::{REGISTRY, RegistryError, find, not_built, validate};
use crate::framework::{DefaultState, Descriptor};

const CONTROLLERS: &str = include_str!("../../tests/data/peer/controllers.tsv");
const ACCOUNTS: &str = include_str!("../../tests/data/peer/service-accounts.txt");
const ACCOUNTS_BY_CONTROLLER: &str = include_str!("../../tests/data/peer/service-accounts-by-controller.tsv");

const fn named(name: &'static str, aliases: &'static [&'static str]) -> Descriptor {
    not_built(name, aliases, None, "Does nothing.")
}

#[test]
fn the_registry_is_valid() {
    assert_eq!(validate(REGISTRY), Ok(()));
    assert_eq!(validate(&[]), Ok(()));
}

#[test]
fn a_registry_whose_names_are_ambiguous_is_refused() {
    let conflict = |alias, controller, other| Err(RegistryError::AliasConflict { alias, controller, other });
    for (registry, expected) in [
        (vec![named("a", &[]), named("a", &[])], Err(RegistryError::DuplicateName { name: "a" })),
        (vec![named("a", &["x"]), named("b", &["x"])], conflict("x", "b", "a")),
        (vec![named("a", &[]), named("b", &["a"])], conflict("a", "b", "a")),
        (vec![named("b", &["a"]), named("a", &[])], conflict("a", "b", "a")),
        (vec![named("a", &["a"])], conflict("a", "a", "a")),
        (vec![named("a", &["x", "x"])], conflict("x", "a", "a")),
        (vec![named("a", &["x"]), named("b", &["y"])], Ok(())),
    ] {
        assert_eq!(validate(&registry), expected);
    }
}

#[test]
fn a_registry_that_could_not_run_is_refused() {
    let gated = Descriptor { gates: &["Nonsense"], ..named("a", &[]) };
    assert_eq!(validate(&[gated]), Err(RegistryError::UnknownGate { controller: "a", gate: "Nonsense" }));
    let first = Descriptor { special: true, ..named("a", &[]) };
    let second = Descriptor { special: true, ..named("b", &[]) };
    assert_eq!(validate(&[first, second]), Err(RegistryError::SecondSpecial { controller: "b", other: "a" }));
    for name in ["", "-a", "a-", "A", "a b", "*", "a,b"] {
        assert_eq!(validate(&[named(name, &[])]), Err(RegistryError::BadName { name }), "{name:?}");
    }
}

#[test]
fn every_controller_is_as_observed() {
    let default = |descriptor: &Descriptor| if descriptor.default == DefaultState::On { "on" } else { "off" };
    let ours: Vec<[String; 5]> = REGISTRY
        .iter()
        .map(|d| {
            let cloud = if d.cloud { "cloud" } else { "" };
            [d.name.into(), d.aliases.join(","), default(d).into(), d.gates.join(","), cloud.into()]
        })
        .collect();
    let observed: Vec<[String; 5]> = CONTROLLERS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut fields = line.split('\t').map(str::to_owned);
            std::array::from_fn(|_| fields.next().unwrap_or_default())
        })
        .collect();
    assert_eq!(ours, observed);
    assert_eq!(ours.len(), 52);
}

#[test]
fn every_controller_has_the_account_that_was_observed() {
    let observed: BTreeMap<&str, &str> = ACCOUNTS_BY_CONTROLLER
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once('\t').unwrap_or((line, "")))
        .collect();
    for descriptor in REGISTRY {
        assert_eq!(
            descriptor.service_account.unwrap_or(""),
            observed[descriptor.name],
            "{}",
            descriptor.name
        );
    }
    let used: BTreeSet<&str> = REGISTRY.iter().filter_map(|descriptor| descriptor.service_account).collect();
    for account in ACCOUNTS.lines() {
        assert!(used.contains(account), "no controller uses {account}, which the original makes");
    }
}

#[test]
fn only_the_token_controller_is_special() {
    let special: Vec<&str> = REGISTRY.iter().filter(|d| d.special).map(|d| d.name).collect();
    assert_eq!(special, ["serviceaccount-token-controller"]);
}

#[test]
fn a_description_is_one_sentence() {
    for d in REGISTRY {
        assert!(d.description.ends_with('.') && d.description.matches(". ").count() == 0, "{}", d.name);
    }
}

#[test]
fn names_and_aliases_are_found() {
    assert_eq!(find("deployment-controller").map(|d| d.name), Some("deployment-controller"));
    assert_eq!(find("podgc").map(|d| d.name), Some("pod-garbage-collector-controller"));
    assert!(find("nonsense").is_none());
}

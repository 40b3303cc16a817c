//! The gates against the observed table, and the rules of settings.

use std::collections::BTreeMap;

use super::{FeatureGates, Stage, TABLE};
use crate::options::composite::ComponentSettings;
use crate::options::error::{OptionError, OptionWarning};
use crate::options::value::{FlagValue, Repetition};
use crate::options::versions::{CURRENT, MinorVersion};

const BY_VERSION: &str = include_str!("../../../../../tests/data/peer/feature-gates-by-version.tsv");
const LISTED: &str = include_str!("../../../../../tests/data/peer/feature-gates.tsv");

fn version(minor: u16) -> MinorVersion {
    MinorVersion { major: 1, minor }
}

fn complete(text: &str, minor: u16) -> (FeatureGates, Vec<OptionError>, Vec<OptionWarning>) {
    let mut settings = ComponentSettings::default();
    settings.set(text, Repetition::First).unwrap();
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    let gates = FeatureGates::complete(&settings, version(minor), &mut errors, &mut warnings);
    (gates, errors, warnings)
}

fn valid(text: &str, minor: u16) -> FeatureGates {
    let (gates, errors, _) = complete(text, minor);
    assert_eq!(errors, [], "{text}");
    gates
}

fn error(text: &str, minor: u16) -> String {
    let (_, errors, _) = complete(text, minor);
    assert_eq!(errors.len(), 1, "{text}: {errors:?}");
    errors[0].to_string()
}

#[test]
fn the_table_is_ordered_and_consistent() {
    assert!(TABLE.is_sorted_by(|a, b| a.name < b.name), "enabled() searches it by halves");
    for gate in TABLE {
        assert!(gate.history.is_sorted_by(|a, b| a.since < b.since), "{}", gate.name);
        for need in gate.needs {
            assert!(super::index(need).is_some(), "{} needs {need}", gate.name);
        }
    }
}

#[test]
fn every_gate_is_as_observed_in_every_release() {
    let mut observed: BTreeMap<(&str, &str), (&str, &str, &str)> = BTreeMap::new();
    for line in BY_VERSION.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        observed.insert((fields[0], fields[1]), (fields[2], fields[3], fields[4]));
    }
    let mut ours = BTreeMap::new();
    let versions: Vec<String> = (33..=36).map(|minor| version(minor).to_string()).collect();
    for (version, minor) in versions.iter().zip(33..) {
        for gate in TABLE {
            if let Some(phase) = gate.at(self::version(minor)) {
                let stage = if phase.stage == Stage::Ga { "GA" } else { phase.stage.label() };
                let default = if phase.default { "true" } else { "false" };
                let locked = if phase.locked { "locked" } else { "" };
                ours.insert((version.as_str(), gate.name), (stage, default, locked));
            }
        }
    }
    assert_eq!(ours, observed);
}

#[test]
fn what_the_original_lists_is_there_with_its_default() {
    let gates = FeatureGates::default();
    let states: BTreeMap<&str, _> = gates.iter().map(|state| (state.name, state)).collect();
    let mut listed = 0;
    for line in LISTED.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let state = states[fields[0]];
        assert_eq!(
            (state.stage.label(), state.enabled.to_string().as_str()),
            (fields[1], fields[2]),
            "{line}"
        );
        listed += 1;
    }
    assert_eq!(listed, 150);
}

#[test]
fn a_setting_wins_over_all_of_its_stage_in_any_order() {
    for text in ["AllAlpha=true,HPAScaleToZero=false", "HPAScaleToZero=false,AllAlpha=true"] {
        let gates = valid(text, 36);
        assert!(!gates.enabled("HPAScaleToZero"), "{text}");
        assert!(gates.enabled("MutablePVNodeAffinity"), "{text}");
        assert!(!gates.enabled("MaxUnavailableStatefulSet"), "a beta gate is not alpha's");
    }
    let gates = valid("AllBeta=true", 36);
    assert!(gates.enabled("MaxUnavailableStatefulSet") && !gates.enabled("HPAScaleToZero"));
    let gates = valid("AllBeta=false,PodDeletionCost=true", 36);
    assert!(gates.enabled("PodDeletionCost") && !gates.enabled("WatchListClient"));
    assert!(gates.enabled("DynamicResourceAllocation"), "finished features stay on");
}

#[test]
fn the_last_setting_of_a_gate_wins() {
    assert!(valid("kube:HPAScaleToZero=false,kube:HPAScaleToZero=true", 36).enabled("HPAScaleToZero"));
}

#[test]
fn only_who_names_a_gate_switches_it_off() {
    let gates = valid("AllAlpha=false,HPAScaleToZero=false,PodDeletionCost=true", 36);
    assert!(gates.is_switched_off("HPAScaleToZero"));
    for other in ["PodDeletionCost", "ControllerManagerReleaseLeaderElectionLockOnExit", "Nonsense"] {
        assert!(!gates.is_switched_off(other), "{other}");
    }
    assert!(!valid("HPAScaleToZero=false,HPAScaleToZero=true", 36).is_switched_off("HPAScaleToZero"));
    assert!(!FeatureGates::default().is_switched_off("HPAScaleToZero"));
}

#[test]
fn what_can_not_be_is_refused() {
    assert!(error("HPAScaleToZer=true", 36).contains("HPAScaleToZero"));
    assert!(error("Nonsense=true", 36).contains("--feature-gates: unknown feature gate \"Nonsense\""));
    assert!(error("DynamicResourceAllocation=false", 36).contains("locked"));
    assert!(error("HPAScaleToZero=maybe", 36).contains("true, false"));
    assert!(error("other:HPAScaleToZero=true", 36).contains("unknown component \"other\""));
    assert!(error("AtomicFIFO=true", 33).contains("--emulated-version=1.36 or later"));
    assert!(error("GangScheduling=true", 36).contains("GenericWorkload=true"));
    assert!(error("HPAScaleToZero=true,kube:AllAlpha=false", 36).contains("for all gates or for none"));
    let (_, errors, _) = complete("StorageVersionAPI=true,APIServerIdentity=false", 36);
    assert!(errors[0].to_string().contains("StorageVersionAPI is enabled, but requires APIServerIdentity"));
    let (_, errors, _) = complete("A=true,B=true,DynamicResourceAllocation=false", 36);
    assert_eq!(errors.len(), 3, "all are reported together");
}

#[test]
fn a_locked_gate_may_be_set_to_what_it_is() {
    let (gates, errors, warnings) = complete("DynamicResourceAllocation=true", 36);
    assert!(gates.enabled("DynamicResourceAllocation") && errors.is_empty());
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].message.contains("the feature is GA"));
}

#[test]
fn an_emulated_release_has_its_own_defaults() {
    let old = valid("", 33);
    assert!(!old.enabled("DynamicResourceAllocation") && !old.enabled("AtomicFIFO"));
    assert!(old.iter().all(|state| state.name != "AtomicFIFO"));
    assert!(valid("", CURRENT.minor).enabled("AtomicFIFO"));
}

#[test]
fn unknown_is_off() {
    assert!(!FeatureGates::default().enabled("Nonsense"));
}

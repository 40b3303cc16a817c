//! Gates: `tests/gates.tsv` says of each whose it is, what it switches here, and which tests show it. What is said to switch
//! something is asked for, and nothing else is.

use std::path::{Path, PathBuf};

use coxswain_machinery::options::gates::{FeatureGates, Gate, TABLE, WITHOUT_EFFECT};
use coxswain_machinery::options::versions::CURRENT;

use super::{CRATES, complain, sources};
use crate::behaviour::exists;

/// Whose each gate is.
pub(crate) const OWNERS: &str = include_str!("../../tests/gates.tsv");

/// Components that have the same table of gates.
const OTHERS: [&str; 4] = ["API server", "cloud controller manager", "kubelet", "scheduler"];
/// What else a row may say instead.
const OURS: [&str; 3] = ["locked", "manager", "no effect"];
/// These are asked for where gates are set.
const OF_ALL: [&str; 2] = ["AllAlpha", "AllBeta"];

/// A row of the table.
struct Row {
    name: &'static str,
    owner: &'static str,
    switches: &'static str,
    tests: &'static str,
}

fn rows() -> Vec<Row> {
    let lines = OWNERS.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
            [name, owner, switches, tests] => Row { name, owner, switches, tests },
            ref other => panic!("four columns are due: {other:?}"),
        })
        .collect()
}

/// Whether one of these texts stands somewhere in the program.
fn is_anywhere(texts: &[String], sources: &[(PathBuf, String)]) -> bool {
    let is_other = |path: &Path| {
        let path = path.to_string_lossy();
        path.contains("tests")
            || path.contains("options/gates")
            || path.ends_with("tidy/gates.rs")
            || path.ends_with("registry.rs")
    };
    let mut asking = sources.iter().filter(|(path, _)| !is_other(path));
    asking.any(|(_, source)| texts.iter().any(|text| source.contains(text.as_str())))
}

fn is_locked(gate: &Gate) -> bool {
    gate.at(CURRENT).is_some_and(|phase| phase.locked)
}

#[test]
fn each_gate_switches_what_tests_show_or_is_said_to_switch_nothing_here() {
    let rows = rows();
    let listed: Vec<&str> = rows.iter().map(|row| row.name).collect();
    let names: Vec<&str> = TABLE.iter().map(|gate| gate.name).collect();
    assert_eq!(listed, names, "tests/gates.tsv has a row for each gate, by name");
    assert_eq!(FeatureGates::default().iter().count(), names.len(), "none was given up before this release");
    let sources: Vec<_> = CRATES.into_iter().flat_map(sources).collect();
    let mut complaints = Vec::new();
    for (gate, row) in TABLE.iter().zip(&rows) {
        let Row { name, owner, switches, tests } = *row;
        let mut complain = |what: &str| complaints.push(format!("{name}: {what}"));
        let asked = if owner == "manager" {
            is_anywhere(&[format!("\"{name}\"")], &sources) || OF_ALL.contains(&name)
        } else {
            let asks = ["enabled(", "gate(", "gate)("].map(|asks| format!("{asks}\"{name}\")"));
            is_anywhere(&asks, &sources)
        };
        let why = WITHOUT_EFFECT.iter().find(|(held, _)| *held == name).map(|(_, why)| *why);
        match owner {
            "manager" if !asked => complain("nothing asks for it"),
            "manager" if switches == "-" || tests == "-" => complain("what it switches, and tests, are due"),
            "no effect" if why != Some(switches) => complain("--help says otherwise why it has none"),
            "locked" if !is_locked(gate) => complain("it can be set"),
            owner if OURS.contains(&owner) || OTHERS.contains(&owner) => {}
            _ => complain("it is nobody's"),
        }
        if asked && owner != "manager" {
            complain("it is asked for, so it is the manager's");
        }
        if why.is_some() != (owner == "no effect") {
            complain("--help says otherwise whether it has an effect");
        }
        if owner != "manager" && tests != "-" {
            complain("nothing can be shown");
        }
        for test in tests.split(' ').filter(|test| *test != "-" && !exists(test)) {
            complain(&format!("there is no test {test}"));
        }
    }
    complain(&complaints);
}

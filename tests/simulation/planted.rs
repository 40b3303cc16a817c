//! Whether planted bugs are found: each within a few seeds, and by the rule that is there for it.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::invariants::RULES;
use crate::mutants::{Mutant, all, one_for_each_rule};
use crate::run::{ENDS, RESTS, SETTLES, Setup, run};
use crate::{by_depth, setup, side_by_side};

/// As many as a run of a minute has, or fewer.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=12;
/// By which seeds bugs were found that are not found by the first. They are tried first, which takes a tenth of the time.
const FOUND: &str = include_str!("found.txt");
const PLACE: &str = "tests/simulation/found.txt";

/// The seed by which a bug was found when this was looked up last.
fn found_by(mutant: &Mutant) -> Option<u64> {
    let held = FOUND.lines().filter_map(|line| line.strip_prefix("seed ")?.split_once(": "));
    held.filter(|(_, name)| *name == mutant.name).find_map(|(seed, _)| seed.parse().ok())
}

/// How a bug was found by the first of these seeds that finds it; what was found in its place if it was not.
fn find(mutant: &Mutant, seeds: impl Iterator<Item = u64>) -> Result<(u64, String), String> {
    let mut others = Vec::new();
    for seed in seeds.filter(|seed| (mutant.can_show)(*seed)) {
        let settles_within = Duration::from_mins(20);
        let report = run(&Setup { mutant: Some(*mutant), settles_within, ..setup(seed) });
        if let Some(held) = report.violations.iter().find(|held| mutant.is_found_by(&held.rule)) {
            return Ok((seed, format!("{}: seed {seed}, {}: {}", mutant.name, held.rule, held.what)));
        }
        others.extend(report.violations.into_iter().map(|held| held.rule));
    }
    Err(format!("{} is not found; found are {others:?}", mutant.name))
}

fn are_found(mutants: &[Mutant]) {
    let found = side_by_side(mutants, |mutant| {
        let from = Instant::now();
        let known = found_by(mutant);
        let found = find(mutant, known.into_iter().chain(SEEDS.filter(|seed| Some(*seed) != known)));
        println!("{:>6.1} s {found:?}", from.elapsed().as_secs_f64());
        found
    });
    let missed: Vec<String> = found.into_iter().filter_map(Result::err).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Looks up by which seeds all are found, of many, and writes that down.
#[test]
#[ignore = "COXSWAIN_REGENERATE=1 cargo test --test simulation -- --ignored planted"]
fn all_are_looked_up() {
    assert!(std::env::var_os("COXSWAIN_REGENERATE").is_some(), "it writes {PLACE}");
    let mutants: Vec<Mutant> = all().collect();
    let mut lines = side_by_side(&mutants, |mutant| match find(mutant, 1..=60) {
        Ok((1, _)) => String::new(),
        Ok((seed, _)) => format!("seed {seed}: {}\n", mutant.name),
        Err(missed) => panic!("{missed}"),
    });
    lines.sort();
    std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(PLACE), lines.concat()).expect("it is written");
}

#[test]
fn a_planted_bug_is_found_for_each_rule() {
    are_found(&one_for_each_rule().collect::<Vec<_>>());
}

#[test]
fn all_other_planted_bugs_are_found() {
    let is_first = |mutant: &Mutant| one_for_each_rule().any(|first| first.name == mutant.name);
    let others: Vec<Mutant> = all().filter(|mutant| !is_first(mutant)).collect();
    assert!(!others.is_empty());
    are_found(by_depth::<&[Mutant]>(&[], &others));
}

/// Who writes a rule that nothing can break writes no rule. What finds no planted bug in `make test` is named here.
#[test]
fn every_rule_has_a_planted_bug() {
    let of_rooms = RULES.iter().map(|row| format!("{}: {}", row.room, row.name));
    let rules: Vec<String> = of_rooms.chain([SETTLES, RESTS, ENDS].map(str::to_owned)).collect();
    let without = rules.iter().filter(|rule| !one_for_each_rule().any(|mutant| mutant.is_found_by(rule)));
    assert_eq!(without.collect::<Vec<_>>(), [""; 0]);
    // One that two rules could find would be found by the wrong one.
    let breaks = |mutant: &Mutant| rules.iter().filter(|rule| mutant.is_found_by(rule)).count();
    let vague = all().filter(|mutant| breaks(mutant) != 1).map(|mutant| mutant.name);
    assert_eq!(vague.collect::<Vec<_>>(), [""; 0]);
}

//! A simulated cluster: the whole manager, unchanged, against a model of the API server, in one thread and in virtual time.
//! Everything random follows from one seed.
//!
//! `make simulate` runs new seeds for a minute; `SEED=… make simulate` runs one again, with its trace. ARCHITECTURE.md says
//! what is modelled.

#![expect(
    clippy::disallowed_methods,
    reason = "a simulation takes its own thread, and looks at the wall clock"
)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot go on says why and fails"
)]

mod actors;
mod bindings;
mod dice;
mod faults;
mod fleet;
mod invariants;
mod model;
mod mutants;
mod reply;
mod run;
mod server;
mod trace;

use std::time::{Duration, Instant};

use faults::Muted;
use run::{Report, Setup, run, shrink};

/// For how long there is trouble in a run.
const TURMOIL: Duration = Duration::from_mins(7);

fn setup(seed: u64) -> Setup {
    let settles_within = Duration::from_mins(50);
    Setup {
        seed,
        turmoil: TURMOIL,
        settles_within,
        faults: true,
        mutant: None,
        traced: false,
        muted: Muted::new(),
    }
}

fn holds(setup: &Setup) -> Report {
    let report = run(setup);
    if report.violations.is_empty() {
        return report;
    }
    println!("{}\nSEED={} make simulate shows all of it; now with less", report.story(), report.seed);
    let (least, report) = shrink(setup, report);
    let needed: Vec<&str> = report.faults.keys().copied().collect();
    panic!("{}\nof faults it needs {needed:?}, and it does without {:?}", report.story(), least.muted)
}

#[test]
fn a_run_without_faults_ends_as_it_is_wished_for() {
    let report = holds(&Setup { faults: false, ..setup(1) });
    assert_eq!(report.faults(), 0);
    assert!(report.counts.writes > 100, "{report}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let traced = |seed| run(&Setup { traced: true, turmoil: Duration::from_mins(3), ..setup(seed) });
    let (first, again) = (traced(7), traced(7));
    for (at, (one, other)) in first.trace.lines().zip(again.trace.lines()).enumerate() {
        assert_eq!(one, other, "line {at}");
    }
    assert_eq!((first.trace.digest(), first.trace.count), (again.trace.digest(), again.trace.count));
    assert_ne!(first.trace.digest(), traced(8).trace.digest());
}

#[test]
fn nothing_that_must_hold_is_broken_by_faults() {
    for seed in 1..=3 {
        println!("{}", holds(&setup(seed)));
    }
}

/// Each within a few seeds, and by the rule that is there for it.
#[test]
fn planted_bugs_are_found() {
    let find = |mutant: &mutants::Mutant| {
        let mut others = Vec::new();
        let found = (1..=12).find_map(|seed| {
            let settles_within = Duration::from_mins(20);
            let report = run(&Setup { mutant: Some(*mutant), settles_within, ..setup(seed) });
            let found = report.violations.iter().find(|held| held.rule.ends_with(mutant.breaks));
            others.extend(report.violations.iter().map(|held| held.rule.clone()));
            found.map(|held| format!("seed {seed}, {}: {}", held.rule, held.what))
        });
        println!("{}: {found:?}", mutant.name);
        found.is_none().then(|| format!("{} is not found; found are {others:?}", mutant.name))
    };
    let missed: Vec<String> = mutants::MUTANTS.iter().filter_map(find).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Who writes a rule that nothing can break writes no rule. What finds no planted bug is named here.
#[test]
fn every_rule_has_a_planted_bug() {
    let has_none = |row: &&invariants::Row| !mutants::MUTANTS.iter().any(|mutant| mutant.breaks == row.name);
    let without: Vec<&str> = invariants::RULES.iter().filter(has_none).map(|row| row.name).collect();
    assert_eq!(without, [""; 0]);
}

/// New seeds for a minute, or one again (with the planted bug of this number): what `make simulate` runs.
#[test]
#[ignore = "make simulate"]
fn simulate() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let Some(seed) = number("SEED") {
        let mutant = number("MUTANT").and_then(|at| mutants::MUTANTS.get(at as usize)).copied();
        let report = run(&Setup { traced: true, mutant, ..setup(seed) });
        for line in report.trace.lines() {
            println!("{line}");
        }
        println!("{report}\n{:#?}", report.faults);
        assert!(report.violations.is_empty(), "{:#?}", report.violations);
        return;
    }
    let began = Instant::now();
    let within = Duration::from_secs(number("SECONDS").unwrap_or(60));
    let first = number("FROM").unwrap_or_else(|| u64::from(coxswain_machinery::random::within(1..u32::MAX)));
    let (mut lasted, mut faults, mut writes, mut runs) = (Duration::ZERO, 0, 0, 0);
    for seed in first.. {
        let report = holds(&setup(seed));
        println!("{report}");
        lasted += report.lasted;
        faults += report.faults();
        writes += report.counts.writes;
        runs += 1;
        if began.elapsed() > within {
            break;
        }
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{runs} seeds from {first} in {took:.0} s: {faults} faults, {writes} writes, {:.0} virtual hours per hour",
        lasted.as_secs_f64() / took
    );
}

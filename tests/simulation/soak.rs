//! `make simulate`: new seeds for a minute, for an hour, or one seed again with all that happens; with faults or without.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::actors;
use crate::faults::{FATES, Muted};
use crate::mutants::{Mutant, all};
use crate::run::{Report, Setup, run};
use crate::{holds, new_seed, setup, side_by_side};

/// Longer runs say once a minute how far they are, and not what came of each seed.
const SHORT: Duration = Duration::from_mins(5);
const MINUTE: Duration = Duration::from_mins(1);

/// What came of all seeds so far.
struct Totals {
    began: Instant,
    /// When it is said again how far it is.
    next: Duration,
    lasted: Duration,
    seeds: u64,
    faults: u64,
    writes: u64,
    /// Seeds that failed, and the rules that were broken.
    failed: Vec<u64>,
    rules: BTreeSet<String>,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.lasted += report.lasted;
        self.faults += report.faults();
        self.writes += report.counts.writes;
    }

    fn line(&self, first: u64) -> String {
        let took = self.began.elapsed().as_secs_f64();
        format!(
            "{} seeds from {first} in {took:.0} s: {} faults, {} writes, {:.0} virtual hours per hour, {} MiB, {} failed",
            self.seeds,
            self.faults,
            self.writes,
            self.lasted.as_secs_f64() / took,
            resident(),
            self.failed.len(),
        )
    }
}

/// How much memory this process has, in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1024
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// The planted bug that is asked for, by a part of its name.
fn mutant() -> Option<Mutant> {
    let name = std::env::var("MUTANT").ok()?;
    let found = all().find(|mutant| mutant.name.contains(&name));
    Some(found.unwrap_or_else(|| {
        panic!(
            "of planted bugs there are:\n{}",
            all().map(|mutant| mutant.name).collect::<Vec<_>>().join("\n")
        )
    }))
}

/// What is not to happen, by its names, between commas.
fn muted() -> Muted {
    let names = std::env::var("WITHOUT").unwrap_or_default();
    let known = |name: &str| {
        let held = FATES.iter().copied().chain(actors::mishaps()).chain(actors::acts());
        held.into_iter().find(|held| *held == name).unwrap_or_else(|| panic!("nothing is called {name:?}"))
    };
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(known).collect()
}

/// One run, with all that happens.
fn show(setup: &Setup) {
    let report = run(&Setup { traced: true, ..setup.clone() });
    for line in report.trace.lines() {
        println!("{line}");
    }
    println!("{report}\n{:#?}", report.faults);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

#[test]
#[ignore = "make simulate"]
fn simulate() {
    let faults = number("FAULTS") != Some(0);
    let with = |seed| {
        let setup = setup(seed);
        let turmoil = number("TURMOIL").map_or(setup.turmoil, Duration::from_secs);
        Setup { mutant: mutant(), faults, muted: muted(), turmoil, ..setup }
    };
    if let Some(seed) = number("SEED") {
        return show(&with(seed));
    }
    let within = Duration::from_secs(number("SECONDS").unwrap_or(60));
    let first = number("FROM").unwrap_or_else(new_seed);
    let (began, next) = (Instant::now(), AtomicU64::new(first));
    let totals = Mutex::new(Totals {
        began,
        next: MINUTE,
        lasted: Duration::ZERO,
        seeds: 0,
        faults: 0,
        writes: 0,
        failed: Vec::new(),
        rules: BTreeSet::new(),
    });
    let one = || {
        let with = with(next.fetch_add(1, Ordering::Relaxed));
        let report = run(&with);
        let mut held = totals.lock().expect("nobody panics with it");
        held.add(&report);
        if within <= SHORT || !report.violations.is_empty() {
            println!("{report}");
        }
        if within > SHORT && began.elapsed() >= held.next {
            held.next += MINUTE;
            println!("{}", held.line(first));
        }
        let Some(broken) = report.violations.first() else { return };
        held.failed.push(report.seed);
        // Who has seen a rule broken once need not read the same again.
        let is_news = held.rules.insert(broken.rule.clone());
        drop(held);
        if is_news && let Err(story) = holds(&with) {
            println!("{story}");
        }
    };
    let cores: Vec<()> = vec![(); std::thread::available_parallelism().map_or(1, std::num::NonZero::get)];
    side_by_side(&cores, |()| {
        while began.elapsed() < within {
            one();
        }
    });
    let totals = totals.into_inner().expect("nobody panicked with it");
    println!("{}", totals.line(first));
    assert!(totals.failed.is_empty(), "seeds that failed: {:?}, by {:?}", totals.failed, totals.rules);
}

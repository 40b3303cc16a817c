//! A simulated cluster: the whole manager, unchanged, against a model of the API server, in one thread and in virtual time.
//! Everything random follows from one seed.
//!
//! `make simulate` runs new seeds for a minute; `SEED=… make simulate` runs one again, with its trace.
//! `docs/adr/0059-simulated-cluster.md` lists what the model has.

#![expect(
    clippy::disallowed_methods,
    reason = "a simulation takes its own threads, and looks at the wall clock"
)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot go on says why and fails"
)]

mod actors;
mod bindings;
mod churn;
mod faults;
mod fleet;
mod idle;
mod invariants;
mod line;
mod listener;
mod managers;
mod matrix;
mod mutants;
mod planted;
mod repeated;
mod reply;
mod restores;
mod run;
mod server;
mod shrink;
mod soak;
mod story;
mod trace;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use faults::Muted;
use run::{Report, Setup, run};
use shrink::shrink;

/// For how long there is trouble in a run.
const TURMOIL: Duration = Duration::from_mins(7);

fn setup(seed: u64) -> Setup {
    Setup {
        seed,
        turmoil: TURMOIL,
        settles_within: Duration::from_mins(50),
        faults: true,
        managed: true,
        mutant: None,
        traced: false,
        muted: Muted::new(),
    }
}

/// How much of what has no natural end is done: what is `usual`, or all in `make test-all`.
fn by_depth<T>(usual: T, full: T) -> T {
    if std::env::var_os("COXSWAIN_FULL").is_some() { full } else { usual }
}

/// A seed that nobody has drawn before.
fn new_seed() -> u64 {
    u64::from(coxswain_machinery::random::within(1..u32::MAX))
}

/// Works on all of these, on as many threads as there are cores.
fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let items = std::iter::from_fn(|| items.get(next.fetch_add(1, Ordering::Relaxed)));
        items.map(&work).collect::<Vec<R>>()
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("it does not panic")).collect()
    })
}

/// A run in which nothing is broken; else the story of one that is as small as can be.
fn holds(setup: &Setup) -> Result<Report, String> {
    let report = run(setup);
    if report.violations.is_empty() {
        return Ok(report);
    }
    let (long, seed) = (report.to_string(), report.seed);
    let (least, report) = shrink(setup, report);
    let needed: Vec<&str> = report.faults.keys().copied().collect();
    let muted: Vec<&str> = least.muted.iter().copied().collect();
    Err(format!(
        "{long}\nmade smaller:\n{}\nIt takes the faults {needed:?}. All of it is shown by\n\
         {}SEED={seed} TURMOIL={} WITHOUT={:?} make simulate\nand of the long one without TURMOIL and WITHOUT.",
        report.story(),
        least.mutant.map_or_else(String::new, |mutant| format!("MUTANT={:?} ", mutant.name)),
        least.turmoil.as_secs(),
        muted.join(","),
    ))
}

#[test]
fn a_run_without_faults_ends_as_it_is_wished_for() {
    let report = holds(&Setup { faults: false, ..setup(1) }).unwrap_or_else(|story| panic!("{story}"));
    assert_eq!(report.faults(), 0);
    assert!(report.counts.writes > 100, "{report}");
}

/// A seed that is new with each commit, and the same for everybody who tests it: nobody has drawn it before, and what it shows stays
/// to be seen. Without a repository it is any.
fn seed_of_commit() -> u64 {
    let head = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output();
    let digits = head.ok().filter(|said| said.status.success()).map(|said| said.stdout);
    let text = digits.and_then(|digits| String::from_utf8(digits).ok()).unwrap_or_default();
    text.get(..8).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or_else(new_seed)
}

/// Some seeds are always the same, others are those of the commit.
#[test]
fn nothing_that_must_hold_is_broken_by_faults() {
    let first = seed_of_commit();
    let seeds: Vec<u64> = (1..=by_depth(3, 12)).chain(first..first + by_depth(3, 12)).collect();
    for held in side_by_side(&seeds, |seed| holds(&setup(*seed))) {
        println!("{}", held.unwrap_or_else(|story| panic!("{story}")));
    }
}

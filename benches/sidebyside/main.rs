//! Coxswain beside the Go kube-controller-manager: one real control plane, the same scenarios, the same flags, in turns.
//!
//! Who begins changes from round to round. Printed, and written to `target/bench/sidebyside.{md,json,svg}` after every
//! scenario, are CPU seconds, resident memory, wall time, requests and bytes, medians over the rounds with their spread and
//! their ratios, beside the lead that is to be reached, which nothing asserts. With `DOCS=1` they go into
//! `docs/performance.md` and `docs/sidebyside.svg` as well; `make docs` then updates the tables of the README and the manual.
//! `docs/performance.md` says how to read them.
//!
//! `SCENARIOS` (all) is text that a scenario's name must contain, or several with commas in between; `ROUNDS` (3) how often
//! each manager is measured; `SCALE` (1) a factor on the number of objects; `ONLY` (both) `go` or `coxswain`; `COXSWAIN` the
//! binary, where it is not the one of this build. `RESUME=1` keeps what `target/bench/sidebyside.json` has of the same binaries
//! and settings, and plays what is missing there, or what `SCENARIOS` names.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::print_stderr,
    reason = "a benchmark prints, and fails when it cannot go on"
)]

mod bench;
mod canary;
mod chart;
mod content;
mod figures;
mod forwarder;
mod growth;
#[path = "../../tests/integration/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the benchmark uses a part of what the tests do")]
mod harness;
mod machine;
mod measure;
mod program;
mod report;
mod resume;
#[path = "../sampling.rs"]
#[allow(dead_code, reason = "each benchmark samples what it needs")]
mod sampling;
mod scenario;
mod scenarios;
#[path = "../settings.rs"]
mod settings;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use futures::FutureExt as _;

use bench::Bench;
use coxswain_controllers::registry;
use figures::Outcome;
use program::{Program, Programs, Turn};
use report::Report;
use scenario::Scenario;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(compare())
}

/// Plays the scenarios that are asked for. One that fails is told of, and the others go on.
async fn compare() -> ExitCode {
    let bench = Bench::start().await;
    let mut report = Report::new(&bench);
    let (mut any, mut failed) = (false, false);
    for mut scenario in scenarios::all(&bench) {
        let mut outcome =
            Outcome::new(scenario.name(), scenario.about(), scenario.controllers(), scenario.targets());
        let is_wanted = bench.settings.wants(&outcome.name);
        if (!is_wanted || bench.settings.wants_all()) && report.keep(&mut outcome) {
            any |= is_wanted;
            report.add(outcome);
            continue;
        }
        if !is_wanted {
            continue;
        }
        any = true;
        if let Some(reason) = skipped(scenario.as_ref()) {
            bench.say(&format!("{}: skipped: {reason}", scenario.name()));
            outcome.skipped = Some(reason);
        } else {
            let played = AssertUnwindSafe(play(&bench, scenario.as_mut(), &mut outcome)).catch_unwind().await;
            if let Err(panic) = played {
                let reason = words(panic.as_ref());
                bench.say(&format!("{}: FAILED: {reason}", scenario.name()));
                outcome.failed = Some(reason);
                failed = true;
            }
            bench.stop_all();
            bench.wipe_all().await;
        }
        report.add(outcome);
        report.write_results();
    }
    assert!(any, "SCENARIOS names none of {:?}", scenarios::names(&bench));
    report.finish();
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Why a scenario can't be played yet: a controller that it needs is not built.
fn skipped(scenario: &dyn Scenario) -> Option<String> {
    let is_built = |name: &&&str| registry::find(name).is_some_and(|descriptor| descriptor.build.is_some());
    let missing: Vec<&str> = scenario.controllers().iter().filter(|name| !is_built(name)).copied().collect();
    let only_go = Programs::from_environment() == Programs::Go;
    (!missing.is_empty() && !only_go).then(|| format!("not built yet: {}", missing.join(", ")))
}

async fn play(bench: &Bench, scenario: &mut dyn Scenario, outcome: &mut Outcome) {
    bench.say(&format!("{}: preparing", outcome.name));
    scenario.prepare(bench).await;
    let rounds = bench.settings.rounds;
    for round in 0..rounds {
        let mut order = [Program::Go, Program::Coxswain];
        if round % 2 == 1 {
            order.reverse();
        }
        for program in order.into_iter().filter(|program| bench.settings.programs.has(*program)) {
            let turn = Turn { program, round };
            bench.say(&format!("{}, round {} of {rounds}, {program}", outcome.name, round + 1));
            let figures = scenario.run(bench, turn).await;
            bench.stop_all();
            outcome.add(program, figures);
        }
    }
    scenario.clear(bench).await;
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

//! Instructions per call, counted by callgrind: the same on every run and every machine with the same build, however busy.
//!
//! The program runs itself under callgrind twice for each function, calling it so many times and twice so many: what the
//! one counts more than the other is the calls', whatever the set-up costs.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::fs;

use crate::callgrind;

/// How it tells itself what to call, and how often.
const CALL: &str = "COXSWAIN_BENCH_CALL";
const CALLS: u64 = 50;
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.tsv");
const HEADING: &str =
    "# Instructions per call, by `INSTRUCTIONS=keep cargo bench --profile dist --bench micro`.\n";

type Functions<'a> = &'a [(&'a str, fn() -> Box<dyn FnMut()>)];

/// Whether instructions are to be counted, or this is a run that is counted.
pub(crate) fn is_asked_for() -> bool {
    env::var_os("INSTRUCTIONS").is_some()
}

/// Counts, and compares with what was kept.
pub(crate) fn count(functions: Functions<'_>) {
    if let Ok(call) = env::var(CALL) {
        return run(functions, &call);
    }
    let kept: BTreeMap<String, u64> = fs::read_to_string(KEPT)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, count)| (name.to_owned(), count.parse().expect("a number")))
        .collect();
    let mut now = HEADING.to_owned();
    println!("| instructions per call | kept | now | ratio |\n|---|---:|---:|---:|");
    for (at, (name, _)) in functions.iter().enumerate() {
        let count = (counted(at, 2 * CALLS) - counted(at, CALLS)) / CALLS;
        writeln!(now, "{name}\t{count}").expect("text takes text");
        match kept.get(*name) {
            Some(before) => {
                println!("| {name} | {before} | {count} | {:.3} |", count as f64 / *before as f64);
            }
            None => println!("| {name} | | {count} | |"),
        }
    }
    if env::var("INSTRUCTIONS").as_deref() == Ok("keep") {
        fs::write(KEPT, now).expect("the counts are written");
    }
}

/// Calls a function as often as `call` says: `WHICH TIMES`.
fn run(functions: Functions<'_>, call: &str) {
    let (which, times) = call.split_once(' ').expect("two numbers");
    let (which, times): (usize, u64) = (which.parse().expect("a number"), times.parse().expect("a number"));
    let mut function = functions[which].1();
    for _ in 0..times {
        function();
    }
}

/// Instructions of this program when it makes so many calls.
fn counted(which: usize, calls: u64) -> u64 {
    callgrind::counted(CALL, &format!("{which} {calls}"))
}

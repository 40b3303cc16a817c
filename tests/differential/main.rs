//! The differential fuzzer: plays the same list of operations under kube-controller-manager and under Coxswain, and compares all objects.
//!
//! A seed decides a list (`generate`). Each list is played at the same time on three control planes (`plane`): twice under
//! kube-controller-manager, because a field in which two such plays differ is noise, and once under Coxswain. Many lists play next to each
//! other, each in its own namespace. A list with a difference is played twice more (`repeat`), then made shorter (`shrink`) while the difference
//! stays.
//!
//! `SECONDS=600 make differ` plays new seeds, `SEED=… make differ` repeats one, and `LIST=FILE make differ` plays the operations of a file. With
//! `FIRST=1` a run ends after the first story.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test that cannot go on says why and fails"
)]

#[allow(dead_code, unused_imports, reason = "the integration tests use the other parts")]
#[path = "../integration/harness/mod.rs"]
mod harness;

#[path = "../integration/parity/certificates.rs"]
mod certificates;
#[path = "../integration/parity/contents.rs"]
mod contents;
#[allow(dead_code, reason = "the parity tests use the other parts")]
#[path = "../integration/parity/diff.rs"]
mod diff;
#[allow(dead_code, reason = "the parity tests use the other parts")]
#[path = "../integration/parity/names.rs"]
mod names;
#[allow(dead_code, reason = "the parity tests use the other parts")]
#[path = "../integration/parity/scenario.rs"]
mod scenario;
#[path = "../integration/parity/slices.rs"]
mod slices;
#[allow(dead_code, reason = "the parity tests use the other parts")]
#[path = "../integration/parity/snapshot.rs"]
mod snapshot;
#[path = "../integration/parity/subsets.rs"]
mod subsets;
#[path = "../integration/parity/wire.rs"]
mod wire;

mod calm;
mod compare;
mod generate;
mod known;
mod life;
mod normal;
mod operation;
mod plane;
mod planted;
mod play;
mod pods;
mod random;
mod refusals;
mod repeat;
mod rights;
mod search;
mod shrink;
mod story;
mod tables;
mod together;
mod turmoil;

use std::ops::RangeFrom;
use std::time::Duration;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use harness::by_depth;
use operation::Operation;
use search::Search;

/// Seeds that `make test` plays.
const PINNED: &str = include_str!("pinned.txt");
/// Lists that `make test` plays, with an empty line between them. They show the rows of `wanted.tsv`, and differences that were fixed.
const LISTS: &str = include_str!("lists.txt");

/// Time in which `make test` plays new seeds: none until 1,000 new seeds in a row show no difference.
const USUAL: Duration = Duration::ZERO;
/// Time in which `make test-all` plays pinned seeds, lists and new seeds.
const FULL: Duration = Duration::from_hours(1);

fn list(lines: &str) -> Vec<Operation> {
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.parse().expect("an operation")).collect()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Prints the counts, and fails if there was a difference. The control planes end first, because a failed test prints their logs.
fn finish(search: Search, rare_counts: bool) {
    let outcome = search.end(rare_counts);
    drop(search);
    outcome.expect("no differences");
}

/// Returns the seeds of a run. The first seed is the time of the start in milliseconds, so that no run plays the seeds of another.
fn new_seeds() -> RangeFrom<u64> {
    SystemClock.now().as_millisecond() as u64..
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "plays for a minute or longer: make differ"]
async fn differ() {
    let search = Search::start().await;
    if let Ok(path) = std::env::var("LIST") {
        let text = std::fs::read_to_string(&path).expect("the file of operations");
        search.judge(0, &list(&text)).await;
    } else if let Some(seed) = number("SEED") {
        search.judge(seed, &generate::operations(seed)).await;
    } else {
        search.run(new_seeds(), Some(Duration::from_secs(number("SECONDS").unwrap_or(60)))).await;
    }
    finish(search, true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pinned_and_new_seeds_have_the_same_outcome() {
    let search = Search::start().await;
    let seeds = PINNED.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    let lists: Vec<Vec<Operation>> = LISTS.split("\n\n").map(list).filter(|list| !list.is_empty()).collect();
    let lists = futures::future::join_all(lists.iter().map(|list| search.judge(0, list)));
    tokio::join!(search.run(seeds.collect::<Vec<u64>>(), None), lists);
    search.run(new_seeds(), Some(by_depth(USUAL, FULL))).await;
    assert_eq!(search.unmet(), Vec::<String>::new(), "rows of wanted.tsv that no list shows");
    // A busy machine causes races that no repeat shows. `make test` plays known lists, in which each fault shows in every repeat.
    finish(search, by_depth(false, true));
}

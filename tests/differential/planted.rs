//! Faults that were fixed, in a patch that plants them again (`planted/faults.patch`). `scripts/planted.sh` shows whether the fuzzer finds them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::generate::{ODD_END, operations};
use crate::known::matches;
use crate::operation::{Action, Named, Operation};
use crate::tables::rows;

/// Each severe finding, and `patch` or a reason.
const FAULTS: &str = include_str!("planted/faults.tsv");
/// The operations that can show a fault.
const NEEDS: &str = include_str!("planted/needs.tsv");
/// A list of the planted faults, and the changes of the sources. Each change asks `planted("ID")`.
const PATCH: &str = include_str!("planted/faults.patch");

/// Returns the IDs for which changed lines ask.
fn asked_ids() -> BTreeSet<&'static str> {
    let changed = PATCH.lines().filter(|line| line.starts_with('+'));
    let asked = changed.flat_map(|line| line.split("planted(\"").skip(1));
    asked.filter_map(|rest| rest.split_once('"')).map(|(id, _)| id).collect()
}

#[test]
fn planted_faults_have_a_row_and_apply_to_the_code() {
    let is_planted = |how: &str| how == "patch" || how.starts_with("patch; not found: ");
    let planted = rows::<2>(FAULTS).into_iter().filter(|[_, how]| is_planted(how));
    let planted: BTreeSet<&str> = planted.map(|[id, _]| id).collect();
    assert_eq!(asked_ids(), planted);
    let listed =
        PATCH.lines().map_while(|line| line.strip_prefix("# ")).filter_map(|line| line.split_once(": "));
    assert_eq!(listed.map(|(id, _)| id).collect::<BTreeSet<_>>(), planted, "the list of faults");
    let patch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/planted/faults.patch");
    let mut git = Command::new("git");
    git.arg("apply").arg("--check").arg(&patch).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = git.output().expect("git runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} no longer applies; regenerate it: {stderr}", patch.display());
}

/// A list as its lines.
struct Lines {
    texts: Vec<String>,
    /// Number of calms before each line.
    rounds: Vec<usize>,
    /// Names of applied objects.
    names: BTreeSet<String>,
}

impl Lines {
    fn new(list: &[Operation]) -> Self {
        let mut round = 0;
        let mut rounds = Vec::new();
        for operation in list {
            rounds.push(round);
            round += usize::from(operation.action == Action::Calm);
        }
        let names = list.iter().filter_map(Operation::applied).map(|object| {
            let Named { name, .. } = Named::of(object);
            name.trim_start_matches("NAMESPACE-").trim_end_matches(ODD_END).to_owned()
        });
        Self { texts: list.iter().map(ToString::to_string).collect(), rounds, names: names.collect() }
    }

    /// Returns whether the lines have a form of these patterns, in their order.
    fn show(&self, patterns: &str) -> bool {
        let fits = |patterns: &str| {
            let patterns: Vec<&str> = patterns.split(" ; ").collect();
            self.show_from(0, &patterns)
        };
        if !patterns.contains('@') {
            return fits(patterns);
        }
        self.names.iter().any(|name| fits(&patterns.replace('@', name)))
    }

    fn show_from(&self, begin: usize, patterns: &[&str]) -> bool {
        let Some((pattern, rest)) = patterns.split_first() else { return true };
        let same_round = pattern.strip_prefix('+');
        let is_near =
            |at: &usize| same_round.is_none() || begin > 0 && self.rounds[*at] == self.rounds[begin - 1];
        let pattern = same_round.unwrap_or(pattern);
        // Most lines lack a part of the pattern, which takes less time to see.
        let fits = |at: &usize| {
            let line = &self.texts[*at];
            pattern.split('*').all(|part| line.contains(part)) && matches(pattern, line)
        };
        let mut found = (begin..self.texts.len()).filter(is_near).filter(fits);
        found.any(|at| self.show_from(at + 1, rest))
    }
}

#[test]
fn lists_often_have_the_operations_that_show_a_planted_fault() {
    const SEEDS: u64 = 500;
    /// A search of 30 minutes plays about as many seeds.
    const LEAST: u64 = 6;
    let planted = rows::<2>(FAULTS).into_iter().filter(|[_, how]| *how == "patch");
    let mut counts: BTreeMap<&str, u64> = planted.map(|[id, _]| (id, 0)).collect();
    let needs = rows::<2>(NEEDS);
    assert_eq!(needs.iter().map(|[id, _]| *id).collect::<BTreeSet<_>>(), counts.keys().copied().collect());
    for seed in 0..SEEDS {
        let lines = Lines::new(&operations(seed));
        let shown: BTreeSet<&str> =
            needs.iter().filter(|[_, patterns]| lines.show(patterns)).map(|[id, _]| *id).collect();
        for id in shown {
            *counts.entry(id).or_default() += 1;
        }
    }
    for (id, count) in &counts {
        println!("{id}: {count} of {SEEDS} lists");
    }
    let rare: Vec<_> = counts.iter().filter(|(_, count)| **count < LEAST).collect();
    assert!(rare.is_empty(), "too rare: {rare:?}");
}

#[test]
fn patterns_are_found_in_their_order_and_in_one_round() {
    let list = [
        "user apply {\"kind\":\"Job\",\"metadata\":{\"name\":\"web\"}}",
        "all calm",
        "kubelet fail app=web 1",
        "user delete Job/web orphan",
        "all calm",
        "user delete Job/db orphan",
    ];
    let list: Vec<Operation> = list.iter().map(|line| line.parse().expect("an operation")).collect();
    let lines = Lines::new(&list);
    for (patterns, expected) in [
        ("user apply *", true),
        ("kubelet fail * ; user delete Job/@ *", true),
        ("user delete Job/@ * ; kubelet fail *", false),
        ("kubelet fail * ; +user delete Job/web *", true),
        ("kubelet fail * ; +user delete Job/db *", false),
        ("kubelet fail * ; user delete Job/db *", true),
    ] {
        assert_eq!(lines.show(patterns), expected, "{patterns}");
    }
}

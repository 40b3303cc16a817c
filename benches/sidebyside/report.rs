//! The tables: Markdown to read, JSON to compute with.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bench::{Bench, controllers};
use crate::chart;
use crate::figures::{Outcome, Row, Samples, What};
use crate::growth;
use crate::machine::Machine;
use crate::resume::Played;

/// A part of a document that is written anew, by what it begins and ends with.
const TABLES: (&str, &str) = ("<!-- sidebyside: written by `make bench` -->\n", "<!-- /sidebyside -->");
/// Figures of a phase that are told; the whole has them all.
const OF_PHASES: [What; 3] = [What::Wall, What::Cpu, What::Writes];

/// What has come so far.
pub(crate) struct Report {
    machine: Machine,
    facts: Value,
    docs: bool,
    /// What an earlier run has left of the same.
    earlier: Played,
    outcomes: Vec<Outcome>,
}

impl Report {
    /// Of nothing.
    pub(crate) fn new(bench: &Bench) -> Self {
        let machine = Machine::look();
        bench.say(&machine.words());
        let mut facts = bench.facts();
        facts["of"] = machine.of().into();
        let results = root().join("target/bench/sidebyside.json");
        let earlier = if bench.settings.resume { Played::read(&results, &facts) } else { Played::default() };
        Self { machine, facts, docs: bench.settings.docs, earlier, outcomes: Vec::new() }
    }

    /// Takes over what an earlier run has left of a scenario; whether there is anything.
    pub(crate) fn keep(&self, outcome: &mut Outcome) -> bool {
        self.earlier.add_to(outcome)
    }

    /// One scenario more.
    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// Writes what there is to `target/bench`, so that a run that ends early leaves what it had.
    pub(crate) fn write_results(&mut self) {
        let derived = growth::derive(&self.outcomes);
        let all: Vec<&Outcome> = self.outcomes.iter().chain(&derived).collect();
        let folder = root().join("target/bench");
        fs::create_dir_all(&folder).expect("the folder");
        // What is kept of scenarios that have not had their turn yet is not lost if this run is cut off, too.
        let names: Vec<&str> = all.iter().map(|each| each.name.as_str()).collect();
        let scenarios = all.iter().map(|each| each.json()).chain(self.earlier.but_for(&names).cloned());
        let json = json!({
            "machine": self.machine.json(),
            "facts": self.facts,
            "controllersThatAreBuilt": controllers(&[]),
            "scenarios": scenarios.collect::<Vec<_>>(),
        });
        let json = serde_json::to_string_pretty(&json).expect("JSON") + "\n";
        write(&folder.join("sidebyside.json"), &json);
        write(&folder.join("sidebyside.md"), &self.markdown(&all));
        write(&folder.join("sidebyside.svg"), &chart::draw(&all));
    }

    /// Prints the tables, and writes them into the documentation when that is asked for.
    pub(crate) fn finish(mut self) {
        self.outcomes.extend(growth::derive(&self.outcomes));
        let all: Vec<&Outcome> = self.outcomes.iter().collect();
        let markdown = self.markdown(&all);
        println!("\n{markdown}");
        if !self.docs {
            return;
        }
        replace(&root().join("docs/performance.md"), TABLES, &markdown);
        write(&root().join("docs/sidebyside.svg"), &chart::draw(&all));
    }

    /// What the figures are not fit for.
    fn caveat(&self) -> String {
        let mut caveats = Vec::new();
        if !self.machine.ships() {
            caveats
                .push(format!("a `{}` build of Coxswain, whose figures say nothing", self.machine.profile));
        }
        if self.facts["scale"] != 1.0 {
            caveats.push(format!("at a scale of {}", self.facts["scale"]));
        }
        if caveats.is_empty() {
            String::new()
        } else {
            format!("**Not the real thing: {}.**\n\n", caveats.join(", "))
        }
    }

    fn markdown(&self, outcomes: &[&Outcome]) -> String {
        let mut text = format!(
            "{}{}\n\n{}{}. Unless a scenario names other flags, each manager runs all controllers that are on by default ({}), \
             with `--kube-api-qps=100 --kube-api-burst=200`.\n\n![Ratios by scenario](sidebyside.svg)\n\n",
            self.caveat(),
            self.machine.words(),
            self.rounds(),
            if self.is_repeated() { ", with the minimum and the maximum in parentheses" } else { "" },
            controllers(&[]).len(),
        );
        lead(&mut text, outcomes);
        text.push_str("### All figures\n");
        for outcome in outcomes {
            section(&mut text, outcome);
        }
        let what = if self.is_repeated() { "Medians, Go / Coxswain" } else { "Go / Coxswain" };
        verbs(&mut text, what, outcomes);
        text
    }

    /// Whether there are rounds enough for medians.
    fn is_repeated(&self) -> bool {
        self.facts["rounds"] != 1
    }

    /// What the figures are of.
    fn rounds(&self) -> String {
        if self.is_repeated() {
            format!("Medians of {} rounds", self.facts["rounds"])
        } else {
            "One round".to_owned()
        }
    }
}

fn with_targets<'a>(outcomes: &[&'a Outcome]) -> impl Iterator<Item = (&'a Outcome, &'a Row)> {
    let rows = outcomes.iter().flat_map(|outcome| outcome.rows.iter().map(|row| (*outcome, row)));
    rows.filter(|(_, row)| row.target.is_some())
}

/// The figures with a target, and whether it is reached.
fn lead(text: &mut String, outcomes: &[&Outcome]) {
    text.push_str("### Targets\n\n");
    text.push_str(
        "| scenario | figure | target | Go | Coxswain | ratio | |\n|---|---|---|---:|---:|---:|---|\n",
    );
    for (outcome, row) in with_targets(outcomes) {
        let Some(target) = row.target else { continue };
        let reached = match row.reached() {
            Some(true) => "reached",
            Some(false) => "**not reached**",
            None => "",
        };
        let what = &row.figure.what;
        let median = |samples: &Samples| samples.median().map(|value| what.show(value)).unwrap_or_default();
        let _ = writeln!(
            text,
            "| {} | {} | {target} | {} | {} | {} | {reached} |",
            outcome.name,
            what.words(),
            median(&row.go),
            median(&row.ours),
            ratio(row),
        );
    }
    for outcome in outcomes {
        if let Some(reason) = &outcome.skipped {
            let _ = writeln!(text, "| {} | skipped: {reason} | | | | | |", outcome.name);
        }
    }
    text.push('\n');
}

/// One scenario.
fn section(text: &mut String, outcome: &Outcome) {
    let _ = writeln!(text, "\n#### {}\n{}", outcome.name, outcome.about);
    if !outcome.controllers.is_empty() {
        let _ = writeln!(text, "`--controllers={}`", outcome.controllers.join(","));
    }
    text.push('\n');
    if let Some(reason) = &outcome.skipped {
        let _ = writeln!(text, "Skipped: {reason}.");
    }
    if let Some(reason) = &outcome.failed {
        let _ = writeln!(text, "**Failed:** {}\n", reason.lines().next().unwrap_or_default());
    }
    let told = |row: &&Row| {
        let is_counted_by_kind = matches!(row.figure.what, What::Verb(_) | What::Request(..));
        !is_counted_by_kind && (row.figure.phase.is_empty() || OF_PHASES.contains(&row.figure.what))
    };
    let rows: Vec<&Row> = outcome.rows.iter().filter(told).collect();
    if rows.is_empty() {
        return;
    }
    text.push_str("| figure | Go | Coxswain | ratio |\n|---|---:|---:|---:|\n");
    for row in rows {
        let what = &row.figure.what;
        let phase =
            if row.figure.phase.is_empty() { String::new() } else { format!("{}: ", row.figure.phase) };
        let (go, ours) = (spread(what, &row.go), spread(what, &row.ours));
        let _ = writeln!(text, "| {phase}{} | {go} | {ours} | {} |", what.words(), ratio(row));
    }
}

fn spread(what: &What, samples: &Samples) -> String {
    let (Some(median), Some((least, most))) = (samples.median(), samples.spread()) else {
        return String::new();
    };
    let shown = what.show(median);
    if samples.rounds().len() < 2 {
        return shown;
    }
    format!("{shown} ({}–{})", what.show(least), what.show(most))
}

fn ratio(row: &Row) -> String {
    row.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default()
}

/// Requests of whole scenarios by verb; `what` is in the cells.
fn verbs(text: &mut String, what: &str, outcomes: &[&Outcome]) {
    const VERBS: [&str; 8] =
        ["create", "update", "patch", "delete", "deletecollection", "get", "list", "watch"];
    let _ = writeln!(text, "\n### Requests by verb\n{what}.\n\n| scenario | {} |", VERBS.join(" | "));
    let _ = writeln!(text, "|---|{}", "---:|".repeat(VERBS.len()));
    for outcome in outcomes {
        let cells = VERBS.map(|verb| {
            let row = outcome.whole(&What::Verb(verb.to_owned()))?;
            let median = |samples: &Samples| samples.median().map_or(0.0, |median| median);
            Some(format!("{:.0} / {:.0}", median(&row.go), median(&row.ours)))
        });
        if cells.iter().any(Option::is_some) {
            let cells = cells.map(Option::unwrap_or_default);
            let _ = writeln!(text, "| {} | {} |", outcome.name, cells.join(" | "));
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Puts text between the beginning and the end of a part.
fn replace(path: &Path, (begin, end): (&str, &str), text: &str) {
    let old = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let parts = old.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = parts.unwrap_or_else(|| panic!("{} has no part for this", path.display()));
    write(path, &format!("{before}{begin}{text}{end}{after}"));
}

//! The law of `tests/differences.tsv`, the table of deliberate differences from kube-controller-manager, and the page that is
//! generated from it, `docs/differences.md`.
//!
//! A text that tells of a difference names its row: `Differs: ID`. This holds for the reasons of parity scenarios, of
//! `tests/parity/writes.tsv`, of `tests/parity/metrics.tsv` and of oracles, for the rows of `tests/differential/wanted.tsv`, and for comments
//! that tell what kube-controller-manager does, for each item of a list of differences, and for comments of the harness of parity. `Differs: no`
//! marks a text that tells of no difference.
//!
//! Each row names a test with real tools (a scenario of parity, an integration test, or a comparison with a program in Go), or is in
//! `tests/differences-unit.txt`, the list of rows that have unit tests only.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use coxswain_controllers::registry::REGISTRY;
use serde_json::Value;

use super::{CRATES, complain, sources};
use crate::behaviour::exists;

const TABLE: &str = include_str!("../../tests/differences.tsv");
/// IDs of rows without a test with real tools.
const UNIT_ONLY: &str = include_str!("../../tests/differences-unit.txt");
const COLUMNS: usize = 9;
/// The beginning of a mark: the ID of a row follows.
const MARK: &str = "Differs: ";
/// Stands in a mark in the place of an ID.
const NO_DIFFERENCE: &str = "no";
/// Stands in a cell where nothing is known.
const UNKNOWN: &str = "–";

/// Subjects of rows that concern no single controller, with their headings on the page.
const SUBJECTS: [(&str, &str); 3] =
    [("all", "All controllers"), ("process", "Process, ports and flags"), ("metrics", "Metrics and logs")];

/// Write requests and metrics that scenarios of parity show, with the rows that explain them.
const WRITES: &str = include_str!("../../tests/parity/writes.tsv");
const SERIES: &str = include_str!("../../tests/parity/metrics.tsv");

/// Tables whose rows name differences.
const MARKED_TABLES: [&str; 3] =
    ["tests/parity/writes.tsv", "tests/parity/metrics.tsv", "tests/differential/wanted.tsv"];

/// Types of the known differences of oracles.
const KNOWN: [&str; 2] = ["KnownDifference", "KnownRefusal"];

/// Phrases by which a comment tells what kube-controller-manager does. "The original" stands for its name.
const PHRASES: [&str; 16] = [
    ". the original ",
    "; the original ",
    ": the original ",
    "(the original ",
    "(in the original ",
    "where the original ",
    "while the original ",
    "than the original",
    "than with the original",
    "from the original, on purpose",
    "differs from the original",
    "unlike the original",
    "the original, which ",
    "(the original's ",
    ". the original's ",
    "; the original's ",
];

/// The heading of a list in a comment. Each of its items names a row.
const LIST: &str = "differs from the original, on purpose";
/// The document with a list of metrics that differ, the line before the list, and the line after it.
const METRICS: (&str, &str, &str) = ("docs/metrics.md", "### Differences in meaning", "[differences.md]");

/// A row of the table.
struct Row<'a> {
    id: &'a str,
    controllers: &'a str,
    /// Completes the sentence "kube-controller-manager …".
    theirs: &'a str,
    /// Completes the sentence "Coxswain …".
    ours: &'a str,
    why: &'a str,
    notice: &'a str,
    /// How to get the behavior of kube-controller-manager.
    back: &'a str,
    until: &'a str,
    tests: &'a str,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let cells: Vec<&str> = line.split('\t').collect();
        let [id, controllers, theirs, ours, why, notice, back, until, tests] = cells[..] else { return None };
        Some(Self { id, controllers, theirs, ours, why, notice, back, until, tests })
    }
}

/// Returns the lines of a table with their numbers, without comments.
fn lines(table: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = table.lines().enumerate().map(|(at, line)| (at + 1, line));
    numbered.filter(|(_, line)| !line.starts_with('#') && !line.is_empty())
}

fn is_of_an_id(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-'
}

/// Returns what is wrong with a table.
fn complaints(table: &str, built: &[&str], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    let (mut ids, mut sections, mut section) = (BTreeSet::new(), BTreeSet::new(), "");
    for (at, line) in lines(table) {
        let mut complain = |what: String| complaints.push(format!("line {at}: {what}"));
        let Some(row) = Row::parse(line) else {
            complain(format!("not {COLUMNS} columns"));
            continue;
        };
        if row.id.is_empty() || row.id == NO_DIFFERENCE || !row.id.chars().all(is_of_an_id) {
            complain(format!("{:?} is no ID", row.id));
        }
        if !ids.insert(row.id) {
            complain(format!("a second row {}", row.id));
        }
        if row.controllers != section && !sections.insert(row.controllers) {
            complain(format!("the rows of {} are not together", row.controllers));
        }
        section = row.controllers;
        let is_subject = SUBJECTS.iter().any(|(subject, _)| *subject == row.controllers);
        for name in row.controllers.split(',').filter(|name| !is_subject && !built.contains(name)) {
            complain(format!("{name} is no controller that is built"));
        }
        let cells = [row.theirs, row.ours, row.why, row.notice];
        if cells.iter().any(|cell| cell.trim().is_empty() || *cell == UNKNOWN)
            || row.back.is_empty()
            || row.until.is_empty()
        {
            complain("an empty cell".to_owned());
        }
        if !row.theirs.ends_with('.') || !row.ours.ends_with('.') {
            complain("the behavior is not a sentence".to_owned());
        }
        if row.tests.trim().is_empty() {
            complain("no test".to_owned());
        }
        for test in row.tests.split_whitespace().filter(|test| !exists(test)) {
            complain(format!("there is no test {test}"));
        }
    }
    complaints
}

/// Returns whether a test compares with kube-controller-manager, with Go, or on a real API server.
fn is_real(test: &str) -> bool {
    test.starts_with("parity/") || test.starts_with("integration::") || test.contains("differential::")
}

/// Returns what is wrong with the list of rows that have unit tests only.
fn unit_complaints(table: &str, listed: &str) -> Vec<String> {
    let listed: BTreeSet<&str> = listed.lines().filter(|line| !line.starts_with('#')).collect();
    let rows = lines(table).filter_map(|(_, line)| Row::parse(line));
    let unit: BTreeSet<&str> =
        rows.filter(|row| !row.tests.split_whitespace().any(is_real)).map(|row| row.id).collect();
    let missing = unit.difference(&listed).map(|id| {
        format!("{id} has unit tests only: add a test with real tools, or {id} to tests/differences-unit.txt")
    });
    let surplus = listed.difference(&unit).map(|id| {
        format!("{id} is no row with unit tests only: remove {id} from tests/differences-unit.txt")
    });
    missing.chain(surplus).collect()
}

/// Returns the items of a list, whose lines are joined by blanks.
fn items(list: &str) -> impl Iterator<Item = &str> {
    let end = list.find(" # ").unwrap_or(list.len());
    list[..end].split(" - ").skip(1)
}

/// Returns the IDs that a text names.
fn marks(text: &str) -> Vec<&str> {
    let id = |rest: &str| rest.find(|letter: char| !is_of_an_id(letter)).unwrap_or(rest.len());
    text.split(MARK).skip(1).map(|rest| &rest[..id(rest)]).collect()
}

/// Returns the complaint about a text that has to name a row.
fn unmarked(text: &str, ids: &BTreeSet<&str>) -> Option<String> {
    let marks = marks(text);
    if marks.is_empty() {
        return Some(format!("it names no row of tests/differences.tsv: add `{MARK}ID`"));
    }
    let unknown = marks.into_iter().find(|id| *id != NO_DIFFERENCE && !ids.contains(id))?;
    Some(format!("tests/differences.tsv has no row {unknown:?}"))
}

/// Returns whether a comment tells what kube-controller-manager does.
fn tells_of_a_difference(comment: &str) -> bool {
    let mut text = comment.replace("kube-controller-manager", "the original");
    for word in ["The original", "Where the", "While the", "Unlike"] {
        text = text.replace(word, &word.to_lowercase());
    }
    text.starts_with("the original ") || PHRASES.iter().any(|phrase| text.contains(phrase))
}

/// Returns the comments of a source file before its tests, each with the number of its first line.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut comments: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (at, line) in text.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]")) {
        let comment = line.trim().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim());
        match (comment, comments.last_mut()) {
            (Some(words), Some((_, whole))) if is_open => {
                whole.push(' ');
                whole.push_str(words);
            }
            (Some(words), _) => comments.push((at + 1, words.to_owned())),
            (None, _) => {}
        }
        is_open = comment.is_some();
    }
    comments
}

/// Whether a file of the crates has tests or laws only.
fn is_test(path: &Path) -> bool {
    let is_test = |name: &str| ["differential", "tests", "tidy"].contains(&name.trim_end_matches(".rs"));
    path.components().any(|part| part.as_os_str().to_str().is_some_and(is_test))
        || ["src/behaviour.rs", "src/docs.rs", "src/security.rs"].iter().any(|law| path.ends_with(law))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the comments of a source file that tell of a difference, and the items of its lists of differences.
fn told(path: &Path, text: &str) -> Vec<(String, String)> {
    let mut told = Vec::new();
    for (at, comment) in comments(text).into_iter().filter(|(_, comment)| tells_of_a_difference(comment)) {
        let place = format!("{}:{at}", path.display());
        let lists = comment.split(LIST).skip(1).flat_map(items);
        told.extend(lists.map(|item| (place.clone(), item.to_owned())));
        told.push((place, comment));
    }
    told
}

/// Returns the items of the list of metrics that differ.
fn metrics() -> Vec<(String, String)> {
    let (path, begin, end) = METRICS;
    let text = fs::read_to_string(root().join(path)).expect("a document");
    let (_, list) = text.split_once(begin).expect("the line before the list");
    let (list, _) = list.split_once(end).expect("the line after the list");
    list.split("\n- ").skip(1).map(|item| (path.to_owned(), item.to_owned())).collect()
}

/// Returns the scenarios that keep differences.
fn scenarios() -> Vec<(PathBuf, Value)> {
    let folders = fs::read_dir(root().join("tests/parity")).expect("the scenarios").flatten();
    let folders =
        folders.map(|entry| entry.path()).filter(|path| path.is_dir() && !path.ends_with("outcomes"));
    let mut scenarios = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(folder).expect("scenarios").flatten() {
            let path = entry.path();
            let text = fs::read_to_string(&path).expect("a scenario");
            if text.contains("\ndifferences:") {
                let scenario = serde_yaml_ng::from_str(&text);
                scenarios.push((path, scenario.expect("a scenario in YAML")));
            }
        }
    }
    scenarios
}

/// Returns every text that has to name a row, with its place.
fn texts() -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for (path, scenario) in scenarios() {
        for kept in scenario["differences"].as_array().into_iter().flatten() {
            let reason = kept["reason"].as_str().unwrap_or_default();
            texts.push((format!("{}: {}", path.display(), kept["path"]), reason.to_owned()));
        }
    }
    for table in MARKED_TABLES {
        let text = fs::read_to_string(root().join(table)).expect("a table");
        texts.extend(lines(&text).map(|(at, line)| (format!("{table}:{at}"), line.to_owned())));
    }
    for (path, text) in CRATES.into_iter().flat_map(sources) {
        for of_known in KNOWN {
            let begin = format!("{of_known} {{");
            let rest = text.split(&begin).skip(1).map(str::trim_start);
            let reasons =
                rest.filter(|rest| rest.starts_with("reason: \"")).filter_map(|rest| rest.lines().next());
            texts.extend(reasons.map(|line| (path.display().to_string(), line.to_owned())));
        }
        if !is_test(&path) {
            texts.extend(told(&path, &text));
        }
    }
    for (path, text) in sources("tests/integration/parity") {
        texts.extend(told(&path, &text));
    }
    texts.extend(metrics());
    texts
}

/// Returns what a table of parity has about a row of differences; each of its rows becomes a text by `show`.
fn listed(table: &str, id: &str, show: fn(&[&str]) -> String) -> Option<String> {
    let rows = lines(table).map(|(_, line)| line.split('\t').collect::<Vec<_>>());
    // Linear: a reason names few rows.
    let rows = rows.filter(|cells| cells.last().is_some_and(|reason| marks(reason).contains(&id)));
    let shown: Vec<String> = rows.map(|cells| show(&cells)).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

fn show_write(cells: &[&str]) -> String {
    let [controller, sort, _] = cells else { return String::new() };
    format!("`{sort}` ({controller})")
}

fn show_series(cells: &[&str]) -> String {
    let [series, ..] = cells else { return String::new() };
    format!("`{series}…`")
}

/// Returns the generated part of the page.
pub(crate) fn page() -> String {
    let (mut index, mut page, mut section) = (String::new(), String::new(), "");
    for row in lines(TABLE).filter_map(|(_, line)| Row::parse(line)) {
        let Row { id, controllers, theirs, ours, why, notice, back, until, .. } = row;
        if controllers != section {
            section = controllers;
            let subject = SUBJECTS.iter().find(|(subject, _)| *subject == controllers);
            let heading =
                subject.map_or_else(|| controllers.replace(',', ", "), |(_, words)| (*words).to_owned());
            let _ = write!(index, "\n- **{heading}**:");
            let _ = writeln!(page, "\n## {heading}");
        }
        let _ = write!(index, " [{id}](#{id})");
        let _ = writeln!(page, "\n### {id}\nkube-controller-manager {theirs}\n\nCoxswain {ours}\n");
        let _ = writeln!(page, "- **Why**: {why}\n- **You notice**: {notice}");
        for (name, cell) in [("Way back", back), ("Until", until)] {
            if cell != UNKNOWN {
                let _ = writeln!(page, "- **{name}**: {cell}");
            }
        }
        let measured =
            [("Requests", listed(WRITES, id, show_write)), ("Metrics", listed(SERIES, id, show_series))];
        for (name, shown) in measured {
            if let Some(shown) = shown {
                let _ = writeln!(page, "- **{name}**: {shown}");
            }
        }
    }
    format!("{index}\n{page}\n")
}

#[test]
fn every_difference_has_its_tests() {
    let built: Vec<&str> = REGISTRY.iter().filter(|row| row.build.is_some()).map(|row| row.name).collect();
    complain(&complaints(TABLE, &built, exists));
}

/// The list may become shorter, and a row with a test with real tools is not on it.
#[test]
fn every_row_has_a_test_with_real_tools_or_is_listed() {
    complain(&unit_complaints(TABLE, UNIT_ONLY));
}

/// A scenario without the difference shows that kube-controller-manager does the same.
#[test]
fn every_scenario_of_a_row_keeps_its_difference() {
    let mut kept: BTreeSet<(String, String)> = BTreeSet::new();
    for (path, scenario) in scenarios() {
        let name = path.strip_prefix(root().join("tests")).expect("a path of a scenario").with_extension("");
        for difference in scenario["differences"].as_array().into_iter().flatten() {
            let reason = difference["reason"].as_str().unwrap_or_default();
            kept.extend(marks(reason).into_iter().map(|id| (name.display().to_string(), id.to_owned())));
        }
    }
    let rows = lines(TABLE).filter_map(|(_, line)| Row::parse(line));
    let named = rows.flat_map(|row| row.tests.split_whitespace().map(move |test| (test, row.id)));
    let scenarios = named.filter(|(test, _)| test.starts_with("parity/"));
    let shown = |test: &str, id: &str| kept.contains(&(test.to_owned(), id.to_owned()));
    let complaints = scenarios.filter(|(test, id)| !shown(test, id));
    complain(&complaints.map(|(test, id)| format!("{test} keeps no difference {id}")).collect::<Vec<_>>());
}

#[test]
fn every_text_of_a_difference_names_its_row() {
    let ids: BTreeSet<&str> = lines(TABLE).filter_map(|(_, line)| Some(Row::parse(line)?.id)).collect();
    let texts = texts();
    assert!(texts.len() > 200, "{} texts were found", texts.len());
    let complaints =
        texts.iter().filter_map(|(place, text)| Some(format!("{place}: {}", unmarked(text, &ids)?)));
    complain(&complaints.collect::<Vec<_>>());
}

#[test]
fn table_that_leaves_something_out_is_refused() {
    let judge = |table: &str| complaints(table, &["a", "b"], |test| test == "there").join("; ");
    for (table, complaint) in [
        ("# a comment\nx\ta,b\tdoes.\tdoes not.\tw\tn\t–\t1.37\tthere", ""),
        ("x\tall\tdoes.\tdoes not.\tw\tn\t–\t–\tthere there", ""),
        ("x\tall\tdoes.\tdoes not.\tw\tn\t–\tthere", "line 1: not 9 columns"),
        ("no\tall\tdoes.\tdoes not.\tw\tn\t–\t–\tthere", "line 1: \"no\" is no ID"),
        ("x y\tall\tdoes.\tdoes not.\tw\tn\t–\t–\tthere", "line 1: \"x y\" is no ID"),
        ("x\tc\tdoes.\tdoes not.\tw\tn\t–\t–\tthere", "line 1: c is no controller that is built"),
        ("x\tall\tdoes.\tdoes not.\tw\t–\t–\t–\tthere", "line 1: an empty cell"),
        ("x\tall\tdoes.\tdoes not.\tw\tn\t\t–\tthere", "line 1: an empty cell"),
        ("x\tall\tdoes\tdoes not.\tw\tn\t–\t–\tthere", "line 1: the behavior is not a sentence"),
        ("x\tall\tdoes.\tdoes not.\tw\tn\t–\t–\t", "line 1: no test"),
        ("x\tall\tdoes.\tdoes not.\tw\tn\t–\t–\tgone", "line 1: there is no test gone"),
        (
            "x\ta\tdoes.\tdoes not.\tw\tn\t–\t–\tthere\nx\ta\tdoes.\tdoes not.\tw\tn\t–\t–\tthere",
            "line 2: a second row x",
        ),
        (
            "x\ta\tdoes.\tdoes not.\tw\tn\t–\t–\tthere\ny\tb\tdoes.\tdoes not.\tw\tn\t–\t–\tthere\n\
             z\ta\tdoes.\tdoes not.\tw\tn\t–\t–\tthere",
            "line 3: the rows of a are not together",
        ),
    ] {
        assert_eq!(judge(table), complaint, "{table}");
    }
}

#[test]
fn row_with_unit_tests_only_is_refused_unless_it_is_listed() {
    let row = |id: &str, tests: &str| format!("{id}\tall\tdoes.\tdoes not.\tw\tn\t–\t–\t{tests}\n");
    let real = ["parity/job/ends", "a integration::jobs::b", "machinery::wire::time::differential::c"];
    let table: String =
        real.iter().enumerate().map(|(at, tests)| row(&format!("real-{at}"), tests)).collect();
    let table = table + &row("unit", "a b") + &row("listed", "controllers::a");
    let complaints = unit_complaints(&table, "# a comment\nlisted\nreal-1\n").join("; ");
    assert_eq!(
        complaints,
        "unit has unit tests only: add a test with real tools, or unit to tests/differences-unit.txt; \
         real-1 is no row with unit tests only: remove real-1 from tests/differences-unit.txt"
    );
}

#[test]
fn page_has_the_requests_and_metrics_of_a_row() {
    let table = "# a comment\nnodes\tpatch nodes\tsmaller. Differs: a\npods\tpatch pods\tso it is. Differs: no\nsets\tpatch sets\tas well. Differs: a\n";
    assert_eq!(listed(table, "a", show_write).as_deref(), Some("`patch nodes` (nodes), `patch sets` (sets)"));
    assert_eq!(listed("up{a=\twhether\tso. Differs: b\n", "b", show_series).as_deref(), Some("`up{a=…`"));
    assert_eq!(listed(table, "b", show_write), None);
}

#[test]
fn each_item_of_a_list_of_differences_is_judged() {
    let text = "//! # Where it differs from the original, on purpose\n//! - It waits.\n//!   Differs: a.\n//! - It goes.\n//!\n//! # Next\n//! - No.\n";
    let told = told(Path::new("x.rs"), text);
    let items: Vec<&str> = told.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(items[..2], ["It waits. Differs: a.", "It goes. "]);
    assert_eq!(items.len(), 3);
}

#[test]
fn texts_and_their_marks_are_found() {
    let ids = BTreeSet::from(["a", "b-2"]);
    for (text, complaint) in [
        ("It waits. Differs: a.", ""),
        ("Differs: a. Differs: b-2.", ""),
        ("a matter of time. Differs: no", ""),
        ("It waits.", "it names no row of tests/differences.tsv: add `Differs: ID`"),
        ("Differs: a. Differs: c.", "tests/differences.tsv has no row \"c\""),
        ("Differs: .", "tests/differences.tsv has no row \"\""),
    ] {
        assert_eq!(unmarked(text, &ids).unwrap_or_default(), complaint, "{text}");
    }
    for (comment, expected) in [
        ("The original waits.", true),
        ("It goes on. (kube-controller-manager waits.)", true),
        ("Unlike kube-controller-manager, it goes on.", true),
        ("It goes on, where the original waits.", true),
        ("It waits. (The original, which looks nowhere, goes on.)", true),
        ("It waits. The original's goes on.", true),
        ("It waits, as the original does.", false),
        ("The name is kube-controller-manager's.", false),
    ] {
        assert_eq!(tells_of_a_difference(comment), expected, "{comment}");
    }
    let text = "//! One\n//! two.\n\nfn it() {\n    // Three.\n    /// four\n}\n#[cfg(test)]\n// Five.\n";
    assert_eq!(comments(text), [(1, "One two.".to_owned()), (5, "Three. four".to_owned())]);
    assert!(is_test(Path::new("src/tidy/differences.rs")) && is_test(Path::new("x/tests.rs")));
    assert!(!is_test(Path::new("crates/controllers/src/workloads/job/plan.rs")));
}

//! The law of `tests/behaviour.tsv`: every controller that is built has its behaviours there, numbered without a gap, and
//! every behaviour names tests that exist. It never runs them.
//!
//! Numbers are those of the controller's page of behaviours, `3/14`. Controllers that share a page share rows.
//! A test is named by what it is: `controllers::AREA::ROOM::tests::NAME` is a unit test by its crate and module path,
//! `integration::MODULE::NAME` an integration test, `simulation::MODULE::NAME` a test in the simulated cluster, `parity/ROOM/SCENARIO` a
//! parity scenario with a recorded outcome.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use coxswain_controllers::registry::REGISTRY;

const TABLE: &str = include_str!("../tests/behaviour.tsv");
const COLUMNS: usize = 4;

/// What is wrong with a table, line by line.
fn complaints(table: &str, built: &[&str], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    // The last number of each controller, or of all controllers that share a page, and how many there should be.
    let mut numbers: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (at, line) in table.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let mut complain = |what: String| complaints.push(format!("line {}: {what}", at + 1));
        let fields: Vec<&str> = line.split('\t').collect();
        let [controllers, number, behaviour, tests] = fields[..] else {
            complain(format!("{} columns and not {COLUMNS}", fields.len()));
            continue;
        };
        let (number, of) = number.split_once('/').unwrap_or((number, ""));
        let last = numbers.entry(controllers).or_insert((0, of));
        *last = (last.0 + 1, last.1);
        if (number, of) != (&last.0.to_string(), last.1) {
            complain(format!("{controllers} has number {number}/{of} where {}/{} is due", last.0, last.1));
        }
        for name in controllers.split(',').filter(|name| !built.contains(name)) {
            complain(format!("{name} is no controller that is built"));
        }
        if behaviour.trim().is_empty() || tests.trim().is_empty() {
            complain("a behaviour and the test that shows it are required".to_owned());
        }
        for test in tests.split_whitespace().filter(|test| !exists(test)) {
            complain(format!("there is no test {test}"));
        }
    }
    for (controllers, (last, of)) in &numbers {
        if last.to_string() != **of {
            complaints.push(format!("{controllers} has {last} behaviours of {of}"));
        }
    }
    let named: Vec<&str> = numbers.keys().flat_map(|controllers| controllers.split(',')).collect();
    for name in built.iter().filter(|name| !named.contains(name)) {
        complaints.push(format!("{name} is built and has no behaviours"));
    }
    complaints
}

/// Whether a test, or a scenario with its outcome, is there.
pub(crate) fn exists(test: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if let Some(scenario) = test.strip_prefix("parity/") {
        let parity = root.join("tests/parity");
        return [parity.join(scenario), parity.join("outcomes").join(scenario)]
            .iter()
            .all(|path| path.with_extension("yaml").is_file());
    }
    let (folder, path) = match test.strip_prefix("integration::") {
        Some(path) => (root.join("tests/integration"), path),
        None => match test.split_once("::") {
            Some(("controllers", path)) => (root.join("crates/controllers/src"), path),
            Some(("machinery", path)) => (root.join("crates/machinery/src"), path),
            Some(("simulation", path)) => (root.join("tests/simulation"), path),
            Some(("apiserver_model", path)) => (root.join("crates/apiserver-model/src"), path),
            _ => (root.join("src"), test),
        },
    };
    let Some((modules, name)) = path.rsplit_once("::") else { return false };
    let modules: Vec<&str> = modules.split("::").collect();
    let Some((file, inline)) = source(&folder, &modules) else { return false };
    let text = fs::read_to_string(file).unwrap_or_default();
    inline.iter().all(|module| text.contains(&format!("mod {module} {{"))) && is_test(&text, name)
}

/// The file that a module is in, and the rest of its path, which is inline.
fn source<'a>(folder: &Path, modules: &'a [&'a str]) -> Option<(PathBuf, &'a [&'a str])> {
    (1..=modules.len()).rev().find_map(|depth| {
        let (outer, inline) = modules.split_at(depth);
        let path = outer.iter().fold(folder.to_owned(), |path, module| path.join(module));
        let files = [path.with_extension("rs"), path.join("mod.rs")];
        files.into_iter().find(|file| file.is_file()).map(|file| (file, inline))
    })
}

/// Whether a source file has this function as a test that runs.
fn is_test(text: &str, name: &str) -> bool {
    let Some(at) = text.find(&format!("fn {name}(")) else { return false };
    // Its attributes and comments are above it, up to an empty line or the beginning of a block.
    let above = &text[..at];
    let begin = above.rfind("\n\n").max(above.rfind("{\n")).unwrap_or(0);
    let above = &above[begin..];
    (above.contains("#[test]") || above.contains("#[tokio::test")) && !above.contains("#[ignore")
}

#[test]
fn every_behaviour_has_its_test() {
    let built: Vec<&str> = REGISTRY.iter().filter(|row| row.build.is_some()).map(|row| row.name).collect();
    let complaints = complaints(TABLE, &built, exists);
    assert!(complaints.is_empty(), "tests/behaviour.tsv:\n{}", complaints.join("\n"));
}

#[test]
fn a_table_that_leaves_something_out_is_refused() {
    let judge = |table: &str| complaints(table, &["a", "b"], |test| test == "there").join("; ");
    for (table, complaint) in [
        ("# a comment\na\t1/1\tit acts\tthere\nb\t1/1\tit acts\tthere there", ""),
        ("a,b\t1/1\tthey act\tthere", ""),
        ("a\t1/1\tit acts\tthere", "b is built and has no behaviours"),
        ("a,b\t1/1\tit acts\tthere elsewhere", "line 1: there is no test elsewhere"),
        ("a,b\t1/2\tit acts\tthere", "a,b has 1 behaviours of 2"),
        ("a,b\t1\tit acts\tthere", "a,b has 1 behaviours of "),
        (
            "a,b\t1/3\tit acts\tthere\na,b\t3/3\tit acts\tthere",
            "line 2: a,b has number 3/3 where 2/3 is due; a,b has 2 behaviours of 3",
        ),
        ("a,b\t1/2\tit acts\tthere\na,b\t1/2\tit acts\tthere", "line 2: a,b has number 1/2 where 2/2 is due"),
        ("a,b\t1/1\tit acts\t", "line 1: a behaviour and the test that shows it are required"),
        ("a,b,c\t1/1\tit acts\tthere", "line 1: c is no controller that is built"),
        ("a,b\t1/1\tit acts\tthere\nb\t2/1\tit acts", "line 2: 3 columns and not 4"),
    ] {
        assert_eq!(judge(table), complaint, "{table}");
    }
}

#[test]
fn only_tests_that_run_exist() {
    for (test, expected) in [
        ("behaviour::only_tests_that_run_exist", true),
        ("behaviour::complaints", false),
        ("behaviour::elsewhere::only_tests_that_run_exist", false),
        ("behaviour::nothing", false),
        ("nowhere::only_tests_that_run_exist", false),
        ("integration::rbac::bootstrap_roles_cover_what_controllers_ask_for", true),
        ("integration::rbac::nothing", false),
        ("integration::parity::diff::tests::differences_are_named_where_they_are", true),
        ("parity/deployment/scales", true),
        ("parity/deployment/nothing", false),
    ] {
        assert_eq!(exists(test), expected, "{test}");
    }
    assert!(
        !is_test("#[test]\n#[ignore = \"slow\"]\nfn it() {}", "it"),
        "a test that is ignored shows nothing"
    );
}

//! The law of `tests/behaviour.tsv`: every controller that is built has its behaviors there, numbered without a gap, and
//! every behavior names tests that exist. It never runs them.
//!
//! Numbers are those of the controller's page in `docs/behaviour`, `3/14`, where each must exist. Controllers that share a page share rows.
//! A test is named by what it is: `controllers::AREA::ROOM::tests::NAME` is a unit test by its crate and module path,
//! `integration::MODULE::NAME` an integration test, `simulation::MODULE::NAME` a test in the simulated cluster, `parity/ROOM/SCENARIO` a
//! parity scenario with a recorded outcome.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use coxswain_controllers::registry::REGISTRY;

const TABLE: &str = include_str!("../tests/behaviour.tsv");
const PAGES: &str = "docs/behaviour";
/// The line above a numbered list of a page, before and after the controllers as in the table's first column.
const CITATION: (&str, &str) = ("Cited in `tests/behaviour.tsv` as `", "`:");
const COLUMNS: usize = 4;

/// What is wrong with a table, line by line.
fn complaints(table: &str, built: &[&str], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    // The last number of each controller, or of all controllers that share a page, and how many there should be.
    let mut numbers: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (at, line) in table.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let mut complain = |what: String| complaints.push(format!("line {}: {what}", at + 1));
        let fields: Vec<&str> = line.split('\t').collect();
        let [controllers, number, behavior, tests] = fields[..] else {
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
        if behavior.trim().is_empty() || tests.trim().is_empty() {
            complain("a behavior and the test that shows it are required".to_owned());
        }
        for test in tests.split_whitespace().filter(|test| !exists(test)) {
            complain(format!("there is no test {test}"));
        }
    }
    for (controllers, (last, of)) in &numbers {
        if last.to_string() != **of {
            complaints.push(format!("{controllers} has {last} behaviors of {of}"));
        }
    }
    let named: Vec<&str> = numbers.keys().flat_map(|controllers| controllers.split(',')).collect();
    for name in built.iter().filter(|name| !named.contains(name)) {
        complaints.push(format!("{name} is built and has no behaviors"));
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
fn every_behavior_has_its_test() {
    let built: Vec<&str> = REGISTRY.iter().filter(|row| row.build.is_some()).map(|row| row.name).collect();
    let complaints = complaints(TABLE, &built, exists);
    assert!(complaints.is_empty(), "tests/behaviour.tsv:\n{}", complaints.join("\n"));
}

/// Returns the number of behaviors that the table cites of each controller, or of all controllers that share rows.
fn cited(table: &str) -> BTreeMap<&str, usize> {
    let mut numbers = BTreeMap::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        *numbers.entry(line.split('\t').next().unwrap_or_default()).or_default() += 1;
    }
    numbers
}

/// Returns the numbered lists of a page: the controllers of each and its numbers.
fn lists(page: &str) -> Vec<(&str, Vec<usize>)> {
    let mut lists: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut is_open = false;
    for line in page.lines() {
        let named = line.strip_prefix(CITATION.0).and_then(|rest| rest.strip_suffix(CITATION.1));
        if let Some(controllers) = named {
            lists.push((controllers, Vec::new()));
            is_open = true;
        } else if line.starts_with('#') {
            is_open = false;
        } else if is_open
            && let Some((number, _)) = line.split_once(". ")
            && let Ok(number) = number.parse()
            && let Some((_, numbers)) = lists.last_mut()
        {
            numbers.push(number);
        }
    }
    lists
}

/// Returns the differences between the numbers that the table cites and the numbers on the pages, by name and text.
fn unresolved<'a>(table: &str, pages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut cited = cited(table);
    for (name, text) in pages {
        for (controllers, numbers) in lists(text) {
            let expected = cited.remove(controllers).unwrap_or_default();
            if !numbers.iter().copied().eq(1..=expected) {
                complaints
                    .push(format!("{name}: {controllers} has the numbers {numbers:?}, and {expected} rows"));
            }
        }
    }
    complaints.extend(cited.into_keys().map(|controllers| format!("no page has a list of {controllers}")));
    complaints
}

#[test]
fn every_cited_number_is_on_its_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGES);
    let mut pages = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the folder of pages").flatten() {
        let text = fs::read_to_string(entry.path()).expect("a page");
        pages.insert(entry.file_name().to_string_lossy().into_owned(), text);
    }
    let pages = pages.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let complaints = unresolved(TABLE, pages);
    assert!(complaints.is_empty(), "{PAGES}:\n{}", complaints.join("\n"));
}

#[test]
fn number_without_a_place_on_a_page_is_found() {
    let table =
        "# a comment\na\t1/2\tit acts\tthere\na\t2/2\tit acts again\tthere\na,b\t1/1\tthey act\tthere";
    let list =
        |controllers: &str, items: &str| format!("{}{controllers}{}\n\n{items}", CITATION.0, CITATION.1);
    let judge = |page: &str| unresolved(table, [("page", page)]).join("; ");
    let shared = list("a,b", "1. They act.\n");
    assert_eq!(judge(&format!("{}\n{shared}", list("a", "1. It acts,\n   it acts.\n2. Again.\n"))), "");
    let rest = "## Other\n1. Something else.\n";
    assert_eq!(judge(&format!("1. First.\n\n{}\n{shared}{rest}", list("a", "1. One.\n2. Two.\n"))), "");
    for (own, complaint) in [
        ("1. One.\n", "page: a has the numbers [1], and 2 rows"),
        ("1. One.\n3. Three.\n", "page: a has the numbers [1, 3], and 2 rows"),
        ("1. One.\n2. Two.\n3. Three.\n", "page: a has the numbers [1, 2, 3], and 2 rows"),
    ] {
        assert_eq!(judge(&format!("{}\n{shared}", list("a", own))), complaint);
    }
    assert_eq!(judge(&shared), "no page has a list of a");
    let unknown = format!("{}\n{shared}{}", list("a", "1. One.\n2. Two.\n"), list("c", "1. One.\n"));
    assert_eq!(judge(&unknown), "page: c has the numbers [1], and 0 rows");
}

#[test]
fn a_table_that_leaves_something_out_is_refused() {
    let judge = |table: &str| complaints(table, &["a", "b"], |test| test == "there").join("; ");
    for (table, complaint) in [
        ("# a comment\na\t1/1\tit acts\tthere\nb\t1/1\tit acts\tthere there", ""),
        ("a,b\t1/1\tthey act\tthere", ""),
        ("a\t1/1\tit acts\tthere", "b is built and has no behaviors"),
        ("a,b\t1/1\tit acts\tthere elsewhere", "line 1: there is no test elsewhere"),
        ("a,b\t1/2\tit acts\tthere", "a,b has 1 behaviors of 2"),
        ("a,b\t1\tit acts\tthere", "a,b has 1 behaviors of "),
        (
            "a,b\t1/3\tit acts\tthere\na,b\t3/3\tit acts\tthere",
            "line 2: a,b has number 3/3 where 2/3 is due; a,b has 2 behaviors of 3",
        ),
        ("a,b\t1/2\tit acts\tthere\na,b\t1/2\tit acts\tthere", "line 2: a,b has number 1/2 where 2/2 is due"),
        ("a,b\t1/1\tit acts\t", "line 1: a behavior and the test that shows it are required"),
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

//! Flags: each that is said to do something is read by something, and `tests/flags.tsv` says what it changes and which tests show it.

use std::path::Path;

use coxswain_machinery::options::{FlagEffect, TABLE};

use super::{CRATES, complain, sources};
use crate::behaviour::exists;

/// What each flag changes.
const CHANGES: &str = include_str!("../../tests/flags.tsv");

/// Flags that nothing has to read, and why.
const READ_BY_NOBODY: &[(&str, &str)] = &[("leader-elect-resource-lock", "may be `leases` and nothing else")];

/// What a flag changes is for the tests of who reads it.
#[test]
fn each_flag_that_is_built_is_read() {
    // Parsing, checking and showing a flag is nothing that follows from it.
    let is_other = |path: &Path| {
        let path = path.to_string_lossy();
        path.contains("tests")
            || ["options/flags.rs", "options/configz.rs"].iter().any(|end| path.ends_with(end))
            || path.contains("options/validate")
    };
    let sources: Vec<_> = CRATES.into_iter().flat_map(sources).filter(|(path, _)| !is_other(path)).collect();
    for flag in TABLE {
        let name = flag.name();
        let field = format!(".{}", name.replace('-', "_"));
        let reads = |source: &str| {
            source.match_indices(&field).any(|(at, _)| {
                let next = source[at + field.len()..].chars().next();
                next.is_none_or(|next| !next.is_alphanumeric() && next != '_')
            })
        };
        let is_read = sources.iter().any(|(_, source)| reads(source));
        let is_exempt = READ_BY_NOBODY.iter().any(|(held, _)| *held == name);
        let is_built = flag.effect == FlagEffect::Built;
        assert!(!is_built || is_read != is_exempt, "--{name} is said to be built, and is read: {is_read}");
    }
}

#[test]
fn each_flag_has_tests_that_show_what_it_changes_or_changes_nothing() {
    let rows: Vec<Vec<&str>> = CHANGES
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
        .collect();
    let listed: Vec<&str> = rows.iter().map(|row| row[0].trim_start_matches("--")).collect();
    let names: Vec<String> = TABLE.iter().map(coxswain_machinery::options::Flag::name).collect();
    assert_eq!(listed, names, "tests/flags.tsv has a row for each flag, in the order of --help");
    let mut complaints = Vec::new();
    for (flag, row) in TABLE.iter().zip(&rows) {
        let [name, change, tests] = row[..] else {
            complaints.push(format!("{row:?}: three columns are due"));
            continue;
        };
        let shows = match flag.effect {
            // Of what is left out it is shown that this is said.
            FlagEffect::Built | FlagEffect::LeftOut(_) => true,
            FlagEffect::Cloud | FlagEffect::Moot | FlagEffect::None => false,
        };
        if change.is_empty() || shows == (tests == "-") {
            complaints.push(format!("{name}: {:?} and {tests:?}", flag.effect));
        }
        if !shows && !change.starts_with("Nothing") {
            complaints.push(format!("{name}: nothing follows from it, and the row says {change:?}"));
        }
        for test in tests.split(' ').filter(|test| *test != "-" && !exists(test)) {
            complaints.push(format!("{name}: there is no test {test}"));
        }
    }
    complain(&complaints);
}

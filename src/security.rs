//! The law of `docs/security.md`: every position has its table, what is tried names tests that exist, and what parses what comes
//! from the network is told of everything that is depended on.

use std::collections::BTreeSet;

use crate::behaviour::exists;

const PAGE: &str = include_str!("../docs/security.md");
const LOCK: &str = include_str!("../Cargo.lock");
/// What is built into the manager, by what it depends on.
const MANIFESTS: [&str; 4] = [
    include_str!("../Cargo.toml"),
    include_str!("../crates/cel-check/Cargo.toml"),
    include_str!("../crates/controllers/Cargo.toml"),
    include_str!("../crates/machinery/Cargo.toml"),
];
const PARSERS: &str = "## Parsers of network input";

/// The rows of the table with this heading's last column, by their cells.
fn rows<'a>(text: &'a str, last: &str) -> Vec<Vec<&'a str>> {
    let Some((_, table)) = text.split_once(&format!("| {last} |\n")) else { return Vec::new() };
    let lines = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// What stands in quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The section of this heading.
fn section(heading: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(heading).unwrap_or_else(|| panic!("there is no {heading}"));
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

#[test]
fn every_attack_has_its_test() {
    let mut missing = Vec::new();
    for section in PAGE.split("\n## ") {
        for row in rows(section, "tests") {
            let tests: Vec<&str> = row.last().into_iter().flat_map(|cell| quoted(cell)).collect();
            missing.extend(tests.iter().filter(|test| !exists(test)).map(|test| (*test).to_owned()));
            if tests.is_empty() {
                missing.push(row.join(" | "));
            }
        }
    }
    assert!(missing.is_empty(), "docs/security.md names no test, or one that is not there: {missing:#?}");
}

#[test]
fn every_position_has_its_attacks() {
    let positions = rows(PAGE, "has");
    assert_eq!(positions.len(), 8, "{positions:?}");
    for position in positions {
        let heading = PAGE.lines().filter_map(|line| line.strip_prefix("## ")).find(|heading| {
            let heading = heading.to_lowercase();
            heading
                .strip_prefix(&position[0].to_lowercase())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        });
        let heading = heading.unwrap_or_else(|| panic!("there is no section of {}", position[0]));
        let tried = rows(section(&format!("## {heading}\n")), "tests");
        assert!(!tried.is_empty(), "nothing is tried by {heading}");
    }
}

#[test]
fn what_is_depended_on_is_known_to_parse_or_not() {
    let section = section(PARSERS);
    let told: BTreeSet<&str> = quoted(section).collect();
    let direct = MANIFESTS.iter().flat_map(|manifest| {
        let (_, rest) = manifest.split_once("\n[dependencies]\n").expect("dependencies");
        let lines = rest.lines().take_while(|line| !line.starts_with('['));
        lines.filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|name| !name.is_empty())
    });
    let untold: BTreeSet<&str> =
        direct.filter(|name| !name.starts_with("coxswain-") && !told.contains(name)).collect();
    assert!(
        untold.is_empty(),
        "docs/security.md does not say whether these read what comes from the network: {untold:?}"
    );

    let table = rows(section, "reason for trust");
    assert!(table.len() > 10, "{} rows were found", table.len());
    let gone: Vec<&str> = table
        .iter()
        .flat_map(|row| quoted(row[0]))
        .filter(|name| !LOCK.contains(&format!("\nname = \"{name}\"\n")))
        .collect();
    assert!(gone.is_empty(), "docs/security.md tells of what is not built in: {gone:?}");
}

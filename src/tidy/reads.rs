//! Live reads are declared in one table, so that its page lists all of them.

use std::path::Path;

use super::{CRATES, code, complain, sources};

/// The table, and the type of its rows with the row of what is no request and the row of tests.
const TABLES: &[&str] = &[
    "crates/controllers/src/live_reads.rs",
    "crates/machinery/src/framework/reads.rs",
    "crates/machinery/src/model/live_reads.rs",
];

fn complaints(path: &str, text: &str) -> Vec<String> {
    let others = ["impl", "fn ", "let LiveRead {"];
    let is_row = |line: &str| line.contains("LiveRead {") && !others.iter().any(|other| line.contains(other));
    let rows = code(text).filter(|(_, line)| is_row(line));
    rows.map(|(at, _)| format!("{path}:{}: a live read outside of the table {}", at + 1, TABLES[0])).collect()
}

#[test]
fn live_reads_are_declared_in_their_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = CRATES.into_iter().flat_map(sources).flat_map(|(path, text)| {
        let path = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let is_exempt = path.starts_with("src/tidy/") || TABLES.iter().any(|table| path.ends_with(table));
        if is_exempt { Vec::new() } else { complaints(&path, &text) }
    });
    complain(&found.collect::<Vec<_>>());
}

#[test]
fn a_live_read_outside_of_the_table_is_found() {
    let row = "static MINE: LiveRead = LiveRead { controller: \"job-controller\", name: \"job\" };\n";
    assert_eq!(complaints("a.rs", row).len(), 1);
    assert!(complaints("a.rs", "fn live(row: &'static LiveRead) {}\n").is_empty());
}

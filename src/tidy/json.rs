//! JSON that others wrote is read as Go reads it.

use super::complain;
use super::requests::{lines_with, of_the_manager};

/// Ways to read JSON that refuse text that Go replaces.
const STRICT: &[&str] = &["serde_json::from_str", "serde_json::from_slice", "serde_json::from_reader"];

/// Files, or folders of files, that read JSON strictly, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("crates/machinery/src/wire/json/", "has the readers that replace such text"),
    ("crates/machinery/src/options/logging/json.rs", "reads fields that the manager itself wrote"),
    ("src/admin/overrides/entry.rs", "reads an override, which has a form of its own"),
    ("src/docs.rs", "compares documents with the sources in tests"),
    ("crates/controllers/src/identity/requests/differential/", "compares with Go in tests"),
    ("crates/machinery/src/oracle/", "reads answers of the oracle in tests"),
    ("crates/cel-check/src/", "compares with recorded cases in tests"),
];

#[test]
fn json_of_others_is_read_with_replacements() {
    let (mut complaints, mut used) = (Vec::new(), vec![false; ELSEWHERE.len()]);
    for (path, text) in of_the_manager() {
        let lines = lines_with(&text, STRICT);
        match ELSEWHERE.iter().position(|(allowed, _)| path.starts_with(allowed)) {
            Some(at) => used[at] |= !lines.is_empty(),
            None => complaints.extend(
                lines
                    .into_iter()
                    .map(|(at, line)| format!("{path}:{at}: use read_json in place of `{line}`")),
            ),
        }
    }
    let unused = ELSEWHERE.iter().zip(used).filter(|(_, used)| !used);
    complaints.extend(unused.map(|((path, why), _)| format!("{path}: reads no JSON any longer ({why})")));
    complain(&complaints);
}

//! References that users write are looked up with the namespace of the object that has them. `Dependents` has the only index by UID,
//! and compares the whole reference. This law reads text: it finds a UID in an index function, in a closure in its place, and in the
//! argument of a lookup, not one that comes by way of another function or variable.

use std::path::Path;

use super::{CRATES, code, complain, sources};

/// Have the index of `Dependents` and its lookups.
const DEPENDENTS: &[&str] =
    &["crates/machinery/src/api/indexes.rs", "crates/machinery/src/informer/store/dependents.rs"];

/// Words that read a UID, or a reference that has one.
const BY_UID: &[&str] = &["uid", ".controller()", "owner_references"];

/// Calls that look something up in an index.
const LOOKUPS: &[&str] = &[".filed(", ".filed_if("];

/// The bodies of functions that say under which values an index files an object, with the number of their first line.
fn index_functions(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<(usize, &str)> = code(text).collect();
    let begins = |line: &str| line.contains("fn ") && line.contains("-> IndexKeys {");
    let starts = lines.iter().enumerate().filter(|(_, (_, line))| begins(line));
    let bodies = starts.map(|(at, (number, line))| {
        let indent = line.len() - line.trim_start().len();
        let is_end = |line: &str| line.len() == indent + 1 && line.ends_with('}');
        let body = lines[at + 1..].iter().take_while(|(_, line)| !is_end(line));
        (number + 1, body.map(|(_, line)| *line).collect::<Vec<_>>().join("\n"))
    });
    bodies.collect()
}

/// Returns the complaints about a file's indexes and lookups.
fn complaints(path: &str, text: &str) -> Vec<String> {
    let reads_uid = |text: &str| BY_UID.iter().any(|word| text.contains(word));
    let functions = index_functions(text).into_iter().filter(|(_, body)| reads_uid(body));
    let functions = functions.map(|(at, _)| {
        format!("{path}:{at}: an index by UID; use Dependents, or file by namespace and name")
    });
    let closures =
        code(text).filter(|(_, line)| line.split_once("keys: |").is_some_and(|(_, body)| reads_uid(body)));
    let closures = closures.map(|(at, _)| format!("{path}:{}: an index by UID; use Dependents", at + 1));
    let lookups = code(text).filter(|(_, line)| {
        LOOKUPS.iter().any(|call| line.split_once(call).is_some_and(|(_, argument)| reads_uid(argument)))
    });
    let lookups = lookups.map(|(at, _)| format!("{path}:{}: a lookup by UID; use Dependents", at + 1));
    functions.chain(closures).chain(lookups).collect()
}

#[test]
fn no_index_files_references_by_uid_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = CRATES.into_iter().flat_map(sources).flat_map(|(path, text)| {
        let path = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let is_test = path.contains("/tests/") || path.ends_with("tests.rs") || path.starts_with("src/tidy/");
        let is_exempt = is_test || DEPENDENTS.contains(&path.as_str());
        if is_exempt { Vec::new() } else { complaints(&path, &text) }
    });
    complain(&found.collect::<Vec<_>>());
}

#[test]
fn an_index_or_a_lookup_by_uid_is_found() {
    let index = "fn by_owner(object: &dyn Object) -> IndexKeys {\n    let meta = object.meta();\n    \
                 IndexKeys::from_elem(meta.controller().unwrap().uid.to_str(), 1)\n}\n";
    assert_eq!(complaints("a.rs", index).len(), 1);
    assert_eq!(complaints("a.rs", "let pods = room.pods.filed(&set.metadata.uid.to_str());\n").len(), 1);
    assert_eq!(complaints("a.rs", "    keys: |pod| [pod.meta().uid.to_str()].into(),\n").len(), 1);
    let named = "fn by_claim(object: &dyn Object) -> IndexKeys {\n    claims(object)\n}\n\nfn uid() {}\n";
    assert!(complaints("a.rs", named).is_empty(), "the function ends before the next one");
    assert!(complaints("a.rs", "let pods = room.pods.filed(&claim_key(&key));\n").is_empty());
}

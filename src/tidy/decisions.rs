//! Architecture decision records (`docs/adr`) have one form, and the code that they name exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::complain;

const FOLDER: &str = "docs/adr";
const LIST: &str = "README.md";
const PARTS: &[&str] =
    &["\n- Status: ", "\n- Date: ", "\n- Code: ", "\n## Context\n", "\n## Decision\n", "\n## Consequences\n"];

/// Returns the differences of a record from the form.
fn complaints(name: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    let number = name.split('-').next().unwrap_or_default();
    if !text.starts_with(&format!("# {number}. ")) {
        complaints.push(format!("{name}: the title does not begin with its number"));
    }
    let missing = PARTS.iter().filter(|part| text.matches(**part).count() != 1);
    complaints.extend(missing.map(|part| format!("{name}: there is not one `{}`", part.trim())));
    let code = text.lines().find_map(|line| line.strip_prefix("- Code: ")).unwrap_or_default();
    let paths = code.split(", ").map(|path| path.trim_matches('`'));
    let absent = paths.filter(|path| !exists(path));
    complaints.extend(absent.map(|path| format!("{name}: {path} does not exist")));
    complaints
}

#[test]
fn decisions_have_one_form_and_name_code_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(root.join(FOLDER)).expect("the folder of decisions").flatten() {
        let text = fs::read_to_string(entry.path()).expect("a decision");
        files.insert(entry.file_name().to_string_lossy().into_owned(), text);
    }
    let list = files.remove(LIST).expect("the list of decisions");
    assert!(files.len() > 80, "there are decisions");
    let mut found = Vec::new();
    for (at, (name, text)) in files.iter().enumerate() {
        found.extend(complaints(name, text, |path| root.join(path).exists()));
        if !name.starts_with(&format!("{:04}-", at + 1)) {
            found.push(format!("{name}: {:04} is due", at + 1));
        }
        if list.matches(&format!("({name})")).count() != 1 {
            found.push(format!("{name}: {LIST} does not list it once"));
        }
    }
    complain(&found);
}

#[test]
fn record_in_another_form_is_found() {
    let right = "# 0001. It is so\n\n- Status: accepted\n- Date: 2026-11-21\n- Code: `src/a.rs`, `src/b/`\n\n\
                 ## Context\n\n## Decision\n\n## Consequences\n";
    let judge = |text: &str, absent: &str| complaints("0001-it-is-so.md", text, |path| path != absent);
    assert!(judge(right, "").is_empty());
    assert_eq!(judge(right, "src/b/"), ["0001-it-is-so.md: src/b/ does not exist"]);
    assert_eq!(judge(&right.replace("0001", "0002"), "").len(), 1);
    assert_eq!(judge(&right.replace("## Context\n", ""), "").len(), 1);
    assert_eq!(judge(&right.replace("## Decision\n", "## Decision\n\n## Decision\n"), "").len(), 1);
}

//! `make lint` rejects a planted misspelling. No control plane runs here.

use std::fs;
use std::process::Command;

use super::{file, said};

/// Runs a script of `make lint` on one file with this text. Returns whether it accepts the file, and its output.
fn lint(script: &str, name: &str, text: &str) -> (bool, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let planted = dir.path().join(name);
    fs::write(&planted, text).expect("written");
    let output = Command::new(file(script)).arg(&planted).output().expect("bash");
    (output.status.success(), said(&output))
}

#[test]
fn spelling_checker_rejects_planted_misspelling() {
    let (accepts, output) = lint("scripts/spelling.sh", "planted.md", "The controller deletes the Pod.\n");
    assert!(accepts, "{output}");
    for word in ["recieves", "behaviour"] {
        let (accepts, output) = lint("scripts/spelling.sh", "planted.rs", &format!("// It {word}.\n"));
        assert!(!accepts && output.contains(word), "{output}");
    }
    let exceptions = "b\"caf\\xe9\" tests/behaviour.tsv Fibre Channel UnparseableSchedule\n";
    let (accepts, output) = lint("scripts/spelling.sh", "planted.txt", exceptions);
    assert!(accepts, "{output}");
    let script = fs::read_to_string(file("scripts/lint.sh")).expect("a script");
    assert!(script.contains("\nscripts/spelling.sh\n"), "make lint checks the spelling of everything");
}

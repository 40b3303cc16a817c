//! `make lint` rejects a planted misspelling and planted bad sentences. No control plane runs here.

use std::fs;
use std::process::Command;

use super::{file, said};

/// Runs a script of `make lint` on one file with this text. Returns whether the script accepts the file, and its output.
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

#[test]
fn prose_linter_rejects_planted_bad_sentences() {
    let bad = [
        ("# What it does", "Headless"),
        ("Who looks and who operates is up to roles.", "Headless"),
        ("It runs. Of several Pods it deletes one.", "Headless"),
        ("- Those among them that did not.", "Headless"),
        ("| a |\n|---|\n| Whoever asks |", "Headless"),
        ("The file says nothing.", "Speech"),
        ("The client reads it anew.", "Connectives"),
        ("It runs beside the kubelet.", "Connectives"),
        ("Every room has a queue.", "PrivateWords"),
        ("The original deletes it.", "PrivateWords"),
        ("It ends after a quarter of an hour.", "Numbers"),
        ("The call was cancelled.", "British"),
    ];
    for (text, rule) in bad {
        let (accepts, output) = lint("scripts/prose.sh", "planted.md", &format!("{text}\n"));
        assert!(!accepts && output.contains(&format!("Coxswain.{rule}")), "{text}: {output}");
    }
    let good = "# Effect\n\nThe volumes leave room for others. It reads the file\nthat is full, so many users wait for it. \
                It skips the file whose name is `what`.\n";
    let (accepts, output) = lint("scripts/prose.sh", "planted.md", good);
    assert!(accepts, "{output}");
    let script = fs::read_to_string(file("scripts/lint.sh")).expect("a script");
    assert!(
        script.contains("\nscripts/prose.sh\n"),
        "make lint checks the prose of all documents and strings"
    );
}

/// Strings of tests are not checked.
#[test]
fn prose_linter_rejects_planted_bad_strings() {
    let source = |text: &str| format!("fn planted() {{ tracing::warn!(\"{text}\"); }}\n");
    let (accepts, output) = lint("scripts/prose.sh", "planted.rs", &source("Who asked knows it anew"));
    assert!(
        !accepts && output.contains("Coxswain.Headless") && output.contains("Coxswain.Connectives"),
        "{output}"
    );
    assert!(output.contains("planted.rs:1"), "{output}");
    let tests = "#[cfg(test)]\nmod tests { fn test() { panic!(\"Who asked knows it anew\"); } }\n";
    let good = source("Failed to list {what}") + tests;
    let (accepts, output) = lint("scripts/prose.sh", "planted.rs", &good);
    assert!(accepts, "{output}");
}

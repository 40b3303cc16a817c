//! Keeps the generated parts of the documentation as the code has them. `make docs` rewrites them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use coxswain_controllers::live_reads::ALL;
use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::framework::{DefaultState, LiveRead};
use coxswain_machinery::options::{FlagEffect, TABLE};
use serde_json::Value;

use crate::tidy::{CHANGES, OWNERS, differences_page};

/// In which file a part is, what it begins and ends with, and what is between.
struct Part(&'static str, &'static str, &'static str, fn() -> String);

const README: &str = "README.md";
const FLAGS: &str = "docs/flags.md";
const CHART: &str = "deploy/helm/coxswain";

const PARTS: [Part; 7] = [
    Part(
        README,
        "<!-- transcript: out of tests/data/admin-transcript.txt by `make docs` -->\n",
        "<!-- /transcript -->",
        transcript,
    ),
    Part(
        "deploy/helm/coxswain/README.md",
        "<!-- values: generated from values.schema.json and values.yaml by `make docs` -->\n",
        "<!-- /values -->",
        values,
    ),
    Part(
        FLAGS,
        "<!-- flags: generated from tests/flags.tsv and the table of flags by `make docs` -->\n",
        "<!-- /flags -->",
        flags,
    ),
    Part(FLAGS, "<!-- gates: generated from tests/gates.tsv by `make docs` -->\n", "<!-- /gates -->", gates),
    Part(
        README,
        "<!-- controllers: generated from the registry by `make docs` -->\n",
        "<!-- /controllers -->",
        controllers,
    ),
    Part(
        "docs/live-reads.md",
        "<!-- reads: generated from crates/controllers/src/live_reads.rs by `make docs` -->\n",
        "<!-- /reads -->",
        live_reads,
    ),
    Part(
        "docs/differences.md",
        "<!-- differences: generated from tests/differences.tsv by `make docs` -->\n",
        "<!-- /differences -->",
        differences_page,
    ),
];

/// Longer output is cut to this many lines.
const SHOWN_LINES: usize = 16;

fn controllers() -> String {
    let built = REGISTRY.iter().filter(|row| row.build.is_some()).count();
    let mut table = format!(
        "{built} of {} are built.\n\n| controller | alias | state |\n|---|---|---|\n",
        REGISTRY.len()
    );
    for row in REGISTRY {
        let state = match row.build {
            Some(_) => "**built**",
            // So does the original, whatever its flags say.
            None if row.cloud => "never runs here: it is for a cloud controller manager",
            None => "not yet",
        };
        let mut state = state.to_owned();
        if row.default == DefaultState::Off {
            state.push_str(", off by default");
        }
        if !row.gates.is_empty() {
            let _ = write!(state, ", behind {}", row.gates.join(", "));
        }
        let _ = writeln!(table, "| {} | {} | {state} |", row.name, row.aliases.join(", "));
    }
    table
}

/// What each flag changes, in sections.
fn live_reads() -> String {
    let mut table =
        String::from("| controller | read | request | per hour | when |\n|---|---|---|---|---|\n");
    for row in ALL {
        let LiveRead { controller, name, request, when, idle_per_hour } = row;
        let _ = writeln!(table, "| {controller} | `{name}` | {request} | {idle_per_hour} | {when} |");
    }
    table
}

fn flags() -> String {
    let mut lines = CHANGES.lines().filter(|line| !line.starts_with('#'));
    let (mut table, mut section) = (String::new(), "");
    for flag in TABLE {
        let change = lines.next().and_then(|line| line.split('\t').nth(1)).expect("a row for each flag");
        if flag.section != section {
            section = flag.section;
            let _ = writeln!(table, "\n### {section}\n| flag | what it changes |\n|---|---|");
        }
        let why = match flag.effect {
            FlagEffect::LeftOut(why) => format!(". **Left out**: {why}"),
            _ => String::new(),
        };
        let _ = writeln!(table, "| `--{}` | {change}{why} |", flag.name());
    }
    table
}

/// What each gate that is the manager's switches, and whose the others are.
fn gates() -> String {
    let rows = || {
        OWNERS
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split('\t').collect::<Vec<&str>>())
    };
    let mut table = "| gate | what it switches |\n|---|---|\n".to_owned();
    for row in rows().filter(|row| row[1] == "manager") {
        let _ = writeln!(table, "| `{}` | {} |", row[0], row[2]);
    }
    table.push_str("\n| no effect here | for |\n|---|---|\n");
    for row in rows().filter(|row| row[1] == "no effect") {
        let _ = writeln!(table, "| `{}` | {} |", row[0], row[2]);
    }
    table.push_str("\n| others | |\n|---|---|\n");
    for owner in ["API server", "cloud controller manager", "kubelet", "scheduler", "locked"] {
        let named: Vec<String> =
            rows().filter(|row| row[1] == owner).map(|row| format!("`{}`", row[0])).collect();
        let owner = if owner == "locked" { "nobody's: they can't be set in this release" } else { owner };
        let _ = writeln!(table, "| {owner} | {} |", named.join(", "));
    }
    table
}

/// The values of the chart.
fn values() -> String {
    let read = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CHART).join(name);
        std::fs::read_to_string(path).expect("a file of the chart")
    };
    let schema: Value = serde_json::from_str(&read("values.schema.json")).expect("the schema");
    let defaults: Value = serde_yaml_ng::from_str(&read("values.yaml")).expect("the values");
    let mut table = "| value | default | what |\n|---|---|---|\n".to_owned();
    describe(&mut table, "", &schema, &defaults);
    table
}

/// A line for each value of an object that the schema knows by itself.
fn describe(table: &mut String, prefix: &str, schema: &Value, defaults: &Value) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let (name, default) = (format!("{prefix}{name}"), &defaults[name]);
        if property["properties"].is_object() {
            describe(table, &format!("{name}."), property, default);
        } else if !default.is_null() {
            let what = property["description"].as_str().expect("a description");
            let _ = writeln!(table, "| `{name}` | `{default}` | {what} |");
        }
    }
}

/// The golden transcript of an integration test, without what is typed a second time.
fn transcript() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/admin-transcript.txt");
    let text = std::fs::read_to_string(path).expect("the transcript");
    shortened(&text)
}

fn shortened(transcript: &str) -> String {
    let mut shown = String::from("```console\n");
    let mut typed = BTreeSet::new();
    let mut lines = transcript.lines().peekable();
    while let Some(line) = lines.next() {
        let mut command = line.to_owned();
        while command.ends_with('\\')
            && let Some(more) = lines.next()
        {
            let _ = write!(command, "\n{more}");
        }
        let mut output = Vec::new();
        if line.starts_with("$ ") {
            while let Some(said) = lines.next_if(|next| !next.starts_with("$ ") && !next.is_empty()) {
                output.push(said);
            }
            if !typed.insert(command.clone()) {
                continue;
            }
        }
        let cut = output.len() > SHOWN_LINES;
        let _ = writeln!(shown, "{command}");
        for said in output.into_iter().take(SHOWN_LINES) {
            let _ = writeln!(shown, "{said}");
        }
        if cut {
            shown.push_str("…\n");
        }
    }
    shown.push_str("```\n");
    shown
}

#[test]
fn documents_say_how_things_are() {
    for Part(file, begin, end, generate) in PARTS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(&path).expect("the document");
        let (before, rest) = text.split_once(begin).expect("the beginning of a part");
        let (held, after) = rest.split_once(end).expect("the end of a part");
        let expected = generate();
        if std::env::var_os("COXSWAIN_REGENERATE").is_some() {
            let text = format!("{before}{begin}{expected}{end}{after}");
            std::fs::write(&path, &text).expect("the document is written");
        } else {
            assert_eq!(held, expected, "{file} is out of date: run `make docs`");
        }
    }
}

#[test]
fn a_transcript_is_shortened() {
    let lines = |count: usize| (0..count).map(|at| at.to_string() + "\n").collect::<String>();
    let (long, first) = (lines(SHOWN_LINES + 4), lines(SHOWN_LINES));
    let text = format!("# One\n$ a \\\n    b\n{long}\n# Two\n$ a \\\n    b\nagain\n$ c\nshort\n");
    let expected = format!("```console\n# One\n$ a \\\n    b\n{first}…\n\n# Two\n$ c\nshort\n```\n");
    assert_eq!(shortened(&text), expected);
}

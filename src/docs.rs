//! Keeps the generated parts of the documentation as the code has them. `make docs` rewrites them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use coxswain_controllers::live_reads::ALL;
use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::framework::{DefaultState, LiveRead};
use coxswain_machinery::options::{FlagEffect, TABLE};
use serde_json::Value;

use crate::tidy::{OWNERS, differences_page};

/// In which file a part is, what it begins and ends with, and what is between.
struct Part(&'static str, &'static str, &'static str, fn() -> String);

const FLAGS: &str = "docs/flags.md";
const CHART: &str = "deploy/helm/coxswain";

/// Begins a table that README and the manual take from the measured figures.
const LEAD: &str = "<!-- lead: taken from docs/performance.md by `make docs` -->\n";

const PARTS: [Part; 13] = [
    Part("README.md", LEAD, "<!-- /lead -->", lead),
    Part("docs/decide/benchmarks.md", LEAD, "<!-- /lead -->", lead),
    Part(
        "docs/decide/sizing.md",
        "<!-- sizing: taken from docs/performance.md by `make docs` -->\n",
        "<!-- /sizing -->",
        sizing,
    ),
    Part(
        "docs/start/admin-api-session.md",
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
        "docs/chart.md",
        "<!-- values: generated from values.schema.json and values.yaml by `make docs` -->\n",
        "<!-- /values -->",
        values,
    ),
    Part(
        "docs/commands.md",
        "<!-- commands: generated from the help of the client by `make docs` -->\n",
        "<!-- /commands -->",
        commands,
    ),
    Part(
        FLAGS,
        "<!-- flags: generated from the table of flags by `make docs` -->\n",
        "<!-- /flags -->",
        flags,
    ),
    Part(FLAGS, "<!-- gates: generated from tests/gates.tsv by `make docs` -->\n", "<!-- /gates -->", gates),
    Part(
        "docs/controllers.md",
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
    Part(
        "CONTRIBUTING.md",
        "<!-- example: out of crates/controllers/src/identity/serviceaccount/plan.rs by `make docs` -->\n",
        "<!-- /example -->",
        example,
    ),
];

/// Scenario and figure of a row of the measured lead, and its name in the table.
const LEAD_ROWS: [(&str, &str, &str); 10] = [
    ("idle", "settled RSS, MiB", "memory in an empty cluster, MiB"),
    ("start, 20000 pods", "settled RSS, MiB", "memory with 20,000 pods, MiB"),
    ("rollouts", "CPU, s", "CPU for 100 rollouts of 20 pods, s"),
    ("jobs", "CPU, s", "CPU for 200 Jobs, s"),
    ("daemonsets", "CPU, s", "CPU for 50 DaemonSets on 100 nodes, s"),
    ("fleet", "CPU, s", "CPU for 2 idle minutes with 1,000 nodes, s"),
    (
        "readiness, 1 × 5000 endpoints",
        "latency p99, ms",
        "endpoint latency p99, 1 Service with 5,000 pods, ms",
    ),
    (
        "readiness, 200 × 10 endpoints",
        "latency p99, ms",
        "endpoint latency p99, 200 Services with 10 pods, ms",
    ),
    ("failover, SIGTERM", "seconds to another holder of the Lease", "failover after SIGTERM, s"),
    ("failover, kill -9", "seconds to another holder of the Lease", "failover after kill -9, s"),
];

/// Longer output is cut to this many lines.
const SHOWN_LINES: usize = 16;

/// Returns the measured part of `docs/performance.md`.
fn measured() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/performance.md");
    let page = std::fs::read_to_string(path).expect("the page of figures");
    let (_, rest) = page.split_once("<!-- sidebyside: written by `make bench` -->\n").expect("the figures");
    rest.split_once("<!-- /sidebyside -->").expect("the end of the figures").0.to_owned()
}

/// Returns the cells of a figure: KCM, Coxswain, ratio.
fn cells<'a>(measured: &'a str, scenario: &str, figure: &str) -> [&'a str; 3] {
    let section =
        measured.split("\n#### ").find_map(|section| section.strip_prefix(&format!("{scenario}\n")));
    let row = section
        .and_then(|section| section.lines().find_map(|line| line.strip_prefix(&format!("| {figure} |"))));
    let row = row.unwrap_or_else(|| panic!("docs/performance.md has no figure {figure:?} of {scenario:?}"));
    let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
    cells.try_into().unwrap_or_else(|_| panic!("{scenario}: {figure}: three cells are due: {row}"))
}

/// Returns the sentences that date a table.
fn source(measured: &str) -> String {
    let mut paragraphs = measured.trim_start().split("\n\n");
    let machine = paragraphs.next().and_then(|text| text.split(", ").next()).expect("the machine");
    let (date, machine) = machine.split_once(": ").expect("the date");
    let rounds = paragraphs.next().and_then(|text| text.split(". ").next()).expect("the rounds");
    let rounds = if rounds.to_lowercase().contains("one round") { "Each scenario ran once" } else { rounds };
    format!("\nMeasured with `make bench` on {date}, on {machine}. {rounds}.\n")
}

/// Returns the table of the measured lead.
fn lead() -> String {
    let measured = measured();
    let mut table = "| | KCM | Coxswain | ratio |\n|---|---:|---:|---:|\n".to_owned();
    for (scenario, figure, name) in LEAD_ROWS {
        let [kcm, ours, ratio] = cells(&measured, scenario, figure);
        let _ = writeln!(table, "| {name} | {kcm} | {ours} | {ratio} |");
    }
    table + &source(&measured)
}

/// Pods of a cluster that is estimated and not measured.
const ESTIMATED: f64 = 150_000.0;

/// Reads the median of a cell, which may have the spread in brackets.
fn number(cell: &str) -> f64 {
    cell.split(' ')
        .next()
        .and_then(|median| median.parse().ok())
        .unwrap_or_else(|| panic!("{cell} is no number"))
}

/// Returns the measured memory by size of the cluster.
fn sizing() -> String {
    let measured = measured();
    let mut table = "| cluster | KCM, MiB | Coxswain, MiB | KCM per pod, KiB | Coxswain per pod, KiB |\n\
                     |---|---:|---:|---:|---:|\n"
        .to_owned();
    let [kcm, ours, _] = cells(&measured, "idle", "settled RSS, MiB");
    let _ = writeln!(table, "| empty | {kcm} | {ours} | | |");
    let empty = cells(&measured, "start, 0 pods", "settled RSS, MiB");
    let _ = writeln!(table, "| empty, start | {} | {} | | |", empty[0], empty[1]);
    for pods in [1_000, 5_000, 20_000] {
        let [kcm, ours, _] = cells(&measured, &format!("start, {pods} pods"), "settled RSS, MiB");
        let figure = format!("RSS per pod, KiB, {pods} pods");
        let [kcm_per_pod, per_pod, _] = cells(&measured, "growth with the cluster", &figure);
        let _ = writeln!(table, "| {pods} pods | {kcm} | {ours} | {kcm_per_pod} | {per_pod} |");
    }
    let [kcm, ours, _] = cells(&measured, "fleet", "settled RSS, MiB");
    let _ = writeln!(table, "| 1000 nodes, no pods | {kcm} | {ours} | | |");
    let per_pod = cells(&measured, "growth with the cluster", "RSS per pod, KiB, 20000 pods");
    let [kcm, ours] =
        [0, 1].map(|manager| number(empty[manager]) + ESTIMATED / 1024.0 * number(per_pod[manager]));
    let _ = writeln!(table, "| {ESTIMATED} pods, estimated | {kcm:.0} | {ours:.0} | | |");
    table + &source(&measured)
}

fn controllers() -> String {
    let built = REGISTRY.iter().filter(|row| row.build.is_some()).count();
    let cloud = REGISTRY.iter().filter(|row| row.build.is_none() && row.cloud).count();
    let mut table = format!(
        "Coxswain implements {built} of {} controllers. The other {cloud} run only in a cloud controller manager; KCM \
         does not run them either.\n\n| controller | alias | state |\n|---|---|---|\n",
        REGISTRY.len()
    );
    for row in REGISTRY {
        let state = match row.build {
            Some(_) => "**implemented**",
            // KCM does not run it either, regardless of its flags.
            None if row.cloud => "runs only in a cloud controller manager",
            None => "not implemented yet",
        };
        let mut state = state.to_owned();
        if row.default == DefaultState::Off {
            state.push_str(", off by default");
        }
        if !row.gates.is_empty() {
            let gates = if row.gates.len() == 1 { "feature gate" } else { "feature gates" };
            let _ = write!(state, ", needs the {gates} {}", row.gates.join(", "));
        }
        let _ = writeln!(table, "| {} | {} | {state} |", row.name, row.aliases.join(", "));
    }
    table
}

/// Returns the table of live reads.
fn live_reads() -> String {
    let mut table =
        String::from("| controller | read | request | per hour | when |\n|---|---|---|---|---|\n");
    for row in ALL {
        let LiveRead { controller, name, request, when, idle_per_hour } = row;
        let _ = writeln!(table, "| {controller} | `{name}` | {request} | {idle_per_hour} | {when} |");
    }
    table
}

/// Returns the flags in sections, with type, default and effect.
fn flags() -> String {
    let (mut table, mut section) = (String::new(), "");
    for flag in TABLE {
        if flag.section != section {
            section = flag.section;
            let _ = writeln!(table, "\n### {section}\n| flag | type | default | effect |\n|---|---|---|---|");
        }
        let help = flag.help.replace('|', "\\|");
        let effect = match flag.effect {
            FlagEffect::Built | FlagEffect::Moot => help,
            FlagEffect::LeftOut(why) => format!("{help}. **No effect**: {why}"),
            FlagEffect::Cloud => "No effect, as in KCM: for cloud controller managers".to_owned(),
            FlagEffect::None => "No effect, as in KCM: deprecated".to_owned(),
        };
        let default = flag.default();
        let default = if default.is_empty() { default } else { format!("`{default}`") };
        let _ = writeln!(table, "| `--{}` | {} | {default} | {effect} |", flag.name(), flag.kind);
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
    let mut table = "| gate | effect |\n|---|---|\n".to_owned();
    for row in rows().filter(|row| row[1] == "manager") {
        let _ = writeln!(table, "| `{}` | {} |", row[0], row[2]);
    }
    table.push_str("\n| gate without effect in Coxswain | reason |\n|---|---|\n");
    for row in rows().filter(|row| row[1] == "no effect") {
        let _ = writeln!(table, "| `{}` | {} |", row[0], row[2]);
    }
    table.push_str("\n| gates of | names |\n|---|---|\n");
    for owner in ["API server", "cloud controller manager", "kubelet", "scheduler", "locked"] {
        let named: Vec<String> =
            rows().filter(|row| row[1] == owner).map(|row| format!("`{}`", row[0])).collect();
        let owner =
            if owner == "locked" { "no component: they cannot be changed in this release" } else { owner };
        let _ = writeln!(table, "| {owner} | {} |", named.join(", "));
    }
    table
}

/// Returns the function of the worked example, in a block of code.
fn example() -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/controllers/src/identity/serviceaccount/plan.rs");
    let text = std::fs::read_to_string(path).expect("the plan");
    let begin = text.find("/// Creates the account").expect("the function");
    format!("```rust\n{}```\n", &text[begin..])
}

/// Begins the flags that all commands have.
const COMMON: &str = "\nFinding a replica:";

/// Returns a section for each command of the client, and one for the flags that all have.
fn commands() -> String {
    let mut client = crate::cli::command().term_width(100);
    client.build();
    let mut text = String::new();
    for command in client.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        describe_command(&mut text, "", command);
    }
    let help = client.render_help().to_string();
    let (_, common) = help.split_once(COMMON).expect("flags of all commands");
    let (common, _) = common.split_once("\nExit codes:").expect("exit codes");
    let _ = writeln!(text, "\n## Flags of all commands\n\n```text{COMMON}{}\n```", common.trim_end());
    text
}

/// Adds the section of a command, or the sections of the commands below it.
fn describe_command(text: &mut String, above: &str, command: &mut clap::Command) {
    let name = format!("{above}{}", command.get_name());
    if command.has_subcommands() {
        for below in command.get_subcommands_mut() {
            describe_command(text, &format!("{name} "), below);
        }
        return;
    }
    let help = command.render_help().to_string();
    let (own, common) = help.split_once(COMMON).unwrap_or((&help, ""));
    let (about, usage) = own.split_once("\n\n").expect("a description");
    let note = common
        .rsplit_once("never]\n\n")
        .map_or(String::new(), |(_, note)| format!("\n\n{}", note.trim_end()));
    let _ = writeln!(text, "\n## {name}\n{about}.\n\n```text\n{}{note}\n```", usage.trim_end());
}

/// The values of the chart.
fn values() -> String {
    let read = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CHART).join(name);
        std::fs::read_to_string(path).expect("a file of the chart")
    };
    let schema: Value = serde_json::from_str(&read("values.schema.json")).expect("the schema");
    let defaults: Value = serde_yaml_ng::from_str(&read("values.yaml")).expect("the values");
    let mut table = "| value | default | meaning |\n|---|---|---|\n".to_owned();
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

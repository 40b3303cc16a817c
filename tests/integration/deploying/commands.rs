//! Types every command of the client that a page of the manual names, and compares what is printed with the expected output on the page.
//!
//! The sections in `install::SEQUENCE` are typed there, and the outputs on their pages are compared there.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::file;
use super::install::SEQUENCE;
use crate::harness::{ControlPlane, Options, binaries, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(1);

/// Pages without commands of their own: generated from the program, or for maintainers.
const APART: [&str; 6] = ["adr/", "behaviour/", "contributing/", "commands.md", "differences.md", "style.md"];

/// Beginnings of commands that are typed elsewhere or cannot be typed here, and why.
const ELSEWHERE: [(&str, &str); 14] = [
    ("coxswain --", "flags of the manager"),
    ("coxswain check-left", "typed by install.rs"),
    ("coxswain controllers --server", "typed by cli.rs, with certificates of its own"),
    ("coxswain events -f -o json --log ID", "tested by admin::events, with a log of its own"),
    ("coxswain flags-from", "typed by flags.rs"),
    ("coxswain help COMMAND", "typed by cli::tests"),
    ("coxswain install", "typed by install.rs"),
    ("coxswain preflight", "typed by install.rs and preflight.rs"),
    ("coxswain queues --via-pod", "there are no pods"),
    ("kubectl coxswain controllers --enabled --leader-elect-resource-name", "typed by beside.rs"),
    ("kubectl coxswain leader --tls-server-name", "there is no serving certificate with that name"),
    ("kubectl coxswain leader --via-pod", "there are no pods"),
    ("kubectl coxswain uninstall", "typed by uninstall.rs"),
    ("kubectl coxswain debug dump", "typed by cli.rs"),
];

/// Placeholders of the manual, and what they stand for here. Longer ones come first.
const PLACEHOLDERS: [(&str, &str); 7] = [
    ("KIND NAMESPACE/NAME", "deployment default/web"),
    ("KIND NS/NAME", "deployment default/web"),
    ("NAMESPACE/NAME", "default/web"),
    ("NS/NAME", "default/web"),
    ("NAMESPACE", "default"),
    ("QUEUE", "deployment"),
    ("NAME", "deployment"),
];

/// A command on a page, and the output that the page expects of it, if any.
#[derive(Debug, PartialEq)]
struct Typed {
    command: String,
    output: Option<String>,
}

/// Returns the commands of the client on a page: in code spans, in indented lines and after a prompt. A code span without arguments names
/// a command, whose help is typed. The first block of text under a command that stands on a line of its own is its expected output.
fn commands(page: &str) -> Vec<Typed> {
    let mut found: Vec<Typed> = Vec::new();
    // Whether a block of text would belong to the last command.
    let mut is_open = false;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line == "```text" {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if is_open && let Some(last) = found.last_mut() {
                last.output = Some(block.join("\n"));
            }
            is_open = false;
        } else if line.starts_with('#') {
            is_open = false;
        } else if let Some(command) = line.strip_prefix("    ").or_else(|| line.strip_prefix("$ ")) {
            let mut command = command.trim().to_owned();
            while command.ends_with(['\\', '&', '|']) {
                let Some(rest) = lines.next() else { break };
                command = format!("{}\n{rest}", command.trim_end_matches('\\'));
            }
            if is_of_client(&command) {
                found.push(Typed { command, output: None });
                is_open = true;
            }
        } else {
            let spans = line.split('`').skip(1).step_by(2).filter(|span| is_of_client(span));
            let names = |span: &str| span.trim_start_matches("kubectl ").split_whitespace().count() == 2;
            let typed = |span: &str| if names(span) { format!("{span} --help") } else { span.to_owned() };
            found.extend(spans.map(|span| Typed { command: typed(span), output: None }));
        }
    }
    found
}

fn is_of_client(text: &str) -> bool {
    let text = text.strip_prefix("kubectl ").unwrap_or(text);
    let word = text.strip_prefix("coxswain ").and_then(|rest| rest.split_whitespace().next());
    word.is_some_and(|word| word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-'))
}

/// Returns a line without what differs from run to run: words with digits or with an ellipsis, and the width of columns.
fn shape(line: &str) -> String {
    let varies = |word: &str| word.contains(|letter: char| letter.is_ascii_digit() || letter == '…');
    let words = line.split_whitespace().map(|word| if varies(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Fails unless each line of the expected output was printed, apart from names and numbers.
pub(super) fn assert_printed(expected: &str, said: &str, page: &str) {
    let printed: Vec<String> = said.lines().map(shape).collect();
    for line in expected.lines() {
        assert!(printed.contains(&shape(line)), "docs/{page} expects {line:?}; printed was:\n{said}");
    }
}

fn pages() -> BTreeMap<String, String> {
    let (mut pages, mut folders) = (BTreeMap::new(), vec![file("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name =
                path.strip_prefix(file("docs")).expect("below docs").to_str().expect("text").to_owned();
            let is_page = path.extension().is_some_and(|extension| extension == "md");
            if is_page && !APART.iter().any(|apart| name.starts_with(apart)) {
                pages.insert(name, fs::read_to_string(&path).expect("a page"));
            }
        }
    }
    pages
}

/// The shell of an operator: kubectl, the client as its plugin and by its own name.
fn type_in(programs: &Path, plane: &ControlPlane, command: &str) -> (bool, String) {
    let path = std::env::var("PATH").unwrap_or_default();
    // A command that follows a stream prints what there is within two seconds.
    let follows = command.split_whitespace().any(|word| word == "-f");
    let script = if follows { format!("timeout 2 {command} || test $? = 124") } else { command.to_owned() };
    let output = Command::new("bash")
        .args(["--noprofile", "--norc", "-c", &format!("exec 2>&1; {script}")])
        .env("PATH", format!("{}:{}:{path}", programs.display(), binaries().display()))
        .env("KUBECONFIG", &plane.report.kubeconfigs["admin"])
        .output()
        .expect("bash");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Creates the objects that the pages name: a Deployment that is rolled out, and a StatefulSet whose second pod is not ready.
async fn create_objects(plane: &ControlPlane) {
    plane.kubectl(&["create", "deployment", "web", "--image=main:1"]);
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
        "spec": {
            "replicas": 3, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
            "template": {
                "metadata": { "labels": { "app": "db" } },
                "spec": { "schedulerName": "none", "containers": [{ "name": "main", "image": "main:1" }] },
            },
        },
    });
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db.json");
    fs::write(&path, set.to_string()).expect("written");
    plane.kubectl(&["create", "-f", path.to_str().expect("text")]);
    for (pod, ready) in [("db-0", "True"), ("db-1", "False")] {
        let exists = || async { plane.try_kubectl(&["get", "pod", pod]).status.success() };
        until("the pod", LIMIT, exists, |exists| *exists).await;
        let status = json!({ "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        } });
        let status = status.to_string();
        plane.kubectl(&["patch", "pod", pod, "--subresource=status", "--type=merge", "-p", &status]);
    }
}

#[test]
fn commands_and_their_outputs_are_found() {
    let page = "Use `coxswain queues` or `coxswain-admin`.\n\n    kubectl coxswain leader \\\n      --via-pod\n\nExpected:\n```text\n\
                Holder: a\n```\n# Next\n```text\nno output\n```\n";
    let typed = |command: &str, output: Option<&str>| Typed {
        command: command.to_owned(),
        output: output.map(str::to_owned),
    };
    let expected = [
        typed("coxswain queues --help", None),
        typed("kubectl coxswain leader \n      --via-pod", Some("Holder: a")),
    ];
    assert_eq!(commands(page), expected);
    assert_eq!(shape("Holder:   node-1  (4m ago)"), "Holder: # # ago)");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_manual_succeed_and_print_the_expected_output() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options { nodes: 1, args: Vec::new() });
    let programs = tempfile::tempdir().expect("a directory");
    for name in ["coxswain", "kubectl-coxswain"] {
        symlink(ControlPlane::coxswain_binary(), programs.path().join(name)).expect("a link");
    }
    let _replicas = ["first", "second"].map(|name| plane.coxswain(name, &[]));
    create_objects(&plane).await;
    let succeed = async |command: &str, page: &str| {
        let typed = || async { type_in(programs.path(), &plane, command) };
        until(&format!("success of {command:?} in docs/{page}"), LIMIT, typed, |(success, _)| *success)
            .await
            .1
    };
    let (mut used, mut count, mut outputs) = (vec![false; ELSEWHERE.len()], 0, 0);
    for (page, text) in pages() {
        for Typed { command, output } in commands(&text) {
            if let Some(at) = ELSEWHERE.iter().position(|(begin, _)| command.starts_with(begin)) {
                used[at] = true;
                continue;
            }
            let mut line = command.split(" | ").next().expect("a command").to_owned();
            for (placeholder, value) in PLACEHOLDERS {
                line = line.replace(placeholder, value);
            }
            count += 1;
            let said = succeed(&line, &page).await;
            let is_of_sequence = SEQUENCE.iter().any(|(name, ..)| page.strip_suffix(".md") == Some(name));
            if let Some(output) = output.filter(|_| !is_of_sequence) {
                outputs += 1;
                assert_printed(&output, &said, &page);
            }
            let changes = ["disable", "enable", "step-down"].iter().any(|verb| line.contains(verb));
            if changes && !line.contains("--disabled") {
                succeed("coxswain reset '*' --wait", &page).await;
            }
        }
    }
    let unused: Vec<&str> =
        ELSEWHERE.iter().zip(used).filter(|(_, used)| !used).map(|((begin, _), _)| *begin).collect();
    assert_eq!(unused, Vec::<&str>::new(), "no page has such a command");
    assert!(count >= 40 && outputs >= 2, "{count} commands, {outputs} outputs");
}

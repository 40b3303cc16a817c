//! `make run`, typed as README has it: all that it says to try is tried, a first call of the admin API among it, and ^C leaves nothing.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::install::parts;
use super::{file, said};
use crate::harness::{ControlPlane, by_depth, turn_beside_another};

/// Stands before what is to be typed in another terminal.
const TRY: &str = "In another terminal:";
/// Ends it.
const END: &str = "^C stops everything";

/// A command that a terminal runs, in a process group of its own.
struct Terminal {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Terminal {
    fn run(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdout }
    }

    /// What it says up to a line that holds `end`, and that line.
    fn until(&mut self, end: &str) -> String {
        let mut said = String::new();
        loop {
            let begin = said.len();
            let read = self.stdout.read_line(&mut said).expect("text");
            assert!(read > 0, "it has ended, and did not say {end:?}: {said}");
            if said[begin..].contains(end) {
                return said;
            }
        }
    }

    /// ^C, and the rest of what it says, up to the end.
    fn interrupt(&mut self) -> String {
        let group = format!("-{}", self.child.id());
        let sent = Command::new("kill").args(["-INT", "--", &group]).status().expect("kill runs");
        assert!(sent.success(), "it has ended by itself");
        let mut said = String::new();
        self.stdout.read_to_string(&mut said).expect("text");
        self.child.wait().expect("its end");
        said
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.interrupt();
        }
    }
}

/// A program that heeds ^C, also where these tests were started without it, as what a shell leaves in the background is.
fn interruptible(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", program]);
    command
}

/// README's command that starts a cluster.
fn typed() -> String {
    let readme = fs::read_to_string(file("README.md")).expect("the document");
    let parts = parts(&readme);
    let [part] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!(part.headline, "Try it");
    // This is the directory that the first two make and enter.
    let [clone, enter, run] = &part.commands[..] else { panic!("{part:?}") };
    assert!(clone.starts_with("git clone ") && enter.starts_with("cd "), "{part:?}");
    let page = super::install::page("start/try-it");
    assert!(part.commands.iter().all(|command| page.contains(&format!("\n$ {command}\n"))), "{part:?}");
    run.clone()
}

/// The commands of an indented text, with lines that go on put together.
fn commands(text: &str) -> Vec<String> {
    let indented = text.lines().filter_map(|line| line.strip_prefix("  "));
    let mut all: Vec<String> = Vec::new();
    for line in indented {
        match all.last_mut().and_then(|last| last.strip_suffix('\\').map(|begun| format!("{begun}{line}"))) {
            Some(whole) => *all.last_mut().expect("just seen") = whole,
            None => all.push(line.to_owned()),
        }
    }
    all
}

/// A command in a shell after the others, with which only `exports` are in common.
fn shell(exports: &str, command: &str, tmp: &Path) -> Command {
    let mut bash = interruptible("bash");
    bash.args(["-c", &format!("{exports}{command}")]).current_dir(tmp);
    bash
}

fn try_all(tmp: &Path) {
    let mut make = interruptible("bash");
    make.args(["-c", &format!("exec {}", typed())]).current_dir(file(""));
    make.env("COXSWAIN", ControlPlane::coxswain_binary()).env("TMPDIR", tmp);
    let mut cluster = Terminal::run(make);
    cluster.until(TRY);
    let all = commands(&cluster.until(END));
    let (exports, all): (Vec<String>, Vec<String>) =
        all.into_iter().partition(|each| each.starts_with("export "));
    let exports = exports.join("\n") + "\n";
    assert!(all.len() > 15, "{all:?}");
    let mut led = false;
    for command in &all {
        let words = command.split('#').next().unwrap_or_default().trim();
        if words.ends_with(" -w") || words.ends_with(" -f") {
            // They go on until ^C, and have something to say before.
            let mut endless = Terminal::run(shell(&exports, &format!("exec {words}"), tmp));
            assert_ne!(endless.until("\n").trim(), "", "{command}");
            endless.interrupt();
            continue;
        }
        let output = shell(&exports, command, tmp).output().expect("bash");
        assert!(output.status.success(), "{command}: {}", said(&output));
        assert!(!output.stdout.is_empty(), "{command} says nothing");
        led |= command.starts_with("grpcurl ") && said(&output).contains("\"holderIdentity\"");
    }
    assert!(led, "no grpcurl among {all:?}");
    cluster.interrupt();
    let left: Vec<_> = fs::read_dir(tmp).expect("a directory").flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_make_run_says_to_try_works() {
    if !by_depth(false, true) {
        return;
    }
    let _turn = turn_beside_another().await;
    let dir = tempfile::tempdir().expect("a directory");
    let tmp = dir.path().to_owned();
    tokio::task::spawn_blocking(move || try_all(&tmp)).await.expect("it does not fail");
}

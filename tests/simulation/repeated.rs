//! The same seed gives the same trace: in the same process, in another one, on another machine.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::run::{Setup, run};
use crate::setup;
use crate::trace::Trace;

/// Which seed another process is to run.
const ASKED: &str = "COXSWAIN_SIMULATED_SEED";
/// Before each line of its trace.
const MARK: &str = "| ";
/// The traces of clusters without a manager.
const PINNED: &str = "tests/simulation/pinned.txt";

fn short(seed: u64) -> Setup {
    Setup { turmoil: Duration::from_mins(3), ..setup(seed) }
}

fn assert_same(one: &Trace, other: &str) {
    let mut count = 0;
    for (at, (one, other)) in one.lines().zip(other.lines()).enumerate() {
        assert_eq!(one, other, "line {at}");
        count += 1;
    }
    assert_eq!((one.lines().count(), other.lines().count()), (count, count));
}

/// Not only what is asked, but also what is seen, planned and logged.
#[test]
fn the_same_seed_gives_the_same_trace() {
    let traced = run(&Setup { traced: true, ..short(7) }).trace;
    let again = elsewhere(7);
    assert_same(&traced, &again);
    for said in ["  seen: pods ", "replicaset-controller default/auto-replicas plans: create pods default/"] {
        assert!(traced.lines().any(|line| line.contains(said)), "{said}");
    }
    let unseen = run(&short(7)).trace;
    assert_eq!((traced.digest(), traced.count), (unseen.digest(), unseen.count), "nobody acts who looks on");
    assert_ne!(traced.digest(), run(&short(8)).trace.digest());
}

/// The trace in a process that has one core, other hash seeds and addresses, another directory and another environment.
fn elsewhere(seed: u64) -> String {
    let program = std::env::current_exe().expect("this program");
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new("taskset");
    command.arg("0x1").arg(program).args(["--ignored", "--exact", "--nocapture", "repeated::runs_elsewhere"]);
    command.current_dir(directory.path()).env_clear().env(ASKED, seed.to_string());
    command.envs([
        ("PATH", "/usr/bin:/bin"),
        ("TZ", "Asia/Kathmandu"),
        ("LC_ALL", "tr_TR.UTF-8"),
        ("HOME", "/"),
    ]);
    let output = command.output().expect("taskset, of util-linux");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = said.lines().filter_map(|line| Some(line.split_once(MARK)?.1)).collect();
    lines.join("\n")
}

#[test]
#[ignore = "another process runs it"]
fn runs_elsewhere() {
    let seed = std::env::var(ASKED).expect("a seed").parse().expect("a number");
    let trace = run(&Setup { traced: true, ..short(seed) }).trace;
    for line in trace.lines() {
        println!("{MARK}{line}");
    }
}

/// The model and the actors draw the same on every machine: what they do without a manager is written down. With one it would
/// have to be written down anew with every change of any controller.
#[test]
fn a_cluster_without_a_manager_is_the_same_everywhere() {
    let of = |seed| {
        let trace = run(&Setup { managed: false, ..setup(seed) }).trace;
        format!("seed {seed}: {} lines, {}\n", trace.count, trace.digest())
    };
    let expected: String = (1..=3).map(of).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PINNED);
    if std::env::var_os("COXSWAIN_REGENERATE").is_some() {
        std::fs::write(&path, &expected).expect("it is written");
    } else {
        let held = std::fs::read_to_string(&path).expect("what is pinned");
        assert_eq!(
            held, expected,
            "Where actors or the model have changed: COXSWAIN_REGENERATE=1 cargo test --test simulation repeated. \
             Elsewhere something differs by machine."
        );
    }
}

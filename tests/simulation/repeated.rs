//! The same seed gives the same trace: in the same process, in another one, on another machine.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::run::{Setup, run};
use crate::setup;

/// Which seed another process is to run.
const ASKED: &str = "COXSWAIN_SIMULATED_SEED";
/// Before each line of its trace.
const MARK: &str = "| ";
/// The traces of clusters without a manager.
const PINNED: &str = "tests/simulation/pinned.txt";

fn short(seed: u64) -> Setup {
    Setup { turmoil: Duration::from_mins(3), ..setup(seed) }
}

fn assert_same(one: &str, other: &str) {
    let mut count = 0;
    for (at, (one, other)) in one.lines().zip(other.lines()).enumerate() {
        assert_eq!(one, other, "line {at}");
        count += 1;
    }
    assert_eq!((one.lines().count(), other.lines().count()), (count, count));
}

/// Not only what is asked, but also what is seen, planned and logged. Both runs that are watched have a process of their own: in this one
/// others begin and end to listen meanwhile, and who listens to `tracing` may miss something then.
#[test]
fn the_same_seed_gives_the_same_trace() {
    let traced = alone(7, &mut Command::new(std::env::current_exe().expect("this program")));
    assert_same(&traced, &elsewhere(7));
    for said in ["  seen: pods ", "replicaset-controller default/auto-replicas plans: create pods default/"] {
        assert!(traced.lines().any(|line| line.contains(said)), "{said}");
    }
    let unseen = run(&short(7)).trace;
    assert!(traced.ends_with(&unseen.digest()), "nobody acts who looks on");
    assert_ne!(unseen.digest(), run(&short(8)).trace.digest());
}

/// The trace in a process that has one core, other hash seeds and addresses, another directory and another environment.
fn elsewhere(seed: u64) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = Command::new("taskset");
    command.arg("0x1").arg(std::env::current_exe().expect("this program"));
    command.current_dir(directory.path()).env_clear();
    command.envs([
        ("PATH", "/usr/bin:/bin"),
        ("TZ", "Asia/Kathmandu"),
        ("LC_ALL", "tr_TR.UTF-8"),
        ("HOME", "/"),
    ]);
    alone(seed, &mut command)
}

/// The trace of a run in another process, and its digest.
fn alone(seed: u64, command: &mut Command) -> String {
    command
        .args(["--ignored", "--exact", "--nocapture", "repeated::runs_elsewhere"])
        .env(ASKED, seed.to_string());
    let output = command.output().expect("it starts; taskset is of util-linux");
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
    println!("{MARK}{}", trace.digest());
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

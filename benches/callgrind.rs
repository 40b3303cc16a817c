//! Instructions of a program that runs itself under callgrind.

use std::env;
use std::process::Command;

/// Instructions of this program from its start to its end, with `value` in the environment variable that tells it what to do.
pub(crate) fn counted(variable: &str, value: &str) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe().expect("this program"))
        .env(variable, value)
        .output()
        .expect("valgrind runs: it is a package of that name");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let count = text.lines().find_map(|line| line.split_once("Collected : "));
    count.and_then(|(_, count)| count.trim().parse().ok()).expect("callgrind says what it counted")
}

//! Rows about flags, logs, metrics, threads and connections: the same command line for both programs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{Caller, ControlPlane, Manager, Options, Program, turn_beside_another, until};

const LIMIT: Duration = Duration::from_mins(1);

fn start<'a>(plane: &'a ControlPlane, program: Program, name: &str, args: &[&str]) -> Manager<'a> {
    match program {
        Program::Go => plane.go_manager(name, args),
        Program::Coxswain => plane.coxswain(name, args),
    }
}

/// Installs a FlexVolume driver that leaves a file where it runs. Returns the file.
fn install_driver(directory: &Path) -> std::path::PathBuf {
    let driver = directory.join("example.com~disk");
    fs::create_dir(&driver).expect("a directory");
    let (program, ran) = (driver.join("disk"), driver.join("ran"));
    let script = format!("#!/bin/sh\ntouch {}\necho '{{\"status\": \"Success\"}}'\n", ran.display());
    fs::write(&program, script).expect("a driver");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it may run");
    ran
}

/// Whether a port speaks this version of TLS.
fn speaks(manager: &Manager<'_>, version: &str) -> bool {
    let address = manager.url.trim_start_matches("https://");
    let output = Command::new("openssl")
        .args(["s_client", "-connect", address, version, "-cipher", "ALL:@SECLEVEL=0"])
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs");
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success() && !text.contains("Cipher is (NONE)")
}

/// The number of TCP connections from a process to the API server.
fn connections(plane: &ControlPlane, pid: u32) -> usize {
    let port = format!(":{:04X}", plane.server().port());
    let sockets = fs::read_dir(format!("/proc/{pid}/fd")).expect("its files").flatten();
    let sockets: Vec<String> = sockets
        .filter_map(|file| fs::read_link(file.path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("connections");
    let table = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Local address, remote address, state (01 is established), and the inode.
    // Linear: a process has few connections.
    let own = table.filter(|fields| {
        fields.len() > 9
            && fields[2].ends_with(&port)
            && fields[3] == "01"
            && sockets.iter().any(|socket| socket == fields[9])
    });
    own.count()
}

fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect()
}

/// Both programs with all controllers and the same flags. Differs: connections-by-purpose. Differs: election-thread.
/// Differs: fewer-threads. Differs: flags-without-effect. Differs: no-flexvolume. Differs: old-tls. Differs: disabled-metrics. Differs: log-modules.
/// Differs: queue-names. Differs: informer-names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_metrics_and_logs_differ_as_recorded() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&Options {
        nodes: 0,
        args: vec!["--audit", "--kwok=false", "--scheduler=false"],
    });
    let cores = std::thread::available_parallelism().expect("cores").get();
    let mut seen = BTreeMap::new();
    let mut sockets = Vec::new();
    for program in [Program::Go, Program::Coxswain] {
        let drivers = tempfile::tempdir().expect("a directory");
        let ran = install_driver(drivers.path());
        let directory = format!("--flex-volume-plugin-dir={}", drivers.path().display());
        let args = [
            "--leader-elect=false",
            "--contention-profiling",
            "--tls-min-version=VersionTLS10",
            "--disabled-metrics=workqueue_depth",
            "--vmodule=httplog=4",
            &directory,
        ];
        let manager = start(&plane, program, &format!("flags-{program}"), &args);
        let health = || manager.page(Caller::Admin, "/healthz?verbose");
        until("the last controllers", LIMIT, health, |page| page.text.contains("ttl-controller")).await;
        manager.page(Caller::Admin, "/nowhere/logged").await;
        let page = async || manager.page(Caller::Admin, "/metrics").await.text;
        let text =
            until("queues", LIMIT, page, |text| text.contains("workqueue_adds_total{name=\"daemonset\""))
                .await;
        if program == Program::Go {
            until("the driver runs", LIMIT, async || ran.exists(), |ran| *ran).await;
        }
        let log = manager.log();
        let workers = match program {
            Program::Go => text.lines().find_map(|line| line.strip_prefix("go_sched_gomaxprocs_threads ")),
            Program::Coxswain => text
                .lines()
                .find_map(|line| line.strip_prefix("coxswain_runtime_workers{runtime=\"manager\"} ")),
        };
        let has = |part: &str| text.lines().any(|line| line.contains(part));
        let observed = [
            ("FlexVolume drivers run", ran.exists()),
            ("the log names the driver", log.contains("example.com/disk")),
            (
                "there is a profile of contention",
                manager.page(Caller::Admin, "/debug/pprof/mutex?debug=1").await.status == 200,
            ),
            ("TLS 1.1 is served", speaks(&manager, "-tls1_1")),
            ("TLS 1.2 is served", speaks(&manager, "-tls1_2")),
            ("a disabled metric is shown", has("workqueue_depth{")),
            ("a pattern of Go files has an effect", log.contains("/nowhere/logged")),
            ("a queue without work is shown", has("name=\"daemonset-node-updates\"")),
            ("each queue is shown", has("name=\"serviceaccount_tokens_secret\"")),
            ("plurals are made", has("endpointss")),
            ("the election has a thread", threads(manager.pid).iter().any(|name| name == "coxswain-elect")),
            (
                "the election is measured",
                has("coxswain_runtime_lateness_seconds_count{runtime=\"election\"}"),
            ),
            (
                "all cores have a worker",
                workers.and_then(|count| count.trim().parse().ok()) == Some(cores.max(2)),
            ),
            (
                "four cores share a worker",
                workers.and_then(|count| count.trim().parse().ok()) == Some(cores.div_ceil(4).max(2)),
            ),
        ];
        for (what, is_so) in observed {
            seen.entry(what).or_insert_with(Vec::new).push(is_so);
        }
        sockets.push(connections(&plane, manager.pid));
        manager.stop();
    }
    let differ = |ours: bool| vec![!ours, ours];
    let few_cores = cores <= 2;
    let expected = BTreeMap::from([
        ("FlexVolume drivers run", differ(false)),
        ("the log names the driver", differ(true)),
        ("there is a profile of contention", differ(false)),
        ("TLS 1.1 is served", differ(false)),
        ("TLS 1.2 is served", vec![true, true]),
        ("a disabled metric is shown", differ(false)),
        ("a pattern of Go files has an effect", differ(false)),
        ("a queue without work is shown", differ(false)),
        ("each queue is shown", differ(true)),
        ("plurals are made", differ(false)),
        ("the election has a thread", differ(true)),
        ("the election is measured", differ(true)),
        ("all cores have a worker", vec![true, few_cores]),
        ("four cores share a worker", vec![few_cores, true]),
    ]);
    assert_eq!(seen, expected, "kube-controller-manager, Coxswain");
    assert!(sockets[0] < sockets[1], "connections: {sockets:?}");
}

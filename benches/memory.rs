//! Memory and start-up beside the Go manager: the same cluster, the same flags, the same `--controllers`.
//!
//! Each manager is started afresh, first in an empty cluster, then in one with pods, ConfigMaps and Secrets, in turns;
//! printed are resident memory once it has settled, CPU seconds until then, and their ratios. `OBJECTS` (5000) says how
//! many pods there are, and as many ConfigMaps and Secrets; `ROUNDS` (2) how often each is measured.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::print_stderr,
    reason = "a benchmark prints, and fails when it cannot go on"
)]

#[path = "../tests/integration/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the benchmark uses a part of what the tests do")]
mod harness;

use std::fs;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use serde_json::json;
use tokio::time::sleep;

use harness::{Cluster, ControlPlane, Manager, Namespace, Options, until};

const CONTROLLERS: &str = "--controllers=deployment-controller,replicaset-controller,serviceaccount-controller,\
    serviceaccount-token-controller,root-ca-certificate-publisher-controller";
/// Each acts at once: a Lease that the one before did not release would be waited for.
const NO_ELECTION: &str = "--leader-elect=false";
/// Pods of one ReplicaSet.
const PODS_PER_SET: usize = 100;
/// Requests under way at the same time while the cluster is filled.
const PARALLEL: usize = 16;
/// RSS has settled when it has stayed within a hundredth for this many samples.
const STEADY_SAMPLES: usize = 8;
const SAMPLE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy)]
struct Figures {
    rss_kib: u64,
    cpu_seconds: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Program {
    Go,
    Coxswain,
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(compare());
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn compare() {
    let (objects, rounds) = (number("OBJECTS", 5000), number("ROUNDS", 2));
    let nodes = (objects / 400 + 2) as u32;
    let plane = ControlPlane::start(&Options { nodes, args: Vec::new() });
    let cluster = plane.cluster().await;

    let empty = rounds_of(&plane, rounds, "empty").await;
    println!("filling the cluster: {objects} pods, ConfigMaps and Secrets");
    fill(&plane, &cluster, objects).await;
    let full = rounds_of(&plane, rounds, "full").await;

    println!("\n| figure | Go | Coxswain | ratio |\n|---|---|---|---|");
    row("RSS, empty cluster, MiB", mib(empty[0].rss_kib), mib(empty[1].rss_kib));
    row(
        &format!("RSS, {objects} pods and {} others, MiB", 2 * objects),
        mib(full[0].rss_kib),
        mib(full[1].rss_kib),
    );
    let above = |at: usize| mib(full[at].rss_kib.saturating_sub(empty[at].rss_kib));
    row("RSS above the empty cluster's, MiB", above(0), above(1));
    let per_pod = |at: usize| above(at) * 1024.0 / objects as f64;
    row("RSS per pod (and ConfigMap and Secret), KiB", per_pod(0), per_pod(1));
    row("CPU seconds from start to settled, full cluster", full[0].cpu_seconds, full[1].cpu_seconds);
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn row(what: &str, go: f64, ours: f64) {
    println!("| {what} | {go:.2} | {ours:.2} | {:.3} |", ours / go);
}

/// The least of some rounds, in turns so that both meet the same moods of the machine.
async fn rounds_of(plane: &ControlPlane, rounds: usize, state: &str) -> [Figures; 2] {
    let mut least = [Figures { rss_kib: u64::MAX, cpu_seconds: f64::MAX }; 2];
    for round in 0..rounds {
        for (at, program) in [Program::Go, Program::Coxswain].into_iter().enumerate() {
            let figures = measure(plane, program, &format!("{state}-{round}-{at}")).await;
            least[at].rss_kib = least[at].rss_kib.min(figures.rss_kib);
            least[at].cpu_seconds = least[at].cpu_seconds.min(figures.cpu_seconds);
        }
    }
    least
}

async fn measure(plane: &ControlPlane, program: Program, name: &str) -> Figures {
    let manager = match program {
        Program::Go => plane.go_manager(name, &[CONTROLLERS, NO_ELECTION]),
        Program::Coxswain => plane.coxswain(name, &[CONTROLLERS, NO_ELECTION]),
    };
    let figures = settle(&manager).await;
    println!("{name}: {:.1} MiB, {:.2} CPU seconds", mib(figures.rss_kib), figures.cpu_seconds);
    manager.stop();
    figures
}

async fn settle(manager: &Manager<'_>) -> Figures {
    let mut samples: Vec<u64> = Vec::new();
    for _ in 0..240 {
        sleep(SAMPLE).await;
        samples.push(rss_kib(manager.pid));
        // Go gives memory back only minutes later; what counts is what it holds when it has started.
        let last = &samples[samples.len().saturating_sub(STEADY_SAMPLES)..];
        let (least, most) = (last.iter().min().copied(), last.iter().max().copied());
        let steady = least.zip(most).is_some_and(|(least, most)| most - least <= most / 100);
        if samples.len() >= 20 && last.len() == STEADY_SAMPLES && steady {
            break;
        }
    }
    Figures { rss_kib: rss_kib(manager.pid), cpu_seconds: cpu_seconds(manager.pid) }
}

fn rss_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number")
}

fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("ticks");
    // Linux counts in hundredths of a second wherever this runs.
    (ticks(11) + ticks(12)) / 100.0
}

/// Pods of ReplicaSets, made by a Go manager without a rate limit, and ConfigMaps and Secrets of a kilobyte each.
async fn fill(plane: &ControlPlane, cluster: &Cluster, objects: usize) {
    let helper = plane.go_manager("filler", &["--kube-api-qps=1000", "--kube-api-burst=2000"]);
    let namespace = cluster.namespace("load").await;
    for at in 0..objects.div_ceil(PODS_PER_SET) {
        let replicas = PODS_PER_SET.min(objects - at * PODS_PER_SET) as i32;
        namespace.deployment(&format!("web-{at}"), replicas, json!({})).await;
    }
    let numbers = stream::iter(0..objects);
    numbers.for_each_concurrent(PARALLEL, |at| create_pair(&namespace, at)).await;
    let running = || async {
        let pods = namespace.pods().await;
        pods.iter()
            .filter(|pod| {
                pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
            })
            .count()
    };
    until("all pods run", Duration::from_mins(10), running, |count| *count == objects).await;
    helper.stop();
}

async fn create_pair(namespace: &Namespace, at: usize) {
    let text = "x".repeat(1024);
    let name = format!("object-{at}");
    let config_map: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "k": text } }))
            .expect("a ConfigMap");
    namespace.api::<ConfigMap>().create(&PostParams::default(), &config_map).await.expect("created");
    let mut secret: Secret =
        serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a Secret");
    secret.data = Some([("k".to_owned(), ByteString(text.into_bytes()))].into());
    namespace.api::<Secret>().create(&PostParams::default(), &secret).await.expect("created");
}

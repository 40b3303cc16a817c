//! Garbage collection beside the Go manager: the same cluster, the same flags, the same objects.
//!
//! For each manager in turn a namespace is filled with ConfigMaps owned in fans and in chains, beside others of which an
//! owner stays. The manager is started, and once it has settled the owners are deleted: half of the trees in the
//! background, then the other half in the foreground. Printed are wall and CPU seconds until all that must go is gone,
//! requests, and resident memory. It fails when anything else went, or anything is left. `OBJECTS` (20000) says how many
//! there are, `QPS` (1000) is `--kube-api-qps` for both.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::print_stderr,
    reason = "a benchmark prints, and fails when it cannot go on"
)]

mod cpu;
#[path = "../tests/integration/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the benchmark uses a part of what the tests do")]
mod harness;
mod settings;

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use cpu::cpu;
use harness::{Caller, ControlPlane, Manager, Namespace, Options, Status, object, until};
use settings::number;

const CONTROLLERS: &str = "--controllers=garbage-collector-controller";
/// Each acts at once: a Lease that the one before did not release would be waited for.
const NO_ELECTION: &str = "--leader-elect=false";
/// Objects of a tree, its root included.
const TREE: usize = 100;
/// Objects of a chain below its root.
const CHAIN: usize = 9;
/// Of so many trees the last two, a fan and chains, have their roots kept.
const KEPT: usize = 20;
/// Requests of the benchmark's own under way at the same time.
const PARALLEL: usize = 16;
const LIMIT: Duration = Duration::from_mins(30);
const SAMPLE: Duration = Duration::from_millis(250);
/// A manager has settled when it took less than a hundredth of a core for so many samples.
const CALM: usize = 8;

#[derive(Clone, Copy, PartialEq)]
enum Program {
    Go,
    Coxswain,
}

/// What one half of the deletions cost.
#[derive(Clone, Copy, Default)]
struct Phase {
    gone: usize,
    wall: f64,
    cpu: f64,
    requests: f64,
}

struct Figures {
    settled_mib: f64,
    settling_cpu: f64,
    peak_mib: f64,
    phases: [Phase; 2],
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(compare());
}

async fn compare() {
    let trees = number("OBJECTS", 20_000).div_ceil(TREE);
    let plane = ControlPlane::start(&Options { nodes: 0, args: Vec::new() });
    let mut all = Vec::new();
    for (name, program) in [("go", Program::Go), ("coxswain", Program::Coxswain)] {
        let namespace = plane.cluster().await.namespace(name).await;
        fill(&namespace, trees).await;
        all.push(measure(&plane, &namespace, (name, program), trees).await);
    }
    let [go, ours] = &all[..] else { panic!("two managers") };
    println!("\n| figure | Go | Coxswain | ratio |\n|---|---:|---:|---:|");
    row("RSS when settled, MiB", go.settled_mib, ours.settled_mib);
    row("RSS at the end, MiB", go.peak_mib, ours.peak_mib);
    row("CPU seconds from start to settled", go.settling_cpu, ours.settling_cpu);
    for (at, how) in ["background", "foreground"].into_iter().enumerate() {
        let (go, ours) = (go.phases[at], ours.phases[at]);
        row(&format!("{how}: wall seconds for {} objects", ours.gone), go.wall, ours.wall);
        row(&format!("{how}: CPU seconds"), go.cpu, ours.cpu);
        row(&format!("{how}: requests"), go.requests, ours.requests);
        let each = |phase: Phase| phase.cpu * 1e6 / phase.gone as f64;
        row(&format!("{how}: CPU microseconds per object"), each(go), each(ours));
        let rate = |phase: Phase| phase.gone as f64 / phase.wall;
        row(&format!("{how}: objects per second"), rate(go), rate(ours));
    }
}

fn row(what: &str, go: f64, ours: f64) {
    println!("| {what} | {go:.2} | {ours:.2} | {:.3} |", ours / go);
}

/// Whether the root of a tree stays.
fn is_kept(tree: usize) -> bool {
    tree % KEPT >= KEPT - 2
}

/// Names of a tree's objects below its root, by level.
fn below(tree: usize) -> Vec<Vec<String>> {
    if tree.is_multiple_of(2) {
        return vec![(1..TREE).map(|at| format!("tree-{tree}-fan-{at}")).collect()];
    }
    let chains = (TREE - 1) / CHAIN;
    (0..CHAIN)
        .map(|level| (0..chains).map(|chain| format!("tree-{tree}-chain-{chain}-{level}")).collect())
        .collect()
}

/// Trees, and beside each an object that it owns together with an object that stays.
async fn fill(namespace: &Namespace, trees: usize) {
    let keeper = create(namespace, "keeper", &[]).await;
    let keeper = &keeper;
    let fill_tree = |tree: usize| async move {
        let root = create(namespace, &format!("tree-{tree}"), &[]).await;
        create(namespace, &format!("tree-{tree}-shared"), &[keeper.clone(), root.clone()]).await;
        let mut above = vec![root];
        for level in below(tree) {
            let mut made = Vec::new();
            for (at, name) in level.iter().enumerate() {
                made.push(create(namespace, name, std::slice::from_ref(&above[at % above.len()])).await);
            }
            above = made;
        }
    };
    stream::iter(0..trees).for_each_concurrent(PARALLEL, fill_tree).await;
}

async fn create(namespace: &Namespace, name: &str, owners: &[OwnerReference]) -> OwnerReference {
    let body = json!({ "metadata": { "name": name, "ownerReferences": owners } });
    let made =
        maps(namespace).create(&PostParams::default(), &object::<ConfigMap>(body)).await.expect("created");
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: name.to_owned(),
        uid: made.metadata.uid.expect("a UID"),
        block_owner_deletion: Some(true),
        controller: None,
    }
}

fn maps(namespace: &Namespace) -> Api<ConfigMap> {
    namespace.api()
}

async fn count(namespace: &Namespace) -> usize {
    let page = maps(namespace).list(&ListParams::default().limit(1)).await.expect("a list");
    page.items.len() + page.metadata.remaining_item_count.unwrap_or(0) as usize
}

async fn measure(
    plane: &ControlPlane,
    namespace: &Namespace,
    (name, program): (&str, Program),
    trees: usize,
) -> Figures {
    let qps = number("QPS", 1000);
    let (qps, burst) = (format!("--kube-api-qps={qps}"), format!("--kube-api-burst={}", 2 * qps));
    let args = [CONTROLLERS, NO_ELECTION, &qps, &burst];
    let manager = match program {
        Program::Go => plane.go_manager(name, &args),
        Program::Coxswain => plane.coxswain(name, &args),
    };
    settle(&manager).await;
    let mut figures = Figures {
        settled_mib: resident_mib(manager.pid),
        settling_cpu: cpu_seconds(manager.pid),
        peak_mib: 0.0,
        phases: [Phase::default(); 2],
    };
    println!(
        "{name}: settled with {:.1} MiB after {:.2} CPU seconds",
        figures.settled_mib, figures.settling_cpu
    );
    let mut left = expected(trees, |_| true);
    assert_eq!(count(namespace).await, left.len(), "nothing went before anything was deleted");
    for (phase, params) in [DeleteParams::background(), DeleteParams::foreground()].iter().enumerate() {
        let after = expected(trees, |tree| is_kept(tree) || (tree / 2) % 2 > phase);
        let doomed: Vec<usize> =
            (0..trees).filter(|tree| !is_kept(*tree) && (tree / 2) % 2 == phase).collect();
        let (cpu, requests, began) = (cpu_seconds(manager.pid), requests(&manager).await, Instant::now());
        let delete = |tree: usize| async move {
            maps(namespace).delete(&format!("tree-{tree}"), params).await.expect("deleted");
        };
        stream::iter(doomed).for_each_concurrent(PARALLEL, delete).await;
        let what = format!("{} objects", after.len());
        until(&what, LIMIT, || count(namespace), |count| *count <= after.len()).await;
        let wall = began.elapsed().as_secs_f64();
        settle(&manager).await;
        figures.phases[phase] = Phase {
            gone: left.len() - after.len(),
            wall,
            cpu: cpu_seconds(manager.pid) - cpu,
            requests: requests_since(&manager, requests).await,
        };
        verify(namespace, &after, |tree| is_kept(tree) || (tree / 2) % 2 > phase).await;
        println!("{name}: {} objects in {wall:.1} s", figures.phases[phase].gone);
        left = after;
    }
    figures.peak_mib = resident_mib(manager.pid);
    manager.stop();
    figures
}

/// The names that must be there when the roots of `stays` are.
fn expected(trees: usize, stays: impl Fn(usize) -> bool) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = (0..trees).map(|tree| format!("tree-{tree}-shared")).collect();
    names.insert("keeper".to_owned());
    for tree in (0..trees).filter(|tree| stays(*tree)) {
        names.insert(format!("tree-{tree}"));
        names.extend(below(tree).into_iter().flatten());
    }
    names
}

/// All that must be there is, and nothing else; what was owned by two refers to those alone that are there.
async fn verify(namespace: &Namespace, names: &BTreeSet<String>, stays: impl Fn(usize) -> bool) {
    let list = maps(namespace).list(&ListParams::default()).await.expect("a list").items;
    let found: BTreeSet<String> = list.iter().filter_map(|each| each.metadata.name.clone()).collect();
    assert!(found == *names, "{:?} differ", found.symmetric_difference(names).take(10).collect::<Vec<_>>());
    for each in &list {
        assert!(each.metadata.deletion_timestamp.is_none());
        let name = each.metadata.name.as_deref().unwrap_or_default();
        let Some(tree) = name.strip_prefix("tree-").and_then(|rest| rest.strip_suffix("-shared")) else {
            continue;
        };
        let owners = each.metadata.owner_references.as_ref().map_or(0, Vec::len);
        let expected = 1 + usize::from(stays(tree.parse().expect("a number")));
        assert_eq!(owners, expected, "owners of {name}");
    }
}

async fn settle(manager: &Manager<'_>) {
    let (mut calm, mut last) = (0, cpu_seconds(manager.pid));
    while calm < CALM {
        sleep(SAMPLE).await;
        let now = cpu_seconds(manager.pid);
        calm = if now - last <= SAMPLE.as_secs_f64() / 12.0 { calm + 1 } else { 0 };
        last = now;
    }
}

/// Requests that a manager has made so far.
async fn requests(manager: &Manager<'_>) -> f64 {
    let metrics = manager.page(Caller::Admin, "/metrics").await;
    let series = metrics.text.lines().filter(|line| line.starts_with("rest_client_requests_total{"));
    series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

async fn requests_since(manager: &Manager<'_>, before: f64) -> f64 {
    requests(manager).await - before
}

fn resident_mib(pid: u32) -> f64 {
    Status::of(pid).field("VmRSS:") as f64 / 1024.0
}

fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    cpu(&stat).1
}

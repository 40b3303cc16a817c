//! What a thousand readers of `StreamEvents` cost the controllers: CPU of the manager while 1,000 pods roll, without
//! readers, with readers that match nothing, and with readers that take everything.
//!
//! Ports are served by threads of their own, so that what the streams send and what the controllers cost can be told apart:
//! CPU by thread. One more reader does not read at all while the pods roll; printed is how many events it was told that it
//! missed, which is none while its share fits into the connection and the log.
//! `PODS` (1000), `READERS` (1000) and `ROUNDS` (2) can be set. Two cores that are shared with a thousand clients do not give
//! the same seconds twice, and not the same number of reconciles either. So costs are told per event too (there are about
//! as many of them as reconciles and writes), and with `INSTRUCTIONS=1` the manager runs under callgrind and its instructions are
//! counted, which takes an hour rather than minutes.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::panic,
    clippy::print_stderr,
    reason = "a benchmark prints, and fails when it cannot go on"
)]

#[path = "../tests/integration/admin/caller.rs"]
#[allow(dead_code, unused_imports, reason = "the benchmark uses a part of what the tests do")]
mod caller;
#[path = "../tests/integration/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the benchmark uses a part of what the tests do")]
mod harness;
#[allow(dead_code, reason = "each benchmark samples what it needs")]
mod sampling;
#[allow(dead_code, reason = "each benchmark has settings of its own")]
mod settings;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coxswain::admin::proto::stream_events_response::Item;
use coxswain::admin::proto::{EventFilter, StreamEventsRequest};
use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tonic::Streaming;

use caller::Admin;
use coxswain::admin::proto::StreamEventsResponse;
use harness::{ControlPlane, Manager, Namespace, Options, until};
use sampling::cpu;
use settings::number;

/// Streams that share a connection.
const PER_CONNECTION: usize = 50;
const LIMIT: Duration = Duration::from_mins(10);

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(compare());
}

#[derive(Clone, Copy, PartialEq)]
enum Readers {
    None,
    Silent,
    All,
}

#[derive(Clone, Copy)]
struct Cost {
    /// What the threads that reconcile cost: CPU seconds, or instructions in billions.
    controllers: f64,
    /// What the threads that serve cost.
    serving: f64,
    /// Events that were published meanwhile.
    published: u64,
    delivered: u64,
}

impl Cost {
    /// What the controllers cost for each million of events.
    fn per_event(self) -> f64 {
        self.controllers / self.published as f64 * 1e6
    }
}

/// The name of the threads that serve, as the kernel keeps it.
const SERVING: &str = "coxswain-serve";

async fn compare() {
    let (pods, readers, rounds) = (number("PODS", 1000), number("READERS", 1000), number("ROUNDS", 2));
    let plane = ControlPlane::start(&Options { nodes: (pods / 200 + 2) as u32, args: Vec::new() });
    let fast = ["--kube-api-qps=1000", "--kube-api-burst=2000", "--leader-elect=false"];
    let meter = Meter::from_environment();
    let manager = meter.start(&plane, &fast);
    let namespace = plane.cluster().await.namespace("roll").await;
    namespace.deployment("web", pods as i32, json!({})).await;
    rolled(&namespace, pods).await;

    let kinds = [Readers::None, Readers::Silent, Readers::All];
    let mut least = kinds.map(|_| Cost { controllers: f64::MAX, serving: 0.0, published: 1, delivered: 0 });
    let mut dropped = 0;
    for round in 0..rounds {
        for (at, kind) in kinds.into_iter().enumerate() {
            let mut slow = None;
            if kind == Readers::All {
                slow = Some(open(&Admin::master(&plane, &manager), &everything()).await);
            }
            let cost =
                roll(&plane, &manager, &meter, &namespace, (pods, readers), kind, round * 3 + at).await;
            if let Some(slow) = &mut slow {
                dropped += missed(slow).await;
            }
            if cost.per_event() < least[at].per_event() {
                least[at] = cost;
            }
        }
    }
    let [none, ..] = least;
    let unit = meter.unit();
    println!("\n{pods} pods roll, {readers} readers; {unit} of the manager, least of {rounds} rounds");
    println!("| readers | controllers | events | per million events | growth | serving | delivered |");
    println!("|---|---|---|---|---|---|---|");
    for (what, cost) in ["none", "that match nothing", "that take everything"].into_iter().zip(least) {
        let Cost { controllers, serving, published, delivered } = cost;
        let each = cost.per_event();
        let growth = (each / none.per_event() - 1.0) * 100.0;
        println!(
            "| {what} | {controllers:.2} | {published} | {each:.0} | {growth:+.1} % | {serving:.2} | {delivered} |"
        );
    }
    println!("the reader that did not read was told of {dropped} events that it missed");
}

fn everything() -> StreamEventsRequest {
    StreamEventsRequest::default()
}

fn nothing() -> StreamEventsRequest {
    let filter = EventFilter { namespaces: vec!["nowhere".to_owned()], ..EventFilter::default() };
    StreamEventsRequest { filter: Some(filter), ..StreamEventsRequest::default() }
}

async fn open(admin: &Admin, request: &StreamEventsRequest) -> Streaming<StreamEventsResponse> {
    admin.events().stream_events(request.clone()).await.expect("a stream").into_inner()
}

/// How many events a reader missed that begins to read only now.
async fn missed(slow: &mut Streaming<StreamEventsResponse>) -> u64 {
    let mut missed = 0;
    while let Ok(Ok(Some(message))) = tokio::time::timeout(Duration::from_secs(2), slow.message()).await {
        if let Some(Item::Dropped(dropped)) = message.item {
            missed += dropped.count;
        }
    }
    missed
}

/// Readers that count what they get, until they are dropped or their streams end.
struct Crowd {
    delivered: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Crowd {
    /// All of them, their streams open.
    async fn collect(
        plane: &ControlPlane,
        manager: &Manager<'_>,
        request: &StreamEventsRequest,
        count: usize,
    ) -> Self {
        let delivered = Arc::new(AtomicU64::new(0));
        let all_open = Arc::new(Barrier::new(count + 1));
        let mut tasks = JoinSet::new();
        for at in 0..count.div_ceil(PER_CONNECTION) {
            let admin = Admin::master(plane, manager);
            for _ in 0..PER_CONNECTION.min(count - at * PER_CONNECTION) {
                let (admin, request) = (admin.clone(), request.clone());
                let (delivered, all_open) = (Arc::clone(&delivered), Arc::clone(&all_open));
                tasks.spawn(async move {
                    let mut events = open(&admin, &request).await;
                    all_open.wait().await;
                    while let Ok(Some(message)) = events.message().await {
                        if matches!(message.item, Some(Item::Event(_))) {
                            delivered.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        }
        all_open.wait().await;
        Self { delivered, _tasks: tasks }
    }
}

/// Sequence number of the newest event.
async fn newest(plane: &ControlPlane, manager: &Manager<'_>) -> u64 {
    let mut events = open(&Admin::master(plane, manager), &nothing()).await;
    while let Some(message) = events.message().await.expect("a message") {
        if let Some(Item::Started(started)) = message.item {
            return started.newest_sequence;
        }
    }
    panic!("a stream that does not say where it starts")
}

async fn roll(
    plane: &ControlPlane,
    manager: &Manager<'_>,
    meter: &Meter,
    namespace: &Namespace,
    (pods, count): (usize, usize),
    readers: Readers,
    turn: usize,
) -> Cost {
    let crowd = match readers {
        Readers::None => None,
        Readers::Silent => Some(Crowd::collect(plane, manager, &nothing(), count).await),
        Readers::All => Some(Crowd::collect(plane, manager, &everything(), count).await),
    };
    let first = newest(plane, manager).await;
    let before = meter.read(manager.pid);
    namespace.set_image("web", &format!("image:{turn}")).await;
    rolled(namespace, pods).await;
    let after = meter.read(manager.pid);
    let published = newest(plane, manager).await - first;
    let (controllers, serving) = (after.0 - before.0, after.1 - before.1);
    let delivered = crowd.map_or(0, |crowd| crowd.delivered.load(Ordering::Relaxed));
    let what = match readers {
        Readers::None => "no readers",
        Readers::Silent => "silent readers",
        Readers::All => "all readers",
    };
    println!(
        "{what}: {controllers:.2} + {serving:.2} {}, {published} events, {delivered} delivered",
        meter.unit()
    );
    Cost { controllers, serving, published, delivered }
}

async fn rolled(namespace: &Namespace, pods: usize) {
    let state = || namespace.get_deployment("web");
    until("the rollout to end", LIMIT, state, |web| {
        let observed = web.status.as_ref().and_then(|status| status.observed_generation);
        let counts = web
            .status
            .as_ref()
            .map(|status| (status.replicas, status.updated_replicas, status.available_replicas));
        let all = Some(pods as i32);
        observed == web.metadata.generation && counts == Some((all, all, all))
    })
    .await;
}

/// How costs are measured.
enum Meter {
    /// CPU seconds as the kernel counts them.
    Cpu,
    /// Instructions as callgrind counts them; it writes its files to this directory.
    Instructions(tempfile::TempDir),
}

impl Meter {
    fn from_environment() -> Self {
        if number("INSTRUCTIONS", 0) == 0 {
            return Self::Cpu;
        }
        Self::Instructions(tempfile::tempdir().expect("a directory"))
    }

    fn unit(&self) -> &'static str {
        match self {
            Self::Cpu => "CPU seconds",
            Self::Instructions(_) => "billion instructions",
        }
    }

    fn start<'a>(&self, plane: &'a ControlPlane, args: &[&str]) -> Manager<'a> {
        let Self::Instructions(dir) = self else { return plane.coxswain("coxswain", args) };
        let script = dir.path().join("coxswain");
        let counted = format!(
            "#!/bin/sh\nexec valgrind --tool=callgrind --separate-threads=yes --callgrind-out-file={}/counts {} \"$@\"\n",
            dir.path().display(),
            ControlPlane::coxswain_binary(),
        );
        fs::write(&script, counted).expect("a script");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("an executable");
        plane.manager("coxswain", script.to_str().expect("text"), args)
    }

    /// What the threads that reconcile (the allocator's with them) and those that serve have cost so far.
    fn read(&self, pid: u32) -> (f64, f64) {
        match self {
            Self::Cpu => cpu_by_thread(pid),
            Self::Instructions(dir) => instructions_by_thread(pid, dir.path()),
        }
    }
}

/// Instructions in billions. Callgrind numbers threads in the order in which they began, and writes of each what came since
/// it wrote last; written before, it is added up.
fn instructions_by_thread(pid: u32, dir: &Path) -> (f64, f64) {
    let dumped = Command::new("callgrind_control").args(["--dump", &pid.to_string()]).output();
    assert!(dumped.expect("callgrind_control runs").status.success(), "callgrind writes its counts");
    let mut threads: Vec<(u32, String)> = fs::read_dir(format!("/proc/{pid}/task"))
        .expect("the process lives")
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            Some((id, fs::read_to_string(entry.path().join("comm")).ok()?))
        })
        .collect();
    threads.sort();
    // Threads that serve begin after the runtime's. Those between were short-lived, which is why the order of what is left
    // says nothing about what comes after them.
    let serving =
        1 + threads.iter().position(|(_, name)| name.starts_with(SERVING)).expect("threads that serve");
    let mut sums = (0.0, 0.0);
    for path in fs::read_dir(dir).expect("a directory").flatten().map(|entry| entry.path()) {
        // counts.PART-THREAD
        let Some(thread) = path.to_str().and_then(|path| path.rsplit_once('-')?.1.parse::<usize>().ok())
        else {
            continue;
        };
        let text = fs::read_to_string(&path).expect("counts");
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ")).expect("a total");
        let total = total.trim().parse::<f64>().expect("a number") / 1e9;
        if thread < serving {
            sums.0 += total;
        } else {
            sums.1 += total;
        }
    }
    sums
}

/// CPU seconds of the threads that reconcile (the allocator's with them), and of those that serve.
fn cpu_by_thread(pid: u32) -> (f64, f64) {
    let mut sums = (0.0, 0.0);
    for entry in fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives").flatten() {
        // Threads may end meanwhile.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let (name, seconds) = cpu(&stat);
        if name.starts_with(SERVING) {
            sums.1 += seconds;
        } else {
            sums.0 += seconds;
        }
    }
    sums
}

//! What tracing costs: CPU and instructions for 1,000 reconciles that write once each, with tracing off, with 1 % of traces
//! recorded and with all of them.
//!
//! The program runs itself for each of the three, beside a server of its own (a process apart, whose CPU does not count)
//! that answers as the API server and as the collector. What is measured is what ships: the log's layer, the worker loop, the
//! client stack, batches of spans encoded and sent by OTLP.
//!
//! CPU by the kernel's account; with `INSTRUCTIONS=1` the instructions as well, counted under callgrind, which do not
//! depend on how busy the machine is. `RECONCILES` (20000) can be set. With `COXSWAIN_UNTRACED=1` the build leaves traces out,
//! and only "off" is measured: what that differs by is what tracing costs where it is not used.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails when it cannot go on"
)]

mod callgrind;
#[path = "../tests/integration/harness/rig.rs"]
#[allow(dead_code, reason = "the benchmark uses a part of what the tests do")]
mod rig;
#[allow(dead_code, reason = "each benchmark has settings of its own")]
mod settings;

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use callgrind::counted;
use coxswain_machinery::api::kinds::CONFIG_MAPS;
use coxswain_machinery::client::{ClientBuilder, ClientMetrics, ClientOptions, Connection};
use coxswain_machinery::framework::{
    Build, BuildError, Built, DefaultState, Descriptor, Instance, Loop, LoopSettings, ObserveError, Outcome,
    Pass, PlanNote, Reads, Reconcile,
};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::clock::SystemClock;
use coxswain_machinery::model::plan::{Failure, Plan, Step, Verb, Write};
use coxswain_machinery::options::{Config, logging};
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::telemetry::tracing::settings::Given;
use coxswain_machinery::telemetry::tracing::{Process, Tracing, TracingSettings};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use jiff::Timestamp;
use settings::{number, text};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The same allocator as the program's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How the program tells itself what to be: `server`, or `PORT PER_MILLION RECONCILES`.
const ROLE: &str = "COXSWAIN_BENCH_ROLE";
/// Reconciles before those that count.
const WARM: usize = 200;
/// Under callgrind everything takes fifty times as long.
const COUNTED: usize = 500;
/// More than all spans of a run: none is to be dropped.
const QUEUE: &str = "65536";
const OFF: &str = "off";

fn main() {
    match text(ROLE) {
        None => compare(),
        Some(role) if role == "server" => single_threaded().block_on(serve()),
        Some(role) => single_threaded().block_on(measure(&role)),
    }
}

fn single_threaded() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn this(role: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.env(ROLE, role).stdout(Stdio::piped());
    command
}

/// Ends with the benchmark.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let mut process = this("server").stdin(Stdio::piped()).spawn().expect("a server");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("its port");
        Self { process, port: line.trim().parse().expect("a port") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn compare() {
    let server = Server::start();
    let reconciles = number("RECONCILES", 20_000);
    let counts = text("INSTRUCTIONS").is_some();
    let untraced = coxswain_machinery::telemetry::tracing::IS_LEFT_OUT;
    let kinds: &[(&str, &str)] =
        if untraced { &[("left out", OFF)] } else { &[("off", OFF), ("1 %", "10000"), ("100 %", "1000000")] };
    println!("| tracing | CPU, ms per 1,000 reconciles | instructions per reconcile |\n|---|---:|---:|");
    for (name, rate) in kinds {
        let role = |reconciles: usize| format!("{} {rate} {reconciles}", server.port);
        let output = this(&role(reconciles)).output().expect("a run");
        let milliseconds = String::from_utf8(output.stdout).expect("a number");
        let milliseconds: f64 = milliseconds.trim().parse().expect("a number");
        let per_thousand = milliseconds * 1000.0 / reconciles as f64;
        let instructions = if counts {
            let counted = counted(ROLE, &role(2 * COUNTED)).saturating_sub(counted(ROLE, &role(COUNTED)));
            (counted / COUNTED as u64).to_string()
        } else {
            String::new()
        };
        println!("| {name} | {per_thousand:.1} | {instructions} |");
    }
}

/// Answers as an API server that stores what it gets as it gets it, and as a collector that takes everything.
async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("its number").port());
    std::io::stdout().flush().expect("it is told");
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("set");
        connections.spawn(async move {
            let service = service_fn(answer);
            let server = auto::Builder::new(TokioExecutor::new());
            // Whoever hangs up has had enough.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let stores = request.uri().path().starts_with("/api/");
    let body = request.into_body().collect().await?.to_bytes();
    let (status, body) = if stores { (201, body) } else { (200, Bytes::new()) };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    let kind = if stores { "application/vnd.kubernetes.protobuf" } else { "application/x-protobuf" };
    response.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
    Ok(response)
}

/// Writes an object for each key.
struct Writes;

impl Reconcile for Writes {
    fn plan(&self, key: &Key, _: &[Failure], _: &Reads, _: Timestamp) -> Result<Pass, ObserveError> {
        let body = Bytes::from_static(b"\x0a\x00");
        let write = Write::new(&CONFIG_MAPS, key.clone(), Verb::Create(body));
        let plan = Plan { steps: vec![Step::Write(write)], ..Plan::default() };
        Ok(Pass::Plan(plan, PlanNote::default()))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all controllers are built by functions of this type")]
fn build(_: &Build<'_>) -> Result<Built, BuildError> {
    let work = Loop {
        queue: "benchmark",
        kind: Some(&CONFIG_MAPS),
        settings: LoopSettings::default(),
        wake_ups: Vec::new(),
        reconcile: Arc::new(Writes),
    };
    Ok(Built { loops: vec![work] })
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "benchmark-controller",
    aliases: &[],
    description: "Writes an object for each key.",
    gates: &[],
    default: DefaultState::On,
    cloud: false,
    special: false,
    service_account: None,
    event_source: None,
    writes: &[],
    build: Some(build),
};

fn tracing(port: &str, rate: &str) -> Option<Tracing> {
    let rate_per_million = rate.parse().ok()?;
    let endpoint = format!("http://127.0.0.1:{port}");
    let variable = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.clone()),
        "OTEL_BSP_MAX_QUEUE_SIZE" => Some(QUEUE.to_owned()),
        "OTEL_BSP_SCHEDULE_DELAY" => Some("100".to_owned()),
        _ => None,
    };
    let given = Given { endpoint: "", rate_per_million, file: "" };
    let settings = TracingSettings::complete(given, &variable).expect("settings").expect("they say where");
    Some(Tracing::new(settings).expect("tracing"))
}

/// CPU of this process so far, in milliseconds, its own and the kernel's for it.
fn cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("this process lives");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let ticks = |at: usize| fields.split_whitespace().nth(at).and_then(|text| text.parse::<f64>().ok());
    // Linux counts in hundredths of a second wherever this runs.
    (ticks(11).expect("ticks") + ticks(12).expect("ticks")) * 10.0
}

async fn measure(role: &str) {
    let [port, rate, reconciles] = role.split(' ').collect::<Vec<_>>()[..] else { panic!("{role}") };
    let reconciles: usize = reconciles.parse().expect("a number");
    let (registry, tracing) = (Registry::new(), tracing(port, rate));
    let traces = tracing.as_ref().map(Tracing::layer);
    logging::init(&Config::default(), Arc::new(SystemClock), traces).expect("a log");
    let process = Process { version: "0", identity: "benchmark", host: "here" };
    let handle = tokio::runtime::Handle::current();
    let exporting = tracing.map(|tracing| tracing.start(process, &registry, &handle).expect("it starts"));

    let connection =
        Connection::load(None, Some(&format!("http://127.0.0.1:{port}"))).await.expect("a server");
    let options = ClientOptions { qps: -1.0, ..ClientOptions::default() };
    let metrics = ClientMetrics::register(&registry).expect("metrics");
    let clients = ClientBuilder::new(connection, options, metrics).await.expect("clients");
    let runtime = rig::runtime_on(clients);
    let mut instance = Instance::prepare(&DESCRIPTOR, &runtime).expect("a controller");
    instance.start(&CancellationToken::new()).await.expect("it starts");
    let work = instance.loops()[0].clone();
    let reconcile = async |at: usize| {
        let done = work.sync(Key::new("ns", format!("object-{at}"))).await.expect("it runs");
        assert!(matches!(done.outcome, Outcome::Done { writes: 1, .. }), "{done:?}");
    };
    for at in 0..WARM {
        reconcile(at).await;
    }
    let before = cpu();
    for at in 0..reconciles {
        reconcile(at).await;
    }
    if let Some(exporting) = exporting {
        exporting.shutdown(Duration::from_mins(1)).await;
    }
    println!("{}", cpu() - before);
    let lost =
        registry.gather().into_iter().find(|family| family.name() == "coxswain_trace_spans_dropped_total");
    let lost = lost.map_or(0.0, |family| family.get_metric()[0].get_counter().get_value());
    assert!(lost < 1.0, "{lost} spans were lost");
    instance.stop(Some(Duration::from_secs(1)), std::future::pending()).await;
}

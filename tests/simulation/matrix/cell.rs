//! One cell: a controller meets one answer for one of its writes, for one of three objects that are otherwise alike.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use coxswain_machinery::environment::Environment;

use super::fault::{Aim, Fault, Log, Planted, RETRY_AFTER};
use super::rows::{Row, Wait};
use super::seeder::Seeder;
use super::state::{Census, Seeded, difference, seeded, state};
use super::{FIRST, TAGS, TOUCHED, VICTIM};
use crate::actors::{self, Files};
use crate::faults::Faults;
use crate::managers::manager;
use crate::run::{EPOCH, in_virtual_time};
use crate::server::Server;
use crate::trace::Trace;
use apiserver_model::{Model, Place};

/// How long the write gets the answer.
const WINDOW: Duration = Duration::from_mins(10);
/// How soon other objects are written, in addition to the time that the row gives.
const SOON: Duration = Duration::from_secs(30);
/// How long the client waits for an answer.
const DEADLINE: Duration = Duration::from_secs(70);
/// How long recovery takes at most: the longest backoff with its jitter, and some time for what follows.
const RECOVERY: Duration = Duration::from_mins(23);
/// How long it takes after somebody has changed the object, in addition to the period.
const AFTER_CHANGE: Duration = Duration::from_mins(2);
/// Tries that the queue's backoff allows in [`WINDOW`]: 5 ms, doubled with each try.
const TRIES: u64 = 18;
/// Tries in [`WINDOW`] of a write that meets a conflict each time, which its plan tolerates: after 10 seconds, doubled with each try.
const TRIES_AFTER_CONFLICT: u64 = 7;
/// A controller whose next pass is later than this is not waited for.
const LONGEST_PERIOD: Duration = Duration::from_hours(1);
/// When objects are changed for rows that ask for that.
const LATER: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_secs(5);

/// How the victim recovered when its writes were carried out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Without help.
    Alone,
    /// After somebody has changed the object.
    AfterChange,
    Never,
    /// Nothing is left to do: the controller was told of success, or the write took effect. Or the next pass is too late to wait for.
    Unknown,
}

/// The result of a cell.
pub(super) struct CellResult {
    pub(super) complaints: Vec<String>,
    pub(super) log: Log,
    pub(super) recovery: Recovery,
}

impl CellResult {
    /// The result of a cell whose seed or manager has panicked, as the output of the test shows.
    pub(super) fn panicked() -> Self {
        let complaints = vec!["panicked".to_owned()];
        Self { complaints, log: Log::default(), recovery: Recovery::Never }
    }
}

/// Runs a cell on a thread of its own.
pub(super) fn run(row: &'static Row, fault: Fault, planted: Option<Planted>) -> CellResult {
    in_virtual_time(1, move || simulate(row, fault, planted))
}

async fn simulate(row: &'static Row, fault: Fault, planted: Option<Planted>) -> CellResult {
    let epoch = Timestamp::from_second(EPOCH).expect("a time");
    let aim = Aim::new(row, fault, planted);
    let server = Server::new(epoch, 1, Faults::aimed(aim), Trace::new(false), None);
    let mut world = Vec::new();
    server.with(|model| (row.world)(&mut Seeder { model, tag: "world", made: &mut world }));
    let since = server.with(|model| model.version());
    let mut made = Vec::new();
    for tag in row.tags() {
        let mut of_tag = Vec::new();
        server.with(|model| (row.seed)(&mut Seeder { model, tag, made: &mut of_tag }));
        made.push(of_tag);
    }
    let seeded = server.with(|model| seeded(model, &made));
    let made = made.concat();
    let files = Files::new(&server);
    let controllers = format!("--controllers={}", row.controller);
    let mut flags = vec!["--leader-elect=false".to_owned(), controllers];
    flags.extend(row.flags.iter().map(|flag| (*flag).to_owned()));
    if row.files {
        flags.extend(files.flags());
        let key = format!("{}/sa.key", files.directory());
        let pair = rcgen::KeyPair::generate().expect("a key");
        std::fs::write(&key, pair.serialize_pem()).expect("a file");
        flags.push(format!("--service-account-private-key-file={key}"));
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let alive = CancellationToken::new();
    let environment = Environment::simulated(server.now(), server.service(1, alive.clone(), &Arc::default()));
    let census = Mutex::new(Census::since(since));
    let cell = Cell { server: Arc::clone(&server), row, fault, made, seeded, census };
    tokio::select! {
        biased;
        found = cell.story() => found,
        ended = manager(&flags, CancellationToken::new(), environment) => panic!("the manager has ended: {ended:?}"),
        () = kubelets(Arc::clone(&server)) => unreachable!("they go on for ever"),
        () = actors::bookmarks(Arc::clone(&server)) => unreachable!("they go on for ever"),
    }
}

/// Renews the Leases of nodes that have one, attaches volumes, and ends pods that empty volumes.
async fn kubelets(server: Arc<Server>) {
    loop {
        let now = server.now();
        server.with(|model| {
            let attachments: Vec<Place> = model
                .all("volumeattachments", "")
                .filter(|held| held.json["status"]["attached"] != true)
                .map(|held| held.place.clone())
                .collect();
            for place in attachments {
                let attached = model.change("attacher", &place, "status", |attachment| {
                    attachment["status"]["attached"] = json!(true);
                });
                attached.expect("the VolumeAttachment is there");
            }
            let recyclers: Vec<Place> = model
                .all("pods", "default")
                .filter(|pod| {
                    pod.place.name.starts_with("recycler-for-") && pod.json["status"]["phase"] == "Pending"
                })
                .map(|pod| pod.place.clone())
                .collect();
            for place in recyclers {
                let ended = model
                    .change("kubelet", &place, "status", |pod| pod["status"]["phase"] = json!("Succeeded"));
                ended.expect("the pod is there");
            }
            let leases: Vec<Place> =
                model.all("leases", "kube-node-lease").map(|lease| lease.place.clone()).collect();
            for lease in leases {
                let renewed = model.change("kubelet", &lease, "", |lease| {
                    lease["spec"]["renewTime"] = json!(format!("{now:.6}"));
                });
                renewed.expect("the Lease is there");
            }
        });
        sleep(Duration::from_secs(10)).await;
    }
}

struct Cell {
    server: Arc<Server>,
    row: &'static Row,
    fault: Fault,
    made: Vec<Place>,
    seeded: Seeded,
    census: Mutex<Census>,
}

impl Cell {
    async fn story(&self) -> CellResult {
        sleep(LATER).await;
        let mut made = Vec::new();
        for tag in self.row.tags() {
            self.server.with(|model| (self.row.later)(&mut Seeder { model, tag, made: &mut made }));
        }
        let began = Instant::now();
        while began.elapsed() < WINDOW.saturating_sub(LATER) {
            self.poll().await;
        }
        let during = self.log();
        self.server.faults(|faults, _| {
            if let Some(aim) = &mut faults.aim {
                aim.is_on = false;
            }
        });
        let is_done = self.row.single && self.fault == Fault::TimeoutAfter;
        let recovery = if self.fault == Fault::Undone || is_done || self.row.period > LONGEST_PERIOD {
            Recovery::Unknown
        } else if self.recovers(RECOVERY + self.row.period).await {
            Recovery::Alone
        } else {
            self.server.with(|model| touch(model, &self.made));
            let within = AFTER_CHANGE + self.row.period;
            if self.recovers(within).await { Recovery::AfterChange } else { Recovery::Never }
        };
        let mut complaints = self.complaints(&during);
        let states = self.states();
        if !self.row.single && recovery != Recovery::Unknown && states[0] != states[2] {
            complaints.push(format!("the bystanders differ: {}", difference(&states[0], &states[2])));
        }
        self.judge_recovery(recovery, &states, &mut complaints);
        CellResult { complaints, log: Log { writes: self.log().writes, ..during }, recovery }
    }

    /// Waits a little and returns the version that the server then has.
    async fn poll(&self) -> u64 {
        sleep(POLL).await;
        self.server.with(|model| {
            self.census.lock().take(model);
            model.version()
        })
    }

    fn log(&self) -> Log {
        self.server.faults(|faults, _| faults.aim.as_ref().map(|aim| aim.log.clone()).unwrap_or_default())
    }

    fn states(&self) -> [Vec<String>; 3] {
        self.server.with(|model| TAGS.map(|tag| state(model, tag, &self.seeded)))
    }

    /// Waits until the victim is as the others are, and returns whether that happens within this time.
    async fn recovers(&self, within: Duration) -> bool {
        let began = Instant::now();
        let mut seen = 0;
        while began.elapsed() < within {
            let version = self.poll().await;
            if version == seen {
                continue;
            }
            seen = version;
            if self.row.single {
                if self.log().first.contains_key(VICTIM) {
                    return true;
                }
                continue;
            }
            let [first, victim, last] = self.states();
            if first == victim && victim == last {
                return true;
            }
        }
        false
    }

    /// Returns the complaints about the time in which the write got the answer.
    fn complaints(&self, during: &Log) -> Vec<String> {
        let Self { row, fault, .. } = self;
        let mut complaints = Vec::new();
        let attempts = during.attempts.len() as u64;
        if attempts == 0 {
            complaints.push("the victim's write was never sent: the row provokes nothing".to_owned());
        }
        let late = if fault.is_timeout() { DEADLINE * row.timeouts } else { Duration::ZERO };
        let late = if *fault == Fault::TooManyRequests { DEADLINE } else { late };
        let soon = row.starts_after + SOON + late;
        for tag in row.tags().filter(|tag| *tag != VICTIM) {
            match during.first.get(tag) {
                Some(at) if *at <= soon => {}
                Some(at) => complaints.push(format!("{tag} was written after {at:?}, not within {soon:?}")),
                None => complaints.push(format!("{tag} was never written")),
            }
        }
        let limit = self.tries();
        if attempts > limit {
            complaints.push(format!(
                "the write was sent {attempts} times, more than {limit}: {:?}",
                last_of(during)
            ));
        }
        let limit = limit * row.reads_per_try;
        if during.reads > limit {
            complaints.push(format!("the victim was read {} times, more than {limit}", during.reads));
        }
        complaints
    }

    /// Returns how often the write may be sent within [`WINDOW`].
    fn tries(&self) -> u64 {
        let times = |period: Duration| (WINDOW.as_secs_f64() / period.as_secs_f64()) as u64 + 1;
        let by_period = if self.row.period.is_zero() { 0 } else { times(self.row.period) };
        let by_answer = match self.fault {
            Fault::TooManyRequests => times(Duration::from_secs(u64::from(RETRY_AFTER))),
            Fault::Conflict => TRIES_AFTER_CONFLICT,
            _ => 0,
        };
        (TRIES + by_period + by_answer) * self.row.writes_per_pass
    }

    fn judge_recovery(&self, recovery: Recovery, states: &[Vec<String>; 3], complaints: &mut Vec<String>) {
        let Self { row, fault, .. } = self;
        let declared = Wait::of(row.waits_for_change, *fault);
        match (recovery, declared) {
            (Recovery::Unknown, _) => return,
            (Recovery::Never, _) if row.may_stay.is_some() => return,
            (Recovery::Never, _) => {
                complaints.push(format!("never recovered: {}", difference(&states[1], &states[0])));
                return;
            }
            (Recovery::AfterChange, None) if !fault.announces_change(row) => {
                complaints.push("recovered only after a change of the object".to_owned());
            }
            (Recovery::Alone, Some(wait)) => {
                complaints
                    .push(format!("recovered without a change, although the row says: {}", wait.reason));
            }
            _ => {}
        }
        if row.single {
            return;
        }
        let [first, victim] = [FIRST, VICTIM].map(|tag| self.census.lock().of(tag));
        match Wait::of(row.recreates, *fault) {
            None if first != victim => {
                complaints.push(format!("objects were made more than once: {victim:?} instead of {first:?}"));
            }
            Some(wait) if first == victim => {
                complaints.push(format!(
                    "no object was made more than once, although the row says: {}",
                    wait.reason
                ));
            }
            _ => {}
        }
    }
}

fn last_of(log: &Log) -> &[Duration] {
    &log.attempts[log.attempts.len().saturating_sub(5)..]
}

/// Changes an annotation of the objects that were there at the start.
fn touch(model: &mut Model, made: &[Place]) {
    for place in made {
        if model.get(place).is_none() {
            continue;
        }
        let touched = model.change("user", place, "", |object| {
            if !object["metadata"]["annotations"].is_object() {
                object["metadata"]["annotations"] = json!({});
            }
            object["metadata"]["annotations"][TOUCHED] = json!("1");
        });
        touched.expect("an annotation can be changed");
    }
}

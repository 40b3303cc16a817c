//! One run by a seed: a cluster with its actors and the manager, trouble for a while, then calm, and in the end silence.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use tokio::time::{Instant, sleep};

use coxswain_machinery::random;

use crate::actors::{self, Calm, Files, Nodes};
use crate::faults::{Faults, Muted};
use crate::invariants::{Violation, unsettled};
use crate::listener::listen;
use crate::managers::Managers;
use crate::mutants::Mutant;
use crate::server::{Counts, Server};
use crate::trace::Trace;
use apiserver_model::Model;

/// The rules about the end, and about that of managers.
pub(crate) const SETTLES: &str = "everything becomes as it is wished for, and stays so";
pub(crate) const RESTS: &str = "when everything is as it is wished for, nothing is written";
pub(crate) const ENDS: &str = "a manager ends when it is asked to";
/// When a simulation begins, in seconds.
pub(crate) const EPOCH: i64 = 1_800_000_000;
/// For how long nothing may be written when all is as it should be; and before, for how long something still may.
const SILENCE: Duration = Duration::from_mins(5);
/// How often somebody looks.
const LOOK: Duration = Duration::from_secs(5);

/// What is to be run.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    /// For how long there is trouble.
    pub(crate) turmoil: Duration,
    /// How long it may take then until all is as it should be. The longest backoff is 17 minutes.
    pub(crate) settles_within: Duration,
    /// Whether there are faults, and not wishes alone.
    pub(crate) faults: bool,
    /// Whether there is a manager. Without one a run ends with its trouble.
    pub(crate) managed: bool,
    pub(crate) mutant: Option<Mutant>,
    /// What does not happen although it is drawn.
    pub(crate) muted: Muted,
    /// Whether all of the trace is kept, with what the manager says of itself.
    pub(crate) traced: bool,
}

/// What came of it.
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) violations: Vec<Violation>,
    pub(crate) trace: Trace,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) counts: Counts,
    pub(crate) lasted: Duration,
}

/// Runs it, on a thread of its own.
pub(crate) fn run(setup: &Setup) -> Report {
    let setup = setup.clone();
    in_virtual_time(setup.seed, move || simulate(setup))
}

/// Runs something on a thread of its own, in virtual time.
pub(crate) fn in_virtual_time<T: Send + 'static, F: Future<Output = T>>(
    seed: u64,
    what: impl FnOnce() -> F + Send + 'static,
) -> T {
    let simulation = move || {
        random::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(what())
    };
    let thread =
        std::thread::Builder::new().name("simulated".to_owned()).stack_size(8 << 20).spawn(simulation);
    match thread.expect("a thread").join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

async fn simulate(setup: Setup) -> Report {
    let Setup { seed, turmoil, settles_within, faults, managed, mutant, traced, muted } = setup;
    let began = Instant::now();
    let epoch = Timestamp::from_second(EPOCH).expect("a time");
    let server =
        Server::new(epoch, seed, Faults::new(seed, faults, muted.clone()), Trace::new(traced), mutant);
    actors::start_nodes(&server, 4);
    let files = Arc::new(Files::new(&server));
    let _listening = traced.then(|| listen(&server, files.directory()));
    let (managers, calm) = (Managers::new(seed, Arc::clone(&files)), Calm::default());
    let nodes = Nodes::new(seed, calm.clone(), faults);
    server.checks(|checks| checks.rolls_several(managers.rolls_several));
    let chaos = async {
        if faults {
            let (managers, calm, muted) = (managers.clone(), calm.clone(), muted.clone());
            actors::chaos(Arc::clone(&server), managers, &nodes, seed, calm, muted).await;
        }
        std::future::pending::<()>().await;
    };
    let director = async {
        sleep(turmoil).await;
        if managed {
            direct(&server, settles_within, &calm).await;
        }
    };
    let managers_run = async {
        if managed {
            managers.run(&server).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = server.violated.cancelled() => {}
        () = director => {}
        () = managers_run => {}
        () = nodes.run(&server) => {}
        () = actors::users(Arc::clone(&server), seed, calm.clone(), muted.clone()) => {}
        () = actors::keys(Arc::clone(&server), seed, calm.clone(), muted.clone()) => {}
        () = actors::authority(Arc::clone(&server), &files, seed, calm.clone(), muted.clone()) => {}
        () = actors::autoscalers(Arc::clone(&server), seed, calm.clone(), muted.clone()) => {}
        () = chaos => {}
        () = actors::bookmarks(Arc::clone(&server)) => {}
    }
    if !managed {
        server.tell(&format!("  in the end: {}", server.with(|model| contents(model))));
    }
    let counts = server.counts();
    let (violations, trace, faults) = server.finish();
    Report { seed, violations, trace, faults, counts, lasted: began.elapsed() }
}

/// A digest of all objects.
fn contents(model: &Model) -> String {
    let all: Vec<String> = model.everything().map(|stored| stored.json.to_string()).collect();
    format!("{} objects, {:?}", all.len(), digest(&SHA256, all.concat().as_bytes()))
}

/// After the mishap calm, in which everything becomes as it should be, then silence.
async fn direct(server: &Server, settles_within: Duration, calm: &Calm) {
    server.tell("  it is calm");
    calm.begin();
    let began = Instant::now();
    while let Some(why) = server.with(|model| unsettled(model)) {
        if began.elapsed() > settles_within {
            return server.violate(Violation { rule: SETTLES.to_owned(), what: why });
        }
        sleep(LOOK).await;
    }
    server.tell("  everything is as it is wished for");
    sleep(SILENCE).await;
    let before = server.counts();
    sleep(SILENCE).await;
    let after = server.counts();
    if after.writes > before.writes {
        let what = format!("{} writes, the last {:?}", after.writes - before.writes, after.last_write);
        return server.violate(Violation { rule: RESTS.to_owned(), what });
    }
    if let Some(why) = server.with(|model| unsettled(model)) {
        server.violate(Violation { rule: SETTLES.to_owned(), what: why });
    }
}

impl Report {
    /// How many things went wrong.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.values().sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, counts, trace, lasted, .. } = self;
        write!(
            f,
            "seed {seed}: {} faults, {} requests, {} writes, {:.1} virtual minutes, trace {}",
            self.faults(),
            counts.requests,
            counts.writes,
            lasted.as_secs_f64() / 60.0,
            trace.digest()
        )?;
        if self.violations.is_empty() { Ok(()) } else { write!(f, ", {} VIOLATIONS", self.violations.len()) }
    }
}

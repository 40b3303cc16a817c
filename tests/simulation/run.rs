//! One run by a seed: a cluster with its actors and the manager, trouble for a while, then calm, and in the end silence.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use coxswain::manager::run_until;
use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::environment::Environment;
use coxswain_machinery::options::{self, Invocation};
use coxswain_machinery::random;

use crate::actors::{self, Calm, Files, WallClock};
use crate::dice::Dice;
use crate::faults::{FATES, Faults, Muted};
use crate::invariants::{Violation, unsettled};
use crate::mutants::Mutant;
use crate::server::{Counts, Server};
use crate::trace::Trace;

/// What managers are told. There are as many ranges of addresses as nodes: what is lost is missed.
const FLAGS: &[&str] = &[
    "--kube-api-qps=100",
    "--kube-api-burst=200",
    "--allocate-node-cidrs",
    "--cluster-cidr=10.128.0.0/24",
    "--node-cidr-mask-size=26",
    // It is off by default.
    "--controllers=*,token-cleaner-controller",
    "--legacy-service-account-token-clean-up-period=24h",
    "--horizontal-pod-autoscaler-downscale-stabilization=2m",
];
/// How often, in a thousand runs, the managers have the gate by which a StatefulSet rolls several pods at once.
const ROLLS_SEVERAL: u32 = 300;
/// The rule about the end.
pub(crate) const SETTLES: &str = "everything becomes as it is wished for";
/// When a simulation begins, in seconds.
pub(crate) const EPOCH: i64 = 1_800_000_000;
/// For how long nothing may be written when all is as it should be; and before, for how long something still may.
const SILENCE: Duration = Duration::from_mins(5);
/// How often somebody looks.
const LOOK: Duration = Duration::from_secs(5);
/// How long a manager that is asked to end may take.
const ENDS_WITHIN: Duration = Duration::from_mins(2);
/// A manager that has ended by itself comes back after this.
const COMES_BACK: Duration = Duration::from_secs(2);

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
    pub(crate) mutant: Option<Mutant>,
    /// What does not happen although it is drawn.
    pub(crate) muted: Muted,
    /// Whether all of the trace is kept.
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

/// The managers: one or two at a time, each followed by another when it ends.
#[derive(Clone)]
pub(crate) struct Managers {
    pub(crate) places: Vec<Arc<Orders>>,
    /// How many have been started.
    started: Arc<AtomicU32>,
    /// What all of them are told.
    flags: Arc<[String]>,
    files: Arc<Files>,
    /// Whether a StatefulSet rolls as many pods at once as it allows.
    rolls_several: bool,
}

/// What is to become of the manager in one place.
pub(crate) struct Orders {
    /// What managers there read the time from.
    pub(crate) clock: Arc<WallClock>,
    next: Mutex<Option<(bool, Duration)>>,
    news: Notify,
}

impl Orders {
    async fn next(&self) -> (bool, Duration) {
        loop {
            let next = self.next.lock().take();
            match next {
                Some(order) => return order,
                None => self.news.notified().await,
            }
        }
    }
}

impl Managers {
    /// One manager, or two that stand for the same Lease and do not agree on the time.
    fn new(seed: u64, files: Arc<Files>) -> Self {
        let mut dice = Dice::new(seed, "managers");
        let places = if dice.permille(300) { vec![0, dice.within(-5, 5)] } else { vec![0] };
        let place = |off| {
            let clock = Arc::new(WallClock::new(Timestamp::from_second(EPOCH).expect("a time"), off));
            Arc::new(Orders { clock, next: Mutex::default(), news: Notify::new() })
        };
        let rolls_several = Dice::new(seed, "gates").permille(ROLLS_SEVERAL);
        let gates = rolls_several.then_some("--feature-gates=MaxUnavailableStatefulSet=true");
        Self {
            places: places.into_iter().map(place).collect(),
            started: Arc::default(),
            flags: FLAGS.iter().copied().chain(gates).map(str::to_owned).chain(files.flags()).collect(),
            files,
            rolls_several,
        }
    }

    /// Ends one that runs, by force or by asking it, and starts another after a pause.
    pub(crate) fn end(&self, dice: &mut Dice, kill: bool, pause: Duration) {
        if let Some(place) = dice.pick(&self.places) {
            *place.next.lock() = Some((kill, pause));
            place.news.notify_one();
        }
    }

    /// Runs them for ever.
    async fn run(&self, server: &Arc<Server>) {
        let [first, second] = [0, 1].map(|at| async move {
            match self.places.get(at) {
                Some(place) => self.run_in(place, server).await,
                None => std::future::pending().await,
            }
        });
        tokio::join!(first, second);
    }

    /// Runs one after the other.
    async fn run_in(&self, place: &Orders, server: &Arc<Server>) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        loop {
            let number = self.started.fetch_add(1, Ordering::SeqCst) + 1;
            let (alive, stop) = (CancellationToken::new(), CancellationToken::new());
            let simulated = Environment::simulated(server.now(), server.service(number, alive.clone()));
            let environment = Environment { clock: Arc::clone(&place.clock) as _, ..simulated };
            let mut manager = Box::pin(manager(&flags, stop.clone(), environment));
            server.tell(&format!("  manager {number} starts"));
            let pause = tokio::select! {
                biased;
                ended = &mut manager => {
                    // The directory has another name in each run.
                    let ended = format!("{ended:?}").replace(&self.files.directory(), "");
                    server.tell(&format!("  manager {number} ends: {ended}"));
                    COMES_BACK
                }
                (kill, pause) = place.next() => {
                    if kill {
                        alive.cancel();
                    } else {
                        stop.cancel();
                        if timeout(ENDS_WITHIN, &mut manager).await.is_err() {
                            let what = format!("manager {number} was asked to, and has not");
                            server.violate(Violation { rule: "a manager ends when it is asked to".to_owned(), what });
                        }
                    }
                    pause
                }
            };
            drop(manager);
            alive.cancel();
            sleep(pause).await;
        }
    }
}

/// A manager with these flags, and those without which none can be simulated. It ends at once, as the process does, when files
/// that flags name are of no use.
pub(crate) fn manager(
    flags: &[&str],
    stop: CancellationToken,
    environment: Environment,
) -> impl Future<Output = Result<(), String>> {
    let flags =
        ["--master=http://api.test", "--secure-port=0"].iter().chain(flags).map(|flag| (*flag).into());
    let parsed = options::parse(flags, REGISTRY);
    async move {
        let startup = match parsed {
            Ok(Invocation::Run(startup)) => startup,
            Ok(_) => panic!("these flags are a manager's"),
            Err(refused) => return Err(refused.to_string()),
        };
        let ended = run_until(stop, startup.config, REGISTRY, Arc::new(|_| Ok(())), None, environment).await;
        ended.map_err(|error| error.to_string())
    }
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
    let Setup { seed, turmoil, settles_within, faults, mutant, traced, muted } = setup;
    let began = Instant::now();
    let epoch = Timestamp::from_second(EPOCH).expect("a time");
    let server =
        Server::new(epoch, seed, Faults::new(seed, faults, muted.clone()), Trace::new(traced), mutant);
    actors::start_nodes(&server, 4);
    let files = Arc::new(Files::new(&server));
    let (managers, calm) = (Managers::new(seed, Arc::clone(&files)), Calm::default());
    server.checks(|checks| checks.rolls_several(managers.rolls_several));
    let chaos = async {
        if faults {
            actors::chaos(Arc::clone(&server), managers.clone(), seed, calm.clone(), muted.clone()).await;
        }
        std::future::pending::<()>().await;
    };
    let director = direct(&server, turmoil, settles_within, &calm);
    tokio::select! {
        biased;
        () = server.violated.cancelled() => {}
        () = director => {}
        () = managers.run(&server) => {}
        () = actors::nodes(Arc::clone(&server), seed, calm.clone(), faults) => {}
        () = actors::users(Arc::clone(&server), seed, calm.clone(), muted.clone()) => {}
        () = actors::keys(Arc::clone(&server), seed, calm.clone(), muted.clone()) => {}
        () = actors::authority(Arc::clone(&server), &files, seed, calm.clone(), muted.clone()) => {}
        () = actors::autoscalers(Arc::clone(&server), seed, calm.clone(), muted.clone()) => {}
        () = chaos => {}
        () = actors::bookmarks(Arc::clone(&server)) => {}
    }
    let counts = server.counts();
    let (violations, trace, faults) = server.finish();
    Report { seed, violations, trace, faults, counts, lasted: began.elapsed() }
}

/// Mishap, then calm, in which everything becomes as it should be, then silence.
async fn direct(server: &Server, turmoil: Duration, settles_within: Duration, calm: &Calm) {
    sleep(turmoil).await;
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
        let rule = "when everything is as it is wished for, nothing is written".to_owned();
        return server.violate(Violation { rule, what });
    }
    if let Some(why) = server.with(|model| unsettled(model)) {
        let rule = "what is as it is wished for stays so".to_owned();
        server.violate(Violation { rule, what: why });
    }
}

/// A run that breaks the same rule with as few kinds of faults, mishaps and acts as can be left.
pub(crate) fn shrink(setup: &Setup, report: Report) -> (Setup, Report) {
    let Some(rule) = report.violations.first().map(|held| held.rule.clone()) else {
        return (setup.clone(), report);
    };
    let (mut least, mut shown) = (setup.clone(), report);
    for name in FATES.iter().copied().chain(actors::mishaps()).chain(actors::acts()) {
        let mut tried = least.clone();
        tried.muted.insert(name);
        let report = run(&tried);
        if report.violations.first().is_some_and(|held| held.rule == rule) {
            (least, shown) = (tried, report);
        }
    }
    (least, shown)
}

impl Report {
    /// How many things went wrong.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.values().sum()
    }

    /// What went wrong, and what came before, for people.
    pub(crate) fn story(&self) -> String {
        let lines: Vec<&str> = self.trace.lines().collect();
        let last = &lines[lines.len().saturating_sub(60)..];
        let broken: Vec<String> =
            self.violations.iter().map(|held| format!("{}\n    {}", held.rule, held.what)).collect();
        format!("{self}\n{}\nwhat came before:\n{}\n", broken.join("\n"), last.join("\n"))
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

//! The managers of a run: told by flags like those of real ones, killed, asked to end, and started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use coxswain::manager::run_until;
use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::environment::Environment;
use coxswain_machinery::options::{self, Invocation};

use crate::actors::{Files, WallClock};
use crate::invariants::Violation;
use crate::line::Line;
use crate::run::{ENDS, EPOCH};
use crate::server::Server;
use apiserver_model::dice::Dice;

/// What managers are told. There are as many ranges of addresses as nodes: what is lost is missed.
const FLAGS: &[&str] = &[
    "--kube-api-qps=100",
    "--kube-api-burst=200",
    "--allocate-node-cidrs",
    "--cluster-cidr=10.128.0.0/24",
    "--node-cidr-mask-size=26",
    // They are off by default.
    "--controllers=*,token-cleaner-controller,bootstrap-signer-controller",
    "--legacy-service-account-token-clean-up-period=24h",
    "--horizontal-pod-autoscaler-downscale-stabilization=2m",
];
/// How often, in a thousand runs, the managers have the gate by which a StatefulSet rolls several pods at once.
const ROLLS_SEVERAL: u32 = 300;
/// How long a manager that is asked to end may take.
const ENDS_WITHIN: Duration = Duration::from_mins(2);
/// A manager that has ended by itself comes back after this.
const COMES_BACK: Duration = Duration::from_secs(2);

/// Whether the managers of a run have the gate by which a StatefulSet rolls several pods at once.
pub(crate) fn rolls_several(seed: u64) -> bool {
    Dice::new(seed, "gates").permille(ROLLS_SEVERAL)
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
    pub(crate) rolls_several: bool,
}

/// What is to become of the manager in one place.
pub(crate) struct Orders {
    /// What managers there read the time from.
    pub(crate) clock: Arc<WallClock>,
    pub(crate) line: Arc<Line>,
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
    pub(crate) fn new(seed: u64, files: Arc<Files>) -> Self {
        let mut dice = Dice::new(seed, "managers");
        let places = if dice.permille(300) { vec![0, dice.within(-5, 5)] } else { vec![0] };
        let place = |off| {
            let clock = Arc::new(WallClock::new(Timestamp::from_second(EPOCH).expect("a time"), off));
            Arc::new(Orders { clock, line: Arc::default(), next: Mutex::default(), news: Notify::new() })
        };
        let rolls_several = rolls_several(seed);
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
    pub(crate) async fn run(&self, server: &Arc<Server>) {
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
            let simulated =
                Environment::simulated(server.now(), server.service(number, alive.clone(), &place.line));
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
                        if !server.is_stubborn() {
                            stop.cancel();
                        }
                        let mut frozen = server.frozen();
                        while timeout(ENDS_WITHIN, &mut manager).await.is_err() {
                            // While it stands still it cannot end.
                            if server.frozen() == frozen {
                                let what = format!("manager {number} was asked to, and has not");
                                server.violate(Violation { rule: ENDS.to_owned(), what });
                                break;
                            }
                            frozen = server.frozen();
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
        let ended =
            Box::pin(run_until(stop, startup.config, REGISTRY, Arc::new(|_| Ok(())), None, environment))
                .await;
        ended.map_err(|error| error.to_string())
    }
}

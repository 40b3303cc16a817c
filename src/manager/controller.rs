//! The lifecycle of all controllers: one supervisor each, which starts it, restarts it after a failure and stops it.
//!
//! A supervisor follows two wishes: whether this replica leads (under the controller's lock), and whether the
//! controller is wanted (flags, later overrides). A controller that fails, or panics outside of its reconciles, is
//! contained: it is reported unhealthy and started anew after a growing delay; the others go on. One that panics over an
//! object works on, and is degraded until it can reconcile that object: no probe fails for it. After a restore of etcd
//! ([`Epochs`](coxswain_machinery::informer::Epochs)) each is built again, and remembers nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::event_logger::EventLogger;
pub use coxswain_machinery::framework::Phase;
use coxswain_machinery::framework::{
    Descriptor, DynamicWatches, Instance, RunningLoop, Runtime, StartError, Stop, Watched,
};
use coxswain_machinery::latest;
use coxswain_machinery::model::backoff::ExponentialBackoff;
use coxswain_machinery::serve::HealthCheck;

/// How long a failed controller waits before it is started again.
const RESTART: ExponentialBackoff =
    ExponentialBackoff::doubling(Duration::from_secs(1), Duration::from_mins(2));
/// A controller that ran this long has recovered: its next failure is its first.
const RESTART_RESET: Duration = Duration::from_mins(10);

/// What a controller is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// This replica leads.
    pub lead: bool,
    /// The controller is wanted.
    pub enabled: bool,
}

/// One controller and what it is doing.
pub struct Controller {
    /// Its row in the registry.
    pub descriptor: &'static Descriptor,
    phase: latest::Sender<Phase>,
    since: Mutex<Timestamp>,
    wish: latest::Sender<Wish>,
    running: RwLock<Parts>,
    restarts: AtomicU32,
    event_logger: Arc<EventLogger>,
}

/// What a controller is made of while it runs, or is about to.
#[derive(Default)]
struct Parts {
    loops: Vec<RunningLoop>,
    watched: Vec<Watched>,
    dynamic: Option<Arc<DynamicWatches>>,
}

impl Controller {
    /// A controller that waits for leadership; `enabled`: whether the flags want it.
    pub fn new(
        descriptor: &'static Descriptor,
        initial: Phase,
        enabled: bool,
        event_logger: Arc<EventLogger>,
    ) -> Self {
        Self {
            descriptor,
            phase: latest::Sender::new(initial),
            since: Mutex::new(event_logger.now()),
            wish: latest::Sender::new(Wish { lead: false, enabled }),
            running: RwLock::default(),
            restarts: AtomicU32::new(0),
            event_logger,
        }
    }

    /// What it is doing.
    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// Follows what it is doing.
    pub fn phases(&self) -> latest::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Tells it what to do.
    pub fn wish(&self, change: impl FnOnce(&mut Wish)) {
        self.wish.send_if_modified(|wish| {
            let before = *wish;
            change(wish);
            *wish != before
        });
    }

    /// Leadership is over and its supervisor is gone: it waits for the next.
    pub(super) fn stand_by(&self) {
        self.wish(|wish| wish.lead = false);
        self.set(if self.is_enabled() { Phase::Standby } else { Phase::Disabled });
    }

    /// Whether it is wanted.
    pub fn is_enabled(&self) -> bool {
        self.wish.borrow().enabled
    }

    /// Since when it does what it is doing.
    pub fn since(&self) -> Timestamp {
        *self.since.lock()
    }

    /// Its loops while it runs.
    pub fn loops(&self) -> Vec<RunningLoop> {
        self.running.read().loops.clone()
    }

    /// What it watches while it runs, or is about to.
    pub fn watched(&self) -> Vec<Watched> {
        let running = self.running.read();
        let dynamic = running.dynamic.as_ref().map(|watches| watches.watched()).unwrap_or_default();
        running.watched.iter().cloned().chain(dynamic).collect()
    }

    /// How often it was started anew after a failure.
    pub fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Shows what was wished as the phase of a controller that nobody supervises: this replica does not lead.
    pub(super) fn show_wish(&self) {
        let Wish { lead, enabled } = *self.wish.borrow();
        let idle = matches!(self.phase(), Phase::Standby | Phase::Disabled);
        if !lead && idle {
            self.set(if enabled { Phase::Standby } else { Phase::Disabled });
        }
    }

    fn set(&self, phase: Phase) {
        let previous = {
            let mut since = self.since.lock();
            let previous = self.phase.send_replace(phase.clone());
            if previous == phase {
                return;
            }
            *since = self.event_logger.now();
            previous
        };
        tracing::debug!(controller = self.descriptor.name, phase = phase.name(), "Controller phase changed");
        self.event_logger.phase_changed(self.descriptor.name, previous, phase);
    }
}

impl HealthCheck for Controller {
    fn name(&self) -> &str {
        self.descriptor.name
    }

    fn check(&self) -> Result<(), String> {
        match self.phase() {
            Phase::Failed(why) => Err(why),
            _ => Ok(()),
        }
    }

    fn degraded(&self) -> Option<String> {
        if let Phase::Failed(why) | Phase::Unstarted(why) = self.phase() {
            return Some(why);
        }
        let running = self.running.read();
        let (key, message, keys) = running.loops.iter().find_map(|each| each.stats().first_panicked())?;
        let others = if keys > 1 { format!(", and {} others", keys - 1) } else { String::new() };
        Some(format!("panicked on {key}: {message}{others}"))
    }
}

/// Supervises one controller until `shutdown`, and returns how its last instance stopped. Reconciles in flight have
/// `grace` to finish when it stops, or no limit, unless the controller is wanted again before.
pub async fn supervise(
    controller: Arc<Controller>,
    runtime: Arc<Runtime>,
    grace: Option<Duration>,
    shutdown: CancellationToken,
) -> Stop {
    let mut wishes = controller.wish.subscribe();
    let (mut failures, mut last) = (0, Stop::Finished);
    while wanted(&controller, &mut wishes, &shutdown).await {
        let (ended, stop) =
            run_once(&controller, &runtime, grace, &mut failures, &mut wishes, &shutdown).await;
        // A controller that an override has stopped does not concern the end of the manager.
        last = if shutdown.is_cancelled() { stop } else { Stop::Finished };
        match ended {
            RunEnd::Unwanted => failures = 0,
            RunEnd::Skipped => return Stop::Finished,
            RunEnd::Outdated => {}
            RunEnd::Failed => {
                controller.restarts.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    last
}

enum RunEnd {
    Unwanted,
    Skipped,
    /// etcd was restored: the memories of the instance are of a state that the restore has undone.
    Outdated,
    Failed,
}

/// Waits until the controller should run; `false` on shutdown.
async fn wanted(
    controller: &Controller,
    wishes: &mut latest::Receiver<Wish>,
    shutdown: &CancellationToken,
) -> bool {
    while !shutdown.is_cancelled() {
        let wish = *wishes.borrow_and_update();
        match wish {
            Wish { enabled: true, lead: true } => return true,
            Wish { enabled: true, lead: false } => controller.set(Phase::Standby),
            Wish { enabled: false, .. } => controller.set(Phase::Disabled),
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return false,
            changed = wishes.changed() => if changed.is_err() { return false },
        }
    }
    false
}

/// Starts the controller and keeps it until it is unwanted, or has failed and its delay is over.
async fn run_once(
    controller: &Controller,
    runtime: &Runtime,
    grace: Option<Duration>,
    failures: &mut u32,
    wishes: &mut latest::Receiver<Wish>,
    shutdown: &CancellationToken,
) -> (RunEnd, Stop) {
    let name = controller.descriptor.name;
    controller.set(Phase::Starting);
    let prepared = tokio::select! {
        biased;
        // Discovery may take long to answer.
        () = unwanted(wishes, shutdown) => return (RunEnd::Unwanted, Stop::Finished),
        prepared = Instance::prepare_discovered(controller.descriptor, runtime) => prepared,
    };
    let mut instance = match prepared {
        Ok(instance) => instance,
        Err(StartError::Skipped(why)) => {
            tracing::warn!(controller = name, why, "Controller skipped");
            controller.set(Phase::Skipped(why));
            return (RunEnd::Skipped, Stop::Finished);
        }
        Err(error) => {
            tracing::error!(controller = name, %error, "Failed to start the controller; retrying");
            controller.set(Phase::Unstarted(error.to_string()));
            return (wait_out(RESTART.next(failures), wishes, shutdown).await, Stop::Finished);
        }
    };
    *controller.running.write() = Parts {
        loops: instance.loops().to_vec(),
        watched: instance.watched().to_vec(),
        dynamic: instance.dynamic().cloned(),
    };
    let ended = work(controller, &mut instance, failures, wishes, shutdown).await;
    if matches!(ended, RunEnd::Unwanted | RunEnd::Outdated) {
        controller.set(Phase::Stopping);
    }
    *controller.running.write() = Parts::default();
    let cut_off = async {
        match ended {
            // Running reconciles rest on a state that the restore has undone. The next instance must not wait for them.
            RunEnd::Outdated => {}
            RunEnd::Unwanted => wanted_again(wishes, shutdown).await,
            RunEnd::Skipped | RunEnd::Failed => std::future::pending().await,
        }
    };
    let stop = instance.stop(grace, cut_off).await;
    tracing::info!(controller = name, "Controller stopped");
    (ended, stop)
}

/// Time that reconciles have to finish, without a shorter limit of the flag, when their controller is wanted again.
const LONGEST_GRACE: Duration = Duration::from_secs(30);

/// Returns when an order wants a controller again that an order has stopped, after [`LONGEST_GRACE`] at the earliest: reconciles that hang
/// must not keep it from starting. Never returns at the end of the term.
async fn wanted_again(wishes: &mut latest::Receiver<Wish>, shutdown: &CancellationToken) {
    if !shutdown.is_cancelled() {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            wanted = async {
                tokio::time::sleep(LONGEST_GRACE).await;
                wishes.wait_for(|wish| wish.lead && wish.enabled).await.map(drop)
            } => if wanted.is_ok() { return },
        }
    }
    std::future::pending::<()>().await;
}

/// Lets an instance fill its caches and work until it is unwanted, or has failed and its delay is over.
async fn work(
    controller: &Controller,
    instance: &mut Instance,
    failures: &mut u32,
    wishes: &mut latest::Receiver<Wish>,
    shutdown: &CancellationToken,
) -> RunEnd {
    let name = controller.descriptor.name;
    let epoch = instance.epoch().clone();
    let started = tokio::select! {
        biased;
        () = unwanted(wishes, shutdown) => return RunEnd::Unwanted,
        () = epoch.clone().over() => return RunEnd::Outdated,
        started = instance.start(shutdown) => started,
    };
    match started {
        Ok(()) => {}
        Err(StartError::Stopped) if shutdown.is_cancelled() => return RunEnd::Unwanted,
        Err(error) => {
            tracing::error!(controller = name, %error, "Failed to start the controller; retrying");
            controller.set(Phase::Failed(error.to_string()));
            return wait_out(RESTART.next(failures), wishes, shutdown).await;
        }
    }
    tracing::info!(controller = name, "Controller started");
    controller.set(Phase::Running);
    let began = Instant::now();
    let failure = tokio::select! {
        biased;
        message = instance.failed() => Some(message),
        () = unwanted(wishes, shutdown) => None,
        () = epoch.over() => return RunEnd::Outdated,
    };
    match failure {
        None => RunEnd::Unwanted,
        Some(message) => {
            if began.elapsed() >= RESTART_RESET {
                *failures = 0;
            }
            let delay = RESTART.next(failures);
            tracing::error!(controller = name, message, after = ?delay, "Controller panicked; restarting");
            controller.set(Phase::Failed(format!("panicked: {message}")));
            wait_out(delay, wishes, shutdown).await
        }
    }
}

/// Lets a failed controller be for `delay`, or until it is unwanted.
async fn wait_out(
    delay: Duration,
    wishes: &mut latest::Receiver<Wish>,
    shutdown: &CancellationToken,
) -> RunEnd {
    tokio::select! {
        biased;
        () = unwanted(wishes, shutdown) => RunEnd::Unwanted,
        () = tokio::time::sleep(delay) => RunEnd::Failed,
    }
}

async fn unwanted(wishes: &mut latest::Receiver<Wish>, shutdown: &CancellationToken) {
    let changed = wishes.wait_for(|wish| !(wish.lead && wish.enabled));
    tokio::select! {
        biased;
        _ = changed => {}
        () = shutdown.cancelled() => {}
    }
}

//! All controllers together: which are wanted, in what order they start, and how they stop.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::controller::{Controller, Phase, supervise};
use super::event_logger::EventLogger;
use super::health::ControllerHealth;
use crate::admin::manager::{ControllerName, Obstacle};
use crate::admin::overrides::{FlagSelection, OverrideSet};
use coxswain_machinery::framework::{Descriptor, Runtime, Stop};
use coxswain_machinery::options::{Config, Selection, SelectionState};
use coxswain_machinery::serve::HealthRegistry;
use coxswain_machinery::telemetry::ManagerMetrics;

/// The manager's name in `running_managed_controllers`.
const MANAGER: &str = "kube-controller-manager";
/// The controller that `running_managed_controllers` of kube-controller-manager has under a name of its own, and that name. It has no
/// other controllers.
const NODE_IPAM: &str = "node-ipam-controller";
const NODE_IPAM_OF_KCM: &str = "nodeipam";
/// Why controllers of cloud providers do not run.
const LEFT_TO_CLOUD: &str = "runs in a cloud controller manager";

/// The controllers of a manager. Each has a supervisor from the start of leadership on.
pub struct Controllers {
    all: Vec<Arc<Controller>>,
    names: Vec<ControllerName>,
    runtime: Arc<Runtime>,
    health: Arc<HealthRegistry>,
    metrics: ManagerMetrics,
    start_interval: Duration,
    shutdown_timeout: Option<Duration>,
    supervisors: Mutex<JoinSet<Stop>>,
}

impl Controllers {
    /// One controller for each row of the registry, none started.
    pub(super) fn new(
        registry: &'static [Descriptor],
        runtime: Arc<Runtime>,
        health: Arc<HealthRegistry>,
        metrics: ManagerMetrics,
        event_logger: &Arc<EventLogger>,
    ) -> Self {
        let config = &runtime.config;
        let all = registry.iter().map(|descriptor| {
            let (phase, wanted) = initial(config, descriptor);
            Arc::new(Controller::new(descriptor, phase, wanted, Arc::clone(event_logger)))
        });
        Self {
            all: all.collect(),
            names: registry
                .iter()
                .map(|row| ControllerName { name: row.name, aliases: row.aliases })
                .collect(),
            health,
            metrics,
            start_interval: config.flags.controller_start_interval,
            shutdown_timeout: config.flags.controller_shutdown_timeout,
            supervisors: Mutex::default(),
            runtime,
        }
    }

    /// All of them, in the registry's order.
    pub fn all(&self) -> &[Arc<Controller>] {
        &self.all
    }

    /// The names of all of them.
    pub fn names(&self) -> &[ControllerName] {
        &self.names
    }

    /// The controller of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Controller>> {
        self.all.iter().find(|controller| controller.descriptor.name == name)
    }

    /// Tells every controller whether it is wanted: flags ⊕ overrides.
    pub(super) fn apply(&self, overrides: &OverrideSet, now: Timestamp) {
        for controller in &self.all {
            let descriptor = controller.descriptor;
            let free = obstacle(&self.runtime.config, descriptor).is_none();
            let desired = overrides.desired(descriptor.name, self.flags(descriptor), now);
            controller.wish(|wish| wish.enabled = desired.enabled && free);
            controller.show_wish();
        }
    }

    /// What the flags say of a controller.
    pub(super) fn flags(&self, descriptor: &Descriptor) -> FlagSelection {
        let Selection { selected, named } = self.runtime.config.selection(descriptor);
        FlagSelection { enabled: selected, named, fixed: self.runtime.config.overrides_only_disable() }
    }

    /// Says once which controllers will not run, and why.
    pub(super) fn announce(&self) {
        let mut missing = Vec::new();
        for controller in &self.all {
            let name = controller.descriptor.name;
            match controller.phase() {
                Phase::NotImplemented if controller.is_enabled() => missing.push(name),
                Phase::Skipped(why) => tracing::warn!(controller = name, why, "Controller skipped"),
                Phase::Disabled => tracing::info!(controller = name, "Controller disabled"),
                _ => {}
            }
        }
        if !missing.is_empty() {
            tracing::warn!(
                phase = Phase::NotImplemented.name(),
                controllers = missing.join(","),
                "Some enabled controllers are not implemented and do not run"
            );
        }
    }

    /// Starts the controllers that `here` selects. Controllers that run under another lock are left alone. With
    /// `--controller-start-interval` each waits for one to two intervals, all at the same time, except for the token controller.
    ///
    /// The token controller is started first, and its caches are not waited for. kube-controller-manager does the same: it starts
    /// that controller's informers and workers, and starts the others at once. Nothing is lost by it: the API server itself
    /// answers the requests for the tokens that controllers act by. And a kind that can't be listed, such as Secrets of
    /// which one can't be decrypted, holds up only the controllers that read it.
    /// Differs: no.
    pub(super) fn start(&self, here: &impl Fn(&Controller) -> bool, stop: &CancellationToken) {
        let (special, others): (Vec<_>, Vec<_>) =
            self.startable(here).partition(|controller| controller.descriptor.special);
        for controller in special {
            self.start_one(controller, Duration::ZERO, stop);
        }
        for controller in others {
            let pause = self.start_interval.mul_f64(1.0 + coxswain_machinery::random::fraction());
            self.start_one(controller, pause, stop);
        }
    }

    fn startable(&self, here: &impl Fn(&Controller) -> bool) -> impl Iterator<Item = &Arc<Controller>> {
        self.all.iter().filter(move |controller| {
            here(controller) && !matches!(controller.phase(), Phase::NotImplemented | Phase::Skipped(_))
        })
    }

    /// Starts a controller after a pause. Its health check is there at once, as in kube-controller-manager.
    fn start_one(&self, controller: &Arc<Controller>, pause: Duration, stop: &CancellationToken) {
        let mut supervisors = self.supervisors.lock();
        let supervised = {
            let (controller, runtime) = (Arc::clone(controller), Arc::clone(&self.runtime));
            let (grace, stop) = (self.shutdown_timeout, stop.clone());
            async move {
                if !pause.is_zero() && stop.run_until_cancelled(sleep(pause)).await.is_none() {
                    return Stop::Finished;
                }
                controller.wish(|wish| wish.lead = true);
                supervise(controller, runtime, grace, stop).await
            }
        };
        supervisors.spawn(supervised);
        let check = ControllerHealth {
            watchdog: self.runtime.watchdog.clone(),
            controller: Arc::clone(controller),
            informers: self.runtime.informers.clone(),
            selected: initial(&self.runtime.config, controller.descriptor).0 == Phase::Standby,
        };
        let (metrics, health) = (self.metrics.clone(), Arc::clone(&self.health));
        supervisors.spawn(report_running(Arc::new(check), metrics, health, stop.clone()));
    }

    /// After [`Controllers::stopped`]: they wait for the next term of leadership.
    pub(super) fn stand_by(&self) {
        for controller in &self.all {
            let (phase, _) = initial(&self.runtime.config, controller.descriptor);
            // Those that no leadership would start have not been started by the last one either.
            if matches!(phase, Phase::Standby | Phase::Disabled) {
                controller.stand_by();
            }
        }
    }

    /// Returns once the token controller was started, or is not going to be; `false` when the manager stops before. As in
    /// the original, its caches are not waited for, see [`Controllers::start`].
    pub(super) async fn token_controller_started(&self, stop: &CancellationToken) -> bool {
        for controller in self.all.iter().filter(|controller| controller.descriptor.special) {
            let mut phases = controller.phases();
            let started = phases.wait_for(|phase| *phase != Phase::Standby);
            if stop.run_until_cancelled(started).await.is_none() {
                return false;
            }
        }
        true
    }

    /// Waits until all supervisors have ended, after the token given to [`Controllers::start`] was cancelled. Tells whether
    /// all reconciles have returned.
    pub(super) async fn stopped(&self) -> Stop {
        let mut supervisors = std::mem::take(&mut *self.supervisors.lock());
        let mut all = Stop::Finished;
        while let Some(ended) = supervisors.join_next().await {
            match ended {
                Ok(Stop::Finished) => {}
                Ok(Stop::Aborted) => all = Stop::Aborted,
                Err(error) => tracing::error!(%error, "Controller supervisor failed"),
            }
        }
        all
    }
}

/// What a controller is before anything is started.
fn initial(config: &Config, descriptor: &'static Descriptor) -> (Phase, bool) {
    let state = config.controller_state(descriptor);
    if descriptor.build.is_none() {
        return (Phase::NotImplemented, state == SelectionState::Enabled);
    }
    match state {
        SelectionState::DisabledByFlag | SelectionState::NotSelected => (Phase::Disabled, false),
        SelectionState::MissingGates(gates) => {
            (Phase::Skipped(format!("requires the feature gates {}", gates.join(", "))), false)
        }
        SelectionState::LeftToCloud => (Phase::Skipped(LEFT_TO_CLOUD.to_owned()), false),
        SelectionState::Enabled => (Phase::Standby, true),
    }
}

/// What stands against running a controller, whoever wants it.
pub(super) fn obstacle(config: &Config, descriptor: &Descriptor) -> Option<Obstacle> {
    if descriptor.build.is_none() {
        return Some(Obstacle::NotImplemented);
    }
    if let Some(gate) = config.missing_gates(descriptor).first() {
        return Some(Obstacle::Gate(gate));
    }
    descriptor.cloud.then(|| Obstacle::CloudProvider(LEFT_TO_CLOUD.to_owned()))
}

/// Keeps `running_managed_controllers` and the health check as the controller's phase has it.
async fn report_running(
    check: Arc<ControllerHealth>,
    metrics: ManagerMetrics,
    health: Arc<HealthRegistry>,
    stop: CancellationToken,
) -> Stop {
    let name = check.controller.descriptor.name;
    let set_running = |is_running: bool| {
        metrics.set_running(MANAGER, name, is_running);
        if name == NODE_IPAM {
            metrics.set_running(MANAGER, NODE_IPAM_OF_KCM, is_running);
        }
    };
    let mut phases = check.controller.phases();
    let mut checked = false;
    loop {
        let phase = phases.borrow_and_update().clone();
        set_running(phase == Phase::Running);
        let is_checked = check.is_checked(&phase);
        if is_checked && !checked {
            health.add(Arc::clone(&check) as _);
        } else if checked && !is_checked {
            health.remove(name);
        }
        checked = is_checked;
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                set_running(false);
                return Stop::Finished;
            }
            changed = phases.changed() => if changed.is_err() { return Stop::Finished },
        }
    }
}

//! The life of a manager: it ends, restarts, or the other manager takes over. This concerns the whole control plane, so lists with such
//! operations play alone.
//!
//! A manager that ended is down until the next calm, which starts it first. The manager must detect changes that were made while it was down.
//! After a restart or a takeover the next operation waits until the manager leads: kube-controller-manager keeps its Lease when it ends, and
//! Coxswain releases it.

use std::time::Duration;

use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use tokio::time::{Instant, sleep};

use crate::harness::{ControlPlane, Program, binaries};
use crate::plane::{ARGS, Plane, name};
use crate::play::message;

/// The component that is the other manager.
const OTHER: &str = "other-manager";
/// The Lease of both managers.
const LEASE: (&str, &str) = ("kube-system", "kube-controller-manager");
/// Time until a started manager leads. It may have to wait until the Lease of the previous manager has expired.
const LIMIT: Duration = Duration::from_mins(1);
/// Time after the beginning of leadership in which the caches of all controllers are filled.
const FILLED: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(250);

/// An event in the life of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// SIGTERM.
    Stop,
    /// SIGKILL.
    Kill,
    Restart,
    /// The other manager takes over. Under kube-controller-manager that is another kube-controller-manager: a restart.
    TakeOver,
}

pub(crate) const LIVES: [(Life, &str); 4] =
    [(Life::Stop, "stop"), (Life::Kill, "kill"), (Life::Restart, "restart"), (Life::TakeOver, "take-over")];

/// The managers of a control plane.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Managers {
    /// True while no manager runs.
    is_down: bool,
    /// Whether the other manager is in charge.
    is_other: bool,
    /// Whether the other manager was added to the control plane.
    has_other: bool,
    /// Time of the last start. Until a Lease is acquired after it, no manager leads.
    started: Option<Timestamp>,
}

/// A request of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stop(&'static str),
    Kill(&'static str),
    Start(&'static str),
    /// Adds and starts the other manager.
    Add,
}

impl Managers {
    fn in_charge(&self, own: &'static str) -> &'static str {
        if self.is_other { OTHER } else { own }
    }

    /// Returns the steps of an event, under a manager of this program.
    fn live(&mut self, life: Life, program: Program, now: Timestamp) -> Vec<Step> {
        let running = self.in_charge(name(program));
        let mut steps = Vec::new();
        if !self.is_down {
            steps.push(if life == Life::Kill { Step::Kill(running) } else { Step::Stop(running) });
            self.is_down = true;
        }
        if life == Life::TakeOver && program == Program::Coxswain {
            self.is_other = !self.is_other;
        }
        if matches!(life, Life::Restart | Life::TakeOver) {
            steps.extend(self.start(program, now));
        }
        steps
    }

    /// Returns the steps that let the manager in charge run.
    fn start(&mut self, program: Program, now: Timestamp) -> Option<Step> {
        if !self.is_down {
            return None;
        }
        self.is_down = false;
        self.started = Some(now);
        if self.is_other && !self.has_other {
            self.has_other = true;
            return Some(Step::Add);
        }
        Some(Step::Start(self.in_charge(name(program))))
    }

    /// Returns the steps that give the control plane its own manager back.
    fn give_back(&mut self, program: Program, now: Timestamp) -> Vec<Step> {
        if self.is_other {
            self.live(Life::TakeOver, program, now)
        } else {
            self.start(program, now).into_iter().collect()
        }
    }
}

impl Plane {
    /// Performs an event in the life of the manager, and waits until a manager that it starts leads.
    pub(crate) async fn live(&self, life: Life) -> Result<(), String> {
        let steps = self.managers.lock().live(life, self.program, SystemClock.now());
        self.take(&steps);
        if matches!(life, Life::Restart | Life::TakeOver) { self.wait_for_leader().await } else { Ok(()) }
    }

    /// Starts the manager in charge if it is down, and waits until it leads.
    pub(crate) async fn wake(&self) -> Result<(), String> {
        let step = self.managers.lock().start(self.program, SystemClock.now());
        self.take(step.as_slice());
        self.wait_for_leader().await
    }

    /// Gives the control plane its own manager back, and waits until it leads.
    pub(crate) async fn give_back(&self) -> Result<(), String> {
        let steps = self.managers.lock().give_back(self.program, SystemClock.now());
        self.take(&steps);
        self.wait_for_leader().await
    }

    fn take(&self, steps: &[Step]) {
        let control_plane = &self.launcher;
        for step in steps {
            tokio::task::block_in_place(|| match step {
                Step::Stop(name) => control_plane.operate("stop", name),
                Step::Kill(name) => control_plane.operate("kill", name),
                Step::Start(name) => control_plane.operate("start", name),
                Step::Add => add(control_plane, &self.port),
            });
        }
    }

    async fn wait_for_leader(&self) -> Result<(), String> {
        let Some(started) = self.managers.lock().started else { return Ok(()) };
        let (namespace, name) = LEASE;
        let leases: Api<Lease> = Api::namespaced(self.cluster.client.clone(), namespace);
        let deadline = Instant::now() + LIMIT;
        loop {
            let lease = leases.get(name).await.map_err(message)?;
            let spec = lease.spec.unwrap_or_default();
            if spec.acquire_time.is_some_and(|time| time.0 >= started) {
                break;
            }
            if Instant::now() > deadline {
                return Err(format!("{}: no leader within {LIMIT:?} after a start", self.name()));
            }
            sleep(POLL).await;
        }
        sleep(FILLED).await;
        self.managers.lock().started = None;
        Ok(())
    }
}

/// Adds kube-controller-manager next to Coxswain, at the same port, where the fuzzer reads the metrics.
fn add(control_plane: &ControlPlane, port: &str) {
    let secure_port = format!("--secure-port={port}");
    let arguments = control_plane.report.manager_args.iter().map(String::as_str);
    let arguments: Vec<&str> = arguments.chain(ARGS).chain([secure_port.as_str()]).collect();
    control_plane.add(OTHER, &binaries().join(name(Program::Go)), &arguments);
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "coxswain";

    fn lived(lives: &[Life], program: Program) -> (Managers, Vec<Step>) {
        let mut managers = Managers::default();
        let steps = lives.iter().flat_map(|life| managers.live(*life, program, Timestamp::UNIX_EPOCH));
        let steps = steps.collect();
        (managers, steps)
    }

    #[test]
    fn manager_that_ended_is_down_until_it_is_started() {
        for (life, step) in [(Life::Stop, Step::Stop(OWN)), (Life::Kill, Step::Kill(OWN))] {
            let (mut managers, steps) = lived(&[life, life], Program::Coxswain);
            assert_eq!(steps, [step], "the second finds it down");
            let now = Timestamp::UNIX_EPOCH;
            assert_eq!(managers.start(Program::Coxswain, now), Some(Step::Start(OWN)));
            assert_eq!(managers.start(Program::Coxswain, now), None, "it runs");
        }
    }

    #[test]
    fn other_manager_takes_over_and_gives_back() {
        let (mut managers, steps) = lived(&[Life::TakeOver, Life::Restart, Life::Kill], Program::Coxswain);
        let [stop, kill] = [Step::Stop(OTHER), Step::Kill(OTHER)];
        assert_eq!(steps, [Step::Stop(OWN), Step::Add, stop, Step::Start(OTHER), kill]);
        assert_eq!(managers.give_back(Program::Coxswain, Timestamp::UNIX_EPOCH), [Step::Start(OWN)]);
        assert_eq!(managers.give_back(Program::Coxswain, Timestamp::UNIX_EPOCH), []);
        let (_, steps) = lived(&[Life::TakeOver; 3], Program::Coxswain);
        let [first, second] = [[Step::Stop(OWN), Step::Add], [Step::Stop(OTHER), Step::Start(OWN)]];
        assert_eq!(steps, [first, second, [Step::Stop(OWN), Step::Start(OTHER)]].concat());
    }

    #[test]
    fn takeover_under_kcm_is_a_restart() {
        let own = name(Program::Go);
        let (managers, steps) = lived(&[Life::TakeOver], Program::Go);
        assert_eq!(steps, [Step::Stop(own), Step::Start(own)]);
        assert!(!managers.is_other);
    }
}

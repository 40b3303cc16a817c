//! The control plane that all scenarios share, and managers on it.

use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;

use coxswain_controllers::registry::REGISTRY;
use coxswain_machinery::framework::DefaultState;
use kube::config::Kubeconfig;
use serde_json::json;
use tokio::time::Instant;

use crate::content;
use crate::forwarder::Forwarder;
use crate::harness::{Cluster, ControlPlane, Manager, Namespace, Options};
use crate::program::{Program, Programs, Turn};
use crate::settings::{number, text};

/// Nodes at full scale: enough for all pods of the largest scenario.
const NODES: usize = 48;

/// kwok plays the nodes with its label only, so that one falls silent that loses it.
const ARGS: [&str; 3] =
    ["--audit", "--kwok-arg=manage-all-nodes=false", "--kwok-arg=manage-nodes-with-label-selector=type=kwok"];

/// How fast managers may ask, as both take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Qps {
    /// Five times the defaults, as large clusters set it.
    Usual,
    /// So much that nothing ever waits for it.
    Unlimited,
}

impl Qps {
    fn flags(self) -> [String; 2] {
        let qps = match self {
            Self::Usual => 100,
            Self::Unlimited => 1_000_000,
        };
        [format!("--kube-api-qps={qps}"), format!("--kube-api-burst={}", 2 * qps)]
    }
}

/// How a manager is started.
#[derive(Clone, Debug)]
pub(crate) struct Flags {
    /// Names for `--controllers`; empty for all that are built.
    pub(crate) controllers: &'static [&'static str],
    pub(crate) qps: Qps,
    /// The Lease to elect a leader by; without one, it acts at once.
    pub(crate) lease: Option<String>,
    /// Further flags.
    pub(crate) more: &'static [&'static str],
}

impl Flags {
    /// For a manager that acts at once.
    pub(crate) fn of(controllers: &'static [&'static str], qps: Qps) -> Self {
        Self { controllers, qps, lease: None, more: &[] }
    }

    fn args(&self, forwarder: &Forwarder) -> Vec<String> {
        let mut args = vec![
            format!("--master={}", forwarder.url),
            format!("--controllers={}", controllers(self.controllers).join(",")),
        ];
        args.extend(self.qps.flags());
        args.extend(self.more.iter().map(|flag| (*flag).to_owned()));
        match &self.lease {
            Some(lease) => args.push(format!("--leader-elect-resource-name={lease}")),
            None => args.push("--leader-elect=false".to_owned()),
        }
        args
    }
}

/// These controllers; for none, all that are built and on by default.
pub(crate) fn controllers(named: &'static [&'static str]) -> Vec<&'static str> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let usual = REGISTRY
        .iter()
        .filter(|each| each.build.is_some() && each.default == DefaultState::On && !each.cloud);
    usual.map(|each| each.name).collect()
}

/// A moment, as far as it does not concern one process.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) began: Instant,
    /// Bytes that managers had received.
    pub(crate) received: u64,
    /// How long the audit log was.
    pub(crate) audit: u64,
}

/// What the environment asks for.
pub(crate) struct Settings {
    pub(crate) rounds: usize,
    pub(crate) scale: f64,
    pub(crate) programs: Programs,
    pub(crate) scenarios: Vec<String>,
    pub(crate) docs: bool,
    /// Whether what an earlier run has measured is kept.
    pub(crate) resume: bool,
}

impl Settings {
    fn from_environment() -> Self {
        let scale = text("SCALE").map_or(1.0, |text| text.parse().expect("SCALE is a number"));
        assert!(scale > 0.0, "SCALE is above 0");
        let scenarios = text("SCENARIOS").unwrap_or_default();
        let rounds = number("ROUNDS", 3);
        assert!(rounds > 0, "ROUNDS is at least 1");
        Self {
            rounds,
            scale,
            programs: Programs::from_environment(),
            scenarios: scenarios.split(',').map(|text| text.trim().to_owned()).collect(),
            docs: number("DOCS", 0) > 0,
            resume: number("RESUME", 0) > 0,
        }
    }

    /// Whether no scenario is named.
    pub(crate) fn wants_all(&self) -> bool {
        self.scenarios.iter().any(String::is_empty)
    }

    /// Whether a scenario of this name is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.scenarios.iter().any(|text| name.contains(text.as_str()))
    }
}

/// A control plane, what the environment asks for, and what has to be cleared away.
pub(crate) struct Bench {
    pub(crate) plane: ControlPlane,
    pub(crate) cluster: Cluster,
    pub(crate) forwarder: Forwarder,
    pub(crate) settings: Settings,
    pub(crate) nodes: usize,
    /// Pods that the cluster is filled with, beside those of the scenario under way.
    pub(crate) filled: Cell<usize>,
    began: Instant,
    running: RefCell<Vec<String>>,
    namespaces: RefCell<Vec<String>>,
}

impl Bench {
    /// Starts the control plane, without a manager.
    pub(crate) async fn start() -> Self {
        let settings = Settings::from_environment();
        let nodes = ((NODES as f64 * settings.scale) as usize).max(3);
        let plane = ControlPlane::start(&Options { nodes: nodes as u32, args: ARGS.to_vec() });
        let kubeconfig = Kubeconfig::read_from(&plane.report.kubeconfigs["controller-manager"]);
        let kubeconfig = kubeconfig.expect("the kubeconfig");
        let server = kubeconfig.clusters[0].cluster.as_ref().and_then(|cluster| cluster.server.clone());
        let forwarder = Forwarder::start(&server.expect("the API server's URL")).await;
        let cluster = plane.cluster().await;
        Self {
            plane,
            cluster,
            forwarder,
            settings,
            nodes,
            filled: Cell::new(0),
            began: Instant::now(),
            running: RefCell::default(),
            namespaces: RefCell::default(),
        }
    }

    /// Prints progress.
    pub(crate) fn say(&self, what: &str) {
        let seconds = self.began.elapsed().as_secs();
        println!("[{:>3}:{:02}] {what}", seconds / 60, seconds % 60);
    }

    /// So many objects at full scale are how many at this one; at least one, and none stays none.
    pub(crate) fn scaled(&self, full: usize) -> usize {
        if full == 0 { 0 } else { ((full as f64 * self.settings.scale).round() as usize).max(1) }
    }

    /// A new namespace whose pods are admitted without a manager; it is wiped when the scenario has ended.
    pub(crate) async fn namespace(&self, prefix: &str) -> Namespace {
        let namespace = self.cluster.namespace(prefix).await;
        self.namespaces.borrow_mut().push(namespace.name.clone());
        content::service_account(&namespace).await;
        namespace
    }

    /// Keeps a namespace to the end.
    pub(crate) fn keep(&self, namespace: &Namespace) {
        self.namespaces.borrow_mut().retain(|name| *name != namespace.name);
    }

    /// Wipes namespaces that have been made since the last time.
    pub(crate) async fn wipe_all(&self) {
        for name in self.namespaces.take() {
            content::wipe(&self.cluster, &name).await;
        }
    }

    /// The moment before something is measured.
    pub(crate) fn mark(&self) -> Mark {
        let audit = std::fs::metadata(&self.plane.report.audit_log).expect("the audit log").len();
        Mark { began: Instant::now(), received: self.forwarder.received(), audit }
    }

    /// Starts a manager and waits until it serves. `role` tells it from others of the same turn.
    pub(crate) fn manager(&self, turn: Turn, role: &str, flags: &Flags) -> Manager<'_> {
        let program = match turn.program {
            Program::Go => "go",
            Program::Coxswain => "coxswain",
        };
        let name = format!("{role}-{}-{program}", turn.round);
        let args = flags.args(&self.forwarder);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.running.borrow_mut().push(name.clone());
        match turn.program {
            Program::Go => self.plane.go_manager(&name, &args),
            Program::Coxswain => self.plane.coxswain(&name, &args),
        }
    }

    /// A Go manager that fills the cluster, and is not measured.
    pub(crate) fn helper(&self, name: &str, controllers: &'static [&'static str]) -> Manager<'_> {
        let args = Flags::of(controllers, Qps::Unlimited).args(&self.forwarder);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.running.borrow_mut().push(name.to_owned());
        self.plane.go_manager(name, &args)
    }

    /// A manager ends, by what the scenario does.
    pub(crate) fn ended(&self, manager: &Manager<'_>) {
        self.running.borrow_mut().retain(|name| *name != manager.name);
    }

    /// Ends all managers that still run.
    pub(crate) fn stop_all(&self) {
        for name in self.running.take() {
            // It may have ended itself, or never have begun, and then there is nothing to stop.
            let stopped = std::panic::catch_unwind(AssertUnwindSafe(|| {
                let manager = self.plane.running(&name);
                if manager.exit().is_empty() {
                    manager.stop();
                }
            }));
            if stopped.is_err() {
                self.say(&format!("{name} was not running any more"));
            }
        }
    }

    /// The sizes that outcomes are read by.
    pub(crate) fn facts(&self) -> serde_json::Value {
        json!({
            "rounds": self.settings.rounds,
            "scale": self.settings.scale,
            "nodes": self.nodes,
        })
    }
}

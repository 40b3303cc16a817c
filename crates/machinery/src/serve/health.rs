//! Health checks, which come and go while the manager runs, and the text by which the endpoints report them.
//!
//! A check says how things stand from what it already knows: it does no I/O and never blocks. Why one fails goes to
//! the log; the page says only that it does, for anyone may read it.
//!
//! What a restart of the process would not mend does not fail a check, for a failed liveness probe kills the process, and
//! with it all that works. Such a check is degraded: the endpoints pass, their pages and the metrics say so.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use parking_lot::RwLock;

use super::observe::ServeObserver;
use crate::telemetry::CheckStatus;

/// The three endpoints that report health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `/healthz`, the one that the original has.
    Healthz,
    /// `/livez`: whether the process should be restarted.
    Livez,
    /// `/readyz`: whether it can be asked things.
    Readyz,
}

impl Probe {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Healthz, Self::Livez, Self::Readyz];

    /// The endpoint's name, as in its path, its text and its metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

/// One thing that can be well or not.
pub trait HealthCheck: Send + Sync + 'static {
    /// Its name, unique in the registry: `leaderElection`, or a controller's.
    fn name(&self) -> &str;

    /// `Err` says, for the log, what is wrong. Must not block.
    fn check(&self) -> Result<(), String>;

    /// What is wrong though the check passes, since a restart of the process would not mend it. Must not block.
    fn degraded(&self) -> Option<String> {
        None
    }

    /// A note for readers of the page about a check that passes. Must not block.
    fn remark(&self) -> Option<Remark> {
        None
    }
}

/// A note about a check that passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// A few words for callers with credentials, who may not all see the cluster's objects.
    pub text: &'static str,
    /// The objects and numbers behind it. Only the page of the single check shows them, as it shows the reason of a degraded check.
    pub detail: Option<String>,
}

impl Remark {
    /// A remark without details.
    pub const fn of(text: &'static str) -> Self {
        Self { text, detail: None }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)?;
        self.detail.as_ref().map_or(Ok(()), |detail| write!(f, ": {detail}"))
    }
}

/// What a check says.
enum CheckOutcome {
    /// With a remark, perhaps.
    Well(Option<Remark>),
    Degraded(String),
    Failed(String),
}

impl CheckOutcome {
    fn of(check: &dyn HealthCheck) -> Self {
        match check.check() {
            Err(reason) => Self::Failed(reason),
            Ok(()) => check.degraded().map_or_else(|| Self::Well(check.remark()), Self::Degraded),
        }
    }

    /// For the metrics, where a degraded check is one that does not succeed.
    fn status(&self) -> CheckStatus {
        match self {
            Self::Well(_) => CheckStatus::Success,
            Self::Degraded(_) | Self::Failed(_) => CheckStatus::Error,
        }
    }
}

/// A check that passes as long as it is registered: what a controller without a check of its own has.
#[derive(Clone, Debug)]
pub struct PingCheck(Arc<str>);

impl PingCheck {
    /// A check of that name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }
}

impl HealthCheck for PingCheck {
    fn name(&self) -> &str {
        &self.0
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

struct Registered {
    check: Arc<dyn HealthCheck>,
    probes: Vec<Probe>,
}

/// The checks, in the order in which they were added. Share it in an `Arc`.
#[derive(Default)]
pub struct HealthRegistry {
    checks: RwLock<Vec<Registered>>,
}

impl std::fmt::Debug for HealthRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// How much a page shows of checks that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Only that all passed.
    Summary,
    /// A line for each check, for anyone. A remark, such as that an override disables a controller, would help an attacker.
    Checks,
    /// A line for each check with its remark, for callers with credentials.
    Remarks,
}

/// What an endpoint is to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReport {
    /// Whether every check that was not excluded passed.
    pub passed: bool,
    /// The page.
    pub text: String,
}

impl HealthRegistry {
    /// An empty registry; until something is added its endpoints answer for a check called `ping`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check to all three endpoints, in the place of one of the same name.
    pub fn add(&self, check: Arc<dyn HealthCheck>) {
        self.add_for(&Probe::ALL, check);
    }

    /// Adds a check to some endpoints, in the place of one of the same name.
    pub fn add_for(&self, probes: &[Probe], check: Arc<dyn HealthCheck>) {
        let added = Registered { check, probes: probes.to_vec() };
        let mut checks = self.checks.write();
        match checks.iter_mut().find(|held| held.check.name() == added.check.name()) {
            Some(held) => *held = added,
            None => checks.push(added),
        }
    }

    /// Removes a check; whether there was one.
    pub fn remove(&self, name: &str) -> bool {
        let mut checks = self.checks.write();
        let before = checks.len();
        checks.retain(|held| held.check.name() != name);
        checks.len() < before
    }

    /// The names of all checks, in order.
    pub fn names(&self) -> Vec<String> {
        self.checks.read().iter().map(|held| held.check.name().to_owned()).collect()
    }

    /// Runs the checks of an endpoint. `excluded` are names to leave out. If a check fails, the page has a line for each.
    pub fn report(
        &self,
        probe: Probe,
        excluded: &[String],
        detail: Detail,
        observer: &dyn ServeObserver,
    ) -> HealthReport {
        let mut lines = String::new();
        let mut failed = Vec::new();
        let mut unmatched: Vec<&str> = excluded.iter().map(String::as_str).collect();
        unmatched.sort_unstable();
        unmatched.dedup();
        let checks = self.checks_of(probe);
        let names: Vec<String> = checks.iter().map(|check| check.name().to_owned()).collect();
        observer.health_checks(probe, &names);
        for check in checks {
            let name = check.name();
            if excluded.iter().any(|held| held == name) {
                unmatched.retain(|held| *held != name);
                let _infallible = writeln!(lines, "[+]{name} excluded: ok");
                continue;
            }
            let outcome = CheckOutcome::of(&*check);
            observer.health_checked(name, probe, outcome.status());
            let _infallible = match outcome {
                CheckOutcome::Well(Some(remark)) if detail == Detail::Remarks => {
                    writeln!(lines, "[+]{name} ok, {}", remark.text)
                }
                CheckOutcome::Well(_) => writeln!(lines, "[+]{name} ok"),
                CheckOutcome::Degraded(_) => writeln!(lines, "[+]{name} ok, degraded: reason withheld"),
                CheckOutcome::Failed(reason) => {
                    failed.push(format!("{name}: {reason}"));
                    writeln!(lines, "[-]{name} failed: reason withheld")
                }
            };
        }
        if !unmatched.is_empty() {
            let quoted: Vec<String> = unmatched.iter().map(|name| format!("{name:?}")).collect();
            let _infallible = writeln!(
                lines,
                "warn: some health checks cannot be excluded: no matches for {}",
                quoted.join(",")
            );
        }
        let endpoint = probe.name();
        if !failed.is_empty() {
            tracing::warn!(endpoint, failed = failed.join("; "), "Health check failed");
            return HealthReport { passed: false, text: format!("{lines}{endpoint} check failed\n") };
        }
        let text = match detail {
            Detail::Summary => "ok".to_owned(),
            Detail::Checks | Detail::Remarks => format!("{lines}{endpoint} check passed\n"),
        };
        HealthReport { passed: true, text }
    }

    /// Runs one check of an endpoint; `None` if there is none of that name.
    pub fn report_one(&self, probe: Probe, name: &str, observer: &dyn ServeObserver) -> Option<HealthReport> {
        let check = self.checks_of(probe).into_iter().find(|check| check.name() == name)?;
        let outcome = CheckOutcome::of(&*check);
        observer.health_checked(name, probe, outcome.status());
        Some(match outcome {
            CheckOutcome::Well(None) => HealthReport { passed: true, text: "ok".to_owned() },
            CheckOutcome::Well(Some(remark)) => {
                HealthReport { passed: true, text: format!("ok, {remark}\n") }
            }
            CheckOutcome::Degraded(reason) => {
                HealthReport { passed: true, text: format!("ok, degraded: {reason}\n") }
            }
            CheckOutcome::Failed(reason) => {
                HealthReport { passed: false, text: format!("internal server error: {reason}\n") }
            }
        })
    }

    /// A snapshot, so that a check runs without the lock.
    fn checks_of(&self, probe: Probe) -> Vec<Arc<dyn HealthCheck>> {
        let checks: Vec<_> = self
            .checks
            .read()
            .iter()
            .filter(|held| held.probes.contains(&probe))
            .map(|held| Arc::clone(&held.check))
            .collect();
        if checks.is_empty() { vec![Arc::new(PingCheck::new("ping"))] } else { checks }
    }
}

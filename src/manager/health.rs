//! How a controller is: its own check, and the caches that it reads.
//!
//! A cache that stays unfilled, or falls behind, makes its controllers degraded and not failed: a restart of the process
//! would not fill it, and would stop the controllers that do without it.

use std::sync::Arc;

use super::controller::{Controller, Phase};
use coxswain_machinery::framework::{SlowPoll, Watchdog};
use coxswain_machinery::informer::Informers;
use coxswain_machinery::serve::{HealthCheck, Remark};

/// What is wrong with a cache that a controller reads, by the name of its kind; `None` when nothing is, or the controller
/// does not run.
pub(super) fn cache_problem(controller: &Controller, informers: &Informers) -> Option<String> {
    if !matches!(controller.phase(), Phase::Starting | Phase::Running) {
        return None;
    }
    let watched = controller.watched();
    watched.iter().find_map(|watched| informers.problem_of(watched.kind, watched.field_selector))
}

/// The health check of a controller.
pub(super) struct ControllerHealth {
    pub(super) controller: Arc<Controller>,
    pub(super) informers: Informers,
    pub(super) watchdog: Watchdog,
    /// Whether the flags want it to run, so that it is an override that disables it.
    pub(super) selected: bool,
}

impl ControllerHealth {
    /// Whether a controller in this phase has a check: one that is disabled by the flags has none, as in the original.
    pub(super) fn is_checked(&self, phase: &Phase) -> bool {
        match phase {
            Phase::Disabled => self.selected,
            Phase::Skipped(_) | Phase::NotImplemented => false,
            _ => true,
        }
    }
}

impl HealthCheck for ControllerHealth {
    fn name(&self) -> &str {
        self.controller.name()
    }

    fn check(&self) -> Result<(), String> {
        self.controller.check()
    }

    fn degraded(&self) -> Option<String> {
        self.controller.degraded().or_else(|| cache_problem(&self.controller, &self.informers))
    }

    fn remark(&self) -> Option<Remark> {
        if self.controller.phase() == Phase::Disabled {
            return Some(Remark::of("disabled by override"));
        }
        let SlowPoll { key, took, hangs } = self.watchdog.slow_poll(self.controller.name())?;
        let (text, verb) = if hangs {
            ("a reconcile blocks a thread", "has blocked")
        } else {
            ("a reconcile blocked a thread recently", "blocked")
        };
        Some(Remark {
            text,
            detail: Some(format!("{:?} {verb} it for {} ms", key.to_string(), took.as_millis())),
        })
    }
}

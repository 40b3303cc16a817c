//! How a controller is: its own check, and the caches that it reads.
//!
//! A cache that stays unfilled, or falls behind, makes its controllers degraded and not failed: a restart of the process
//! would not fill it, and would stop the controllers that do without it.

use std::sync::Arc;

use super::controller::{Controller, Phase};
use coxswain_machinery::informer::Informers;
use coxswain_machinery::serve::HealthCheck;

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
}

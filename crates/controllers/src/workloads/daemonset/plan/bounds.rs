//! How many nodes may be without an available pod, and how many may have two, while a template is rolled out.

use coxswain_machinery::api::apps::DaemonSetUpdateStrategy;
use coxswain_machinery::model::scaled::{Rounding, scaled};
use coxswain_machinery::wire::IntOrString;

/// The strategy that replaces pods by itself.
pub(super) const ROLLING_UPDATE: &str = "RollingUpdate";

/// The bounds of a roll-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Bounds {
    /// Nodes that may be without an available pod.
    pub(in super::super) unavailable: usize,
    /// Nodes that may have two pods.
    pub(in super::super) surge: usize,
}

impl Bounds {
    /// For so many nodes that should run a pod. Percentages are of these, and are rounded up; when both bounds come out as 0
    /// nothing could ever move, so one node may be without then.
    pub(in super::super) fn of(strategy: &DaemonSetUpdateStrategy, desired: usize) -> Self {
        if strategy.r#type != ROLLING_UPDATE {
            return Self { unavailable: 0, surge: 0 };
        }
        let rolling = strategy.rolling_update.as_deref();
        let surge = resolve(rolling.and_then(|rolling| rolling.max_surge.as_ref()), desired);
        let mut unavailable = resolve(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), desired);
        if unavailable == 0 && surge == 0 && desired > 0 {
            unavailable = 1;
        }
        Self { unavailable, surge }
    }

    /// Whether new pods come before old ones go.
    pub(super) fn surges(self) -> bool {
        self.surge > 0
    }
}

/// What is no number or percentage counts as 0. (The API server lets none pass.)
fn resolve(value: Option<&IntOrString>, of: usize) -> usize {
    let of = i64::try_from(of).unwrap_or(i64::MAX);
    let number = value.and_then(|value| scaled(value, of, Rounding::Up)).unwrap_or(0);
    usize::try_from(number.max(0)).unwrap_or(usize::MAX)
}

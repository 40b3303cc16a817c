//! How many pods there may be and how many must be available, from `replicas`, `maxSurge` and `maxUnavailable`.

use super::error::Unplannable;
use coxswain_machinery::api::apps::DeploymentSpec;
use coxswain_machinery::model::scaled::{Rounding, scaled};
use coxswain_machinery::wire::IntOrString;

/// The bounds of a Deployment's number of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Bounds {
    /// Pods asked for.
    pub(in super::super) replicas: i32,
    /// Pods that may be too many.
    pub(in super::super) surge: i32,
    /// Pods that may be missing.
    pub(in super::super) unavailable: i32,
}

impl Bounds {
    /// Percentages are of `replicas`; surge is rounded up, unavailability down. When both come out as 0 nothing could
    /// ever move, so one pod may be missing then.
    pub(in super::super) fn of(spec: &DeploymentSpec) -> Result<Self, Unplannable> {
        let replicas = spec.replicas.unwrap_or(1).max(0);
        if spec.strategy.r#type != "RollingUpdate" {
            return Ok(Self { replicas, surge: 0, unavailable: 0 });
        }
        let rolling = spec.strategy.rolling_update.as_deref();
        let surge = resolve(rolling.and_then(|rolling| rolling.max_surge.as_ref()), replicas, Rounding::Up)?;
        let mut unavailable =
            resolve(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), replicas, Rounding::Down)?;
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Ok(Self { replicas, surge, unavailable: unavailable.min(replicas) })
    }

    /// Pods that there may be at most.
    pub(in super::super) fn most(&self) -> i32 {
        self.replicas.saturating_add(self.surge)
    }

    /// Pods that must be available at least.
    pub(in super::super) fn least_available(&self) -> i32 {
        self.replicas - self.unavailable
    }
}

fn resolve(value: Option<&IntOrString>, of: i32, rounding: Rounding) -> Result<i32, Unplannable> {
    let Some(value) = value else { return Ok(0) };
    let number = scaled(value, of.into(), rounding).ok_or_else(|| {
        let text = if let IntOrString::Str(text) = value { text.as_str() } else { "" };
        Unplannable::Strategy(format!("{text:?} is neither a number nor a percentage"))
    })?;
    Ok(i32::try_from(number.max(0)).unwrap_or(i32::MAX))
}

/// Seconds without progress after which a roll-out counts as failed; `None` if it never does.
pub(super) fn deadline(spec: &DeploymentSpec) -> Option<i32> {
    spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
}

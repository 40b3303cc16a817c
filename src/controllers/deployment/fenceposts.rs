//! How many pods a Deployment may have too many, and how many may be missing, while it rolls out. Pure.

use crate::api::apps::DeploymentSpec;
use crate::wire::IntOrString;

/// The bounds of a rollout, resolved against the number of pods asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fenceposts {
    /// Pods asked for.
    pub(super) replicas: i64,
    /// Pods that may be too many.
    pub(super) surge: i64,
    /// Pods that may be missing.
    pub(super) unavailable: i64,
}

impl Fenceposts {
    /// Percentages are of the pods asked for: too many are rounded up, missing ones down. When both come out as 0,
    /// nothing could ever be replaced; then one may be missing. Only rolling updates have any bounds.
    pub(super) fn of(spec: &DeploymentSpec) -> Self {
        let replicas = i64::from(spec.replicas.unwrap_or(1));
        if spec.strategy.r#type != super::ROLLING_UPDATE {
            return Self { replicas, surge: 0, unavailable: 0 };
        }
        let bounds = spec.strategy.rolling_update.as_deref();
        let surge = bounds.and_then(|bounds| bounds.max_surge.as_ref());
        let unavailable = bounds.and_then(|bounds| bounds.max_unavailable.as_ref());
        let surge = surge.map_or(0, |surge| resolve(surge, replicas, 99));
        let unavailable = match unavailable.map_or(0, |missing| resolve(missing, replicas, 0)) {
            0 if surge == 0 => 1,
            missing => missing,
        };
        Self { replicas, surge, unavailable: unavailable.min(replicas) }
    }

    /// Pods that there may be at most.
    pub(super) fn most(&self) -> i64 {
        self.replicas + self.surge
    }

    /// Pods that must be available at least.
    pub(super) fn least(&self) -> i64 {
        self.replicas - self.unavailable
    }
}

/// A number as it is, or a percentage of `total`, of which `round_up` hundredths are added before it is cut. Text that
/// is no percentage, which the server does not take, counts as nothing.
fn resolve(bound: &IntOrString, total: i64, round_up: i64) -> i64 {
    match bound {
        IntOrString::Int(number) => (*number).into(),
        IntOrString::Str(text) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<i32>().ok());
            percent.map_or(0, |percent| (i64::from(percent) * total + round_up).div_euclid(100))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::apps::{DeploymentStrategy, RollingUpdateDeployment};

    fn bounds(replicas: i32, surge: IntOrString, unavailable: IntOrString) -> (i64, i64) {
        let rolling_update =
            RollingUpdateDeployment { max_surge: Some(surge), max_unavailable: Some(unavailable) };
        let strategy = DeploymentStrategy {
            r#type: "RollingUpdate".into(),
            rolling_update: Some(Box::new(rolling_update)),
        };
        let spec = DeploymentSpec { replicas: Some(replicas), strategy, ..DeploymentSpec::default() };
        let resolved = Fenceposts::of(&spec);
        (resolved.surge, resolved.unavailable)
    }

    #[test]
    fn bounds_are_resolved_against_the_size() {
        let int = IntOrString::Int;
        let text = |text: &str| IntOrString::Str(text.into());
        for (replicas, surge, unavailable, expected) in [
            (10, text("25%"), text("25%"), (3, 2)),
            (4, text("25%"), text("25%"), (1, 1)),
            (1, text("25%"), text("25%"), (1, 0)),
            (0, text("25%"), text("25%"), (0, 0)),
            (3, text("0%"), text("10%"), (0, 1)),
            (3, int(0), int(0), (0, 1)),
            (3, int(2), int(5), (2, 3)),
            (10, text("200%"), text("100%"), (20, 10)),
            (10, text("many"), text("few"), (0, 1)),
            (i32::MAX, text("100%"), int(i32::MAX), (i64::from(i32::MAX), i64::from(i32::MAX))),
        ] {
            let what = format!("{replicas} {surge:?} {unavailable:?}");
            assert_eq!(bounds(replicas, surge, unavailable), expected, "{what}");
        }
    }

    #[test]
    fn only_rolling_updates_have_bounds() {
        let spec = DeploymentSpec { replicas: Some(5), ..DeploymentSpec::default() };
        assert_eq!(Fenceposts::of(&spec), Fenceposts { replicas: 5, surge: 0, unavailable: 0 });
        let mut rolling = spec.clone();
        rolling.strategy.r#type = "RollingUpdate".into();
        assert_eq!(Fenceposts::of(&rolling), Fenceposts { replicas: 5, surge: 0, unavailable: 1 });
    }
}

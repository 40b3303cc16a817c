//! What the manager's flags and feature gates say of all autoscalers. Decides nothing.

use std::time::Duration;

use coxswain_machinery::api::autoscaling::ScalingRules;
use coxswain_machinery::framework::QueueConfig;
use coxswain_machinery::model::quantity::Quantity;
use coxswain_machinery::options::Config;

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Settings {
    /// Time between two looks at an autoscaler.
    pub(super) sync_period: Duration,
    /// How far back recommendations count that keep a target from shrinking, unless the autoscaler says so itself.
    pub(super) downscale_stabilization: Duration,
    /// How far the ratio of a metric to its target may be from 1, unless the autoscaler says so itself.
    pub(super) tolerance: f64,
    /// For how long after its start a pod's CPU use counts only while it is ready.
    pub(super) cpu_initialization_period: Duration,
    /// For how long after its start a pod that is not ready has not been so yet.
    pub(super) initial_readiness_delay: Duration,
    /// `HPAConfigurableTolerance`.
    pub(super) own_tolerance: bool,
    /// `HPAScaleToZero`.
    pub(super) scale_to_zero: bool,
    /// `PodLevelResources`.
    pub(super) pod_level_resources: bool,
}

impl Settings {
    /// Returns the delays of the queue. A reconcile that fails is retried after one period, as by kube-controller-manager.
    pub(super) fn backoff(&self) -> QueueConfig {
        QueueConfig {
            base_delay: self.sync_period,
            max_delay: self.sync_period,
            slack: self.slack(),
            ..QueueConfig::default()
        }
    }

    /// How much later than its period an autoscaler may be looked at: a hundredth of it. A thousand autoscalers are looked at one by
    /// one otherwise, and two requests that are alone cost twice what they cost among others.
    fn slack(&self) -> Duration {
        self.sync_period / 100
    }

    /// Those of a manager.
    pub(super) fn of(config: &Config, gate: &dyn Fn(&str) -> bool) -> Self {
        let flags = &config.flags;
        Self {
            sync_period: flags.horizontal_pod_autoscaler_sync_period,
            downscale_stabilization: flags.horizontal_pod_autoscaler_downscale_stabilization,
            tolerance: flags.horizontal_pod_autoscaler_tolerance,
            cpu_initialization_period: flags.horizontal_pod_autoscaler_cpu_initialization_period,
            initial_readiness_delay: flags.horizontal_pod_autoscaler_initial_readiness_delay,
            own_tolerance: gate("HPAConfigurableTolerance"),
            scale_to_zero: gate("HPAScaleToZero"),
            pod_level_resources: gate("PodLevelResources"),
        }
    }

    /// The tolerance in one direction, by the autoscaler's own rules for it.
    pub(super) fn tolerance_of(&self, rules: Option<&ScalingRules>) -> f64 {
        let own = rules.and_then(|rules| rules.tolerance.as_ref()).filter(|_| self.own_tolerance);
        let own = own.and_then(|text| text.string.parse::<Quantity>().ok());
        own.map_or(self.tolerance, Quantity::to_f64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coxswain_machinery::options::{Config, Flags};

    use super::Settings;

    #[test]
    fn failed_reconciles_are_retried_after_one_period() {
        let seconds = Duration::from_secs(7);
        let flags = Flags { horizontal_pod_autoscaler_sync_period: seconds, ..Flags::default() };
        let backoff = Settings::of(&Config { flags, ..Config::default() }, &|_| false).backoff();
        assert_eq!((backoff.base_delay, backoff.max_delay), (seconds, seconds));
    }

    #[test]
    fn flags_and_gates_are_its_settings() {
        let seconds = Duration::from_secs;
        let flags = Flags {
            horizontal_pod_autoscaler_sync_period: seconds(1),
            horizontal_pod_autoscaler_downscale_stabilization: seconds(2),
            horizontal_pod_autoscaler_tolerance: 0.5,
            horizontal_pod_autoscaler_cpu_initialization_period: seconds(3),
            horizontal_pod_autoscaler_initial_readiness_delay: seconds(4),
            ..Flags::default()
        };
        let config = Config { flags, ..Config::default() };
        let expected = Settings {
            sync_period: seconds(1),
            downscale_stabilization: seconds(2),
            tolerance: 0.5,
            cpu_initialization_period: seconds(3),
            initial_readiness_delay: seconds(4),
            own_tolerance: false,
            scale_to_zero: false,
            pod_level_resources: false,
        };
        assert_eq!(Settings::of(&config, &|_| false), expected);
        for (name, expected) in [
            ("HPAConfigurableTolerance", Settings { own_tolerance: true, ..expected }),
            ("HPAScaleToZero", Settings { scale_to_zero: true, ..expected }),
            ("PodLevelResources", Settings { pod_level_resources: true, ..expected }),
        ] {
            assert_eq!(Settings::of(&config, &|gate| gate == name), expected, "{name}");
        }
    }
}

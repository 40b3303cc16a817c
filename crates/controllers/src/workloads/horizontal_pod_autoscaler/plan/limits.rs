//! How far a target may be scaled at once: recommendations that are still remembered, the autoscaler's own bounds, and how fast
//! it may change. Pure numbers.
//!
//! Three numbers go in: what there is, what the metrics ask for, and what they asked for lately. What the recommendations leave
//! is cut to what bounds and rates allow. Without `spec.behavior` the original has older rules, which are kept as they are.

use std::time::Duration;

use super::super::history::{History, Step, is_within};
use super::super::settings::Settings;
use coxswain_machinery::api::autoscaling::{HorizontalPodAutoscalerSpec, ScalingPolicy, ScalingRules};
use coxswain_machinery::model::clock::SteadyTime;

/// What comes of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Limited {
    /// So many replicas there are to be.
    pub(in super::super) replicas: i32,
    /// So many the recommendations leave.
    pub(in super::super) stabilized: i32,
    pub(in super::super) stabilization: Stabilization,
    pub(in super::super) limit: Limit,
}

/// What recommendations of before have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Stabilization {
    None,
    /// Some were higher.
    Down,
    /// Some were lower.
    Up,
}

/// What bounds and rates have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Limit {
    None,
    TooFew,
    TooMany,
    UpRate,
    DownRate,
}

impl Stabilization {
    /// Reason and message of the condition `AbleToScale`.
    pub(in super::super) fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("ReadyForNewScale", "recommended size matches current size"),
            Self::Down => (
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest recent recommendation",
            ),
            Self::Up => (
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent recommendation",
            ),
        }
    }
}

impl Limit {
    /// Status, reason and message of the condition `ScalingLimited`.
    pub(in super::super) fn told(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::None => ("False", "DesiredWithinRange", "the desired count is within the acceptable range"),
            Self::TooFew => {
                ("True", "TooFewReplicas", "the desired replica count is less than the minimum replica count")
            }
            Self::TooMany => (
                "True",
                "TooManyReplicas",
                "the desired replica count is more than the maximum replica count",
            ),
            Self::UpRate => (
                "True",
                "ScaleUpLimit",
                "the desired replica count is increasing faster than the maximum scale rate",
            ),
            Self::DownRate => (
                "True",
                "ScaleDownLimit",
                "the desired replica count is decreasing faster than the maximum scale rate",
            ),
        }
    }
}

/// How many replicas there are to be, of `current` ones, of which the metrics ask for `desired`.
pub(in super::super) fn limited(
    spec: &HorizontalPodAutoscalerSpec,
    settings: &Settings,
    history: &History,
    (current, desired): (i32, i32),
    now: SteadyTime,
) -> Limited {
    let min = spec.min_replicas.unwrap_or(1);
    match spec.behavior.as_deref() {
        None => {
            let window = settings.downscale_stabilization;
            let stabilized = history.since(now, window).map(|held| held.replicas).fold(desired, i32::max);
            let stabilization = if stabilized == desired { Stabilization::None } else { Stabilization::Down };
            let fastest = current.saturating_mul(2).max(4);
            let (most, limit) = if spec.max_replicas > fastest {
                (fastest, Limit::UpRate)
            } else {
                (spec.max_replicas, Limit::TooMany)
            };
            let (replicas, limit) = if stabilized < min {
                (min, Limit::TooFew)
            } else if stabilized > most {
                (most, limit)
            } else {
                (stabilized, Limit::None)
            };
            Limited { replicas, stabilized, stabilization, limit }
        }
        Some(behavior) => {
            let (up, down) = (behavior.scale_up.as_deref(), behavior.scale_down.as_deref());
            let of = |rules, usual| window(rules).unwrap_or(usual);
            let lately = |window| history.since(now, window).map(|held| held.replicas);
            let least = lately(of(up, Duration::ZERO)).fold(desired, i32::min);
            let greatest = lately(of(down, settings.downscale_stabilization)).fold(desired, i32::max);
            let stabilized = if current < least {
                least
            } else if current > greatest {
                greatest
            } else {
                current
            };
            let stabilization = if stabilized == desired {
                Stabilization::None
            } else if desired >= current {
                Stabilization::Up
            } else {
                Stabilization::Down
            };
            let (replicas, limit) = match stabilized.cmp(&current) {
                std::cmp::Ordering::Greater => {
                    let rate = fastest_up(up, history, current, now);
                    let (most, limit) = if spec.max_replicas > rate {
                        (rate, Limit::UpRate)
                    } else {
                        (spec.max_replicas, Limit::TooMany)
                    };
                    if stabilized > most { (most, limit) } else { (stabilized, Limit::None) }
                }
                std::cmp::Ordering::Less => {
                    let rate = fastest_down(down, history, current, now);
                    let (least, limit) =
                        if min < rate { (rate, Limit::DownRate) } else { (min, Limit::TooFew) };
                    if stabilized < least { (least, limit) } else { (stabilized, Limit::None) }
                }
                std::cmp::Ordering::Equal => (current, Limit::None),
            };
            Limited { replicas, stabilized, stabilization, limit }
        }
    }
}

/// For how long recommendations count, in either direction.
pub(in super::super) fn longest_window(spec: &HorizontalPodAutoscalerSpec, settings: &Settings) -> Duration {
    let usual = settings.downscale_stabilization;
    let Some(behavior) = spec.behavior.as_deref() else { return usual };
    let up = window(behavior.scale_up.as_deref()).unwrap_or_default();
    window(behavior.scale_down.as_deref()).unwrap_or(usual).max(up)
}

/// For how long what was added or removed counts.
pub(in super::super) fn longest_period(rules: Option<&ScalingRules>) -> Duration {
    policies(rules).iter().map(period).max().unwrap_or(USUAL_PERIOD)
}

/// The period of the policies that the API fills in.
const USUAL_PERIOD: Duration = Duration::from_secs(15);

fn window(rules: Option<&ScalingRules>) -> Option<Duration> {
    let seconds = rules?.stabilization_window_seconds?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

fn period(policy: &ScalingPolicy) -> Duration {
    Duration::from_secs(u64::try_from(policy.period_seconds).unwrap_or(0))
}

fn policies(rules: Option<&ScalingRules>) -> &[ScalingPolicy] {
    rules.map_or(&[], |rules| &rules.policies)
}

/// Which of several policies counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Select {
    Most,
    Least,
    Disabled,
}

fn select(rules: Option<&ScalingRules>) -> Select {
    match rules.and_then(|rules| rules.select_policy.as_deref()) {
        Some("Min") => Select::Least,
        Some("Disabled") => Select::Disabled,
        _ => Select::Most,
    }
}

/// What there was when a policy's period began, if nobody else scales.
fn base(history: &History, current: i32, policy: &ScalingPolicy, now: SteadyTime) -> i32 {
    let within = |steps: &[Step]| -> i32 {
        let recent = steps.iter().filter(|step| is_within(step.at, now, period(policy)));
        recent.map(|step| step.by).fold(0, i32::saturating_add)
    };
    current.saturating_sub(within(&history.added)).saturating_add(within(&history.removed))
}

/// The most replicas that the rates allow.
fn fastest_up(rules: Option<&ScalingRules>, history: &History, current: i32, now: SteadyTime) -> i32 {
    let select = select(rules);
    if select == Select::Disabled {
        return current;
    }
    let of = |policy: &ScalingPolicy| {
        let base = base(history, current, policy, now);
        if policy.r#type == "Percent" {
            (f64::from(base) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32
        } else {
            base.saturating_add(policy.value)
        }
    };
    let proposals = policies(rules).iter().map(of);
    let chosen = if select == Select::Least { proposals.min() } else { proposals.max() };
    chosen.unwrap_or(current).max(current)
}

/// The fewest replicas that the rates allow.
fn fastest_down(rules: Option<&ScalingRules>, history: &History, current: i32, now: SteadyTime) -> i32 {
    let select = select(rules);
    if select == Select::Disabled {
        return current;
    }
    let of = |policy: &ScalingPolicy| {
        let base = base(history, current, policy, now);
        if policy.r#type == "Percent" {
            (f64::from(base) * (1.0 - f64::from(policy.value) / 100.0)) as i32
        } else {
            base.saturating_sub(policy.value)
        }
    };
    let proposals = policies(rules).iter().map(of);
    let chosen = if select == Select::Least { proposals.max() } else { proposals.min() };
    chosen.unwrap_or(current).min(current)
}

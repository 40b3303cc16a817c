//! Whether an autoscaler looks at its metrics at all, by its spec, its status and how many replicas there are.

use super::settings::Settings;
use coxswain_machinery::api::autoscaling::{HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition};

/// The condition that its target was scaled to zero.
pub(super) const SCALED_TO_ZERO: &str = "ScaledToZero";

/// The condition of a type.
pub(super) fn condition<'a>(
    autoscaler: &'a HorizontalPodAutoscaler,
    kind: &str,
) -> Option<&'a HorizontalPodAutoscalerCondition> {
    autoscaler.status.conditions.iter().find(|held| held.r#type == kind)
}

/// Whether metrics are looked at when there are so many replicas.
pub(super) fn asks_metrics(autoscaler: &HorizontalPodAutoscaler, settings: &Settings, current: i32) -> bool {
    let spec = &autoscaler.spec;
    if current == 0 {
        return may_wake(autoscaler, settings);
    }
    spec.min_replicas.unwrap_or(1) <= current && current <= spec.max_replicas
}

/// Whether a target that was scaled to zero may come back by its metrics.
fn may_wake(autoscaler: &HorizontalPodAutoscaler, settings: &Settings) -> bool {
    let was_scaled = condition(autoscaler, SCALED_TO_ZERO).is_some_and(|held| held.status == "True");
    let may_be_zero = autoscaler.spec.min_replicas.unwrap_or(1) == 0;
    settings.scale_to_zero && was_scaled && (!may_be_zero || has_metric_without_pods(autoscaler))
}

/// Whether a metric can be had without pods.
pub(super) fn has_metric_without_pods(autoscaler: &HorizontalPodAutoscaler) -> bool {
    autoscaler.spec.metrics.iter().any(|metric| metric.r#type == "Object" || metric.r#type == "External")
}

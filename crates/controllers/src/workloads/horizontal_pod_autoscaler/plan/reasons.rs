//! How a number of replicas came about, metric by metric, in words. Decides nothing.

use jiff::Timestamp;

use super::super::proposal::{MetricFailure, Proposal};
use super::super::view::{BadSelector, Look, Scaling, Stage, View};
use super::limits::{Limit, Limited, Stabilization};
use super::{Decision, decide};
use coxswain_machinery::api::autoscaling::{MetricSpec, MetricStatus, MetricTarget, MetricValueStatus};
use coxswain_machinery::model::words::count;
use coxswain_machinery::wire::Str;

pub(in super::super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    let target = &view.spec().scale_target_ref;
    let name = format!("{} {}", target.kind, target.name);
    match &view.stage {
        Stage::NoScale(no_scale) => vec![format!(
            "The scale of {name} could not be read: {}. The read is retried in {:?}.",
            no_scale.why, view.settings.sync_period
        )],
        Stage::Look(look) => of_look(view, look, &name, now),
        Stage::Decided(draft, Scaling::Failed(why)) => {
            vec![format!("{name} could not be scaled to {}: {why}.", replicas(draft.desired))]
        }
        Stage::Decided(draft, _) => vec![format!("{name} is being scaled to {}.", replicas(draft.desired))],
    }
}

fn replicas(number: i32) -> String {
    count(usize::try_from(number).unwrap_or(0), "replica")
}

fn of_look(view: &View, look: &Look, name: &str, now: Timestamp) -> Vec<String> {
    let decision = decide(view, look, now);
    let (spec, current) = (view.spec(), decision.current);
    let has = format!("{name} has {}", replicas(current));
    let first = match decision.desired {
        None => format!("{has} and is not scaled, because the desired number is unknown."),
        Some(0) if current == 0 => {
            format!("{has}, which disables autoscaling. Scale it to at least 1 to enable it again.")
        }
        Some(desired) if desired == current => format!("{has} and is not scaled."),
        Some(desired) => format!("{has} and is scaled to {desired}."),
    };
    let mut reasons = vec![first];
    if let Err(bad) = &look.pods
        && decision.desired.is_none()
    {
        reasons.push(selector(bad));
    }
    for (metric, made) in spec.metrics.iter().zip(&decision.proposals) {
        reasons.push(match made {
            Ok(proposal) => of_metric(metric, proposal),
            Err(failure) => of_failure(failure),
        });
    }
    reasons.extend(together(&decision));
    if let (Some(desired), None) = (decision.desired, decision.wanted)
        && desired != current
    {
        let (bound, min) = (spec.max_replicas, spec.min_replicas.unwrap_or(1));
        reasons.push(if current > bound {
            format!("The maximum is {}, so no metric is evaluated.", replicas(bound))
        } else {
            format!("The minimum is {}, so no metric is evaluated.", replicas(min))
        });
    }
    if let Ok(selected) = &look.pods {
        let number = selected.pods.len();
        reasons.push(format!("The selector is {} and matches {}.", selected.selector, count(number, "pod")));
    }
    reasons
}

fn selector(bad: &BadSelector) -> String {
    match bad {
        BadSelector::Missing => "The scale has no selector, so its pods are unknown.".to_owned(),
        BadSelector::Invalid(why) => format!("The selector of the scale is invalid: {why}."),
        BadSelector::Ambiguous { names, .. } => {
            let names: Vec<&str> = names.iter().map(Str::as_str).collect();
            format!(
                "Several autoscalers select the same pods, so none of them is active: {}.",
                names.join(", ")
            )
        }
    }
}

fn of_metric(metric: &MetricSpec, proposal: &Proposal) -> String {
    let (now, target) = compared(metric, &proposal.status);
    format!(
        "{} is {now}, the target is {target}; recommendation: {}.",
        capital(&proposal.name),
        replicas(proposal.replicas)
    )
}

fn of_failure(failure: &MetricFailure) -> String {
    format!("A metric is unavailable: {}.", failure.whole)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// What a metric is and what it should be.
fn compared(metric: &MetricSpec, status: &MetricStatus) -> (String, String) {
    let sources: [Option<(&MetricTarget, &MetricValueStatus)>; 5] = [
        metric
            .resource
            .as_deref()
            .map(|held| &held.target)
            .zip(status.resource.as_deref().map(|held| &held.current)),
        metric
            .container_resource
            .as_deref()
            .map(|held| &held.target)
            .zip(status.container_resource.as_deref().map(|held| &held.current)),
        metric.pods.as_deref().map(|held| &held.target).zip(status.pods.as_deref().map(|held| &held.current)),
        metric
            .object
            .as_deref()
            .map(|held| &held.target)
            .zip(status.object.as_deref().map(|held| &held.current)),
        metric
            .external
            .as_deref()
            .map(|held| &held.target)
            .zip(status.external.as_deref().map(|held| &held.current)),
    ];
    let Some((target, current)) = sources.into_iter().flatten().next() else {
        return ("unknown".to_owned(), "nothing".to_owned());
    };
    if let (Some(now), Some(wanted)) = (current.average_utilization, target.average_utilization) {
        return (format!("{now}%"), format!("{wanted}%"));
    }
    let text = |held: &Option<Box<coxswain_machinery::api::meta::QuantityText>>| {
        held.as_ref().map(|held| held.string.to_string())
    };
    let now = text(&current.average_value).or_else(|| text(&current.value)).unwrap_or_default();
    let wanted = text(&target.average_value).or_else(|| text(&target.value)).unwrap_or_default();
    (now, wanted)
}

/// What is made of what all metrics ask for.
fn together(decision: &Decision) -> Vec<String> {
    let mut said = Vec::new();
    let failed = decision.proposals.iter().filter(|made| made.is_err()).count();
    if failed > 0 {
        said.push(if decision.wanted.is_some() {
            "Unavailable metrics are ignored, because the other metrics do not recommend fewer replicas than now."
                .to_owned()
        } else {
            "While a metric is unavailable, the target is only scaled up.".to_owned()
        });
    }
    let Some((wanted, limited)) = &decision.wanted else { return said };
    if decision.proposals.len() > 1 {
        said.push(format!("Using the highest recommendation: {}.", replicas(*wanted)));
    }
    said.extend(limits(limited));
    said
}

fn limits(limited: &Limited) -> Vec<String> {
    let Limited { replicas: to, stabilized, stabilization, limit } = *limited;
    let lately = match stabilization {
        Stabilization::None => None,
        Stabilization::Down => Some(format!(
            "An earlier recommendation in the stabilization window was higher; {stabilized} are kept."
        )),
        Stabilization::Up => Some(format!(
            "An earlier recommendation in the stabilization window was lower; the target is scaled to {stabilized}."
        )),
    };
    let bound = match limit {
        Limit::None => None,
        Limit::TooFew => Some(format!("The minimum is {}.", replicas(to))),
        Limit::TooMany => Some(format!("The maximum is {}.", replicas(to))),
        Limit::UpRate => Some(format!("The scale-up policy caps this step at {}.", replicas(to))),
        Limit::DownRate => Some(format!("The scale-down policy limits this step to {}.", replicas(to))),
    };
    lately.into_iter().chain(bound).collect()
}

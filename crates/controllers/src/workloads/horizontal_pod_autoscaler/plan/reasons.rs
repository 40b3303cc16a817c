//! How a number of replicas came about, metric by metric, in words. Decides nothing.

use jiff::Timestamp;

use super::super::view::{BadSelector, Look, Scaling, Stage, View};
use super::limits::{Limit, Limited, Stabilization};
use super::proposals::{MetricFailure, Proposal};
use super::{Decision, decide};
use coxswain_machinery::api::autoscaling::{MetricSpec, MetricStatus, MetricTarget, MetricValueStatus};
use coxswain_machinery::model::words::{count, verb};
use coxswain_machinery::wire::Str;

pub(in super::super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    let target = &view.spec().scale_target_ref;
    let name = format!("{} {}", target.kind, target.name);
    match &view.stage {
        Stage::NoScale(no_scale) => vec![format!(
            "Nothing is scaled, because the scale of {name} could not be read: {}. It is tried again in {:?}.",
            no_scale.why, view.settings.sync_period
        )],
        Stage::Look(look) => of_look(view, look, &name, now),
        Stage::Decided(draft, Scaling::Failed(why)) => {
            vec![format!("{name} is to have {}, and could not be scaled: {why}.", replicas(draft.desired))]
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
    let has = format!("{name} is asked to have {}", replicas(current));
    let first = match decision.desired {
        None => format!("{has}, and it stays so: it is not known how many it needs."),
        Some(0) if current == 0 => {
            format!("{has}, which switches scaling off. Whoever scales it up switches it on again.")
        }
        Some(desired) if desired == current => format!("{has}, and it stays so."),
        Some(desired) => format!("{has}, and is scaled to {desired}."),
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
            format!("At most {} are allowed, so no metric is looked at.", replicas(bound))
        } else {
            format!("At least {} must be there, so no metric is looked at.", replicas(min))
        });
    }
    if let Ok(selected) = &look.pods {
        let number = selected.pods.len();
        let are = verb(number, "is", "are");
        reasons.push(format!(
            "Its selector is {}; there {are} {}.",
            selected.selector,
            count(number, "such pod")
        ));
    }
    reasons
}

fn selector(bad: &BadSelector) -> String {
    match bad {
        BadSelector::Missing => "Its scale names no selector, so its pods are not known.".to_owned(),
        BadSelector::Invalid(why) => format!("Its scale's selector is unusable: {why}."),
        BadSelector::Ambiguous { names, .. } => {
            let names: Vec<&str> = names.iter().map(Str::as_str).collect();
            format!("Several autoscalers select the same pods, so none of them scales: {}.", names.join(", "))
        }
    }
}

fn of_metric(metric: &MetricSpec, proposal: &Proposal) -> String {
    let (now, target) = compared(metric, &proposal.status);
    format!(
        "{} is {now} of {target}, which asks for {}.",
        capital(&proposal.name),
        replicas(proposal.replicas)
    )
}

fn of_failure(failure: &MetricFailure) -> String {
    format!("A metric says nothing: {}.", failure.whole)
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
            "What cannot be had is left out, for the others ask for no fewer replicas than there are."
                .to_owned()
        } else {
            "While a metric says nothing, replicas are added and none are taken away.".to_owned()
        });
    }
    let Some((wanted, limited)) = &decision.wanted else { return said };
    if decision.proposals.len() > 1 {
        said.push(format!("Of what the metrics ask for the most counts: {}.", replicas(*wanted)));
    }
    said.extend(limits(limited));
    said
}

fn limits(limited: &Limited) -> Vec<String> {
    let Limited { replicas: to, stabilized, stabilization, limit } = *limited;
    let lately = match stabilization {
        Stabilization::None => None,
        Stabilization::Down => {
            Some(format!("More were asked for lately: until that is long enough ago, {stabilized} are kept."))
        }
        Stabilization::Up => Some(format!(
            "Fewer were asked for lately: until that is long enough ago, {stabilized} are enough."
        )),
    };
    let bound = match limit {
        Limit::None => None,
        Limit::TooFew => Some(format!("There must be at least {}.", replicas(to))),
        Limit::TooMany => Some(format!("There may be at most {}.", replicas(to))),
        Limit::UpRate => Some(format!("So fast it may grow to {} and not further.", replicas(to))),
        Limit::DownRate => Some(format!("So fast it may shrink to {} and not further.", replicas(to))),
    };
    lately.into_iter().chain(bound).collect()
}

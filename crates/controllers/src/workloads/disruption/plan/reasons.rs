//! Why the plan for one budget is what it is, in words. Decides nothing.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::view::{View, asks_for_replicas};
use super::count::{Count, pod_of};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::words::{count, names, time, verb};
use coxswain_machinery::wire::IntOrString;

pub(in super::super) fn reasons(view: &View, now: Timestamp) -> Vec<String> {
    let counted = match Count::of(view, now) {
        Ok(counted) => counted,
        Err(unknown) => {
            let again = if unknown.may_pass() {
                "The calculation is retried."
            } else {
                "The calculation is repeated when the cause changes."
            };
            return vec![format!(
                "No pod may be evicted, because the expected number of pods is unknown: {unknown}. {again}"
            )];
        }
    };
    let pods = view.pods.as_deref().unwrap_or_default();
    let mut reasons = vec![allowed(&counted), asked(view, &counted)];
    if view.budget.spec.selector.is_none() {
        reasons.push("The budget has no selector and matches no pod.".to_owned());
    } else if pods.is_empty() {
        reasons.push("No pod matches the selector.".to_owned());
    }
    reasons.extend(unhealthy(pods));
    reasons.extend(waited_for(view, pods, &counted));
    let lone = pods.iter().filter(|pod| pod.metadata.controller().is_none());
    let lone: Vec<_> = lone.map(|pod| &pod.metadata.name).collect();
    if !lone.is_empty() && asks_for_replicas(&view.budget.spec) {
        let (has, is) = (verb(lone.len(), "has", "have"), verb(lone.len(), "is", "are"));
        reasons.push(format!(
            "{} {has} no controller and {is} not counted; only a minAvailable number counts such pods.",
            names(lone)
        ));
    }
    if !view.overlaps.is_empty() {
        let number = view.overlaps.len();
        let (is, are) = (verb(number, "is", "are"), verb(number, "it", "them"));
        reasons.push(format!(
            "{} {is} also selected by another budget; the API server refuses to evict {are}.",
            count(number, "pod")
        ));
    }
    reasons
}

fn allowed(counted: &Count) -> String {
    let Count { allowed, healthy, desired, expected, .. } = counted;
    if *expected <= 0 {
        return "No pod may be evicted, because the expected number of pods is 0.".to_owned();
    }
    let may = match allowed {
        0 => "No pod may".to_owned(),
        1 => "1 pod may".to_owned(),
        _ => format!("{allowed} pods may"),
    };
    format!("{may} be evicted: {healthy} healthy of {expected} expected, and {desired} must be healthy.")
}

/// What the spec asks for, and of what it is a share.
fn asked(view: &View, counted: &Count) -> String {
    let spec = &view.budget.spec;
    let of_controllers = |what: &str, value: &IntOrString| {
        let value = match value {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::Str(text) => text.to_string(),
        };
        format!(
            "{what} is {value} of {}, the desired number of {}.",
            count(usize::try_from(counted.expected).unwrap_or_default(), "replica"),
            count(view.controllers.len(), "controller"),
        )
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(value), _) => of_controllers("maxUnavailable", value),
        (None, Some(IntOrString::Int(number))) => {
            format!("minAvailable is {number} of all matching pods.")
        }
        (None, Some(value)) => of_controllers("minAvailable", value),
        (None, None) => {
            "The budget has neither minAvailable nor maxUnavailable and requires no healthy pods.".to_owned()
        }
    }
}

/// Pods that are there and not healthy.
fn unhealthy(pods: &[Arc<Pod>]) -> Vec<String> {
    let told = |test: &dyn Fn(&Pod) -> bool, state: &str| {
        let found: Vec<_> = pods.iter().filter(|pod| test(pod)).map(|pod| &pod.metadata.name).collect();
        let is = verb(found.len(), "is", "are");
        (!found.is_empty()).then(|| format!("{} {is} {state}.", names(found)))
    };
    let terminating = told(&|pod| pod.metadata.is_deleting(), "terminating");
    let unready = told(&|pod| !pod.metadata.is_deleting() && !pod.is_ready(), "not ready");
    terminating.into_iter().chain(unready).collect()
}

/// Pods whose eviction was granted and that are still there.
fn waited_for(view: &View, pods: &[Arc<Pod>], counted: &Count) -> Option<String> {
    let wait = counted.next_expiry?;
    let entries = view.budget.status.disrupted_pods.iter().map(|(name, _)| name);
    let waiting: Vec<_> = entries
        .filter(|name| !counted.dropped.contains(*name))
        .filter_map(|name| pod_of(pods, name))
        .map(|pod| &pod.metadata.name)
        .collect();
    if waiting.is_empty() {
        return None;
    }
    let (is, does) = (verb(waiting.len(), "is", "are"), verb(waiting.len(), "does", "do"));
    Some(format!(
        "{} {is} being evicted and {does} not count as healthy for up to {}.",
        names(waiting),
        time(wait)
    ))
}

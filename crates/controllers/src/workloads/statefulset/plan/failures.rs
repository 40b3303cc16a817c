//! Plans the rest of a reconcile after a failed write: events for missing pods and claims, owners of claims, status and history.

use jiff::Timestamp;

use super::super::revisions::Present;
use super::super::view::View;
use super::members::Members;
use super::ordinals::pod_name;
use super::pods::is_pending;
use super::sync::{Sync, not_updated};
use super::{cut_history, event, finish, joined, not_created};
use coxswain_machinery::api::kinds::{CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS};
use coxswain_machinery::model::plan::EventSpec;
use coxswain_machinery::model::{Failure, Plan, Step};
use coxswain_machinery::random::{HashMap, HashSet};

/// The plan after one whose writes failed.
pub(super) fn record(view: &View, members: &Members<'_>, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let is_before_sync = |failure: &Failure| {
        failure.kind == &CONTROLLER_REVISIONS && failure.verb != "delete"
            || failure.kind == &STATEFUL_SETS && failure.subresource.is_empty()
            || failure.kind == &PODS && failure.verb == "patch" && members.change()
    };
    if view.failures.iter().any(|failure| failure.is_check_of(&STATEFUL_SETS)) {
        // Only adoptions need a live StatefulSet.
        plan.steps.extend(members.releases(view));
        return plan;
    }
    if view.failures.iter().any(is_before_sync) || matches!(view.present, Present::Missing(_)) {
        let of_present = |failure: &Failure| {
            failure.kind == &CONTROLLER_REVISIONS && matches!(failure.verb, "create" | "patch")
        };
        if view.failures.iter().all(of_present) && !members.change() {
            // A quota of revisions may refuse the new one until the history is shorter.
            cut_history(view, &members.kept, &mut plan);
        }
        return plan;
    }
    plan.steps.extend(events(view, members).into_iter().map(Step::Emit));
    let mut sync = Sync::new(view, &members.kept, now);
    for pod in refused_pods(view) {
        sync.see_to_owners_without(&pod.key.name);
    }
    plan.steps.append(&mut sync.steps);
    let of_status = |failure: &Failure| failure.kind == &STATEFUL_SETS;
    let of_history = |failure: &Failure| failure.kind == &CONTROLLER_REVISIONS;
    if !view.failures.iter().any(of_history) {
        finish(view, &members.kept, 0, now, &mut plan);
        if view.failures.iter().any(of_status) {
            plan.steps.retain(|step| !step.writes().any(|write| write.kind == &STATEFUL_SETS));
        }
    }
    let is_refused_create = |failure: &Failure| {
        failure.verb == "create"
            && [&PODS, &PERSISTENT_VOLUME_CLAIMS].contains(&failure.kind)
            && failure.code == 403
    };
    // A pod that waits for its claim takes its place already.
    let there: HashSet<&str> = names_of(members);
    let is_of_missing_pod =
        |failure: &Failure| failure.kind == &PODS || missing_pod(view, &there, failure).is_some();
    if view.failures.iter().all(is_refused_create) && view.failures.iter().any(is_of_missing_pod) {
        // Last, for these may be refused as well.
        sync.delete_surplus_without_replicas();
        plan.steps.append(&mut sync.steps);
    }
    plan.retry = None;
    plan
}

fn events(view: &View, members: &Members<'_>) -> Vec<EventSpec> {
    let creates =
        |kind| view.failures.iter().filter(move |failure| failure.kind == kind && failure.verb == "create");
    let mut events = Vec::new();
    // Errors of claims by pod, in the order of the first failure of each pod.
    let mut claimless: Vec<(String, Vec<String>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::default();
    for failure in creates(&PERSISTENT_VOLUME_CLAIMS) {
        let claim = &failure.key.name;
        let Some(pod) = pod_of_claim(view, claim) else { continue };
        if !failure.is_already_exists() {
            let set = &view.set.metadata.name;
            let message = format!(
                "Create Claim {claim} for Pod {pod} in StatefulSet {set} failed error: {}",
                failure.message
            );
            events.push(event(view, true, "FailedCreate", message));
        }
        let error = format!("failed to create PVC {claim}: {}", failure.message);
        let place = *places.entry(pod.clone()).or_insert(claimless.len());
        if place == claimless.len() {
            claimless.push((pod, Vec::new()));
        }
        claimless[place].1.push(error);
    }
    let there: HashSet<&str> = names_of(members);
    let pending = members.kept.iter().filter(|pod| is_pending(pod));
    let pending: HashSet<&str> = pending.map(|pod| pod.metadata.name.as_str()).collect();
    for (pod, errors) in claimless {
        if !there.contains(pod.as_str()) {
            events.push(not_created(view, &pod, &joined(errors)));
        } else if !pending.contains(pod.as_str()) {
            // A repair, which is an update of the pod.
            events.push(not_updated(view, &pod, &joined(errors)));
        }
    }
    for failure in refused_pods(view) {
        events.push(not_created(view, &failure.key.name, &failure.message));
    }
    events
}

fn names_of<'a>(members: &Members<'a>) -> HashSet<&'a str> {
    members.kept.iter().map(|pod| pod.metadata.name.as_str()).collect()
}

/// Returns the name of the pod that is missing because its claim could not be created. `there` are the names of existing pods.
fn missing_pod(view: &View, there: &HashSet<&str>, failure: &Failure) -> Option<String> {
    let pod = pod_of_claim(view, &failure.key.name)?;
    (failure.kind == &PERSISTENT_VOLUME_CLAIMS && !there.contains(pod.as_str())).then_some(pod)
}

/// The pods that could not be created. One whose name is taken is not among them.
fn refused_pods(view: &View) -> impl Iterator<Item = &Failure> {
    let is_create = |failure: &&Failure| failure.kind == &PODS && failure.verb == "create";
    view.failures.iter().filter(is_create).filter(|failure| !failure.is_already_exists())
}

/// Name of the pod of a claim: `TEMPLATE-SET-ORDINAL`.
fn pod_of_claim(view: &View, claim: &str) -> Option<String> {
    let set = &view.set.metadata.name;
    let stem = |name: &str| format!("{name}-{set}-");
    let ordinal = view.templates.iter().find_map(|template| claim.strip_prefix(&stem(&template.name)))?;
    Some(pod_name(set, ordinal.parse().ok()?).to_string())
}

//! What must be once faults and wishes have ended: everything is as it is wished for.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::jobs::has_ended;
use super::memory::{is_ready, is_tracked};
use super::nodes::node;
use super::sets::{node_of, ordinal, partition};
use super::tokens::expiration_of;
use super::{controller_of, is_active, is_held_by};
use crate::actors::claims_of;
use apiserver_model::{Model, items, text};

/// What is not yet as it should be with an object of a resource.
type End = fn(&Model, &str, &Json) -> Option<String>;

/// What is not yet as it is wished for; `None` if everything is.
pub(crate) fn unsettled(model: &Model) -> Option<String> {
    let rules: &[End] = &[
        replica_set,
        deployment,
        stateful_set,
        daemon_set,
        job,
        tracked,
        cron_job,
        budget,
        claim,
        volume,
        super::autoscalers::end,
        super::attaching::end,
        super::published::end,
        node,
        request,
        token,
        super::quotas::end,
        disrupted,
        deleted,
    ];
    let uids: BTreeSet<&str> = model.everything().map(|stored| text(&stored.json, "/metadata/uid")).collect();
    model.everything().find_map(|stored| {
        let (resource, object) = (stored.place.resource, &stored.json);
        if waits_in_a_circle(model, resource, object) || stays_while_used(model, resource, object) {
            return None;
        }
        let named = format!("{} {}/{}", stored.place.resource, stored.place.namespace, stored.place.name);
        let why = rules.iter().find_map(|rule| rule(model, resource, object));
        let why = why.or_else(|| orphaned(&uids, object))?;
        Some(format!("{named}: {why}"))
    })
}

/// The active pods of an owner.
fn pods_of<'a>(model: &'a Model, owner: &'a Json) -> Vec<&'a Json> {
    let (namespace, uid) = (text(owner, "/metadata/namespace"), text(owner, "/metadata/uid"));
    let pods = model.all("pods", namespace).map(|stored| &stored.json);
    pods.filter(|pod| is_active(pod) && text(controller_of(pod), "/uid") == uid).collect()
}

/// The first of these numbers of the status that is not as it should be.
fn status(object: &Json, wanted: &[(&str, i64)]) -> Option<String> {
    let observed = object["status"]["observedGeneration"].as_i64();
    if observed != object["metadata"]["generation"].as_i64() {
        return Some(format!("its generation is not observed: {observed:?}"));
    }
    wanted.iter().find_map(|(name, wanted)| {
        let held = object["status"][*name].as_i64().unwrap_or(0);
        (held != *wanted).then(|| format!("{name} is {held}, not {wanted}"))
    })
}

fn replica_set(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if !matches!(resource, "replicasets" | "replicationcontrollers") {
        return None;
    }
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
    let pods = pods_of(model, object);
    if pods.len() as i64 != wanted {
        return Some(format!("it has {} pods, not {wanted}", pods.len()));
    }
    status(object, &[("replicas", wanted), ("readyReplicas", wanted), ("availableReplicas", wanted)])
}

fn deployment(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "deployments" || object["spec"]["paused"] == true {
        return None;
    }
    let (wanted, uid) = (object["spec"]["replicas"].as_i64().unwrap_or(1), text(object, "/metadata/uid"));
    let sets = model.all("replicasets", text(object, "/metadata/namespace")).map(|stored| &stored.json);
    let own = sets.filter(|set| text(controller_of(set), "/uid") == uid);
    let sizes: Vec<i64> =
        own.filter_map(|set| set["spec"]["replicas"].as_i64()).filter(|size| *size > 0).collect();
    let is_one = if wanted == 0 { sizes.is_empty() } else { sizes == [wanted] };
    if !is_one {
        return Some(format!("its ReplicaSets have {sizes:?} replicas, not {wanted}"));
    }
    let names = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
    status(object, &names.map(|name| (name, wanted)))
}

fn stateful_set(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "statefulsets" {
        return None;
    }
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
    let pods = pods_of(model, object);
    if pods.len() as i64 != wanted {
        return Some(format!("it has {} pods, not {wanted}", pods.len()));
    }
    let start = object["spec"]["ordinals"]["start"].as_i64().unwrap_or(0);
    let is_beyond = |pod: &&&Json| !ordinal(pod).is_some_and(|(_, at)| (start..start + wanted).contains(&at));
    if let Some(beyond) = pods.iter().find(is_beyond) {
        return Some(format!("{} is none of its numbers", text(beyond, "/metadata/name")));
    }
    let revision = &object["status"]["updateRevision"];
    let is_old = |pod: &Json| pod["metadata"]["labels"]["controller-revision-hash"] != *revision;
    let is_rolled = |pod: &Json| ordinal(pod).is_some_and(|(_, number)| number >= partition(object));
    if let Some(old) = pods.iter().find(|pod| is_old(pod) && is_rolled(pod)) {
        return Some(format!("{} is of an old revision", text(old, "/metadata/name")));
    }
    let updated = pods.iter().filter(|pod| !is_old(pod)).count() as i64;
    status(object, &[("replicas", wanted), ("readyReplicas", wanted), ("updatedReplicas", updated)])
}

fn daemon_set(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "daemonsets" {
        return None;
    }
    let pods = pods_of(model, object);
    let nodes: Vec<&str> = model.all("nodes", "").map(|node| node.place.name.as_str()).collect();
    for node in &nodes {
        let there = pods.iter().filter(|pod| node_of(pod) == *node && is_ready(pod)).count();
        if there != 1 {
            return Some(format!("it has {there} pods on {node}"));
        }
    }
    let wanted = nodes.len() as i64;
    let names = ["desiredNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable"];
    status(object, &names.map(|name| (name, wanted)))
}

fn job(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "jobs" || object["spec"]["suspend"] == true {
        return None;
    }
    if !has_ended(object) {
        return Some("it has not ended".to_owned());
    }
    let pods = pods_of(model, object);
    (!pods.is_empty()).then(|| format!("it has ended with {} pods", pods.len()))
}

/// A pod that has ended was counted, and is let go of; so is one whose Job is gone.
fn tracked(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "pods" || !is_tracked(object) {
        return None;
    }
    let owner = controller_of(object);
    let job = model.look("jobs", text(object, "/metadata/namespace"), text(owner, "/name"));
    let is_its = job.is_object() && job["metadata"]["uid"] == owner["uid"];
    (!is_its || !is_active(object)).then(|| "nobody lets go of it".to_owned())
}

/// CronJobs are suspended in the end: nothing runs any more, and of what ran so much is left as is wished for.
fn cron_job(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "cronjobs" {
        return None;
    }
    let active = items(object, "/status/active").len();
    if active > 0 {
        return Some(format!("it has {active} active Jobs"));
    }
    let (namespace, uid) = (text(object, "/metadata/namespace"), text(object, "/metadata/uid"));
    let own = model.all("jobs", namespace).filter(|job| text(controller_of(&job.json), "/uid") == uid);
    let own: Vec<&Json> = own.map(|job| &job.json).collect();
    [("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")].iter().find_map(
        |(condition, limit)| {
            let is_so = |job: &&&Json| {
                items(job, "/status/conditions")
                    .iter()
                    .any(|held| held["type"] == *condition && held["status"] == "True")
            };
            let (kept, most) = (own.iter().filter(is_so).count() as i64, object["spec"][*limit].as_i64()?);
            (kept > most).then(|| format!("{kept} of its Jobs are {condition}, {most} are to be kept"))
        },
    )
}

fn budget(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "poddisruptionbudgets" {
        return None;
    }
    // They are let go of after a while, by the manager's clock.
    if object["status"]["disruptedPods"].as_object().is_some_and(|evicted| !evicted.is_empty()) {
        return Some("it waits for pods that were evicted".to_owned());
    }
    let healthy = super::budgets::healthy(model, object);
    let wanted = object["spec"]["minAvailable"].as_i64().unwrap_or(0);
    let allowed = (healthy - wanted).max(0);
    status(
        object,
        &[("currentHealthy", healthy), ("desiredHealthy", wanted), ("disruptionsAllowed", allowed)],
    )
}

/// A pod that was to go for others, and stays, is told so after a while, by the manager's clock.
fn disrupted(_: &Model, resource: &str, object: &Json) -> Option<String> {
    let says = |condition: &Json| condition["type"] == "DisruptionTarget" && condition["status"] == "True";
    let stays = resource == "pods" && is_active(object);
    (stays && items(object, "/status/conditions").iter().any(says)).then(|| "it was to go".to_owned())
}

fn claim(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "persistentvolumeclaims" || object["metadata"]["deletionTimestamp"].is_string() {
        return None;
    }
    let phase = text(object, "/status/phase");
    if phase != "Bound" {
        return Some(format!("it is {phase}"));
    }
    let volume = model.look("persistentvolumes", "", text(object, "/spec/volumeName"));
    let is_its = volume["spec"]["claimRef"]["uid"] == object["metadata"]["uid"];
    (!is_its || volume["status"]["phase"] != "Bound").then(|| "its volume is not bound to it".to_owned())
}

fn volume(model: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource != "persistentvolumes" {
        return None;
    }
    let reference = &object["spec"]["claimRef"];
    let claim = model.look("persistentvolumeclaims", text(reference, "/namespace"), text(reference, "/name"));
    let is_there = claim.is_object() && claim["metadata"]["uid"] == reference["uid"];
    let wanted = match reference["uid"].as_str() {
        None => "Available",
        Some(_) if is_there => "Bound",
        Some(_) => "Released",
    };
    let phase = text(object, "/status/phase");
    (phase != wanted).then(|| format!("it is {phase}, not {wanted}"))
}

/// A request that comes to an end goes, as those see to who have made it.
fn request(_: &Model, resource: &str, _: &Json) -> Option<String> {
    (resource == "certificatesigningrequests").then(|| "it has no certificate".to_owned())
}

/// Bootstrap tokens go when they end, which all do soon that ever do.
fn token(_: &Model, resource: &str, object: &Json) -> Option<String> {
    let end = Some(object).filter(|_| resource == "secrets").and_then(expiration_of)?;
    Some(format!("it ends at {end}"))
}

/// Whether a pod that is deleted in the foreground waits for a claim that is its own, which waits for the pod: Kubernetes
/// never ends that. A StatefulSet makes a claim its pod's when it scales in, and may then be deleted in the foreground.
fn waits_in_a_circle(model: &Model, resource: &str, object: &Json) -> bool {
    let namespace = text(object, "/metadata/namespace");
    let wait_for_each_other = |pod: &Json, claim: &Json| {
        controller_of(claim)["uid"] == pod["metadata"]["uid"]
            && is_held_by(pod, "foregroundDeletion")
            && is_held_by(claim, "kubernetes.io/pvc-protection")
    };
    match resource {
        "pods" => model
            .all("persistentvolumeclaims", namespace)
            .any(|claim| wait_for_each_other(object, &claim.json)),
        "persistentvolumeclaims" => {
            let pod = model.look("pods", namespace, text(controller_of(object), "/name"));
            pod.is_object() && wait_for_each_other(pod, object)
        }
        _ => false,
    }
}

/// Whether a claim goes as soon as no pod uses it, and one does that stays: of a StatefulSet that is made anew a pod may have found
/// its predecessor's claim, before that is deleted for its owner.
fn stays_while_used(model: &Model, resource: &str, object: &Json) -> bool {
    let name = text(object, "/metadata/name");
    let mounts = |pod: &Json| {
        is_active(pod) && !text(pod, "/spec/nodeName").is_empty() && claims_of(pod).any(|held| held == name)
    };
    resource == "persistentvolumeclaims"
        && object["metadata"]["deletionTimestamp"].is_string()
        && is_held_by(object, "kubernetes.io/pvc-protection")
        && model.all("pods", text(object, "/metadata/namespace")).any(|pod| mounts(&pod.json))
}

/// A volume that is bound stays until its claim goes.
fn deleted(_: &Model, resource: &str, object: &Json) -> Option<String> {
    if resource == "persistentvolumes" && object["status"]["phase"] == "Bound" {
        return None;
    }
    object["metadata"]["deletionTimestamp"].as_str().map(|_| "it is being deleted".to_owned())
}

/// Nothing is left whose owners are all gone.
fn orphaned(uids: &BTreeSet<&str>, object: &Json) -> Option<String> {
    let owners = items(object, "/metadata/ownerReferences");
    let is_left = !owners.is_empty() && !owners.iter().any(|owner| uids.contains(text(owner, "/uid")));
    is_left.then(|| "its owners are gone".to_owned())
}

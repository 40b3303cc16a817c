//! Rules about Jobs.

use serde_json::Value as Json;

use super::memory::index_of;
use super::{Look, WINDOW, controller_of};
use crate::model::{items, text};

/// Whether a Job has ended.
pub(super) fn has_ended(job: &Json) -> bool {
    items(job, "/status/conditions")
        .iter()
        .any(|held| matches!(text(held, "/type"), "Complete" | "Failed") && held["status"] == "True")
}

fn owner<'a>(look: &'a Look<'_>) -> (&'a str, &'a Json) {
    let reference = controller_of(look.after());
    let namespace = text(look.after(), "/metadata/namespace");
    let job = look.model.look("jobs", namespace, text(reference, "/name"));
    (text(reference, "/uid"), job)
}

/// A pod is made.
pub(super) fn parallelism(look: &Look<'_>) -> Result<(), String> {
    if !look.makes("pods") {
        return Ok(());
    }
    let (owner, _) = owner(look);
    let count = look.active(text(look.after(), "/metadata/namespace"), owner);
    match look.memory.wished(owner, look.change.at) {
        Some((_, most)) if count > most => Err(format!("{} is pod {count}, {most} may run", look.named())),
        _ => Ok(()),
    }
}

/// A pod is made: the Job must not have ended, nor have had all the successes that it needs for long.
pub(super) fn ended(look: &Look<'_>) -> Result<(), String> {
    if !look.makes("pods") {
        return Ok(());
    }
    let (uid, job) = owner(look);
    if text(job, "/metadata/uid") != uid {
        return Ok(());
    }
    if has_ended(job) {
        return Err(format!("{} is made after its Job has ended", look.named()));
    }
    let wanted = job["spec"]["completions"].as_i64().unwrap_or(i64::MAX);
    let known = look.memory.succeeded.get(uid);
    let long_ago =
        known.map_or(0, |held| held.values().filter(|at| **at < look.change.at - WINDOW).count()) as i64;
    if long_ago >= wanted {
        return Err(format!("{} is made although {long_ago} of {wanted} have succeeded", look.named()));
    }
    Ok(())
}

/// A pod is made: its index must not have succeeded.
pub(super) fn index_once(look: &Look<'_>) -> Result<(), String> {
    let Some(index) = index_of(look.after()).filter(|_| look.makes("pods")) else { return Ok(()) };
    let (uid, _) = owner(look);
    if look.memory.indexes.contains(&(uid.to_owned(), index.to_owned())) {
        return Err(format!("{} is made for index {index}, which has succeeded", look.named()));
    }
    Ok(())
}

/// A Job's status is written.
pub(super) fn counted(look: &Look<'_>) -> Result<(), String> {
    if look.resource() != "jobs" || look.change.subresource != "status" {
        return Ok(());
    }
    let uid = text(look.after(), "/metadata/uid");
    let count = |job: &Json, what: &str| job["status"][what].as_i64().unwrap_or(0);
    let succeeded = look.memory.succeeded.get(uid).map_or(0, std::collections::BTreeMap::len) as i64;
    let said = count(look.after(), "succeeded");
    if said > succeeded {
        return Err(format!("{}: {said} are said to have succeeded, {succeeded} have", look.named()));
    }
    for what in ["succeeded", "failed"] {
        let (before, after) = (count(look.before(), what), count(look.after(), what));
        if after < before {
            return Err(format!("{}: {what} falls from {before} to {after}", look.named()));
        }
    }
    let is_complete = items(look.after(), "/status/conditions")
        .iter()
        .any(|held| held["type"] == "Complete" && held["status"] == "True");
    let wanted = look.after()["spec"]["completions"].as_i64().unwrap_or(0);
    if is_complete && said < wanted {
        return Err(format!("{} is complete with {said} of {wanted}", look.named()));
    }
    Ok(())
}

//! Rules about Jobs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::memory::index_of;
use super::{Look, controller_of};
use apiserver_model::{items, text};

/// Whether a Job has ended.
pub(crate) fn has_ended(job: &Json) -> bool {
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
    let long_ago = look.memory.succeeded_long_ago(uid, look.change.at);
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

fn count(job: &Json, what: &str) -> i64 {
    job["status"][what].as_i64().unwrap_or(0)
}

/// How many pods of a Job are said to have succeeded or failed: those that were counted, and those that are about to be.
fn said(job: &Json, what: &str) -> i64 {
    let waiting = items(job, &format!("/status/uncountedTerminatedPods/{what}"));
    count(job, what) + waiting.len() as i64
}

/// A Job's status is written: it counts no more failures than there were, pods that were deleted among them.
pub(super) fn failures(look: &Look<'_>) -> Result<(), String> {
    if look.resource() != "jobs" || look.change.subresource != "status" {
        return Ok(());
    }
    let failed = look.memory.failed.get(text(look.after(), "/metadata/uid")).map_or(0, BTreeSet::len) as i64;
    let said = said(look.after(), "failed");
    if said > failed {
        return Err(format!("{}: {said} are said to have failed, {failed} have", look.named()));
    }
    Ok(())
}

/// A Job's status is written: it tells of all pods that have long succeeded. Of one index several may. A Job that is being deleted
/// lets go of pods that run, as far as its manager sees, and whatever becomes of those is counted by nobody.
pub(super) fn lost(look: &Look<'_>) -> Result<(), String> {
    let job = look.after();
    let is_deleting = job["metadata"]["deletionTimestamp"].is_string();
    if look.resource() != "jobs" || look.change.subresource != "status" || is_indexed(job) || is_deleting {
        return Ok(());
    }
    let known = look.memory.succeeded_long_ago(text(job, "/metadata/uid"), look.change.at);
    let said = said(job, "succeeded");
    if said < known {
        return Err(format!("{}: {said} are said to have succeeded, {known} have", look.named()));
    }
    Ok(())
}

fn is_indexed(job: &Json) -> bool {
    job["spec"]["completionMode"] == "Indexed"
}

/// A Job's status is written.
pub(super) fn counted(look: &Look<'_>) -> Result<(), String> {
    if look.resource() != "jobs" || look.change.subresource != "status" {
        return Ok(());
    }
    let uid = text(look.after(), "/metadata/uid");
    let succeeded = look.memory.succeeded.get(uid).map_or(0, BTreeMap::len) as i64;
    let said = said(look.after(), "succeeded");
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
    let counted = count(look.after(), "succeeded");
    if is_complete && counted < wanted {
        return Err(format!("{} is complete with {counted} of {wanted}", look.named()));
    }
    Ok(())
}

//! Planted bugs of Jobs, CronJobs and budgets.

use http::Method;
use serde_json::json;

use super::is;
use crate::invariants::{controller_of, has_ended};
use crate::model::http::{Answer, Asked};
use crate::model::{Model, Refusal, items, text};

const TIME: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

pub(super) fn make_twice(model: &mut Model, by: &str, asked: &Asked) {
    if by.ends_with("/job-controller") && is(asked, &Method::POST, "pods") {
        drop(model.answer(by, asked));
    }
}

/// A number of a Job's status, as it is sent.
fn edit_count(controller: &str, asked: &mut Asked, what: &str, more: i64) {
    if controller == "job-controller" && is(asked, &Method::PUT, "jobs") {
        asked.edit(|job| {
            if let Some(count) = job["status"][what].as_i64().filter(|count| *count > 0) {
                job["status"][what] = json!(count + more);
            }
        });
    }
}

pub(super) fn count_failure_twice(controller: &str, asked: &mut Asked) {
    edit_count(controller, asked, "failed", 1);
}

pub(super) fn lose_success(controller: &str, asked: &mut Asked) {
    edit_count(controller, asked, "succeeded", -1);
}

/// Pods are not let go of once their Job has ended or is gone, although it is said so.
pub(super) fn keep_finalizer(
    model: &mut Model,
    controller: &str,
    asked: &Asked,
) -> Option<Result<Answer, Refusal>> {
    if controller != "job-controller" || !is(asked, &Method::PATCH, "pods") {
        return None;
    }
    let pod = model.look("pods", &asked.namespace, &asked.name);
    let job = model.look("jobs", &asked.namespace, text(controller_of(pod), "/name"));
    let is_over = !job.is_object() || has_ended(job);
    (pod.is_object() && is_over).then(|| Ok(Answer::Body(pod.to_string().into_bytes(), true)))
}

/// A Job that has ended gets another pod, like one that it had.
pub(super) fn go_on(model: &mut Model, by: &str, asked: &Asked) {
    if !by.ends_with("/job-controller") || !is(asked, &Method::PUT, "jobs") {
        return;
    }
    let job = model.look("jobs", &asked.namespace, &asked.name);
    let is_complete = items(job, "/status/conditions").iter().any(|held| held["type"] == "Complete");
    let uid = job["metadata"]["uid"].clone();
    let owned = model.all("pods", &asked.namespace).find(|pod| controller_of(&pod.json)["uid"] == uid);
    let Some(mut pod) = owned.filter(|_| is_complete).map(|pod| pod.json.clone()) else { return };
    pod["metadata"]["name"] = json!(format!("{}-more", asked.name));
    pod["metadata"]["finalizers"] = json!([]);
    drop(model.create(by, "pods", &asked.namespace, pod));
}

/// The Job of an activation, once more and with another name; and with another time if it is said how.
fn again(model: &mut Model, by: &str, asked: &Asked, time: Option<&str>) {
    if !by.ends_with("/cronjob-controller") || !is(asked, &Method::POST, "jobs") {
        return;
    }
    let mut twice = asked.clone();
    twice.edit(|job| {
        job["metadata"]["name"] = json!(format!("{}-again", text(job, "/metadata/name")));
        if let Some(time) = time {
            job["metadata"]["annotations"][TIME] = json!(time);
        }
    });
    drop(model.answer(by, &twice));
}

pub(super) fn run_twice(model: &mut Model, by: &str, asked: &Asked) {
    again(model, by, asked, None);
}

pub(super) fn run_beside(model: &mut Model, by: &str, asked: &Asked) {
    again(model, by, asked, Some("2020-01-01T00:00:00Z"));
}

pub(super) fn run_ahead(controller: &str, asked: &mut Asked) {
    if controller == "cronjob-controller" && is(asked, &Method::POST, "jobs") {
        asked.edit(|job| job["metadata"]["annotations"][TIME] = json!("2099-01-01T00:00:00Z"));
    }
}

fn is_status(controller: &str, asked: &Asked) -> bool {
    controller == "disruption-controller"
        && is(asked, &Method::PUT, "poddisruptionbudgets")
        && asked.subresource == "status"
}

pub(super) fn allow_more(controller: &str, asked: &mut Asked) {
    if is_status(controller, asked) {
        asked.edit(|budget| {
            let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
            budget["status"]["disruptionsAllowed"] = json!(allowed + 1);
        });
    }
}

pub(super) fn forget_evictions(controller: &str, asked: &mut Asked) {
    if is_status(controller, asked) {
        asked.edit(|budget| budget["status"]["disruptedPods"] = json!({}));
    }
}

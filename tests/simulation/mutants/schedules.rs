//! Planted bugs of Jobs, CronJobs and budgets.

use http::Method;
use serde_json::json;

use super::{Mutant, NONE, is};
use crate::invariants::{controller_of, has_ended, index_of};
use crate::run::SETTLES;
use apiserver_model::http::{Answer, Asked};
use apiserver_model::{Model, Refusal, items, text};

/// The bugs.
pub(super) const ROWS: &[Mutant] = &[
    Mutant {
        name: "a Job counts a success twice",
        breaks: "no pod is counted twice",
        send: count_twice,
        ..NONE
    },
    Mutant {
        name: "a Job runs the same index again",
        breaks: "no index that has succeeded runs again",
        send: run_again,
        ..NONE
    },
    Mutant {
        name: "a Job makes a pod twice",
        breaks: "never more active pods than parallelism",
        after: make_twice,
        ..NONE
    },
    Mutant {
        name: "a Job counts a failure twice",
        breaks: "no failure is counted twice",
        send: count_failure_twice,
        ..NONE
    },
    Mutant { name: "a Job loses a success", breaks: "no success is lost", send: lose_success, ..NONE },
    Mutant {
        name: "a pod keeps the finalizer of a Job that is over",
        breaks: SETTLES,
        answer: keep_finalizer,
        ..NONE
    },
    Mutant {
        name: "a Job goes on after its end",
        breaks: "nothing is started after the end",
        after: go_on,
        ..NONE
    },
    Mutant {
        name: "a CronJob runs twice for one time",
        breaks: "nothing runs twice for one time",
        after: run_twice,
        ..NONE
    },
    Mutant {
        name: "a CronJob runs ahead of its time",
        breaks: "nothing runs before its time",
        send: run_ahead,
        ..NONE
    },
    Mutant {
        name: "a CronJob that must be alone runs beside itself",
        breaks: "what must be alone is alone",
        after: run_beside,
        ..NONE
    },
    Mutant { name: "a budget allows one more", breaks: "no more may go than can", send: allow_more, ..NONE },
    Mutant {
        name: "an eviction is forgotten",
        breaks: "no eviction is forgotten",
        send: forget_evictions,
        ..NONE
    },
];

const TIME: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

fn make_twice(model: &mut Model, by: &str, asked: &Asked) {
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

fn count_twice(controller: &str, asked: &mut Asked) {
    edit_count(controller, asked, "succeeded", 1);
}

fn run_again(controller: &str, asked: &mut Asked) {
    if controller == "job-controller" && is(asked, &Method::POST, "pods") {
        asked.edit(|pod| {
            if index_of(pod).is_some() {
                pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = json!("0");
            }
        });
    }
}

fn count_failure_twice(controller: &str, asked: &mut Asked) {
    edit_count(controller, asked, "failed", 1);
}

fn lose_success(controller: &str, asked: &mut Asked) {
    edit_count(controller, asked, "succeeded", -1);
}

/// Pods are not let go of once their Job has ended or is gone, although it is said so.
fn keep_finalizer(model: &mut Model, controller: &str, asked: &Asked) -> Option<Result<Answer, Refusal>> {
    if controller != "job-controller" || !is(asked, &Method::PATCH, "pods") {
        return None;
    }
    let pod = model.look("pods", &asked.namespace, &asked.name);
    let job = model.look("jobs", &asked.namespace, text(controller_of(pod), "/name"));
    let is_over = !job.is_object() || has_ended(job);
    (pod.is_object() && is_over).then(|| Ok(Answer::Body(pod.to_string().into_bytes(), true)))
}

/// A Job that has ended gets another pod, like one that it had.
fn go_on(model: &mut Model, by: &str, asked: &Asked) {
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

fn run_twice(model: &mut Model, by: &str, asked: &Asked) {
    again(model, by, asked, None);
}

fn run_beside(model: &mut Model, by: &str, asked: &Asked) {
    again(model, by, asked, Some("2020-01-01T00:00:00Z"));
}

fn run_ahead(controller: &str, asked: &mut Asked) {
    if controller == "cronjob-controller" && is(asked, &Method::POST, "jobs") {
        asked.edit(|job| job["metadata"]["annotations"][TIME] = json!("2099-01-01T00:00:00Z"));
    }
}

fn is_status(controller: &str, asked: &Asked) -> bool {
    controller == "disruption-controller"
        && is(asked, &Method::PUT, "poddisruptionbudgets")
        && asked.subresource == "status"
}

fn allow_more(controller: &str, asked: &mut Asked) {
    if is_status(controller, asked) {
        asked.edit(|budget| {
            let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
            budget["status"]["disruptionsAllowed"] = json!(allowed + 1);
        });
    }
}

fn forget_evictions(controller: &str, asked: &mut Asked) {
    if is_status(controller, asked) {
        asked.edit(|budget| budget["status"]["disruptedPods"] = json!({}));
    }
}

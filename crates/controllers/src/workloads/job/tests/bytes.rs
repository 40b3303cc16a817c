//! What is written, byte by byte: nothing unknown is lost.

use std::sync::Arc;

use super::fixtures::{decoded, indexed, job, planned, pod, succeeded, template, uncounted, view};
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::kinds::{JOBS, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::wire::splice::{Edit, edit, get};
use coxswain_machinery::wire::{Raw, Str};

fn created(job: &Arc<Job>) -> Vec<u8> {
    let plan = planned(&view(job, &[]));
    let body = plan.writes().find_map(|write| match &write.verb {
        Verb::Create(body) => Some(body.to_vec()),
        _ => None,
    });
    body.expect("a pod is made")
}

fn text<'a>(object: &'a [u8], path: &[u32]) -> Option<&'a str> {
    get(object, path).unwrap().map(|value| std::str::from_utf8(value.bytes().unwrap()).unwrap())
}

#[test]
fn a_pod_has_an_owner_and_the_finalizer() {
    let body = created(&job(|_| {}));
    let pod: Arc<Pod> = decoded(&PODS, body.clone());
    assert_eq!(pod.metadata.generate_name, "work-");
    assert_eq!(pod.metadata.finalizers, ["batch.kubernetes.io/job-tracking"]);
    assert!(pod.metadata.is_controlled_by(&job(|_| {}).metadata));
    assert_eq!(pod.metadata.owner_references[0].api_version, "batch/v1");
    assert_eq!(text(&body, &[2, 16]), None, "no hostname of its own");
}

#[test]
fn a_finalizer_that_the_template_has_is_not_added() {
    let finalizer = b"batch.kubernetes.io/job-tracking".to_vec();
    let held = edit(&template("Never").0, &[Edit::Push(&[1, 14], finalizer)]).unwrap();
    let body = created(&job(|job| job.spec.template = Raw(held.into())));
    let pod: Arc<Pod> = decoded(&PODS, body);
    assert_eq!(pod.metadata.finalizers.len(), 1);
}

#[test]
fn a_pod_knows_its_index() {
    let body = created(&indexed(|_| {}));
    let pod: Arc<Pod> = decoded(&PODS, body.clone());
    assert_eq!(pod.metadata.generate_name, "work-0-");
    assert_eq!(text(&body, &[2, 16]), Some("work-0"));
    let index = "batch.kubernetes.io/job-completion-index";
    assert_eq!(pod.metadata.labels.get(index).map(Str::as_str), Some("0"));
    assert_eq!(pod.metadata.annotations.get(index).map(Str::as_str), Some("0"));
    // The variable of its container.
    assert_eq!(text(&body, &[2, 2, 7, 1]), Some("JOB_COMPLETION_INDEX"));
    assert_eq!(
        text(&body, &[2, 2, 7, 3, 1, 2]),
        Some("metadata.labels['batch.kubernetes.io/job-completion-index']")
    );
}

/// The job with a field that is newer than us in its status, in a condition and in its lists.
fn newer() -> Arc<Job> {
    let job = job(|job| {
        uncounted(job, &["gone"], &[]);
        job.status.conditions = vec![super::fixtures::condition("Custom", "True", "Because")];
    });
    let unknown = |path| Edit::SetBytes(path, b"unknown".to_vec());
    let edits = [unknown(&[3, 999]), unknown(&[3, 1, 999]), unknown(&[3, 8, 999]), unknown(&[999])];
    decoded(&JOBS, edit(&job.raw, &edits).unwrap())
}

#[test]
fn a_status_keeps_what_is_newer() {
    let plan = planned(&view(&newer(), &[pod("a", succeeded)]));
    let bodies: Vec<Vec<u8>> = plan
        .writes()
        .filter_map(|write| match &write.verb {
            Verb::Update(body) => Some(body.to_vec()),
            Verb::UpdateLast(edits) => Some(edit(&newer().raw, edits).unwrap()),
            _ => None,
        })
        .collect();
    assert_eq!(bodies.len(), 2);
    for body in bodies {
        for path in [&[3, 999][..], &[3, 1, 999], &[3, 8, 999], &[999]] {
            assert_eq!(text(&body, path), Some("unknown"), "{path:?}");
        }
    }
}

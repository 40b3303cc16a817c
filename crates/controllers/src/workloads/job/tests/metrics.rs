//! Counts of reconciles in the metrics.

use std::sync::Arc;
use std::time::Duration;

use super::super::metrics::Metrics;
use super::super::note::{Note, Progress};
use super::fixtures::{deleting, failed, job, planned, pod, view};
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::executor::{ActionResult, ActionState, ActionVerb};
use coxswain_machinery::framework::{Meter, Outcome, ReconcileEnd, RoomMetrics};
use coxswain_machinery::model::Key;
use coxswain_machinery::model::plan::Cooldown;
use coxswain_machinery::telemetry::Registry;
use coxswain_machinery::wire::Uid;

/// `NAME LABELS VALUE` of each counter, labels in the order of their names.
fn counters(registry: &Registry) -> Vec<String> {
    let mut told = Vec::new();
    for family in registry.gather().iter().filter(|family| family.name().ends_with("_total")) {
        for metric in family.get_metric() {
            let labels: Vec<&str> =
                metric.get_label().iter().map(prometheus::proto::LabelPair::value).collect();
            let name = family.name().trim_start_matches("job_controller_");
            told.push(format!("{name} {} {}", labels.join("/"), metric.get_counter().get_value()));
        }
    }
    told
}

fn metrics() -> (Registry, Arc<Metrics>) {
    let registry = Registry::new();
    let metrics = Metrics::register(&RoomMetrics::new(registry.clone())).unwrap();
    (registry, Arc::new(metrics))
}

fn action(verb: ActionVerb, result: ActionResult) -> ActionState {
    ActionState {
        verb,
        kind: &PODS,
        key: Key::new("default", ""),
        uid: Uid::default(),
        subresource: "",
        summary: String::new(),
        result,
        code: None,
    }
}

fn end(metrics: &Arc<Metrics>, note: &Note, actions: &[ActionState]) {
    let key = Key::new("default", "work");
    let outcome = Outcome::Done { writes: 0, requeue_after: None, cooldown: Cooldown::NONE };
    metrics.planned(&key, note);
    metrics.ended(&key, ReconcileEnd { outcome: &outcome, actions, took: Duration::ZERO });
}

#[test]
fn job_metrics_begin_with_zero_at_the_first_status() {
    let (registry, metrics) = metrics();
    let mut progress = Progress { succeeded: 2, failed_indexes: Some(0), ..Progress::default() };
    metrics.progress(true, &progress);
    assert_eq!(
        counters(&registry),
        [
            "job_finished_indexes_total perIndex/succeeded 2",
            "job_pods_finished_total Indexed/failed 0",
            "job_pods_finished_total Indexed/succeeded 2",
        ]
    );
    progress.failed_indexes = Some(1);
    metrics.progress(true, &progress);
    assert!(counters(&registry).contains(&"job_finished_indexes_total perIndex/failed 1".to_owned()));
}

#[test]
fn job_metrics_count_no_create_that_a_terminating_namespace_refused() {
    let (registry, metrics) = metrics();
    let note = Note { action: Some("pods_created"), reason: "new", ..Note::default() };
    let results = [ActionResult::Done, ActionResult::Unneeded, ActionResult::Failed("no".into())];
    end(&metrics, &note, &results.map(|result| action(ActionVerb::Create, result)));
    let creations: Vec<_> =
        counters(&registry).into_iter().filter(|line| line.contains("creation_total")).collect();
    assert_eq!(
        creations,
        ["job_pods_creation_total new/failed 1", "job_pods_creation_total new/succeeded 2"]
    );
}

#[test]
fn job_metrics_show_a_failed_claim_as_reconciling() {
    for (result, shown) in [
        (ActionResult::Failed("no".into()), "reconciling"),
        (ActionResult::Unknown, "reconciling"),
        (ActionResult::Unneeded, "pods_created"),
    ] {
        let (registry, metrics) = metrics();
        let note = Note { action: Some("pods_created"), reason: "new", claims: 1, ..Note::default() };
        let failed_later = action(ActionVerb::Create, ActionResult::Failed("no".into()));
        end(&metrics, &note, &[action(ActionVerb::Patch, result), failed_later]);
        let expected = format!("job_syncs_total {shown}/NonIndexed/success 1");
        assert!(counters(&registry).contains(&expected), "{:?}", counters(&registry));
    }
}

#[test]
fn job_metrics_name_the_reason_of_a_create() {
    let reason = |policy: &'static str, pods: &[Arc<Pod>]| {
        let job = job(|job| {
            job.spec.pod_replacement_policy = policy.into();
            job.spec.parallelism = Some(3);
        });
        planned(&view(&job, pods)).note.reason
    };
    let (going, ended) = ([pod("a", deleting)], [pod("a", failed)]);
    assert_eq!([reason("Failed", &[]), reason("", &[])], ["new"; 2]);
    assert_eq!(
        [reason("Failed", &ended), reason("Failed", &going)],
        ["recreate_failed", "recreate_terminating_or_failed"]
    );
    assert_eq!([reason("", &ended), reason("", &going)], ["recreate_terminating_or_failed"; 2]);
}

//! What becomes of writes of the scale, what is counted, and how it is explained.

use jiff::SignedDuration;

use super::super::history::Step;
use super::super::plan;
use super::fixtures::{Bench, autoscaler, refused};
use super::metrics::{external, series};
use coxswain_machinery::api::autoscaling::{HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior};
use coxswain_machinery::framework::Reads;
use coxswain_machinery::model::Key;

const REASON: &str = "reason: cpu resource utilization (percentage of request) above target";

#[test]
fn who_was_faster_is_read_anew_and_the_same_number_is_written() {
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a", "b"]);
    bench.refusals = vec![(409, "Conflict"), (409, "Conflict")];
    assert_eq!(
        bench.all_use("100m").reconcile(),
        [
            "scale 4 refused".to_owned(),
            "scale 4 refused".to_owned(),
            "scale 4".to_owned(),
            format!("Normal SuccessfulRescale: New size: 4; {REASON}"),
            "status 2 -> 4 SucceededRescale ValidMetricFound DesiredWithinRange".to_owned(),
        ]
    );
    assert_eq!(bench.asked.len(), 1, "metrics are read once");
}

#[test]
fn a_scale_that_is_refused_is_told_and_nothing_is_remembered_of_it() {
    for refusals in [vec![(403, "Forbidden")], vec![(409, "Conflict"); 3]] {
        let behavior = Some(Box::new(HorizontalPodAutoscalerBehavior::default()));
        let mut bench = Bench::of(&autoscaler(|held| held.spec.behavior = behavior), &["a", "b"]);
        let (tries, reason) = (refusals.len(), refusals[0].1);
        bench.settings.downscale_stabilization = std::time::Duration::ZERO;
        bench.refusals = refusals;
        let mut held = (*bench.held()).clone();
        held.spec.behavior = None;
        bench.store(&held);
        let lines = bench.all_use("100m").reconcile();
        assert_eq!(lines[..tries], vec!["scale 4 refused"; tries]);
        assert_eq!(
            lines[tries..],
            [
                format!("Warning FailedRescale: New size: 4; {REASON}; error: it is refused: {reason}"),
                "status 2 -> 0 FailedUpdateScale ValidMetricFound DesiredWithinRange".to_owned(),
            ]
        );
        assert_eq!(
            bench.condition("AbleToScale"),
            format!(
                "False FailedUpdateScale: the HPA controller was unable to update the target scale: it is refused: {reason}"
            )
        );
        assert!(bench.held().status.last_scale_time.is_none());
        let history = bench.remembering.history(&Key::new("default", "web"));
        assert!(history.added.is_empty());
        assert_eq!(history.recommendations.len(), 2, "what was asked for is remembered all the same");
        // The next look is a period later, and tries again.
        assert_eq!(bench.later(15).reconcile()[0], "scale 4");
    }
}

#[test]
fn steps_are_remembered_where_there_is_a_behavior() {
    for (has_behavior, added) in [(true, vec![2]), (false, vec![])] {
        let mut bench = Bench::of(
            &autoscaler(|held| {
                held.spec.behavior =
                    has_behavior.then(|| Box::new(super::limits::behavior(&[("Pods", 4, 60)])));
            }),
            &["a", "b"],
        );
        bench.all_use("100m").reconcile();
        let history = bench.remembering.history(&Key::new("default", "web"));
        assert_eq!(history.added.iter().map(|step: &Step| step.by).collect::<Vec<_>>(), added);
        assert!(history.removed.is_empty());
    }
}

#[test]
fn a_status_keeps_what_this_controller_does_not_say() {
    let mut bench = Bench::of(
        &autoscaler(|held| {
            held.status.observed_generation = Some(7);
            held.status.conditions =
                vec![coxswain_machinery::api::autoscaling::HorizontalPodAutoscalerCondition {
                    r#type: "Other".into(),
                    status: "True".into(),
                    ..Default::default()
                }];
        }),
        &["a"],
    );
    bench.all_use("50m").reconcile();
    let held = bench.held();
    assert_eq!(held.status.observed_generation, Some(7));
    let types: Vec<&str> = held.status.conditions.iter().map(|held| held.r#type.as_str()).collect();
    assert_eq!(types, ["Other", "AbleToScale", "ScalingActive", "ScalingLimited"]);
    // Times change with statuses alone.
    let since = held.status.conditions[2].last_transition_time;
    bench.later(15).answers.clear();
    bench.reconcile();
    assert_ne!(bench.held().status.conditions[2].last_transition_time, since);
    let since = bench.held().status.conditions[1].last_transition_time;
    bench.later(15).reconcile();
    assert_eq!(bench.held().status.conditions[1].last_transition_time, since);
}

#[test]
fn zero_is_left_by_metrics_where_the_gate_is_on_and_the_controller_brought_it_there() {
    let external = |held: &mut coxswain_machinery::api::autoscaling::HorizontalPodAutoscaler| {
        held.spec.min_replicas = Some(0);
        held.spec.metrics = vec![super::metrics::external(Some("10"), None)];
    };
    let series = |value: &str| super::metrics::series(&[value]);
    let mut bench = Bench::of(&autoscaler(external), &["a"]);
    bench.settings.scale_to_zero = true;
    bench.settings.downscale_stabilization = std::time::Duration::from_secs(10);
    bench.answer("/apis/external", Ok(series("0")));
    bench.reconcile();
    assert_eq!(bench.later(15).reconcile()[0], "scale 0");
    assert_eq!(
        bench.condition("ScaledToZero"),
        "True ScaledToZero: the HPA controller scaled the workload to zero"
    );
    bench.answer("/apis/external", Ok(series("25")));
    assert_eq!(bench.later(15).reconcile()[0], "scale 3");
    assert_eq!(
        bench.condition("ScaledToZero"),
        "False NotScaledToZero: the HPA controller did not scale the workload to zero"
    );
    // Whom somebody else brought there stays there.
    bench.replicas = Some(0);
    assert_eq!(bench.later(15).reconcile().len(), 1);
    assert!(bench.condition("ScalingActive").starts_with("False ScalingDisabled"));
    assert!(!bench.condition("ScaledToZero").is_empty());
    // Without the gate the condition goes.
    bench.settings.scale_to_zero = false;
    bench.later(15).reconcile();
    assert_eq!(bench.condition("ScaledToZero"), "");
}

/// An autoscaler that may scale to 0, with External metrics `queue` and `other` of these target values.
fn two_metrics(queue: &str, other: &str) -> Bench {
    let metrics = |held: &mut HorizontalPodAutoscaler| {
        let mut second = external(None, Some(other));
        second.external.as_mut().unwrap().metric.name = "other".into();
        held.spec.min_replicas = Some(0);
        held.spec.metrics = vec![external(None, Some(queue)), second];
    };
    let mut bench = Bench::of(&autoscaler(metrics), &["a"]);
    bench.settings.scale_to_zero = true;
    bench
}

#[test]
fn hpa_names_the_last_metric_that_asks_for_zero_and_the_first_of_equal_others() {
    for (value, named) in [("0", "other"), ("-50", "queue"), ("10", "queue")] {
        let mut bench = two_metrics("10", "10");
        bench.answer("/apis/external", Ok(series(&[value])));
        bench.reconcile();
        let condition = bench.condition("ScalingActive");
        assert!(condition.ends_with(&format!("from external metric {named}(nil)")), "{value}: {condition}");
    }
}

#[test]
fn hpa_names_the_greatest_of_negative_proposals() {
    let mut bench = two_metrics("10", "5");
    bench.answer("/apis/external", Ok(series(&["-50"])));
    bench.reconcile();
    let condition = bench.condition("ScalingActive");
    assert!(condition.ends_with("from external metric queue(nil)"), "{condition}");
}

#[test]
fn hpa_target_at_zero_with_a_failed_metric_and_a_negative_one_has_no_valid_metric() {
    let mut bench = two_metrics("10", "10");
    bench.settings.downscale_stabilization = std::time::Duration::from_secs(10);
    bench.answer("/apis/external", Ok(series(&["0"])));
    bench.reconcile();
    assert_eq!(bench.later(15).reconcile()[0], "scale 0");
    bench.answers.clear();
    let path = |name: &str| format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/default/{name}");
    bench.answer(&path("queue"), Ok(series(&["-50"])));
    bench.answer(&path("other"), Err(refused(500, "InternalError", "down")));
    bench.later(15).reconcile();
    let condition = bench.condition("ScalingActive");
    assert!(condition.starts_with("False FailedGetExternalMetric"), "{condition}");
}

/// The second case differs from kube-controller-manager, which grows to `maxReplicas`.
#[test]
fn hpa_takes_a_negative_proposal_for_zero_before_limits_apply() {
    for metric in [external(None, Some("10")), external(Some("10"), None)] {
        let negative = |held: &mut HorizontalPodAutoscaler| {
            held.spec.min_replicas = Some(0);
            held.spec.metrics = vec![metric.clone()];
        };
        let mut bench = Bench::of(&autoscaler(negative), &["a"]);
        bench.settings.scale_to_zero = true;
        bench.settings.downscale_stabilization = std::time::Duration::from_secs(10);
        bench.answer("/apis/external", Ok(series(&["-50"])));
        bench.reconcile();
        assert_eq!(bench.later(15).reconcile()[0], "scale 0");
        let condition = bench.condition("ScalingLimited");
        assert!(condition.starts_with("False DesiredWithinRange"), "{condition}");
    }
}

#[test]
fn an_explanation_tells_metric_by_metric_how_a_number_came_about() {
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a", "b"]);
    bench.all_use("100m");
    let reasons = |bench: &mut Bench| {
        let (view, _) = bench.observe(Reads::default(), &[]).unwrap();
        plan::reasons::reasons(&view, bench.now)
    };
    assert_eq!(
        reasons(&mut bench),
        [
            "Deployment web has 2 replicas and is scaled to 4.",
            "Cpu resource utilization (percentage of request) is 100%, the target is 50%; recommendation: 4 \
             replicas.",
            "The selector is app=web and matches 2 pods.",
        ]
    );
    assert!(bench.remembering.history(&Key::new("default", "web")).recommendations.is_empty());
    bench.reconcile();
    bench.all_use("10m").now += SignedDuration::from_secs(15);
    let told = reasons(&mut bench);
    assert_eq!(told[0], "Deployment web has 4 replicas and is not scaled.");
    assert_eq!(told[2], "An earlier recommendation in the stabilization window was higher; 4 are kept.");
    bench.answers.clear();
    let told = reasons(&mut bench);
    assert!(told[0].ends_with("the desired number is unknown."), "{told:?}");
    assert!(
        told[1].starts_with("A metric is unavailable: failed to get cpu resource metric value"),
        "{told:?}"
    );
    bench.replicas = None;
    assert_eq!(
        reasons(&mut bench),
        [
            "The scale of Deployment web could not be read: deployments.apps \"web\" not found. The read is retried \
             in 15s."
        ]
    );
}

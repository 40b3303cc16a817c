//! Whole reconciles: what is scaled, told and remembered.

use std::sync::Arc;

use super::super::new_or_changed;
use super::fixtures::{Bench, autoscaler, cpu, look_at_another, pod, quantity, refused, requesting, usage};
use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::autoscaling::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior, ScalingPolicy, ScalingRules,
};
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::Key;

const ABOVE: &str = "cpu resource utilization (percentage of request) above target";

#[test]
fn a_target_grows_by_its_metrics_and_that_is_told() {
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a", "b"]);
    assert_eq!(
        bench.all_use("100m").reconcile(),
        [
            "scale 4".to_owned(),
            format!("Normal SuccessfulRescale: New size: 4; reason: {ABOVE}"),
            "status 2 -> 4 SucceededRescale ValidMetricFound DesiredWithinRange".to_owned(),
        ]
    );
    let held = bench.held();
    let current = &held.status.current_metrics[0].resource.as_ref().unwrap().current;
    assert_eq!(current.average_utilization, Some(100));
    assert_eq!(current.average_value, quantity("100m"));
    assert_eq!(held.status.last_scale_time.unwrap().seconds(), bench.now.as_second());
    assert_eq!(
        bench.condition("AbleToScale"),
        "True SucceededRescale: the HPA controller was able to update the target scale to 4"
    );
    assert_eq!(bench.asked, ["/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb"]);
    // The new pods say nothing yet: they may need what they are to have.
    for name in ["c", "d"] {
        bench.pods.upsert(&(pod(name, |_| {}) as AnyObject));
    }
    bench.all_use("50m");
    assert_eq!(
        bench.later(15).reconcile(),
        ["status 4 -> 4 ReadyForNewScale ValidMetricFound DesiredWithinRange"]
    );
    assert_eq!(bench.later(15).reconcile(), [""; 0], "nothing is written that is there");
}

#[test]
fn a_target_does_not_shrink_before_the_window_is_over() {
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a", "b", "c", "d"]);
    bench.all_use("20m");
    assert_eq!(bench.reconcile(), ["status 4 -> 4 ScaleDownStabilized ValidMetricFound DesiredWithinRange"]);
    for _ in 0..19 {
        assert_eq!(bench.later(15).reconcile(), [""; 0]);
    }
    assert_eq!(
        bench.later(15).reconcile(),
        [
            "scale 2",
            "Normal SuccessfulRescale: New size: 2; reason: All metrics below target",
            "status 4 -> 2 SucceededRescale ValidMetricFound DesiredWithinRange",
        ]
    );
}

#[test]
fn bounds_are_kept_without_looking_at_metrics() {
    for (replicas, desired, reason) in [(12, 10, "above Spec.MaxReplicas"), (1, 3, "below Spec.MinReplicas")]
    {
        let mut bench = Bench::of(&autoscaler(|held| held.spec.min_replicas = Some(3)), &["a"]);
        bench.replicas = Some(replicas);
        assert_eq!(
            bench.reconcile(),
            [
                format!("scale {desired}"),
                format!(
                    "Normal SuccessfulRescale: New size: {desired}; reason: Current number of replicas {reason}"
                ),
                format!("status {replicas} -> {desired} SucceededRescale"),
            ]
        );
        assert_eq!(bench.asked, [""; 0]);
        assert!(bench.held().status.current_metrics.is_empty());
    }
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a"]);
    bench.replicas = Some(0);
    assert_eq!(bench.reconcile(), ["status 0 -> 0 SucceededGetScale ScalingDisabled"]);
    assert_eq!(
        bench.condition("ScalingActive"),
        "False ScalingDisabled: scaling is disabled since the replica count of the target is zero"
    );
}

#[test]
fn a_target_that_is_not_there_is_told_each_time() {
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a"]);
    bench.replicas = None;
    let missing = "Warning FailedGetScale: deployments.apps \"web\" not found";
    assert_eq!(bench.reconcile(), [missing, "status 0 -> 0 FailedGetScale"]);
    assert_eq!(bench.later(15).reconcile(), [missing], "and written once");
    for (version, kind, why) in [
        ("a/b/c", "Deployment", "unexpected GroupVersion string: a/b/c"),
        ("apps/v1", "Thing", "no matches for kind \"Thing\" in group \"apps\""),
    ] {
        let mut bench = Bench::of(
            &autoscaler(|held| {
                held.spec.scale_target_ref.api_version = version.into();
                held.spec.scale_target_ref.kind = kind.into();
            }),
            &["a"],
        );
        assert_eq!(bench.reconcile()[0], format!("Warning FailedGetScale: {why}"));
    }
    // The version is not looked at, nor how the kind is written, if it is all in lower case.
    let mut bench = Bench::of(
        &autoscaler(|held| {
            held.spec.scale_target_ref.api_version = "apps/v9".into();
            held.spec.scale_target_ref.kind = "deployment".into();
        }),
        &["a"],
    );
    assert_eq!(bench.all_use("50m").reconcile().len(), 1);
}

/// A CRD can have such a text in its scale.
#[test]
fn selector_of_spaces_selects_all_pods() {
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a"]);
    bench.selector = " ".to_owned();
    let lines = bench.all_use("50m").reconcile();
    assert!(!lines.iter().any(|line| line.contains("Selector")), "{lines:?}");
}

#[test]
fn a_selector_that_says_nothing_stops_scaling() {
    for (selector, event, text) in [
        ("", "SelectorRequired", "selector is required"),
        ("app in", "", ""),
        ("\u{a0}", "", ""),
        (
            "=web",
            "InvalidSelector",
            "couldn't convert selector into a corresponding internal selector object: invalid label selector: unexpected \"=\"",
        ),
    ] {
        let mut bench = Bench::of(&autoscaler(|_| {}), &["a"]);
        bench.selector = selector.to_owned();
        let lines = bench.reconcile();
        if event.is_empty() {
            assert!(lines[0].starts_with("Warning InvalidSelector"), "{lines:?}");
            continue;
        }
        assert_eq!(
            lines,
            [
                format!("Warning {event}: {text}"),
                format!("Warning FailedComputeMetricsReplicas: {text}"),
                "status 1 -> 0 SucceededGetScale InvalidSelector".to_owned(),
            ]
        );
        assert_eq!(bench.asked, [""; 0]);
    }
}

#[test]
fn two_autoscalers_of_the_same_pods_both_stop_once_both_were_looked_at() {
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a", "b"]);
    bench.all_use("50m");
    assert_eq!(bench.reconcile().len(), 1);
    // Another one, which selects the same pods, is looked at by the same manager.
    let both = "pods by selector app=web are controlled by multiple HPAs: [default/other default/web]";
    look_at_another(&bench, "other", "app in (web,db)");
    assert_eq!(
        bench.later(15).reconcile(),
        [
            format!("Warning AmbiguousSelector: {both}"),
            format!("Warning FailedComputeMetricsReplicas: {both}"),
            "status 2 -> 2 SucceededGetScale AmbiguousSelector DesiredWithinRange".to_owned(),
        ]
    );
    assert_eq!(bench.condition("ScalingActive"), format!("False AmbiguousSelector: {both}"));
    assert!(bench.held().status.current_metrics.is_empty());
    // When the other one goes, this one recovers at its next turn.
    bench.remembering.forget_selector(&Key::new("default", "other"));
    assert_eq!(
        bench.later(15).reconcile(),
        ["status 2 -> 2 ReadyForNewScale ValidMetricFound DesiredWithinRange"]
    );
}

#[test]
fn some_metrics_that_fail_let_a_target_grow_and_not_shrink() {
    let two = |held: &mut HorizontalPodAutoscaler| {
        let mut memory = cpu(50);
        memory.resource.as_mut().unwrap().name = "storage".into();
        held.spec.metrics.insert(0, memory);
    };
    let failed = "failed to get storage utilization: did not receive metrics for targeted pods (pods might be unready)";
    let event = format!("Warning FailedGetResourceMetric: {failed}");
    let mut bench = Bench::of(&autoscaler(two), &["a", "b"]);
    let lines = bench.all_use("100m").reconcile();
    assert_eq!(
        lines,
        [
            event.clone(),
            "scale 4".to_owned(),
            format!("Normal SuccessfulRescale: New size: 4; reason: {ABOVE}"),
            "status 2 -> 4 SucceededRescale ValidMetricFound DesiredWithinRange".to_owned(),
        ]
    );
    let metrics = &bench.held().status.current_metrics;
    assert_eq!((metrics.len(), metrics[0].r#type.as_str(), metrics[1].r#type.as_str()), (2, "", "Resource"));
    let mut bench = Bench::of(&autoscaler(two), &["a", "b"]);
    assert_eq!(
        bench.all_use("10m").reconcile(),
        [
            event,
            format!(
                "Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 2), first error is: failed to get storage resource metric value: {failed}"
            ),
            "status 2 -> 0 SucceededGetScale FailedGetResourceMetric".to_owned(),
        ]
    );
    assert_eq!(
        bench.condition("ScalingActive"),
        format!("False FailedGetResourceMetric: the HPA was unable to compute the replica count: {failed}")
    );
}

#[test]
fn a_metrics_api_that_is_not_there_is_told_in_the_words_of_clients() {
    let fetch = "unable to fetch metrics from resource metrics API";
    for (answer, told) in [
        (refused(404, "", ""), "the server could not find the requested resource (get pods.metrics.k8s.io)"),
        (
            refused(503, "", ""),
            "the server is currently unable to handle the request (get pods.metrics.k8s.io)",
        ),
        (
            refused(500, "", ""),
            "an error on the server (\"some text\") has prevented the request from succeeding (get pods.metrics.k8s.io)",
        ),
        (refused(403, "Forbidden", "pods.metrics.k8s.io is forbidden"), "pods.metrics.k8s.io is forbidden"),
    ] {
        let mut bench = Bench::of(&autoscaler(|_| {}), &["a"]);
        bench.answer("/apis/metrics.k8s.io", Err(answer));
        let text =
            format!("failed to get cpu utilization: unable to get metrics for resource cpu: {fetch}: {told}");
        assert_eq!(
            bench.reconcile(),
            [
                format!("Warning FailedGetResourceMetric: {text}"),
                format!(
                    "Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {text}"
                ),
                "status 1 -> 0 SucceededGetScale FailedGetResourceMetric".to_owned(),
            ]
        );
    }
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a"]);
    bench.answer("/apis/metrics.k8s.io", Ok(usage(&[])));
    assert!(bench.reconcile()[0].ends_with("resource cpu: no metrics returned from resource metrics API"));
}

#[test]
fn a_pod_without_a_request_fails_utilization_also_one_that_is_about_to_go() {
    let lacking = pod("b", |pod| {
        pod.shape = requesting(&[("c", &[("memory", "1Gi")])]);
        pod.metadata.deletion_timestamp = coxswain_machinery::wire::Time::from_seconds(1);
    });
    let mut bench = Bench::with(&autoscaler(|_| {}), vec![pod("a", |_| {}), lacking]);
    assert_eq!(
        bench.all_use("50m").reconcile()[0],
        "Warning FailedGetResourceMetric: failed to get cpu utilization: missing request for cpu in container c of Pod b"
    );
}

/// Rules of one policy for growing.
fn by_pods(pods: i32, period: i32) -> HorizontalPodAutoscalerBehavior {
    let policy = ScalingPolicy { r#type: "Pods".into(), value: pods, period_seconds: period };
    let rules = |window| ScalingRules {
        policies: vec![policy.clone()],
        stabilization_window_seconds: Some(window),
        ..ScalingRules::default()
    };
    HorizontalPodAutoscalerBehavior {
        scale_up: Some(Box::new(rules(0))),
        scale_down: Some(Box::new(rules(0))),
    }
}

#[test]
fn what_was_added_counts_for_the_period_of_a_policy() {
    let mut bench =
        Bench::of(&autoscaler(|held| held.spec.behavior = Some(Box::new(by_pods(2, 60)))), &["a", "b"]);
    bench.all_use("500m");
    assert_eq!(bench.reconcile()[0], "scale 4");
    assert_eq!(
        bench.condition("ScalingLimited"),
        "True ScaleUpLimit: the desired replica count is increasing faster than the maximum scale rate"
    );
    assert_eq!(bench.later(15).reconcile().len(), 1, "what was added is still counted");
    assert_eq!(bench.later(30).reconcile(), [""; 0]);
    assert_eq!(bench.later(15).reconcile()[0], "scale 6");
}

#[test]
fn a_restart_forgets_what_was_added_and_does_not_shrink() {
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a", "b", "c", "d"]);
    bench.all_use("10m").reconcile();
    bench.later(295).remembering = std::sync::Arc::default();
    assert_eq!(bench.later(10).reconcile(), [""; 0], "the present number counts as asked for");
    assert_eq!(bench.later(290).reconcile(), [""; 0]);
    assert_eq!(bench.later(11).reconcile()[0], "scale 1");
}

#[test]
fn a_clock_that_is_set_ends_no_window_early_and_none_late() {
    for by in [-3600, 3600] {
        let mut bench = Bench::of(&autoscaler(|_| {}), &["a", "b", "c", "d"]);
        bench.all_use("50m").reconcile();
        bench.later(15).set_clock(by).all_use("10m");
        let said = bench.reconcile();
        assert!(said[0].starts_with("status 4 -> 4 ScaleDownStabilized"), "{by}: {said:?}");
        assert_eq!(bench.later(270).all_use("10m").reconcile(), [""; 0], "{by}");
        assert_eq!(bench.later(16).all_use("10m").reconcile()[0], "scale 1", "{by}");
    }
}

#[test]
fn one_that_is_gone_is_forgotten_at_its_turn() {
    let mut bench = Bench::of(&autoscaler(|_| {}), &["a"]);
    bench.all_use("50m").reconcile();
    let key = Key::new("default", "web");
    assert!(!bench.remembering.history(&key).recommendations.is_empty());
    bench.autoscalers.remove_key(&key, "900");
    assert_eq!(bench.reconcile(), [""; 0]);
    assert!(bench.remembering.history(&key).recommendations.is_empty());
}

#[test]
fn hpa_wake_up_is_immediate_for_a_new_autoscaler_and_a_changed_spec_only() {
    let before: AnyObject = Arc::new(autoscaler(|_| {}));
    let changed = |change: fn(&mut HorizontalPodAutoscaler)| -> AnyObject { Arc::new(autoscaler(change)) };
    let told = |old: Option<&AnyObject>, new: Option<&AnyObject>, initial: bool| {
        let mut keys = Vec::new();
        new_or_changed(Delta { old, new, initial, resync: false }, &mut |key| keys.push(key.to_string()));
        keys
    };
    let woken = |old, new| told(old, new, false);
    assert_eq!(woken(None, Some(&before)), ["default/web"]);
    assert_eq!(told(None, Some(&before), true), [""; 0], "what a starting process finds");
    let spec = changed(|held| held.spec.max_replicas += 1);
    assert_eq!(woken(Some(&before), Some(&spec)), ["default/web"]);
    let status = changed(|held| held.status.current_replicas += 1);
    let labels = changed(|held| held.metadata.resource_version = "7".into());
    for same in [&status, &labels, &before] {
        assert_eq!(woken(Some(&before), Some(same)), [""; 0]);
    }
    assert_eq!(woken(Some(&before), None), [""; 0]);
}

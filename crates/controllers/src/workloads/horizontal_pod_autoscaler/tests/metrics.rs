//! Metrics of each type: what is asked for, what is said of it, and how what fails is told.

use serde_json::{Value, json};

use super::fixtures::{Bench, api, autoscaler, quantity, refused};
use coxswain_machinery::api::autoscaling::{
    ContainerResourceMetricSource, CrossVersionObjectReference, ExternalMetricSource, MetricIdentifier,
    MetricSpec, MetricTarget, ObjectMetricSource, PodsMetricSource,
};
use coxswain_machinery::api::meta::{LabelSelector, LabelSelectorRequirement};

fn target(average: Option<&str>, value: Option<&str>) -> MetricTarget {
    MetricTarget {
        r#type: if value.is_some() { "Value" } else { "AverageValue" }.into(),
        average_value: average.and_then(quantity),
        value: value.and_then(quantity),
        ..MetricTarget::default()
    }
}

fn named(name: &str) -> MetricIdentifier {
    MetricIdentifier { name: name.into(), selector: None }
}

pub(super) fn external(average: Option<&str>, value: Option<&str>) -> MetricSpec {
    let source = ExternalMetricSource { metric: named("queue"), target: target(average, value) };
    MetricSpec { r#type: "External".into(), external: Some(Box::new(source)), ..MetricSpec::default() }
}

pub(super) fn series(values: &[&str]) -> Value {
    let items: Vec<Value> =
        values.iter().map(|value| json!({ "metricName": "queue", "value": value })).collect();
    json!({ "kind": "ExternalMetricValueList", "items": items })
}

fn of_pods(average: &str) -> MetricSpec {
    let source = PodsMetricSource { metric: named("requests"), target: target(Some(average), None) };
    MetricSpec { r#type: "Pods".into(), pods: Some(Box::new(source)), ..MetricSpec::default() }
}

fn of_object(kind: &str, version: &str, target: MetricTarget) -> MetricSpec {
    let described_object =
        CrossVersionObjectReference { kind: kind.into(), name: "it".into(), api_version: version.into() };
    let source = ObjectMetricSource { described_object, target, metric: named("hits") };
    MetricSpec { r#type: "Object".into(), object: Some(Box::new(source)), ..MetricSpec::default() }
}

fn values(items: &[(&str, &str)]) -> Value {
    let items =
        items.iter().map(|(name, value)| json!({ "describedObject": { "name": name }, "value": value }));
    json!({ "kind": "MetricValueList", "items": items.collect::<Vec<_>>() })
}

/// Two pods that are scaled by one metric, and what is answered below a path.
fn bench(metric: MetricSpec, path: &str, answer: Value) -> Bench {
    let mut bench = Bench::of(&autoscaler(|held| held.spec.metrics = vec![metric]), &["a", "b"]);
    bench.answer(path, Ok(answer));
    bench
}

const CUSTOM: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default";

#[test]
fn metrics_of_pods_are_averages() {
    let mut bench = bench(of_pods("10"), "/apis/custom", values(&[("a", "20"), ("b", "20")]));
    assert_eq!(
        bench.reconcile()[1],
        "Normal SuccessfulRescale: New size: 4; reason: pods metric requests above target"
    );
    assert_eq!(bench.asked, [format!("{CUSTOM}/pods/%2A/requests?labelSelector=app%3Dweb")]);
    let held = bench.held();
    let status = held.status.current_metrics[0].pods.as_ref().unwrap();
    assert_eq!((status.metric.name.as_str(), &status.current.average_value), ("requests", &quantity("20")));
}

#[test]
fn metrics_of_objects_are_asked_for_by_resource_and_namespaces_for_their_own() {
    let value = || target(None, Some("10"));
    for (kind, version, path) in [
        ("Deployment", "apps/v9", "deployments.apps/it/hits"),
        ("Service", "v1", "services/it/hits"),
        ("Namespace", "v1", "metrics/hits"),
    ] {
        let mut bench = bench(of_object(kind, version, value()), "/apis/custom", values(&[("it", "30")]));
        assert_eq!(
            bench.reconcile()[..2],
            [
                "scale 4".to_owned(),
                format!("Normal SuccessfulRescale: New size: 4; reason: {kind} metric hits above target")
            ]
        );
        assert_eq!(bench.asked, [format!("{CUSTOM}/{path}")]);
    }
    let average = of_object("Service", "v1", target(Some("10"), None));
    let mut bench = bench(average, "/apis/custom", values(&[("it", "30")]));
    assert_eq!(
        bench.reconcile()[..2],
        ["scale 3", "Normal SuccessfulRescale: New size: 3; reason: external metric hits(nil) above target"]
    );
    let held = bench.held();
    let status = held.status.current_metrics[0].object.as_ref().unwrap();
    assert_eq!(status.current.average_value, quantity("15"));
    assert_eq!(status.described_object.kind, "Service");
}

#[test]
fn series_of_external_metrics_are_added_up() {
    let mut average = external(Some("10"), None);
    let selector = LabelSelector {
        match_labels: [("q", "in"), ("a", "b")].into_iter().collect(),
        match_expressions: vec![LabelSelectorRequirement {
            key: "k".into(),
            operator: "In".into(),
            values: vec!["x".into(), "y".into()],
        }]
        .into(),
    };
    average.external.as_mut().unwrap().metric.selector = Some(Box::new(selector));
    let mut held = bench(average, "/apis/external", series(&["20", "21"]));
    let shown = "&LabelSelector{MatchLabels:map[string]string{a: b,q: in,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}";
    assert_eq!(
        held.reconcile()[..2],
        [
            "scale 4".to_owned(),
            format!(
                "Normal SuccessfulRescale: New size: 4; reason: external metric queue({shown}) above target"
            )
        ]
    );
    assert_eq!(
        held.asked,
        [
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue?labelSelector=a%3Db%2Cq%3Din%2Ck+in+%28x%2Cy%29"
        ]
    );
    let mut value = bench(external(None, Some("10")), "/apis/external", series(&["20", "-5"]));
    assert_eq!(value.reconcile()[0], "scale 3");
    let held = value.held();
    assert_eq!(held.status.current_metrics[0].external.as_ref().unwrap().current.value, quantity("15"));
}

#[test]
fn what_fails_is_told_for_each_type() {
    let fetch = |api: &str, why: &str| format!("unable to fetch metrics from {api} metrics API: {why}");
    let status = refused(404, "NotFound", "no such metric");
    let object = |target| of_object("Service", "v1", target);
    for (metric, reason, text, whole) in [
        (
            of_pods("10"),
            "FailedGetPodsMetric",
            format!("unable to get metric requests: {}", fetch("custom", "no such metric")),
            "failed to get pods metric value: ",
        ),
        (
            object(target(None, Some("1"))),
            "FailedGetObjectMetric",
            format!("unable to get metric hits: Service default/it: {}", fetch("custom", "no such metric")),
            "failed to get object metric value: ",
        ),
        (
            object(target(Some("1"), None)),
            "FailedGetObjectMetric",
            format!("unable to get metric hits: Service default/it: {}", fetch("custom", "no such metric")),
            "failed to get object metric value: failed to get hits object metric: ",
        ),
        (
            object(MetricTarget { r#type: "Value".into(), ..MetricTarget::default() }),
            "FailedGetObjectMetric",
            "invalid object metric source: neither a value target nor an average value target was set"
                .to_owned(),
            "failed to get object metric value: ",
        ),
        (
            of_object("Thing", "things.io/v1", target(None, Some("1"))),
            "FailedGetObjectMetric",
            format!(
                "unable to get metric hits: Thing default/it: {}",
                fetch(
                    "custom",
                    "unable to map kind Thing.things.io to resource: no matches for kind \"Thing\" in group \"things.io\""
                )
            ),
            "failed to get object metric value: ",
        ),
        (
            external(Some("1"), None),
            "FailedGetExternalMetric",
            format!(
                "unable to get external metric default/queue/nil: {}",
                fetch("external", "no such metric")
            ),
            "failed to get queue external metric value: failed to get queue external metric: ",
        ),
        (
            external(None, Some("1")),
            "FailedGetExternalMetric",
            format!(
                "unable to get external metric default/queue/nil: {}",
                fetch("external", "no such metric")
            ),
            "failed to get queue external metric value: failed to get external metric queue: ",
        ),
        (
            MetricSpec { r#type: "Strange".into(), ..MetricSpec::default() },
            "InvalidMetricSourceType",
            "unknown metric source type \"Strange\"".to_owned(),
            "",
        ),
    ] {
        let mut bench = Bench::of(&autoscaler(|held| held.spec.metrics = vec![metric]), &["a", "b"]);
        bench.answer("/apis", Err(status.clone()));
        assert_eq!(
            bench.reconcile(),
            [
                format!("Warning {reason}: {text}"),
                format!(
                    "Warning FailedComputeMetricsReplicas: invalid metrics (1 invalid out of 1), first error is: {whole}{text}"
                ),
                format!("status 2 -> 0 SucceededGetScale {reason}"),
            ]
        );
    }
}

#[test]
fn name_of_an_external_metric_is_in_lower_case_in_the_path_alone() {
    let mut metric = external(Some("10"), None);
    metric.external.as_mut().unwrap().metric.name = "Queue_Length".into();
    let mut bench = bench(metric, "/apis/external", series(&["20", "21"]));
    let lines = bench.reconcile();
    assert_eq!(bench.asked, ["/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_length"]);
    assert!(lines[1].contains("external metric Queue_Length("), "{lines:?}");
}

#[test]
fn the_version_of_custom_metrics_is_the_first_that_is_known() {
    let of = |versions: &[&str]| {
        let mut bench = bench(of_pods("10"), "/apis/custom", values(&[("a", "10"), ("b", "10")]));
        bench.api = api(versions);
        let lines = bench.reconcile();
        bench.asked.first().cloned().unwrap_or_else(|| lines[0].clone())
    };
    let rest = "namespaces/default/pods/%2A/requests?labelSelector=app%3Dweb";
    assert_eq!(of(&["v1beta2", "v1beta1"]), format!("/apis/custom.metrics.k8s.io/v1beta2/{rest}"));
    assert_eq!(of(&["v2", "v1beta1"]), format!("/apis/custom.metrics.k8s.io/v1beta1/{rest}"));
    assert!(of(&["v2"]).ends_with("no known available metric versions found"));
    assert!(of(&[]).ends_with("no custom metrics API (custom.metrics.k8s.io) registered"));
}

#[test]
fn the_resource_of_one_container_counts_alone() {
    let source = ContainerResourceMetricSource {
        name: "memory".into(),
        target: MetricTarget {
            r#type: "Utilization".into(),
            average_utilization: Some(50),
            ..MetricTarget::default()
        },
        container: "c".into(),
    };
    let metric = MetricSpec {
        r#type: "ContainerResource".into(),
        container_resource: Some(Box::new(source)),
        ..MetricSpec::default()
    };
    let usage = super::fixtures::usage(&[("a", "1"), ("b", "1")]);
    let mut bench = bench(metric, "/apis/metrics", usage);
    assert_eq!(bench.reconcile(), ["status 2 -> 2 ReadyForNewScale ValidMetricFound DesiredWithinRange"]);
    let held = bench.held();
    let status = held.status.current_metrics[0].container_resource.as_ref().unwrap();
    assert_eq!((status.name.as_str(), status.container.as_str()), ("memory", "c"));
    assert_eq!(
        (status.current.average_utilization, &status.current.average_value),
        (Some(50), &quantity("50Mi"))
    );
    assert!(
        bench
            .condition("ScalingActive")
            .ends_with("from memory container resource utilization (percentage of request)")
    );
}

#[test]
fn hpa_container_resource_with_average_value_has_the_name_of_the_resource() {
    let source = ContainerResourceMetricSource {
        name: "cpu".into(),
        target: target(Some("10m"), None),
        container: "c".into(),
    };
    let metric = MetricSpec {
        r#type: "ContainerResource".into(),
        container_resource: Some(Box::new(source)),
        ..MetricSpec::default()
    };
    let usage = super::fixtures::usage(&[("a", "20m"), ("b", "20m")]);
    let mut bench = bench(metric, "/apis/metrics", usage);
    let lines = bench.reconcile();
    assert_eq!(lines[1], "Normal SuccessfulRescale: New size: 4; reason: cpu resource above target");
    assert_eq!(
        bench.condition("ScalingActive"),
        "True ValidMetricFound: the HPA was able to successfully calculate a replica count from cpu resource"
    );
}

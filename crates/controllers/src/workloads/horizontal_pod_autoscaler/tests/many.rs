//! Autoscalers with thousands of metrics: equal questions share one answer, and the evaluation pauses.

use std::sync::Arc;

use serde_json::Value;

use super::super::plan;
use super::super::queries::Found;
use super::super::view::{Stage, View};
use super::fixtures::{Bench, autoscaler, cpu, quantity};
use super::metrics::{external, series};
use coxswain_machinery::api::autoscaling::{ContainerResourceMetricSource, MetricSpec, MetricTarget};
use coxswain_machinery::framework::{Query, Reads, RequestPath};

/// The usage of CPU of one container.
fn of_container(container: &str, average: &str) -> MetricSpec {
    let target = MetricTarget {
        r#type: "AverageValue".into(),
        average_value: quantity(average),
        ..MetricTarget::default()
    };
    let source = ContainerResourceMetricSource { name: "cpu".into(), target, container: container.into() };
    MetricSpec {
        r#type: "ContainerResource".into(),
        container_resource: Some(Box::new(source)),
        ..MetricSpec::default()
    }
}

/// Two pods that are scaled by these metrics.
fn bench(metrics: Vec<MetricSpec>) -> Bench {
    let mut bench = Bench::of(&autoscaler(|held| held.spec.metrics = metrics), &["a", "b"]);
    bench.all_use("100m").answer("/apis/external", Ok(series(&["30"])));
    bench
}

fn found(view: &View) -> &[Arc<Found>] {
    let Stage::Look(look) = &view.stage else { panic!("{view:?}") };
    &look.found
}

/// The answer of the resource metrics API.
fn usage(reads: &Reads) -> &Arc<Value> {
    let path =
        RequestPath::group_version("metrics.k8s.io", "v1beta1").in_namespace("default").resource("pods");
    let uri = path.uri(&Query::default().with("labelSelector", "app=web")).unwrap();
    reads.json(&uri).unwrap().unwrap()
}

#[test]
fn metrics_with_equal_questions_share_one_answer() {
    let mut bench = bench((1..=1000).map(cpu).collect());
    let (view, reads) = bench.observe(Reads::default(), &[]).unwrap();
    assert_eq!(bench.asked.len(), 1, "equal questions are asked once");
    let found = found(&view);
    assert_eq!(found.len(), 1000);
    let (first, rest) = found.split_first().unwrap();
    assert!(rest.iter().all(|other| Arc::ptr_eq(first, other)));
    assert_eq!(Arc::strong_count(usage(&reads)), 2, "the reads and one decoder have it");
    let (_, note) = plan::plan(&view, bench.now).into_parts();
    assert_eq!(note.look.unwrap().metrics.len(), 1000);
    assert_eq!(Arc::strong_count(usage(&reads)), 1, "it is decoded");
}

#[test]
fn metrics_of_different_containers_share_the_decoded_list() {
    let containers: Vec<String> = (0..1000).map(|number| format!("c{number}")).collect();
    let mut bench = bench(containers.iter().map(|name| of_container(name, "50m")).collect());
    let (view, reads) = bench.observe(Reads::default(), &[]).unwrap();
    assert_eq!(Arc::strong_count(usage(&reads)), 2, "the reads and one decoder have it");
    let found = found(&view);
    assert!(
        found.iter().all(|found| found.pods().unwrap().as_ref().unwrap().is_empty()),
        "no such container"
    );
    assert_eq!(Arc::strong_count(usage(&reads)), 1, "it is decoded");
}

#[test]
fn evaluation_in_slices_gives_the_plan_of_an_evaluation_in_one() {
    let kinds = |number: i32| match number % 4 {
        0 => cpu(number + 1),
        1 => of_container("c", &format!("{}m", number + 1)),
        2 => external(Some(&number.to_string()), None),
        _ => MetricSpec { r#type: "Weather".into(), ..MetricSpec::default() },
    };
    let mut bench = bench((0..2000).map(kinds).collect());
    let (whole, _) = bench.observe(Reads::default(), &[]).unwrap();
    let (mut sliced, _) = bench.observe(Reads::default(), &[]).unwrap();
    let mut slices = 1;
    while !plan::proposals::propose_more(&mut sliced, bench.now) {
        slices += 1;
    }
    assert!((10..=40).contains(&slices), "{slices}");
    let plan = |view: &View| {
        let (plan, note) = plan::plan(view, bench.now).into_parts();
        format!("{:?} {note:?}", plan.steps)
    };
    assert_eq!(plan(&sliced), plan(&whole));
    let reasons = |view: &View| plan::reasons::reasons(view, bench.now);
    assert_eq!(reasons(&sliced), reasons(&whole));
}

#[test]
fn evaluation_of_few_metrics_is_one_slice() {
    let mut bench = bench(vec![cpu(50), external(Some("10"), None)]);
    let (mut view, _) = bench.observe(Reads::default(), &[]).unwrap();
    assert!(plan::proposals::propose_more(&mut view, bench.now));
    let Stage::Look(look) = &view.stage else { panic!("{view:?}") };
    assert_eq!(look.proposals.len(), 2);
}

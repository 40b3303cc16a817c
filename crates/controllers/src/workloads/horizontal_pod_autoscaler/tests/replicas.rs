//! What a metric of pods asks for, by numbers.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::super::answers::{PodValue, PodValues};
use super::super::plan::replicas::{Asked, Missing, PodMetric, PodTarget, Present, Tolerance};
use super::fixtures::{NOW, pod, ready, requesting, settings, start};
use coxswain_machinery::api::charge::PodCharge;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::shape::PodShape;
use coxswain_machinery::wire::{Str, Time};

fn values(found: &[(&str, i64)]) -> PodValues {
    let of = |&(name, value): &(&str, i64)| {
        (
            Str::from(name),
            PodValue { value, at: start() - SignedDuration::from_secs(10), window: Duration::from_secs(30) },
        )
    };
    found.iter().map(of).collect()
}

fn ask(current: i32, pods: &[Arc<Pod>], metric: &PodMetric<'_>, found: &PodValues) -> Result<Asked, Missing> {
    let tolerance = Tolerance { down: 0.1, up: 0.1 };
    Present { current, pods, tolerance, settings: &settings(), now: start() }.by_pods(metric, found)
}

fn utilization(percent: i32) -> PodTarget {
    PodTarget::Utilization(percent)
}

/// Of CPU.
fn by_cpu(current: i32, pods: &[Arc<Pod>], target: PodTarget, found: &[(&str, i64)]) -> Result<i32, String> {
    let cpu = Str::from("cpu");
    let metric = PodMetric { resource: Some(&cpu), container: None, target };
    ask(current, pods, &metric, &values(found)).map(|asked| asked.replicas).map_err(|error| error.to_string())
}

fn pods(names: &[&str]) -> Vec<Arc<Pod>> {
    names.iter().map(|name| pod(name, |_| {})).collect()
}

fn with(change: impl Fn(&mut Pod)) -> Vec<Arc<Pod>> {
    let mut all = pods(&["a", "b"]);
    all.push(pod("c", change));
    all
}

#[test]
fn the_ratio_counts_where_it_is_out_of_tolerance() {
    let three = pods(&["a", "b", "c"]);
    for (used, replicas) in [(50, 3), (55, 3), (56, 4), (45, 3), (44, 3), (33, 2), (100, 6), (150, 9), (1, 1)]
    {
        let found = [("a", used), ("b", used), ("c", used)];
        assert_eq!(by_cpu(3, &three, utilization(50), &found), Ok(replicas), "{used}");
    }
    // Percents are whole before the ratio is taken: 55.9 of 50 is as 55.
    let found = [("a", 55), ("b", 56), ("c", 56)];
    assert_eq!(by_cpu(3, &three, utilization(50), &found), Ok(3));
    let found = [("a", 100), ("b", 100), ("c", 101)];
    assert_eq!(by_cpu(3, &three, PodTarget::Average(50), &found), Ok(6), "averages are cut");
}

#[test]
fn missing_pods_need_all_to_shrink_and_nothing_to_grow_and_turn_nothing_round() {
    let three = pods(&["a", "b", "c"]);
    let two = |used| [("a", used), ("b", used)];
    // 20 % twice, and 100 % of what it requests: 46 of 50 are in tolerance; with 10 %, 40 of 50 are not.
    assert_eq!(by_cpu(3, &three, utilization(50), &two(20)), Ok(3));
    assert_eq!(by_cpu(3, &three, utilization(50), &two(10)), Ok(3));
    assert_eq!(
        by_cpu(3, &three, utilization(120), &two(10)),
        Ok(2),
        "more than 100 % where that is the target"
    );
    // Twice 100 % and nothing: 66 of 50.
    assert_eq!(by_cpu(3, &three, utilization(50), &two(100)), Ok(4));
    assert_eq!(by_cpu(3, &three, utilization(50), &two(60)), Ok(3), "40 of 50 is the other direction");
    assert_eq!(by_cpu(3, &three, utilization(50), &two(50)), Ok(3));
    assert_eq!(
        by_cpu(3, &three, PodTarget::Average(50), &two(20)),
        Ok(2),
        "30 of 50 is below, with what it is to have"
    );
    assert_eq!(by_cpu(9, &three, PodTarget::Average(50), &two(100)), Ok(9), "never fewer when it is to grow");
}

#[test]
fn hpa_pods_that_have_ended_are_ignored() {
    let memory = Str::from("memory");
    let wanted = |phase: &'static str, used: i64| {
        let mut all = pods(&["a", "b"]);
        let ended = |pod: &mut Pod| pod.status.phase = phase.into();
        all.extend(["c", "d", "e", "f", "g", "h"].map(|name| pod(name, ended)));
        let target = PodTarget::Average(50);
        let metric = PodMetric { resource: Some(&memory), container: None, target };
        ask(2, &all, &metric, &values(&[("a", used), ("b", used)])).map(|asked| asked.replicas)
    };
    for phase in ["Succeeded", "Failed"] {
        assert_eq!(wanted(phase, 100), Ok(4), "{phase}: to grow");
        assert_eq!(wanted(phase, 25), Ok(1), "{phase}: to shrink");
    }
}

#[test]
fn unready_pods_count_as_idle_when_the_target_is_to_grow_and_not_at_all_otherwise() {
    let three = with(|pod| {
        pod.status.start_time = Time::from_seconds(NOW - 100);
        pod.status.conditions = vec![ready("False", 100)];
    });
    let all = |used| [("a", used), ("b", used), ("c", 1000)];
    assert_eq!(by_cpu(3, &three, utilization(50), &all(50)), Ok(3), "what it uses to start is not looked at");
    assert_eq!(by_cpu(3, &three, utilization(50), &all(100)), Ok(4), "two thirds of 100");
    assert_eq!(by_cpu(3, &three, utilization(50), &all(20)), Ok(1), "two thirds of nothing");
}

#[test]
fn cpu_counts_once_a_pod_was_ready_for_the_window_of_the_value() {
    let counts = |started: i64, status: &str, changed: i64| {
        let three = with(|pod| {
            pod.status.start_time = Time::from_seconds(NOW - started);
            pod.status.conditions = vec![ready(status, changed)];
        });
        // With the value of the third the target grows to six.
        by_cpu(3, &three, utilization(50), &[("a", 50), ("b", 50), ("c", 200)]) == Ok(6)
    };
    // The value was measured ten seconds ago over half a minute.
    assert!(counts(200, "True", 40) && !counts(200, "True", 39));
    assert!(!counts(200, "False", 150));
    // After the initialization period only one that was never ready is left out.
    assert!(counts(301, "True", 1));
    assert!(counts(301, "False", 200) && !counts(301, "False", 280));
    assert!(counts(300, "True", 40) && !counts(299, "True", 39));
    let bare = with(|pod| pod.status.conditions.clear());
    assert_eq!(by_cpu(3, &bare, utilization(50), &[("a", 50), ("b", 50), ("c", 200)]), Ok(3));
    let unborn = with(|pod| pod.status.start_time = None);
    assert_eq!(by_cpu(3, &unborn, utilization(50), &[("a", 50), ("b", 50), ("c", 200)]), Ok(3));
    // Of other resources readiness says nothing.
    let memory = Str::from("memory");
    let metric = PodMetric { resource: Some(&memory), container: None, target: PodTarget::Average(50) };
    let found = values(&[("a", 50), ("b", 50), ("c", 200)]);
    assert_eq!(ask(3, &unborn, &metric, &found).map(|asked| asked.replicas), Ok(6));
}

#[test]
fn pods_that_are_about_to_go_or_have_not_come_are_left_out() {
    type Change = fn(&mut Pod);
    let gone: [Change; 3] = [
        |pod| pod.metadata.deletion_timestamp = Time::from_seconds(NOW),
        |pod| pod.status.phase = "Failed".into(),
        |pod| pod.status.phase = "Succeeded".into(),
    ];
    for change in gone {
        let found = [("a", 100), ("b", 100), ("c", 9000)];
        assert_eq!(by_cpu(3, &with(change), utilization(50), &found), Ok(4), "two pods need twice as much");
    }
    let pending = with(|pod| pod.status.phase = "Pending".into());
    assert_eq!(by_cpu(3, &pending, utilization(50), &[("a", 100), ("b", 100)]), Ok(4), "two thirds of 100");
    // Values of strangers count in averages, and not in utilization.
    let two = pods(&["a", "b"]);
    let found = [("a", 50), ("b", 50), ("stranger", 500)];
    assert_eq!(by_cpu(2, &two, PodTarget::Average(50), &found), Ok(8));
    assert_eq!(by_cpu(2, &two, utilization(50), &found), Ok(2));
}

#[test]
fn what_is_not_known_is_said() {
    let one = pods(&["a"]);
    let none = "did not receive metrics for targeted pods (pods might be unready)";
    let text = |result: Result<i32, String>| result.unwrap_err();
    assert_eq!(
        text(by_cpu(1, &[], utilization(50), &[("a", 1)])),
        "no pods returned by selector while calculating replica count"
    );
    assert_eq!(text(by_cpu(1, &one, utilization(50), &[])), none);
    assert_eq!(
        text(by_cpu(1, &one, utilization(50), &[("stranger", 1)])),
        "no metrics returned matched known pods"
    );
    let lacking = [pod("a", |pod| pod.shape = requesting(&[("c", &[("cpu", "1")]), ("d", &[])]))];
    assert_eq!(
        text(by_cpu(1, &lacking, utilization(50), &[("a", 1)])),
        "missing request for cpu in container d of Pod a"
    );
    assert_eq!(by_cpu(1, &lacking, PodTarget::Average(1), &[("a", 1)]), Ok(1), "averages need no requests");
    let (cpu, container) = (Str::from("cpu"), Str::from("other"));
    let metric = PodMetric { resource: Some(&cpu), container: Some(&container), target: utilization(50) };
    let error = ask(1, &one, &metric, &values(&[("a", 1)])).unwrap_err();
    assert_eq!(error.to_string(), "container other not found in Pod a");
}

#[test]
fn requests_are_those_of_containers_or_of_the_pod_without_its_overhead() {
    let target = |pod: Arc<Pod>, container: Option<&str>, pod_level: bool| {
        let (cpu, container) = (Str::from("cpu"), container.map(Str::from));
        let metric =
            PodMetric { resource: Some(&cpu), container: container.as_ref(), target: utilization(100) };
        let mut settings = settings();
        settings.pod_level_resources = pod_level;
        let pods = [pod];
        let tolerance = Tolerance { down: 0.0, up: 0.0 };
        let present = Present { current: 1, pods: &pods, tolerance, settings: &settings, now: start() };
        present.by_pods(&metric, &values(&[("a", 100)])).map(|asked| asked.utilization)
    };
    let containers: &[(&str, &[(&str, &str)])] = &[("c", &[("cpu", "100m")]), ("side", &[("cpu", "100m")])];
    let plain = || pod("a", |pod| pod.shape = requesting(containers));
    assert_eq!(target(plain(), None, true), Ok(Some(50)));
    assert_eq!(target(plain(), Some("side"), true), Ok(Some(100)));
    let whole = |resource: &'static str| {
        pod("a", move |pod| {
            let mut shape = PodShape::clone(&requesting(containers));
            shape.pod_requests = [(resource, "1")].into_iter().collect();
            shape.overhead = [("cpu", "300m")].into_iter().collect();
            pod.shape = shape.into();
            // What is charged for the pod as a whole has its overhead in it.
            pod.charge =
                PodCharge { requests: [("cpu", "400m")].into_iter().collect(), ..PodCharge::default() }
                    .into();
        })
    };
    assert_eq!(target(whole("cpu"), None, true), Ok(Some(100)));
    assert_eq!(target(whole("memory"), None, true), Ok(Some(100)));
    assert_eq!(target(whole("example.com/thing"), None, true), Ok(Some(50)));
    assert_eq!(target(whole("cpu"), None, false), Ok(Some(50)));
    assert_eq!(target(whole("cpu"), Some("c"), true), Ok(Some(100)));
    let lacking = pod("a", |pod| {
        let mut shape = PodShape::clone(&requesting(&[]));
        shape.pod_requests = [("memory", "1")].into_iter().collect();
        // Nothing but the overhead asks for CPU.
        shape.overhead = [("cpu", "300m")].into_iter().collect();
        pod.shape = shape.into();
        pod.charge =
            PodCharge { requests: [("cpu", "300m")].into_iter().collect(), ..PodCharge::default() }.into();
    });
    assert_eq!(
        target(lacking, None, true).unwrap_err().to_string(),
        "missing pod-level request for cpu in Pod a"
    );
}

#[test]
fn values_of_one_thing_count_by_ready_pods_and_averages_by_replicas() {
    let unready = pod("b", |pod| pod.status.conditions.clear());
    let all = [pod("a", |_| {}), unready];
    let present = |current, pods| {
        Present {
            current,
            pods,
            tolerance: Tolerance { down: 0.1, up: 0.1 },
            settings: &settings(),
            now: Timestamp::UNIX_EPOCH,
        }
        .by_value(30_000, 10_000)
        .map(|asked| asked.replicas)
    };
    assert_eq!(present(2, &all), Ok(3), "one pod is ready");
    assert_eq!(present(2, &[]), Err(Missing::Pods));
    assert_eq!(present(0, &[]), Ok(3), "without pods it wakes up");
    let settings = settings();
    let present = Present {
        current: 4,
        pods: &all,
        tolerance: Tolerance { down: 0.1, up: 0.1 },
        settings: &settings,
        now: start(),
    };
    assert_eq!(present.by_value(10_500, 10_000).map(|asked| asked.replicas), Ok(4));
    assert_eq!(present.by_value(i64::MAX, 1).map(|asked| asked.replicas), Ok(i32::MAX));
    let average = |usage, replicas| {
        let asked = present.by_average(usage, 10_000, replicas);
        (asked.replicas, asked.usage)
    };
    assert_eq!(average(40_000, 4), (4, 10_000));
    assert_eq!(average(43_000, 4), (4, 10_750), "in tolerance");
    assert_eq!(average(45_001, 4), (5, 11_251));
    assert_eq!(average(21_000, 4), (3, 5_250));
    assert_eq!(average(21_000, 0), (3, 21_000));
    assert_eq!(average(0, 4), (0, 0));
}

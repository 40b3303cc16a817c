//! When a status is written, and what is in it.

use std::time::Duration;

use super::super::view::{Known, View};
use super::fixtures::{
    amounts, asking, expected, hard, planned, pod, quantities, quota, used, view, written,
};
use coxswain_machinery::wire::Quantities;
use coxswain_machinery::wire::splice::get;

const AGAIN: Option<Duration> = Some(Duration::from_secs(5));

#[test]
fn a_new_quota_gets_its_status() {
    let view = view(quota(&[("pods", "1k"), ("count/secrets", "5")], |_| {}));
    let plan = planned(&view);
    let written = written(&plan).unwrap();
    assert_eq!(amounts(&written.status.hard), expected(&[("pods", "1k"), ("count/secrets", "5")]));
    assert_eq!(amounts(&written.status.used), expected(&[("pods", "0"), ("count/secrets", "0")]));
    // Over the very quota that was seen, and with all that is in it.
    assert_eq!(written.metadata, view.quota.metadata);
    assert_eq!(written.spec, view.quota.spec);
    assert_eq!(get(&written.raw, &[99]).unwrap().unwrap().bytes().unwrap(), b"unknown");
    assert_eq!((plan.recheck_after, plan.requeue_after, plan.retry), (AGAIN, None, None));
}

#[test]
fn a_status_that_says_so_already_is_not_written() {
    let quota = quota(&[("cpu", "2"), ("memory", "1Gi"), ("example.com/x", "1")], |quota| {
        quota.status.hard = quantities(&[("cpu", "2000m"), ("memory", "1024Mi"), ("example.com/x", "1")]);
        quota.status.used = quantities(&[("cpu", "500m"), ("memory", "2097152")]);
    });
    let pods = vec![pod("a", asking(&[("cpu", "0.5"), ("memory", "2Mi")], &[]), |_| {})];
    let mut view = View { pods, ..view(quota) };
    let plan = planned(&view);
    assert!(plan.steps.is_empty() && plan.requeue_after.is_none() && plan.retry.is_none(), "{plan:?}");
    // Admission has charged, and what for may not be stored yet.
    view.pods.clear();
    view.recount = Some(super::super::memory::Recount::Late);
    let plan = planned(&view);
    assert!(plan.steps.is_empty() && plan.requeue_after == AGAIN && plan.retry.is_none(), "{plan:?}");
}

#[test]
fn an_amount_stays_as_it_was_written() {
    let quota = quota(&[("cpu", "2"), ("pods", "9")], |quota| {
        quota.status.hard = quota.spec.hard.clone();
        quota.status.used = quantities(&[("cpu", "5e-1"), ("pods", "3")]);
    });
    let pods = vec![pod("a", asking(&[("cpu", "500m")], &[]), |_| {})];
    assert_eq!(used(&View { pods, ..view(quota) }), expected(&[("cpu", "5e-1"), ("pods", "1")]));
}

#[test]
fn a_status_follows_the_limits() {
    let with = |hard: &[(&str, &str)], used: &[(&str, &str)]| {
        let quota = quota(&[("pods", "5"), ("secrets", "2")], |quota| {
            quota.status.hard = quantities(hard);
            quota.status.used = quantities(used);
        });
        let plan = planned(&view(quota));
        written(&plan).map(|quota| (amounts(&quota.status.hard), amounts(&quota.status.used)))
    };
    let right = (expected(&[("pods", "5"), ("secrets", "2")]), expected(&[("pods", "0"), ("secrets", "0")]));
    let (hard, used) = (&[("pods", "5"), ("secrets", "2")][..], &[("pods", "0"), ("secrets", "0")][..]);
    assert_eq!(with(hard, used), None);
    for (hard, used) in [
        (&[][..], &[][..]),
        (hard, &[("pods", "0")]),
        (hard, &[("pods", "0"), ("secrets", "1")]),
        (hard, &[("pods", "0"), ("secrets", "none")]),
        (hard, &[("pods", "0"), ("secrets", "0"), ("services", "0")]),
        (&[("pods", "5")], used),
        (&[("pods", "4"), ("secrets", "2")], used),
        (&[("pods", "5"), ("services", "2")], used),
    ] {
        assert_eq!(with(hard, used), Some(right.clone()), "{hard:?} {used:?}");
    }
}

#[test]
fn what_nobody_can_count_stays_as_it_was() {
    let names = [("count/foos.example.com", "5"), ("example.com/x", "5"), ("pods", "5")];
    let view = |used: &[(&str, &str)]| {
        let mut view = view(quota(&names, |quota| {
            quota.status.hard = quota.spec.hard.clone();
            quota.status.used = quantities(used);
        }));
        view.objects.insert("count/foos.example.com".into(), Known::NotServed);
        view
    };
    let plan = planned(&view(&[("count/foos.example.com", "3"), ("example.com/x", "4"), ("pods", "0")]));
    assert!(plan.steps.is_empty(), "{plan:?}");
    // The quotas of many namespaces may limit a resource that is gone. They are counted again when it is served.
    assert_eq!((plan.requeue_after, plan.retry), (None, None));
    let before = [("count/foos.example.com", "3"), ("example.com/x", "4"), ("pods", "9")];
    let now = expected(&[("count/foos.example.com", "3"), ("example.com/x", "4"), ("pods", "0")]);
    assert_eq!(used(&view(&before)), now);
    assert_eq!(used(&view(&[])), expected(&[("pods", "0")]));
}

#[test]
fn what_is_not_all_seen_stays_as_it_was_and_is_counted_later() {
    let names = ["secrets", "gpu.deviceclass.resource.k8s.io/devices", "requests.example.com/gpu", "pods"];
    let mut view = view(quota(&hard(&names), |quota| {
        quota.status.hard = quota.spec.hard.clone();
        quota.status.used = quantities(&[
            ("secrets", "3"),
            ("gpu.deviceclass.resource.k8s.io/devices", "4"),
            ("requests.example.com/gpu", "5"),
            ("pods", "6"),
        ]);
    }));
    view.objects.insert("secrets".into(), Known::NotYet);
    view.devices = Known::NotYet;
    let plan = planned(&view);
    let expected = expected(&[
        ("secrets", "3"),
        ("gpu.deviceclass.resource.k8s.io/devices", "4"),
        ("requests.example.com/gpu", "5"),
        ("pods", "0"),
    ]);
    assert_eq!(amounts(&written(&plan).unwrap().status.used), expected);
    assert!(plan.retry.unwrap().ends_with("cannot be counted yet: its cache is not synced"));
    // Where the API has no devices, pods can still ask for extended resources.
    view.devices = Known::NotServed;
    view.objects.insert("secrets".into(), Known::Yes(1));
    let plan = planned(&view);
    let used = amounts(&written(&plan).unwrap().status.used);
    assert_eq!((used["secrets"].as_str(), used["requests.example.com/gpu"].as_str()), ("1", "0"));
    assert_eq!((used["gpu.deviceclass.resource.k8s.io/devices"].as_str(), plan.retry), ("4", None));
}

#[test]
fn a_quota_that_limits_nothing_is_left_alone() {
    let plan = planned(&view(quota(&[], |_| {})));
    assert!(plan.steps.is_empty() && plan.requeue_after.is_none());
    let emptied = quota(&[], |quota| quota.status.used = quantities(&[("pods", "1")]));
    assert_eq!(written(&planned(&view(emptied))).unwrap().status.used, Quantities::default());
}

#[test]
fn bytes_that_are_no_quota_are_not_written() {
    let mut broken = (*quota(&[("pods", "5")], |_| {})).clone();
    broken.raw = bytes::Bytes::from_static(&[0x1a, 0x05, 0x01]).into();
    let plan = planned(&view(std::sync::Arc::new(broken)));
    assert!(plan.steps.is_empty() && plan.retry.is_some(), "{plan:?}");
}

//! What holds of any pods, and of any quota.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::view::{Known, View};
use super::fixtures::{asking, hard, planned, pod, quota, requirement, selector, used, view, written};
use coxswain_machinery::api::charge::PodCharge;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::quantity::Quantity;

fn pods() -> impl Strategy<Value = Vec<Arc<Pod>>> {
    let one = (
        prop_oneof![Just("Pending"), Just("Running"), Just("Succeeded"), Just("Failed")],
        0_u32..100_000,
        prop_oneof![Just("m"), Just(""), Just("Ki"), Just("e3"), Just("G")],
        prop_oneof![Just(""), Just("high"), Just("low")],
        any::<[bool; 3]>(),
    );
    let pod = |(phase, number, suffix, class, [terminating, asks, crosses_namespaces]): (
        &str,
        u32,
        &str,
        &str,
        [bool; 3],
    )| {
        let amount = format!("{number}{suffix}");
        let charge = PodCharge {
            priority_class: class.into(),
            terminating,
            asks,
            crosses_namespaces,
            ..asking(&[("cpu", &amount)], &[("cpu", &amount)])
        };
        pod("p", charge, |pod: &mut Pod| pod.status.phase = phase.into())
    };
    proptest::collection::vec(one.prop_map(pod), 0..30)
}

fn names() -> impl Strategy<Value = Vec<&'static str>> {
    let all = vec![
        "pods",
        "count/pods",
        "cpu",
        "limits.cpu",
        "secrets",
        "services",
        "example.com/x",
        "requests.a.b/c",
    ];
    proptest::sample::subsequence(all, 0..8)
}

/// What is used of CPUs in a scope.
fn cpu(pods: &[Arc<Pod>], scope: Option<(&str, &str, &[&str])>) -> Quantity {
    let quota = quota(&hard(&["cpu"]), |quota| {
        let requirement = scope.map(|(scope, operator, values)| requirement(scope, operator, values));
        quota.spec.scope_selector = Some(selector(requirement.into_iter().collect()));
    });
    used(&View { pods: pods.to_vec(), ..view(quota) })["cpu"].parse().unwrap()
}

proptest! {
    /// Two scopes of which each pod is in exactly one share everything out.
    #[test]
    fn opposite_scopes_share_everything_out(pods in pods()) {
        let all = cpu(&pods, None);
        let running = pods.iter().filter(|pod| !pod.is_finished());
        let exact = running.fold(Quantity::ZERO, |sum, pod| sum.plus(pod.charge.requests.of("cpu")));
        prop_assert!(all.equals(exact), "{} {}", all, exact);
        for [one, other] in [
            [("Terminating", "Exists", &[][..]), ("NotTerminating", "Exists", &[])],
            [("BestEffort", "Exists", &[]), ("NotBestEffort", "Exists", &[])],
            [("PriorityClass", "Exists", &[]), ("PriorityClass", "DoesNotExist", &[])],
            [("PriorityClass", "In", &["high"]), ("PriorityClass", "NotIn", &["high"])],
        ] {
            let sum = cpu(&pods, Some(one)).plus(cpu(&pods, Some(other)));
            prop_assert!(sum.equals(all), "{:?} {:?}: {} {}", one, other, sum, all);
        }
    }

    /// A status is written once: what comes of it needs no second write, whatever was there before.
    #[test]
    fn a_status_is_written_once(
        pods in pods(),
        names in names(),
        before in names(),
        secrets in prop_oneof![Just(Known::Yes(3)), Just(Known::NotYet), Just(Known::NotServed)],
    ) {
        let quota = quota(&hard(&names), |quota| {
            quota.status.hard = hard(&before).into_iter().collect();
            quota.status.used = before.iter().map(|name| (*name, "17")).collect();
        });
        let mut view = View { pods, ..view(quota) };
        if let Some(held) = view.objects.get_mut("secrets") {
            *held = secrets;
        }
        if let Some(quota) = written(&planned(&view)) {
            prop_assert_eq!(&quota.status.hard, &quota.spec.hard);
            prop_assert!(quota.status.used.iter().all(|(name, _)| quota.spec.hard.get(name).is_some()));
            view.quota = quota;
            prop_assert!(planned(&view).steps.is_empty());
        }
    }
}

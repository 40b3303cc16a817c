//! What pods are charged with; the amounts were observed of the original with the same pods.

use super::*;
use crate::api::kinds::PODS;
use crate::api::pod::Pod;

fn quantities(amounts: &[(&str, &str)]) -> Quantities {
    amounts.iter().copied().collect()
}

fn resources(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Resources {
    Resources { requests: quantities(requests), limits: quantities(limits) }
}

fn container(name: &str, requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ChargedContainer {
    ChargedContainer {
        name: name.into(),
        resources: resources(requests, limits),
        ..ChargedContainer::default()
    }
}

fn sidecar(name: &str, requests: &[(&str, &str)]) -> ChargedContainer {
    ChargedContainer { restart_policy: "Always".into(), ..container(name, requests, &[]) }
}

fn pod(containers: Vec<ChargedContainer>) -> ChargedPod {
    ChargedPod { spec: ChargedSpec { containers, ..ChargedSpec::default() }, ..ChargedPod::default() }
}

/// As an informer caches it.
fn cached(pod: &ChargedPod) -> Charge {
    let object = (PODS.decode)(&pod.to_bytes().into()).unwrap();
    crate::informer::downcast::<Pod>(object).unwrap().charge.clone()
}

fn written(amounts: &Amounts) -> Vec<(String, String)> {
    amounts.iter().map(|(resource, amount)| (resource.to_string(), amount.to_string())).collect()
}

fn assert_charged(pod: &ChargedPod, requests: &[(&str, &str)], limits: &[(&str, &str)]) {
    let charge = cached(pod);
    let owned = |amounts: &[(&str, &str)]| -> Vec<(String, String)> {
        amounts.iter().map(|(resource, amount)| ((*resource).to_owned(), (*amount).to_owned())).collect()
    };
    assert_eq!((written(&charge.requests), written(&charge.limits)), (owned(requests), owned(limits)));
}

#[test]
fn containers_run_together() {
    let pod = pod(vec![
        container("a", &[("cpu", "100m"), ("memory", "64Mi"), ("example.com/x", "2")], &[("cpu", "1")]),
        container(
            "b",
            &[("cpu", "1900m"), ("ephemeral-storage", "1G")],
            &[("example.com/x", "2"), ("memory", "1Gi")],
        ),
    ]);
    assert_charged(
        &pod,
        &[("cpu", "2"), ("ephemeral-storage", "1G"), ("example.com/x", "2"), ("memory", "64Mi")],
        &[("cpu", "1"), ("memory", "1Gi")],
    );
}

#[test]
fn init_containers_run_beside_the_sidecars_before_them() {
    let mut pod = pod(vec![container("c", &[("cpu", "100m"), ("memory", "100Mi")], &[("cpu", "100m")])]);
    pod.spec.overhead = quantities(&[("cpu", "10m"), ("memory", "1Mi")]);
    pod.spec.init_containers = vec![
        container("i1", &[("cpu", "500m"), ("memory", "10Mi")], &[("cpu", "500m")]),
        sidecar("s1", &[("cpu", "200m"), ("memory", "20Mi")]),
        container("i2", &[("cpu", "400m"), ("memory", "300Mi")], &[]),
    ];
    // The overhead adds to limits that are there only.
    assert_charged(&pod, &[("cpu", "610m"), ("memory", "321Mi")], &[("cpu", "510m")]);
}

#[test]
fn what_is_said_of_the_pod_as_a_whole_wins() {
    let mut pod = pod(vec![
        container("c", &[("cpu", "9"), ("ephemeral-storage", "5Mi")], &[]),
        container("d", &[], &[]),
    ]);
    pod.spec.overhead = quantities(&[("cpu", "10m")]);
    pod.spec.resources = resources(
        &[("cpu", "2"), ("memory", "1Gi"), ("hugepages-2Mi", "2Mi"), ("ephemeral-storage", "1Ti")],
        &[("cpu", "3")],
    );
    assert_charged(
        &pod,
        &[("cpu", "2010m"), ("ephemeral-storage", "5Mi"), ("hugepages-2Mi", "2Mi"), ("memory", "1Gi")],
        &[("cpu", "3010m")],
    );
}

fn status(name: &str, allocated: &[(&str, &str)], resources: Option<Resources>) -> Status {
    Status {
        name: name.into(),
        allocated_resources: quantities(allocated),
        resources: resources.map(Box::new),
    }
}

#[test]
fn a_container_that_is_resized_is_charged_the_most() {
    let whole = |amount: &'static str| [("cpu", amount)];
    let (two, five) = (resources(&whole("2"), &whole("2")), resources(&whole("5"), &whole("5")));
    // What it has, what it was given, whether it can't be resized; its requests and limits then, having asked for three.
    for (has, given, infeasible, requests, limits) in [
        (None, "5", false, "3", "3"),
        (Some(two.clone()), "1", false, "3", "3"),
        (Some(two.clone()), "4", false, "4", "3"),
        (Some(five.clone()), "1", false, "5", "5"),
        (Some(two.clone()), "1", true, "2", "2"),
        (Some(two), "4", true, "4", "2"),
        (Some(five), "1", true, "5", "5"),
    ] {
        let mut pod = pod(vec![container("c", &whole("3"), &whole("3"))]);
        pod.status.container_statuses = vec![status("c", &whole(given), has)];
        let reason = if infeasible { "Infeasible" } else { "Deferred" };
        pod.status.conditions = vec![Condition { r#type: "PodResizePending".into(), reason: reason.into() }];
        assert_charged(&pod, &whole(requests), &whole(limits));
    }
}

#[test]
fn of_init_containers_only_sidecars_are_resized() {
    let mut pod = pod(vec![container("c", &[("cpu", "3")], &[])]);
    pod.spec.init_containers = vec![container("i", &[("cpu", "4")], &[]), sidecar("s", &[("cpu", "1")])];
    let has = |amount| Some(resources(&[("cpu", amount), ("memory", "7Mi")], &[]));
    pod.status.init_container_statuses = vec![status("i", &[], has("50")), status("s", &[], has("2"))];
    assert_charged(&pod, &[("cpu", "5"), ("memory", "7Mi")], &[]);
}

#[test]
fn overhead_is_added_to_requests_of_nothing_and_not_to_limits_of_nothing() {
    let mut pod =
        pod(vec![container("c", &[("cpu", "0"), ("memory", "0")], &[("cpu", "0"), ("memory", "1Gi")])]);
    pod.spec.overhead = quantities(&[("cpu", "10m"), ("memory", "1Mi")]);
    assert_charged(&pod, &[("cpu", "10m"), ("memory", "1Mi")], &[("cpu", "0"), ("memory", "1025Mi")]);
}

#[test]
fn features_that_are_off_charge_nothing() {
    let charged = |pod: &ChargedPod| {
        let charge = cached(pod);
        let of = |amounts: &Amounts| amounts.of("cpu").to_string();
        [(true, true), (false, true), (true, false), (false, false)].map(|(pod_level, in_place)| {
            let rules = ChargeRules { pod_level, in_place };
            (of(charge.requests(rules)), of(charge.limits(rules)))
        })
    };
    let of =
        |amounts: [(&str, &str); 4]| amounts.map(|(asked, allowed)| (asked.to_owned(), allowed.to_owned()));
    let cpu = |amount: &'static str| [("cpu", amount)];
    let plain = || pod(vec![container("c", &cpu("3"), &cpu("5"))]);
    assert_eq!(charged(&plain()), of([("3", "5"); 4]));
    assert_eq!(cached(&plain()).without, None, "it costs nothing where it makes no difference");
    let resized = || {
        let mut pod = plain();
        let has = resources(&cpu("7"), &cpu("9"));
        pod.status.container_statuses = vec![status("c", &cpu("1"), Some(has))];
        pod
    };
    assert_eq!(charged(&resized()), of([("7", "9"), ("7", "9"), ("3", "5"), ("3", "5")]));
    let mut settled = plain();
    settled.status.container_statuses = vec![status("c", &cpu("3"), Some(resources(&cpu("3"), &cpu("5"))))];
    assert_eq!(cached(&settled).without, None);
    let mut whole = resized();
    whole.spec.resources = resources(&cpu("8"), &cpu("8"));
    assert_eq!(charged(&whole), of([("8", "8"), ("7", "9"), ("8", "8"), ("3", "5")]));
}

#[test]
fn what_scopes_tell_pods_apart_by() {
    let charge = |change: &dyn Fn(&mut ChargedPod)| {
        let mut pod = pod(vec![container("c", &[], &[])]);
        change(&mut pod);
        let charge = cached(&pod);
        (charge.terminating, charge.asks, charge.crosses_namespaces, charge.priority_class.to_string())
    };
    assert_eq!(charge(&|_| {}), (false, false, false, String::new()));
    assert_eq!(
        charge(&|pod| pod.spec.active_deadline_seconds = Some(0)),
        (true, false, false, String::new())
    );
    assert_eq!(
        charge(&|pod| pod.spec.priority_class_name = "high".into()),
        (false, false, false, "high".into())
    );
    let asks = |change: &dyn Fn(&mut ChargedPod)| charge(change).1;
    assert!(asks(&|pod| pod.spec.containers[0].resources = resources(&[], &[("cpu", "1")])));
    assert!(asks(&|pod| pod.spec.init_containers = vec![container("i", &[("memory", "1")], &[])]));
    assert!(asks(&|pod| pod.spec.resources = resources(&[("memory", "1")], &[])));
    assert!(!asks(&|pod| pod.spec.containers[0].resources = resources(&[("cpu", "0"), ("a.b/c", "1")], &[])));
    assert!(asks(&|pod| pod.status.qos_class = "Guaranteed".into()));
    assert!(!asks(&|pod| {
        pod.status.qos_class = "BestEffort".into();
        pod.spec.resources = resources(&[("memory", "1")], &[]);
    }));
    let elsewhere = AffinityTerm { namespaces: vec!["other".into()], namespace_selector: None };
    let anywhere = AffinityTerm { namespaces: Vec::new(), namespace_selector: Some(Box::default()) };
    let crosses = |change: &dyn Fn(&mut Affinity)| charge(&|pod| change(&mut pod.spec.affinity)).2;
    let required = |term: &AffinityTerm| PodAffinity {
        required_during_scheduling_ignored_during_execution: vec![term.clone()],
        ..PodAffinity::default()
    };
    let preferred = |term: &AffinityTerm| PodAffinity {
        preferred_during_scheduling_ignored_during_execution: vec![WeightedTerm {
            pod_affinity_term: term.clone(),
        }],
        ..PodAffinity::default()
    };
    assert!(crosses(&|affinity| affinity.pod_affinity = required(&elsewhere)));
    assert!(crosses(&|affinity| affinity.pod_anti_affinity = preferred(&anywhere)));
    assert!(!crosses(&|affinity| affinity.pod_affinity = preferred(&AffinityTerm::default())));
}

#[test]
fn pods_of_one_sort_share_their_charge() {
    let one = pod(vec![container("c", &[("cpu", "100m")], &[])]);
    let other = pod(vec![container("c", &[("cpu", "200m")], &[])]);
    assert!(cached(&one).is_same(&cached(&one)));
    assert!(!cached(&one).is_same(&cached(&other)));
    assert!(!cached(&one).is_same(&Charge::default()) && Charge::default().is_same(&Charge::default()));
    assert_eq!(*Charge::default(), PodCharge::default());
    assert!(Charge::default().requests.of("cpu").is_zero());
}

#[test]
fn what_is_no_amount_counts_nothing() {
    assert_charged(
        &pod(vec![container("c", &[("cpu", "lots"), ("memory", "1")], &[])]),
        &[("memory", "1")],
        &[],
    );
}

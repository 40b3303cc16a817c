//! What each name in `spec.hard` counts. The amounts were observed of the original.

use std::sync::Arc;

use super::super::Gates;
use super::fixtures::{
    NOW, asking, device_claim, devices, exactly, expected, first_of, hard, made_for, meta, planned, pod,
    quantities, quota, requirement, selector, service, used, view, volume_claim, written,
};
use coxswain_machinery::api::charge::{ChargeRules, PodCharge};
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::meta::OwnerReference;
use coxswain_machinery::api::pod::{Pod, PodExtendedResourceClaimStatus};
use coxswain_machinery::api::resource::ResourceClaim;
use coxswain_machinery::informer::downcast;
use coxswain_machinery::wire::splice::put_bytes;
use coxswain_machinery::wire::{Message as _, Str, Time};

#[test]
fn pods_are_counted_by_what_they_ask_for() {
    let names = [
        "count/pods",
        "pods",
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "hugepages-2Mi",
        "requests.hugepages-2Mi",
        "requests.example.com/gpu",
    ];
    let mut view = view(quota(&hard(&names), |_| {}));
    let one = asking(
        &[("cpu", "1500m"), ("memory", "64Mi"), ("ephemeral-storage", "1G"), ("hugepages-2Mi", "4Mi")],
        &[("cpu", "2"), ("ephemeral-storage", "2G")],
    );
    let other = asking(&[("cpu", "500m"), ("memory", "1Gi"), ("example.com/gpu", "2")], &[("memory", "1Gi")]);
    view.pods = vec![
        pod("a", one.clone(), |_| {}),
        pod("b", other, |pod| pod.status.phase = "Pending".into()),
        pod("c", one.clone(), |pod| pod.status.phase = "Succeeded".into()),
        pod("d", one, |pod| pod.status.phase = "Failed".into()),
    ];
    let expected = expected(&[
        ("count/pods", "4"),
        ("pods", "2"),
        ("cpu", "2"),
        ("memory", "1088Mi"),
        ("ephemeral-storage", "1G"),
        ("requests.cpu", "2"),
        ("requests.memory", "1088Mi"),
        ("requests.ephemeral-storage", "1G"),
        ("limits.cpu", "2"),
        ("limits.memory", "1Gi"),
        ("limits.ephemeral-storage", "2G"),
        ("hugepages-2Mi", "4Mi"),
        ("requests.hugepages-2Mi", "4Mi"),
        ("requests.example.com/gpu", "2"),
    ]);
    assert_eq!(used(&view), expected);
}

#[test]
fn pods_of_any_bytes_are_counted_like_others() {
    let byte = Str::of_bytes(b"\xff");
    let mut whole = Pod { metadata: meta("a"), ..Pod::default() };
    whole.metadata.annotations = [(Str::from("a"), byte.clone())].into_iter().collect();
    whole.metadata.owner_references =
        vec![OwnerReference { name: byte.clone(), uid: byte.into(), ..OwnerReference::default() }];
    let mut encoded = whole.to_bytes();
    // `imagePullSecrets: [{name: "\xff"}]`
    put_bytes(&mut encoded, 2, &[15 << 3 | 2, 3, 10, 1, 0xff]);
    let mut view = view(quota(&hard(&["pods", "count/pods"]), |_| {}));
    view.pods = vec![downcast((PODS.decode)(&encoded.into()).unwrap()).unwrap()];
    assert_eq!(used(&view), expected(&[("pods", "1"), ("count/pods", "1")]));
}

/// A pod that should have gone counts for its grace period once more, and then its node is held to be lost.
#[test]
fn a_pod_that_should_have_gone_long_ago_does_not_count() {
    for (deleted, grace, counts, again) in [
        (NOW - 31, Some(30), "0", None),
        (NOW - 30, Some(30), "1", Some(1)),
        (NOW - 20, Some(30), "1", Some(11)),
        (NOW + 30, Some(30), "1", Some(61)),
        (NOW - 900, None, "1", None),
    ] {
        let mut view = view(quota(&hard(&["pods", "count/pods"]), |_| {}));
        view.pods = vec![pod("a", asking(&[], &[]), |pod| {
            pod.metadata.deletion_timestamp = Time::from_seconds(deleted);
            pod.metadata.deletion_grace_period_seconds = grace;
        })];
        assert_eq!(used(&view), expected(&[("pods", counts), ("count/pods", "1")]), "{deleted}");
        // What was written does not matter for when it is lost.
        view.quota = written(&planned(&view)).unwrap();
        assert_eq!(planned(&view).requeue_after.map(|after| after.as_secs()), again, "{deleted}");
    }
}

#[test]
fn services_are_counted_with_what_they_take() {
    let names = ["services", "count/services", "services.nodeports", "services.loadbalancers"];
    let mut view = view(quota(&hard(&names), |_| {}));
    view.services = vec![
        service("ClusterIP", &[0, 0], None),
        service("ExternalName", &[], None),
        service("NodePort", &[30001, 30002], None),
        service("LoadBalancer", &[30003, 30004, 30005], Some(true)),
        service("LoadBalancer", &[0, 30006], Some(false)),
    ];
    let expected = expected(&[
        ("services", "5"),
        ("count/services", "5"),
        ("services.nodeports", "6"),
        ("services.loadbalancers", "2"),
    ]);
    assert_eq!(used(&view), expected);
}

#[test]
fn volume_claims_are_counted_by_storage_and_class() {
    let names = [
        "persistentvolumeclaims",
        "count/persistentvolumeclaims",
        "requests.storage",
        "fast.storageclass.storage.k8s.io/requests.storage",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims",
        "old.storageclass.storage.k8s.io/requests.storage",
        "no.storageclass.storage.k8s.io/requests.storage",
    ];
    let mut view = view(quota(&hard(&names), |_| {}));
    let annotated = |class: &str| [("volume.beta.kubernetes.io/storage-class", class)].into_iter().collect();
    view.volume_claims = vec![
        volume_claim("a", "10Gi", |claim| claim.spec.storage_class_name = Some("fast".into())),
        volume_claim("b", "1500m", |claim| claim.metadata.annotations = annotated("old")),
        volume_claim("c", "3G", |claim| claim.spec.storage_class_name = Some("".into())),
        volume_claim("d", "1Gi", |claim| {
            claim.spec.storage_class_name = Some("fast".into());
            claim.status.allocated_resources = quantities(&[("storage", "7Gi")]);
        }),
        volume_claim("e", "1Gi", |claim| {
            claim.spec.storage_class_name = Some("fast".into());
            claim.metadata.annotations = annotated("");
            claim.status.allocated_resources = quantities(&[("storage", "1Mi")]);
        }),
    ];
    let expected = expected(&[
        ("persistentvolumeclaims", "5"),
        ("count/persistentvolumeclaims", "5"),
        ("requests.storage", "22327352834"),
        ("fast.storageclass.storage.k8s.io/requests.storage", "17Gi"),
        ("fast.storageclass.storage.k8s.io/persistentvolumeclaims", "2"),
        ("old.storageclass.storage.k8s.io/requests.storage", "2"),
        ("no.storageclass.storage.k8s.io/requests.storage", "0"),
    ]);
    assert_eq!(used(&view), expected);
}

#[test]
fn devices_are_counted_by_class_at_their_most() {
    let names = [
        "count/resourceclaims.resource.k8s.io",
        "gpu.deviceclass.resource.k8s.io/devices",
        "all.deviceclass.resource.k8s.io/devices",
        "big.deviceclass.resource.k8s.io/devices",
        "none.deviceclass.resource.k8s.io/devices",
        "requests.deviceclass.resource.kubernetes.io/gpu",
        "requests.deviceclass.resource.kubernetes.io/big",
        "requests.example.com/gpu",
    ];
    let mut view = view(quota(&hard(&names), |_| {}));
    let claims = vec![
        device_claim("a", vec![exactly("gpu", "ExactCount", 2)]),
        device_claim("b", vec![exactly("all", "All", 0), exactly("gpu", "LaterMode", 9)]),
        device_claim(
            "c",
            vec![
                first_of(&[
                    ("gpu", "ExactCount", 300),
                    ("big", "ExactCount", 500),
                    ("big", "ExactCount", 700),
                ]),
                exactly("big", "ExactCount", 10_000),
            ],
        ),
        device_claim("d", vec![first_of(&[("gpu", "ExactCount", 30), ("gpu2", "ExactCount", 50)])]),
    ];
    view.devices = devices(claims, &[("gpu", "example.com/gpu"), ("gpu2", "example.com/gpu")]);
    view.pods = vec![pod(
        "p",
        asking(&[("example.com/gpu", "1000"), ("deviceclass.resource.kubernetes.io/gpu", "2000")], &[]),
        |_| {},
    )];
    let mut counted = expected(&[
        ("count/resourceclaims.resource.k8s.io", "4"),
        ("gpu.deviceclass.resource.k8s.io/devices", "332"),
        ("all.deviceclass.resource.k8s.io/devices", "32"),
        ("big.deviceclass.resource.k8s.io/devices", "10700"),
        ("none.deviceclass.resource.k8s.io/devices", "0"),
        ("requests.deviceclass.resource.kubernetes.io/gpu", "2332"),
        ("requests.deviceclass.resource.kubernetes.io/big", "10700"),
        ("requests.example.com/gpu", "1352"),
    ]);
    assert_eq!(used(&view), counted);
    // Without the gate, only pods ask for extended resources.
    view.gates.extended = false;
    for (name, amount) in [
        ("requests.deviceclass.resource.kubernetes.io/gpu", "2k"),
        ("requests.deviceclass.resource.kubernetes.io/big", "0"),
        ("requests.example.com/gpu", "1k"),
    ] {
        counted.insert(name.to_owned(), amount.to_owned());
    }
    assert_eq!(used(&view), counted);
}

/// What pods ask for as extended resources, and the claims that the scheduler makes of that.
#[test]
fn what_is_claimed_for_a_pod_is_not_counted_twice() {
    let asks = |resource: &'static str, amount: &'static str| asking(&[(resource, amount)], &[]);
    let (explicit, implicit) = ("example.com/k1", "deviceclass.resource.kubernetes.io/k1");
    // What the pod asks for, the class and number of the claim, what is used of both.
    for (pod_asks, class, claimed, expected_explicit, expected_implicit) in [
        (asks(explicit, "10"), "k1", 4, "10", "4"),
        (asks(explicit, "10"), "k1", 100, "100", "100"),
        (asks(implicit, "10"), "k1", 4, "4", "10"),
        (asks("cpu", "1"), "k1", 4, "4", "4"),
        (asks(explicit, "10"), "k2", 4, "10", "0"),
    ] {
        let names = ["requests.example.com/k1", "requests.deviceclass.resource.kubernetes.io/k1"];
        let mut view = view(quota(&hard(&names), |_| {}));
        let pod = pod("p", pod_asks, |_| {});
        let claim = made_for(&pod, device_claim("c", vec![exactly(class, "ExactCount", claimed)]));
        view.devices = devices(vec![claim], &[("k1", "example.com/k1"), ("k2", "example.com/k2")]);
        view.pods = vec![pod];
        assert_eq!(used(&view), expected(&[(names[0], expected_explicit), (names[1], expected_implicit)]));
    }
    // A pod that has ended asks for nothing, and a claim of its own is another matter.
    for (phase, is_made, expected_amount) in [("Failed", true, "4"), ("Running", false, "14")] {
        let mut view = view(quota(&hard(&["requests.example.com/k1"]), |_| {}));
        let pod = pod("p", asks(explicit, "10"), |pod| pod.status.phase = phase.into());
        let mut claim = made_for(&pod, device_claim("c", vec![exactly("k1", "ExactCount", 4)]));
        if !is_made {
            claim.metadata.annotations = [("other", "true")].into_iter().collect();
        }
        view.devices = devices(vec![claim], &[("k1", "example.com/k1")]);
        view.pods = vec![pod];
        assert_eq!(used(&view), expected(&[("requests.example.com/k1", expected_amount)]));
    }
}

/// Claims by their names, with what they ask for.
type Claims = &'static [(&'static str, i64)];

/// Anybody can write a claim that says so.
#[test]
fn of_claims_that_say_that_they_were_made_for_a_pod_one_is_believed() {
    // The pod asks for ten; claims by their names, with what they ask for; what the pod's status names; what is used.
    let table: [(Claims, Option<&str>, &str); 7] = [
        (&[("c", 7)], None, "10"),
        (&[("c", 15)], None, "15"),
        (&[("c", 7), ("d", 7)], None, "17"),
        (&[("d", 2), ("c", 7)], None, "12"),
        (&[("c", 7)], Some("c"), "10"),
        (&[("c", 7)], Some("another"), "17"),
        (&[("c", 2), ("d", 7)], Some("d"), "12"),
    ];
    let asks = || asking(&[("deviceclass.resource.kubernetes.io/gpu", "10")], &[]);
    let count = |claims: Vec<ResourceClaim>, pod: Arc<Pod>| {
        let mut view = view(quota(&hard(&["requests.deviceclass.resource.kubernetes.io/gpu"]), |_| {}));
        view.devices = devices(claims, &[]);
        view.pods = vec![pod];
        used(&view)
    };
    let total = |amount| expected(&[("requests.deviceclass.resource.kubernetes.io/gpu", amount)]);
    for (claims, named, amount) in table {
        let pod = pod("p", asks(), |pod| {
            let status = |name: &str| PodExtendedResourceClaimStatus { resource_claim_name: name.into() };
            pod.status.extended_resource_claim_status = named.map(status).map(Box::new);
        });
        let claim = |(name, count): &(&str, i64)| {
            made_for(&pod, device_claim(name, vec![exactly("gpu", "ExactCount", *count)]))
        };
        let made = claims.iter().map(claim).collect();
        assert_eq!(count(made, Arc::clone(&pod)), total(amount), "{claims:?}");
    }
    let pod_of_ten = || pod("p", asks(), |_| {});
    // Its owner has the pod's UID and another name.
    let pod = pod_of_ten();
    let mut claim = made_for(&pod, device_claim("c", vec![exactly("gpu", "ExactCount", 7)]));
    claim.metadata.owner_references[0].name = "other".into();
    assert_eq!(count(vec![claim], pod), total("17"));
    // Or it is no Pod of the core group.
    let pod = pod_of_ten();
    let mut claim = made_for(&pod, device_claim("c", vec![exactly("gpu", "ExactCount", 7)]));
    claim.metadata.owner_references[0].api_version = "example.com/v1".into();
    assert_eq!(count(vec![claim], pod), total("17"));
    // The oldest is believed, and not the first by name.
    let pod = pod_of_ten();
    let aged = |name: &str, asks: i64, created: i64| {
        let mut claim = made_for(&pod, device_claim(name, vec![exactly("gpu", "ExactCount", asks)]));
        claim.metadata.creation_timestamp = coxswain_machinery::wire::Time::from_seconds(created);
        claim
    };
    assert_eq!(count(vec![aged("c", 7, 20), aged("d", 2, 10)], Arc::clone(&pod)), total("17"));
    assert_eq!(count(vec![aged("c", 7, 10), aged("d", 2, 10)], Arc::clone(&pod)), total("12"));
}

#[test]
fn each_gate_has_its_feature() {
    let all = Gates::default();
    let charge = |pod_level, in_place| Gates { charge: ChargeRules { pod_level, in_place }, ..all };
    for (off, gates) in [
        ("", all),
        ("DynamicResourceAllocation", Gates { devices: false, ..all }),
        ("DRAExtendedResource", Gates { extended: false, ..all }),
        ("VolumeAttributesClass", Gates { attributes_classes: false, ..all }),
        ("RecoverVolumeExpansionFailure", Gates { set_aside: false, ..all }),
        ("PodLevelResources", charge(false, true)),
        ("InPlacePodVerticalScaling", charge(true, false)),
    ] {
        assert_eq!(Gates::read(&|gate| gate != off), gates, "{off}");
    }
}

/// What the Go manager counted with each of these features off, some of them by an older version's rules.
#[test]
fn what_counts_only_where_a_feature_is_on_does_not_count_without_it() {
    let names = [
        "cpu",
        "limits.cpu",
        "requests.storage",
        "gpu.deviceclass.resource.k8s.io/devices",
        "count/resourceclaims.resource.k8s.io",
        "requests.example.com/gpu",
    ];
    let counted = |gates: Gates, in_scope: bool| {
        let quota = quota(&hard(&names), |quota| {
            if in_scope {
                let requirement = requirement("VolumeAttributesClass", "In", &["gold"]);
                quota.spec.scope_selector = Some(selector(vec![requirement]));
            }
        });
        let mut view = view(quota);
        view.gates = gates;
        let whole = asking(&[("cpu", "5")], &[("cpu", "6")]);
        let without = [("3", "7"), ("2", "4"), ("1", "1")].map(|(requests, limits)| {
            let charge = asking(&[("cpu", requests)], &[("cpu", limits)]);
            (charge.requests, charge.limits)
        });
        let charge = PodCharge { without: Some(Box::new(without.into())), ..whole };
        view.pods = vec![pod("p", charge, |_| {})];
        view.volume_claims = vec![volume_claim("v", "1Gi", |claim| {
            claim.spec.volume_attributes_class_name = "gold".into();
            claim.status.allocated_resources = quantities(&[("storage", "5Gi")]);
        })];
        let claim = device_claim("c", vec![exactly("gpu", "ExactCount", 7)]);
        view.devices = devices(vec![claim], &[("gpu", "example.com/gpu")]);
        let used = used(&view);
        names.map(|name| used.get(name).cloned().unwrap_or_default())
    };
    let all = Gates::default();
    let charge = |pod_level, in_place| Gates { charge: ChargeRules { pod_level, in_place }, ..all };
    for (gates, used) in [
        (all, ["5", "6", "5Gi", "7", "1", "7"]),
        (charge(false, true), ["3", "7", "5Gi", "7", "1", "7"]),
        (charge(true, false), ["2", "4", "5Gi", "7", "1", "7"]),
        (charge(false, false), ["1", "1", "5Gi", "7", "1", "7"]),
        (Gates { set_aside: false, ..all }, ["5", "6", "1Gi", "7", "1", "7"]),
        (Gates { extended: false, ..all }, ["5", "6", "5Gi", "7", "1", "0"]),
        // Claims are objects like all others then; nobody knows what devices are.
        (Gates { devices: false, extended: false, ..all }, ["5", "6", "5Gi", "", "1", "0"]),
    ] {
        assert_eq!(counted(gates, false), used, "{gates:?}");
    }
    assert_eq!(counted(all, true)[2], "5Gi");
    assert_eq!(counted(Gates { attributes_classes: false, ..all }, true)[2], "0");
}

#[test]
fn names_that_mean_nothing_count_nothing() {
    use super::super::measure::measures;
    for name in [
        "",
        "example.com/x",
        "requests.",
        "requests.x",
        "limits.x",
        "limits.hugepages-2Mi",
        "limits.example.com/x",
        "requests.kubernetes.io/x",
        "requests.sub.kubernetes.io/x",
        "nodes",
        "cpus",
        "services.x",
    ] {
        assert!(measures(name).is_empty(), "{name}");
    }
}

#[test]
fn objects_are_named_by_resource_and_group() {
    use super::super::measure::{Measure, Resource, measures};
    for (name, resource, group) in [
        ("count/deployments.apps", "deployments", "apps"),
        ("count/foos.sub.example.com", "foos", "sub.example.com"),
        ("count/secrets", "secrets", ""),
        ("secrets", "secrets", ""),
        ("count/pods.metrics.k8s.io", "pods", "metrics.k8s.io"),
    ] {
        let expected = Measure::Objects(Resource { group, name: resource });
        assert_eq!(measures(name).to_vec(), [expected], "{name}");
    }
}

//! What each name in `spec.hard` counts. The amounts were observed of the original.

use super::fixtures::{
    NOW, asking, device_claim, devices, exactly, expected, first_of, hard, made_for, planned, pod,
    quantities, quota, service, used, view, volume_claim, written,
};
use crate::wire::Time;

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
    view.extended = false;
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

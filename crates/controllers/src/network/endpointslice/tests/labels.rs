//! What a slice says about itself.

use super::fixtures::{Bench, labels, pod, service};

fn labeled(pairs: &[(&str, &str)]) -> coxswain_machinery::api::core::Service {
    service(|service| service.metadata.labels = labels(pairs))
}

#[test]
fn a_slice_has_the_labels_of_its_service_and_its_own() {
    let forged = [
        ("team", "x"),
        ("kubernetes.io/service-name", "other"),
        ("endpointslice.kubernetes.io/managed-by", "other"),
        ("service.kubernetes.io/headless", "yes"),
    ];
    let bench = Bench::of(&labeled(&forged), [pod(1, |_| {})]);
    bench.settled();
    let slice = bench.slice("web-2");
    assert_eq!(
        slice.metadata.labels,
        labels(&[
            ("team", "x"),
            ("kubernetes.io/service-name", "web"),
            ("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"),
        ])
    );
    assert_eq!(slice.metadata.generate_name, "web-");
    let owner = slice.metadata.controller().unwrap();
    assert_eq!(
        [&owner.api_version, &owner.kind, &owner.name, &owner.uid.to_str()],
        ["v1", "Service", "web", "web-uid"]
    );
    assert_eq!(owner.block_owner_deletion, Some(true));
}

#[test]
fn labels_follow_the_service() {
    for pods in [0..0, 1..5] {
        let count = pods.len().div_ceil(3).max(1);
        let bench = Bench::of(&labeled(&[("a", "1"), ("b", "1")]), pods.map(|number| pod(number, |_| {})));
        bench.settled();
        let before = bench.told();
        bench.add(&labeled(&[("a", "2"), ("c", "1")]));
        let told = bench.reconcile();
        assert_eq!(told.len(), count, "{told:?}");
        assert!(told.iter().all(|line| line.starts_with("update")), "{told:?}");
        assert_eq!(bench.told(), before);
        assert!(bench.plan().is_empty());
        for slice in bench.all() {
            let get = |label| slice.metadata.labels.get(label).map(|value| value.as_str().to_owned());
            assert_eq!(
                (get("a").as_deref(), get("b").as_deref(), get("c").as_deref()),
                (Some("2"), None, Some("1"))
            );
            assert_eq!(slice.metadata.labels.len(), 4);
        }
    }
}

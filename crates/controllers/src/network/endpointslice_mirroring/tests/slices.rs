//! Which slices there are, and what is in them.

use super::fixtures::{Bench, addresses, endpoints, labels, subset};
use coxswain_machinery::api::core::ObjectReference;
use coxswain_machinery::framework::ObserveError;
use coxswain_machinery::model::Step;
use coxswain_machinery::wire::Value;
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes, retain_items};

#[test]
fn each_subset_and_family_is_a_slice() {
    let bench = Bench::of(&[
        subset(&["10.0.0.9", "fd00::1"], &["10.0.0.1"], &[80, 81]),
        // The same ports in another order; the same address at another port; no ports.
        subset(&["10.0.0.2"], &[], &[81, 80]),
        subset(&["10.0.0.9"], &[], &[7]),
        subset(&["10.0.0.7"], &[], &[]),
        subset(&[], &[], &[9]),
    ]);
    assert_eq!(
        bench.settled(),
        [
            "web-2 IPv4 : 10.0.0.7",
            "web-3 IPv4 7: 10.0.0.9",
            "web-4 IPv4 80,81: 10.0.0.1! 10.0.0.2 10.0.0.9",
            "web-5 IPv6 80,81: fd00::1",
        ]
    );
}

#[test]
fn addresses_are_spelled_in_one_way() {
    let bench = Bench::of(&[
        subset(&["fd00::0", "FD00:0::A", "010.0.0.001"], &[], &[80]),
        // The same in another way, which takes no traffic, and one that looks like another family's.
        subset(&["::ffff:10.0.0.2", "::ffff:010.0.0.3"], &["fd00::a"], &[81]),
        subset(&["fd00::b"], &["FD00::B"], &[82]),
    ]);
    let slices = [
        "web-2 IPv4 80: 10.0.0.1",
        "web-3 IPv4 81: 10.0.0.2 10.0.0.3",
        "web-4 IPv6 80: fd00:: fd00::a",
        "web-5 IPv6 81: fd00::a!",
        "web-6 IPv6 82: fd00::b!",
    ];
    assert_eq!(bench.settled(), slices);
    assert_eq!(bench.count().skipped, 0);
    for none in [
        "",
        ".",
        "10.0.0",
        "10.0.0.1.2",
        "10.0.0.256",
        "10.0.0.+1",
        "10.0..1",
        "fd00::1::",
        "::ffff:10.0.0",
        "fd00::g",
        "a",
    ] {
        let bench = Bench::of(&[subset(&[none], &[], &[80])]);
        bench.settled();
        assert_eq!(bench.count().skipped, 1, "{none:?}");
    }
}

#[test]
fn an_endpoint_says_what_its_address_says() {
    let mut web = subset(&["10.0.0.1", "10.0.0.2"], &["10.0.0.3"], &[80]);
    web.ready[0].hostname = "one".into();
    web.ready[0].node_name = Some("node-1".into());
    let target = ObjectReference {
        kind: "Pod".into(),
        name: "p".into(),
        uid: "u".into(),
        ..ObjectReference::default()
    };
    web.ready[0].target_ref = Some(Box::new(target.clone()));
    web.ports[0].name = "http".into();
    web.ports[0].app_protocol = Some("grpc".into());
    let bench = Bench::of(&[web]);
    bench.settled();
    let slice = bench.slice("web-2");
    let port = &slice.ports[0];
    assert_eq!(
        (port.name.as_deref(), port.protocol.as_deref(), port.port, port.app_protocol.as_deref()),
        (Some("http"), Some("TCP"), Some(80), Some("grpc"))
    );
    let endpoints: Vec<_> = slice.endpoints().unwrap().into_iter().map(|(endpoint, _)| endpoint).collect();
    let one = endpoints.iter().find(|each| each.target_ref.is_some()).unwrap();
    assert_eq!((one.hostname.as_deref(), one.node_name.as_deref()), (Some("one"), Some("node-1")));
    assert_eq!(one.target_ref.as_deref(), Some(&target));
    for endpoint in &endpoints {
        assert_eq!((endpoint.conditions.serving, endpoint.conditions.terminating), (None, None));
        let is_plain = (&endpoint.hostname, &endpoint.node_name) == (&None, &None);
        assert_eq!(is_plain, endpoint.target_ref.is_none());
    }
    let owner = &slice.metadata.owner_references[0];
    assert_eq!(
        (owner.kind.as_str(), owner.api_version.as_str(), &*owner.uid.to_str(), owner.controller),
        ("Endpoints", "v1", "web-uid", Some(true))
    );
}

#[test]
fn labels_and_annotations_are_mirrored() {
    let bench = Bench::of(&[subset(&["10.0.0.1"], &[], &[80])]);
    let of = |with_labels: &[(&str, &str)], annotations: &[(&str, &str)]| {
        bench.put(endpoints(&[subset(&["10.0.0.1"], &[], &[80])], |endpoints| {
            endpoints.metadata.labels = labels(with_labels);
            endpoints.metadata.annotations = labels(annotations);
        }));
        bench.settled();
        let slice = bench.slice("web-2");
        (slice.metadata.labels.clone(), slice.metadata.annotations.clone())
    };
    let ours = [
        ("endpointslice.kubernetes.io/managed-by", "endpointslicemirroring-controller.k8s.io"),
        ("kubernetes.io/service-name", "web"),
    ];
    let (held, annotations) = of(
        &[
            ("a", "1"),
            ("service.kubernetes.io/headless", ""),
            ("endpointslice.kubernetes.io/managed-by", "me"),
            ("kubernetes.io/service-name", "other"),
        ],
        &[
            ("b", "2"),
            ("endpoints.kubernetes.io/over-capacity", "truncated"),
            ("endpoints.kubernetes.io/last-change-trigger-time", "2026-01-01T00:00:00Z"),
            ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
        ],
    );
    let copied = [("a", "1"), ("service.kubernetes.io/headless", "")];
    assert_eq!(held, ours.into_iter().chain(copied).collect());
    assert_eq!(annotations, labels(&[("b", "2"), ("endpoints.kubernetes.io/over-capacity", "truncated")]));
    let (held, annotations) = of(&[("a", "2")], &[("c", "3")]);
    assert_eq!(held, ours.into_iter().chain([("a", "2")]).collect());
    assert_eq!(annotations, labels(&[("c", "3")]));
    // What somebody has added to the slice goes.
    let slice = bench.slice("web-2");
    bench.slices.put(edit(&slice.raw, &[Edit::MapSet(&[1, 11], "mine".into(), "1".into())]).unwrap());
    assert_eq!(bench.reconcile(), ["update web-2"]);
    assert_eq!(bench.slice("web-2").metadata.labels, slice.metadata.labels);
}

#[test]
fn slices_are_used_again() {
    let bench = Bench::of(&[subset(&["10.0.0.1"], &[], &[80]), subset(&["fd00::1"], &[], &[81])]);
    bench.settled();
    let to = |subsets: &[_]| {
        bench.put(endpoints(subsets, |_| {}));
        let told = bench.reconcile();
        (told, bench.settled())
    };
    // Of other ports, but not of another family.
    let (told, slices) = to(&[subset(&["10.0.0.1"], &[], &[90]), subset(&["fd00::1"], &[], &[81])]);
    assert_eq!(told, ["update web-2"]);
    assert_eq!(slices, ["web-2 IPv4 90: 10.0.0.1", "web-3 IPv6 81: fd00::1"]);
    let (told, _) = to(&[subset(&["fd00::2"], &[], &[90])]);
    assert_eq!(told, ["update web-3", "delete web-2"]);
    let (told, _) = to(&[subset(&["10.0.0.1"], &[], &[90])]);
    assert_eq!(told, ["create web-7", "delete web-3"]);
}

#[test]
fn only_what_changed_is_written() {
    let bench =
        Bench::of(&[subset(&["10.0.0.1", "10.0.0.2"], &[], &[80]), subset(&["10.0.0.1"], &[], &[81])]);
    bench.settled();
    let to = |subsets: &[_]| {
        bench.put(endpoints(subsets, |_| {}));
        bench.reconcile()
    };
    let other = || subset(&["10.0.0.1"], &[], &[81]);
    assert_eq!(to(&[other(), subset(&["10.0.0.2", "10.0.0.1"], &[], &[80])]), [""; 0]);
    assert_eq!(to(&[subset(&["10.0.0.1"], &["10.0.0.2"], &[80]), other()]), ["update web-2"]);
    assert_eq!(to(&[subset(&["10.0.0.1", "10.0.0.3"], &["10.0.0.2"], &[80]), other()]), ["update web-2"]);
    // Those that stay keep their places.
    assert_eq!(bench.told()[0], "web-2 IPv4 80: 10.0.0.1 10.0.0.2! 10.0.0.3");
}

#[test]
fn a_refused_slice_is_in_nobodys_way() {
    let bench = Bench::of(&[subset(&["10.0.0.1", "10.0.0.2"], &[], &[80]), subset(&["10.0.0.7"], &[], &[7])]);
    bench.settled();
    // Another family is new, one subset is gone, and an address goes.
    bench.put(endpoints(&[subset(&["10.0.0.1", "fd00::1"], &[], &[80])], |_| {}));
    let plan = bench.plan().unwrap();
    let [Step::Each(writes)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert_eq!(writes.len(), 3);
    // An address has other ports: it is not taken out of its slice before it is in the other.
    let bench = Bench::of(&[subset(&["10.0.0.1", "10.0.0.2"], &[], &[80])]);
    bench.settled();
    bench.put(endpoints(&[subset(&["10.0.0.1"], &[], &[80]), subset(&["10.0.0.2"], &[], &[81])], |_| {}));
    let plan = bench.plan().unwrap();
    let [Step::Chains { chains, slow_start: false }] = plan.steps.as_slice() else { panic!("{plan:?}") };
    let verbs: Vec<Vec<&str>> =
        chains.iter().map(|chain| chain.iter().map(|write| write.verb.name()).collect()).collect();
    assert_eq!(verbs, [vec!["create", "update"]]);
}

#[test]
fn what_is_too_much_is_skipped_and_told() {
    let bench = Bench::of(&[
        subset(&["10.0.0.1", "10.0.0.2", "10.0.0.3"], &["10.0.0.4", "10.0.0.5", "fd00::6"], &[80]),
        subset(&["10.0.0.1"], &[], &[81]),
    ]);
    let skipped = "TooManyAddressesToMirror: A max of 5 addresses can be mirrored to EndpointSlices per \
                   Endpoints subset. 1 addresses were skipped";
    assert_eq!(bench.reconcile(), [skipped, "create web-2", "create web-3"]);
    assert_eq!(
        bench.settled(),
        ["web-2 IPv4 80: 10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4! 10.0.0.5!", "web-3 IPv4 81: 10.0.0.1"]
    );
    // It is told with what is written, not again and again.
    assert_eq!(bench.reconcile(), [""; 0]);
}

#[test]
fn mirroring_event_about_too_many_addresses_counts_invalid_ones() {
    let ips = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"];
    let events = Bench::of(&[subset(&ips, &["here"], &[80])]).reconcile();
    assert_eq!(
        events[1],
        "TooManyAddressesToMirror: A max of 5 addresses can be mirrored to EndpointSlices per Endpoints subset. \
         2 addresses were skipped"
    );
}

#[test]
fn what_is_no_address_is_skipped_and_told() {
    let bench = Bench::of(&[subset(&["10.0.0.1", "10.0.0.256"], &["here"], &[80])]);
    let skipped = "InvalidIPAddress: Skipped 2 invalid IP addresses when mirroring to EndpointSlices";
    assert_eq!(bench.reconcile(), [skipped, "create web-2"]);
    assert_eq!(bench.settled(), ["web-2 IPv4 80: 10.0.0.1"]);
    let nothing = Bench::of(&[subset(&["here"], &[], &[80])]);
    assert_eq!(
        nothing.reconcile(),
        ["InvalidIPAddress: Skipped 1 invalid IP addresses when mirroring to EndpointSlices"]
    );
}

#[test]
fn unknown_fields_stay() {
    let bench = Bench::of(&[subset(&["10.0.0.1", "10.0.0.2"], &[], &[80])]);
    bench.settled();
    let slice = bench.slice("web-2");
    let mut body = retain_items(&slice.raw, 2, |_| false).unwrap();
    put_bytes(&mut body, 99, b"slice");
    for (_, endpoint) in slice.endpoints().unwrap() {
        // What nobody mirrors: a zone, and what is newer than we.
        let edits = [Edit::SetBytes(&[7], b"zone-1".to_vec()), Edit::SetBytes(&[77], b"endpoint".to_vec())];
        put_bytes(&mut body, 2, &edit(&endpoint, &edits).unwrap());
    }
    bench.slices.put(body);
    assert_eq!(bench.reconcile(), [""; 0]);
    let mut changed = subset(&["10.0.0.1"], &[], &[80]);
    changed.not_ready = addresses(&["10.0.0.2", "10.0.0.3"]);
    bench.put(endpoints(&[changed], |_| {}));
    assert_eq!(bench.settled(), ["web-2 IPv4 80: 10.0.0.1 10.0.0.2! 10.0.0.3!"]);
    let slice = bench.slice("web-2");
    assert_eq!(get(&slice.raw, &[99]).unwrap(), Some(Value::Bytes(b"slice")));
    let kept = slice
        .endpoints()
        .unwrap()
        .into_iter()
        .map(|(endpoint, bytes)| (endpoint.zone.is_some(), get(&bytes, &[77]).unwrap().is_some()));
    assert_eq!(kept.collect::<Vec<_>>(), [(true, true), (true, true), (false, false)]);
}

#[test]
fn entangled_subsets_are_not_mirrored_and_their_slices_stay() {
    let bench = Bench::of(&[subset(&["10.0.0.1"], &[], &[80])]);
    bench.settled();
    let ips: Vec<String> = (0..600).map(|at| format!("10.0.{}.{}", at >> 8, at & 255)).collect();
    let others: Vec<String> = (0..600).map(|at| format!("10.1.{}.{}", at >> 8, at & 255)).collect();
    let ports: Vec<i32> = (1..=600).collect();
    // 600 addresses have the same 600 ports, and each port has another address beside.
    let mut subsets = vec![subset(&ips.iter().map(String::as_str).collect::<Vec<_>>(), &[], &ports)];
    for (ip, port) in others.iter().zip(&ports) {
        subsets.push(subset(&[ip.as_str()], &[], &[*port]));
    }
    bench.put(endpoints(&subsets, |_| {}));
    let Err(ObserveError::Terminal(error)) = bench.observe() else { panic!("they are mirrored") };
    assert!(error.contains("Endpoints default/web") && error.contains("250000"), "{error}");
    assert_eq!(bench.told(), ["web-2 IPv4 80: 10.0.0.1"]);
    // The dense subset alone is mirrored.
    subsets.truncate(1);
    bench.put(endpoints(&subsets, |_| {}));
    bench.reconcile();
    assert_eq!(bench.all().len(), 1);
    assert_eq!(bench.all()[0].ports.len(), 600);
}

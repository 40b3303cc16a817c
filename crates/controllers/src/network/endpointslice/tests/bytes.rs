//! What a newer server knows of a slice survives our writes.

use super::fixtures::{Bench, labels, pod, ready, service};
use coxswain_machinery::wire::Value;
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes};
use coxswain_machinery::wire::text::held_text;

#[test]
fn unknown_fields_stay() {
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {}), pod(2, |_| {})]);
    bench.settled();
    let slice = bench.slice("web-2");
    let endpoints = slice.endpoints().unwrap();
    let mut known = coxswain_machinery::wire::splice::retain_items(&slice.raw, 2, |_| false).unwrap();
    put_bytes(&mut known, 99, b"of tomorrow");
    known = edit(
        &known,
        &[
            Edit::SetBytes(&[1, 90], b"metadata".to_vec()),
            Edit::MapSet(&[1, 12], "note".into(), "kept".into()),
        ],
    )
    .unwrap();
    for (_, endpoint) in &endpoints {
        let edits = [Edit::SetBytes(&[77], b"endpoint".to_vec()), Edit::SetVarint(&[2, 9], 1)];
        put_bytes(&mut known, 2, &edit(endpoint, &edits).unwrap());
    }
    bench.slices.store.upsert(&(super::ENDPOINT_SLICES.decode)(&known.into()).unwrap());
    assert!(bench.plan().is_empty());

    bench.add(&pod(1, |pod| ready(pod, false, 1)));
    bench.add(&pod(3, |_| {}));
    bench.add(&service(|service| {
        service.metadata.labels = labels(&[("new", "yes")]);
        service.spec.traffic_distribution = Some("PreferSameZone".into());
    }));
    assert_eq!(bench.settled(), ["web-2 IPv4 :80: p001!ready!serving p002>a p003>a"]);
    let after = bench.slice("web-2");
    assert_eq!(get(&after.raw, &[99]).unwrap(), Some(Value::Bytes(b"of tomorrow")));
    assert_eq!(get(&after.raw, &[1, 90]).unwrap(), Some(Value::Bytes(b"metadata")));
    assert_eq!(after.metadata.annotations.get("note").unwrap(), "kept");
    let endpoints = after.endpoints().unwrap();
    for (_, bytes) in &endpoints[..2] {
        assert_eq!(get(bytes, &[77]).unwrap(), Some(Value::Bytes(b"endpoint")));
        assert_eq!(get(bytes, &[2, 9]).unwrap(), Some(Value::Varint(1)));
    }
    assert_eq!(get(&endpoints[2].1, &[77]).unwrap(), None);
}

#[test]
fn a_service_with_an_annotation_of_any_bytes_gets_slices() {
    let service = service(|service| {
        service.metadata.annotations = labels(&[("a", &held_text(b"\xff"))]);
    });
    let bench = Bench::of(&service, [pod(1, |_| {}), pod(2, |_| {})]);
    assert_eq!(bench.settled(), ["web-2 IPv4 :80: p001 p002"]);
    bench.add(&pod(3, |_| {}));
    assert_eq!(bench.settled(), ["web-2 IPv4 :80: p001 p002 p003"]);
}

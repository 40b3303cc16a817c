//! Nothing unknown is lost on the way into a pod or back into a ReplicaSet.

use bytes::Bytes;
use proptest::prelude::*;

use super::cluster::Cluster;
use super::fixtures::{
    Bench, decoded, labels, lines, pod, refused, replica_set, told, with_planned_status, writes,
};
use coxswain_machinery::api::apps::{ReplicaSetCondition, ReplicaSetStatus};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes, put_varint_field};
use coxswain_machinery::wire::text::held_text;
use coxswain_machinery::wire::{Message, Reader, Value};

fn fields(message: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut reader = Reader::new(message);
    let mut fields = Vec::new();
    while let Some((number, _, raw)) = reader.next_raw().unwrap() {
        fields.push((number, raw.to_vec()));
    }
    fields
}

fn created(bench: &Bench) -> Bytes {
    let plan = bench.plan();
    let Verb::Create(body) = &writes(&plan)[0].verb else { panic!("{plan:?}") };
    body.clone()
}

#[test]
fn a_pod_is_its_template_with_an_owner() {
    let body = created(&Bench::of(&replica_set(|_| {}), &[]));
    let metadata = Pod::decode(&body).unwrap().metadata;
    let expected = coxswain_machinery::api::meta::ObjectMeta {
        generate_name: "web-".into(),
        namespace: "default".into(),
        labels: super::fixtures::labels(&[("app", "web"), ("tier", "front")]),
        annotations: super::fixtures::labels(&[("note", "kept")]),
        finalizers: vec!["example.com/hold".into()],
        owner_references: vec![super::fixtures::owner()],
        ..Default::default()
    };
    assert_eq!(metadata, expected);
    assert_eq!(get(&body, &[1, 900]).unwrap(), Some(Value::Bytes(b"metadata of tomorrow")));
    assert_eq!(get(&body, &[2]).unwrap(), Some(Value::Bytes(b"\x92\x3f\x04spec")));
    assert_eq!(fields(&body).len(), 2);
}

/// The API server stores them and sends them back, so they are counted; each has the bytes of the template.
#[test]
fn a_template_with_any_bytes_makes_exactly_its_pods() {
    let metadata = coxswain_machinery::api::meta::ObjectMeta {
        labels: labels(&[("app", "web")]),
        annotations: labels(&[("note", &held_text(b"\xff"))]),
        ..Default::default()
    };
    // `imagePullSecrets: [{name: "\xff"}]`
    let secret = [10, 1, 0xff];
    let (mut template, mut spec) = (Vec::new(), Vec::new());
    put_bytes(&mut spec, 15, &secret);
    put_bytes(&mut template, 1, &metadata.to_bytes());
    put_bytes(&mut template, 2, &spec);
    let set = replica_set(|set| set.spec.template = coxswain_machinery::wire::Raw(template.into()));
    let mut cluster = Cluster::of(&set);
    cluster.reconcile();
    cluster.settle();
    assert_eq!((cluster.created(), cluster.active().len()), (3, 3));
    for pod in cluster.encoded_pods() {
        assert_eq!(get(&pod, &[2, 15]).unwrap(), Some(Value::Bytes(&secret)));
        let note = get(&pod, &[1, 12]).unwrap();
        assert_eq!(note, Some(Value::Bytes(b"\x0a\x04note\x12\x01\xff")));
    }
}

/// A ReplicaSet of a newer server: unknown fields in the object, in the status and in each of two conditions.
fn from_tomorrow() -> Vec<u8> {
    let condition = |kind: &str| {
        let condition =
            ReplicaSetCondition { r#type: kind.into(), status: "True".into(), ..Default::default() };
        let mut bytes = condition.to_bytes();
        put_bytes(&mut bytes, 77, b"condition of tomorrow");
        bytes
    };
    let mut status = ReplicaSetStatus { replicas: 9, ..Default::default() }.to_bytes();
    put_bytes(&mut status, 6, &condition("Tomorrow"));
    put_bytes(&mut status, 6, &condition("ReplicaFailure"));
    put_bytes(&mut status, 55, b"status of tomorrow");
    put_varint_field(&mut status, 56, 12);
    let set = replica_set(|set| set.spec.replicas = Some(1));
    let mut bytes = edit(&set.raw, &[Edit::SetBytes(&[3], status)]).unwrap();
    put_bytes(&mut bytes, 99, b"object of tomorrow");
    bytes
}

#[test]
fn a_status_update_changes_only_what_we_set() {
    let before = from_tomorrow();
    let bench = Bench::of(&decoded(before.clone()), &[pod("a", |_| {})]);
    let plan = bench.plan();
    let after = with_planned_status(&plan);
    assert_eq!(told(&after), "1: 1/1/1/1+0 Tomorrow=True");
    let others =
        |bytes: &[u8]| fields(bytes).into_iter().filter(|(number, _)| *number != 3).collect::<Vec<_>>();
    assert_eq!(others(&before), others(&after.raw));
    let status = |bytes: &[u8]| {
        let Some(Value::Bytes(status)) = get(bytes, &[3]).unwrap() else { panic!("no status") };
        fields(status)
    };
    let kept = |bytes: &[u8]| {
        let all = status(bytes).into_iter();
        all.filter(|(number, raw)| {
            *number > 5 && *number != 7 && !raw.windows(14).any(|part| part == b"ReplicaFailure")
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(kept(&before), kept(&after.raw));
    assert_eq!(kept(&before).len(), 3);

    // A failure that lasts keeps its condition byte for byte, too.
    let bench = Bench::of(&decoded(before.clone()), &[]);
    let failures = [refused(writes(&bench.plan())[0], "no")];
    let after = with_planned_status(&bench.plan_after(&failures));
    let conditions =
        |bytes: &[u8]| status(bytes).into_iter().filter(|(number, _)| *number == 6).collect::<Vec<_>>();
    assert_eq!(conditions(&before), conditions(&after.raw));
}

#[test]
fn a_new_condition_joins_the_others() {
    let mut set = from_tomorrow();
    // Only the condition that we don't know.
    let condition = ReplicaSetCondition { r#type: "Tomorrow".into(), ..Default::default() };
    set = edit(&set, &[Edit::SetBytes(&[3, 6], condition.to_bytes())]).unwrap();
    let bench = Bench::of(&decoded(set), &[]);
    let failures = [refused(writes(&bench.plan())[0], "no")];
    let after = with_planned_status(&bench.plan_after(&failures));
    let kinds: Vec<_> = after.status.conditions.iter().map(|held| held.r#type.to_string()).collect();
    assert_eq!(kinds, ["Tomorrow", "ReplicaFailure"]);
}

proptest! {
    /// Whatever the bytes of a template or status are, planning neither panics nor writes a broken object.
    #[test]
    fn no_bytes_panic(template in prop::collection::vec(any::<u8>(), 0..60), tail in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut bytes = replica_set(|set| set.spec.template = coxswain_machinery::wire::Raw(Bytes::new())).raw.to_vec();
        let mut spec = Vec::new();
        put_bytes(&mut spec, 3, &template);
        put_bytes(&mut bytes, 2, &spec);
        bytes.extend(tail);
        let Ok(object) = (coxswain_machinery::api::kinds::REPLICA_SETS.decode)(&Bytes::from(bytes)) else { return Ok(()) };
        let bench = Bench::new();
        bench.replica_sets.upsert(&object);
        let key = coxswain_machinery::model::Key::of(object.meta());
        if let Ok(Some(view)) = super::view::observe(&bench.room(), &key, &[]) {
            let plan = super::plan::plan(&view, super::fixtures::now());
            let _ = lines(&plan);
            for write in writes(&plan) {
                if let Verb::Create(body) = &write.verb {
                    prop_assert!(Pod::decode(body).is_ok());
                }
            }
        }
    }
}

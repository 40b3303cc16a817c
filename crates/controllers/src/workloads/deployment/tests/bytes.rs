//! Nothing unknown is lost.

use std::sync::Arc;

use super::fixtures::*;
use coxswain_machinery::api::apps::{Deployment, ReplicaSet};
use coxswain_machinery::api::kinds::DEPLOYMENTS;
use coxswain_machinery::api::kinds::REPLICA_SETS;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::model::template::Template;
use coxswain_machinery::model::{Plan, Step, Write};
use coxswain_machinery::wire::splice::{Edit, edit, get, put_bytes};
use coxswain_machinery::wire::{Reader, Value};

const NEW: u32 = 900;
const TOMORROW: &[u8] = b"of tomorrow";

/// Unknown fields at each of these paths.
fn with_unknown(bytes: &[u8], paths: &[&[u32]]) -> Vec<u8> {
    let edits =
        paths.iter().map(|path| Edit::SetBytes([path, [NEW].as_slice()].concat().leak(), TOMORROW.to_vec()));
    edit(bytes, &edits.collect::<Vec<_>>()).unwrap()
}

#[track_caller]
fn assert_kept(bytes: &[u8], paths: &[&[u32]]) {
    for path in paths {
        let found = get(bytes, &[path, [NEW].as_slice()].concat()).unwrap();
        assert_eq!(found, Some(Value::Bytes(TOMORROW)), "{path:?}");
    }
}

fn bodies(plan: &Plan) -> Vec<Vec<u8>> {
    let body = |step: &Step| match step {
        Step::Write(Write { verb: Verb::Create(body) | Verb::Update(body), .. }) => body.to_vec(),
        _ => panic!("not a write"),
    };
    plan.steps.iter().map(body).collect()
}

#[test]
fn fields_of_tomorrow_survive_every_write() {
    let paths: [&[u32]; 5] = [&[], &[1], &[2], &[2, 4], &[3]];
    let base = deployment(|deployment| {
        deployment.spec.template = template("nginx:2");
        deployment.status.conditions = vec![condition("Available", "False", "MinimumReplicasUnavailable", 9)];
    });
    let mut raw = with_unknown(&base.raw, &paths);
    raw = with_unknown(&raw, &[&[2, 3], &[2, 3, 2], &[2, 2]]);
    let deployment: Arc<Deployment> = decoded(&DEPLOYMENTS, raw);
    let set_paths: [&[u32]; 4] = [&[], &[1], &[2], &[3]];
    let old: Arc<ReplicaSet> =
        decoded(&REPLICA_SETS, with_unknown(&replica_set(1, 10, |_| {}).raw, &set_paths));
    let bodies = bodies(&plan_of(&deployment, &[old]));
    assert_eq!(bodies.len(), 3);
    assert_kept(&bodies[0], &[&[2, 3], &[2, 3, 2], &[2, 2]]);
    assert_kept(&bodies[1], &set_paths);
    assert_kept(&bodies[2], &paths);
    assert_kept(&bodies[2], &[&[2, 3], &[2, 3, 2], &[2, 2]]);
}

#[test]
fn only_what_changes_is_touched() {
    let before = replica_set(1, 10, |_| {});
    let plan = plan_of(&deployment(|deployment| deployment.spec.replicas = Some(12)), &[Arc::clone(&before)]);
    let after = &bodies(&plan)[0];
    let restored = edit(
        after,
        &[
            Edit::SetVarint(&[2, 1], 10),
            Edit::MapSet(&[1, 12], "deployment.kubernetes.io/desired-replicas".into(), "10".into()),
            Edit::MapSet(&[1, 12], "deployment.kubernetes.io/max-replicas".into(), "13".into()),
        ],
    );
    assert_eq!(restored.unwrap(), before.raw.as_ref());
    assert!(get(after, &[1, 6]).unwrap().is_some(), "the resource version is the write's precondition");
}

#[test]
fn the_new_replica_set_is_the_deployments_template_with_the_hash() {
    let deployment = deployment(|deployment| {
        deployment.spec.min_ready_seconds = 5;
        deployment.spec.selector.match_expressions =
            vec![coxswain_machinery::api::meta::LabelSelectorRequirement {
                key: "app".into(),
                operator: "Exists".into(),
                values: vec![],
            }]
            .into();
    });
    let hash = Template::new(&deployment.spec.template).unwrap().hash(None);
    let body = bodies(&plan_of(&deployment, &[])).remove(0);
    let set: Arc<ReplicaSet> = decoded(&REPLICA_SETS, body);
    let wanted = labels(&[("app", "web"), ("pod-template-hash", &hash)]);
    assert_eq!(set.metadata.labels, wanted);
    assert_eq!(set.metadata.namespace, "default");
    assert_eq!(set.metadata.owner_references, replica_set(1, 1, |_| {}).metadata.owner_references);
    assert_eq!(set.spec.selector.match_labels, wanted);
    assert_eq!(set.spec.selector.match_expressions, deployment.spec.selector.match_expressions);
    assert_eq!((set.spec.min_ready_seconds, set.spec.replicas), (5, Some(10)));
    assert_eq!(set.spec.template.as_ref(), Template::labeled(&deployment.spec.template, &hash).unwrap());
    assert!(Template::new(&deployment.spec.template).unwrap().is_same_as(&set.spec.template).unwrap());
}

/// Conditions that stay are copied as they are; one that changes keeps what is unknown of it.
#[test]
fn conditions_are_replaced_one_by_one() {
    let base = deployment(|_| {});
    let encode = |kind: &str, status: &str, reason: &str, tag: &[u8]| {
        let mut bytes = coxswain_machinery::wire::Message::to_bytes(&condition(kind, status, reason, 700));
        put_bytes(&mut bytes, NEW, tag);
        bytes
    };
    let raw = edit(
        &base.raw,
        &[
            Edit::Push(&[3, 6], encode("Example", "True", "Alien", b"0")),
            Edit::Push(&[3, 6], encode("Progressing", "True", "ReplicaSetUpdated", b"1")),
            Edit::Push(&[3, 6], encode("Available", "True", "MinimumReplicasAvailable", b"2")),
        ],
    );
    let deployment: Arc<Deployment> = decoded(&DEPLOYMENTS, raw.unwrap());
    let plan = plan_of(&deployment, &[replica_set(1, 10, |_| {})]);
    let body = bodies(&plan).remove(0);
    let status = get(&body, &[3]).unwrap().unwrap().bytes().unwrap();
    let mut reader = Reader::new(status);
    let mut held = Vec::new();
    while let Some((number, value)) = reader.next_field().unwrap() {
        if number == 6 {
            held.push(value.bytes().unwrap().to_vec());
        }
    }
    assert_eq!(held[0], encode("Example", "True", "Alien", b"0"));
    assert_eq!(held[1], encode("Available", "True", "MinimumReplicasAvailable", b"2"));
    assert_eq!(get(&held[2], &[NEW]).unwrap(), Some(Value::Bytes(b"1")));
    assert_eq!(conditions(&plan)[2], "Progressing=True NewReplicaSetAvailable 0/700");
}

//! What a ReplicationController does its own way. What it does as a ReplicaSet does stands in the tests of that room.

use jiff::Timestamp;

use coxswain_machinery::api::AnyObject;
use coxswain_machinery::api::core::ReplicationControllerStatus;
use coxswain_machinery::api::kinds::PODS;
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::{Pod, PodCondition};
use coxswain_machinery::framework::Reconcile;
use coxswain_machinery::framework::rig::{Rig, RigError};
use coxswain_machinery::informer::Delta;
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::{Plan, Verb, Verify, Write};
use coxswain_machinery::model::{Key, Step};
use coxswain_machinery::options::Config;
use coxswain_machinery::wire::splice::{get, put_varint_field};
use coxswain_machinery::wire::{Labels, Message, Time, Value, field};

use super::*;

const NOW: i64 = 1_700_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

fn template(annotations: &[(&str, &str)]) -> Raw {
    let metadata = ObjectMeta {
        labels: labels(&[("app", "web")]),
        annotations: labels(annotations),
        ..ObjectMeta::default()
    };
    Raw(PodTemplateSpec { metadata, ..PodTemplateSpec::default() }.to_bytes().into())
}

/// `default/web`: two pods wanted, selector `app=web`, no status yet.
fn web() -> ReplicationController {
    let metadata = ObjectMeta {
        name: "web".into(),
        namespace: "default".into(),
        uid: "web-uid".into(),
        resource_version: "100".into(),
        generation: 1,
        ..ObjectMeta::default()
    };
    let mut web = ReplicationController { metadata, ..ReplicationController::default() };
    web.spec.replicas = Some(2);
    web.spec.selector = labels(&[("app", "web")]);
    web.spec.template = template(&[]);
    web
}

fn owner() -> OwnerReference {
    controller_reference(&web().metadata, &REPLICATION_CONTROLLERS)
}

/// A pod with the label `app=web` that has been ready for as many seconds on this node.
fn pod(name: &str, owner: Option<OwnerReference>, node: &str, seconds: i64) -> Pod {
    let since = Time::from_seconds(NOW - seconds);
    let metadata = ObjectMeta {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "50".into(),
        labels: labels(&[("app", "web")]),
        creation_timestamp: since,
        owner_references: owner.into_iter().collect(),
        ..ObjectMeta::default()
    };
    let mut pod = Pod { metadata, ..Pod::default() };
    pod.spec.node_name = node.into();
    pod.status.phase = "Running".into();
    pod.status.conditions = vec![PodCondition {
        r#type: "Ready".into(),
        status: "True".into(),
        last_transition_time: since,
        ..PodCondition::default()
    }];
    pod
}

/// A room on these objects.
struct Bench {
    rig: Rig,
    built: Built,
}

impl Bench {
    fn of(set: &ReplicationController, pods: &[Pod]) -> Self {
        let rig = Rig::new(Config::default());
        rig.add(&REPLICATION_CONTROLLERS, set).unwrap();
        for pod in pods {
            rig.add(&PODS, pod).unwrap();
        }
        let built = rig.build(DESCRIPTOR.build.unwrap()).unwrap();
        Self { rig, built }
    }

    fn room(&self) -> &dyn Reconcile {
        self.built.loops[0].reconcile.as_ref()
    }

    fn plan(&self) -> Plan {
        self.rig.plan(self.room(), &Key::new("default", "web"), now()).unwrap().unwrap()
    }

    fn writes(&self) -> Vec<String> {
        self.plan().writes().map(ToString::to_string).collect()
    }
}

/// The status that a plan writes.
fn status(plan: &Plan) -> ReplicationController {
    let written = plan.writes().find(|write| write.subresource == "status").expect("a status");
    let Verb::Update(body) = &written.verb else { panic!("{written}") };
    ReplicationController { raw: Raw(body.clone()), ..ReplicationController::decode(body).unwrap() }
}

fn deletes(plan: &Plan) -> Vec<&str> {
    plan.writes()
        .filter(|write| matches!(write.verb, Verb::Delete { .. }))
        .map(|write| &*write.key.name)
        .collect()
}

#[test]
fn it_has_the_queue_and_the_workers_of_the_original() {
    let bench = Bench::of(&web(), &[]);
    let [work] = bench.built.loops.as_slice() else { panic!("one loop") };
    assert_eq!((work.queue, work.settings.workers), ("replicationmanager", 5));
    assert_eq!(work.settings.longest_wait, None);
    assert_eq!(DESCRIPTOR.event_source, Some("replication-controller"));
}

#[test]
fn its_pods_refer_to_a_kind_of_the_core_group() {
    let plan = Bench::of(&web(), &[]).plan();
    let created: Vec<&Write> = plan.writes().filter(|write| write.verb.name() == "create").collect();
    assert_eq!(created.len(), 2);
    let Verb::Create(body) = &created[0].verb else { panic!("{plan:?}") };
    let pod = Pod::decode(body).unwrap();
    assert_eq!(pod.metadata.generate_name, "web-");
    assert_eq!(pod.metadata.owner_references, [owner()]);
    assert_eq!(owner().api_version, "v1");
    let event = created[0].on_success.as_ref().unwrap();
    assert_eq!((event.reason, event.regarding.kind.kind), ("SuccessfulCreate", "ReplicationController"));
}

#[test]
fn a_namesake_of_another_kind_keeps_its_pods() {
    let namesake = OwnerReference { kind: "ReplicaSet".into(), api_version: "apps/v1".into(), ..owner() };
    let theirs = OwnerReference { uid: "other-uid".into(), ..namesake.clone() };
    let free = pod("free", None, "a", 100);
    let bench = Bench::of(&web(), &[pod("theirs", Some(theirs), "a", 100), free]);
    let plan = bench.plan();
    let [Step::Verify(Verify { kind, .. }), ..] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert_eq!(*kind, &REPLICATION_CONTROLLERS);
    let writes: Vec<String> = plan.writes().map(ToString::to_string).collect();
    assert_eq!(writes[..2], ["patch pods default/free", "create pods default/"]);

    // A change of a pod wakes the owner of the kind that its reference names.
    let woken = |reference: OwnerReference| {
        let pod: AnyObject = Arc::new(pod("any", Some(reference), "a", 1));
        let delta = Delta { old: None, new: Some(&pod), initial: false, resync: false };
        let mut keys = Vec::new();
        (bench.built.loops[0].wake_ups[1].keys)(delta, &mut |key| keys.push(key.to_string()));
        keys
    };
    assert_eq!(woken(owner()), ["default/web"]);
    assert_eq!(woken(namesake), [""; 0]);
}

#[test]
fn without_a_selector_it_adopts_nothing() {
    let mut set = web();
    set.spec.selector = Labels::default();
    let bench = Bench::of(&set, &[pod("free", None, "a", 100)]);
    let refused = bench.rig.plan(bench.room(), &Key::new("default", "web"), now());
    let Err(RigError::Observe { source, .. }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("ReplicationController default/web"), "{source}");
}

#[test]
fn pods_that_crowd_a_node_are_not_preferred() {
    // The pair is older: of ready pods the youngest goes, wherever it is.
    let mut set = web();
    set.metadata.owner_references = vec![OwnerReference { controller: Some(true), ..owner() }];
    let pods = [
        pod("pair-1", Some(owner()), "east", 100_000),
        pod("pair-2", Some(owner()), "east", 100_000),
        pod("alone", Some(owner()), "west", 10),
    ];
    assert_eq!(deletes(&Bench::of(&set, &pods).plan()), ["alone"]);
}

#[test]
fn its_status_tells_of_no_terminating_pods_and_loses_no_field() {
    let mut going = pod("going", Some(owner()), "a", 100);
    going.metadata.deletion_timestamp = Time::from_seconds(NOW);
    let mut set = web();
    set.status.replicas = 9;
    // A field of tomorrow, of the number that a ReplicaSet has for its terminating pods.
    let mut tomorrow = set.status.to_bytes();
    put_varint_field(&mut tomorrow, 7, 5);
    let tomorrow = Edit::SetBytes(path!(ReplicationController, status), tomorrow);
    let bytes = edit(&set.to_bytes(), &[tomorrow]).unwrap();
    let bench = Bench::of(&web(), &[pod("stays", Some(owner()), "a", 100), going]);
    bench.rig.put(&REPLICATION_CONTROLLERS, &bytes.into()).unwrap();
    let plan = bench.plan();
    assert_eq!(bench.writes()[0], "create pods default/", "what goes is replaced at once");
    let written = status(&plan);
    let expected = ReplicationControllerStatus {
        replicas: 1,
        fully_labeled_replicas: 1,
        observed_generation: 1,
        ready_replicas: 1,
        available_replicas: 1,
        conditions: Vec::new(),
    };
    assert_eq!(written.status, expected);
    assert_eq!(get(&written.raw, &[3, 7]).unwrap(), Some(Value::Varint(5)));
}

#[test]
fn its_status_has_the_fields_of_a_replica_sets() {
    macro_rules! same {
        ($($field:tt)+) => { $(assert_eq!(
            path!(ReplicationControllerStatus, $field),
            path!(ReplicaSetStatus, $field),
        );)+ };
    }
    same!(replicas fullyLabeledReplicas observedGeneration readyReplicas availableReplicas conditions);
    assert_eq!(field!(ReplicationController, status), field!(ReplicaSet, status));
    let held = ReplicationControllerCondition {
        r#type: "ReplicaFailure".into(),
        status: "True".into(),
        last_transition_time: Time::from_seconds(NOW),
        reason: "FailedCreate".into(),
        message: "no".into(),
    };
    assert_eq!(condition(&held).to_bytes(), held.to_bytes());
}

#[test]
fn a_label_that_the_template_got_later_is_not_on_its_pods() {
    let mut set = web();
    let metadata =
        ObjectMeta { labels: labels(&[("app", "web"), ("tier", "front")]), ..ObjectMeta::default() };
    set.spec.template = Raw(PodTemplateSpec { metadata, ..PodTemplateSpec::default() }.to_bytes().into());
    let pods = ["a", "b"].map(|name| pod(name, Some(owner()), "east", 100));
    let plan = Bench::of(&set, &pods).plan();
    assert_eq!(plan.writes().count(), 1, "a changed template replaces no pod: {plan:?}");
    let status = status(&plan).status;
    assert_eq!((status.replicas, status.fully_labeled_replicas), (2, 0));
}

#[test]
fn annotations_about_init_containers_stay_with_the_template() {
    let mut set = web();
    set.spec.template = template(&[
        ("note", "kept"),
        ("pod.alpha.kubernetes.io/init-containers", "[]"),
        ("pod.beta.kubernetes.io/init-container-statuses", "[]"),
    ]);
    let plan = Bench::of(&set, &[]).plan();
    let Some(Verb::Create(body)) = plan.writes().next().map(|write| &write.verb) else { panic!("{plan:?}") };
    assert_eq!(Pod::decode(body).unwrap().metadata.annotations, labels(&[("note", "kept")]));
}

#[test]
fn a_handover_writes_nothing() {
    let pods = ["a", "b"].map(|name| pod(name, Some(owner()), "east", 100));
    let bench = Bench::of(&web(), &pods);
    let settled = status(&bench.plan());
    bench.rig.put(&REPLICATION_CONTROLLERS, &settled.raw.0).unwrap();
    assert!(bench.plan().is_empty());
}

//! Objects, stores around a room, and plans as lines of text.

use std::sync::Arc;

use bytes::Bytes;

use super::super::view::{Gates, View};
use super::super::*;
use coxswain_machinery::api::apps::ReplicaSet;
use coxswain_machinery::api::meta::{LabelSelector, ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{AnyObject, Object};
use coxswain_machinery::informer::{Dependents, Store};
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::{Patch, Step, Verb, Write};
use coxswain_machinery::wire::splice::put_bytes;
use coxswain_machinery::wire::{Message, Raw};

pub(super) use crate::fixtures::{NOW, ago, deleting, labels, now, orphaned, ready, unready};

/// A template with labels `app=web, tier=front`, and a spec that nobody here can read.
pub(super) fn template() -> Raw {
    let metadata = ObjectMeta {
        name: "ignored".into(),
        uid: "ignored".into(),
        labels: labels(&[("app", "web"), ("tier", "front")]),
        annotations: labels(&[("note", "kept")]),
        finalizers: vec!["example.com/hold".into()],
        ..ObjectMeta::default()
    };
    let mut metadata = metadata.to_bytes();
    put_bytes(&mut metadata, 900, b"metadata of tomorrow");
    let mut template = Vec::new();
    put_bytes(&mut template, 1, &metadata);
    put_bytes(&mut template, 2, b"\x92\x3f\x04spec");
    Raw(template.into())
}

/// `default/web`: 3 pods wanted, selector `app=web`, generation 1, no status yet.
pub(super) fn replica_set(change: impl FnOnce(&mut ReplicaSet)) -> Arc<ReplicaSet> {
    let metadata = ObjectMeta {
        name: "web".into(),
        namespace: "default".into(),
        uid: "web-uid".into(),
        resource_version: "100".into(),
        generation: 1,
        ..ObjectMeta::default()
    };
    let mut set = ReplicaSet { metadata, ..ReplicaSet::default() };
    set.spec.replicas = Some(3);
    set.spec.selector = LabelSelector { match_labels: labels(&[("app", "web")]), ..Default::default() };
    set.spec.template = template();
    change(&mut set);
    decoded(set.to_bytes())
}

/// A ReplicaSet as the API server would send these bytes.
pub(super) fn decoded(bytes: Vec<u8>) -> Arc<ReplicaSet> {
    typed((REPLICA_SETS.decode)(&Bytes::from(bytes)).unwrap())
}

pub(super) fn typed<T: Object>(object: AnyObject) -> Arc<T> {
    let any: Arc<dyn std::any::Any + Send + Sync> = object;
    any.downcast().unwrap()
}

pub(super) fn owner() -> OwnerReference {
    controller_reference(&replica_set(|_| {}).metadata, &REPLICA_SETS)
}

/// A running pod of `default/web`, ready for 1000 seconds.
pub(super) fn pod(name: &str, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    let metadata = ObjectMeta {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "50".into(),
        labels: labels(&[("app", "web"), ("tier", "front")]),
        creation_timestamp: ago(1100),
        owner_references: vec![owner()],
        ..ObjectMeta::default()
    };
    let mut pod = Pod { metadata, ..Pod::default() };
    pod.spec.node_name = "node-0".into();
    pod.status.phase = "Running".into();
    pod.status.conditions = vec![ready(ago(1000))];
    change(&mut pod);
    Arc::new(pod)
}

/// The stores, and a room that reads them.
pub(super) struct Bench {
    pub(super) replica_sets: Arc<Store>,
    pub(super) pods: Arc<Store>,
    pub(super) gates: Gates,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self {
            replica_sets: Arc::new(Store::new(&REPLICA_SETS)),
            pods: Arc::new(Store::new(&PODS)),
            gates: Gates { deletion_cost: true, terminating_replicas: true },
        }
    }

    pub(super) fn of(set: &Arc<ReplicaSet>, pods: &[Arc<Pod>]) -> Self {
        let bench = Self::new();
        bench.add(set);
        for pod in pods {
            bench.add(pod);
        }
        bench
    }

    pub(super) fn store(&self, kind: &Kind) -> Arc<Store> {
        Arc::clone(if kind == &PODS { &self.pods } else { &self.replica_sets })
    }

    pub(super) fn add<T: Object>(&self, object: &Arc<T>) {
        let object: AnyObject = Arc::clone(object) as AnyObject;
        let is_pod = (object.as_ref() as &dyn std::any::Any).is::<Pod>();
        if is_pod { self.pods.upsert(&object) } else { self.replica_sets.upsert(&object) }
    }

    pub(super) fn room(&self) -> Controller<ReplicaSet> {
        Controller {
            sets: Lister::new(Arc::clone(&self.replica_sets)),
            siblings: Some(Dependents::new(&self.replica_sets)),
            pods: Dependents::new(&self.pods),
            gates: self.gates,
        }
    }

    pub(super) fn view(&self, failures: &[Failure]) -> View {
        view::observe(&self.room(), &Key::new("default", "web"), failures).unwrap().unwrap()
    }

    pub(super) fn plan(&self) -> Plan {
        plan::plan(&self.view(&[]), now())
    }

    pub(super) fn plan_after(&self, failures: &[Failure]) -> Plan {
        plan::plan(&self.view(failures), now())
    }

    /// The plan's steps as text, each line `×n` when it repeats.
    pub(super) fn lines(&self) -> Vec<String> {
        lines(&self.plan())
    }
}

/// A write of `verb` that the server answered with 403 and `message`.
pub(super) fn refused(write: &Write, message: &str) -> Failure {
    Failure {
        what: write.to_string(),
        verb: write.verb.name(),
        subresource: write.subresource,
        kind: write.kind,
        key: write.key.clone(),
        code: 403,
        reason: "Forbidden".into(),
        message: message.to_owned(),
        existing: None,
    }
}

pub(super) fn writes(plan: &Plan) -> Vec<&Write> {
    plan.writes().collect()
}

pub(super) fn lines(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for step in &plan.steps {
        let mut told: Vec<String> = match step {
            Step::Verify(verify) => vec![format!("verify {} {:?}", verify.key, verify.expect)],
            Step::Write(write) => vec![line(write)],
            Step::Batch(writes) | Step::Each(writes) => writes.iter().map(line).collect(),
            Step::Emit(event) => vec![format!("emit {}", event.reason)],
            other => panic!("{other:?}"),
        };
        told.sort();
        for line in told {
            match lines.last_mut() {
                Some((last, count)) if *last == line => *count += 1,
                _ => lines.push((line, 1)),
            }
        }
    }
    let times = |(line, count)| if count == 1 { line } else { format!("{line} ×{count}") };
    lines.into_iter().map(times).collect()
}

fn line(write: &Write) -> String {
    match &write.verb {
        Verb::Update(object) => format!("{write} {}", told(&decoded(object.to_vec()))),
        Verb::Patch(Patch::Strategic(patch)) => format!("{write} {patch}"),
        Verb::Delete { uid, .. } => format!("{write} {uid}"),
        _ => write.to_string(),
    }
}

/// `generation: replicas/labelled/ready/available+terminating conditions`
pub(super) fn told(set: &ReplicaSet) -> String {
    let status = &set.status;
    let mut text = format!(
        "{}: {}/{}/{}/{}",
        status.observed_generation,
        status.replicas,
        status.fully_labeled_replicas,
        status.ready_replicas,
        status.available_replicas
    );
    if let Some(terminating) = status.terminating_replicas {
        text = format!("{text}+{terminating}");
    }
    for condition in &status.conditions {
        text = format!("{text} {}={}", condition.r#type, condition.status);
    }
    text
}

/// The set with the status that the plan gives it, one resource version on.
pub(super) fn with_planned_status(plan: &Plan) -> Arc<ReplicaSet> {
    let planned = writes(plan).into_iter().find_map(|write| match &write.verb {
        Verb::Update(object) if write.subresource == "status" => Some(decoded(object.to_vec())),
        _ => None,
    });
    planned.expect("a status update")
}

//! Objects, stores around a room, and plans as lines of text.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::super::view::View;
use super::super::*;
use crate::api::apps::{DeploymentCondition, DeploymentStrategy, RollingUpdateDeployment};
use crate::api::meta::LabelSelector;
use crate::api::{AnyObject, Object};
use crate::informer::{Store, downcast};
use crate::model::hash;
use crate::model::owners::controller_reference;
use crate::model::plan::{EventSpec, Patch, Step, Verb, Write};
use crate::model::revisions::{DESIRED_REPLICAS, MAX_REPLICAS, REVISION};
use crate::wire::splice::put_bytes;
use crate::wire::{IntOrString, Labels, Message, Raw, Time};

pub(super) const NOW: i64 = 1_700_000_000;

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

pub(super) fn ago(seconds: i64) -> Option<Time> {
    Time::from_seconds(NOW - seconds)
}

pub(super) fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

/// A template with the label `app=web`, and a spec that nobody here can read, which tells `version`.
pub(super) fn template(version: &str) -> Raw {
    let metadata = ObjectMeta { labels: labels(&[("app", "web")]), ..ObjectMeta::default() };
    let mut template = Vec::new();
    put_bytes(&mut template, 1, &metadata.to_bytes());
    put_bytes(&mut template, 2, format!("\x0a{}{version}", char::from(version.len() as u8)).as_bytes());
    Raw(template.into())
}

/// The name of the ReplicaSet that is made for `version`.
pub(super) fn named(version: &str) -> String {
    format!("web-{}", hash::of(&hash::normal(&template(version)).unwrap(), None))
}

pub(super) fn strategy(surge: i32, unavailable: i32) -> DeploymentStrategy {
    DeploymentStrategy {
        r#type: ROLLING_UPDATE.into(),
        rolling_update: Some(Box::new(RollingUpdateDeployment {
            max_surge: Some(IntOrString::Int(surge)),
            max_unavailable: Some(IntOrString::Int(unavailable)),
        })),
    }
}

pub(super) fn recreate(deployment: &mut Deployment) {
    deployment.spec.strategy = DeploymentStrategy { r#type: RECREATE.into(), rolling_update: None };
}

/// `default/web`: 3 pods of version `v2`, one too many or missing, ten minutes to progress, generation 2.
pub(super) fn deployment(change: impl FnOnce(&mut Deployment)) -> Arc<Deployment> {
    let metadata = ObjectMeta {
        name: "web".into(),
        namespace: "default".into(),
        uid: "web-uid".into(),
        resource_version: "100".into(),
        generation: 2,
        annotations: labels(&[(REVISION, "1")]),
        ..ObjectMeta::default()
    };
    let mut deployment = Deployment { metadata, ..Deployment::default() };
    deployment.spec.replicas = Some(3);
    deployment.spec.selector =
        LabelSelector { match_labels: labels(&[("app", "web")]), ..Default::default() };
    deployment.spec.template = template("v2");
    deployment.spec.strategy = strategy(1, 1);
    deployment.spec.progress_deadline_seconds = Some(600);
    deployment.spec.revision_history_limit = Some(10);
    change(&mut deployment);
    decoded(&DEPLOYMENTS, deployment.to_bytes())
}

/// An object as the API server would send these bytes.
pub(super) fn decoded<T: Object>(kind: &Kind, bytes: Vec<u8>) -> Arc<T> {
    downcast((kind.decode)(&Bytes::from(bytes)).unwrap()).unwrap()
}

/// A ReplicaSet of `default/web` with `size` pods of `version`, all of them available, and revision 1; named
/// `web-VERSION`.
pub(super) fn set(version: &str, size: i32, change: impl FnOnce(&mut ReplicaSet)) -> Arc<ReplicaSet> {
    let metadata = ObjectMeta {
        name: format!("web-{version}").into(),
        namespace: "default".into(),
        uid: format!("{version}-uid").into(),
        resource_version: "50".into(),
        generation: 1,
        labels: labels(&[("app", "web"), ("pod-template-hash", version)]),
        annotations: labels(&[(REVISION, "1"), (DESIRED_REPLICAS, "3"), (MAX_REPLICAS, "4")]),
        creation_timestamp: ago(1000),
        owner_references: vec![controller_reference(&deployment(|_| {}).metadata, KIND)],
        ..ObjectMeta::default()
    };
    let mut set = ReplicaSet { metadata, ..ReplicaSet::default() };
    set.spec.replicas = Some(size);
    set.spec.template = Raw(hash::labelled(&template(version), version).unwrap().into());
    (set.status.replicas, set.status.ready_replicas, set.status.available_replicas) = (size, size, size);
    (set.status.observed_generation, set.status.terminating_replicas) = (1, Some(0));
    change(&mut set);
    decoded(&REPLICA_SETS, set.to_bytes())
}

/// The ReplicaSet of version `v2`, revision 2.
pub(super) fn new_set(size: i32, change: impl FnOnce(&mut ReplicaSet)) -> Arc<ReplicaSet> {
    set("v2", size, |set| {
        set.metadata.creation_timestamp = ago(100);
        annotate(set, REVISION, "2");
        change(set);
    })
}

pub(super) fn annotate(set: &mut ReplicaSet, key: &str, value: &str) {
    set.metadata.annotations = set.metadata.annotations.with(key, value);
}

/// A pod of a ReplicaSet.
pub(super) fn pod(name: &str, set: &ReplicaSet, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.name = name.into();
    pod.metadata.namespace = "default".into();
    pod.metadata.labels = labels(&[("app", "web")]);
    pod.metadata.owner_references = vec![controller_reference(&set.metadata, &REPLICA_SETS)];
    change(&mut pod);
    Arc::new(pod)
}

/// A condition that was set a minute ago.
pub(super) fn condition(r#type: &str, status: &str, reason: &str) -> DeploymentCondition {
    DeploymentCondition {
        r#type: r#type.into(),
        status: status.into(),
        reason: reason.into(),
        message: "before".into(),
        last_update_time: ago(60),
        last_transition_time: ago(60),
    }
}

/// The stores, and a room that reads them.
pub(super) struct Bench {
    pub(super) deployments: Arc<Store>,
    pub(super) replica_sets: Arc<Store>,
    pub(super) pods: Arc<Store>,
    pub(super) terminating_replicas: bool,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self {
            deployments: Arc::new(Store::new(&DEPLOYMENTS)),
            replica_sets: Arc::new(Store::new(&REPLICA_SETS)),
            pods: Arc::new(Store::new(&PODS)),
            terminating_replicas: true,
        }
    }

    pub(super) fn of(deployment: &Arc<Deployment>, sets: &[Arc<ReplicaSet>]) -> Self {
        let bench = Self::new();
        bench.add(deployment);
        sets.iter().for_each(|set| bench.add(set));
        bench
    }

    pub(super) fn store(&self, kind: &Kind) -> Arc<Store> {
        let stores = [&self.deployments, &self.replica_sets, &self.pods];
        Arc::clone(stores.into_iter().find(|store| store.kind() == kind).unwrap())
    }

    pub(super) fn add<T: Object>(&self, object: &Arc<T>) {
        let object: AnyObject = Arc::clone(object) as AnyObject;
        let any = object.as_ref() as &dyn std::any::Any;
        let store = if any.is::<Pod>() {
            &self.pods
        } else if any.is::<ReplicaSet>() {
            &self.replica_sets
        } else {
            &self.deployments
        };
        store.upsert(&object);
    }

    pub(super) fn room(&self) -> Controller {
        Controller {
            deployments: Lister::new(Arc::clone(&self.deployments)),
            replica_sets: Lister::new(Arc::clone(&self.replica_sets)),
            pods: Lister::new(Arc::clone(&self.pods)),
            terminating_replicas: self.terminating_replicas,
        }
    }

    pub(super) fn view(&self, failures: &[Failure]) -> View {
        self.room().observe(&Key::new("default", "web"), failures).unwrap().unwrap()
    }

    pub(super) fn plan(&self) -> Plan {
        plan::plan(&self.view(&[]), now())
    }

    pub(super) fn plan_after(&self, failures: &[Failure]) -> Plan {
        plan::plan(&self.view(failures), now())
    }

    /// The plan's steps as text.
    pub(super) fn lines(&self) -> Vec<String> {
        lines(&self.plan())
    }

    /// The same without the update of the Deployment.
    pub(super) fn set_lines(&self) -> Vec<String> {
        let mut lines = self.lines();
        lines.retain(|line| !line.starts_with("status "));
        lines
    }
}

pub(super) fn writes(plan: &Plan) -> Vec<&Write> {
    let steps = plan.steps.iter();
    steps
        .flat_map(|step| match step {
            Step::Write(write) => std::slice::from_ref(write),
            Step::Batch(writes) => writes.as_slice(),
            Step::Verify(_) | Step::Emit(_) => &[],
        })
        .collect()
}

pub(super) fn lines(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Verify(verify) => lines.push(format!("verify {} {:?}", verify.key, verify.expect)),
            Step::Write(write) => tell(&mut lines, write),
            Step::Batch(writes) => writes.iter().for_each(|write| tell(&mut lines, write)),
            Step::Emit(event) => lines.push(event_line(event)),
        }
    }
    lines
}

fn tell(lines: &mut Vec<String>, write: &Write) {
    let name = &write.key.name;
    lines.push(match &write.verb {
        Verb::Create(object) => {
            let made: Arc<ReplicaSet> = decoded(&REPLICA_SETS, object.to_vec());
            format!("create {name} {}", made.spec.replicas.unwrap())
        }
        Verb::Update(object) => {
            let updated: Arc<ReplicaSet> = decoded(&REPLICA_SETS, object.to_vec());
            format!("update {name} {}", updated.spec.replicas.unwrap())
        }
        Verb::UpdateSubresource("status", object) => {
            format!("status {}", told(&decoded(&DEPLOYMENTS, object.to_vec())))
        }
        Verb::Patch(Patch::Strategic(patch)) => format!("patch {name} {patch}"),
        Verb::Delete { uid, resource_version, .. } => {
            format!("delete {name} {uid} {}", resource_version.as_ref().unwrap())
        }
        other => panic!("{other:?} is not a write of this room"),
    });
    lines.extend(write.on_success.as_ref().map(event_line));
}

fn event_line(event: &EventSpec) -> String {
    assert_eq!(event.regarding.uid, "web-uid");
    format!("{} {}: {}", if event.warning { "Warning" } else { "Normal" }, event.reason, event.message)
}

/// `revision@generation: replicas/updated/ready/available-unavailable+terminating TYPE=STATUS(REASON) …`
pub(super) fn told(deployment: &Deployment) -> String {
    let status = &deployment.status;
    let mut text = format!(
        "{}@{}: {}/{}/{}/{}-{}",
        deployment.metadata.annotations.get(REVISION).map_or("", |revision| revision),
        status.observed_generation,
        status.replicas,
        status.updated_replicas,
        status.ready_replicas,
        status.available_replicas,
        status.unavailable_replicas,
    );
    if let Some(terminating) = status.terminating_replicas {
        text = format!("{text}+{terminating}");
    }
    for condition in &status.conditions {
        text = format!("{text} {}={}({})", condition.r#type, condition.status, condition.reason);
    }
    text
}

/// The Deployment that the plan's status update makes.
pub(super) fn planned(plan: &Plan) -> Arc<Deployment> {
    let planned = writes(plan).into_iter().find_map(|write| match &write.verb {
        Verb::UpdateSubresource("status", object) => Some(decoded(&DEPLOYMENTS, object.to_vec())),
        _ => None,
    });
    planned.expect("a status update")
}

/// The ReplicaSet that the plan's first create or update makes.
pub(super) fn planned_set(plan: &Plan) -> Arc<ReplicaSet> {
    let planned = writes(plan).into_iter().find_map(|write| match &write.verb {
        Verb::Create(object) | Verb::Update(object) => Some(decoded(&REPLICA_SETS, object.to_vec())),
        _ => None,
    });
    planned.expect("a create or update")
}

//! Objects, and plans as lines of text.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;

use super::super::view::{Gates, View};
use super::super::*;
use coxswain_machinery::api::apps::{DeploymentCondition, RollingUpdateDeployment};
use coxswain_machinery::api::meta::{LabelSelector, ObjectMeta};
use coxswain_machinery::api::{AnyObject, Kind, Object};
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::{EventSpec, Patch, Step, Verb, Write};
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::random::HashSet;
use coxswain_machinery::wire::splice::put_bytes;
use coxswain_machinery::wire::{IntOrString, Labels, Message, Raw, Time};

pub(super) use crate::fixtures::{NOW, ago, labels, now};

/// A template with the label `app=web` and one container, as a server encodes it.
pub(super) fn template(image: &str) -> Raw {
    let mut metadata = Vec::new();
    put_bytes(&mut metadata, 8, &[]);
    metadata.extend(ObjectMeta { labels: labels(&[("app", "web")]), ..ObjectMeta::default() }.to_bytes());
    let mut container = Vec::new();
    put_bytes(&mut container, 1, b"c");
    put_bytes(&mut container, 2, image.as_bytes());
    let mut spec = Vec::new();
    put_bytes(&mut spec, 2, &container);
    let mut template = Vec::new();
    put_bytes(&mut template, 1, &metadata);
    put_bytes(&mut template, 2, &spec);
    Raw(template.into())
}

/// `default/web`, 10 pods of `nginx:1`, rolled out by 25 % and 25 %, without a status.
pub(super) fn deployment(change: impl FnOnce(&mut Deployment)) -> Arc<Deployment> {
    let metadata = ObjectMeta {
        name: "web".into(),
        namespace: "default".into(),
        uid: "web-uid".into(),
        resource_version: "10".into(),
        generation: 1,
        ..ObjectMeta::default()
    };
    let mut deployment = Deployment { metadata, ..Deployment::default() };
    let spec = &mut deployment.spec;
    spec.replicas = Some(10);
    spec.selector = LabelSelector { match_labels: labels(&[("app", "web")]), ..Default::default() };
    spec.template = template("nginx:1");
    spec.strategy.r#type = "RollingUpdate".into();
    spec.strategy.rolling_update = Some(Box::new(RollingUpdateDeployment {
        max_unavailable: Some(IntOrString::Str("25%".into())),
        max_surge: Some(IntOrString::Str("25%".into())),
    }));
    spec.revision_history_limit = Some(10);
    spec.progress_deadline_seconds = Some(600);
    change(&mut deployment);
    decoded(&DEPLOYMENTS, deployment.to_bytes())
}

/// The same, with `surge` and `unavailable` as plain numbers.
pub(super) fn bounded(replicas: i32, surge: i32, unavailable: i32) -> impl Fn(&mut Deployment) {
    move |deployment| {
        deployment.spec.replicas = Some(replicas);
        deployment.spec.strategy.rolling_update = Some(Box::new(RollingUpdateDeployment {
            max_unavailable: Some(IntOrString::Int(unavailable)),
            max_surge: Some(IntOrString::Int(surge)),
        }));
    }
}

/// The ReplicaSet `web-REVISION` of `nginx:REVISION`, as large as it should be and available, of the size's Deployment.
/// The higher the revision, the younger it is.
pub(super) fn replica_set(revision: i32, size: i32, change: impl FnOnce(&mut ReplicaSet)) -> Arc<ReplicaSet> {
    let hash = format!("h{revision}");
    let metadata = ObjectMeta {
        name: format!("web-{revision}").into(),
        namespace: "default".into(),
        uid: format!("uid-{revision}").into(),
        resource_version: format!("{revision}00").into(),
        generation: 3,
        creation_timestamp: ago(10_000 - i64::from(revision)),
        labels: labels(&[("app", "web"), ("pod-template-hash", &hash)]),
        annotations: annotations(revision, 10, 13),
        owner_references: vec![controller_reference(&deployment(|_| {}).metadata, &DEPLOYMENTS)],
        ..ObjectMeta::default()
    };
    let mut set = ReplicaSet { metadata, ..ReplicaSet::default() };
    set.spec.replicas = Some(size);
    set.spec.template = Raw(coxswain_machinery::model::template::Template::labeled(
        &template(&format!("nginx:{revision}")),
        &hash,
    )
    .unwrap()
    .into());
    set.status.observed_generation = 3;
    set.status.replicas = size;
    set.status.ready_replicas = size;
    set.status.available_replicas = size;
    set.status.terminating_replicas = Some(0);
    change(&mut set);
    decoded(&REPLICA_SETS, set.to_bytes())
}

pub(super) fn annotations(revision: i32, desired: i32, most: i32) -> Labels {
    labels(&[
        ("deployment.kubernetes.io/revision", &revision.to_string()),
        ("deployment.kubernetes.io/desired-replicas", &desired.to_string()),
        ("deployment.kubernetes.io/max-replicas", &most.to_string()),
    ])
}

/// An object as the API server would send these bytes.
pub(super) fn decoded<T: Object>(kind: &Kind, bytes: Vec<u8>) -> Arc<T> {
    typed((kind.decode)(&Bytes::from(bytes)).unwrap())
}

pub(super) fn typed<T: Object>(object: AnyObject) -> Arc<T> {
    let any: Arc<dyn Any + Send + Sync> = object;
    any.downcast().unwrap()
}

pub(super) fn condition(kind: &str, status: &str, reason: &str, since: i64) -> DeploymentCondition {
    DeploymentCondition {
        r#type: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message: "so it is".into(),
        last_update_time: ago(since),
        last_transition_time: ago(since),
    }
}

pub(super) fn view(deployment: &Arc<Deployment>, replica_sets: &[Arc<ReplicaSet>]) -> View {
    View {
        deployment: Arc::clone(deployment),
        selector: Selector::compile(&deployment.spec.selector).unwrap(),
        replica_sets: replica_sets.to_vec(),
        running: HashSet::default(),
        failures: Vec::new(),
        has_written_status: false,
        gates: Gates { terminating_replicas: true },
    }
}

/// The plan for these.
pub(super) fn plan_of(deployment: &Arc<Deployment>, replica_sets: &[Arc<ReplicaSet>]) -> Plan {
    plan::plan(&view(deployment, replica_sets), now())
}

/// The plan's steps but for the status, one line each.
pub(super) fn steps(plan: &Plan) -> Vec<String> {
    let is_status = |step: &&Step| matches!(step, Step::Write(Write { subresource: "status", .. }));
    plan.steps.iter().filter(|step| !is_status(step)).map(line).collect()
}

/// All of the plan's steps, one line each.
pub(super) fn all_steps(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(line).collect()
}

/// The Deployment as the plan's last step leaves it, if that updates the status.
pub(super) fn updated(plan: &Plan) -> Option<Arc<Deployment>> {
    plan.steps.iter().find_map(|step| match step {
        Step::Write(Write { subresource: "status", verb: Verb::Update(body), .. }) => {
            Some(decoded(&DEPLOYMENTS, body.to_vec()))
        }
        _ => None,
    })
}

/// The conditions that the plan writes: type, status, reason, and seconds since the last update and transition.
pub(super) fn conditions(plan: &Plan) -> Vec<String> {
    let deployment = updated(plan).expect("a status update");
    let ago = |at: Option<Time>| at.map_or(-1, |at| NOW - at.seconds());
    let show = |held: &DeploymentCondition| {
        let (updated, changed) = (ago(held.last_update_time), ago(held.last_transition_time));
        format!("{}={} {} {updated}/{changed}", held.r#type, held.status, held.reason)
    };
    deployment.status.conditions.iter().map(show).collect()
}

fn line(step: &Step) -> String {
    match step {
        Step::Verify(verify) => format!("verify {} {} {:?}", verify.kind, verify.key, verify.expect),
        Step::Emit(event) => show(event),
        Step::Write(write) => {
            let event =
                write.on_success.as_ref().map_or_else(String::new, |event| format!(" -> {}", show(event)));
            assert!(write.on_failure.is_none());
            format!("{}{event}", written(write))
        }
        _ => "batch".to_owned(),
    }
}

fn show(event: &EventSpec) -> String {
    assert_eq!(event.regarding.kind, &DEPLOYMENTS);
    let warning = if event.warning { "Warning " } else { "" };
    format!("{warning}{}: {}", event.reason, event.message)
}

fn written(write: &Write) -> String {
    let name = &write.key.name;
    match &write.verb {
        Verb::Create(body) => format!("create {}", set_line(&decoded(&REPLICA_SETS, body.to_vec()))),
        Verb::Update(_) if write.subresource == "status" => format!("status {name}"),
        Verb::Update(_) if write.kind == &DEPLOYMENTS => format!("update {name}"),
        Verb::Update(body) => format!("update {}", set_line(&decoded(&REPLICA_SETS, body.to_vec()))),
        Verb::Patch(patch @ Patch::Strategic(_)) => format!("patch {name} {}", patch.value()),
        Verb::Delete { uid, resource_version, propagation: None, grace_period: None } => {
            format!("delete {name} {uid} {}", resource_version.as_deref().unwrap_or("any"))
        }
        other => panic!("unexpected {other:?}"),
    }
}

/// Name, size, and annotations without their common prefix.
fn set_line(set: &ReplicaSet) -> String {
    let short = |key: &str| key.trim_start_matches("deployment.kubernetes.io/").to_owned();
    let annotations: Vec<_> =
        set.metadata.annotations.iter().map(|(key, value)| format!("{}={value}", short(key))).collect();
    format!("{} size={} {}", set.metadata.name, set.spec.replicas.unwrap(), annotations.join(" "))
}

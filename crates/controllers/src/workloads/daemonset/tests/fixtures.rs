//! Objects, what is observed of them, and plans as lines of text.

use std::sync::Arc;

use bytes::Bytes;

use super::super::memory::Note;
use super::super::plan;
use super::super::view::{Gates, View};
use coxswain_machinery::api::apps::{
    ControllerRevision, DaemonSet, RevisionDocument, RollingUpdateDaemonSet,
};
use coxswain_machinery::api::core::{Node, Taint};
use coxswain_machinery::api::kinds::{CONTROLLER_REVISIONS, DAEMON_SETS, PODS};
use coxswain_machinery::api::meta::{LabelSelector, ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{Kind, Object};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::{Patch, Verb};
use coxswain_machinery::model::revisions::{Numbers, TemplateDocument};
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::model::{Failure, Plan, Step, Write};
use coxswain_machinery::random::HashMap;
use coxswain_machinery::wire::splice::{get, put_bytes};
use coxswain_machinery::wire::{IntOrString, Message, Raw, Str};

pub(super) use crate::fixtures::{ago, deleting, failed, labels, now, orphaned, ready, unready};

/// A template with the labels `app=agent`, a container of this image, and this much more of a spec.
pub(super) fn template_with(image: &str, more: &[u8]) -> Raw {
    let metadata = ObjectMeta { labels: labels(&[("app", "agent")]), ..ObjectMeta::default() };
    let mut container = Vec::new();
    put_bytes(&mut container, 1, b"agent");
    put_bytes(&mut container, 2, image.as_bytes());
    let mut spec = Vec::new();
    put_bytes(&mut spec, 2, &container);
    spec.extend_from_slice(more);
    let mut template = Vec::new();
    put_bytes(&mut template, 1, &metadata.to_bytes());
    put_bytes(&mut template, 2, &spec);
    Raw(template.into())
}

pub(super) fn template(image: &str) -> Raw {
    template_with(image, b"")
}

/// `default/agent`: rolls with one node unavailable, generation 3, of which its status speaks.
pub(super) fn daemon_set(change: impl FnOnce(&mut DaemonSet)) -> Arc<DaemonSet> {
    let metadata = ObjectMeta {
        name: "agent".into(),
        namespace: "default".into(),
        uid: "agent-uid".into(),
        resource_version: "100".into(),
        generation: 3,
        ..ObjectMeta::default()
    };
    let mut set = DaemonSet { metadata, ..DaemonSet::default() };
    set.spec.selector = LabelSelector { match_labels: labels(&[("app", "agent")]), ..Default::default() };
    set.spec.template = template("agent:2");
    set.spec.update_strategy.r#type = "RollingUpdate".into();
    rolls(&mut set, IntOrString::Int(1), IntOrString::Int(0));
    set.status.observed_generation = 3;
    change(&mut set);
    decoded(&DAEMON_SETS, set.to_bytes())
}

pub(super) fn rolls(set: &mut DaemonSet, unavailable: IntOrString, surge: IntOrString) {
    let bounds = RollingUpdateDaemonSet { max_unavailable: Some(unavailable), max_surge: Some(surge) };
    set.spec.update_strategy.rolling_update = Some(Box::new(bounds));
}

pub(super) fn surges(set: &mut DaemonSet) {
    rolls(set, IntOrString::Int(0), IntOrString::Int(1));
}

/// An object as the API server would send these bytes.
pub(super) fn decoded<T: Object>(kind: &Kind, bytes: Vec<u8>) -> Arc<T> {
    downcast((kind.decode)(&Bytes::from(bytes)).unwrap()).unwrap()
}

pub(super) fn owner() -> OwnerReference {
    controller_reference(&daemon_set(|_| {}).metadata, &DAEMON_SETS)
}

pub(super) fn document(template: &Raw) -> TemplateDocument {
    TemplateDocument::of(template, Numbers::Exact).unwrap()
}

/// The revision of this image's template: `agent-HASH`, with the hash as its label.
pub(super) fn revision(
    number: i64,
    hash: &str,
    image: &str,
    change: impl FnOnce(&mut RevisionDocument),
) -> Arc<ControllerRevision> {
    let metadata = ObjectMeta {
        name: format!("agent-{hash}").into(),
        namespace: "default".into(),
        uid: format!("{hash}-uid").into(),
        resource_version: "40".into(),
        labels: labels(&[("app", "agent"), ("controller-revision-hash", hash)]),
        owner_references: vec![owner()],
        ..ObjectMeta::default()
    };
    let mut held = RevisionDocument { metadata, revision: number, ..RevisionDocument::default() };
    held.data.raw = Bytes::copy_from_slice(document(&template(image)).as_bytes()).into();
    change(&mut held);
    decoded(&CONTROLLER_REVISIONS, held.to_bytes())
}

pub(super) fn node(name: &str, change: impl FnOnce(&mut Node)) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = name.into();
    change(&mut node);
    Arc::new(node)
}

pub(super) fn taint(node: &mut Node, effect: &str) {
    node.spec.taints.push(Taint { key: "full".into(), effect: effect.into(), ..Taint::default() });
}

/// A pod of the present template (`new`), bound to a node and ready for 1000 seconds.
pub(super) fn pod(name: &str, node: &str, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    let metadata = ObjectMeta {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "50".into(),
        labels: labels(&[("app", "agent"), ("controller-revision-hash", "new")]),
        creation_timestamp: ago(1100),
        owner_references: vec![owner()],
        ..ObjectMeta::default()
    };
    let mut pod = Pod { metadata, ..Pod::default() };
    pod.spec.node_name = node.into();
    pod.status.phase = "Running".into();
    pod.status.conditions = vec![ready(ago(1000))];
    change(&mut pod);
    Arc::new(pod)
}

pub(super) fn old(pod: &mut Pod) {
    pod.metadata.labels = pod.metadata.labels.with("controller-revision-hash", "old");
}

pub(super) fn succeeded(pod: &mut Pod) {
    pod.status.phase = "Succeeded".into();
    unready(pod);
}

/// Not bound yet, and meant for the node that it was made with.
pub(super) fn unbound(pod: &mut Pod) {
    let node = std::mem::take(&mut pod.spec.node_name);
    let encoded = coxswain_machinery::model::fitting::meant_for(&[], &node).unwrap();
    pod.spec.affinity = Pod::decode(&Bytes::from(encoded)).unwrap().spec.affinity;
}

/// What is observed of a DaemonSet whose present revision has the hash `new` and the number 2, on nodes a to `nodes`.
pub(super) fn view(set: &Arc<DaemonSet>, nodes: &[&str], pods: &[Arc<Pod>]) -> View {
    View {
        daemon_set: Arc::clone(set),
        selector: Selector::compile(&set.spec.selector).unwrap(),
        pods: pods.to_vec(),
        revisions: vec![revision(1, "old", "agent:1", |_| {}), revision(2, "new", "agent:2", |_| {})],
        nodes: nodes.iter().map(|name| node(name, |_| {})).collect(),
        backoffs: HashMap::default(),
        failures: Vec::new(),
        gates: Gates { comparing_tolerations: false },
    }
}

pub(super) fn planned(view: &View) -> Plan<Note> {
    plan::plan(view, now())
}

/// The plan's steps but for the status, one line each; creates are told by node.
pub(super) fn steps(view: &View) -> Vec<String> {
    let mut lines = all_steps(view);
    lines.retain(|line| !line.starts_with("status"));
    lines
}

/// All of the plan's steps, one line each.
pub(super) fn all_steps(view: &View) -> Vec<String> {
    planned(view).steps.iter().flat_map(told).collect()
}

/// The status that a plan writes; `None` if it writes none.
pub(super) fn status(view: &View) -> Option<String> {
    all_steps(view).into_iter().find_map(|line| line.strip_prefix("status ").map(str::to_owned))
}

fn told(step: &Step) -> Vec<String> {
    match step {
        Step::Verify(verify) => vec![format!("verify {}", verify.key.name)],
        Step::Emit(event) => vec![format!("emit {}", event.reason)],
        other => other.writes().map(line).collect(),
    }
}

pub(super) fn line(write: &Write) -> String {
    let (name, kind) = (&write.key.name, write.kind);
    match &write.verb {
        Verb::Create(body) if kind == &PODS => {
            let pod: Arc<Pod> = decoded(&PODS, body.to_vec());
            format!("create on {}", pod.target_node().expect("a target"))
        }
        Verb::Create(body) => {
            let held: Arc<RevisionDocument> =
                decoded(&coxswain_machinery::api::kinds::CONTROLLER_REVISION_DOCUMENTS, body.to_vec());
            format!("create revision {name} #{}", held.revision)
        }
        Verb::Update(body) if write.subresource == "status" => {
            format!("status {}", counts(&decoded(&DAEMON_SETS, body.to_vec())))
        }
        Verb::Patch(Patch::Strategic(patch)) => {
            let references = &patch["metadata"]["ownerReferences"][0];
            let verb = if references["$patch"] == "delete" { "release" } else { "adopt" };
            format!("{verb} {name}")
        }
        Verb::Patch(Patch::Merge(patch)) => {
            assert!(patch["metadata"]["uid"].is_string());
            let label = patch["metadata"]["labels"]["controller-revision-hash"].as_str();
            let label = label.map(|hash| format!("label {name} {hash}"));
            match (label, &patch["revision"]) {
                (Some(label), serde_json::Value::Null) => label,
                (Some(label), number) => format!("{label} number {number}"),
                (None, number) => format!("number {name} {number}"),
            }
        }
        Verb::Delete { uid, .. } => {
            assert_ne!(uid.to_str(), Str::EMPTY);
            format!("delete {name}")
        }
        other => panic!("unexpected {other:?}"),
    }
}

/// `desired/current/misscheduled ready/available/unavailable updated @generation`, and collisions.
fn counts(set: &DaemonSet) -> String {
    let held = &set.status;
    let collisions = held.collision_count.map_or_else(String::new, |count| format!(" !{count}"));
    format!(
        "{}/{}/{} {}/{}/{} {} @{}{collisions}",
        held.desired_number_scheduled,
        held.current_number_scheduled,
        held.number_misscheduled,
        held.number_ready,
        held.number_available,
        held.number_unavailable,
        held.updated_number_scheduled,
        held.observed_generation,
    )
}

/// A write that the server answered with this code and reason.
pub(super) fn refused(write: &Write, code: u16, reason: &str) -> Failure {
    Failure {
        what: write.to_string(),
        verb: write.verb.name(),
        subresource: write.subresource,
        kind: write.kind,
        key: write.key.clone(),
        code,
        reason: reason.into(),
        message: reason.to_owned(),
        existing: None,
    }
}

/// The first pod that a plan makes, encoded.
pub(super) fn first_created(view: &View) -> Bytes {
    let plan = planned(view);
    let body = plan.writes().find_map(|write| match &write.verb {
        Verb::Create(body) if write.kind == &PODS => Some(body.clone()),
        _ => None,
    });
    body.expect("a pod is made")
}

/// The bytes of a field of an encoded message.
pub(super) fn field<'a>(message: &'a [u8], path: &[u32]) -> Option<&'a [u8]> {
    get(message, path).unwrap().map(|value| value.bytes().unwrap())
}

//! Objects, what is observed of them, and plans as lines of text.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;

use super::super::backoff::Record;
use super::super::member::{FAILURES, IGNORED_FAILURES, INDEX, TRACKING};
use super::super::note::Note;
use super::super::plan;
use super::super::view::{Gates, View, Written};
use coxswain_machinery::api::batch::{Job, JobCondition, UncountedTerminatedPods};
use coxswain_machinery::api::kinds::{JOBS, PODS};
use coxswain_machinery::api::meta::{LabelSelector, ObjectMeta, OwnerReference};
use coxswain_machinery::api::pod::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition,
};
use coxswain_machinery::api::{Kind, Object};
use coxswain_machinery::informer::downcast;
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::{Patch, Verb};
use coxswain_machinery::model::selector::Selector;
use coxswain_machinery::model::{Failure, Plan, Step, Write};
use coxswain_machinery::wire::splice::{edit, get, put_bytes};
use coxswain_machinery::wire::{Message, Raw, Str, Time};

pub(super) use crate::fixtures::{ago, labels, now, unready};

/// A template with the label `app=work`, and this restart policy.
pub(super) fn template(policy: &str) -> Raw {
    let metadata = ObjectMeta { labels: labels(&[("app", "work")]), ..ObjectMeta::default() };
    let (mut spec, mut container) = (Vec::new(), Vec::new());
    put_bytes(&mut container, 1, b"main");
    put_bytes(&mut spec, 2, &container);
    put_bytes(&mut spec, 3, policy.as_bytes());
    let mut template = Vec::new();
    put_bytes(&mut template, 1, &metadata.to_bytes());
    put_bytes(&mut template, 2, &spec);
    Raw(template.into())
}

/// `default/work`, started 100 seconds ago, that runs two pods at a time until four have succeeded; none is there yet, and its
/// status says so.
pub(super) fn job(change: impl FnOnce(&mut Job)) -> Arc<Job> {
    let metadata = ObjectMeta {
        name: "work".into(),
        namespace: "default".into(),
        uid: "work-uid".into(),
        resource_version: "100".into(),
        generation: 1,
        ..ObjectMeta::default()
    };
    let mut job = Job { metadata, ..Job::default() };
    job.spec.selector = LabelSelector { match_labels: labels(&[("app", "work")]), ..Default::default() };
    job.spec.template = template("Never");
    job.spec.completion_mode = "NonIndexed".into();
    job.spec.parallelism = Some(2);
    job.spec.completions = Some(4);
    job.spec.backoff_limit = Some(6);
    job.status.start_time = ago(100);
    job.status.ready = Some(0);
    job.status.terminating = Some(0);
    job.status.uncounted_terminated_pods = Some(Box::default());
    change(&mut job);
    decoded(&JOBS, job.to_bytes())
}

/// One whose pods have indexes.
pub(super) fn indexed(change: impl FnOnce(&mut Job)) -> Arc<Job> {
    job(|job| {
        job.spec.completion_mode = "Indexed".into();
        change(job);
    })
}

pub(super) fn condition(kind: &str, status: &str, reason: &str) -> JobCondition {
    JobCondition { r#type: kind.into(), status: status.into(), reason: reason.into(), ..Default::default() }
}

/// The UIDs of pods of these names wait to be counted.
pub(super) fn uncounted(job: &mut Job, succeeded: &[&str], failed: &[&str]) {
    let uids = |names: &[&str]| names.iter().map(|name| format!("{name}-uid").into()).collect();
    let lists = UncountedTerminatedPods { succeeded: uids(succeeded), failed: uids(failed) };
    job.status.uncounted_terminated_pods = Some(Box::new(lists));
}

/// An object as the API server would send these bytes.
pub(super) fn decoded<T: Object>(kind: &Kind, bytes: Vec<u8>) -> Arc<T> {
    downcast((kind.decode)(&Bytes::from(bytes)).unwrap()).unwrap()
}

pub(super) fn owner() -> OwnerReference {
    controller_reference(&job(|_| {}).metadata, &JOBS)
}

/// A pod of the Job that runs on a node, is ready, and is tracked.
pub(super) fn pod(name: &str, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    let metadata = ObjectMeta {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("{name}-uid").into(),
        resource_version: "50".into(),
        labels: labels(&[("app", "work")]),
        creation_timestamp: ago(90),
        owner_references: vec![owner()],
        finalizers: vec![TRACKING.into()],
        ..ObjectMeta::default()
    };
    let mut pod = Pod { metadata, ..Pod::default() };
    pod.spec.node_name = "node".into();
    pod.status.phase = "Running".into();
    pod.status.conditions = vec![ready(true, ago(80))];
    change(&mut pod);
    Arc::new(pod)
}

/// A pod of an index.
pub(super) fn pod_of(index: u32, name: &str, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    pod(name, |pod| {
        annotate(pod, INDEX, &index.to_string());
        change(pod);
    })
}

pub(super) fn annotate(pod: &mut Pod, name: &str, value: &str) {
    pod.metadata.annotations = pod.metadata.annotations.with(name, value);
}

/// The index failed so often before, counted and not counted.
pub(super) fn failed_before(pod: &mut Pod, counted: i32, ignored: i32) {
    annotate(pod, FAILURES, &counted.to_string());
    annotate(pod, IGNORED_FAILURES, &ignored.to_string());
}

pub(super) fn ready(is_ready: bool, since: Option<Time>) -> PodCondition {
    PodCondition {
        r#type: "Ready".into(),
        status: if is_ready { "True" } else { "False" }.into(),
        last_transition_time: since,
        ..PodCondition::default()
    }
}

/// It ended with this code, so many seconds ago.
pub(super) fn exited(pod: &mut Pod, code: i32, seconds: i64) {
    unready(pod);
    let ended = ContainerStateTerminated { exit_code: code, finished_at: ago(seconds) };
    pod.status.container_statuses = vec![ContainerStatus {
        name: "main".into(),
        state: ContainerState { terminated: Some(Box::new(ended)), ..ContainerState::default() },
        ..ContainerStatus::default()
    }];
    pod.status.phase = if code == 0 { "Succeeded" } else { "Failed" }.into();
}

/// It failed long ago, so that nothing has to wait for that.
pub(super) fn failed(pod: &mut Pod) {
    exited(pod, 1, 10_000);
}

pub(super) fn succeeded(pod: &mut Pod) {
    exited(pod, 0, 10_000);
}

pub(super) fn deleting(pod: &mut Pod) {
    pod.metadata.deletion_timestamp = ago(20_000);
}

pub(super) fn untracked(pod: &mut Pod) {
    pod.metadata.finalizers.clear();
}

pub(super) fn orphaned(pod: &mut Pod) {
    pod.metadata.owner_references.clear();
    untracked(pod);
}

pub(super) fn view(job: &Arc<Job>, pods: &[Arc<Pod>]) -> View {
    let policy = get(&job.spec.template.0, &[2, 3]).unwrap().unwrap().text().unwrap();
    View {
        job: Arc::clone(job),
        selector: Selector::compile(&job.spec.selector).unwrap(),
        restarts_in_place: policy == "OnFailure",
        pods: pods.to_vec(),
        backoff: Record::default(),
        written: None,
        withholds_creates: false,
        gates: Gates { drops_start_time: true },
        scheduling: None,
    }
}

/// What is observed after these writes failed.
pub(super) fn after(view: &View, written: Written) -> View {
    View { written: Some(written), ..view.clone() }
}

pub(super) fn planned(view: &View) -> Plan<Note> {
    plan::plan(view, now())
}

/// The plan's steps, one line each.
pub(super) fn steps(view: &View) -> Vec<String> {
    let plan = planned(view);
    assert_eq!(plan.retry, None);
    lines(&view.job, &plan)
}

/// What is planned for these pods.
pub(super) fn steps_of(job: &Arc<Job>, pods: &[Arc<Pod>]) -> Vec<String> {
    steps(&view(job, pods))
}

/// Those of the lines that begin with this.
pub(super) fn only(lines: Vec<String>, beginning: &str) -> Vec<String> {
    lines.into_iter().filter(|line| line.starts_with(beginning)).collect()
}

fn lines(job: &Job, plan: &Plan<Note>) -> Vec<String> {
    let told = |step: &Step| match step {
        Step::Verify(verify) => vec![format!("verify {}", verify.key.name)],
        Step::Emit(event) => vec![format!("emit {}", event.reason)],
        other => other.writes().map(|write| line(job, write)).collect(),
    };
    plan.steps.iter().flat_map(told).collect()
}

fn line(job: &Job, write: &Write) -> String {
    let name = &write.key.name;
    match &write.verb {
        Verb::Create(body) => {
            let pod: Arc<Pod> = decoded(&PODS, body.to_vec());
            let annotation = |name: &str| pod.metadata.annotations.get(name).cloned();
            let mut told = "create".to_owned();
            if let Some(index) = annotation(INDEX) {
                let _ = write!(told, " {index}");
            }
            if let Some(failures) = annotation(FAILURES) {
                let ignored = annotation(IGNORED_FAILURES).unwrap_or_else(|| "0".into());
                let _ = write!(told, " after {failures}/{ignored}");
            }
            told
        }
        Verb::Update(body) => format!("status {}", said(&decoded(&JOBS, body.to_vec()))),
        Verb::UpdateLast(edits) => {
            format!("again {}", said(&decoded(&JOBS, edit(&job.raw, edits).unwrap())))
        }
        Verb::Patch(Patch::Strategic(patch)) => {
            let metadata = &patch["metadata"];
            assert!(metadata["uid"].is_string());
            let owner = &metadata["ownerReferences"][0];
            let removes = metadata["$deleteFromPrimitiveList/finalizers"][0] == TRACKING;
            match (owner["$patch"] == "delete", owner.is_object(), removes) {
                (true, _, true) => format!("release {name}"),
                (false, true, false) => {
                    assert_eq!(metadata["finalizers"][0], TRACKING);
                    format!("adopt {name}")
                }
                (false, false, true) => format!("untrack {name}"),
                other => panic!("{other:?}: {patch}"),
            }
        }
        Verb::Delete { uid, .. } => {
            assert_ne!(uid.to_str(), Str::EMPTY);
            format!("delete {name}")
        }
        other => panic!("unexpected {other:?}"),
    }
}

/// A status: `active/ready/terminating succeeded+failed`, uncounted pods, indexes, conditions.
pub(super) fn said(job: &Job) -> String {
    let status = &job.status;
    let number = |count: Option<i32>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let mut told = format!(
        "{}/{}/{} {}+{}",
        status.active,
        number(status.ready),
        number(status.terminating),
        status.succeeded,
        status.failed
    );
    let lists = status.uncounted_terminated_pods.as_deref().cloned().unwrap_or_default();
    let names = |uids: &[coxswain_machinery::wire::Uid]| -> String {
        let names: Vec<_> = uids.iter().map(|uid| uid.to_string().replace("-uid", "")).collect();
        names.join(" ")
    };
    if !(lists.succeeded.is_empty() && lists.failed.is_empty()) {
        let _ = write!(told, " [{}|{}]", names(&lists.succeeded), names(&lists.failed));
    }
    if !status.completed_indexes.is_empty() {
        let _ = write!(told, " done:{}", status.completed_indexes);
    }
    if let Some(failed) = &status.failed_indexes {
        let _ = write!(told, " failed:{failed}");
    }
    for held in &status.conditions {
        let not = if held.status == "True" { "" } else { "!" };
        let _ = write!(told, " {not}{}", held.r#type);
        if !held.reason.is_empty() {
            let _ = write!(told, "({})", held.reason);
        }
    }
    if status.start_time.is_none() {
        told.push_str(" unstarted");
    }
    if status.completion_time.is_some() {
        told.push_str(" ended");
    }
    told
}

/// A write that the server refused.
pub(super) fn refused(write: &Write) -> Failure {
    Failure {
        what: write.to_string(),
        verb: write.verb.name(),
        subresource: write.subresource,
        kind: write.kind,
        key: write.key.clone(),
        code: 403,
        reason: "Forbidden".into(),
        message: "no".to_owned(),
        existing: None,
    }
}

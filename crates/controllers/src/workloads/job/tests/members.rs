//! Which pods are a Job's, and when a pod ended.

use super::super::member::finish_time;
use super::super::view::Written;
use super::cluster::Cluster;
use super::fixtures::{
    after, ago, deleting, exited, job, only, orphaned, planned, pod, ready, refused, steps, steps_of,
    unready, view,
};
use coxswain_machinery::api::batch::JobStatus;
use coxswain_machinery::api::kinds::JOBS;
use coxswain_machinery::api::meta::LabelSelector;
use coxswain_machinery::api::pod::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};
use coxswain_machinery::api::shape::PodShape;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::model::{Failure, Key};

#[test]
fn adoption_brings_the_finalizer_and_release_takes_it() {
    let pods = [
        pod("bare", orphaned),
        pod("going", |pod| {
            orphaned(pod);
            deleting(pod);
        }),
        pod("other", |pod| pod.metadata.labels = super::fixtures::labels(&[("app", "other")])),
    ];
    let told = steps_of(&job(|_| {}), &pods);
    assert_eq!(told[..3], ["verify work", "release other", "adopt bare"]);
    assert_eq!(only(told, "create").len(), 1, "an adopted pod counts");
    let going = job(|job| job.metadata.deletion_timestamp = ago(1));
    let told = steps_of(&going, &pods);
    assert_eq!(only(told.clone(), "adopt"), [""; 0]);
    assert_eq!(only(told, "release"), [""; 0]);
}

#[test]
fn an_adopted_pod_that_has_ended_is_counted_in_the_same_plan() {
    let ended = pod("bare", |pod| {
        orphaned(pod);
        super::fixtures::succeeded(pod);
    });
    let told = steps_of(&job(|job| job.spec.parallelism = Some(0)), &[ended]);
    assert_eq!(
        told,
        ["verify work", "adopt bare", "status 0/0/0 0+0 [bare|]", "untrack bare", "again 0/0/0 1+0"]
    );
}

#[test]
fn a_claim_that_failed_ends_the_plan() {
    let view = view(&job(|_| {}), &[pod("bare", orphaned)]);
    let plan = planned(&view);
    let adoption = plan.writes().find(|write| matches!(write.verb, Verb::Patch(_))).unwrap();
    let written = Written { failures: vec![refused(adoption)], ..Written::default() };
    assert_eq!(steps(&after(&view, written)), [""; 0]);
}

#[test]
fn job_releases_pods_although_the_check_before_adoptions_fails() {
    let other = pod("other", |pod| pod.metadata.labels = super::fixtures::labels(&[("app", "other")]));
    let view = view(&job(|_| {}), &[pod("bare", orphaned), other]);
    let plan = planned(&view);
    let adoption = plan.writes().find(|write| matches!(write.verb, Verb::Patch(_))).unwrap();
    let check = Failure { verb: "", kind: &JOBS, key: Key::new("default", "work"), ..refused(adoption) };
    let written = Written { failures: vec![check], ..Written::default() };
    assert_eq!(steps(&after(&view, written)), ["release other"]);
}

fn ended_at(name: &str, at: i64) -> ContainerStatus {
    let ended = ContainerStateTerminated { exit_code: 1, finished_at: ago(at) };
    ContainerStatus {
        name: name.into(),
        state: ContainerState { terminated: Some(Box::new(ended)), ..ContainerState::default() },
        ..ContainerStatus::default()
    }
}

#[test]
fn a_pod_ended_when_its_last_container_did() {
    let running = |name: &str| ContainerStatus { name: name.into(), ..ContainerStatus::default() };
    let with = |regular: Vec<ContainerStatus>, side: Vec<ContainerStatus>| {
        pod("a", |pod| {
            unready(pod);
            pod.status.container_statuses = regular;
            let first = ended_at("first", 1);
            pod.status.init_container_statuses = std::iter::once(first).chain(side).collect();
            pod.shape = PodShape { sidecars: vec!["side".into()], ..PodShape::default() }.into();
        })
    };
    let created = ago(90);
    for (regular, side, expected) in [
        (vec![ended_at("a", 30), ended_at("b", 20)], vec![], ago(20)),
        (vec![ended_at("a", 30)], vec![ended_at("side", 10)], ago(10)),
        (vec![ended_at("a", 30)], vec![running("side")], created),
        (vec![ended_at("a", 30), running("b")], vec![], created),
        (vec![running("b")], vec![ended_at("side", 10)], ago(10)),
        (vec![], vec![], created),
    ] {
        assert_eq!(finish_time(&with(regular, side)), expected);
    }
}

#[test]
fn a_pod_without_containers_ended_by_its_condition_or_deletion() {
    let of = |change: fn(&mut Pod)| finish_time(&pod("a", change));
    assert_eq!(of(|pod| pod.status.conditions = vec![ready(false, ago(40))]), ago(40));
    assert_eq!(of(|_| {}), ago(90), "a ready one says nothing");
    let deleted = |pod: &mut Pod| {
        pod.metadata.deletion_timestamp = ago(10);
        pod.metadata.deletion_grace_period_seconds = Some(30);
    };
    assert_eq!(of(deleted), ago(40));
    assert_eq!(of(|pod| exited(pod, 0, 5)), ago(5));
}

/// `manualSelector: true` and `selector: {}`, which the API server accepts.
#[test]
fn job_with_empty_selector_runs_and_adopts_nothing() {
    let all = job(|job| {
        job.spec.selector = LabelSelector::default();
        job.spec.completions = Some(1);
        job.status = JobStatus::default();
    });
    let foreign = pod("bare", orphaned);
    let told = steps_of(&all, &[foreign, pod("own", |_| {})]);
    assert_eq!(told, ["status 1/1/0 0+0"], "its own pod is kept");

    let mut cluster = Cluster::new(&all);
    cluster.reconcile();
    assert_eq!(cluster.pods().len(), 1);
    cluster.settle();
    assert_eq!(cluster.job().end().map(|end| end.r#type.to_string()).as_deref(), Some("Complete"));
}

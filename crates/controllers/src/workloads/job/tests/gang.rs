//! Jobs whose pods are scheduled together.

use std::sync::Arc;

use super::super::view::{Scheduling, View};
use super::fixtures::{indexed, planned, pod_of, view};
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::kinds::{JOBS, POD_GROUPS, PODS, WORKLOADS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::scheduling::{PodGroup, Workload};
use coxswain_machinery::model::Write;
use coxswain_machinery::model::plan::Verb;

use super::fixtures::{decoded, owner};

/// One that nothing was done about yet, and all of whose pods run at once.
fn new(change: impl FnOnce(&mut Job)) -> Arc<Job> {
    indexed(|job| {
        job.spec.completions = Some(2);
        job.status = coxswain_machinery::api::batch::JobStatus::default();
        change(job);
    })
}

fn seen(job: &Arc<Job>, pods: &[Arc<Pod>], workloads: &[Arc<Workload>], groups: &[Arc<PodGroup>]) -> View {
    let scheduling = Scheduling { workloads: workloads.to_vec(), groups: groups.to_vec() };
    View { scheduling: Some(scheduling), ..view(job, pods) }
}

fn writes(view: &View) -> Vec<Write> {
    planned(view).writes().cloned().collect()
}

fn body(write: &Write) -> Vec<u8> {
    let Verb::Create(body) = &write.verb else { panic!("{write:?}") };
    body.to_vec()
}

/// What is made first.
fn workload() -> Arc<Workload> {
    let made = writes(&seen(&new(|_| {}), &[], &[], &[]));
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(made[0].kind, &WORKLOADS);
    decoded(&WORKLOADS, body(&made[0]))
}

/// And then.
fn group(of: &Arc<Workload>) -> Arc<PodGroup> {
    let made = writes(&seen(&new(|_| {}), &[], &[Arc::clone(of)], &[]));
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(made[0].kind, &POD_GROUPS);
    decoded(&POD_GROUPS, body(&made[0]))
}

#[test]
fn a_workload_is_made_then_its_group_then_pods_that_name_it() {
    let workload = workload();
    assert!(workload.metadata.name.starts_with("work-"), "{}", workload.metadata.name);
    let controller = workload.spec.controller_ref.as_deref().unwrap();
    assert_eq!((controller.api_group.as_str(), controller.name.as_str()), (JOBS.group, "work"));
    assert_eq!(workload.metadata.owner_references, [owner()]);
    let group = group(&workload);
    assert!(group.metadata.name.starts_with(&format!("{}-work-pgt-0-", workload.metadata.name)));
    let owners = &group.metadata.owner_references;
    assert_eq!((owners[0].controller, owners[1].controller), (Some(true), None));
    assert_eq!((owners[1].kind.as_str(), owners[1].block_owner_deletion), ("Workload", None));

    let view = seen(&new(|_| {}), &[], &[workload], &[Arc::clone(&group)]);
    let created: Vec<Arc<Pod>> = writes(&view)
        .iter()
        .filter(|write| write.kind == &PODS)
        .map(|write| decoded(&PODS, body(write)))
        .collect();
    assert_eq!(created.len(), 2);
    assert!(created.iter().all(|pod| pod.shape.pod_group == group.metadata.name));
}

/// A lost answer makes no second one.
#[test]
fn names_are_the_same_each_time_and_others_for_another_job() {
    assert_eq!(workload().metadata.name, workload().metadata.name);
    let other = writes(&seen(&new(|job| job.metadata.uid = "other-uid".into()), &[], &[], &[]));
    assert_ne!(other[0].key.name, workload().metadata.name);
    let long = writes(&seen(&new(|job| job.metadata.name = "x".repeat(250).as_str().into()), &[], &[], &[]));
    assert_eq!(long[0].key.name.len(), 253);
}

#[test]
fn pods_are_plain_where_it_is_too_late_or_somebody_elses() {
    let plain =
        |view: &View| writes(view).iter().all(|write| write.kind != &WORKLOADS && write.kind != &POD_GROUPS);
    let runs = |job: &mut Job| job.status.start_time = super::fixtures::ago(10);
    assert!(plain(&seen(&new(runs), &[], &[], &[])), "it has begun");
    assert!(plain(&seen(&new(|_| {}), &[pod_of(0, "a", |_| {})], &[], &[])), "it has a pod");
    assert!(plain(&seen(&new(|job| job.status.failed = 1), &[], &[], &[])), "a pod has failed");
    let suspended = super::fixtures::condition("Suspended", "False", "JobResumed");
    assert!(
        plain(&seen(&new(|job| job.status.conditions = vec![suspended]), &[], &[], &[])),
        "it was suspended"
    );

    let workload = workload();
    let group = group(&workload);
    let changed = |change: fn(&mut Workload)| {
        let mut other = (*workload).clone();
        change(&mut other);
        Arc::new(other)
    };
    let strange = changed(|workload| workload.metadata.owner_references.clear());
    let without = changed(|workload| workload.spec.pod_group_templates.clear());
    let mut others = (*group).clone();
    others.metadata.owner_references.clear();
    let (others, one) = (Arc::new(others), std::slice::from_ref(&workload));
    for (workloads, groups, why) in [
        (vec![strange], vec![], "a Workload that is not its own"),
        (vec![without], vec![], "one without a template"),
        (vec![Arc::clone(&workload), Arc::clone(&workload)], vec![], "two"),
        (one.to_vec(), vec![others], "a group that is not its own"),
        (one.to_vec(), vec![Arc::clone(&group), Arc::clone(&group)], "two groups"),
    ] {
        let view = seen(&new(|_| {}), &[], &workloads, &groups);
        assert!(plain(&view), "{why}");
        let pods = writes(&view);
        let pods =
            pods.iter().filter(|write| write.kind == &PODS).map(|write| decoded::<Pod>(&PODS, body(write)));
        assert_eq!(pods.filter(|pod| pod.shape.pod_group.is_empty()).count(), 2, "{why}");
    }
}

/// A group that has gone is made anew, however far the Job is; a suspended Job has its group before it has pods.
#[test]
fn a_group_is_made_whenever_there_is_none() {
    let workload = workload();
    let job = new(|job| job.status.start_time = super::fixtures::ago(10));
    let made = writes(&seen(&job, &[pod_of(0, "a", |_| {})], std::slice::from_ref(&workload), &[]));
    assert_eq!(made.iter().map(|write| write.kind.kind).collect::<Vec<_>>(), ["PodGroup"]);
    let made = writes(&seen(&new(|job| job.spec.suspend = true), &[], &[], &[]));
    assert_eq!(made.iter().map(|write| write.kind.kind).collect::<Vec<_>>(), ["Workload"]);
}

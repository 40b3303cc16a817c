//! Whether the pods of a Job are scheduled together (`WorkloadWithJob`, KEP 5547): a Workload that says how, made once, before
//! anything of the Job has begun, and its `PodGroup`, which the pods name. Where anything of that is somebody else's the pods are
//! as those of all other Jobs.
//!
//! Each of the two needs what the API server answered for the one before, so a plan makes one, and the next goes on. They are
//! found by what they refer to and by their owner; their names are made of the Job's UID, so that a lost answer makes no second
//! one.

use bytes::Bytes;

use super::super::view::View;
use super::members::Members;
use super::writes;
use coxswain_machinery::api::kinds::{JOBS, POD_GROUPS, WORKLOADS};
use coxswain_machinery::api::meta::{ObjectMeta, OwnerReference};
use coxswain_machinery::api::scheduling::{
    GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec, PodGroupTemplate,
    PodGroupTemplateReference, Workload, WorkloadController, WorkloadPodGroupTemplateReference, WorkloadSpec,
};
use coxswain_machinery::model::owners::controller_reference;
use coxswain_machinery::model::plan::Verb;
use coxswain_machinery::model::{Key, Write, hash};
use coxswain_machinery::wire::splice::put_bytes;
use coxswain_machinery::wire::{Message, Raw, Str, field};

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// What the pods belong to.
#[derive(Debug)]
pub(super) enum Gang {
    /// Nothing.
    None,
    /// The `PodGroup` of this name.
    Group(Str),
    /// What has to be made before there are pods.
    Missing(Box<Write>),
}

pub(super) fn decide(view: &View, members: &Members<'_>) -> Gang {
    let Some(scheduling) = &view.scheduling else { return Gang::None };
    let owner = &view.job.metadata;
    let is_ours = |metadata: &ObjectMeta| metadata.is_controlled_by(owner);
    let workload = match scheduling.workloads.as_slice() {
        [] if has_begun(view, members) => return Gang::None,
        [] => return Gang::Missing(Box::new(create_workload(view))),
        [workload] => workload,
        _ => return Gang::None,
    };
    let [template] = workload.spec.pod_group_templates.as_slice() else { return Gang::None };
    if !is_ours(&workload.metadata) {
        return Gang::None;
    }
    match scheduling.groups.as_slice() {
        [] => Gang::Missing(Box::new(create_group(view, workload, template))),
        [group] if is_ours(&group.metadata) => Gang::Group(group.metadata.name.clone()),
        _ => Gang::None,
    }
}

/// Whether it is too late for pods of this Job to be scheduled together.
fn has_begun(view: &View, members: &Members<'_>) -> bool {
    let status = &view.job.status;
    let was_suspended = status.conditions.iter().any(|held| held.r#type == "Suspended");
    !members.kept.is_empty()
        || status.start_time.is_some()
        || status.succeeded > 0
        || status.failed > 0
        || was_suspended
}

/// `STEM-HASH`, of a stem of which there is as much as fits.
fn named(stem: &str, parts: &[&str]) -> String {
    let end = format!("-{}", hash::encode(hash::fnv1a(parts.iter().map(|part| part.as_bytes()))));
    let room = LONGEST_NAME.saturating_sub(end.len()).min(stem.len());
    format!("{}{end}", stem.get(..room).unwrap_or(stem))
}

fn create_workload(view: &View) -> Write {
    let job = &view.job.metadata;
    let uid = job.uid.to_str();
    let name = named(&job.name, &["workload", &uid]);
    let gang = GangSchedulingPolicy { min_count: view.job.spec.parallelism.unwrap_or(1) };
    let policy = PodGroupSchedulingPolicy { gang: Some(Box::new(gang)) };
    let workload = Workload {
        metadata: ObjectMeta {
            name: name.as_str().into(),
            namespace: job.namespace.clone(),
            owner_references: vec![controller_reference(job, &JOBS)],
            ..ObjectMeta::default()
        },
        spec: WorkloadSpec {
            controller_ref: Some(Box::new(WorkloadController {
                api_group: JOBS.group.into(),
                kind: JOBS.kind.into(),
                name: job.name.clone(),
            })),
            pod_group_templates: vec![PodGroupTemplate {
                name: format!("{}-pgt-0", job.name).as_str().into(),
                scheduling_policy: Raw(policy.to_bytes().into()),
            }],
        },
    };
    let told = format!("Created Workload {name} for Job {}", job.name);
    let key = Key::new(job.namespace.clone(), name.as_str());
    Write {
        on_success: Some(writes::event(view, false, "WorkloadCreated", told)),
        ..Write::new(&WORKLOADS, key, Verb::Create(workload.to_bytes().into()))
    }
}

/// It is scheduled as its template says, in whatever words.
fn create_group(view: &View, workload: &Workload, template: &PodGroupTemplate) -> Write {
    let job = &view.job.metadata;
    let uid = job.uid.to_str();
    let name = named(&format!("{}-{}", workload.metadata.name, template.name), &["group", &uid]);
    let of_workload = OwnerReference {
        controller: None,
        block_owner_deletion: None,
        ..controller_reference(&workload.metadata, &WORKLOADS)
    };
    let metadata = ObjectMeta {
        name: name.as_str().into(),
        namespace: job.namespace.clone(),
        owner_references: vec![controller_reference(job, &JOBS), of_workload],
        ..ObjectMeta::default()
    };
    let reference = WorkloadPodGroupTemplateReference {
        workload_name: workload.metadata.name.clone(),
        pod_group_template_name: template.name.clone(),
    };
    let reference = PodGroupTemplateReference { workload: Some(Box::new(reference)) };
    let spec = PodGroupSpec { pod_group_template_ref: Some(Box::new(reference)), ..PodGroupSpec::default() };
    let mut spec = spec.to_bytes();
    put_bytes(&mut spec, field!(PodGroupSpec, schedulingPolicy), &template.scheduling_policy.0);
    let mut group = Vec::new();
    put_bytes(&mut group, field!(PodGroup, metadata), &metadata.to_bytes());
    put_bytes(&mut group, field!(PodGroup, spec), &spec);
    let key = Key::new(job.namespace.clone(), name.as_str());
    Write::new(&POD_GROUPS, key, Verb::Create(Bytes::from(group)))
}

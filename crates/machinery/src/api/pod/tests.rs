//! What is cached of a pod, beside what [`super::super::shape`] and [`super::super::charge`] make of it.

use super::*;
use crate::api::kinds::PODS;
use crate::wire::splice::{Edit, edit, put_bytes};

fn cached(bytes: Vec<u8>) -> Arc<Pod> {
    crate::informer::downcast::<Pod>((PODS.decode)(&bytes.into()).unwrap()).unwrap()
}

fn condition(kind: &str) -> PodCondition {
    PodCondition { r#type: kind.into(), status: "True".into(), ..PodCondition::default() }
}

#[test]
fn all_conditions_are_kept_of_a_pod_that_has_failed() {
    let kinds = ["Ready", "PodScheduled", "DisruptionTarget", "Mine"];
    let mut pod = Pod::default();
    pod.status.conditions = kinds.map(condition).to_vec();
    let held = |phase: &str| {
        let mut pod = pod.clone();
        pod.status.phase = phase.into();
        let cached = cached(pod.to_bytes());
        cached.status.conditions.iter().map(|held| held.r#type.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(held("Running"), ["Ready", "DisruptionTarget"]);
    assert_eq!(held("Failed"), kinds);
}

/// Rules of its failure policy go by any condition, also of a pod that has not failed.
#[test]
fn cached_pod_of_a_job_keeps_conditions_that_the_kubelet_does_not_set() {
    let mut pod = Pod::default();
    pod.status.conditions = ["Ready", "PodScheduled", "ContainersReady", "Mine"].map(condition).to_vec();
    pod.metadata.owner_references = vec![crate::api::meta::OwnerReference {
        kind: "Job".into(),
        controller: Some(true),
        ..Default::default()
    }];
    let kinds = |pod: &Pod| -> Vec<String> {
        let cached = cached(pod.to_bytes());
        cached.status.conditions.iter().map(|held| held.r#type.to_string()).collect()
    };
    assert_eq!(kinds(&pod), ["Ready", "Mine"]);
    pod.status.conditions[1].status = "False".into();
    assert_eq!(kinds(&pod), ["Ready", "PodScheduled", "Mine"]);
    pod.metadata.owner_references[0].kind = "ReplicaSet".into();
    assert_eq!(kinds(&pod), ["Ready"]);
}

#[test]
fn affinity_is_kept_until_a_pod_is_bound() {
    let field = |key: &str, values: &[&str]| NodeSelectorRequirement {
        key: key.into(),
        operator: "In".into(),
        values: values.iter().map(|value| (*value).into()).collect(),
    };
    let with = |requirement: NodeSelectorRequirement| {
        let term = NodeSelectorTerm { match_fields: vec![requirement], ..NodeSelectorTerm::default() };
        let selector = NodeSelector { node_selector_terms: vec![term] };
        let mut pod = Pod::default();
        pod.spec.affinity = Some(Box::new(PlacedBy {
            node_affinity: Some(Box::new(NodeAffinity {
                required_during_scheduling_ignored_during_execution: Some(Box::new(selector)),
            })),
        }));
        pod
    };
    let mut pod = with(field("metadata.name", &["node-1"]));
    assert_eq!(cached(pod.to_bytes()).target_node().unwrap(), "node-1");
    pod.spec.node_name = "node-1".into();
    assert!(cached(pod.to_bytes()).spec.affinity.is_none());
    for other in [field("metadata.name", &["a", "b"]), field("metadata.namespace", &["a"])] {
        assert_eq!(cached(with(other).to_bytes()).target_node(), None);
    }
    assert_eq!(Pod::default().target_node(), None);
}

#[test]
fn claims_are_told_from_other_volumes() {
    let volume = |name: &str, source: ClaimSource| ClaimVolume { name: name.into(), volume_source: source };
    let mut spec = Vec::new();
    let mut other = ClaimVolume { name: "kube-api-access-abcde".into(), ..ClaimVolume::default() }.to_bytes();
    put_bytes(&mut other, field!(ClaimVolume, volumeSource), b"\x12\x00");
    let named = ClaimReference { claim_name: "data-web-0".into() };
    let template = Raw(Bytes::from_static(b"\x12\x02\x0a\x00"));
    let volumes = [
        other,
        volume("data", ClaimSource { persistent_volume_claim: named, ..ClaimSource::default() }).to_bytes(),
        volume(
            "scratch",
            ClaimSource {
                ephemeral: Ephemeral { volume_claim_template: template.clone() },
                ..ClaimSource::default()
            },
        )
        .to_bytes(),
    ];
    for volume in volumes {
        put_bytes(&mut spec, field!(PodSpec, volumes), &volume);
    }
    let pod = cached(edit(&[], &[Edit::SetBytes(path!(Pod, spec), spec)]).unwrap());
    let claims: Vec<&PodClaim> = pod.claims.iter().collect();
    assert_eq!(
        claims.iter().map(|claim| claim.claim_name("web-0")).collect::<Vec<_>>(),
        ["data-web-0", "web-0-scratch"]
    );
    assert_eq!(claims[1].source, PodClaimSource::Ephemeral(template));
    assert_eq!(claims[0].volume, "data");
    assert_eq!(pod.claims.iter().cloned().collect::<PodClaims>(), pod.claims);
    assert_eq!(cached(Vec::new()).claims, PodClaims::default());
}

#[test]
fn a_pod_has_ended_when_nothing_of_it_runs() {
    let status = |waiting, exit_code: Option<i32>| {
        let terminated =
            exit_code.map(|exit_code| Box::new(ContainerStateTerminated { exit_code, finished_at: None }));
        let state = ContainerState { waiting: Present(waiting), terminated };
        ContainerStatus { name: "c".into(), state, restart_count: 1 }
    };
    let ended = |deleting: bool, phase: &str, regular, init, ephemeral| {
        let mut pod = Pod::default();
        pod.metadata.deletion_timestamp = deleting.then(|| Time::from_seconds(1)).flatten();
        pod.status.phase = phase.into();
        pod.status.container_statuses = vec![regular];
        pod.status.init_container_statuses = [init].into_iter().collect();
        pod.status.ephemeral_container_statuses = [ephemeral].into_iter().collect();
        let cached = cached(pod.to_bytes());
        assert_eq!(cached.status, pod.status, "it is decoded as it was encoded");
        cached.has_ended()
    };
    let (runs, waits, exited) = (status(false, None), status(true, None), status(false, Some(3)));
    assert!(!ended(true, "Running", runs.clone(), exited.clone(), exited.clone()));
    assert!(!ended(true, "Running", waits.clone(), runs.clone(), exited.clone()));
    assert!(!ended(true, "Running", waits.clone(), waits.clone(), runs.clone()));
    assert!(ended(true, "Running", waits.clone(), exited.clone(), exited.clone()));
    assert!(!ended(false, "Running", waits, exited.clone(), exited.clone()));
    assert!(ended(false, "Failed", runs.clone(), exited.clone(), exited));
    assert!(!runs.state.waiting.0 && runs.is_running());
}

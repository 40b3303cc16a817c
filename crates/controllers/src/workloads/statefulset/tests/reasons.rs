//! What an explanation says.

use super::super::Controller;
use super::fixtures::*;
use coxswain_machinery::api::apps::{RollingUpdateStatefulSet, StatefulSet};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::Room as _;
use std::sync::Arc;

fn said(bench: &Bench) -> Vec<String> {
    Controller::reasons(&bench.view(&[]), now())
}

fn of(set: &Arc<StatefulSet>, pods: &[Arc<Pod>]) -> Vec<String> {
    said(&Bench::of(set, pods))
}

#[test]
fn it_says_which_pod_is_waited_for() {
    let three = set(|set| set.spec.replicas = Some(3));
    let zero = pod(0, "web:1", |_| {});
    assert_eq!(
        of(&three, &[Arc::clone(&zero), pod(1, "web:1", unready)]),
        [
            "3 replicas desired, 2 existing: 1 ready, 1 available.",
            "web-1 is Running and not ready.",
            "No other pod is changed until web-1 is available (podManagementPolicy is OrderedReady).",
        ]
    );
    assert_eq!(
        of(&three, &[Arc::clone(&zero), pod(1, "web:1", failed)])[1],
        "web-1 has finished (Failed); it is deleted and created again."
    );
    assert_eq!(
        of(&three, &[Arc::clone(&zero), pod(1, "web:1", deleting)])[1],
        "web-1 is terminating; a pod of the same name is created after the deletion."
    );
    let patient = set(|set| {
        set.spec.replicas = Some(1);
        set.spec.min_ready_seconds = 30;
    });
    assert_eq!(
        of(&patient, &[pod(0, "web:1", |pod| pod.status.conditions = vec![ready(ago(10))])]),
        [
            "1 replica desired, 1 existing: 1 ready, 0 available.",
            "web-0 is ready and becomes available in 20s (minReadySeconds is 30).",
        ]
    );
    let parallel = set(|set| {
        set.spec.replicas = Some(3);
        set.spec.pod_management_policy = "Parallel".into();
    });
    assert_eq!(
        of(&parallel, &[zero]),
        [
            "3 replicas desired, 1 existing: 1 ready, 1 available.",
            "web-1 does not exist; it is created, with its missing claims.",
            "web-2 does not exist; it is created, with its missing claims.",
        ]
    );
}

#[test]
fn it_says_which_claim_is_in_the_way() {
    let with_claim = set(|set| {
        set.spec.replicas = Some(1);
        set.spec.volume_claim_templates = vec![claim_template("data")];
    });
    let going = claim("data-web-0", |claim| claim.metadata.deletion_timestamp = ago(1));
    assert_eq!(
        said(&Bench::of(&with_claim, &[]).with_claims(&[going]))[1],
        "web-0 is created after its claim data-web-0, which is terminating, is deleted."
    );
}

#[test]
fn it_says_how_far_the_template_is_rolled_out() {
    let replicas = |count| (0..count).map(|ordinal| pod(ordinal, "web:1", |_| {})).collect::<Vec<_>>();
    let bench = |set, pods: &[Arc<Pod>]| Bench::of(set, pods).with_revision("web:2", 2);
    let present = revision_name("web:2");
    let old = format!("web-0, web-1 and web-2 are not of the update revision {present}");
    let last = |set| said(&bench(set, &replicas(3))).pop().unwrap();
    let three = rolling(|set| set.spec.replicas = Some(3));
    assert_eq!(last(&three), format!("{old}; web-2 is replaced next, in descending order of ordinals."));
    let by_hand = rolling(|set| {
        set.spec.replicas = Some(3);
        set.spec.update_strategy.r#type = "OnDelete".into();
    });
    assert_eq!(last(&by_hand), format!("{old}; the updateStrategy is OnDelete, so you must delete them."));
    let parted = rolling(|set| {
        set.spec.replicas = Some(3);
        let rolling = RollingUpdateStatefulSet { partition: Some(3), ..Default::default() };
        set.spec.update_strategy.rolling_update = Some(Box::new(rolling));
    });
    assert_eq!(last(&parted), format!("{old}, but below the partition of 3; no pod is replaced."));
    let mut pods = replicas(2);
    pods.push(pod(2, "web:2", unready));
    assert_eq!(
        said(&bench(&three, &pods)).pop().unwrap(),
        format!(
            "web-0 and web-1 are not of the update revision {present}; web-1 is replaced when web-2 is available."
        )
    );
    let fewer = set(|set| set.spec.replicas = Some(1));
    assert_eq!(
        of(&fewer, &replicas(3)),
        [
            "1 replica desired, 3 existing: 3 ready, 3 available.",
            "web-2 and web-1 are beyond the desired replicas; the highest ordinal is deleted first.",
        ]
    );
}

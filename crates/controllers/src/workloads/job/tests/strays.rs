//! Pods that nobody is going to count.

use std::sync::Arc;

use super::super::strays::{Stray, Strays};
use super::fixtures::{condition, job, now, orphaned, pod, untracked};
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::Room as _;

fn is_let_go(pod: Arc<Pod>, job: Option<Arc<Job>>) -> bool {
    let stray = Stray { pod, job };
    assert_eq!(Strays::reasons(&stray, now()).len(), 1);
    !Strays::plan(&stray, now()).steps.is_empty()
}

#[test]
fn a_pod_is_let_go_that_nobody_counts() {
    let finished = || job(|job| job.status.conditions = vec![condition("Failed", "True", "")]);
    let external = |job: &mut Job| {
        job.spec.managed_by = "example.com/another".into();
        job.status.conditions = vec![condition("Failed", "True", "")];
    };
    assert!(is_let_go(pod("a", |_| {}), None), "its Job is gone");
    assert!(is_let_go(pod("a", |_| {}), Some(finished())));
    assert!(!is_let_go(pod("a", |_| {}), Some(job(|_| {}))), "it is going to be counted");
    assert!(!is_let_go(pod("a", |_| {}), Some(job(external))), "another controller's");
    assert!(is_let_go(pod("a", |pod| pod.metadata.owner_references.clear()), None));
    assert!(!is_let_go(pod("a", orphaned), None), "it has no finalizer");
    assert!(!is_let_go(pod("a", untracked), Some(finished())));
    let of_another_kind = |pod: &mut Pod| pod.metadata.owner_references[0].kind = "CronTask".into();
    assert!(!is_let_go(pod("a", of_another_kind), None));
    let of_another_group =
        |pod: &mut Pod| pod.metadata.owner_references[0].api_version = "example.com/v1".into();
    assert!(!is_let_go(pod("a", of_another_group), None));
}

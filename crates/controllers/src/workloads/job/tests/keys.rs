//! Which keys a change concerns.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::keys;
use super::fixtures::{ago, condition, deleting, failed, job, orphaned, pod};
use coxswain_machinery::api::batch::Job;
use coxswain_machinery::api::kinds::{JOBS, PODS};
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::api::{AnyObject, Object};
use coxswain_machinery::framework::{KeyMap, Selecting};
use coxswain_machinery::informer::{Dependents, Indexed, Lister, Store};

/// A cache of Jobs and one of pods, and the keys that changes of them queue.
struct Caches {
    jobs: Arc<Store>,
    pods: Arc<Store>,
    queued: Arc<Mutex<Vec<String>>>,
}

fn orphans(pods: &Arc<Store>) -> Indexed<Pod> {
    Indexed::new(pods, &keys::TRACKED_ORPHANS)
}

impl Caches {
    fn new() -> Self {
        let caches = Self {
            jobs: Arc::new(Store::new(&JOBS)),
            pods: Arc::new(Store::new(&PODS)),
            queued: Arc::default(),
        };
        let (jobs, pods) = (&caches.jobs, &caches.pods);
        let lister = || Lister::new(Arc::clone(jobs));
        caches.listen(jobs, "now", keys::of_jobs());
        caches.listen(jobs, "soon", keys::of_statuses());
        caches.listen(pods, "soon", keys::of_pods(lister(), Selecting::new(jobs)));
        caches.listen(pods, "stray", keys::of_strays(lister()));
        caches.listen(jobs, "stray", keys::of_leavers(Dependents::new(pods), orphans(pods)));
        caches
    }

    fn listen(&self, store: &Arc<Store>, when: &'static str, keys: KeyMap) {
        let queued = Arc::clone(&self.queued);
        store.add_handler(
            "job",
            Arc::new(move |delta| keys(delta, &mut |key| queued.lock().push(format!("{when} {}", key.name)))),
        );
    }

    fn queued(&self) -> Vec<String> {
        let mut queued = std::mem::take(&mut *self.queued.lock());
        queued.sort();
        queued
    }

    fn put<T: Object>(&self, store: &Arc<Store>, object: Arc<T>) -> Vec<String> {
        let object: AnyObject = object;
        store.upsert(&object);
        self.queued()
    }

    fn remove<T: Object>(&self, store: &Arc<Store>, object: Arc<T>) -> Vec<String> {
        let object: AnyObject = object;
        store.remove(&object);
        self.queued()
    }

    fn job(&self, version: i64, change: impl FnOnce(&mut Job)) -> Vec<String> {
        let job = job(|job| {
            job.metadata.resource_version = version.to_string().into();
            change(job);
        });
        self.put(&self.jobs, job)
    }

    fn pod(&self, version: i64, change: impl FnOnce(&mut Pod)) -> Vec<String> {
        let pod = pod("a", |pod| {
            pod.metadata.resource_version = version.to_string().into();
            change(pod);
        });
        self.put(&self.pods, pod)
    }
}

fn ended(job: &mut Job) {
    job.status.conditions = vec![condition("Complete", "True", "")];
}

#[test]
fn a_job_that_asks_for_something_else_is_looked_at_at_once() {
    let caches = Caches::new();
    assert_eq!(caches.job(1, |_| {}), ["now work"]);
    assert_eq!(caches.job(2, |job| job.status.active = 3), ["soon work"]);
    assert_eq!(caches.job(3, |job| job.metadata.generation = 2), ["now work"]);
    assert_eq!(
        caches.job(4, |job| {
            job.metadata.generation = 2;
            ended(job);
        }),
        [""; 0]
    );
    assert_eq!(caches.remove(&caches.jobs, job(|_| {})), ["now work"]);
}

#[test]
fn a_job_that_has_ended_when_it_is_seen_first_wakes_nobody() {
    let caches = Caches::new();
    assert_eq!(caches.job(1, ended), [""; 0]);
}

#[test]
fn a_pod_is_told_of_its_job_and_one_of_nobody_of_those_that_select_it() {
    let caches = Caches::new();
    caches.job(1, |_| {});
    assert_eq!(caches.pod(1, |_| {}), ["soon work"]);
    assert_eq!(caches.pod(2, |pod| pod.spec.node_name = "another".into()), [""; 0], "nothing that counts");
    assert_eq!(caches.pod(3, failed), ["soon work"]);
    assert_eq!(
        caches.pod(4, |pod| {
            failed(pod);
            deleting(pod);
        }),
        ["soon work"]
    );
    assert_eq!(
        caches.pod(5, orphaned),
        ["soon work", "soon work"],
        "the one that it had, and the ones that may have it"
    );
}

#[test]
fn pods_that_are_left_behind_are_told_of() {
    let caches = Caches::new();
    caches.job(1, |_| {});
    assert_eq!(caches.pod(1, |_| {}), ["soon work"]);
    // When their Job has come to its end, at each of its changes.
    assert_eq!(caches.job(2, ended), ["stray a"]);
    assert_eq!(
        caches.job(3, |job| {
            ended(job);
            job.metadata.generation = 9;
        }),
        ["stray a"]
    );
    assert_eq!(caches.pod(2, deleting), ["soon work", "stray a"]);
    // And when it is gone.
    assert_eq!(caches.remove(&caches.jobs, job(|_| {})), ["now work", "stray a"]);
    // Of a Job that is not known those that run are left alone.
    assert_eq!(caches.pod(3, |_| {}), [""; 0]);
    assert_eq!(caches.pod(4, |pod| pod.metadata.deletion_timestamp = ago(1)), ["stray a"]);
    assert_eq!(caches.pod(5, |pod| pod.metadata.owner_references.clear()), ["stray a"]);
}

/// Ten thousand bare pods cost the end of a Job nothing.
#[test]
fn of_bare_pods_only_the_tracked_ones_are_looked_at_when_a_job_ends() {
    let caches = Caches::new();
    caches.job(1, |_| {});
    let filed = || orphans(&caches.pods).filed("default").len();
    caches.pod(1, |_| {});
    assert_eq!(filed(), 0, "it has a controller");
    caches.pod(2, orphaned);
    assert_eq!(filed(), 0, "it is not tracked");
    caches.pod(3, |pod| pod.metadata.owner_references.clear());
    assert_eq!(filed(), 1);
    assert_eq!(caches.job(2, ended), ["stray a"]);
    caches.pod(4, orphaned);
    assert_eq!(caches.job(3, ended), [""; 0]);
}

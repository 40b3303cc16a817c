//! How many pods there should be, by their controllers.

use std::sync::Arc;

use super::fixtures::{Bench, bare, budget, controlled_by, lines, meta, percent, pod};
use coxswain_machinery::api::autoscaling::Scale;
use coxswain_machinery::api::pod::Pod;
use coxswain_machinery::framework::{ApiError, ApiResource, ApiResources, Observation, Read, Reads};
use coxswain_machinery::model::Key;
use coxswain_machinery::wire::Str;

/// Half of what there should be, of pods of these controllers.
fn half(controllers: &[(&str, &str, &str)]) -> Bench {
    let pods: Vec<Arc<Pod>> = controllers
        .iter()
        .enumerate()
        .map(|(at, (version, kind, name))| {
            let owners = controlled_by(version, kind, name);
            pod(&format!("p{at}"), |pod| pod.metadata.owner_references = owners)
        })
        .collect();
    Bench::of(&budget(|budget| budget.spec.min_available = Some(percent("50%"))), &pods)
}

/// The expected pods that the status is made to tell.
fn expected(bench: &Bench) -> String {
    let status = bench.status();
    let numbers = status.split(' ').nth(2).unwrap_or_default();
    numbers.rsplit('/').next().unwrap_or_default().to_owned()
}

const SET: (&str, &str, &str) = ("apps/v1", "ReplicaSet", "rs");

#[test]
fn each_controller_counts_once_and_a_deployment_in_the_place_of_its_sets() {
    assert_eq!(expected(&half(&[SET, SET, SET])), "4");
    let deployment = |bench: Bench| {
        bench
            .with_deployment("web", 10)
            .with_replica_set("rs", 7, Some(("Deployment", "web")))
            .with_replica_set("old", 3, Some(("Deployment", "web")))
    };
    assert_eq!(expected(&deployment(half(&[SET, SET]))), "10");
    // While it rolls, too.
    assert_eq!(expected(&deployment(half(&[SET, ("apps/v1", "ReplicaSet", "old")]))), "10");
    let rollout = half(&[SET]).with_replica_set("rs", 7, Some(("Rollout", "web")));
    assert_eq!(expected(&rollout), "7");
    assert_eq!(expected(&half(&[("extensions/v1beta1", "ReplicaSet", "rs")])), "4");
    let mixed = half(&[SET, ("apps/v1", "StatefulSet", "db"), ("v1", "ReplicationController", "rc")]);
    let mixed = mixed.with_stateful_set("db", 3).with_replication_controller("rc", 2);
    assert_eq!(expected(&mixed), "9");
}

#[test]
fn pods_without_a_controller_are_left_out_and_told_of() {
    let bench = half(&[SET]);
    bench.pods.upsert(&(pod("zz", bare) as coxswain_machinery::api::AnyObject));
    let told = bench.lines();
    let [warning, status] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(
        warning,
        "Warning UnmanagedPods web: Pods selected by this PodDisruptionBudget (selector: \
         &LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},}) were found \
         to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined \
         behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
    );
    assert_eq!(status, "status 0 2/2/4 @3 False InsufficientPods");
    // A number counts pods: whose they are does not matter.
    let number = Bench::of(&budget(|_| {}), &[pod("zz", bare)]);
    assert_eq!(number.lines(), ["status 0 1/2/1 @3 False InsufficientPods"]);
}

fn resource(group: &str, kind: &str, resource: &str, subresources: &[&str]) -> ApiResource {
    ApiResource {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        resource: resource.into(),
        namespaced: true,
        subresources: subresources.iter().map(|name| Str::from(*name)).collect(),
        ..ApiResource::default()
    }
}

/// An API with Rollouts and `ReplicaSets`, which can be scaled, and Jobs, which can't.
fn api() -> Arc<ApiResources> {
    let resources = vec![
        resource("rolls.io", "Rollout", "rollouts", &["scale"]),
        resource("apps", "ReplicaSet", "replicasets", &["scale", "status"]),
        resource("batch", "Job", "jobs", &["status"]),
    ];
    Arc::new(ApiResources::of(resources, Vec::new()))
}

fn reads() -> Reads {
    Reads::default().with_resources(Ok(api())).with_latest_resources(Ok(api()))
}

/// The scale of the object of this name, as an object of that UID has it.
fn with_scale(read: Reads, resource: &str, name: &str, uid: &str, replicas: i32) -> Reads {
    let row = api().all().find(|held| held.resource == resource).unwrap().metadata_kind();
    let mut scale = Scale { metadata: meta(name), ..Scale::default() };
    scale.metadata.uid = uid.into();
    scale.spec.replicas = replicas;
    read.with_scale(row, Key::new("default", name), Ok(Some(scale)))
}

const ROLLOUT: (&str, &str, &str) = ("rolls.io/v1", "Rollout", "roll");

#[test]
fn controller_that_cannot_be_addressed_closes_the_budget_and_is_not_read_again() {
    let row = api().all().find(|held| held.resource == "rollouts").unwrap().metadata_kind();
    let what = "invalid resource name \"..\": [may not be '..']";
    let error = ApiError::Unaddressable { request: "GET".to_owned(), what: what.to_owned() };
    let read = reads().with_scale(row, Key::new("default", ".."), Err(error));
    let bench = half(&[("rolls.io/v1", "Rollout", "..")]).reading(read);
    let told = bench.lines();
    assert!(told.iter().any(|line| line.contains("SyncFailed")), "{told:?}");
    assert!(told.iter().all(|line| !line.contains("retry")), "{told:?}");
}

#[test]
fn scales_are_read_of_those_that_are_not_cached() {
    let asked = |bench: &Bench| match bench.observe("web", &[]) {
        Observation::Needs(reads) => reads.into_iter().map(Read::from).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(asked(&half(&[ROLLOUT, SET])), [Read::Resources]);
    let known = half(&[ROLLOUT, SET, ROLLOUT, ("rolls.io/v1", "Rollout", "other")]).reading(reads());
    assert!(matches!(asked(&known).as_slice(), [Read::Scale(..), Read::Scale(..)]), "one for each");
    let read = with_scale(reads(), "rollouts", "roll", "roll-uid", 5);
    assert_eq!(expected(&half(&[ROLLOUT, ROLLOUT, SET]).reading(read)), "9");
    // The ReplicaSet is cached, the Deployment that controls it is not.
    let orphan = half(&[SET]).with_replica_set("rs", 7, Some(("Deployment", "gone")));
    let read = with_scale(reads(), "replicasets", "rs", "rs-uid", 7);
    assert_eq!(expected(&orphan.reading(read)), "7");
    // A number asks for nobody's replicas.
    let number = Bench::of(
        &budget(|_| {}),
        &[pod("a", |pod| {
            pod.metadata.owner_references = controlled_by("rolls.io/v1", "Rollout", "roll");
        })],
    );
    assert_eq!(expected(&number), "1");
}

#[test]
fn who_has_no_replicas_closes_the_budget() {
    let failed = |bench: &Bench, error: &str, retried: bool| {
        let plan = bench.plan();
        let event = format!(
            "Warning CalculateExpectedPodCountFailed web: Failed to calculate the number of expected pods: {error}"
        );
        let status = format!("status 0 0/0/0 @0 False SyncFailed: {error}");
        assert_eq!(lines(&plan), [event, status]);
        assert_eq!((plan.retry.is_some(), plan.end), (retried, false), "{error}");
    };
    let job = ("batch/v1", "Job", "job");
    failed(&half(&[SET, job]).reading(reads()), "jobs.batch does not implement the scale subresource", false);
    let no_match = "no matches for kind \"Thing\" in version \"rolls.io/v1\"";
    failed(&half(&[("rolls.io/v1", "Thing", "thing")]).reading(reads()), no_match, false);
    // Of several the first by name of the pods speaks, every time.
    failed(&half(&[("rolls.io/v1", "Thing", "thing"), job]).reading(reads()), no_match, false);
    let gone = "found no controllers for pod \"p1\"";
    let another = with_scale(reads(), "rollouts", "roll", "another-uid", 5);
    failed(&half(&[SET, ROLLOUT]).reading(another), gone, false);
    let row = api().all().next().unwrap().metadata_kind();
    let absent = reads().with_scale(row, Key::new("default", "roll"), Ok(None));
    failed(&half(&[SET, ROLLOUT]).reading(absent), gone, false);
    let down = ApiError::Refused {
        request: "GET".to_owned(),
        code: 500,
        reason: "".into(),
        message: "etcd is down".to_owned(),
        status: Box::default(),
        retry_after: None,
    };
    let down = reads().with_scale(row, Key::new("default", "roll"), Err(down));
    failed(&half(&[ROLLOUT]).reading(down), "etcd is down", true);
}

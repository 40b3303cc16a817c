//! Endpoints are made, deleted, and what fails is told.

use super::fixtures::{Bench, ago, pod, service};
use coxswain_machinery::api::kinds::{ENDPOINTS, SERVICES};
use coxswain_machinery::model::plan::{Plan, Step};
use coxswain_machinery::model::{Failure, Key};

#[test]
fn they_come_and_go_with_their_service() {
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {})]);
    assert_eq!(bench.reconcile(), ["create"]);
    assert_eq!(bench.reconcile(), [""; 0]);
    bench.remove(&SERVICES, "web");
    assert_eq!(bench.reconcile(), ["verify default/web", "delete"]);
    assert!(bench.plan_after(&[]).is_none());
}

#[test]
fn they_are_made_anew() {
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {})]);
    let made = bench.settled();
    bench.remove(&ENDPOINTS, "web");
    assert_eq!(bench.reconcile(), ["create"]);
    assert_eq!(bench.told(), made);
}

#[test]
fn what_is_going_is_not_deleted_again() {
    let bench = Bench::of(&service(|_| {}), []);
    bench.settled();
    let mut going = bench.held().as_ref().clone();
    going.metadata.deletion_timestamp = ago(1);
    bench.add(&going);
    bench.remove(&SERVICES, "web");
    assert!(bench.plan().is_empty());
}

fn failure(verb: &'static str, reason: &str) -> Failure {
    Failure {
        what: format!("{verb} endpoints default/web"),
        verb,
        subresource: "",
        kind: &ENDPOINTS,
        key: Key::new("default", "web"),
        code: 403,
        reason: reason.into(),
        message: "endpoints \"web\" is forbidden: no".to_owned(),
        existing: None,
    }
}

fn told(plan: &Plan) -> Vec<String> {
    assert!(plan.is_empty());
    let told = plan.steps.iter().map(|step| match step {
        Step::Emit(event) => {
            let about = &event.regarding;
            assert!(event.warning);
            format!("{} of {} {} {:?}: {}", event.reason, about.kind, about.key, about.uid, event.message)
        }
        other => panic!("{other:?}"),
    });
    told.collect()
}

#[test]
fn failures_are_told() {
    let bench = Bench::of(&service(|_| {}), []);
    let after = |what| told(&bench.plan_after(&[failure(what, "Forbidden")]).unwrap());
    assert_eq!(
        after("create"),
        ["FailedToCreateEndpoint of endpoints default/web \"\": Failed to create endpoint for service \
          default/web: endpoints \"web\" is forbidden: no"]
    );
    bench.settled();
    assert_eq!(
        after("update"),
        [
            "FailedToUpdateEndpoint of endpoints default/web \"2-uid\": Failed to update endpoint default/web: \
          endpoints \"web\" is forbidden: no"
        ]
    );
    bench.remove(&SERVICES, "web");
    assert_eq!(after("delete"), [""; 0]);
    assert_eq!(after("read"), [""; 0]);
}

//! What is said when a write fails.

use super::fixtures::{Bench, pod, service};
use coxswain_machinery::api::kinds::ENDPOINT_SLICES;
use coxswain_machinery::model::plan::Step;
use coxswain_machinery::model::{Failure, Key};

fn said(verb: &'static str, name: &str) -> String {
    let failure = Failure {
        what: format!("{verb} endpointslices.discovery.k8s.io default/{name}"),
        verb,
        subresource: "",
        kind: &ENDPOINT_SLICES,
        key: Key::new("default", name),
        code: 409,
        reason: "Conflict".into(),
        message: "no".to_owned(),
        existing: None,
    };
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {})]);
    let plan = bench.plan_after(&[failure]).unwrap();
    let [Step::Emit(event)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert!(event.warning && event.reason == "FailedToUpdateEndpointSlices");
    assert_eq!(event.regarding.key, Key::new("default", "web"));
    event.message.clone()
}

#[test]
fn a_failed_write_is_told_as_an_event_and_nothing_else_is_done() {
    let start = "Error updating Endpoint Slices for Service default/web: failed to";
    let service = "EndpointSlice for Service default/web: no";
    assert_eq!(said("create", ""), format!("{start} create {service}"));
    assert_eq!(said("update", "web-1"), format!("{start} update web-1 {service}"));
    assert_eq!(said("delete", "web-1"), format!("{start} delete web-1 {service}"));
}

//! What is said when a write fails.

use super::fixtures::{Bench, pod, service};
use coxswain_machinery::api::kinds::ENDPOINT_SLICES;
use coxswain_machinery::model::plan::Step;
use coxswain_machinery::model::{Failure, Key};

fn failure(verb: &'static str, name: &str) -> Failure {
    Failure {
        what: format!("{verb} endpointslices.discovery.k8s.io default/{name}"),
        verb,
        subresource: "",
        kind: &ENDPOINT_SLICES,
        key: Key::new("default", name),
        code: 409,
        reason: "Conflict".into(),
        message: "no".to_owned(),
        existing: None,
    }
}

fn said(bench: &Bench, failures: &[Failure]) -> String {
    let plan = bench.plan_after(failures).unwrap();
    let [Step::Emit(event)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert!(event.warning && event.reason == "FailedToUpdateEndpointSlices");
    assert_eq!(event.regarding.key, Key::new("default", "web"));
    event.message.clone()
}

#[test]
fn a_failed_write_is_told_as_an_event_and_nothing_else_is_done() {
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {})]);
    let said = |verb, name| said(&bench, &[failure(verb, name)]);
    let start = "Error updating Endpoint Slices for Service default/web: failed to";
    let service = "EndpointSlice for Service default/web: no";
    assert_eq!(said("create", ""), format!("{start} create {service}"));
    assert_eq!(said("update", "web-1"), format!("{start} update web-1 {service}"));
    assert_eq!(said("delete", "web-1"), format!("{start} delete web-1 {service}"));
}

#[test]
fn endpointslice_event_names_all_failures_and_slices_of_other_families() {
    let bench = Bench::of(&service(|_| {}), [pod(1, |_| {})]);
    bench.settled();
    // The Service is served in IPv6 alone from now on.
    bench.add(&service(|service| service.spec.ip_families = vec!["IPv6".into()]));
    let of_service = "EndpointSlice for Service default/web: no";
    assert_eq!(
        said(&bench, &[failure("delete", "web-2"), failure("create", "")]),
        format!(
            "Error updating Endpoint Slices for Service default/web: \
             [error deleting web-2 {of_service}, failed to create {of_service}]"
        )
    );
}

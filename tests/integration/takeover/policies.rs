//! Policies that were checked change hands: who takes over checks none of them again, and goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{ELECTION, LIMIT, end_of_log, leads, writes_of};
use crate::harness::{ControlPlane, Options, Program, object, until};

const CONTROLLERS: &str = "--controllers=validatingadmissionpolicy-status-controller,deployment-controller";
const KINDS: [&str; 1] = ["validatingadmissionpolicies"];
const POLICIES: usize = 20;

type State = BTreeMap<String, Value>;

fn api(client: &Client) -> Api<ValidatingAdmissionPolicy> {
    Api::all(client.clone())
}

/// All policies as they are stored: versions and the managers of their fields included.
async fn state(client: &Client) -> State {
    let policies = api(client).list(&ListParams::default()).await.expect("policies").items;
    let values = policies.into_iter().map(|each| serde_json::to_value(each).expect("JSON"));
    values.map(|each| (each["metadata"]["name"].as_str().unwrap_or_default().to_owned(), each)).collect()
}

/// Waits until all are checked as they are, and two looks, some time apart, see the same.
async fn checked(client: &Client) -> State {
    let look = || async {
        let before = state(client).await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        // Where an apply takes the last warning away, the API server drops `typeChecking` with it.
        let is_checked =
            |policy: &Value| policy["status"]["observedGeneration"] == policy["metadata"]["generation"];
        (before.values().all(is_checked) && before == state(client).await).then_some(before)
    };
    until("all policies are checked", LIMIT, look, Option::is_some).await.expect("policies")
}

/// A policy about Deployments; those with odd numbers have a mistake, some name parameters or nothing that can be checked.
async fn create(client: &Client, at: usize) {
    let group = if at % 5 == 4 { "*" } else { "apps" };
    let expression = if at % 2 == 1 { "object.spec.nonsense == 1" } else { "object.spec.replicas < 5" };
    let mut spec = json!({
        "matchConstraints": { "resourceRules": [{
            "apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"],
        }] },
        "validations": [{ "expression": expression }],
    });
    if at.is_multiple_of(3) {
        spec["paramKind"] = json!({ "apiVersion": "v1", "kind": "ConfigMap" });
    }
    let policy = object(json!({ "metadata": { "name": format!("policy-{at}") }, "spec": spec }));
    api(client).create(&PostParams::default(), &policy).await.expect("a policy");
}

fn warnings(state: &State) -> usize {
    let has_any = |policy: &&Value| policy["status"]["typeChecking"]["expressionWarnings"].is_array();
    state.values().filter(has_any).count()
}

#[tokio::test]
async fn policies_change_hands_twice_and_none_is_checked_again() {
    let plane = ControlPlane::start(&Options { nodes: 0, args: vec!["--audit"] });
    let client = plane.cluster().await.client;
    let args = [&[CONTROLLERS][..], &ELECTION].concat();
    let go = plane.go_manager("go-1", &args);
    for at in 0..POLICIES {
        create(&client, at).await;
    }
    let before = checked(&client).await;
    assert_eq!(warnings(&before), 8, "of ten with mistakes two can't be checked");

    let end = end_of_log(&plane);
    go.stop();
    let ours = plane.coxswain("coxswain-1", &args);
    leads(&ours).await;
    let taken = checked(&client).await;
    let written = writes_of(&plane, end, Program::Coxswain, &KINDS);
    assert_eq!(written, Vec::<String>::new(), "Coxswain wrote when it took over");
    assert_eq!(taken, before, "Coxswain changed something");

    // It does its work meanwhile: one is new, and one of those that the other checked has its mistake mended.
    create(&client, POLICIES + 1).await;
    let mended = json!({ "spec": { "validations": [{ "expression": "object.spec.replicas < 9" }] } });
    api(&client).patch("policy-1", &PatchParams::default(), &Patch::Merge(&mended)).await.expect("mended");
    let worked = checked(&client).await;
    assert_eq!(warnings(&worked), 8, "one more and one less");
    assert_eq!(writes_of(&plane, end, Program::Coxswain, &KINDS).len(), 2, "each is written once");
    let managers = |name: &str| {
        let all = worked[name]["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        all.iter()
            .filter(|each| each["subresource"] == "status")
            .map(|each| each["manager"].clone())
            .collect::<Vec<_>>()
    };
    for name in ["policy-0", "policy-1", "policy-21"] {
        assert_eq!(
            managers(name),
            ["validatingadmissionpolicy-status"],
            "{name} has one manager of its status"
        );
    }

    let end = end_of_log(&plane);
    ours.stop();
    let go = plane.go_manager("go-2", &args);
    leads(&go).await;
    let back = checked(&client).await;
    let written = writes_of(&plane, end, Program::Go, &KINDS);
    assert_eq!(written, Vec::<String>::new(), "the Go manager wrote when it got it back");
    assert_eq!(back, worked, "the Go manager changed something");
}

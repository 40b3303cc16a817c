//! The overrides of a group of replicas whose Lease of overrides cannot be created at first: orders for another group never become its
//! own.

use std::fs;
use std::path::Path;
use std::process::Output;

use coxswain::admin::overrides::{ANNOTATION_PREFIX, LEASE_NAMESPACE};
use coxswain::admin::proto::Phase;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use serde_json::{Value, json};

use super::failover::{PATIENT, in_phase};
use super::{Admin, LIMIT, assert_unharmed, bare};
use crate::harness::{ControlPlane, turn_beside_another, until};

const JOB: &str = "job-controller";
/// The flags of the group.
const GROUP: &[&str] =
    &["--leader-elect-resource-name=coxswain-b", "--controllers=job-controller,cronjob-controller"];
/// The Lease of the group's overrides.
const OVERRIDES: &str = "coxswain-overrides-coxswain-b";
const POLICY: &str = "no-overrides-of-b";
const REFUSAL: &str = "overrides of group b are not wanted yet";

/// An admission policy that refuses to create the Lease of the group's overrides, and its binding.
fn policy() -> Value {
    let rule = json!({
        "apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "resources": ["leases"],
        "operations": ["CREATE"],
    });
    let validation = json!({
        "expression": format!("object.metadata.name != '{OVERRIDES}'"), "reason": "Forbidden", "message": REFUSAL,
    });
    let object = |kind: &str, spec: Value| {
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": POLICY },
            "spec": spec })
    };
    let constraints = json!({ "resourceRules": [rule] });
    let policy = json!({ "matchConstraints": constraints, "validations": [validation] });
    let binding = json!({ "policyName": POLICY, "validationActions": ["Deny"] });
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        object("ValidatingAdmissionPolicy", policy), object("ValidatingAdmissionPolicyBinding", binding),
    ] })
}

/// The answer to an attempt to create the Lease of the group's overrides, which changes nothing.
fn try_to_create(plane: &ControlPlane, scratch: &Path) -> Output {
    let metadata = json!({ "name": OVERRIDES, "namespace": LEASE_NAMESPACE });
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata });
    fs::write(scratch, lease.to_string()).expect("written");
    plane.try_kubectl(&["create", "--dry-run=server", "-f", scratch.to_str().expect("a path that is text")])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_began_without_its_lease_takes_orders_and_inherits_none_of_another_group() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&bare());
    let leases: Api<Lease> = Api::namespaced(plane.cluster().await.client, LEASE_NAMESPACE);
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| dir.path().join(name);
    fs::write(file("policy.json"), policy().to_string()).expect("written");
    plane.kubectl(&["apply", "-f", file("policy.json").to_str().expect("a path that is text")]);
    let created = || async { try_to_create(&plane, &file("lease.json")).status.success() };
    until("the policy to be in force", LIMIT, created, |created| !created).await;

    // The controllers of the group start, because it has no override to lose.
    let of_default_group = plane.coxswain("a", PATIENT);
    let of_group = plane.coxswain("b", &[PATIENT, GROUP].concat());
    let at_a = Admin::master(&plane, &of_default_group);
    let at_b = Admin::master(&plane, &of_group);
    in_phase(&at_b, JOB, Phase::Running).await;
    let refused = at_b.toggle(JOB, false, false).await.expect_err("the Lease cannot be created");
    assert!(refused.message().contains(REFUSAL), "the order was not sent to the API server: {refused:?}");
    in_phase(&at_a, JOB, Phase::Running).await;
    at_a.toggle(JOB, false, true).await.expect("disabled");

    of_group.stop();
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        plane.kubectl(&["delete", kind, POLICY]);
    }
    until("the policy to be gone", LIMIT, created, |created| *created).await;
    of_group.start_again();
    let own = || async { leases.get_opt(OVERRIDES).await.expect("an answer") };
    let own =
        until("the Lease of the group's overrides", LIMIT, own, Option::is_some).await.expect("just seen");
    let annotations = own.metadata.annotations.unwrap_or_default();
    assert!(!annotations.keys().any(|key| key.starts_with(ANNOTATION_PREFIX)), "{annotations:?}");
    let of_group = plane.running("b");
    in_phase(&Admin::master(&plane, &of_group), JOB, Phase::Running).await;
    assert_eq!(at_a.controller(JOB).await.phase(), Phase::Disabled);
    for manager in [&of_default_group, &of_group] {
        assert_unharmed(&plane, manager);
    }
}

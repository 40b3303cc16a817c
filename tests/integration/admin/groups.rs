//! The overrides of a group of replicas that has no Lease of overrides: orders for another group are never its own.

use std::fs;

use coxswain::admin::overrides::LEASE_NAMESPACE;
use coxswain::admin::proto::Phase;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use serde_json::json;

use super::failover::{PATIENT, history, in_phase};
use super::{Admin, assert_unharmed, bare};
use crate::harness::{ControlPlane, turn_beside_another};

const JOB: &str = "job-controller";
/// The election Lease of the group.
const ELECTION: &str = "coxswain-b";
/// The flags of the group.
const GROUP: &[&str] =
    &["--leader-elect-resource-name=coxswain-b", "--controllers=job-controller,cronjob-controller"];
/// The Lease of the group's overrides.
const OVERRIDES: &str = "coxswain-overrides-coxswain-b";

/// Waits until the controller runs, and checks that nothing has disabled it since the process started.
async fn runs_from_the_start(admin: &Admin) {
    in_phase(admin, JOB, Phase::Running).await;
    let phases = history(admin, JOB).await;
    assert!(!phases.iter().any(|(phase, _)| *phase == Phase::Disabled), "{phases:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn group_without_a_lease_of_overrides_uses_no_override_of_another_group() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&bare());
    let leases: Api<Lease> = Api::namespaced(plane.cluster().await.client, LEASE_NAMESPACE);
    let own = || async { leases.get_opt(OVERRIDES).await.expect("an answer") };

    // A kube-controller-manager has led by the election Lease of the group, and has released it.
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("lease.json");
    let metadata = json!({ "name": ELECTION, "namespace": LEASE_NAMESPACE });
    let spec = json!({ "leaseDurationSeconds": 1, "leaseTransitions": 1 });
    let election = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
    });
    fs::write(&file, election.to_string()).expect("written");
    plane.kubectl(&["create", "-f", file.to_str().expect("a path that is text")]);

    // The default group leaves the controller to the group.
    let of_default_group = plane.coxswain("a", PATIENT);
    let at_a = Admin::master(&plane, &of_default_group);
    in_phase(&at_a, JOB, Phase::Running).await;
    at_a.toggle(JOB, false, true).await.expect("disabled");

    // The group starts for the first time.
    let of_group = plane.coxswain("b", &[PATIENT, GROUP].concat());
    let at_b = Admin::master(&plane, &of_group);
    runs_from_the_start(&at_b).await;
    assert_eq!(own().await, None, "no order was given to the group");

    // An order creates the Lease of the group, and an administrator deletes it.
    at_b.toggle(JOB, false, true).await.expect("disabled");
    assert!(own().await.is_some());
    plane.kubectl(&["-n", LEASE_NAMESPACE, "delete", "lease", OVERRIDES]);
    in_phase(&at_b, JOB, Phase::Running).await;

    // The election Lease is older than the next process.
    of_group.stop();
    of_group.start_again();
    let of_group = plane.running("b");
    runs_from_the_start(&Admin::master(&plane, &of_group)).await;
    assert_eq!(own().await, None, "no order was given to the group");
    assert_eq!(at_a.controller(JOB).await.phase(), Phase::Disabled);
    for manager in [&of_default_group, &of_group] {
        assert_unharmed(&plane, manager);
    }
}

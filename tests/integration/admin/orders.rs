//! Orders on replicas with any flags: the stored order is the one that was given, enabling all controllers ends what disables them and
//! runs no other controller, and each order is an Event.

use std::collections::BTreeMap;

use coxswain::admin::overrides::{ANNOTATION_PREFIX, LEASE_NAME, LEASE_NAMESPACE};
use coxswain::admin::proto::{self, Phase};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use tonic::Code;

use super::caller::reason;
use super::failover::{PATIENT, in_phase};
use super::{Admin, DEPLOYMENT, LIMIT, assert_unharmed, bare};
use crate::harness::{Caller, ControlPlane, turn, turn_beside_another, until};

const JOB: &str = "job-controller";
/// Flags as kubeadm has them.
const ALONE: &str = "--controllers=*,bootstrapsigner,tokencleaner";
/// Flags of a manager that runs a few controllers next to kube-controller-manager.
const BESIDE: &str = "--controllers=cronjob-controller,job-controller,ttl-after-finished-controller";
/// Number of orders: more than the 25 Events about one object that a recorder writes at once.
const ORDERS: usize = 30;

/// The desired state of a controller, and its phase.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    name: String,
    enabled: bool,
    overridden: bool,
    phase: Phase,
}

async fn states(admin: &Admin) -> Vec<State> {
    let request = proto::ListControllersRequest::default();
    let answer = admin.controllers().list_controllers(request).await.expect("an answer").into_inner();
    let state = |controller: proto::Controller| {
        let phase = controller.phase();
        let desired = controller.desired.unwrap_or_default();
        State {
            name: controller.name,
            enabled: desired.enabled,
            overridden: desired.r#override.is_some(),
            phase,
        }
    };
    answer.controllers.into_iter().map(state).collect()
}

/// Waits until each enabled controller runs, and no other one. Skipped controllers do not count.
async fn settled(admin: &Admin) -> Vec<State> {
    let is_settled = |all: &Vec<State>| {
        all.iter().all(|each| match each.phase {
            Phase::Running => each.enabled,
            Phase::Disabled => !each.enabled,
            Phase::Skipped | Phase::NotImplemented => true,
            _ => false,
        })
    };
    until("the controllers to start and stop", LIMIT, || states(admin), is_settled).await
}

/// The stored overrides by annotation.
async fn entries(plane: &ControlPlane) -> BTreeMap<String, String> {
    let leases: Api<Lease> = Api::namespaced(plane.cluster().await.client, LEASE_NAMESPACE);
    let lease = leases.get(LEASE_NAME).await.expect("the Lease of the overrides");
    let annotations = lease.metadata.annotations.unwrap_or_default();
    annotations.into_iter().filter(|(key, _)| key.starts_with(ANNOTATION_PREFIX)).collect()
}

/// Disables a controller and then all of them, and enables all of them again.
async fn disable_all_and_enable_all(plane: &ControlPlane, admin: &Admin) {
    let before = settled(admin).await;
    admin.toggle(JOB, false, true).await.expect("disabled");
    admin.toggle("*", false, true).await.expect("all are disabled");
    let stopped = settled(admin).await;
    assert!(stopped.iter().all(|each| !each.enabled && each.phase != Phase::Running), "{stopped:?}");
    admin.toggle("*", true, true).await.expect("the flags decide again");
    assert_eq!(settled(admin).await, before);
    let entries = entries(plane).await;
    let enabled: Vec<_> = entries.values().filter(|entry| entry.contains(r#":"enabled""#)).collect();
    assert_eq!(enabled, Vec::<&String>::new(), "an order to run a controller is stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn enabling_all_ends_what_disables_and_runs_no_controller_of_another_manager() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&bare());
    let alone = plane.coxswain("alone", &[PATIENT, &[ALONE]].concat());
    disable_all_and_enable_all(&plane, &Admin::master(&plane, &alone)).await;
    assert_unharmed(&plane, &alone);
    alone.stop();

    let beside = plane.coxswain("beside", &[PATIENT, &[BESIDE]].concat());
    let admin = Admin::master(&plane, &beside);
    disable_all_and_enable_all(&plane, &admin).await;
    // Another manager may run what the flags leave out.
    let refused = admin.toggle(DEPLOYMENT, true, false).await.expect_err("it takes force");
    assert_eq!((refused.code(), reason(&refused)), (Code::FailedPrecondition, "FORCE_REQUIRED".to_owned()));
    assert_eq!(admin.controller(DEPLOYMENT).await.phase(), Phase::Disabled);
    assert_unharmed(&plane, &beside);
}

#[tokio::test(flavor = "multi_thread")]
async fn disabling_at_a_replica_with_other_flags_holds_on_the_leader() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&bare());
    let leader = plane.coxswain("leader", PATIENT);
    let on_leader = Admin::master(&plane, &leader);
    in_phase(&on_leader, DEPLOYMENT, Phase::Running).await;
    let without = "--controllers=*,-deployment-controller";
    let standby = plane.coxswain("standby", &[PATIENT, &[without]].concat());
    let on_standby = Admin::master(&plane, &standby);

    let disable = || async {
        let request = proto::DisableControllerRequest { name: DEPLOYMENT.to_owned(), ..Default::default() };
        on_standby.controllers().disable_controller(request).await.expect("an answer").into_inner().changed
    };
    assert!(disable().await, "nothing has disabled it yet");
    in_phase(&on_leader, DEPLOYMENT, Phase::Disabled).await;
    let stored = entries(&plane).await;
    assert!(!disable().await, "it is disabled already");
    assert_eq!(entries(&plane).await, stored);
    assert_eq!(on_leader.controller(DEPLOYMENT).await.phase(), Phase::Disabled);
    let series =
        format!(r#"coxswain_override_end_timestamp_seconds{{controller="{DEPLOYMENT}",order="disabled"}}"#);
    let end = || async { leader.page(Caller::Admin, "/metrics").await.metric(&series) };
    until("a metric with the controller's name", LIMIT, end, |end| *end == Some(f64::INFINITY)).await;
    for manager in [&leader, &standby] {
        assert_unharmed(&plane, manager);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disable_only_manager_runs_nothing_that_the_flags_leave_out() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&bare());
    let any = plane.coxswain("any", &[PATIENT, &[BESIDE]].concat());
    let admin = Admin::master(&plane, &any);
    let enable = async |admin: &Admin| {
        let name = DEPLOYMENT.to_owned();
        let request = proto::EnableControllerRequest { name, force: true, ..Default::default() };
        admin.controllers().enable_controller(request).await.map(drop)
    };
    enable(&admin).await.expect("enabled");
    in_phase(&admin, DEPLOYMENT, Phase::Running).await;
    assert_unharmed(&plane, &any);
    any.stop();

    // The override is still stored.
    let args = [PATIENT, &[BESIDE, "--admin-overrides=disable-only"]].concat();
    let disable_only = plane.coxswain("disable-only", &args);
    let admin = Admin::master(&plane, &disable_only);
    in_phase(&admin, JOB, Phase::Running).await;
    assert_eq!(admin.controller(DEPLOYMENT).await.phase(), Phase::Disabled);
    let refused = enable(&admin).await.expect_err("it is refused even with force");
    assert_eq!((refused.code(), reason(&refused)), (Code::FailedPrecondition, "SETTING".to_owned()));
    assert_unharmed(&plane, &disable_only);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_orders_is_an_event() {
    let _turn = turn_beside_another().await;
    let plane = ControlPlane::start(&bare());
    let manager = plane.coxswain("coxswain", PATIENT);
    let admin = Admin::master(&plane, &manager);
    for at in 0..ORDERS {
        let (name, reason) = ("ttl-controller".to_owned(), format!("order {at}"));
        let request = proto::DisableControllerRequest { name, reason, ..Default::default() };
        admin.controllers().disable_controller(request).await.expect("taken");
    }
    let events: Api<Event> = Api::namespaced(plane.cluster().await.client, LEASE_NAMESPACE);
    let recorded = || async {
        let of_orders = ListParams::default().fields("reason=ControllerDisabled");
        let found = events.list(&of_orders).await.expect("events").items;
        let number = |event: Event| event.message?.rsplit_once(": order ")?.1.parse::<usize>().ok();
        let mut numbers: Vec<usize> = found.into_iter().filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    };
    until("an Event for each order", LIMIT, recorded, |numbers| numbers.iter().copied().eq(0..ORDERS)).await;
    assert_unharmed(&plane, &manager);
}

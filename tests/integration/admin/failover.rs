//! Overrides among replicas: taken by any, in force on the one that leads and on the next; and what becomes of them when
//! the Lease is edited by hand or the API server is away.

use coxswain::admin::overrides::{ANNOTATION_PREFIX, LEASE_NAME, LEASE_NAMESPACE};
use coxswain::admin::proto::event::Details;
use coxswain::admin::proto::{self, DesiredSource, EventType, Health, OverrideChange, Phase};
use coxswain_machinery::model::clock::{Clock as _, SystemClock};
use tokio::time::Instant;
use tonic::Code;

use super::caller::reason;
use super::{Admin, DEPLOYMENT, LIMIT, REPLICA_SET, Who, all_run, assert_unharmed, bare, operator};
use crate::harness::{Caller, ControlPlane, Manager, turn, until};

const SERVICE_ACCOUNT: &str = "serviceaccount-controller";
const CA_PUBLISHER: &str = "root-ca-certificate-publisher-controller";
/// Leadership is to move without a long wait.
const ELECTION: &[&str] = &[
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
];
/// Leadership is to stay, with the API server away for a while.
pub(super) const PATIENT: &[&str] = &[
    "--leader-elect-lease-duration=120s",
    "--leader-elect-renew-deadline=90s",
    "--leader-elect-retry-period=2s",
];
/// Longer than a failover takes.
const SHORT_OVERRIDE: i64 = 20;

/// The replica that leads, and the other.
async fn ranked<'a>(
    plane: &ControlPlane,
    replicas: [&'a Manager<'a>; 2],
) -> (&'a Manager<'a>, &'a Manager<'a>) {
    let [first, second] = replicas.map(|replica| Admin::master(plane, replica));
    let observe = || async { (first.leads().await, second.leads().await) };
    let seen = until("one to lead", LIMIT, observe, |seen| {
        matches!(seen, (Some(true), Some(false)) | (Some(false), Some(true)))
    })
    .await;
    if seen.0 == Some(true) { (replicas[0], replicas[1]) } else { (replicas[1], replicas[0]) }
}

/// The phases that a controller went into on a replica, and when, in seconds since 1970.
pub(super) async fn history(admin: &Admin, controller: &str) -> Vec<(Phase, i64)> {
    let events = admin.past(controller, EventType::PhaseChanged).await;
    let phase = |event: proto::Event| match event.details {
        Some(Details::PhaseChanged(change)) => (change.current(), event.time.unwrap_or_default().seconds),
        other => panic!("not a phase: {other:?}"),
    };
    events.into_iter().map(phase).collect()
}

async fn override_changes(admin: &Admin, controller: &str) -> Vec<OverrideChange> {
    let events = admin.past(controller, EventType::OverrideChanged).await;
    let change = |event: proto::Event| match event.details {
        Some(Details::OverrideChanged(changed)) => changed.change(),
        other => panic!("not an override: {other:?}"),
    };
    events.into_iter().map(change).collect()
}

pub(super) async fn in_phase(admin: &Admin, controller: &str, phase: Phase) -> proto::Controller {
    let observe = || admin.controller(controller);
    until(&format!("{controller} to be {phase:?}"), LIMIT, observe, |now| now.phase() == phase).await
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_steps_down_by_force_for_a_kube_controller_manager() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&bare());
    let ours = plane.coxswain("replica-a", ELECTION);
    let admin = Admin::master(&plane, &ours);
    until("it to lead", LIMIT, || admin.leads(), |leads| *leads == Some(true)).await;
    let go = plane.go_manager("go", ELECTION);
    let refused = admin.leader().step_down(proto::StepDownRequest::default()).await.expect_err("no replica");
    assert_eq!(reason(&refused), "NO_CANDIDATE");
    let request = proto::StepDownRequest { force: true, wait: true, ..Default::default() };
    let leader =
        admin.leader().step_down(request).await.expect("done").into_inner().leader.expect("a leader");
    assert!(!leader.leading && leader.admin_address.is_empty(), "{leader:?}");
    assert_ne!(leader.holder_identity, leader.replica_identity);
    drop(go);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_made_on_a_standby_holds_on_the_leader_and_on_the_next_one() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&bare());
    let (a, b) = (plane.coxswain("replica-a", ELECTION), plane.coxswain("replica-b", ELECTION));
    let (leader, standby) = ranked(&plane, [&a, &b]).await;
    let operator = operator(&plane);
    let on_leader = Admin::master(&plane, leader);
    let on_standby = Admin::of(&plane, standby, Who::Certificate(&operator));
    all_run(&on_leader).await;
    assert_eq!(on_standby.controller(DEPLOYMENT).await.phase(), Phase::Standby);

    // Only the leader can wait; what was asked for is not done then.
    let refused = on_standby.toggle(DEPLOYMENT, false, true).await.expect_err("it does not lead");
    assert_eq!((refused.code(), reason(&refused)), (Code::FailedPrecondition, "NOT_LEADER".to_owned()));
    assert!(on_leader.controller(DEPLOYMENT).await.desired.expect("a state").enabled);

    let began = Instant::now();
    let request = proto::DisableControllerRequest {
        name: "deployment".to_owned(),
        reason: "until the morning".to_owned(),
        ..Default::default()
    };
    let answer = on_standby.controllers().disable_controller(request).await.expect("taken").into_inner();
    assert!(answer.changed, "{answer:?}");
    let disabled = in_phase(&on_leader, DEPLOYMENT, Phase::Disabled).await;
    eprintln!("on the leader {:?} after the standby was asked", began.elapsed());
    let desired = disabled.desired.expect("a state");
    assert_eq!((desired.enabled, desired.source()), (false, DesiredSource::Override), "{desired:?}");
    let order = desired.r#override.expect("an override");
    assert_eq!((order.user.as_str(), order.reason.as_str()), ("operator", "until the morning"));
    in_phase(&on_standby, DEPLOYMENT, Phase::Disabled).await;
    // The health page shows it to callers with credentials alone.
    for (caller, remark) in [(Caller::Admin, ", disabled by override"), (Caller::Anonymous, "")] {
        let page = leader.page(caller, "/healthz?verbose").await;
        let line = format!("[+]{DEPLOYMENT} ok{remark}\n");
        assert!(page.status == 200 && page.text.contains(&line), "{}", page.text);
    }

    // And one that ends by itself when another replica leads.
    let request = proto::DisableControllerRequest {
        name: SERVICE_ACCOUNT.to_owned(),
        duration: Some(prost_types::Duration { seconds: SHORT_OVERRIDE, nanos: 0 }),
        ..Default::default()
    };
    on_standby.controllers().disable_controller(request).await.expect("taken");
    let disabled = in_phase(&on_leader, SERVICE_ACCOUNT, Phase::Disabled).await;
    let order = disabled.desired.and_then(|desired| desired.r#override).expect("an override");
    let ends = order.expire_time.expect("an end").seconds;

    // And one that is spoiled by hand before the next one leads.
    on_standby.toggle(CA_PUBLISHER, false, false).await.expect("taken");
    in_phase(&on_leader, CA_PUBLISHER, Phase::Disabled).await;
    in_phase(&on_standby, CA_PUBLISHER, Phase::Disabled).await;
    annotate(&plane, CA_PUBLISHER, "not JSON");
    let spoiled =
        || async { on_standby.controller(CA_PUBLISHER).await.desired.unwrap_or_default().invalid_override };
    until("a complaint", LIMIT, spoiled, |problem| !problem.is_empty()).await;

    let killed = Instant::now();
    leader.kill();
    until("the standby to lead", LIMIT, || on_standby.leads(), |leads| *leads == Some(true)).await;
    in_phase(&on_standby, REPLICA_SET, Phase::Running).await;
    eprintln!("the next one leads {:?} after the first was killed", killed.elapsed());
    assert_eq!(on_standby.controller(DEPLOYMENT).await.phase(), Phase::Disabled);

    in_phase(&on_standby, SERVICE_ACCOUNT, Phase::Running).await;
    let phases = history(&on_standby, SERVICE_ACCOUNT).await;
    let (_, started) = phases.iter().find(|(phase, _)| *phase == Phase::Starting).expect("it runs");
    assert!(*started >= ends, "started at {started}, the override ends at {ends}");
    eprintln!("an override ended {} s after its time", *started - ends);
    let changes = override_changes(&on_standby, SERVICE_ACCOUNT).await;
    assert_eq!(changes, [OverrideChange::Set, OverrideChange::Expired]);
    let desired = on_standby.controller(SERVICE_ACCOUNT).await.desired.expect("a state");
    assert_eq!((desired.enabled, desired.source()), (true, DesiredSource::Default), "{desired:?}");

    // The others never ran here, and run when the order is withdrawn.
    for name in [DEPLOYMENT, CA_PUBLISHER] {
        let phases = history(&on_standby, name).await;
        assert!(phases.iter().all(|(phase, _)| *phase == Phase::Disabled), "{name}: {phases:?}");
        assert_eq!(on_standby.controller(name).await.phase(), Phase::Disabled);
    }
    on_standby.toggle(DEPLOYMENT, true, true).await.expect("enabled");
    assert_eq!(on_standby.controller(DEPLOYMENT).await.phase(), Phase::Running);
    assert_unharmed(&plane, standby);

    // A process that starts anew knows as much.
    on_standby.toggle(REPLICA_SET, false, false).await.expect("disabled");
    leader.start_again();
    let again = plane.running(&leader.name);
    let again = Admin::master(&plane, &again);
    in_phase(&again, REPLICA_SET, Phase::Disabled).await;
}

fn annotate(plane: &ControlPlane, controller: &str, value: &str) {
    let annotation = format!("{ANNOTATION_PREFIX}{controller}={value}");
    plane.kubectl(&["-n", LEASE_NAMESPACE, "annotate", "lease", LEASE_NAME, "--overwrite", &annotation]);
}

/// The phase and the beginning of it for each controller.
async fn phases(admin: &Admin) -> Vec<(String, Phase, Option<prost_types::Timestamp>)> {
    let all = admin.list(&super::built()).await;
    all.into_iter().map(|each| (each.name.clone(), each.phase(), each.phase_time)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slip_of_the_hand_changes_nothing_that_runs() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&bare());
    let manager = plane.coxswain("coxswain", PATIENT);
    let admin = Admin::master(&plane, &manager);
    all_run(&admin).await;
    admin.toggle(DEPLOYMENT, false, true).await.expect("disabled");
    let before = phases(&admin).await;

    // One that held, one of a controller without, and one of no controller at all.
    annotate(&plane, DEPLOYMENT, r#"{"desired": "on""#);
    annotate(&plane, REPLICA_SET, r#"{"desired": "disabled", "time": "yesterday"}"#);
    annotate(&plane, "coffee-controller", r#"{"desired": "disabled"}"#);
    let list = || async {
        let request = proto::ListControllersRequest::default();
        admin.controllers().list_controllers(request).await.expect("an answer").into_inner().invalid_overrides
    };
    let invalid = until("three complaints", LIMIT, list, |invalid| invalid.len() == 3).await;
    for name in [DEPLOYMENT, REPLICA_SET, "coffee-controller"] {
        let key = format!("{ANNOTATION_PREFIX}{name}");
        assert!(invalid.iter().any(|each| each.key == key && !each.message.is_empty()), "{invalid:?}");
    }
    for name in [DEPLOYMENT, REPLICA_SET] {
        let desired = admin.controller(name).await.desired.expect("a state");
        assert!(!desired.invalid_override.is_empty(), "{desired:?}");
        let changes = override_changes(&admin, name).await;
        assert!(changes.contains(&OverrideChange::Invalid), "{name}: {changes:?}");
    }
    assert_eq!(phases(&admin).await, before, "what runs has changed");
    assert!(!admin.controller(DEPLOYMENT).await.desired.expect("a state").enabled);

    // An order by hand is obeyed, and not in silence.
    annotate(&plane, CA_PUBLISHER, r#"{"desired":"disabled","user":"jane","time":"2026-01-01T00:00:00Z"}"#);
    in_phase(&admin, CA_PUBLISHER, Phase::Disabled).await;
    let warnings = "--field-selector=reason=OverrideByHand,type=Warning";
    let messages = ["-o", "jsonpath={.items[*].message}"];
    let told = || async {
        plane.kubectl(&[&["-n", LEASE_NAMESPACE, "get", "events", warnings][..], &messages].concat())
    };
    let by_hand = format!("the override of {CA_PUBLISHER} was edited outside the admin API");
    until("a warning", LIMIT, told, |told| told.contains(&by_hand)).await;
    let is_audited =
        |line: &str| line.contains("Override edited outside the admin API") && line.contains(&by_hand);
    assert!(manager.log().lines().any(is_audited), "no line in the audit log");

    // A request puts an end to it.
    admin.toggle(DEPLOYMENT, true, true).await.expect("enabled");
    let desired = admin.controller(DEPLOYMENT).await.desired.expect("a state");
    assert_eq!((desired.enabled, desired.invalid_override.as_str()), (true, ""), "{desired:?}");
    plane.kubectl(&["-n", LEASE_NAMESPACE, "delete", "lease", LEASE_NAME]);
    until("no complaints", LIMIT, list, Vec::is_empty).await;
    all_run(&admin).await;
    assert_unharmed(&plane, &manager);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_api_server_nothing_is_changed() {
    let _turn = turn().await;
    let plane = ControlPlane::start(&bare());
    let manager = plane.coxswain("coxswain", PATIENT);
    let operator = operator(&plane);
    let callers = [
        ("a master", Admin::master(&plane, &manager)),
        ("an operator", Admin::of(&plane, &manager, Who::Certificate(&operator))),
    ];
    let admin = &callers[0].1;
    all_run(admin).await;
    admin.toggle(REPLICA_SET, false, true).await.expect("disabled");
    let before = phases(admin).await;
    let lease = || plane.kubectl(&["-n", LEASE_NAMESPACE, "get", "lease", LEASE_NAME, "-o", "json"]);
    let lease_before = lease();

    plane.operate("kill", "kube-apiserver");
    for (who, caller) in &callers {
        for (name, enable) in [(DEPLOYMENT, false), (REPLICA_SET, true)] {
            let began = SystemClock.now();
            let away = caller.toggle(name, enable, false).await.expect_err("nobody takes it");
            eprintln!("{who} heard after {:#}: {}", SystemClock.now().duration_since(began), away.message());
            assert_eq!(
                (away.code(), reason(&away)),
                (Code::Unavailable, "API_SERVER".to_owned()),
                "{away:?}"
            );
        }
    }
    // What needs nobody else is answered.
    assert_eq!(phases(admin).await, before);
    plane.operate("start", "kube-apiserver");
    assert_eq!(lease(), lease_before, "the Lease has changed");

    admin.toggle(REPLICA_SET, true, false).await.expect("enabled");
    for each in all_run(admin).await {
        assert_eq!((each.health(), each.restarts), (Health::Healthy, 0), "{each:?}");
    }
    assert_unharmed(&plane, &manager);
}

//! `LeaderService`: who leads, and handing over.

use std::time::Duration;

use tonic::Code;

use super::fake::{ME, OTHER, at, record};
use super::*;
use crate::admin::manager::{LeaseState, MutationKind};
use crate::admin::overrides::{Entry, Order, OverrideSet};
use crate::admin::proto;
use crate::admin::proto::leader_service_client::LeaderServiceClient;
use coxswain_machinery::model::Key;

impl Bench {
    fn leader(&self) -> LeaderServiceClient<Channel> {
        LeaderServiceClient::new(self.channel.clone())
    }
}

fn step_down() -> proto::StepDownRequest {
    proto::StepDownRequest::default()
}

#[tokio::test]
async fn who_leads_is_told() {
    let bench = Bench::new().await;
    let mut client = bench.leader();
    let found = client.get_leader(jane(proto::GetLeaderRequest::default())).await.unwrap().into_inner();
    let leader = found.leader.unwrap();
    assert_eq!(leader.lease, "kube-system/kube-controller-manager");
    assert_eq!((leader.holder_identity.as_str(), leader.leading, leader.transitions), (ME, true, 3));
    assert_eq!(leader.admin_address, "10.0.0.1:10257");
    assert_eq!(leader.lease_duration.unwrap().seconds, 15);
    let roles: Vec<_> = found.replicas.iter().map(|each| (each.leading, each.answering, each.live)).collect();
    assert_eq!(roles, [(true, true, true), (false, false, true)]);

    // A manager of another make has no address.
    bench.manager.lose("go-manager_9");
    let found = client.get_leader(jane(proto::GetLeaderRequest::default())).await.unwrap().into_inner();
    let leader = found.leader.unwrap();
    assert_eq!(
        (leader.holder_identity.as_str(), leader.admin_address.as_str(), leader.leading),
        ("go-manager_9", "", false)
    );

    let other = || jane(proto::GetLeaderRequest { lease: "kube-system/kube-controller-manger".into() });
    assert_eq!(why(client.get_leader(other()).await), (Code::NotFound, "LEASE_NOT_FOUND".into()));
    assert_eq!(fact(client.get_leader(other()).await, "closest"), "kube-system/kube-controller-manager");
    bench.manager.set(|state| {
        let lease = Key::new("kube-system", "cloud-controller-manager-migration");
        state.leases.push(LeaseState { lease, leading: true, record: Some(record(ME)) });
    });
    let second = proto::GetLeaderRequest { lease: "kube-system/cloud-controller-manager-migration".into() };
    assert!(client.get_leader(jane(second)).await.unwrap().into_inner().leader.unwrap().leading);

    bench.manager.set(|state| state.leases.clear());
    let found = client.get_leader(jane(proto::GetLeaderRequest::default())).await.unwrap().into_inner();
    assert!(found.leader.unwrap().leading, "without an election this replica leads");
}

#[tokio::test]
async fn leader_comes_with_the_overrides_in_force_and_the_time_of_the_oldest() {
    let bench = Bench::new().await;
    let mut client = bench.leader();
    let mut overrides = async || {
        let found = client.get_leader(jane(proto::GetLeaderRequest::default())).await.unwrap().into_inner();
        let overrides = found.overrides.unwrap();
        (overrides.count, overrides.oldest_time.map(|at| at.seconds))
    };
    assert_eq!(overrides().await, (0, None));
    let entry = |order, given, until: Option<i64>| Entry {
        order,
        user: "jane".to_owned(),
        time: at(given),
        reason: String::new(),
        until: until.map(at),
        version: 1,
        replica: String::new(),
        force: None,
    };
    let entries = [
        ("job-controller", entry(Order::Disabled, -50, None)),
        ("cronjob-controller", entry(Order::Enabled, -70, Some(1000))),
        // An order that has ended and one that was withdrawn have no effect.
        ("ttl-controller", entry(Order::Disabled, -90, Some(-1))),
        ("daemonset-controller", entry(Order::Default, -80, None)),
    ];
    let entries = entries.map(|(name, entry)| (name.to_owned(), entry));
    bench.manager.set(|state| state.overrides = OverrideSet::default().with(&entries));
    assert_eq!(overrides().await, (2, Some(at(-70).as_second())));
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_of_changes_and_of_renewals_if_asked() {
    let bench = Bench::new().await;
    let mut client = bench.leader();
    let mut watch = async |include_renewals| {
        let request = proto::WatchLeaderRequest { include_renewals, ..Default::default() };
        client.watch_leader(jane(request)).await.unwrap().into_inner()
    };
    let (mut quiet, mut chatty) = (watch(false).await, watch(true).await);
    assert!(quiet.message().await.unwrap().unwrap().leader.unwrap().leading);
    assert!(chatty.message().await.unwrap().unwrap().leader.unwrap().leading);
    // A renewal is nothing that the manager calls a change.
    bench.manager.state.lock().leases[0].record.as_mut().unwrap().renewed = at(2);
    let renewed = chatty.message().await.unwrap().unwrap().leader.unwrap();
    assert_eq!(renewed.renew_time.unwrap().seconds, at(2).as_second());
    assert!(tokio::time::timeout(Duration::from_secs(20), quiet.message()).await.is_err());
    bench.manager.lose(OTHER);
    let lost = quiet.message().await.unwrap().unwrap();
    assert_eq!(lost.leader.unwrap().holder_identity, OTHER);
    assert!(lost.replicas[1].leading);
}

#[tokio::test(start_paused = true)]
async fn leadership_is_handed_over() {
    let bench = Bench::new().await;
    let mut client = bench.leader();
    let dry = proto::StepDownRequest { dry_run: true, ..step_down() };
    assert!(client.step_down(jane(dry)).await.unwrap().into_inner().leader.unwrap().leading);
    assert!(bench.manager.state.lock().stepped_down.is_empty());

    let request = proto::StepDownRequest {
        reason: "drain".into(),
        successor_identity: OTHER.into(),
        expected_leader_identity: Some(ME.into()),
        wait: true,
        ..step_down()
    };
    let taking = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bench.manager.lose(OTHER);
    };
    let (done, ()) = tokio::join!(client.step_down(jane(request)), taking);
    assert_eq!(done.unwrap().into_inner().leader.unwrap().holder_identity, OTHER);
    let state = bench.manager.state.lock();
    assert_eq!(state.stepped_down, [Some(OTHER.to_owned())]);
    assert_eq!(state.announced[0].action, MutationKind::SteppedDown);
    assert_eq!(state.announced[0].message, format!("jane requested step-down of {ME}: drain"));
}

#[tokio::test]
async fn leadership_is_given_up_by_force_for_a_kube_controller_manager_that_stands_by() {
    let bench = Bench::new().await;
    bench.manager.set(|state| state.replicas.truncate(1));
    let refused = bench.leader().step_down(jane(step_down())).await;
    assert_eq!(why(refused), (Code::FailedPrecondition, "NO_CANDIDATE".to_owned()));
    let forced = proto::StepDownRequest { force: true, ..step_down() };
    assert!(bench.leader().step_down(jane(forced)).await.is_ok());
    assert_eq!(bench.manager.state.lock().stepped_down, [None]);
}

#[tokio::test(start_paused = true)]
async fn wait_ends_when_the_same_replica_leads_again() {
    let bench = Bench::new().await;
    let mut client = bench.leader();
    let mut ask = async |force| {
        let returning = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            bench.manager.lose(ME);
            bench.manager.set(|state| {
                state.leases[0].leading = true;
                state.leases[0].record.as_mut().unwrap().acquired = at(20 + i64::from(force));
            });
        };
        let request = proto::StepDownRequest { wait: true, force, ..step_down() };
        tokio::join!(client.step_down(jane(request)), returning).0
    };
    let forced = ask(true).await.unwrap().into_inner().leader.unwrap();
    assert_eq!((forced.holder_identity.as_str(), forced.leading), (ME, true));
    assert_eq!(why(ask(false).await), (Code::FailedPrecondition, "NO_CANDIDATE".to_owned()));
}

#[tokio::test]
async fn leadership_is_kept_when_nobody_could_take_it() {
    let bench = Bench::new().await;
    let mut client = bench.leader();
    let precondition = |reason: &str| (Code::FailedPrecondition, reason.to_owned());
    let named =
        |successor: &str| proto::StepDownRequest { successor_identity: successor.into(), ..step_down() };
    assert_eq!(fields(client.step_down(jane(named(ME))).await), ["successor_identity"]);
    assert_eq!(
        why(client.step_down(jane(named("node-b_3"))).await),
        (Code::NotFound, "REPLICA_NOT_FOUND".into())
    );
    bench.manager.set(|state| state.coordinated = true);
    assert_eq!(why(client.step_down(jane(named(OTHER))).await), precondition("SETTING"));
    bench.manager.set(|state| state.coordinated = false);
    bench.manager.set(|state| state.replicas[1].live = false);
    assert_eq!(why(client.step_down(jane(named(OTHER))).await), precondition("SUCCESSOR_NOT_LIVE"));
    assert_eq!(why(client.step_down(jane(step_down())).await), precondition("NO_CANDIDATE"));
    // Force is for candidates that announce themselves nowhere, and not for a successor that is known to be dead.
    let forced = proto::StepDownRequest { force: true, ..named(OTHER) };
    assert_eq!(why(client.step_down(jane(forced)).await), precondition("SUCCESSOR_NOT_LIVE"));
    bench.manager.set(|state| state.replicas[1].live = true);
    let expecting = proto::StepDownRequest { expected_leader_identity: Some(OTHER.into()), ..step_down() };
    assert_eq!(why(client.step_down(jane(expecting)).await), precondition("LEADER_CHANGED"));
    assert_eq!(why(client.step_down(by("viewer", step_down())).await).0, Code::PermissionDenied);
    bench.manager.lose(OTHER);
    // Without the leader that is meant, no other replica is named: nobody is to be unseated by mistake.
    let unnamed = client.step_down(jane(step_down())).await;
    assert_eq!(fact(again(&unnamed), "leader_address"), "");
    assert_eq!(why(unnamed), precondition("LEADER_CHANGED"));
    let expecting = proto::StepDownRequest { expected_leader_identity: Some(OTHER.into()), ..step_down() };
    let elsewhere = client.step_down(jane(expecting)).await;
    assert_eq!(fact(again(&elsewhere), "leader_address"), "10.0.0.2:10257");
    assert_eq!(why(elsewhere), precondition("NOT_LEADER"));
    bench.manager.set(|state| state.leases.clear());
    assert_eq!(why(client.step_down(jane(step_down())).await), precondition("NO_LEADER_ELECTION"));
    assert!(bench.manager.state.lock().stepped_down.is_empty());
}

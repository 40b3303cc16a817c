//! Mutations whose callers hang up: each is carried out, audited and announced, or none of it.

use std::time::Duration;

use super::fake::Hang;
use super::*;
use crate::admin::audit::LINES;
use crate::admin::manager::MutationKind;
use crate::admin::overrides::Order;
use crate::admin::proto;
use crate::admin::proto::controller_service_client::ControllerServiceClient;
use crate::admin::proto::leader_service_client::LeaderServiceClient;
use crate::admin::proto::queue_service_client::QueueServiceClient;

/// The time that each request to the API server takes, and each answer.
const LATENCY: Duration = Duration::from_millis(10);

/// The lines of the audit log that this thread has written since the last call.
fn audit_lines() -> Vec<String> {
    LINES.take()
}

/// Calls, hangs up after `patience`, and waits until nothing goes on.
async fn cut_off<T>(patience: Duration, call: impl Future<Output = T>) -> bool {
    let answered = tokio::time::timeout(patience, call).await.is_ok();
    tokio::time::sleep(LATENCY * 20).await;
    answered
}

#[tokio::test(start_paused = true)]
async fn an_order_is_carried_out_audited_and_announced_or_none_of_it() {
    drop(audit_lines());
    let (mut carried_out, mut unheard) = (0, 0);
    for step in 0..12 {
        let bench = Bench::new().await;
        bench.manager.state.lock().latency = LATENCY;
        let mut client = ControllerServiceClient::new(bench.channel.clone());
        let request = proto::DisableControllerRequest {
            name: "deployment".into(),
            reason: "a storm".into(),
            ..Default::default()
        };
        let answered = cut_off(LATENCY / 2 * step, client.disable_controller(jane(request))).await;
        let lines = audit_lines();
        let state = bench.manager.state.lock();
        let entry = state.overrides.entry("deployment-controller");
        let changed = usize::from(entry.is_some_and(|entry| entry.order == Order::Disabled));
        assert_eq!((lines.len(), state.announced.len()), (changed, changed), "{step}: {lines:?}");
        carried_out += changed;
        if let [line] = &lines[..] {
            assert!(line.starts_with("changed [deployment-controller] force=false"), "{line}");
            let gone = line.ends_with("caller=gone");
            assert!(!(gone && answered), "{line}");
            unheard += usize::from(gone);
        }
    }
    assert!(carried_out > unheard && unheard >= 3, "{carried_out} {unheard}");
}

#[tokio::test(start_paused = true)]
async fn stepping_down_is_carried_out_audited_and_announced_or_none_of_it() {
    drop(audit_lines());
    let mut unheard = 0;
    for step in 0..8 {
        let bench = Bench::new().await;
        bench.manager.state.lock().latency = LATENCY;
        let mut client = LeaderServiceClient::new(bench.channel.clone());
        let call = client.step_down(jane(proto::StepDownRequest::default()));
        let answered = cut_off(LATENCY / 2 * step, call).await;
        let lines = audit_lines();
        let state = bench.manager.state.lock();
        let done = state.stepped_down.len();
        let announced: Vec<_> = state.announced.iter().map(|mutation| mutation.action).collect();
        assert_eq!((lines.len(), announced), (done, vec![MutationKind::SteppedDown; done]), "{step}");
        unheard += usize::from(done == 1 && !answered);
    }
    assert!(unheard >= 2, "{unheard}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_waiting_and_not_the_order() {
    let bench = Bench::new().await;
    bench.manager.state.lock().latency = LATENCY;
    let mut client = ControllerServiceClient::new(bench.channel.clone());
    let request = proto::DisableControllerRequest { name: "deployment".into(), ..Default::default() };
    let mut request = jane(request);
    request.set_timeout(LATENCY + LATENCY / 2);
    assert!(client.disable_controller(request).await.is_err());
    tokio::time::sleep(LATENCY * 20).await;
    let state = bench.manager.state.lock();
    assert!(state.overrides.entry("deployment-controller").is_some());
    assert_eq!(state.announced.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hanging_syncs_and_events_keep_out_no_order_of_another_user() {
    let bench = Bench::new().await;
    bench.manager.state.lock().hangs = Some(Hang::Syncs);
    let sync = async |user: &'static str| {
        let object = Some(proto::ObjectKey { namespace: "shop".into(), name: "web".into() });
        let request =
            proto::SyncObjectRequest { controller: "deployment".into(), object, ..Default::default() };
        let mut client = QueueServiceClient::new(bench.channel.clone());
        tokio::time::timeout(LATENCY, client.sync_object(by(user, request))).await
    };
    for user in ["one", "two", "three", "four"] {
        for _ in 0..16 {
            assert!(sync(user).await.is_err(), "the sync hangs");
        }
    }
    let refused = sync("five").await.unwrap().unwrap_err();
    assert!(refused.message().contains("too many syncs"), "{refused:?}");
    // Orders whose Events are not written: more than all users have places for.
    bench.manager.state.lock().hangs = Some(Hang::Events);
    for reason in 0..100 {
        order(&bench, "one", "job", &reason.to_string()).await.unwrap();
    }
    order(&bench, "jane", "deployment", "").await.unwrap();
    let mut leader = LeaderServiceClient::new(bench.channel.clone());
    leader.step_down(jane(proto::StepDownRequest::default())).await.unwrap();
    assert_eq!(bench.manager.state.lock().stepped_down.len(), 1);
    bench.manager.state.lock().hangs = None;
    tokio::time::sleep(LATENCY * 2).await;
    assert_eq!(bench.manager.state.lock().announced.len(), 102, "one each, and none is lost");
}

async fn order(bench: &Bench, user: &'static str, name: &str, reason: &str) -> Result<(), Status> {
    let request = proto::DisableControllerRequest {
        name: name.to_owned(),
        reason: reason.to_owned(),
        ..Default::default()
    };
    let mut client = ControllerServiceClient::new(bench.channel.clone());
    client.disable_controller(by(user, request)).await.map(drop)
}

#[tokio::test(start_paused = true)]
async fn unwritten_events_bound_the_orders_of_their_user_and_no_step_down() {
    let bench = Bench::with(AdminOptions { user_records: 2, ..AdminOptions::default() }, 8).await;
    bench.manager.state.lock().hangs = Some(Hang::Events);
    for reason in ["first", "second"] {
        order(&bench, "jane", "job", reason).await.unwrap();
    }
    let refused = order(&bench, "jane", "job", "third").await.unwrap_err();
    assert!(refused.message().contains("changes whose Kubernetes Events are not written yet"), "{refused:?}");
    order(&bench, "joe", "job", "fourth").await.unwrap();
    bench.manager.state.lock().hangs = None;
    tokio::time::sleep(LATENCY * 2).await;
    order(&bench, "jane", "job", "fifth").await.unwrap();
    bench.manager.state.lock().hangs = Some(Hang::Events);
    for reason in ["sixth", "seventh"] {
        order(&bench, "jane", "job", reason).await.unwrap();
    }
    order(&bench, "jane", "job", "eighth").await.unwrap_err();
    let mut leader = LeaderServiceClient::new(bench.channel.clone());
    leader.step_down(jane(proto::StepDownRequest::default())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn hanging_up_begins_no_more_mutations_than_a_user_may_have() {
    let bench =
        Bench::with(AdminOptions { user_mutations: 2, mutations: 3, ..AdminOptions::default() }, 8).await;
    bench.manager.state.lock().latency = Duration::from_mins(1);
    let order = async |user: &'static str| {
        let mut client = ControllerServiceClient::new(bench.channel.clone());
        let request = proto::DisableControllerRequest { name: "deployment".into(), ..Default::default() };
        tokio::time::timeout(LATENCY, client.disable_controller(by(user, request))).await
    };
    for user in ["jane", "jane", "joe"] {
        assert!(order(user).await.is_err(), "nobody waits for it");
    }
    for (user, message) in [("jane", "\"jane\" has 2 mutations"), ("joe", "too many mutations")] {
        let refused = order(user).await.unwrap().unwrap_err();
        assert!(refused.message().contains(message), "{refused:?}");
        assert_eq!(why::<()>(Err(refused)).1, "TOO_MANY_CALLS");
    }
    bench.shutdown.cancel();
    assert_eq!(why(order("joe").await.unwrap()).1, "SHUTTING_DOWN", "and none at the end");
}

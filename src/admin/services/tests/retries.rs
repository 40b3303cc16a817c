//! Answers that are safe to retry: `NOT_LEADER` says that nothing was done.

use std::time::Duration;

use tonic::Code;

use super::fake::{OTHER, at};
use super::*;
use crate::admin::manager::Phase;
use crate::admin::overrides::{Entry, Order};
use crate::admin::proto;
use crate::admin::proto::controller_service_client::ControllerServiceClient;
use crate::admin::proto::leader_service_client::LeaderServiceClient;
use crate::admin::proto::queue_service_client::QueueServiceClient;

const NAME: &str = "deployment-controller";
const LATENCY: Duration = Duration::from_millis(10);

async fn call(bench: &Bench, rpc: &str) -> Result<(), Status> {
    let mut controllers = ControllerServiceClient::new(bench.channel.clone());
    let (name, wait) = (NAME.to_owned(), true);
    match rpc {
        "enable" => {
            let request = proto::EnableControllerRequest { name, wait, ..Default::default() };
            controllers.enable_controller(jane(request)).await.map(drop)
        }
        "disable" => {
            let request = proto::DisableControllerRequest { name, wait, ..Default::default() };
            controllers.disable_controller(jane(request)).await.map(drop)
        }
        "clear" => {
            let request = proto::ClearOverridesRequest { name, wait, ..Default::default() };
            controllers.clear_overrides(jane(request)).await.map(drop)
        }
        "step-down" => {
            let request = proto::StepDownRequest::default();
            LeaderServiceClient::new(bench.channel.clone()).step_down(jane(request)).await.map(drop)
        }
        _ => {
            let object = Some(proto::ObjectKey { namespace: "ns".into(), name: "web".into() });
            let controller = NAME.to_owned();
            let request = proto::SyncObjectRequest { controller, object, ..Default::default() };
            QueueServiceClient::new(bench.channel.clone()).sync_object(jane(request)).await.map(drop)
        }
    }
}

/// An override that each order changes.
fn override_for_an_hour() -> Entry {
    Entry {
        order: Order::Disabled,
        user: "joe".to_owned(),
        time: at(0),
        reason: String::new(),
        until: Some(at(3600)),
        version: 1,
        replica: OTHER.to_owned(),
        force: Some(false),
    }
}

#[tokio::test(start_paused = true)]
async fn not_leader_is_never_answered_after_a_change() {
    for rpc in ["enable", "disable", "clear", "step-down", "sync"] {
        let mut lost = 0;
        for step in 0..16 {
            let bench = Bench::new().await;
            bench.manager.set(|state| {
                state.latency = LATENCY;
                state.overrides = state.overrides.with(&[(NAME.to_owned(), override_for_an_hour())]);
                // Waiting for the controller takes for ever.
                state.controller(NAME).phase = Phase::Stopping;
            });
            let losing = async {
                tokio::time::sleep(LATENCY / 2 * step).await;
                bench.manager.lose(OTHER);
            };
            let (outcome, ()) = tokio::join!(call(&bench, rpc), losing);
            let state = bench.manager.state.lock();
            let changed = state.writes + state.stepped_down.len() + state.synced.len() > 0;
            let Err(status) = outcome else {
                assert!(changed, "{rpc} {step}");
                continue;
            };
            let (code, reason) = why::<()>(Err(status));
            match reason.as_str() {
                "NOT_LEADER" => assert!(!changed, "{rpc} {step}: nothing may be done"),
                "LEADER_CHANGED" => assert!(!changed && rpc == "step-down", "{rpc} {step}"),
                "LEADERSHIP_LOST" => {
                    assert!(changed && code == Code::Aborted, "{rpc} {step}");
                    lost += 1;
                }
                _ => panic!("{rpc} {step}: {reason}"),
            }
        }
        assert_eq!(lost > 0, ["enable", "disable", "clear"].contains(&rpc), "{rpc}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_requests_to_step_down_end_one_term() {
    let bench = Bench::new().await;
    bench.manager.state.lock().latency = LATENCY;
    let (first, second) = tokio::join!(call(&bench, "step-down"), call(&bench, "step-down"));
    let (done, refused) = if first.is_ok() { (first, second) } else { (second, first) };
    assert!(done.is_ok());
    assert_eq!(why(refused), (Code::FailedPrecondition, "LEADER_CHANGED".into()));
    tokio::time::sleep(LATENCY * 5).await;
    let state = bench.manager.state.lock();
    assert_eq!((state.stepped_down.len(), state.announced.len()), (1, 1), "and one Event");
}

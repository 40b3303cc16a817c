//! Refused calls cost nothing: the manager is not looked at before the caller is authorized.

use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::admin::authorize::METHODS;
use crate::admin::proto;
use crate::admin::proto::controller_service_client::ControllerServiceClient;
use crate::admin::proto::event_service_client::EventServiceClient;
use crate::admin::proto::leader_service_client::LeaderServiceClient;
use crate::admin::proto::queue_service_client::QueueServiceClient;

/// The answer to a well-formed call, by its method.
async fn call(bench: &Bench, user: &'static str, rpc: &str) -> Result<(), Status> {
    let channel = || bench.channel.clone();
    let (mut controllers, mut queues) =
        (ControllerServiceClient::new(channel()), QueueServiceClient::new(channel()));
    let mut leader = LeaderServiceClient::new(channel());
    let name = "deployment".to_owned();
    let object = Some(proto::ObjectKey { namespace: "ns".into(), name: "web".into() });
    match rpc {
        "ControllerService/ListControllers" => {
            controllers.list_controllers(by(user, proto::ListControllersRequest::default())).await.map(drop)
        }
        "ControllerService/GetController" => {
            controllers.get_controller(by(user, proto::GetControllerRequest { name })).await.map(drop)
        }
        "ControllerService/EnableController" => {
            let request = proto::EnableControllerRequest { name, ..Default::default() };
            controllers.enable_controller(by(user, request)).await.map(drop)
        }
        "ControllerService/DisableController" => {
            let request = proto::DisableControllerRequest { name, ..Default::default() };
            controllers.disable_controller(by(user, request)).await.map(drop)
        }
        "ControllerService/ClearOverrides" => {
            let request = proto::ClearOverridesRequest { name, ..Default::default() };
            controllers.clear_overrides(by(user, request)).await.map(drop)
        }
        "ControllerService/WatchControllers" => {
            controllers.watch_controllers(by(user, proto::WatchControllersRequest::default())).await.map(drop)
        }
        "EventService/StreamEvents" => {
            let request = by(user, proto::StreamEventsRequest::default());
            EventServiceClient::new(channel()).stream_events(request).await.map(drop)
        }
        "LeaderService/GetLeader" => {
            leader.get_leader(by(user, proto::GetLeaderRequest::default())).await.map(drop)
        }
        "LeaderService/WatchLeader" => {
            leader.watch_leader(by(user, proto::WatchLeaderRequest::default())).await.map(drop)
        }
        "LeaderService/StepDown" => {
            leader.step_down(by(user, proto::StepDownRequest::default())).await.map(drop)
        }
        "QueueService/ListQueues" => {
            queues.list_queues(by(user, proto::ListQueuesRequest::default())).await.map(drop)
        }
        "QueueService/GetQueue" => {
            let request = proto::GetQueueRequest { name, ..Default::default() };
            queues.get_queue(by(user, request)).await.map(drop)
        }
        "QueueService/SyncObject" => {
            let request = proto::SyncObjectRequest { controller: name, object, ..Default::default() };
            queues.sync_object(by(user, request)).await.map(drop)
        }
        "QueueService/ExplainObject" => {
            let request = proto::ExplainObjectRequest { controller: name, object, ..Default::default() };
            queues.explain_object(by(user, request)).await.map(drop)
        }
        other => panic!("{other} is not called here"),
    }
}

#[tokio::test]
async fn a_refused_call_reads_nothing_of_the_manager() {
    let bench = Bench::new().await;
    bench.manager.state.lock().untouchable = true;
    for method in METHODS {
        assert_eq!(
            why(call(&bench, "outsider", method.rpc).await).0,
            Code::PermissionDenied,
            "{}",
            method.rpc
        );
    }
    // Health asks for no role, and looks at no queue. The health of controllers asks for credentials.
    let mut health = HealthClient::new(bench.channel.clone());
    for service in ["", "leader", "deployment", "deployment-controller", "coxswain.admin.v1.QueueService"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        assert!(health.check(by("outsider", request)).await.is_ok(), "{service}");
    }
    // The reads are what is forbidden: whoever may call does not get past them.
    bench.manager.state.lock().untouchable = false;
    assert!(call(&bench, "jane", "ControllerService/GetController").await.is_ok());
}

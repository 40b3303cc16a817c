//! What is below the services: reflection, limits, and calls that are no calls.

use tonic::Code;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1alpha;

use super::*;
use crate::admin::proto;
use crate::admin::proto::controller_service_client::ControllerServiceClient;

fn list() -> ServerReflectionRequest {
    let message_request = Some(MessageRequest::ListServices(String::new()));
    ServerReflectionRequest { host: String::new(), message_request }
}

async fn reflected(bench: &Bench, user: Option<&'static str>) -> Result<Vec<String>, Status> {
    let stream = futures::stream::iter([list()]);
    let request = match user {
        Some(user) => by(user, stream),
        None => tonic::Request::new(stream),
    };
    let mut client = ServerReflectionClient::new(bench.channel.clone());
    let answer = client.server_reflection_info(request).await?.into_inner().message().await?.unwrap();
    match answer.message_response.unwrap() {
        MessageResponse::ListServicesResponse(services) => {
            Ok(services.service.into_iter().map(|service| service.name).collect())
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn reflection_tells_all_services_to_those_who_may_know() {
    let bench = Bench::new().await;
    let services = reflected(&bench, Some("jane")).await.unwrap();
    for service in ["ControllerService", "EventService", "LeaderService", "QueueService"] {
        assert!(services.contains(&format!("coxswain.admin.v1.{service}")), "{services:?}");
    }
    assert!(services.contains(&"grpc.health.v1.Health".to_owned()), "{services:?}");
    assert_eq!(why(reflected(&bench, None).await).0, Code::Unauthenticated);
    let open = Bench::with(AdminOptions { anonymous_reflection: true, ..AdminOptions::default() }, 8).await;
    assert_eq!(reflected(&open, None).await.unwrap(), services);

    // The older one, which older tools ask; the details of errors are described too.
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(bench.channel.clone());
    for symbol in ["coxswain.admin.v1.Controller", "google.rpc.ErrorInfo"] {
        let symbol =
            v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(symbol.to_owned());
        let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(symbol) };
        let stream = futures::stream::iter([request]);
        let mut answers = client.server_reflection_info(jane(stream)).await.unwrap().into_inner();
        match answers.message().await.unwrap().unwrap().message_response.unwrap() {
            v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(files) => {
                assert!(!files.file_descriptor_proto.is_empty());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_too_large_or_unknown_is_refused_and_the_rest_goes_on() {
    let bench = Bench::new().await;
    let mut client = ControllerServiceClient::new(bench.channel.clone());
    let large = proto::GetControllerRequest { name: "x".repeat(100_000) };
    let refused = client.get_controller(jane(large)).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let mut odd = jane(proto::GetControllerRequest { name: "deployment".into() });
    odd.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    assert_eq!(fields(client.get_controller(odd).await), ["grpc-timeout"]);

    let mut raw = tonic::client::Grpc::new(bench.channel.clone());
    raw.ready().await.unwrap();
    let path = "/coxswain.admin.v1.ControllerService/DropTables".parse().unwrap();
    let codec =
        tonic_prost::ProstCodec::<proto::GetControllerRequest, proto::GetControllerResponse>::default();
    let unknown = raw.unary(jane(proto::GetControllerRequest::default()), path, codec).await.unwrap_err();
    assert_eq!(unknown.code(), Code::Unimplemented);

    // Events as a request of controllers: bytes that are another message, or none.
    raw.ready().await.unwrap();
    let path = "/coxswain.admin.v1.ControllerService/GetController".parse().unwrap();
    let codec = tonic_prost::ProstCodec::<proto::Event, proto::GetControllerResponse>::default();
    let event = proto::Event { sequence: 9, ..Default::default() };
    let malformed = raw.unary(jane(event), path, codec).await.unwrap_err();
    assert!(matches!(malformed.code(), Code::Internal | Code::InvalidArgument), "{malformed:?}");
    assert!(
        client.get_controller(jane(proto::GetControllerRequest { name: "deployment".into() })).await.is_ok()
    );
}

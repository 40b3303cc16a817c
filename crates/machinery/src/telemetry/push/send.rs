//! The way of a push to the collector, over gRPC or HTTP.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use opentelemetry_http::HttpClient as _;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use prost::Message as _;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use super::settings::PushSettings;
use crate::telemetry::tracing::TracingError;
use crate::telemetry::tracing::settings::Protocol;
use crate::telemetry::tracing::transport::{Collector, Http};

const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// Sends pushes; bounded in time by whoever sends.
pub(super) struct Sender {
    headers: HeaderMap,
    way: Way,
}

enum Way {
    Grpc(Grpc<Channel>),
    Http(Box<Http>, Uri),
}

impl Sender {
    /// To be called within a runtime; connects when there is something to send.
    pub(super) fn new(settings: &PushSettings) -> Result<Self, TracingError> {
        let collector = Collector {
            endpoint: &settings.endpoint,
            timeout: settings.timeout,
            certificate: settings.certificate.as_deref(),
        };
        let way = match settings.protocol {
            Protocol::Grpc => Way::Grpc(Grpc::new(collector.channel()?)),
            Protocol::HttpProtobuf => Way::Http(Box::new(collector.http()?), settings.endpoint.clone()),
        };
        Ok(Self { headers: settings.headers.clone(), way })
    }

    /// `Err` says why it was not taken, or not as a whole.
    pub(super) async fn send(&mut self, request: ExportMetricsServiceRequest) -> Result<(), String> {
        let answer = match &mut self.way {
            Way::Grpc(client) => grpc(client, request, self.headers.clone()).await?,
            Way::Http(client, endpoint) => http(client, endpoint, request, &self.headers).await?,
        };
        match answer.partial_success {
            Some(partial) if partial.rejected_data_points > 0 => Err(format!(
                "the collector rejected {} data points: {}",
                partial.rejected_data_points, partial.error_message
            )),
            _ => Ok(()),
        }
    }
}

async fn grpc(
    client: &mut Grpc<Channel>,
    request: ExportMetricsServiceRequest,
    headers: HeaderMap,
) -> Result<ExportMetricsServiceResponse, String> {
    client.ready().await.map_err(|error| error.to_string())?;
    let mut request = tonic::Request::new(request);
    *request.metadata_mut() = MetadataMap::from_headers(headers);
    let codec = tonic_prost::ProstCodec::default();
    let answer = client.unary(request, PathAndQuery::from_static(EXPORT), codec).await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| format!("{:?}: {}", status.code(), status.message()))
}

async fn http(
    client: &Http,
    endpoint: &Uri,
    request: ExportMetricsServiceRequest,
    headers: &HeaderMap,
) -> Result<ExportMetricsServiceResponse, String> {
    let mut sent = Request::new(Bytes::from(request.encode_to_vec()));
    *sent.method_mut() = Method::POST;
    *sent.uri_mut() = endpoint.clone();
    *sent.headers_mut() = headers.clone();
    sent.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
    let answer = client.send_bytes(sent).await.map_err(|error| error.to_string())?;
    if !answer.status().is_success() {
        return Err(format!("the collector responded with {}", answer.status()));
    }
    // There are collectors that answer with nothing, or in words.
    Ok(ExportMetricsServiceResponse::decode(answer.into_body()).unwrap_or_default())
}

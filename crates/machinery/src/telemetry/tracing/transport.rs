//! The way to the collector: OTLP over gRPC or HTTP, on the TLS that everything else here uses.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig};
use rustls::{ClientConfig, RootCertStore};
use tonic::transport::{Channel, Endpoint};

use super::provider::TracingError;
use super::settings::{Protocol, TracingSettings};
use crate::tls::{self, Roots, ServerVerifier};

/// A collector answers with little; more than this is read from none.
const MOST_ANSWERED: usize = 1 << 20;
/// After this silence of a connection that is waited for a ping is sent, so that one that is dead is found out.
const PING_AFTER: Duration = Duration::from_secs(10);
/// Connections that nobody uses are kept this long.
const IDLE: Duration = Duration::from_mins(1);

/// A collector, as far as the way to it goes.
#[derive(Clone, Copy)]
pub(in crate::telemetry) struct Collector<'a> {
    pub(in crate::telemetry) endpoint: &'a Uri,
    pub(in crate::telemetry) timeout: Duration,
    pub(in crate::telemetry) certificate: Option<&'a Path>,
}

impl Collector<'_> {
    /// A channel for gRPC. To be called within a runtime; connects when there is something to send.
    pub(in crate::telemetry) fn channel(self) -> Result<Channel, TracingError> {
        let endpoint = Endpoint::from(self.endpoint.clone())
            .connect_timeout(self.timeout)
            .http2_keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(self.timeout);
        let connect = HttpsConnectorBuilder::new().with_tls_config(self.tls()?).https_or_http();
        Ok(endpoint.connect_with_connector_lazy(connect.enable_http2().wrap_connector(self.tcp())))
    }

    /// A client for HTTP; connects when there is something to send.
    pub(in crate::telemetry) fn http(self) -> Result<Http, TracingError> {
        let connect = HttpsConnectorBuilder::new().with_tls_config(self.tls()?).https_or_http();
        Ok(Http::new(connect.enable_all_versions().wrap_connector(self.tcp())))
    }

    fn tcp(self) -> HttpConnector {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(self.timeout));
        tcp
    }

    fn tls(self) -> Result<ClientConfig, TracingError> {
        let builder =
            ClientConfig::builder_with_provider(tls::provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| TracingError::Exporter(error.to_string()))?;
        let builder = match self.certificate {
            Some(path) => {
                let verifier = Arc::new(ServerVerifier::new(roots(path)?));
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
            // The system's roots need not even be there where nothing is encrypted.
            None if self.endpoint.scheme_str() == Some("http") => {
                builder.with_root_certificates(RootCertStore::empty())
            }
            None => builder
                .with_native_roots()
                .map_err(|error| TracingError::Exporter(format!("load the system's CAs: {error}")))?,
        };
        Ok(builder.with_no_client_auth())
    }
}

/// What sends spans to the collector. To be called within a runtime; connects when there is something to send.
pub(super) fn exporter(settings: &TracingSettings) -> Result<SpanExporter, TracingError> {
    let collector = Collector {
        endpoint: &settings.endpoint,
        timeout: settings.timeout,
        certificate: settings.certificate.as_deref(),
    };
    let built = match settings.protocol {
        Protocol::Grpc => {
            let channel = collector.channel()?;
            SpanExporter::builder().with_tonic().with_channel(channel).with_timeout(settings.timeout).build()
        }
        Protocol::HttpProtobuf => SpanExporter::builder()
            .with_http()
            .with_http_client(collector.http()?)
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .with_endpoint(settings.endpoint.to_string())
            .with_timeout(settings.timeout)
            .build(),
    };
    built.map_err(|error| TracingError::Exporter(error.to_string()))
}

fn roots(path: &Path) -> Result<Roots, TracingError> {
    let unfit = |why: String| TracingError::Certificate { path: path.to_owned(), why };
    let pem = std::fs::read(path).map_err(|error| unfit(error.to_string()))?;
    Roots::from_pem(&pem).map_err(|error| unfit(error.to_string()))
}

/// OTLP/HTTP on our own client.
pub(in crate::telemetry) struct Http(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl Http {
    fn new(connector: HttpsConnector<HttpConnector>) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        Self(builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(connector))
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

#[tonic::async_trait]
impl HttpClient for Http {
    /// Bounded in time by whoever sends.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.0.request(request.map(Full::new)).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MOST_ANSWERED).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }
}

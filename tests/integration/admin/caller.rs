//! A caller of the admin API, with generated clients or bytes of its own, over TLS as users have it.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coxswain::admin::proto::controller_service_client::ControllerServiceClient;
use coxswain::admin::proto::event_service_client::EventServiceClient;
use coxswain::admin::proto::leader_service_client::LeaderServiceClient;
use coxswain::admin::proto::queue_service_client::QueueServiceClient;
use coxswain::admin::proto::stream_events_request::Start;
use coxswain::admin::proto::stream_events_response::Item;
use coxswain::admin::proto::{self, EventFilter, StreamEventsRequest};
use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error, ResponseFuture};
use hyper_util::rt::TokioExecutor;
use kube::config::Kubeconfig;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::ExposeSecret as _;
use tonic::Status;
use tonic::body::Body;
use tonic_types::StatusExt as _;

use crate::harness::{ControlPlane, Manager};

/// Who calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who<'a> {
    /// Nobody in particular.
    Nobody,
    /// The user of a kubeconfig, by client certificate.
    Certificate(&'a Path),
    /// Whoever has this token.
    Token(&'a str),
}

/// A caller with connections of its own. Also a channel for generated clients.
#[derive(Clone)]
pub(crate) struct Admin {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    base: Uri,
    bearer: Option<HeaderValue>,
}

/// Certificate and key of a kubeconfig's user, PEM each.
pub(crate) fn files(kubeconfig: &Path) -> (Vec<u8>, Vec<u8>) {
    let config = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig");
    let user = config.auth_infos[0].auth_info.clone().expect("a user");
    let decoded = |text: &str| STANDARD.decode(text).expect("base64");
    let certificate = decoded(&user.client_certificate_data.expect("a certificate"));
    (certificate, decoded(user.client_key_data.expect("a key").expose_secret()))
}

fn tls(plane: &ControlPlane, who: Who<'_>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_file_iter(&plane.report.ca_file).expect("a PEM file") {
        roots.add(der.expect("a certificate")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(roots);
    let Who::Certificate(kubeconfig) = who else { return config.with_no_client_auth() };
    let (certificate, key) = files(kubeconfig);
    let chain = CertificateDer::pem_slice_iter(&certificate).map(|der| der.expect("a certificate")).collect();
    let key = PrivateKeyDer::from_pem_slice(&key).expect("a key");
    config.with_client_auth_cert(chain, key).expect("the certificate and its key")
}

/// Sends what there is at once, as gRPC's own channels do: otherwise each call would wait for an acknowledgement.
fn tcp() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector
}

impl Admin {
    pub(crate) fn of(plane: &ControlPlane, manager: &Manager<'_>, who: Who<'_>) -> Self {
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls(plane, who)).https_only();
        let connector = connector.enable_http2().wrap_connector(tcp());
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build(connector);
        Self::with(client, manager, who)
    }

    /// A caller that knows HTTP/1.1 only.
    pub(super) fn of_old(plane: &ControlPlane, manager: &Manager<'_>, who: Who<'_>) -> Self {
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls(plane, who)).https_only();
        let client =
            Client::builder(TokioExecutor::new()).build(connector.enable_http1().wrap_connector(tcp()));
        Self::with(client, manager, who)
    }

    fn with(
        client: Client<HttpsConnector<HttpConnector>, Body>,
        manager: &Manager<'_>,
        who: Who<'_>,
    ) -> Self {
        let bearer = match who {
            Who::Token(token) => Some(format!("Bearer {token}").parse().expect("a header's value")),
            Who::Nobody | Who::Certificate(_) => None,
        };
        Self { client, base: manager.url.parse().expect("a URL"), bearer }
    }

    /// The cluster's administrator.
    pub(crate) fn master(plane: &ControlPlane, manager: &Manager<'_>) -> Self {
        Self::of(plane, manager, Who::Certificate(&plane.report.kubeconfigs["admin"]))
    }

    pub(crate) fn controllers(&self) -> ControllerServiceClient<Self> {
        ControllerServiceClient::new(self.clone())
    }

    pub(super) fn events(&self) -> EventServiceClient<Self> {
        EventServiceClient::new(self.clone())
    }

    pub(crate) fn leader(&self) -> LeaderServiceClient<Self> {
        LeaderServiceClient::new(self.clone())
    }

    pub(crate) fn queues(&self) -> QueueServiceClient<Self> {
        QueueServiceClient::new(self.clone())
    }

    /// A controller as it is.
    pub(super) async fn controller(&self, name: &str) -> proto::Controller {
        let request = proto::GetControllerRequest { name: name.to_owned() };
        let answer = self.controllers().get_controller(request).await.expect("an answer");
        answer.into_inner().controller.expect("the controller")
    }

    /// Controllers as they are.
    pub(crate) async fn list(&self, names: &[&str]) -> Vec<proto::Controller> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let filter = Some(proto::ControllerFilter { names, ..Default::default() });
        let request = proto::ListControllersRequest { filter, ..Default::default() };
        self.controllers().list_controllers(request).await.expect("an answer").into_inner().controllers
    }

    /// Enables or disables, without a word.
    pub(super) async fn toggle(&self, name: &str, enable: bool, wait: bool) -> Result<(), Status> {
        let name = name.to_owned();
        if enable {
            let request = proto::EnableControllerRequest { name, wait, ..Default::default() };
            self.controllers().enable_controller(request).await.map(drop)
        } else {
            let request = proto::DisableControllerRequest { name, wait, force: true, ..Default::default() };
            self.controllers().disable_controller(request).await.map(drop)
        }
    }

    /// Whether the replica leads.
    pub(super) async fn leads(&self) -> Option<bool> {
        let answer = self.leader().get_leader(proto::GetLeaderRequest::default()).await.ok()?;
        Some(answer.into_inner().leader?.leading)
    }

    /// Events of the past, as far as the log goes back, about one controller or all.
    pub(crate) async fn past(&self, controller: &str, of: proto::EventType) -> Vec<proto::Event> {
        let controllers = if controller.is_empty() { Vec::new() } else { vec![controller.to_owned()] };
        let filter = Some(EventFilter { controllers, types: vec![of.into()], ..Default::default() });
        let start = Some(Start::SinceSequence(0));
        let request = StreamEventsRequest { filter, start, replay_only: true, ..Default::default() };
        let mut stream = self.events().stream_events(request).await.expect("a stream").into_inner();
        let mut events = Vec::new();
        while let Some(message) = stream.message().await.expect("a message") {
            if let Some(Item::Event(event)) = message.item {
                events.push(event);
            }
        }
        events
    }

    /// Sends bytes as the body of a call.
    pub(super) async fn raw(
        &self,
        path: &str,
        headers: &[(&'static str, &'static str)],
        body: Body,
    ) -> Result<Response<Incoming>, Error> {
        let mut request =
            Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        tower::Service::call(&mut self.clone(), request.body(body).expect("a request")).await
    }
}

impl tower::Service<Request<Body>> for Admin {
    type Response = Response<Incoming>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> ResponseFuture {
        let mut target = self.base.clone().into_parts();
        let path = request.uri().path_and_query().cloned();
        target.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
        *request.uri_mut() = Uri::from_parts(target).expect("a URL");
        if let Some(bearer) = &self.bearer {
            request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        }
        self.client.request(request)
    }
}

/// The reason that an error gives to machines.
pub(super) fn reason(status: &Status) -> String {
    status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default()
}

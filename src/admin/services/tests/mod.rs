//! The services over a fake manager, called through real clients over an in-memory connection.

mod controllers;
pub(crate) mod fake;
mod hangups;
mod leader;
mod orders;
mod queues;
mod refusals;
mod retries;
mod streams;
mod transport;
mod web;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{AdminDeps, AdminOptions, service};
use crate::admin::authorize::Authorize;
use crate::admin::events::EventLog;
use coxswain_machinery::client::ApiError;
use coxswain_machinery::serve::{AUTHENTICATED, AuthorizeError, Decision, ResourceAttributes, UserInfo};
use fake::Fake;

/// What stands for authentication in these tests.
const USER: &str = "x-test-user";

/// Allows everyone everything but what its rule denies, and keeps what it was asked.
#[derive(Default)]
pub(crate) struct Judge {
    asked: Mutex<Vec<(String, ResourceAttributes)>>,
    /// A user who may no longer do anything.
    revoked: Mutex<Option<&'static str>>,
    /// The server no longer answers.
    silent: Mutex<bool>,
}

impl Authorize for Judge {
    fn authorize<'a>(
        &'a self,
        user: &'a Arc<UserInfo>,
        attributes: ResourceAttributes,
    ) -> BoxFuture<'a, Result<Decision, AuthorizeError>> {
        self.asked.lock().push((user.name.clone(), attributes.clone()));
        if *self.silent.lock() {
            return Box::pin(std::future::pending());
        }
        let revoked = *self.revoked.lock();
        let answer = match user.name.as_str() {
            name if Some(name) == revoked => Ok(Decision::Denied { reason: "no longer".to_owned() }),
            "outsider" => Ok(Decision::Denied { reason: String::new() }),
            "viewer" if attributes.verb == "update" => {
                Ok(Decision::Denied { reason: "only looks".to_owned() })
            }
            "tenant" if attributes.namespace != "team" => Ok(Decision::Denied { reason: String::new() }),
            "narrow" if attributes.name != "deployment-controller" => {
                Ok(Decision::Denied { reason: String::new() })
            }
            "unlucky" => {
                let error = ApiError::Malformed { request: "review".to_owned(), what: "away".to_owned() };
                Err(AuthorizeError { source: error })
            }
            _ => Ok(Decision::Allowed),
        };
        Box::pin(std::future::ready(answer))
    }
}

/// Services that run, and what they run on.
struct Bench {
    manager: Arc<Fake>,
    judge: Arc<Judge>,
    events: Arc<EventLog>,
    shutdown: CancellationToken,
    channel: Channel,
    _tasks: JoinSet<()>,
}

/// Puts the identity in place, as the secure port does.
#[derive(Clone)]
struct Identify<S>(S);

impl<S> tower::Service<http::Request<hyper::body::Incoming>> for Identify<S>
where
    S: tower::Service<http::Request<tonic::body::Body>, Error = Infallible> + Clone,
{
    type Response = S::Response;
    type Error = Infallible;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<hyper::body::Incoming>) -> S::Future {
        let user = match request.headers_mut().remove(USER) {
            None => UserInfo::anonymous(),
            Some(name) => UserInfo {
                name: name.to_str().unwrap().to_owned(),
                groups: vec![AUTHENTICATED.to_owned()],
                ..UserInfo::default()
            },
        };
        request.extensions_mut().insert(Arc::new(user));
        self.0.call(request.map(tonic::body::Body::new))
    }
}

impl Bench {
    async fn new() -> Self {
        Self::with(AdminOptions::default(), 64).await
    }

    async fn with(options: AdminOptions, ring: usize) -> Self {
        Self::over(Fake::new(), options, ring).await
    }

    async fn over(manager: Fake, options: AdminOptions, ring: usize) -> Self {
        let manager = Arc::new(manager);
        let judge = Arc::new(Judge::default());
        let events = Arc::new(EventLog::new("log-1", ring, manager.clock()));
        let shutdown = CancellationToken::new();
        let deps = AdminDeps {
            manager: Arc::clone(&manager) as _,
            authorizer: Arc::clone(&judge) as _,
            events: Arc::clone(&events),
            shutdown: shutdown.clone(),
            metrics: crate::admin::AdminMetrics::register(&coxswain_machinery::telemetry::Registry::new())
                .unwrap(),
            mutations: tokio_util::task::TaskTracker::new(),
        };
        let service = Identify(service(deps, &options).unwrap());
        let (client, server) = tokio::io::duplex(64 << 10);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let service = hyper_util::service::TowerToHyperService::new(service);
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            // The connection ends when the client goes; how is of no interest.
            let _ = builder.serve_connection(TokioIo::new(server), service).await;
        });
        let log = Arc::clone(&events);
        tasks.spawn(async move { log.run().await });
        let mut client = Some(client);
        let connector = tower::service_fn(move |_| {
            let io =
                client.take().map(TokioIo::new).ok_or_else(|| std::io::Error::other("one connection only"));
            std::future::ready(io)
        });
        let channel = Endpoint::from_static("http://admin").connect_with_connector(connector).await.unwrap();
        Self { manager, judge, events, shutdown, channel, _tasks: tasks }
    }
}

/// A request of a user.
fn by<T>(user: &'static str, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert(USER, user.parse().unwrap());
    request
}

/// A request of one who may do everything.
fn jane<T>(message: T) -> tonic::Request<T> {
    by("jane", message)
}

/// The code and the reason of an error.
fn why<T: std::fmt::Debug>(outcome: Result<T, Status>) -> (Code, String) {
    let status = outcome.unwrap_err();
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    (status.code(), reason)
}

/// An outcome to look at more than once.
fn again<T>(outcome: &Result<T, Status>) -> Result<(), Status> {
    outcome.as_ref().map(|_| ()).map_err(Clone::clone)
}

/// The fields complained about.
fn fields<T: std::fmt::Debug>(outcome: Result<T, Status>) -> Vec<String> {
    let status = outcome.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let violations = status.get_details_bad_request().unwrap().field_violations;
    violations.into_iter().map(|violation| violation.field).collect()
}

/// A fact of an error.
fn fact<T: std::fmt::Debug>(outcome: Result<T, Status>, key: &str) -> String {
    let info = outcome.unwrap_err().get_details_error_info().unwrap();
    info.metadata.get(key).cloned().unwrap_or_default()
}

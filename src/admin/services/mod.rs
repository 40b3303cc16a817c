//! The gRPC services, over [`Manager`] and the event log.
//!
//! Each checks its request, asks the cluster's authorization, and only then looks at the manager. [`routes`] puts them
//! together with health and reflection.

mod controllers;
mod events;
mod guard;
mod health;
mod leader;
mod mutate;
mod queues;
mod watch;

#[cfg(test)]
pub(crate) mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Extensions, Status};
use tower::{Layer as _, Service, ServiceExt as _};

use super::authorize::{Authorize, Method, check};
use super::convert::address_of;
use super::deadline::DeadlineLayer;
use super::errors::{Failure, Reason};
use super::events::EventLog;
use super::manager::Manager;
use super::proto;
use crate::serve::{Handler, UserInfo, handler};

/// What the services are made of.
#[derive(Clone)]
pub struct AdminDeps {
    /// The manager.
    pub manager: Arc<dyn Manager>,
    /// Judges what callers may do.
    pub authorizer: Arc<dyn Authorize>,
    /// What the manager does.
    pub events: Arc<EventLog>,
    /// Ends the streams.
    pub shutdown: CancellationToken,
}

/// What callers are allowed to use up, and what they see without credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminOptions {
    /// Streams that may be open at the same time, of all services and callers together.
    pub streams: usize,
    /// Bytes of a request.
    pub request_bytes: usize,
    /// Whether reflection needs no credentials.
    pub anonymous_reflection: bool,
}

impl Default for AdminOptions {
    fn default() -> Self {
        Self { streams: 4096, request_bytes: 64 << 10, anonymous_reflection: false }
    }
}

/// When to come back if too many streams are open.
const STREAM_RETRY: Duration = Duration::from_secs(5);

/// The answers of a streaming RPC.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// What all services share.
#[derive(Clone)]
struct Shared {
    manager: Arc<dyn Manager>,
    authorizer: Arc<dyn Authorize>,
    events: Arc<EventLog>,
    shutdown: CancellationToken,
    streams: Arc<Semaphore>,
}

impl Shared {
    /// Who calls, if they may.
    async fn allow(
        &self,
        extensions: &Extensions,
        method: Method,
        name: &str,
    ) -> Result<Arc<UserInfo>, Status> {
        check(&*self.authorizer, extensions, method, name).await
    }

    /// A place for a stream, given back when the stream is dropped.
    fn stream_place(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let failure = Failure::new(Reason::TooManyStreams, "too many streams are open on this replica");
            failure.retry_after(STREAM_RETRY).into()
        })
    }

    /// `Ok` if this replica leads; otherwise who does.
    fn must_lead(&self) -> Result<(), Status> {
        let leases = self.manager.leases();
        let Some(main) = leases.first() else { return Ok(()) };
        if main.leading {
            return Ok(());
        }
        let holder = main.record.as_ref().map(|record| record.holder.to_string()).unwrap_or_default();
        let address = address_of(&holder, &self.manager.replicas());
        let message = match (holder.as_str(), address.as_str()) {
            ("", _) => "nobody leads at present".to_owned(),
            (holder, "") => format!("{holder} leads, not this replica"),
            (holder, address) => format!("{holder} leads, not this replica: call it at {address}"),
        };
        Err(Failure::new(Reason::NotLeader, message)
            .with("leader", holder)
            .with("leader_address", address)
            .into())
    }
}

fn shutting_down() -> Status {
    Failure::new(Reason::ShuttingDown, "this replica is shutting down").retry_after(STREAM_RETRY).into()
}

/// The services could not be put together: a defect of the build.
#[derive(Debug, thiserror::Error)]
#[error("reflection: {0}")]
pub struct RoutesError(#[from] tonic_reflection::server::Error);

/// All services.
pub fn routes(deps: AdminDeps, options: AdminOptions) -> Result<Routes, RoutesError> {
    let shared = Shared {
        manager: deps.manager,
        authorizer: deps.authorizer,
        events: deps.events,
        shutdown: deps.shutdown,
        streams: Arc::new(Semaphore::new(options.streams.min(Semaphore::MAX_PERMITS))),
    };
    let limit = options.request_bytes;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // So that tools can show the details of errors.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let mut services = Routes::builder();
    services
        .add_service(
            proto::controller_service_server::ControllerServiceServer::new(controllers::Service(
                shared.clone(),
            ))
            .max_decoding_message_size(limit),
        )
        .add_service(
            proto::event_service_server::EventServiceServer::new(events::Service(shared.clone()))
                .max_decoding_message_size(limit),
        )
        .add_service(
            proto::leader_service_server::LeaderServiceServer::new(leader::Service(shared.clone()))
                .max_decoding_message_size(limit),
        )
        .add_service(
            proto::queue_service_server::QueueServiceServer::new(queues::Service(shared.clone()))
                .max_decoding_message_size(limit),
        )
        .add_service(
            tonic_health::pb::health_server::HealthServer::new(health::Service(shared))
                .max_decoding_message_size(limit),
        )
        .add_service(reflection().build_v1()?.max_decoding_message_size(limit))
        .add_service(reflection().build_v1alpha()?.max_decoding_message_size(limit));
    Ok(services.routes().prepare())
}

/// All services as one, behind the rule of who needs credentials and with deadlines: what is mounted on the secure
/// port. The caller is expected in the requests' extensions, as an `Arc<UserInfo>`; without it nobody is let in.
pub fn service(
    deps: AdminDeps,
    options: AdminOptions,
) -> Result<
    impl Service<
        http::Request<tonic::body::Body>,
        Response = http::Response<tonic::body::Body>,
        Error = std::convert::Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static,
    RoutesError,
> {
    let routes = routes(deps, options)?;
    Ok(DeadlineLayer.layer(guard::Guard::new(routes, options.anonymous_reflection)))
}

/// The same as a handler of the secure port's router.
pub fn admin_handler(deps: AdminDeps, options: AdminOptions) -> Result<Handler, RoutesError> {
    let service = service(deps, options)?;
    Ok(handler(move |request: http::Request<crate::serve::RequestBody>| {
        let service = service.clone();
        async move {
            let request = request.map(tonic::body::Body::new);
            match service.oneshot(request).await {
                Ok(response) => response.map(|body| {
                    use http_body_util::BodyExt as _;
                    body.map_err(Into::into).boxed_unsync()
                }),
                Err(never) => match never {},
            }
        }
    }))
}

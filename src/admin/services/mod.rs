//! The gRPC services, over [`Manager`] and the event log.
//!
//! Each checks its request, asks the cluster's authorization, and only then looks at the manager. [`service`] puts them
//! together with health and reflection.

mod controllers;
mod events;
mod guard;
mod health;
mod leader;
mod measure;
mod mutate;
mod orders;
mod places;
mod queues;
mod snapshots;
mod trace;
mod watch;

#[cfg(test)]
pub(crate) mod tests;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use http::{HeaderName, StatusCode, Version};
use http_body_util::BodyExt as _;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic::{Extensions, Status};
use tower::{Layer as _, Service, ServiceExt as _};
use tower_http::cors::{AllowOrigin, CorsLayer};
use tracing::Instrument as _;

use super::authorize::{Authorize, Method, check, check_in};
use super::convert::address_of;
use super::deadline::DeadlineLayer;
use super::errors::{ErrorReply, Reason};
use super::events::EventLog;
use super::manager::{LeaseState, Manager, Mutation};
use super::metrics::AdminMetrics;
use super::proto;
use coxswain_machinery::serve::{Lines, PageHandler, UserInfo, handler, text};
use places::{MutationClass, StreamPlaces};
use snapshots::{QueueDetails, Snapshots};

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
    /// Counts its calls.
    pub metrics: AdminMetrics,
    /// The mutations under way, for the manager to wait for at its end.
    pub mutations: TaskTracker,
}

/// What callers are allowed to use up, and what they see without credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminOptions {
    /// Streams that may be open at the same time, of all services and all callers with credentials together.
    pub streams: usize,
    /// The same of one user.
    pub user_streams: usize,
    /// Calls that one user may have under way at the same time.
    pub user_calls: usize,
    /// Mutations other than syncs that one user may have under way at the same time, waited for or not.
    pub user_mutations: usize,
    /// The same of all users together.
    pub mutations: usize,
    /// Syncs that one user may have under way at the same time, waited for or not.
    pub user_syncs: usize,
    /// The same of all users together.
    pub syncs: usize,
    /// Mutations of one user, without syncs, whose Events may be unwritten at the same time.
    pub user_records: usize,
    /// Streams of all callers without credentials, who have no others.
    pub stranger_streams: usize,
    /// Bytes of a request.
    pub request_bytes: usize,
    /// Whether reflection needs no credentials.
    pub anonymous_reflection: bool,
    /// Whether gRPC-Web calls are taken too.
    pub grpc_web: bool,
    /// Origins whose pages may call; `*` for all.
    pub allowed_origins: Vec<String>,
}

impl Default for AdminOptions {
    fn default() -> Self {
        Self {
            streams: 4096,
            user_streams: 64,
            user_calls: 256,
            user_mutations: 16,
            mutations: 64,
            user_syncs: 16,
            syncs: 64,
            user_records: 1024,
            stranger_streams: 64,
            request_bytes: 64 << 10,
            anonymous_reflection: false,
            grpc_web: false,
            allowed_origins: Vec::new(),
        }
    }
}

/// Bytes of a request for health.
const HEALTH_BYTES: usize = 1 << 10;

/// For how long browsers may remember that they may call.
const PREFLIGHT: Duration = Duration::from_hours(1);

/// The answers of a streaming RPC.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// What all services share.
#[derive(Clone)]
struct Shared {
    manager: Arc<dyn Manager>,
    authorizer: Arc<dyn Authorize>,
    events: Arc<EventLog>,
    shutdown: CancellationToken,
    metrics: AdminMetrics,
    mutations: TaskTracker,
    places: StreamPlaces,
    refusals: Arc<Lines>,
    snapshots: Arc<Snapshots>,
    queue_details: Arc<QueueDetails>,
}

impl Shared {
    /// Who calls, if they may.
    async fn allow(
        &self,
        extensions: &Extensions,
        method: Method,
        name: &str,
    ) -> Result<Arc<UserInfo>, Status> {
        check(&*self.authorizer, &self.refusals, extensions, method, name).await
    }

    /// Who calls, if they may do it in each of these namespaces, or everywhere without one.
    async fn allow_in(
        &self,
        extensions: &Extensions,
        method: Method,
        namespaces: &[String],
    ) -> Result<Arc<UserInfo>, Status> {
        check_in(&*self.authorizer, &self.refusals, extensions, method, namespaces).await
    }

    /// Runs a mutation as a task of the manager, which ends it even if the caller hangs up or its deadline passes. The
    /// mutation answers its caller and returns the record of what it changed. The task frees the mutation's place, and then
    /// writes that record as an Event: a slow write of Events keeps out no other user's mutation.
    async fn carry_out<T, M>(
        &self,
        user: &UserInfo,
        class: MutationClass,
        mutation: impl FnOnce(Waiting<T>) -> M,
    ) -> Result<T, Status>
    where
        M: Future<Output = Option<Mutation>> + Send + 'static,
    {
        if self.shutdown.is_cancelled() {
            return Err(shutting_down());
        }
        // The task holds both places: a caller that hangs up early starts no more mutations than others.
        let (place, record) = self.places.mutation(user, class)?;
        let (answer, answered) = oneshot::channel();
        let mutation = mutation(Waiting(answer));
        let manager = Arc::clone(&self.manager);
        let task = async move {
            let mutation = mutation.await;
            drop(place);
            if let Some(mutation) = mutation {
                manager.announce(&mutation).await;
            }
            drop(record);
        };
        drop(self.mutations.spawn(task.in_current_span()));
        answered.await.unwrap_or_else(|_| {
            let message = "the call failed unexpectedly; it may have been applied";
            Err(ErrorReply::new(Reason::OutcomeUnknown, message).into())
        })
    }

    /// `Ok` if this replica leads; otherwise who does.
    fn must_lead(&self) -> Result<(), Status> {
        let leases = self.manager.leases();
        let Some(main) = leases.first() else { return Ok(()) };
        if main.leading {
            return Ok(());
        }
        let (holder, address) = self.leader(main);
        let message = match (holder.as_str(), address.as_str()) {
            ("", _) => "no replica leads".to_owned(),
            (holder, "") => format!("{holder} leads, not this replica"),
            (holder, address) => format!("{holder} leads, not this replica; call {address}"),
        };
        Err(ErrorReply::new(Reason::NotLeader, message)
            .with("leader", holder)
            .with("leader_address", address)
            .into())
    }

    /// `Ok` if this replica leads, after a change was made: `NOT_LEADER` promises that nothing was done.
    fn must_lead_still(&self) -> Result<(), Status> {
        if self.must_lead().is_ok() {
            return Ok(());
        }
        let leases = self.manager.leases();
        let (holder, address) = leases.first().map(|main| self.leader(main)).unwrap_or_default();
        let message = "this replica no longer leads; the override is stored, and the next leader applies it";
        Err(ErrorReply::new(Reason::LeadershipLost, message)
            .with("written", "true")
            .with("leader", holder)
            .with("leader_address", address)
            .into())
    }

    /// `Ok` unless another replica leads whose flags for controllers are known to differ from this replica's.
    fn must_select_as_the_leader(&self) -> Result<(), Status> {
        let Some((holder, address)) = self.differing_leader() else { return Ok(()) };
        let at = if address.is_empty() { String::new() } else { format!(" at {address}") };
        let message = format!(
            "--controllers or --admin-overrides of this replica differs from the leader's ({holder}); call the \
             leader{at}, or set force"
        );
        Err(ErrorReply::new(Reason::FlagsDiffer, message)
            .with("leader", holder)
            .with("leader_address", address)
            .into())
    }

    /// Returns identity and address of the leader if it is another replica whose flags for controllers are known to differ from this
    /// replica's. The selection of a replica of another version or of a kube-controller-manager is not known.
    fn differing_leader(&self) -> Option<(String, String)> {
        let leases = self.manager.leases();
        let main = leases.first().filter(|main| !main.leading)?;
        let (holder, address) = self.leader(main);
        let replicas = self.manager.replicas();
        let selection = |identity: &str| {
            let replica = replicas.iter().find(|replica| replica.identity == identity);
            replica.map(|replica| replica.selection.as_str()).filter(|selection| !selection.is_empty())
        };
        let differ = selection(self.manager.identity())? != selection(&holder)?;
        differ.then_some((holder, address))
    }

    /// Identity and address of the holder of a Lease; empty if not known.
    fn leader(&self, lease: &LeaseState) -> (String, String) {
        let holder = lease.record.as_ref().map(|record| record.holder.to_string()).unwrap_or_default();
        let address = address_of(&holder, &self.manager.replicas());
        (holder, address)
    }
}

/// The caller of a mutation.
struct Waiting<T>(oneshot::Sender<Result<T, Status>>);

impl<T> Waiting<T> {
    /// Whether the caller hung up, or its deadline passed.
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    fn answer(self, outcome: Result<T, Status>) {
        // A caller that is gone gets no answer.
        drop(self.0.send(outcome));
    }
}

fn shutting_down() -> Status {
    ErrorReply::new(Reason::ShuttingDown, "this replica is shutting down").retry_after(places::RETRY).into()
}

/// The services could not be put together: a defect of the build.
#[derive(Debug, thiserror::Error)]
#[error("build the reflection service: {0}")]
pub struct RoutesError(#[from] tonic_reflection::server::Error);

/// All services.
fn routes(deps: AdminDeps, options: &AdminOptions, places: StreamPlaces) -> Result<Routes, RoutesError> {
    let shared = Shared {
        snapshots: Arc::new(Snapshots::new(Arc::clone(&deps.manager))),
        queue_details: Arc::new(QueueDetails::new(Arc::clone(&deps.manager))),
        manager: deps.manager,
        authorizer: deps.authorizer,
        events: deps.events,
        shutdown: deps.shutdown,
        metrics: deps.metrics,
        mutations: deps.mutations,
        places,
        refusals: Arc::default(),
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
            // It is for strangers too, and takes a name.
            tonic_health::pb::health_server::HealthServer::new(health::Service(shared))
                .max_decoding_message_size(limit.min(HEALTH_BYTES)),
        )
        .add_service(reflection().build_v1()?.max_decoding_message_size(limit))
        .add_service(reflection().build_v1alpha()?.max_decoding_message_size(limit));
    Ok(services.routes().prepare())
}

/// All services as one, behind the rule of who needs credentials and with deadlines: what is mounted on the secure
/// port. The caller is expected in the requests' extensions, as an `Arc<UserInfo>`; without it nobody is let in.
pub fn service(
    deps: AdminDeps,
    options: &AdminOptions,
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
    let metrics = deps.metrics.clone();
    let places = StreamPlaces::new(options, metrics.clone());
    let routes = routes(deps, options, places.clone())?;
    let inner = DeadlineLayer.layer(guard::Guard::new(routes, options.anonymous_reflection, places));
    let inner = measure::Measured { inner, metrics: metrics.clone() };
    Ok(trace::Traced { inner, metrics })
}

/// The same as a handler of the secure port's router, for browsers too if that is asked for.
pub fn admin_handler(deps: AdminDeps, options: &AdminOptions) -> Result<PageHandler, RoutesError> {
    let service = service(deps, options)?;
    if options.grpc_web {
        let translated = tonic_web::GrpcWebLayer::new().layer(service);
        return Ok(as_handler(cors(options).layer(translated)));
    }
    Ok(only_http2(as_handler(service)))
}

/// Turns calls over HTTP/1.1 away: their status comes in trailers, which no such client gets, and an answer that leaves
/// open whether a controller was disabled is worse than none. (gRPC-Web has its own form of trailers.)
fn only_http2(inner: PageHandler) -> PageHandler {
    Arc::new(move |request| {
        if request.version() == Version::HTTP_2 {
            return inner(request);
        }
        let refused = text(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "gRPC requires HTTP/2\n");
        Box::pin(std::future::ready(refused))
    })
}

/// Which pages may call, and what they may send and see.
fn cors(options: &AdminOptions) -> CorsLayer {
    let origins = if options.allowed_origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        // Those that are no header values were refused with the flags.
        AllowOrigin::list(options.allowed_origins.iter().filter_map(|origin| origin.parse().ok()))
    };
    let header = HeaderName::from_static;
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([http::Method::POST])
        .allow_headers(
            ["authorization", "content-type", "x-grpc-web", "x-user-agent", "grpc-timeout"].map(header),
        )
        .expose_headers(["grpc-status", "grpc-message", "grpc-status-details-bin"].map(header))
        .max_age(PREFLIGHT)
}

fn as_handler<S, B>(service: S) -> PageHandler
where
    S: Service<http::Request<tonic::body::Body>, Response = http::Response<B>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = bytes::Bytes, Error = Status> + Send + 'static,
{
    handler(move |request: http::Request<coxswain_machinery::serve::RequestBody>| {
        let service = service.clone();
        async move {
            match service.oneshot(request.map(tonic::body::Body::new)).await {
                Ok(response) => response.map(|body| body.map_err(Into::into).boxed_unsync()),
                Err(never) => match never {},
            }
        }
    })
}
